#include "scan.h"

#include <stdlib.h>

/* The place of the next octet of a kind, which is kept so that the search passes each octet of the body once. */
typedef struct {
    char octet;
    size_t behind; /* one plus its place, or plus the length of the body if there is none; 0 before the first search */
} next_octet;

enum { MOST_NAME_OCTETS = 64 }; /* the octets that are read of a name with odd blanks; names of fields are shorter */

static bool is_blank(char octet)
{
    return octet == ' ' || octet == '\t';
}

static bool is_ascii(char octet)
{
    return (unsigned char)octet < 0x80;
}

/* Return the octets of the UTF-8 character at `at`; 1 if no character starts there. */
static size_t character_octets(po_text text, size_t at)
{
    if (is_ascii(text.start[at])) {
        return 1;
    }
    const unsigned char *octets = (const unsigned char *)text.start + at;
    size_t length = octets[0] < 0xc2 || octets[0] > 0xf4 ? 1 : octets[0] < 0xe0 ? 2 : octets[0] < 0xf0 ? 3 : 4;
    if (length == 1 || length > text.length - at) {
        return 1;
    }
    for (size_t more = 1; more < length; more++) {
        if ((octets[more] & 0xc0) != 0x80) {
            return 1;
        }
    }
    /* RFC 3629 3 forbids longer forms than needed, surrogates, and characters beyond U+10FFFF. */
    bool is_wrong = (octets[0] == 0xe0 && octets[1] < 0xa0) || (octets[0] == 0xed && octets[1] > 0x9f) ||
                    (octets[0] == 0xf0 && octets[1] < 0x90) || (octets[0] == 0xf4 && octets[1] > 0x8f);
    return is_wrong ? 1 : length;
}

/* Return the octets of the odd blank at `at`; 0 if the character that starts there is no odd blank. */
static size_t odd_blank_at(po_text text, size_t at, const po_syntax *syntax)
{
    po_text odd = syntax->odd_blanks;
    size_t octets = character_octets(text, at);
    for (size_t start = 0, end; start < odd.length; start = end + 1) {
        const char *space = memchr(odd.start + start, ' ', odd.length - start);
        end = space ? (size_t)(space - odd.start) : odd.length;
        if (end - start == octets && memcmp(text.start + at, odd.start + start, octets) == 0) {
            return octets;
        }
    }
    return 0;
}

static size_t blank_at(po_text text, size_t at, const po_syntax *syntax)
{
    return is_ascii(text.start[at]) ? is_blank(text.start[at]) : odd_blank_at(text, at, syntax);
}

/* Return the octets of the blank that ends a text; 0 if no blank ends the text. */
static size_t blank_before_end(po_text text, const po_syntax *syntax)
{
    size_t octets = is_ascii(text.start[text.length - 1]) ? 1 : 4;
    while (octets > 1 && (text.length < octets || character_octets(text, text.length - octets) != octets)) {
        octets--;
    }
    return blank_at(text, text.length - octets, syntax);
}

static po_text stripped_of_any(po_text text, const po_syntax *syntax)
{
    size_t octets = 0;
    while (text.length && (octets = blank_at(text, 0, syntax)) > 0) {
        text.start += octets;
        text.length -= octets;
    }
    while (text.length && (octets = blank_before_end(text, syntax)) > 0) {
        text.length -= octets;
    }
    return text;
}

/* Return a text without the blanks at both ends; nearly all blanks are ASCII. */
static po_text stripped(po_text text, const po_syntax *syntax)
{
    const char *start = text.start, *end = text.start + text.length;
    while (start < end && is_blank(*start)) {
        start++;
    }
    while (start < end && is_blank(end[-1])) {
        end--;
    }
    text = (po_text){start, (size_t)(end - start)};
    return start == end || (is_ascii(*start) && is_ascii(end[-1])) ? text : stripped_of_any(text, syntax);
}

/* Whether a text starts with `start`, whatever the case of its ASCII letters; `start` is in lower case. */
static bool starts_like(po_text text, po_text start)
{
    if (text.length < start.length) {
        return false;
    }
    for (size_t at = 0; at < start.length; at++) {
        char octet = text.start[at];
        if (octet >= 'A' && octet <= 'Z') {
            octet = (char)(octet - 'A' + 'a');
        }
        if (octet != start.start[at]) {
            return false;
        }
    }
    return true;
}

