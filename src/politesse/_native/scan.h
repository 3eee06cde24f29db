/* Splits a robots.txt into the rows that its dialect reads, and the rows into groups. A C11 library without Python.

   It reads as politesse/robots/lexer.py and politesse/robots/outline.py do: UTF-8 without a byte order mark, blanks are
   SP, HTAB and those that the dialect adds, and a group starts at a user-agent line that follows a rule (RFC 9309
   2.1). */

#ifndef POLITESSE_SCAN_H
#define POLITESSE_SCAN_H

#include "rules.h"

typedef enum {
    PO_UNKNOWN,
    PO_FIELD,
    PO_USAGE_RULE, /* a rule about the use of content: a user-agent line after one starts a group */
    PO_USER_AGENT,
    PO_ALLOW,
    PO_DISALLOW
} po_kind;

typedef struct {
    po_text text; /* in lower case */
    po_kind kind;
} po_name;

typedef struct {
    const po_name *names; /* of fields */
    size_t name_count;
    const po_name *starts; /* of names of fields; the first that fits counts */
    size_t start_count;
    po_text odd_blanks;      /* other blanks around fields and values, with a space between two of them */
    bool in_token[256];      /* the octets of the name of a crawler */
    bool missing_colon;      /* whether two words without a colon are a field and its value */
    size_t most_line_octets; /* the rest of a line is not read; 0 for no limit */
} po_syntax;

/* A row with a field that the dialect reads. Texts are parts of the body. */
typedef struct {
    po_text name;
    po_text value; /* of a user-agent line: the name of the crawler, or "*"; empty if it names none */
    uint32_t line; /* from 1 */
    po_kind kind;
    bool has_control;  /* a control character before the comment: the row binds no crawler (RFC 9309 3) */
    bool starts_group; /* of a user-agent line */
} po_row;

/* Whether a row is a rule about paths. */
static inline bool po_is_rule(const po_row *row)
{
    return row->kind == PO_ALLOW || row->kind == PO_DISALLOW;
}

/* The part of a group that binds a crawler: from the user-agent line that names it to the end of the group. */
typedef struct {
    uint32_t listed_at; /* a line */
    uint32_t end;       /* the line that starts the next group; PO_END if there is none */
} po_span;

#define PO_END UINT32_MAX

/* Read a body. Return its rows, which the caller frees with free(), and their number in `count`; NULL without memory. */
po_row *po_scan(po_text body, const po_syntax *syntax, size_t *count);

/* Find the next group that names a crawler, which is in lower case, from the row `at` on. Return whether there is one,
   and move `at` to the end of it. */
bool po_next_span(const po_row *rows, size_t count, size_t *at, po_text crawler, po_span *span);

/* Return the index of the first row from a line on; `count` for none. */
size_t po_row_at(const po_row *rows, size_t count, uint32_t line);

#endif
