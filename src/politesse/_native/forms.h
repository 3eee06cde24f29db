/* The normal forms in which targets and the paths of rules are compared. A C11 library without Python.

   It reads as politesse/robots/pattern.py does. Texts are octets with a length, without a final NUL. */

#ifndef POLITESSE_FORMS_H
#define POLITESSE_FORMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *start;
    size_t length;
} po_text;

/* Which octets stay, and which escapes are decoded, in a normal form. */
typedef struct {
    bool plain[256];            /* whether an octet stays the same in every normal form */
    bool kept[256];             /* whether an octet stays; any other octet is escaped */
    bool decoded_in_path[256];  /* whether an escape of this octet is decoded in a path */
    bool decoded_in_query[256]; /* the same for a query */
    bool decodes;               /* whether any escape is decoded; a second form then keeps the escapes of the query */
    bool implies_directories;   /* whether an Allow of an index page also allows its directory */
    size_t most_octets;         /* the octets of the longest target that is decided here */
} po_forms;

/* The path of a rule. The texts are parts of the value in the file, or of the memory that the caller gave. */
typedef enum { PO_PREFIX, PO_EXACT, PO_WILDCARD, PO_FORM_KINDS } po_form_kind;

typedef struct {
    po_text pattern;   /* the pattern in normal form */
    po_text form;      /* the form of the pattern with which targets are compared */
    po_form_kind kind; /* how they are compared */
} po_path;

/* The forms of a target; po_target_free frees their memory. */
typedef struct {
    po_text normal;  /* the target in normal form */
    po_text written; /* the form with the query as written, if it differs; else with a NULL start */
    char *made;      /* the memory of the forms of a long target; NULL for other targets */
    char usual[2 * (3 * 1024 + 1)]; /* room for the forms of other targets */
} po_target;

static inline int po_compared(po_text one, po_text other)
{
    size_t shorter = one.length < other.length ? one.length : other.length;
    int order = shorter ? memcmp(one.start, other.start, shorter) : 0;
    return order ? order : (one.length > other.length) - (one.length < other.length);
}

static inline bool po_starts_with(po_text text, po_text start)
{
    return text.length >= start.length && (start.length == 0 || memcmp(text.start, start.start, start.length) == 0);
}

static inline bool po_ends_with(po_text text, char octet)
{
    return text.length && text.start[text.length - 1] == octet;
}

/* Return the value of a hex digit; -1 for any other octet. */
int po_hex_digit(char octet);

/* Find the path of a value whose pattern and form are parts of the value. Return whether it is such a value: nearly all
   are. */
bool po_plain_path(po_text value, const po_forms *forms, po_path *path);

/* Find the path of any value. `room` has PO_PATH_ROOM octets; return the rest of this room. */
char *po_path_of(po_text value, const po_forms *forms, char *room, po_path *path);

#define PO_PATH_ROOM(octets) (6 * (octets) + 8)

/* Find the forms of a target, or of the target of an http(s) URL, as it was written. Return whether the forms were
   found; otherwise Python has to normalise the target, or memory is short. */
bool po_target_of(po_text url, const po_forms *forms, bool with_written, po_target *target);
void po_target_free(po_target *target);

#endif
