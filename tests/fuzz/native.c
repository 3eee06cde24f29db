/* Tries scan.c, rules.c and forms.c with all that comes by standard input: the forms of two dialects, as bool of po_forms; then
   inputs, each of four uint32_t and three texts: a seed, lengths, a target in another form, a target, and a file.

   With an argument `--failures`, each input is tried again and again: with the first allocation failing, then with the
   second, until none fails. A fault is the report of a sanitizer, or a failed assertion. */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"
#include "scan.h"

typedef enum { NONE, MADE, RESIZED } failure;

static size_t live, allocations, failing; /* the allocation of this number fails */
static failure failed;
static uint64_t chance;

#define NAME(text, kind) {{text, sizeof text - 1}, kind}

static bool fails(failure kind)
{
    bool is_now = ++allocations == failing;
    failed = is_now ? kind : failed;
    live += kind == MADE && !is_now;
    return is_now;
}

/* The allocation of these: there malloc is named counted_malloc. */

void *counted_calloc(size_t count, size_t size)
{
    return fails(MADE) ? NULL : calloc(count, size);
}

void *counted_malloc(size_t size)
{
    return fails(MADE) ? NULL : malloc(size);
}

void *counted_realloc(void *block, size_t size)
{
    return fails(RESIZED) ? NULL : realloc(block, size);
}

void counted_free(void *block)
{
    live -= block != NULL;
    free(block);
}

static size_t below(size_t bound)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(chance >> 33) % bound;
}

/* Return memory of a size, so that a read beyond its end is noticed. */
static char *exactly(size_t size)
{
    return malloc(size ? size : 1);
}

static po_text read_text(uint32_t length)
{
    char *made = exactly(length);
    assert(fread(made, 1, length, stdin) == length);
    return (po_text){made, length};
}

static bool allows(const po_rules *rules, po_decision decision, int64_t least)
{
    if (decision.place < 0) {
        assert(decision.place >= least);
        return true;
    }
    size_t place = po_rules_start(rules), decided = (size_t)decision.place;
    po_text pattern;
    while (place < decided) {
        po_rules_at(rules, &place, &pattern);
    }
    assert(place == decided && place < po_rules_end(rules));
    return po_rules_allow(rules, decided);
}

static void decide(const po_rules *rules, const po_forms *forms, po_text target, po_text written)
{
    po_work work = {2500000, 400, 100, 4, 4}, less = {below(20000), below(400), below(100), 1 + below(4), below(4)};
    failed = NONE;
    po_decision usual = po_decide(rules, forms, &work, target);
    assert(failed == NONE || usual.place == PO_OTHER);
    allows(rules, usual, PO_OTHER);
    allows(rules, po_decide(rules, forms, &less, target), PO_OTHER);
    less = (po_work){less.budget, work.per_try, work.per_segment, work.passed_at_once, work.per_start};
    bool allowed = allows(rules, po_decide_normal(rules, &work, target, written), PO_ROBOTS_TXT);
    assert(allowed || !allows(rules, po_decide_normal(rules, &less, target, written), PO_ROBOTS_TXT));
}

static bool is_one_line(po_text text)
{
    return memchr(text.start, '\n', text.length) == NULL;
}

static void try_listed(const po_rules *rules)
{
    uint32_t line = 0;
    size_t count = 0, place = po_rules_start(rules);
    for (; place < po_rules_end(rules); count++) {
        po_text pattern;
        po_rule one = po_rules_at(rules, &place, &pattern);
        assert(is_one_line(pattern) && is_one_line(one.value) && is_one_line(one.name) && one.line >= line);
        line = one.line;
    }
    assert(place == po_rules_end(rules) && count == po_rules_count(rules) && place < po_rules_octets(rules));
}

static void try_rules(po_rule *given, size_t count, const po_forms *forms, po_text target, po_text written)
{
    failed = NONE;
    po_rules *rules = po_rules_new(given, count, forms);
    assert((rules == NULL) == (failed == MADE));
    if (rules) {
        try_listed(rules);
    }
    for (size_t at = 0; rules && at < 8; at++) {
        po_text near = at && count ? given[below(count)].value : target;
        near.length = below(2) ? near.length : below(near.length + 1);
        char *copied = memcpy(exactly(near.length), near.start, near.length);
        decide(rules, forms, (po_text){copied, near.length}, below(2) ? written : (po_text){NULL, 0});
        free(copied);
    }
    po_rules_free(rules);
}

