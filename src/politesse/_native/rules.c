#include "rules.h"

#include <stdlib.h>
#include <string.h>

/* All tables and texts of the rules are in one block of memory. Each text is a span: an offset into `texts`, and a
   length. */

typedef struct {
    uint32_t start;
    uint32_t length;
} span;

typedef struct {
    span pattern;
    span value;
    span name;               /* the name of the field */
    uint32_t line_and_allow; /* twice the number of the line, plus one for an Allow */
} rule;

/* A pattern without stars. The tables of literals are sorted by `text`. */
typedef struct {
    span text;
    uint32_t link; /* of a prefix: one plus the index of the longest other prefix that `text` starts with; else 0 */
    uint32_t rule; /* the index of its rule */
} literal;

/* A pattern with stars: text, star, text, and so on. Its segments are the texts behind the first star. */
typedef struct {
    span form;
    uint32_t head;     /* the octets of the text before the first star */
    uint32_t octets;   /* the octets of all texts */
    uint32_t rule;     /* the index of its rule */
    uint32_t segments; /* the number of segments */
    uint32_t longest;  /* the octets of the longest segment */
    bool anchored;     /* whether the pattern ends with "$" */
    bool allow;        /* true for an Allow, false for a Disallow */
} wildcard;

struct po_rules {
    size_t octets; /* the octets of the block */
    size_t count;  /* the number of all rules */
    size_t prefix_count;
    size_t exact_count;
    size_t wildcard_count;
    uint64_t segments; /* the number of segments of all wildcards */
    uint64_t longest;  /* the sum of `longest` of all wildcards */
    rule *rules;
    literal *prefixes;   /* `rule` of each is the most specific rule of this prefix and of its own prefixes */
    literal *exact;      /* the patterns that match one target only */
    wildcard *wildcards; /* the most specific wildcard comes first */
    char *texts;
};

static const char ROBOTS_TXT[] = "/robots.txt";

static int hex_digit(char character)
{
    if (character >= '0' && character <= '9') {
        return character - '0';
    }
    if (character >= 'A' && character <= 'F') {
        return character - 'A' + 10;
    }
    if (character >= 'a' && character <= 'f') {
        return character - 'a' + 10;
    }
    return -1;
}

static int compared(po_text one, po_text other)
{
    size_t shorter = one.length < other.length ? one.length : other.length;
    int order = shorter ? memcmp(one.start, other.start, shorter) : 0;
    if (order) {
        return order;
    }
    return (one.length > other.length) - (one.length < other.length);
}

static bool starts_with(po_text text, po_text start)
{
    return text.length >= start.length && memcmp(text.start, start.start, start.length) == 0;
}

static po_text text_of(const po_rules *rules, span place)
{
    return (po_text){rules->texts + place.start, place.length};
}

/* Return how specific a rule is: a longer pattern ranks above a shorter pattern, and an Allow ranks above a Disallow of
   the same length (RFC 9309 2.2.2). */
static uint64_t rank_of(const po_rules *rules, int64_t place)
{
    if (place < 0) {
        return 0;
    }
    const rule *one = &rules->rules[place];
    return 2 * (uint64_t)one->pattern.length + (one->line_and_allow & 1);
}

/* Segments of patterns */

typedef struct {
    po_text text;
    char digit; /* the hex digit behind a "%" that ends the text, which is the start of an escape; 0 for other texts */
} segment;

/* Return the segment that starts at `at`, and move `at` behind the star that ends it. */
static segment next_segment(po_text form, size_t *at)
{
    const char *start = form.start + *at;
    size_t left = form.length - *at;
    const char *star = left ? memchr(start, '*', left) : NULL;
    segment found = {{start, star ? (size_t)(star - start) : left}, 0};
    *at += found.text.length + 1;
    size_t length = found.text.length;
    /* "%2" needs no second spelling: "%25" starts with it. */
    if (length >= 2 && start[length - 2] == '%' && start[length - 1] != '2' && hex_digit(start[length - 1]) >= 0) {
        found.digit = start[length - 1];
        found.text.length = length - 1;
    }
    return found;
}

