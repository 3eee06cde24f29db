/* Splits a robots.txt into the rows that its dialect reads. A C11 library without Python.

   It reads as politesse/robots/lexer.py does: UTF-8 without a byte order mark, and blanks are SP and HTAB. */

#ifndef POLITESSE_SCAN_H
#define POLITESSE_SCAN_H

#include "rules.h"

typedef enum { PO_UNKNOWN, PO_FIELD, PO_ALLOW, PO_DISALLOW } po_kind;

typedef struct {
    po_text text; /* in lower case */
    po_kind kind;
} po_name;

typedef struct {
    const po_name *names; /* of fields */
    size_t name_count;
    const po_name *starts; /* of names of fields; the first that fits counts */
    size_t start_count;
    bool missing_colon;      /* whether two words without a colon are a field and its value */
    size_t most_line_octets; /* the rest of a line is not read; 0 for no limit */
} po_syntax;

/* A row with a field that the dialect reads. Texts are parts of the body. */
typedef struct {
    po_text name;
    po_text value;
    uint32_t line; /* from 1 */
    po_kind kind;
    bool has_control; /* a control character before the comment: the row binds no crawler (RFC 9309 3) */
} po_row;

/* Read a body. Return its rows, which the caller frees with free(), and their number in `count`; NULL without memory. */
po_row *po_scan(po_text body, const po_syntax *syntax, size_t *count);

#endif
