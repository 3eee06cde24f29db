/* The rules of one crawler, and the decision about a target. A C11 library without Python.

   It serves the dialects in which the most specific match decides (RFC 9309 2.2.2), and decides as
   politesse/robots/rule_sets/most_specific.py does. Texts are octets with a length, without a final NUL. */

#ifndef POLITESSE_RULES_H
#define POLITESSE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *start;
    size_t length;
} po_text;

/* Which octets stay, and which escapes are decoded, in the normal form of a target. */
typedef struct {
    bool plain[256];           /* the same in every normal form */
    bool kept[256];            /* stays; any other octet is escaped */
    bool decoded_in_path[256]; /* an escape of it is decoded */
    bool decoded_in_query[256];
    bool query_as_written;     /* a second form keeps the escapes of the query */
    bool escaped_dots;         /* dot segments may have escaped dots */
    size_t most_octets;        /* of a target */
} po_forms;

/* The bound on the matching work; see politesse/robots/budget.py. */
typedef struct {
    uint64_t budget;
    uint64_t per_try;
    uint64_t per_segment;
    uint64_t passed_at_once;
    uint64_t per_start;
} po_work;

/* One rule of a file. Texts belong to the caller. */
typedef struct {
    po_text pattern; /* in normal form */
    po_text form;    /* that targets are compared with */
    po_text value;   /* as the file spells it */
    po_text name;    /* of its field, as the file spells it */
    uint32_t line;
    bool allow;
    bool implied; /* by another rule */
} po_rule;

typedef struct po_rules po_rules;

enum { PO_NO_RULE = -1, PO_ROBOTS_TXT = -2, PO_OTHER = -3 };

typedef struct {
    int64_t place; /* of the rule that decides; PO_NO_RULE, PO_ROBOTS_TXT; or PO_OTHER: the target needs another reader */
    bool bound_reached;
} po_decision;

/* Return the compiled rules, which the caller frees with po_rules_free; NULL without memory. The given ones are in the
   order of the file. Of rules with the same pattern the first Allow counts, or the first of all. */
po_rules *po_rules_new(const po_rule *given, size_t count);
void po_rules_free(po_rules *rules);
size_t po_rules_octets(const po_rules *rules);
size_t po_rules_count(const po_rules *rules);

/* Return a rule; its texts belong to `rules`. Places are in the order of the file. */
po_rule po_rules_at(const po_rules *rules, size_t place);

/* Decide on a target, or on the target of an http(s) URL, as it was written. */
po_decision po_decide(const po_rules *rules, const po_forms *forms, const po_work *work, po_text url);

/* Decide on a target in normal form; `written` is its other form, or has a NULL start. */
po_decision po_decide_normal(const po_rules *rules, const po_work *work, po_text normal, po_text written);

#endif