/* Whether a form has neither a star nor an incomplete escape. */
static bool is_literal(po_text form)
{
    if (form.length && memchr(form.start, '*', form.length)) {
        return false;
    }
    bool has_escape = form.length && memchr(form.start, '%', form.length);
    for (size_t at = 0; has_escape && at < form.length; at++) {
        if (form.start[at] == '%' && (at + 2 >= form.length || hex_digit(form.start[at + 1]) < 0 ||
                                      hex_digit(form.start[at + 2]) < 0)) {
            return false;
        }
    }
    return true;
}

/* Compilation */

typedef enum { PREFIX, EXACT, WILDCARD, KINDS } form_kind;

/* A rule that is not yet in the tables. */
typedef struct {
    const po_rule *given;
    po_text key; /* the form, without the "$" at the end if its kind is EXACT */
    form_kind kind;
    bool is_kept;       /* whether the rule counts: no other rule with this pattern precedes it */
    uint32_t place;     /* the index of the rule among the kept rules */
    uint32_t key_start; /* the offset of the key in `texts` */
} draft;

static draft draft_of(const po_rule *given)
{
    draft made = {given, given->form, PREFIX, true, 0, 0};
    if (!is_literal(given->form)) {
        made.kind = WILDCARD;
    } else if (given->form.length && given->form.start[given->form.length - 1] == '$') {
        made.kind = EXACT;
        made.key.length--;
    }
    return made;
}

/* Sort by kind and key. Of rules with one key, the longest pattern comes first. Of rules with one pattern, the rule
   that counts comes first. */
static int by_key(const void *left, const void *right)
{
    const draft *one = *(draft *const *)left, *other = *(draft *const *)right;
    const po_rule *first = one->given, *second = other->given;
    int order = (int)one->kind - (int)other->kind;
    order = order ? order : compared(one->key, other->key);
    if (order) {
        return order;
    }
    order = (first->pattern.length < second->pattern.length) - (first->pattern.length > second->pattern.length);
    order = order ? order : compared(first->pattern, second->pattern);
    order = order ? order : second->allow - first->allow;
    order = order ? order : first->implied - second->implied;
    return order ? order : (first > second) - (first < second);
}

/* Sort the most specific rule first; equally specific rules stay in the order of the file. */
static int by_rank(const void *left, const void *right)
{
    const draft *one = *(draft *const *)left, *other = *(draft *const *)right;
    size_t longer = one->given->pattern.length, shorter = other->given->pattern.length;
    int order = (longer < shorter) - (longer > shorter);
    order = order ? order : other->given->allow - one->given->allow;
    return order ? order : (one > other) - (one < other);
}

/* Of the rules with one pattern keep the first, and count the kept ones by kind. Return how many are kept. */
static size_t strongest(draft **sorted, size_t count, size_t *counts)
{
    size_t kept = 0;
    for (size_t at = 0; at < count; at++) {
        draft *one = sorted[at];
        one->is_kept = kept == 0 || compared(one->given->pattern, sorted[kept - 1]->given->pattern) != 0;
        if (one->is_kept) {
            counts[one->kind]++;
            sorted[kept++] = one;
        }
    }
    return kept;
}

static span added(po_rules *rules, size_t *used, po_text text)
{
    span place = {(uint32_t)*used, (uint32_t)text.length};
    if (text.length) {
        memcpy(rules->texts + *used, text.start, text.length);
    }
    *used += text.length;
    return place;
}

/* Return the span of a text. `whole` was added before, at `place`; a text with which `whole` starts needs no room of
   its own. Any other text is added. */
static span within(po_rules *rules, size_t *used, po_text whole, span place, po_text text)
{
    if (starts_with(whole, text)) {
        return (span){place.start, (uint32_t)text.length};
    }
    return added(rules, used, text);
}

/* Return the octets that the texts of a rule take at most. */
static size_t octets_of(const po_rule *one)
{
    size_t value = starts_with(one->pattern, one->value) ? 0 : one->value.length;
    size_t form = starts_with(one->pattern, one->form) ? 0 : one->form.length;
    return one->pattern.length + value + form;
}

static bool has_name_of(const po_rule *one, const po_rule *before)
{
    return before && compared(one->name, before->name) == 0;
}