static void try_spans(const po_row *rows, size_t count)
{
    const po_text nobody = {"", 0};
    po_span span = {0, 0};
    size_t at = 0;
    assert(!po_next_span(rows, count, &at, nobody, &span));
    po_text name = count ? rows[below(count)].value : nobody; /* of any row: names are some of them */
    char *lower = memcpy(exactly(name.length), name.start, name.length);
    for (size_t place = 0; place < name.length; place++) {
        lower[place] = (char)(lower[place] >= 'A' && lower[place] <= 'Z' ? lower[place] + 'a' - 'A' : lower[place]);
    }
    uint32_t end = 0;
    for (at = 0; po_next_span(rows, count, &at, (po_text){lower, name.length}, &span); end = span.end) {
        size_t first = po_row_at(rows, count, span.listed_at), last = po_row_at(rows, count, span.end);
        assert(span.listed_at >= end && span.end > span.listed_at && last == at);
        assert(rows[first].kind == PO_USER_AGENT && rows[first].value.length == name.length);
        assert(last == count ? span.end == PO_END : rows[last].starts_group);
        for (bool is_rule = false; first < last; first++) {
            assert(rows[first].kind != PO_USER_AGENT || !is_rule);
            is_rule = is_rule || po_is_rule(&rows[first]);
        }
    }
    free(lower);
}

static void try_input(const po_forms *forms, po_text written, po_text target, po_text body)
{
    static const po_name names[] = {NAME("disallow", PO_DISALLOW), NAME("allow", PO_ALLOW),
                                    NAME("user-agent", PO_USER_AGENT), NAME("content-usage", PO_USAGE_RULE),
                                    NAME("sitemap", PO_SITEMAP)};
    static const po_name starts[] = {NAME("dis", PO_DISALLOW), NAME("user", PO_USER_AGENT)};
    po_syntax syntax = {.names = names, .name_count = 5, .starts = starts, .start_count = below(3)};
    memcpy(syntax.in_token, forms->kept, sizeof syntax.in_token);
    syntax.odd_blanks = below(2) ? (po_text){"\xc2\xa0 \xa0 \xef\xbb\xbf", 8} : (po_text){"", 0};
    syntax.missing_colon = below(2) != 0;
    syntax.most_line_octets = below(2) ? 16663 : below(3) * 9;
    size_t count = 0, used = 0;
    allocations = 0;
    failed = NONE;
    po_row *rows = po_scan(body, &syntax, &count);
    assert((rows == NULL) == (failed != NONE));
    po_rule *given = malloc((count + 1) * sizeof *given);
    for (size_t at = 0; rows && at < count; at++) {
        assert(rows[at].line > (at ? rows[at - 1].line : 0) && rows[at].kind != PO_UNKNOWN);
        if (po_is_rule(&rows[at])) {
            given[used++] = (po_rule){rows[at].value, rows[at].name, rows[at].line, rows[at].kind == PO_ALLOW};
        }
    }
    if (rows) {
        try_spans(rows, count);
        try_rules(given, used, forms, target, written);
    }
    free(given);
    counted_free(rows);
    assert(live == 0);
}

int main(int argument_count, char **arguments)
{
    bool with_failures = argument_count > 1 && strcmp(arguments[1], "--failures") == 0;
    po_forms forms[2];
    for (size_t at = 0; at < 2; at++) {
        assert(fread(&forms[at], offsetof(po_forms, decodes) + 1, 1, stdin) == 1);
    }
    size_t inputs = 0, tries = 0;
    for (uint32_t head[4]; fread(head, sizeof head, 1, stdin) == 1; inputs++) {
        po_text written = read_text(head[1]), target = read_text(head[2]), body = read_text(head[3]);
        failing = 0;
        do {
            chance = head[0];
            po_forms *some = &forms[below(2)];
            some->implies_directories = below(2) != 0;
            some->most_octets = below(4) ? 20480 : below(100);
            try_input(some, written, target, body);
            tries++;
        } while (with_failures && allocations >= failing++);
        free((void *)written.start);
        free((void *)target.start);
        free((void *)body.start);
    }
    printf("%zu inputs, %zu tries\n", inputs, tries);
    return 0;
}