static po_kind kind_of_plain(po_text name, const po_syntax *syntax)
{
    for (size_t at = 0; at < syntax->name_count; at++) {
        if (name.length == syntax->names[at].text.length && starts_like(name, syntax->names[at].text)) {
            return syntax->names[at].kind;
        }
    }
    for (size_t at = 0; at < syntax->start_count; at++) {
        if (starts_like(name, syntax->starts[at].text)) {
            return syntax->starts[at].kind;
        }
    }
    return PO_UNKNOWN;
}

/* Return the kind of a row by the name of its field. An odd blank in the name is read as a space. */
static po_kind kind_of(po_text name, const po_syntax *syntax)
{
    char plain[MOST_NAME_OCTETS];
    size_t length = 0, at = 0;
    po_kind kind = kind_of_plain(name, syntax);
    while (kind == PO_UNKNOWN && at < name.length && is_ascii(name.start[at])) {
        at++;
    }
    if (kind != PO_UNKNOWN || at == name.length) {
        return kind;
    }
    for (at = 0; at < name.length && length < sizeof plain; length++) {
        size_t octets = character_octets(name, at);
        bool is_odd = !is_ascii(name.start[at]) && odd_blank_at(name, at, syntax) > 0;
        plain[length] = is_odd ? ' ' : name.start[at];
        at += is_odd ? octets : 1;
    }
    return kind_of_plain((po_text){plain, length}, syntax);
}

static bool is_control(unsigned char octet)
{
    return (octet < ' ' && octet != '\t') || octet == 0x7f;
}

/* Whether any of eight octets may be a control character; also true for HTAB, which is none. */
static bool may_be_control(const char *eight)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x80 * ones;
    uint64_t octets = 0;
    memcpy(&octets, eight, sizeof octets);
    uint64_t from_delete = octets ^ (0x7f * ones);
    return (((octets - ' ' * ones) & ~octets) | ((from_delete - ones) & ~from_delete)) & tops;
}

static bool has_control(po_text text)
{
    size_t at = 0;
    while (at + 8 <= text.length && !may_be_control(text.start + at)) {
        at += 8;
    }
    /* The last eight octets; some of them were checked before. */
    if (at + 8 > text.length && text.length >= 8 && !may_be_control(text.start + text.length - 8)) {
        return false;
    }
    while (at < text.length && !is_control((unsigned char)text.start[at])) {
        at++;
    }
    return at < text.length;
}

/* Cut the value of a user-agent line to the name of the crawler: see Grouping.name in politesse/robots/dialect.py. */
static po_text crawler_of(const po_row *row, const po_syntax *syntax)
{
    po_text name = {row->value.start, 0};
    if (row->has_control) {
        return name;
    }
    if (row->value.length && name.start[0] == '*') {
        name.length = row->value.length == 1 || is_blank(name.start[1]);
        return name;
    }
    while (name.length < row->value.length && syntax->in_token[(unsigned char)name.start[name.length]]) {
        name.length++;
    }
    return name;
}

/* Return the octets before the first blank. */
static size_t word_octets(po_text text, const po_syntax *syntax)
{
    size_t at = 0;
    while (at < text.length && !blank_at(text, at, syntax)) {
        at += is_ascii(text.start[at]) ? 1 : character_octets(text, at);
    }
    return at;
}

/* Split two words without a colon into a field and its value. As in google/robotstxt, three words are not split:
   "disallow / now" is prose. */
static bool split_words(po_text text, const po_syntax *syntax, po_row *row)
{
    size_t word = word_octets(text, syntax);
    row->name = (po_text){text.start, word};
    row->value = stripped((po_text){text.start + word, text.length - word}, syntax);
    return row->value.length > 0 && word_octets(row->value, syntax) == row->value.length;
}

/* Read a line without its comment; `before` is the row before it, or NULL. Return whether the line has a field that the
   dialect reads. */
