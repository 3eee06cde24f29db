/* The rules of one crawler, and the decision about a target. A C11 library without Python.

   It serves the dialects in which the most specific match decides (RFC 9309 2.2.2), and decides as
   politesse/robots/rule_sets.py does. */

#ifndef POLITESSE_RULES_H
#define POLITESSE_RULES_H

#include "forms.h"

/* The bound on the matching work, counted in octets; see politesse/robots/budget.py. */
typedef struct {
    uint64_t budget;         /* the octets that one decision may compare */
    uint64_t per_try;        /* the cost of each wildcard that is compared */
    uint64_t per_segment;    /* the cost of each text after the first star */
    uint64_t passed_at_once; /* the octets of the target that a search passes for the cost of one octet */
    uint64_t per_start;      /* the cost of each place of the target at which a segment may start */
} po_work;

/* One rule of a file. Texts belong to the caller. */
typedef struct {
    po_text value; /* the pattern as the file spells it */
    po_text name;  /* the name of the field as the file spells it */
    uint32_t line; /* the number of the line in the file */
    bool allow;    /* true for an Allow, false for a Disallow */
} po_rule;

typedef struct po_rules po_rules;

enum { PO_NO_RULE = -1, PO_ROBOTS_TXT = -2, PO_OTHER = -3 };

typedef struct {
    int64_t place;      /* the index of the rule that decides, or one of the three numbers above:
                           PO_NO_RULE: no rule matches
                           PO_ROBOTS_TXT: the target is /robots.txt
                           PO_OTHER: Python has to normalise the target */
    bool bound_reached; /* whether the budget ended before all rules were compared */
} po_decision;

/* Return the compiled rules, which the caller frees with po_rules_free; NULL without memory. `given` lists the rules in
   the order of the file. Of rules with the same pattern only the first Allow counts; without an Allow, the first rule
   counts. */
po_rules *po_rules_new(const po_rule *given, size_t count, const po_forms *forms);
void po_rules_free(po_rules *rules);
size_t po_rules_octets(const po_rules *rules);
size_t po_rules_count(const po_rules *rules);

/* Return the place of the first rule, and the place behind the last rule. Places grow in the order of the file. */
size_t po_rules_start(const po_rules *rules);
size_t po_rules_end(const po_rules *rules);

/* Return the rule at a place, with its pattern in normal form, and move `place` to the next rule. Its texts belong to
   `rules`. */
po_rule po_rules_at(const po_rules *rules, size_t *place, po_text *pattern);

/* Whether the rule at a place is an Allow. */
bool po_rules_allow(const po_rules *rules, size_t place);

/* Decide on a target, or on the target of an http(s) URL, as it was written. */
po_decision po_decide(const po_rules *rules, const po_forms *forms, const po_work *work, po_text url);

/* Decide on a target in normal form; `written` is its other form, or has a NULL start. */
po_decision po_decide_normal(const po_rules *rules, const po_work *work, po_text normal, po_text written);

#endif
