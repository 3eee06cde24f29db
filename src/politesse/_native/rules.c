#include "rules.h"

#include <stdlib.h>

/* All rules are in one block of memory: records in the order of the file, and tables of numbers that refer to them.
   The place of a rule is the offset of its record.

     prefixes   sorted by the text; for each a place, and one plus the index of the longest other prefix that the text
                starts with, or 0
     exact      sorted by the text; for each a place
     wildcards  the most specific comes first; for each a place, the offset of the form, the octets of the head, and the
                octets of all texts
     records    flags, pattern, line; then name, value and form if the flags announce them; a text follows its length

   A number in a record takes seven bits of an octet at a time; a number in a table takes two octets, or four if the
   block is large. So a usual rule takes about eight octets and its pattern. */

struct po_rules {
    uint32_t octets;   /* the octets of the block */
    uint32_t count;    /* the number of all rules */
    uint64_t segments; /* the sum of the segments of all wildcards, as segment_costs counts them */
    uint64_t longest;  /* the sum of the longest segments of all wildcards */
    uint32_t prefix_count;
    uint32_t exact_count;
    uint32_t wildcard_count;
    uint32_t records;  /* the offset of the first record */
    uint32_t tables;   /* the offset behind the last record, where the tables start */
    uint32_t names[2]; /* the offsets of the usual names of a Disallow and of an Allow, the first ones in the file */
    bool wide;         /* whether a number in a table takes four octets */
    unsigned char block[];
};

enum { PER_PREFIX = 2, PER_WILDCARD = 4 }; /* the numbers that a table has for each */

/* The flags of a record: the rule is an Allow; the record has a name, because it is not the usual name; a value,
   because it is not the pattern; a form, because it is no start of the pattern. Otherwise the form lacks some octets
   at the end of the pattern, and CUT counts them. */
enum { ALLOW = 1, OWN_NAME = 2, OWN_VALUE = 4, OWN_FORM = 8, CUT = 16, MOST_CUT = 2 };

static const char ROBOTS_TXT[] = "/robots.txt";

/* Numbers */