/* Return the octets of all texts of the kept rules. */
static size_t text_octets(const draft *drafts, size_t count)
{
    size_t octets = 0;
    const po_rule *before = NULL;
    for (size_t at = 0; at < count; at++) {
        const po_rule *one = drafts[at].given;
        if (drafts[at].is_kept) {
            octets += octets_of(one) + (has_name_of(one, before) ? 0 : one->name.length);
            before = one;
        }
    }
    return octets;
}

/* Fill in the rules, in the order of the file, and their texts. */
static void fill_rules(po_rules *rules, draft *drafts, size_t count)
{
    size_t used = 0, place = 0;
    const po_rule *before = NULL;
    for (size_t at = 0; at < count; at++) {
        const po_rule *one = drafts[at].given;
        if (!drafts[at].is_kept) {
            continue;
        }
        span pattern = added(rules, &used, one->pattern);
        span value = within(rules, &used, one->pattern, pattern, one->value);
        span form = within(rules, &used, one->pattern, pattern, one->form);
        span name = has_name_of(one, before) ? rules->rules[place - 1].name : added(rules, &used, one->name);
        rules->rules[place] = (rule){pattern, value, name, 2 * one->line + one->allow};
        drafts[at].key_start = form.start;
        drafts[at].place = (uint32_t)place++;
        before = one;
    }
}

static span key_of(const draft *one)
{
    return (span){one->key_start, (uint32_t)one->key.length};
}

/* Keep one literal for each text: the most specific, or the first in the file of equally specific literals. Return the
   number of kept literals. */
static size_t fill_literals(const po_rules *rules, literal *kept, draft *const *sorted, size_t count)
{
    size_t used = 0;
    for (size_t at = 0; at < count; at++) {
        uint32_t place = sorted[at]->place;
        if (used == 0 || compared(sorted[at]->key, text_of(rules, kept[used - 1].text)) != 0) {
            kept[used++] = (literal){key_of(sorted[at]), 0, place};
            continue;
        }
        uint64_t rank = rank_of(rules, place), known = rank_of(rules, kept[used - 1].rule);
        if (rank > known || (rank == known && place < kept[used - 1].rule)) {
            kept[used - 1].rule = place;
        }
    }
    return used;
}

static void link_prefixes(po_rules *rules)
{
    literal *prefixes = rules->prefixes;
    for (size_t at = 0; at < rules->prefix_count; at++) {
        size_t link = at;
        while (link && !starts_with(text_of(rules, prefixes[at].text), text_of(rules, prefixes[link - 1].text))) {
            link = prefixes[link - 1].link;
        }
        prefixes[at].link = (uint32_t)link;
        /* A shorter prefix may have the more specific rule: the prefix of "/a*$" is "/a", and its pattern is longer
           than "/ab". */
        if (link && rank_of(rules, prefixes[link - 1].rule) > rank_of(rules, prefixes[at].rule)) {
            prefixes[at].rule = prefixes[link - 1].rule;
        }
    }
}

static wildcard cut(const po_rules *rules, const draft *found)
{
    wildcard made = {key_of(found), 0, 0, found->place, 0, 0, false, found->given->allow};
    if (found->key.length && found->key.start[found->key.length - 1] == '$') {
        made.anchored = true;
        made.form.length--;
    }
    po_text form = text_of(rules, made.form);
    size_t at = 0;
    for (bool is_head = true; is_head || at <= form.length; is_head = false) {
        segment one = next_segment(form, &at);
        made.octets += (uint32_t)one.text.length;
        if (is_head) {
            made.head = (uint32_t)one.text.length;
        } else {
            made.segments++;
            made.longest = one.text.length > made.longest ? (uint32_t)one.text.length : made.longest;
        }
    }
    if (made.segments == 0) {
        made.segments = 1; /* the pattern has no star, but ends within an escape: an empty segment follows */
    }
    return made;
}

static void fill_wildcards(po_rules *rules, draft **found)
{
    if (rules->wildcard_count) {
        qsort(found, rules->wildcard_count, sizeof *found, by_rank);
    }
    for (size_t at = 0; at < rules->wildcard_count; at++) {
        rules->wildcards[at] = cut(rules, found[at]);
        rules->segments += rules->wildcards[at].segments;
        rules->longest += rules->wildcards[at].longest;
    }
}

