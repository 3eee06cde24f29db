#include "scan.h"

#include <stdlib.h>
#include <string.h>

static bool is_blank(char octet)
{
    return octet == ' ' || octet == '\t';
}

static po_text stripped(po_text text)
{
    while (text.length && is_blank(text.start[0])) {
        text.start++;
        text.length--;
    }
    while (text.length && is_blank(text.start[text.length - 1])) {
        text.length--;
    }
    return text;
}

static bool has_control(po_text text)
{
    for (size_t at = 0; at < text.length; at++) {
        unsigned char octet = (unsigned char)text.start[at];
        if ((octet < ' ' && octet != '\t') || octet == 0x7f) {
            return true;
        }
    }
    return false;
}

/* Whether a text starts with `start`, which is in lower case, in any case of its ASCII letters. */
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

static po_kind kind_of(po_text name, const po_syntax *syntax)
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

/* Split two words without a colon into a field and its value. As in google/robotstxt, for two words only: "disallow /
   now" is prose. */
static bool split_words(po_text text, po_row *row)
{
    size_t word = 0;
    while (word < text.length && !is_blank(text.start[word])) {
        word++;
    }
    row->name = (po_text){text.start, word};
    row->value = stripped((po_text){text.start + word, text.length - word});
    for (size_t at = 0; at < row->value.length; at++) {
        if (is_blank(row->value.start[at])) {
            return false;
        }
    }
    return row->value.length > 0;
}

/* Read the content of a line; return whether it has a field that the dialect reads. */
static bool read_row(po_text line, const po_syntax *syntax, po_row *row)
{
    if (syntax->most_line_octets && line.length > syntax->most_line_octets) {
        line.length = syntax->most_line_octets;
    }
    const char *hash = line.length ? memchr(line.start, '#', line.length) : NULL;
    if (hash) {
        line.length = (size_t)(hash - line.start);
    }
    const char *colon = line.length ? memchr(line.start, ':', line.length) : NULL;
    if (colon) {
        size_t before = (size_t)(colon - line.start);
        row->name = stripped((po_text){line.start, before});
        row->value = stripped((po_text){colon + 1, line.length - before - 1});
    } else if (!syntax->missing_colon || !split_words(stripped(line), row)) {
        return false;
    }
    row->kind = kind_of(row->name, syntax);
    if (row->kind == PO_UNKNOWN) {
        return false;
    }
    row->has_control = has_control(line);
    return true;
}

/* Return where a line ends: at CR, LF or the end of the body. */
static size_t line_end(po_text body, size_t start)
{
    size_t at = start;
    while (at < body.length && body.start[at] != '\n' && body.start[at] != '\r') {
        at++;
    }
    return at;
}

po_row *po_scan(po_text body, const po_syntax *syntax, size_t *count)
{
    size_t room = body.length / 32 + 8, used = 0, start = 0;
    po_row *rows = malloc(room * sizeof *rows);
    for (uint32_t line = 1; rows && start <= body.length; line++) {
        size_t end = line_end(body, start);
        if (used == room) {
            room *= 2;
            po_row *more = realloc(rows, room * sizeof *rows);
            if (!more) {
                free(rows);
                return NULL;
            }
            rows = more;
        }
        if (read_row((po_text){body.start + start, end - start}, syntax, &rows[used])) {
            rows[used++].line = line;
        }
        bool is_pair = end + 1 < body.length && body.start[end] == '\r' && body.start[end + 1] == '\n';
        start = end + (is_pair ? 2 : 1);
    }
    *count = used;
    return rows;
}
