/* Splits a robots.txt into the rows that its dialect reads, and the rows into groups. A C11 library without Python.

   It reads as politesse/robots/lexer.py and politesse/robots/outline.py do: UTF-8 without a byte order mark, blanks are
   SP, HTAB and those that the dialect adds, and a group starts at a user-agent line that follows a rule (RFC 9309
   2.1). */

#ifndef POLITESSE_SCAN_H
#define POLITESSE_SCAN_H

#include "forms.h"

typedef enum {
    PO_UNKNOWN,
    PO_FIELD,
    PO_SITEMAP,
    PO_USAGE_RULE, /* a rule about the use of content: a user-agent line after such a rule starts a group */
    PO_USER_AGENT,
    PO_ALLOW,
    PO_DISALLOW
} po_kind;

typedef struct {
    po_text text; /* the name of a field, or the start of such names, in lower case */
    po_kind kind; /* the kind of the rows with this field */
} po_name;

typedef struct {
    const po_name *names;    /* the names of the fields */
    size_t name_count;       /* the number of these names */
    const po_name *starts;   /* texts with which the name of a field may start; the first text that fits counts */
    size_t start_count;      /* the number of these texts */
    po_text odd_blanks;      /* the blanks besides SP and HTAB, with a space between two of them */
    bool in_token[256];      /* whether an octet may stand in the name of a crawler */
    bool missing_colon;      /* whether two words without a colon are a field and its value */
    size_t most_line_octets; /* the octets of a line that are read; 0 for no limit */
} po_syntax;

/* A row with a field that the dialect reads. Texts are parts of the body. */
typedef struct {
    po_text name;      /* the name of the field */
    po_text value;     /* the value; of a user-agent line only the name of the crawler, or "*", or nothing */
    uint32_t line;     /* the number of the line, from 1 */
    po_kind kind;      /* the kind of the field */
    bool has_control;  /* whether a control character precedes the comment: the row has no effect (RFC 9309 3) */
    bool starts_group; /* whether the row is a user-agent line that starts a group */
} po_row;

/* Whether a row is a rule about paths. */
static inline bool po_is_rule(const po_row *row)
{
    return row->kind == PO_ALLOW || row->kind == PO_DISALLOW;
}

/* The part of a group that binds a crawler: from the user-agent line that names it to the end of the group. */
typedef struct {
    uint32_t listed_at; /* the number of the user-agent line */
    uint32_t end;       /* the number of the line that starts the next group; PO_END for the last group */
} po_span;

#define PO_END UINT32_MAX

/* Read a body. Return its rows, which the caller frees with free(), and their number in `count`; NULL without memory. */
po_row *po_scan(po_text body, const po_syntax *syntax, size_t *count);

/* Find the next group that names a crawler, from the row `at` on. The name is in lower case. Return whether a group was
   found, and move `at` to the end of the group. */
bool po_next_span(const po_row *rows, size_t count, size_t *at, po_text crawler, po_span *span);

/* Return the index of the first row that stands on this line or a later line; `count` if no row does. */
size_t po_row_at(const po_row *rows, size_t count, uint32_t line);

#endif