/* Return the block for some rules and texts; NULL without memory. */
static po_rules *block_for(size_t count, const size_t *counts, size_t texts)
{
    size_t octets = sizeof(po_rules) + count * sizeof(rule) + (counts[PREFIX] + counts[EXACT]) * sizeof(literal) +
                    counts[WILDCARD] * sizeof(wildcard) + texts;
    po_rules *made = malloc(octets);
    if (made) {
        *made = (po_rules){.octets = octets, .count = count, .wildcard_count = counts[WILDCARD]};
        made->rules = (rule *)(made + 1);
        made->prefixes = (literal *)(made->rules + count);
        made->exact = made->prefixes + counts[PREFIX];
        made->wildcards = (wildcard *)(made->exact + counts[EXACT]);
        made->texts = (char *)(made->wildcards + counts[WILDCARD]);
    }
    return made;
}

static po_rules *compiled(const po_rule *given, size_t count, draft *drafts, draft **sorted)
{
    size_t counts[KINDS] = {0};
    for (size_t at = 0; at < count; at++) {
        drafts[at] = draft_of(&given[at]);
        sorted[at] = &drafts[at];
    }
    if (count) {
        qsort(sorted, count, sizeof *sorted, by_key);
    }
    size_t kept = strongest(sorted, count, counts), texts = text_octets(drafts, count);
    if (texts >= UINT32_MAX || kept >= UINT32_MAX / 2) { /* a file has 500 KiB, and is at most 10 MiB */
        return NULL;
    }
    po_rules *rules = block_for(kept, counts, texts);
    if (rules) {
        fill_rules(rules, drafts, count);
        rules->prefix_count = fill_literals(rules, rules->prefixes, sorted, counts[PREFIX]);
        rules->exact_count = fill_literals(rules, rules->exact, sorted + counts[PREFIX], counts[EXACT]);
        link_prefixes(rules);
        fill_wildcards(rules, sorted + counts[PREFIX] + counts[EXACT]);
    }
    return rules;
}

po_rules *po_rules_new(const po_rule *given, size_t count)
{
    draft *drafts = malloc((count + 1) * sizeof *drafts);
    draft **sorted = malloc((count + 1) * sizeof *sorted);
    po_rules *rules = drafts && sorted ? compiled(given, count, drafts, sorted) : NULL;
    free(drafts);
    free(sorted);
    return rules;
}

void po_rules_free(po_rules *rules)
{
    free(rules);
}

size_t po_rules_octets(const po_rules *rules)
{
    return rules->octets;
}

size_t po_rules_count(const po_rules *rules)
{
    return rules->count;
}

po_rule po_rules_at(const po_rules *rules, size_t place)
{
    const rule *one = &rules->rules[place];
    po_text pattern = text_of(rules, one->pattern);
    return (po_rule){pattern, pattern, text_of(rules, one->value), text_of(rules, one->name), one->line_and_allow / 2,
                     (one->line_and_allow & 1) != 0, false};
}

/* Literals */

/* Return how many of the sorted literals sort before `text`, or are equal to it. */
static size_t bisect(const po_rules *rules, const literal *sorted, size_t count, po_text text)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compared(text_of(rules, sorted[middle].text), text) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int64_t best_literal(const po_rules *rules, po_text target)
{
    int64_t best = PO_NO_RULE;
    /* The last prefix that sorts at or before the target is the longest prefix of the target, or starts with it. */
    size_t place = bisect(rules, rules->prefixes, rules->prefix_count, target);
    while (place && !starts_with(target, text_of(rules, rules->prefixes[place - 1].text))) {
        place = rules->prefixes[place - 1].link;
    }
    if (place) {
        best = rules->prefixes[place - 1].rule;
    }
    place = bisect(rules, rules->exact, rules->exact_count, target);
    if (place && compared(text_of(rules, rules->exact[place - 1].text), target) == 0 &&
        rank_of(rules, rules->exact[place - 1].rule) > rank_of(rules, best)) {
        best = rules->exact[place - 1].rule;
    }
    return best;
}