static size_t number_at(const po_rules *rules, size_t index)
{
    uint16_t narrow = 0;
    uint32_t wide = 0;
    const unsigned char *tables = rules->block + rules->tables;
    if (rules->wide) {
        memcpy(&wide, tables + index * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, tables + index * sizeof narrow, sizeof narrow);
    return narrow;
}

static void set_number(po_rules *rules, size_t index, size_t number)
{
    uint16_t narrow = (uint16_t)number;
    uint32_t wide = (uint32_t)number;
    unsigned char *tables = rules->block + rules->tables;
    if (rules->wide) {
        memcpy(tables + index * sizeof wide, &wide, sizeof wide);
    } else {
        memcpy(tables + index * sizeof narrow, &narrow, sizeof narrow);
    }
}

static size_t exact_table(const po_rules *rules)
{
    return PER_PREFIX * (size_t)rules->prefix_count;
}

static size_t wildcard_table(const po_rules *rules)
{
    return exact_table(rules) + rules->exact_count;
}

/* Records */

/* Read the number at `at`, and move `at` behind it. */
static size_t read_number(const unsigned char **at)
{
    size_t number = **at & 0x7f;
    for (unsigned shift = 7; *(*at)++ & 0x80; shift += 7) {
        number |= (size_t)(**at & 0x7f) << shift;
    }
    return number;
}

static po_text read_text(const unsigned char **at)
{
    size_t length = read_number(at);
    po_text text = {(const char *)*at, length};
    *at += length;
    return text;
}

static po_text pattern_at(const po_rules *rules, size_t place)
{
    const unsigned char *at = rules->block + place + 1;
    return read_text(&at);
}

bool po_rules_allow(const po_rules *rules, size_t place)
{
    return (rules->block[place] & ALLOW) != 0;
}

po_rule po_rules_at(const po_rules *rules, size_t *place, po_text *pattern)
{
    const unsigned char *at = rules->block + *place, *name = NULL;
    unsigned char flags = *at++;
    *pattern = read_text(&at);
    po_rule one = {.value = *pattern, .allow = (flags & ALLOW) != 0};
    one.line = (uint32_t)read_number(&at);
    if (flags & OWN_NAME) {
        one.name = read_text(&at);
    } else {
        name = rules->block + rules->names[one.allow];
        one.name = read_text(&name);
    }
    if (flags & OWN_VALUE) {
        one.value = read_text(&at);
    }
    if (flags & OWN_FORM) {
        read_text(&at);
    }
    *place = (size_t)(at - rules->block);
    return one;
}

/* Return the text with which a rule is compared. */
static po_text form_at(const po_rules *rules, size_t place)
{
    const unsigned char *at = rules->block + place;
    unsigned char flags = *at++;
    po_text form = read_text(&at);
    form.length -= flags / CUT;
    if (flags & OWN_FORM) {
        read_number(&at);
        if (flags & OWN_NAME) {
            read_text(&at);
        }
        if (flags & OWN_VALUE) {
            read_text(&at);
        }
        form = read_text(&at);
    }
    return form;
}

/* Return how specific a rule is: a longer pattern ranks above a shorter pattern, and an Allow ranks above a Disallow of
   the same length (RFC 9309 2.2.2). */
static uint64_t rank_of(const po_rules *rules, int64_t place)
{
    if (place < 0) {
        return 0;
    }
    return 2 * (uint64_t)pattern_at(rules, (size_t)place).length + po_rules_allow(rules, (size_t)place);
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
    if (length >= 2 && start[length - 2] == '%' && start[length - 1] != '2' && po_hex_digit(start[length - 1]) >= 0) {
        found.digit = start[length - 1];
        found.text.length = length - 1;
    }
    return found;
}

/* A pattern with stars: text, star, text, and so on. Its segments are the texts behind the first star. */
typedef struct {
    size_t place;  /* the place of its rule */
    po_text form;  /* the form without the "$" of an anchored pattern */
    bool anchored; /* whether the pattern ends with "$" */
} wildcard;

static wildcard without_anchor(po_text form)
{
    wildcard made = {.form = form, .anchored = po_ends_with(form, '$')};
    made.form.length -= made.anchored;
    return made;
}

static wildcard wildcard_at(const po_rules *rules, size_t index)
{
    size_t place = number_at(rules, wildcard_table(rules) + PER_WILDCARD * index);
    wildcard found = without_anchor(form_at(rules, place));
    found.place = place;
    return found;
}

/* The numbers on which the cost of a wildcard depends; see `cost_of`. */
typedef struct {
    uint64_t segments; /* the number of segments; a segment that ends in an incomplete escape counts as 17 */
    uint64_t longest;  /* the octets of the longest segment; an incomplete escape counts as 16 more */
} segment_costs;

enum { MORE_IF_CUT = 16 }; /* see pattern.py */

static void count_segment(segment_costs *costs, segment one)
{
    uint64_t more = one.digit ? MORE_IF_CUT : 0, length = one.text.length + more;
    costs->segments += 1 + more;
    costs->longest = length > costs->longest ? length : costs->longest;
}

/* Compilation */

/* A rule that is not yet in the tables. */
typedef struct {
    const po_rule *given;
    po_path path;
    bool is_implied; /* whether another rule implies this rule */
    bool is_kept;    /* whether the rule counts: no other rule with this pattern precedes it */
    size_t place;    /* the offset of its record */
    uint64_t start;  /* the kind and the first octets of the key, by which most drafts differ */
} draft;

typedef struct {
    draft *drafts;
    draft **sorted;
    draft **spare; /* the other half of the memory of `sorted`, which sorting needs */
    char *room; /* for the patterns whose normal form differs from the file */
    size_t count;
    size_t counts[PO_FORM_KINDS]; /* of `sorted`, which has the kinds one after another */
} compilation;

/* Return the text by which literals are sorted: the form, without the "$" at the end of an exact one. */
static po_text key_of(const draft *one)
{
    return (po_text){one->path.form.start, one->path.form.length - (one->path.kind == PO_EXACT)};
}

static uint64_t start_of(const draft *one)
{
    po_text key = key_of(one);
    unsigned char f[8] = {0};
    if (key.length) {
        memcpy(f, key.start, key.length < sizeof f ? key.length : sizeof f);
    }
    uint64_t start = (uint64_t)f[0] << 56 | (uint64_t)f[1] << 48 | (uint64_t)f[2] << 40 | (uint64_t)f[3] << 32 |
                     (uint64_t)f[4] << 24 | (uint64_t)f[5] << 16 | (uint64_t)f[6] << 8 | f[7];
    return (uint64_t)one->path.kind << 62 | start >> 2;
}

static size_t draft_rank(const draft *one)
{
    return 2 * one->path.pattern.length + one->given->allow;
}

typedef int order_of(const draft *, const draft *);

/* Sort by kind and key. Of rules with one key, the longest pattern comes first. Of rules with one pattern, the rule
   that counts comes first. */
static int by_key(const draft *first, const draft *second)
{
    if (first->start != second->start) {
        return first->start < second->start ? -1 : 1;
    }
    int order = po_compared(key_of(first), key_of(second));
    if (order) {
        return order;
    }
    po_text longer = first->path.pattern, shorter = second->path.pattern;
    order = (longer.length < shorter.length) - (longer.length > shorter.length);
    order = order ? order : po_compared(longer, shorter);
    order = order ? order : second->given->allow - first->given->allow;
    order = order ? order : first->is_implied - second->is_implied;
    return order ? order : (first > second) - (first < second);
}

/* Sort the most specific rule first; equally specific rules stay in the order of the file. */
static int by_rank(const draft *one, const draft *other)
{
    size_t higher = draft_rank(one), lower = draft_rank(other);
    return higher != lower ? (higher < lower) - (higher > lower) : (one > other) - (one < other);
}

/* Merge two sorted runs, the items from `start` on and those from `middle` on, into `merged`. */
static void merge(draft *const *items, size_t start, size_t middle, size_t end, order_of *order, draft **merged)
{
    size_t left = start, right = middle;
    if (middle < end && order(items[middle - 1], items[middle]) <= 0) { /* as in a file that is sorted already */
        memcpy(merged + start, items + start, (end - start) * sizeof *items);
        return;
    }
    for (size_t at = start; at < end; at++) {
        bool takes_right = left == middle || (right < end && order(items[right], items[left]) < 0);
        merged[at] = takes_right ? items[right++] : items[left++];
    }
}

/* Sort by merging runs of growing length. The qsort of some C libraries takes quadratic time for hostile files. `spare`
   has room for as many items. */
static void sort(draft **items, draft **spare, size_t count, order_of *order)
{
    draft **from = items, **to = spare;
    for (size_t length = 1; length < count; length *= 2) {
        for (size_t start = 0; start < count; start += 2 * length) {
            size_t middle = length < count - start ? start + length : count;
            size_t end = length < count - middle ? middle + length : count;
            merge(from, start, middle, end, order, to);
        }
        draft **sorted = to;
        to = from;
        from = sorted;
    }
    if (from != items && count) {
        memcpy(items, from, count * sizeof *items);
    }
}

/* Make room for the forms of the rules from `at` on; return whether there is memory. */
static bool make_room(compilation *made, const po_rule *given, size_t count, size_t at)
{
    size_t octets = 0;
    for (; at < count; at++) {
        if (given[at].value.length > (SIZE_MAX - octets) / 64) {
            return false;
        }
        octets += 3 * PO_PATH_ROOM(given[at].value.length + 1); /* for the directory that it may imply, too */
    }
    made->room = malloc(octets);
    return made->room != NULL;
}

/* Add the Allow of a directory that the last draft implies, if it implies one (google/robotstxt, HandleAllow). Return
   the rest of the room. */
static char *add_implied(compilation *made, const po_forms *forms, char *room)
{
    static const po_text index = {"index.htm", 9};
    const draft *last = &made->drafts[made->count - 1];
    po_text pattern = last->path.pattern, page = {pattern.start + pattern.length, 0};
    while (page.start > pattern.start && page.start[-1] != '/') {
        page.start--;
        page.length++;
    }
    if (page.start == pattern.start || !po_starts_with(page, index)) {
        return room;
    }
    po_text directory = {room, pattern.length - page.length + 1};
    memcpy(room, pattern.start, directory.length - 1);
    room[directory.length - 1] = '$';
    room += directory.length;
    draft *one = &made->drafts[made->count++];
    *one = (draft){.given = last->given, .is_implied = true};
    return po_path_of(directory, forms, room, &one->path);
}

static bool draft_all(compilation *made, const po_rule *given, size_t count, const po_forms *forms)
{
    char *room = NULL;
    for (size_t at = 0; at < count; at++) {
        draft *one = &made->drafts[made->count++];
        *one = (draft){.given = &given[at]};
        bool implies = forms->implies_directories && given[at].allow;
        bool is_plain = po_plain_path(given[at].value, forms, &one->path);
        if (is_plain && !implies) {
            continue;
        }
        if (!room && !make_room(made, given, count, at)) {
            return false;
        }
        room = room ? room : made->room;
        if (!is_plain) {
            room = po_path_of(given[at].value, forms, room, &one->path);
        }
        if (implies) {
            room = add_implied(made, forms, room);
        }
    }
    return true;
}

/* Sort the drafts. Of rules with one pattern, the first is kept. Of kept literals with one key, only the most specific
   is sorted in, or the first in the file of equally specific literals. Return the number of kept rules. */
static size_t sort_drafts(compilation *made)
{
    size_t kept = 0, used = 0;
    for (size_t at = 0; at < made->count; at++) {
        made->sorted[at] = &made->drafts[at];
        made->drafts[at].start = start_of(&made->drafts[at]);
    }
    sort(made->sorted, made->spare, made->count, by_key);
    const draft *before = NULL;
    for (size_t at = 0; at < made->count; at++) {
        draft *one = made->sorted[at];
        if (before && po_compared(one->path.pattern, before->path.pattern) == 0) {
            continue;
        }
        one->is_kept = true;
        kept++;
        bool is_alike = before && one->path.kind != PO_WILDCARD && one->path.kind == before->path.kind &&
                        po_compared(key_of(one), key_of(before)) == 0;
        before = one;
        if (!is_alike) {
            made->counts[one->path.kind]++;
            made->sorted[used++] = made->sorted[at];
        } else if (by_rank(one, made->sorted[used - 1]) < 0) {
            made->sorted[used - 1] = made->sorted[at];
        }
    }
    sort(made->sorted + used - made->counts[PO_WILDCARD], made->spare, made->counts[PO_WILDCARD], by_rank);
    return kept;
}

/* Write a number, and return where it ends. */
static unsigned char *write_number(unsigned char *out, size_t number)
{
    for (; number > 0x7f; number >>= 7) {
        *out++ = (unsigned char)(number | 0x80);
    }
    *out++ = (unsigned char)number;
    return out;
}

static unsigned char *write_text(unsigned char *out, po_text text)
{
    out = write_number(out, text.length);
    if (text.length) {
        memcpy(out, text.start, text.length);
    }
    return out + text.length;
}

enum { MOST_OF_NUMBER = 5, MOST_BESIDE_TEXTS = 1 + 5 * MOST_OF_NUMBER }; /* octets */

static unsigned char *write_record(unsigned char *out, const draft *one, po_text usual_name)
{
    po_text pattern = one->path.pattern, form = one->path.form, value = one->given->value, name = one->given->name;
    size_t cut = pattern.length - form.length;
    bool own_name = name.start != usual_name.start && po_compared(name, usual_name) != 0;
    bool own_value = pattern.start != value.start && po_compared(pattern, value) != 0;
    bool own_form = form.length > pattern.length || cut > MOST_CUT ||
                    (form.start != pattern.start && !po_starts_with(pattern, form));
    size_t flags = (one->given->allow ? ALLOW : 0) | (own_name ? OWN_NAME : 0) | (own_value ? OWN_VALUE : 0);
    *out++ = (unsigned char)(flags | (own_form ? OWN_FORM : CUT * cut));
    out = write_number(write_text(out, pattern), one->given->line);
    if (own_name) {
        out = write_text(out, name);
    }
    if (own_value) {
        out = write_text(out, value);
    }
    return own_form ? write_text(out, form) : out;
}

/* Return the octets that the records take at most. */
static size_t most_octets(const compilation *made)
{
    size_t octets = 2 * MOST_OF_NUMBER;
    for (size_t at = 0; at < made->count; at++) {
        const draft *one = &made->drafts[at];
        octets += MOST_BESIDE_TEXTS + one->path.pattern.length + one->path.form.length + one->given->value.length +
                  2 * one->given->name.length; /* it may also be the usual name */
    }
    return octets;
}

/* Write the usual names, and the records of the kept rules. */
static void write_records(po_rules *rules, compilation *made)
{
    unsigned char *out = rules->block;
    po_text names[2] = {{NULL, 0}, {NULL, 0}};
    for (size_t at = made->count; at-- > 0;) {
        names[made->drafts[at].given->allow] = made->drafts[at].given->name;
    }
    for (size_t allow = 0; allow < 2; allow++) {
        rules->names[allow] = (uint32_t)(out - rules->block);
        out = write_text(out, names[allow]);
    }
    rules->records = (uint32_t)(out - rules->block);
    for (size_t at = 0; at < made->count; at++) {
        draft *one = &made->drafts[at];
        one->place = (size_t)(out - rules->block);
        if (one->is_kept) {
            out = write_record(out, one, names[one->given->allow]);
        }
    }
    rules->tables = (uint32_t)(out - rules->block);
}

static void fill_literals(po_rules *rules, const compilation *made)
{
    draft *const *sorted = made->sorted;
    for (size_t at = 0; at < made->counts[PO_PREFIX]; at++) {
        size_t link = at;
        while (link && !po_starts_with(key_of(sorted[at]), key_of(sorted[link - 1]))) {
            link = number_at(rules, PER_PREFIX * (link - 1) + 1);
        }
        set_number(rules, PER_PREFIX * at, sorted[at]->place);
        set_number(rules, PER_PREFIX * at + 1, link);
    }
    for (size_t at = 0; at < made->counts[PO_EXACT]; at++) {
        set_number(rules, exact_table(rules) + at, sorted[made->counts[PO_PREFIX] + at]->place);
    }
}

static void fill_wildcards(po_rules *rules, draft *const *sorted)
{
    for (size_t index = 0; index < rules->wildcard_count; index++) {
        size_t place = sorted[index]->place, number = wildcard_table(rules) + PER_WILDCARD * index, at = 0;
        wildcard one = without_anchor(form_at(rules, place));
        segment_costs costs = {0, 0};
        size_t head = next_segment(one.form, &at).text.length, octets = head;
        while (at <= one.form.length) {
            segment next = next_segment(one.form, &at);
            octets += next.text.length;
            count_segment(&costs, next);
        }
        set_number(rules, number, place);
        set_number(rules, number + 1, (size_t)(one.form.start - (const char *)rules->block));
        set_number(rules, number + 2, head);
        set_number(rules, number + 3, octets);
        /* A pattern without a star ends within an escape: an empty segment follows. */
        rules->segments += costs.segments ? costs.segments : 1;
        rules->longest += costs.longest;
    }
}

static po_rules *compiled(compilation *made)
{
    size_t kept = sort_drafts(made);
    const size_t *counts = made->counts;
    size_t numbers = PER_PREFIX * counts[PO_PREFIX] + counts[PO_EXACT] + PER_WILDCARD * counts[PO_WILDCARD];
    size_t most = most_octets(made) + numbers * sizeof(uint32_t);
    po_rules *rules = most < UINT32_MAX ? malloc(sizeof *rules + most) : NULL; /* a file has at most 10 MiB */
    if (!rules) {
        return NULL;
    }
    *rules = (po_rules){.count = (uint32_t)kept};
    rules->prefix_count = (uint32_t)counts[PO_PREFIX];
    rules->exact_count = (uint32_t)counts[PO_EXACT];
    rules->wildcard_count = (uint32_t)counts[PO_WILDCARD];
    write_records(rules, made);
    rules->wide = rules->tables > UINT16_MAX || counts[PO_PREFIX] > UINT16_MAX;
    rules->octets = rules->tables + (uint32_t)(numbers * (rules->wide ? sizeof(uint32_t) : sizeof(uint16_t)));
    fill_literals(rules, made);
    fill_wildcards(rules, made->sorted + counts[PO_PREFIX] + counts[PO_EXACT]);
    return rules;
}

/* Move the rules to a block without room to spare. The block is made when the memory for the compilation is free again,
   so that it lies close to other blocks that are kept. */
static po_rules *moved(po_rules *rules)
{
    po_rules *fitting = malloc(sizeof *rules + rules->octets);
    if (fitting) {
        memcpy(fitting, rules, sizeof *rules + rules->octets);
    }
    free(rules);
    return fitting;
}

po_rules *po_rules_new(const po_rule *given, size_t count, const po_forms *forms)
{
    if (count > SIZE_MAX / (4 * sizeof(draft))) {
        return NULL;
    }
    size_t most = (forms->implies_directories ? 2 * count : count) + 1;
    compilation made = {.drafts = malloc(most * sizeof(draft)), .sorted = malloc(2 * most * sizeof(draft *))};
    po_rules *rules = NULL;
    made.spare = made.sorted ? made.sorted + most : NULL;
    if (made.drafts && made.sorted && draft_all(&made, given, count, forms)) {
        rules = compiled(&made);
    }
    free(made.drafts);
    free(made.sorted);
    free(made.room);
    return rules ? moved(rules) : NULL;
}

void po_rules_free(po_rules *rules)
{
    free(rules);
}

size_t po_rules_octets(const po_rules *rules)
{
    return sizeof *rules + rules->octets;
}

size_t po_rules_count(const po_rules *rules)
{
    return rules->count;
}

size_t po_rules_start(const po_rules *rules)
{
    return rules->records;
}

size_t po_rules_end(const po_rules *rules)
{
    return rules->tables;
}

/* Literals */

/* Return how many of the sorted literals of a table sort before `text`, or are equal to it. */
static size_t bisect(const po_rules *rules, size_t table, size_t per_literal, size_t count, po_text text)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        po_text form = form_at(rules, number_at(rules, table + per_literal * middle));
        form.length -= per_literal != PER_PREFIX;
        if (po_compared(form, text) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int64_t best_prefix(const po_rules *rules, po_text target)
{
    int64_t best = PO_NO_RULE;
    /* The last prefix that sorts at or before the target is the longest prefix of the target, or starts with it. */
    size_t place = bisect(rules, 0, PER_PREFIX, rules->prefix_count, target);
    while (place && !po_starts_with(target, form_at(rules, number_at(rules, PER_PREFIX * (place - 1))))) {
        place = number_at(rules, PER_PREFIX * (place - 1) + 1);
    }
    /* A shorter prefix may have the more specific rule: the prefix of "/a*$" is "/a", and its pattern is longer than
       "/ab". */
    for (; place; place = number_at(rules, PER_PREFIX * (place - 1) + 1)) {
        int64_t rule = (int64_t)number_at(rules, PER_PREFIX * (place - 1));
        best = rank_of(rules, rule) > rank_of(rules, best) ? rule : best;
    }
    return best;
}

static int64_t best_literal(const po_rules *rules, po_text target)
{
    int64_t best = best_prefix(rules, target);
    size_t place = bisect(rules, exact_table(rules), 1, rules->exact_count, target);
    if (place) {
        int64_t rule = (int64_t)number_at(rules, exact_table(rules) + place - 1);
        po_text form = form_at(rules, (size_t)rule);
        form.length--;
        best = po_compared(form, target) == 0 && rank_of(rules, rule) > rank_of(rules, best) ? rule : best;
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

/* Whether a target is long enough for a wildcard, and starts with its head. */
static bool may_match(const po_rules *rules, size_t index, po_text target)
{
    size_t number = wildcard_table(rules) + PER_WILDCARD * index;
    po_text head = {(const char *)rules->block + number_at(rules, number + 1), number_at(rules, number + 2)};
    return target.length >= number_at(rules, number + 3) && po_starts_with(target, head);
}

/* Whether a target matches a wildcard; `may_match` is true for both. */
static bool matches(const wildcard *one, po_text target)
{
    po_text form = one->form;
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

static void count_octets(counted *target)
{
    memset(target->counts, 0, sizeof target->counts);
    for (size_t at = 0; at < target->text.length; at++) {
        target->counts[(unsigned char)target->text.start[at]]++;
    }
    target->is_counted = true;
}

static uint64_t cost_of(const po_work *work, const wildcard *one, counted *target)
{
    if (!target->is_counted) {
        count_octets(target);
    }
    bool seen[256] = {false};
    uint64_t starts = 0;
    segment_costs costs = {0, 0};
    size_t at = 0;
    next_segment(one->form, &at);
    while (at <= one->form.length) {
        segment next = next_segment(one->form, &at);
        unsigned char first = next.text.length ? (unsigned char)next.text.start[0] : 0;
        count_segment(&costs, next);
        if (next.text.length && !seen[first]) {
            seen[first] = true;
            starts += target->counts[first];
        }
    }
    costs.segments += costs.segments == 0; /* a pattern without a star ends within an escape */
    return work->per_try + work->per_segment * costs.segments + target->text.length / work->passed_at_once +
           starts * (costs.longest + work->per_start);
}

/* Return the place of the first undecided Disallow from `from` on that outranks `best`, else `best`. */
static int64_t undecided(const po_rules *rules, const counted *forms, size_t form_count, size_t from, int64_t best)
{
    uint64_t least = rank_of(rules, best);
    for (size_t at = from; at < rules->wildcard_count; at++) {
        size_t place = number_at(rules, wildcard_table(rules) + PER_WILDCARD * at);
        if (rank_of(rules, (int64_t)place) <= least) {
            break;
        }
        for (size_t form = 0; form < form_count && !po_rules_allow(rules, place); form++) {
            if (may_match(rules, at, forms[form].text)) {
                return (int64_t)place;
            }
        }
    }
    return best;
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
        for (size_t form = 0; form < form_count; form++) {
            if (!may_match(rules, at, forms[form].text)) {
                continue;
            }
            wildcard one = wildcard_at(rules, at);
            if (rank_of(rules, (int64_t)one.place) <= least) {
                return (po_decision){best, false};
            }
            uint64_t cost = is_metered ? cost_of(work, &one, &forms[form]) : 0;
            if (cost > left) {
                return (po_decision){undecided(rules, forms, form_count, at, best), true};
            }
            left -= cost;
            if (matches(&one, forms[form].text)) {
                return (po_decision){(int64_t)one.place, false};
            }
        }
    }
    return (po_decision){best, false};
}

po_decision po_decide_normal(const po_rules *rules, const po_work *work, po_text normal, po_text written)
{
    /* RFC 9309 2.2.2: /robots.txt is implicitly allowed. */
    if (po_compared(normal, (po_text){ROBOTS_TXT, sizeof ROBOTS_TXT - 1}) == 0) {
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

po_decision po_decide(const po_rules *rules, const po_forms *forms, const po_work *work, po_text url)
{
    po_decision decision = {PO_OTHER, false};
    po_target target;
    if (po_target_of(url, forms, rules->wildcard_count > 0, &target)) {
        decision = po_decide_normal(rules, work, target.normal, target.written);
    }
    po_target_free(&target);
    return decision;
}