static bool read_row(po_text line, const po_syntax *syntax, const po_row *before, po_row *row)
{
    const char *colon = line.length ? memchr(line.start, ':', line.length) : NULL;
    if (colon) {
        size_t length = (size_t)(colon - line.start);
        row->name = stripped((po_text){line.start, length}, syntax);
        row->value = stripped((po_text){colon + 1, line.length - length - 1}, syntax);
    } else if (!syntax->missing_colon || !split_words(stripped(line, syntax), syntax, row)) {
        return false;
    }
    /* Most rows have the field of the row before. */
    bool is_same = before && row->name.length == before->name.length && po_starts_with(row->name, before->name);
    row->kind = is_same ? before->kind : kind_of(row->name, syntax);
    if (row->kind == PO_UNKNOWN) {
        return false;
    }
    row->has_control = has_control(line);
    row->starts_group = false;
    if (row->kind == PO_USER_AGENT) {
        row->value = crawler_of(row, syntax);
    }
    return true;
}

/* Return the place of the next octet of a kind from `start` on; the length of the body if no such octet is left. */
static size_t found_from(po_text body, next_octet *next, size_t start)
{
    if (next->behind <= start) {
        size_t left = body.length - start;
        const char *found = left ? memchr(body.start + start, next->octet, left) : NULL;
        next->behind = (found ? (size_t)(found - body.start) : body.length) + 1;
    }
    return next->behind - 1;
}

static size_t least(size_t one, size_t other)
{
    return one < other ? one : other;
}

/* RFC 9309 2.1: a group ends only at a user-agent line that follows a rule. */
static void mark_groups(po_row *rows, size_t count)
{
    bool row_ended = true; /* whether the next user-agent line starts a group */
    for (size_t at = 0; at < count; at++) {
        po_row *row = &rows[at];
        if (row->kind == PO_USER_AGENT) {
            row->starts_group = row_ended;
            row_ended = false;
        } else if (po_is_rule(row) || (row->kind == PO_USAGE_RULE && row->value.length && !row->has_control)) {
            row_ended = true;
        }
    }
}

/* Return the rows with room for another row; NULL without memory, and then the rows are freed. */
static po_row *with_room(po_row *rows, size_t used, size_t *room)
{
    if (used < *room) {
        return rows;
    }
    *room *= 2;
    po_row *more = realloc(rows, *room * sizeof *rows);
    if (!more) {
        free(rows);
    }
    return more;
}

po_row *po_scan(po_text body, const po_syntax *syntax, size_t *count)
{
    next_octet line_feed = {'\n', 0}, carriage_return = {'\r', 0}, hash = {'#', 0};
    size_t room = body.length / 32 + 8, used = 0, end = 0;
    po_row *rows = malloc(room * sizeof *rows);
    uint32_t number = 1;
    for (size_t start = 0; rows && start <= body.length; start = end + 1, number++) {
        end = least(found_from(body, &line_feed, start), found_from(body, &carriage_return, start));
        po_text line = {body.start + start, end - start};
        if (syntax->most_line_octets) {
            line.length = least(line.length, syntax->most_line_octets);
        }
        line.length = least(line.length, found_from(body, &hash, start) - start);
        bool is_read = line.length && read_row(line, syntax, used ? &rows[used - 1] : NULL, &rows[used]);
        if (is_read) {
            rows[used++].line = number;
            rows = with_room(rows, used, &room);
        }
        end += end + 1 < body.length && body.start[end] == '\r' && body.start[end + 1] == '\n';
    }
    *count = used;
    mark_groups(rows, rows ? used : 0);
    return rows;
}

bool po_next_span(const po_row *rows, size_t count, size_t *at, po_text crawler, po_span *span)
{
    bool is_named = false;
    for (; *at < count; (*at)++) {
        const po_row *row = &rows[*at];
        if (row->kind != PO_USER_AGENT) {
            continue;
        }
        if (is_named && row->starts_group) {
            span->end = row->line;
            return true;
        }
        if (!is_named && row->value.length == crawler.length && crawler.length && starts_like(row->value, crawler)) {
            *span = (po_span){row->line, PO_END};
            is_named = true;
        }
    }
    return is_named;
}

size_t po_row_at(const po_row *rows, size_t count, uint32_t line)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows[middle].line < line) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