/* Wildcards */

/* Return the first place of `needle` in `text` from `from` on; the length of the text plus one if it has no place. */
static size_t found_at(po_text text, po_text needle, size_t from)
{
    size_t nowhere = text.length + 1;
    if (needle.length == 0) {
        return from;
    }
    while (from + needle.length <= text.length) {
        const char *start = text.start + from;
        const char *first = memchr(start, needle.start[0], text.length - needle.length - from + 1);
        if (!first) {
            return nowhere;
        }
        from = (size_t)(first - text.start);
        if (needle.length == 1 ||
            (first[1] == needle.start[1] && memcmp(first + 1, needle.start + 1, needle.length - 1) == 0)) {
            return from;
        }
        from++;
    }
    return nowhere;
}

/* Return how many octets of `text` at `at` match `digit`, the end of an incomplete escape; -1 if they do not. A target
   has the "%4" of a pattern as the start of "%4F", or as "%254". */
static int tail(po_text text, size_t at, char digit)
{
    if (!digit) {
        return 0;
    }
    char upper = digit >= 'a' ? (char)(digit - 'a' + 'A') : digit;
    if (at < text.length && text.start[at] == upper) {
        return 1;
    }
    bool is_spelled = at + 3 <= text.length && text.start[at] == '2' && text.start[at + 1] == '5';
    return is_spelled && text.start[at + 2] == digit ? 3 : -1;
}

/* Return the place behind the first match of a segment from `from` on; else the length of the text plus one. */
static size_t behind(po_text text, segment one, size_t from)
{
    for (;;) {
        size_t place = found_at(text, one.text, from);
        if (place > text.length) {
            return place;
        }
        /* The leftmost match leaves the most room for later segments, in either spelling. */
        int more = tail(text, place + one.text.length, one.digit);
        if (more >= 0) {
            return place + one.text.length + (size_t)more;
        }
        from = place + 1;
    }
}

static bool may_match(const po_rules *rules, const wildcard *one, po_text target)
{
    return target.length >= one->octets &&
           memcmp(target.start, rules->texts + one->form.start, one->head) == 0;
}

/* Whether a target matches a wildcard; `may_match` is true for both. */
static bool matches(const po_rules *rules, const wildcard *one, po_text target)
{
    po_text form = text_of(rules, one->form);
    size_t at = 0;
    segment head = next_segment(form, &at);
    int more = tail(target, head.text.length, head.digit);
    if (more < 0) {
        return false;
    }
    size_t position = head.text.length + (size_t)more;
    while (at <= form.length) {
        segment next = next_segment(form, &at);
        if (one->anchored && at > form.length) { /* the last segment, in which an incomplete escape is plain text */
            size_t length = next.text.length + (next.digit ? 1 : 0);
            return target.length >= position + length &&
                   memcmp(target.start + target.length - length, next.text.start, length) == 0;
        }
        position = behind(target, next, position);
        if (position > target.length) {
            return false;
        }
    }
    return true;
}

/* A target, and how often each octet occurs in it. */
typedef struct {
    po_text text;
    bool is_counted; /* whether `counts` is filled in: few targets need it */
    uint32_t counts[256];
} counted;

static uint64_t cost_of(const po_rules *rules, const po_work *work, const wildcard *one, counted *target)
{
    if (!target->is_counted) {
        memset(target->counts, 0, sizeof target->counts);
        for (size_t at = 0; at < target->text.length; at++) {
            target->counts[(unsigned char)target->text.start[at]]++;
        }
        target->is_counted = true;
    }
    po_text form = text_of(rules, one->form);
    bool seen[256] = {false};
    uint64_t starts = 0;
    size_t at = 0;
    next_segment(form, &at);
    while (at <= form.length) {
        po_text text = next_segment(form, &at).text;
        unsigned char first = text.length ? (unsigned char)text.start[0] : 0;
        if (text.length && !seen[first]) {
            seen[first] = true;
            starts += target->counts[first];
        }
    }
    return work->per_try + work->per_segment * one->segments + target->text.length / work->passed_at_once +
           starts * (one->longest + work->per_start);
}

/* Return the index of the first undecided Disallow from `from` on that outranks `least`; the count of all wildcards
   without such a Disallow. */
static size_t undecided(const po_rules *rules, const counted *forms, size_t form_count, size_t from, uint64_t least)
{
    for (size_t at = from; at < rules->wildcard_count; at++) {
        const wildcard *one = &rules->wildcards[at];
        if (rank_of(rules, one->rule) <= least) {
            break;
        }
        for (size_t form = 0; form < form_count && !one->allow; form++) {
            if (may_match(rules, one, forms[form].text)) {
                return at;
            }
        }
    }
    return rules->wildcard_count;
}

/* Return the decision: the first wildcard that outranks `best` and matches, or `best` if no wildcard does. */
static po_decision most_specific(const po_rules *rules, const po_work *work, counted *forms, size_t form_count,
                                 int64_t best)
{
    uint64_t least = rank_of(rules, best), left = work->budget;
    size_t longest = 0;
    for (size_t form = 0; form < form_count; form++) {
        longest = forms[form].text.length > longest ? forms[form].text.length : longest;
    }
    /* The work is counted only if an upper bound on all work exceeds the budget; for nearly all files it does not. */
    uint64_t without_target = work->per_try * rules->wildcard_count + work->per_segment * rules->segments;
    uint64_t per_octet = rules->longest + (1 + work->per_start) * rules->wildcard_count;
    bool is_metered = form_count * (without_target + per_octet * longest) > left;
    for (size_t at = 0; at < rules->wildcard_count; at++) {
        const wildcard *one = &rules->wildcards[at];
        if (rank_of(rules, one->rule) <= least) {
            break;
        }
        for (size_t form = 0; form < form_count; form++) {
            if (!may_match(rules, one, forms[form].text)) {
                continue;
            }
            uint64_t cost = is_metered ? cost_of(rules, work, one, &forms[form]) : 0;
            if (cost > left) {
                at = undecided(rules, forms, form_count, at, least);
                return (po_decision){at < rules->wildcard_count ? rules->wildcards[at].rule : best, true};
            }
            left -= cost;
            if (matches(rules, one, forms[form].text)) {
                return (po_decision){one->rule, false};
            }
        }
    }
    return (po_decision){best, false};
}

po_decision po_decide_normal(const po_rules *rules, const po_work *work, po_text normal, po_text written)
{
    /* RFC 9309 2.2.2: /robots.txt is implicitly allowed. */
    if (compared(normal, (po_text){ROBOTS_TXT, sizeof ROBOTS_TXT - 1}) == 0) {
        return (po_decision){PO_ROBOTS_TXT, false};
    }
    int64_t best = best_literal(rules, normal);
    if (rules->wildcard_count == 0) {
        return (po_decision){best, false};
    }
    counted forms[2];
    forms[0].text = normal;
    forms[0].is_counted = false;
    forms[1].text = written;
    forms[1].is_counted = false;
    return most_specific(rules, work, forms, written.start ? 2 : 1, best);
}

/* Normal forms */

/* Append an octet, or its escape if the octet does not stay in a target. Return the new length. */
static size_t put(char *made, size_t length, unsigned char octet, bool stays)
{
    static const char digits[] = "0123456789ABCDEF";
    if (stays) {
        made[length] = (char)octet;
        return length + 1;
    }
    made[length] = '%';
    made[length + 1] = digits[octet >> 4];
    made[length + 2] = digits[octet & 15];
    return length + 3;
}

/* Write the normal form of a part of a target, and return its length: at most three times the length of the part. */
static size_t normalised(char *made, po_text part, const bool *decoded, const po_forms *forms)
{
    size_t length = 0;
    for (size_t at = 0; at < part.length; at++) {
        unsigned char octet = (unsigned char)part.start[at];
        int high = -1, low = -1;
        if (octet == '%' && at + 2 < part.length) {
            high = hex_digit(part.start[at + 1]);
            low = hex_digit(part.start[at + 2]);
        }
        if (high >= 0 && low >= 0) {
            octet = (unsigned char)(16 * high + low);
            length = put(made, length, octet, decoded[octet]);
            at += 2;
        } else {
            length = put(made, length, octet, forms->kept[octet]);
        }
    }
    return length;
}

static bool has_dots(po_text path, bool escaped)
{
    for (size_t at = 0; at + 1 < path.length; at++) {
        bool is_escape = escaped && at + 2 < path.length && path.start[at + 1] == '%' && path.start[at + 2] == '2';
        if (path.start[at] == '/' && (path.start[at + 1] == '.' || is_escape)) {
            return true;
        }
    }
    return false;
}

enum { USUAL_OCTETS = 1024 }; /* the octets of the longest target whose forms are written on the stack */

static po_decision decide_escaped(const po_rules *rules, const po_forms *forms, const po_work *work, po_text path,
                                  po_text query, char *made)
{
    size_t path_length = normalised(made, path, forms->decoded_in_path, forms);
    if (has_dots((po_text){made, path_length}, forms->escaped_dots)) {
        return (po_decision){PO_OTHER, false};
    }
    size_t length = path_length;
    bool is_other = false;
    char *written = made + 3 * (path.length + query.length) + 1;
    if (query.start) {
        made[length++] = '?';
        length += normalised(made + length, query, forms->decoded_in_query, forms);
    }
    size_t written_length = 0;
    if (query.start && forms->query_as_written && rules->wildcard_count) {
        memcpy(written, made, path_length + 1);
        written_length = path_length + 1;
        written_length += normalised(written + written_length, query, forms->decoded_in_path, forms);
        is_other = compared((po_text){made, length}, (po_text){written, written_length}) != 0;
    }
    if (length > forms->most_octets || written_length > forms->most_octets) {
        return (po_decision){PO_OTHER, false};
    }
    return po_decide_normal(rules, work, (po_text){made, length},
                            is_other ? (po_text){written, written_length} : (po_text){NULL, 0});
}

/* Return the target of an http(s) URL; a target is returned as it is. The start is NULL if another reader is needed. */
static po_text target_of(po_text url)
{
    static const po_text schemes[] = {{"https://", 8}, {"http://", 7}};
    if (url.length && url.start[0] == '/') {
        return url;
    }
    for (size_t scheme = 0; scheme < 2; scheme++) {
        if (!starts_with(url, schemes[scheme])) {
            continue;
        }
        for (size_t at = schemes[scheme].length; at < url.length; at++) {
            char one = url.start[at];
            bool is_letter = (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z');
            if (one == '/' && at > schemes[scheme].length) {
                return (po_text){url.start + at, url.length - at};
            }
            if (!is_letter && !(one >= '0' && one <= '9') && one != '.' && one != '-') {
                break;
            }
        }
    }
    return (po_text){NULL, 0};
}

po_decision po_decide(const po_rules *rules, const po_forms *forms, const po_work *work, po_text url)
{
    const po_decision other = {PO_OTHER, false};
    po_text target = target_of(url);
    if (!target.start || target.length > forms->most_octets) {
        return other;
    }
    bool is_plain = true;
    size_t query_at = target.length;
    for (size_t at = 0; at < target.length; at++) {
        unsigned char octet = (unsigned char)target.start[at];
        if (forms->plain[octet]) {
            /* Dot segments are rare. */
            if (octet == '.' && at && target.start[at - 1] == '/') {
                return other;
            }
            if (octet == '?' && query_at == target.length) {
                query_at = at;
            }
            continue;
        }
        if (octet <= ' ' || octet == 0x7f || octet == '#') {
            return other;
        }
        is_plain = false;
    }
    if (is_plain) {
        return po_decide_normal(rules, work, target, (po_text){NULL, 0});
    }
    po_text path = {target.start, query_at}, query = {NULL, 0};
    if (query_at < target.length) {
        query = (po_text){target.start + query_at + 1, target.length - query_at - 1};
    }
    char usual[2 * (3 * USUAL_OCTETS + 1)];
    if (target.length <= USUAL_OCTETS) {
        return decide_escaped(rules, forms, work, path, query, usual);
    }
    char *made = malloc(2 * (3 * target.length + 1));
    if (!made) {
        return other;
    }
    po_decision decision = decide_escaped(rules, forms, work, path, query, made);
    free(made);
    return decision;
}
