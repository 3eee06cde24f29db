#include "forms.h"

#include <stdlib.h>

int po_hex_digit(char octet)
{
    if (octet >= '0' && octet <= '9') {
        return octet - '0';
    }
    if (octet >= 'A' && octet <= 'F') {
        return octet - 'A' + 10;
    }
    if (octet >= 'a' && octet <= 'f') {
        return octet - 'a' + 10;
    }
    return -1;
}

static bool is_hex_at(po_text text, size_t at)
{
    return at < text.length && po_hex_digit(text.start[at]) >= 0;
}

static bool is_escape_at(po_text text, size_t at)
{
    return at < text.length && text.start[at] == '%' && is_hex_at(text, at + 1) && is_hex_at(text, at + 2);
}

/* Append an octet, or its escape if the octet does not stay. Return the new length. */
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

/* Append the octet that an escape stands for, or the escape in upper case. Return the new length. */
static size_t put_escape(char *made, size_t length, const char *escape, const bool *decoded)
{
    unsigned char octet = (unsigned char)(16 * po_hex_digit(escape[1]) + po_hex_digit(escape[2]));
    return put(made, length, octet, decoded[octet]);
}

/* Cut a text at its first "?". Return the query behind it; its start is NULL if the text has no "?". */
static po_text cut_query(po_text *text)
{
    const char *mark = text->length ? memchr(text->start, '?', text->length) : NULL;
    po_text query = {NULL, 0};
    if (mark) {
        query = (po_text){mark + 1, text->length - (size_t)(mark - text->start) - 1};
        text->length = (size_t)(mark - text->start);
    }
    return query;
}

/* Paths of rules */

/* Whether a "%" would become the start of an escape if the escape behind it were decoded: "%%32%46" is the text
   "%2F". */
static bool would_be_escape(po_text text, size_t at)
{
    return is_escape_at(text, at + 1) || (is_hex_at(text, at + 1) && is_escape_at(text, at + 2));
}

/* Write the normal form of a part of a path, and return its length: at most three times the length of the part. */
static size_t normal_part(char *made, po_text part, const bool *decoded, const po_forms *forms)
{
    size_t length = 0;
    for (size_t at = 0; at < part.length; at++) {
        unsigned char octet = (unsigned char)part.start[at];
        if (is_escape_at(part, at)) {
            length = put_escape(made, length, part.start + at, decoded);
            at += 2;
        } else if (octet == '%') {
            length = put(made, length, octet, !forms->decodes || !would_be_escape(part, at));
        } else if (octet != '*') {
            length = put(made, length, octet, forms->kept[octet]);
        } else if (!forms->decodes || length == 0 || made[length - 1] != '*') { /* runs of stars are folded */
            made[length++] = '*';
        }
    }
    return length;
}

static po_text normal_pattern(po_text value, const po_forms *forms, char *made)
{
    bool anchored = po_ends_with(value, '$');
    po_text path = {value.start, value.length - anchored}, query = cut_query(&path);
    size_t length = normal_part(made, path, forms->decoded_in_path, forms);
    if (query.start) {
        made[length++] = '?';
        length += normal_part(made + length, query, forms->decoded_in_query, forms);
    }
    if (anchored) {
        made[length++] = '$';
    }
    return (po_text){made, length};
}

/* Return a pattern without its stars at the end, or "*$": it matches the same targets without them. */
static po_text without_trailing_stars(po_text pattern)
{
    po_text form = {pattern.start, pattern.length - po_ends_with(pattern, '$')};
    if (!po_ends_with(form, '*')) {
        return pattern;
    }
    while (po_ends_with(form, '*')) {
        form.length--;
    }
    form.length += po_ends_with(form, '$'); /* the star after a dollar stays, so that the dollar is no anchor */
    return form;
}

/* Whether the "%" at `at`, which starts no complete escape, starts an incomplete escape: one that a star or the end of
   the form cuts. */
static bool is_cut_escape(po_text form, size_t at)
{
    size_t behind = at + 1;
    if (behind == form.length || form.start[behind] == '*') {
        return true;
    }
    behind++;
    return is_hex_at(form, at + 1) && (behind == form.length || form.start[behind] == '*');
}

/* Write a form in which "%25" stands for each "%" without an escape, as in targets. An incomplete escape stays, and
   matches the start of any escape of the target; `has_cut` tells whether the form has one. */
static po_text with_percents(po_text form, char *made, bool *has_cut)
{
    size_t length = 0;
    *has_cut = false;
    for (size_t at = 0; at < form.length; at++) {
        bool is_bare = form.start[at] == '%' && !is_escape_at(form, at);
        bool is_cut = is_bare && is_cut_escape(form, at);
        *has_cut = *has_cut || is_cut;
        length = put(made, length, (unsigned char)form.start[at], !is_bare || is_cut);
    }
    return (po_text){made, length};
}

static po_form_kind kind_of(po_text form, bool has_cut)
{
    if (has_cut || (form.length && memchr(form.start, '*', form.length))) {
        return PO_WILDCARD;
    }
    return po_ends_with(form, '$') ? PO_EXACT : PO_PREFIX;
}

/* Return the index of the first octet from `at` on that is not plain; the length of the text if all are plain. */
static size_t behind_plain(po_text text, size_t at, const bool *plain)
{
    const unsigned char *octets = (const unsigned char *)text.start;
    while (text.length - at >= 4 &&
           (plain[octets[at]] & plain[octets[at + 1]] & plain[octets[at + 2]] & plain[octets[at + 3]])) {
        at += 4;
    }
    while (at < text.length && plain[octets[at]]) {
        at++;
    }
    return at;
}

bool po_plain_path(po_text value, const po_forms *forms, po_path *path)
{
    size_t first = behind_plain(value, 0, forms->plain);
    for (size_t at = first; at < value.length; at = behind_plain(value, at + 1, forms->plain)) {
        bool is_star = value.start[at] == '*' && (at == 0 || value.start[at - 1] != '*');
        if (!is_star && !(value.start[at] == '$' && at + 1 == value.length)) {
            return false;
        }
    }
    *path = (po_path){value, value, PO_PREFIX};
    if (first < value.length) {
        path->form = without_trailing_stars(value);
        path->kind = kind_of(path->form, false);
    }
    return true;
}

char *po_path_of(po_text value, const po_forms *forms, char *room, po_path *path)
{
    bool has_cut = false;
    path->pattern = normal_pattern(value, forms, room);
    room += path->pattern.length;
    path->form = with_percents(without_trailing_stars(path->pattern), room, &has_cut);
    path->kind = kind_of(path->form, has_cut);
    return room + path->form.length;
}

/* Targets */

/* Write the normal form of a part of a target, and return its length: at most three times the length of the part. */
static size_t sent_part(char *made, po_text part, const bool *decoded, const po_forms *forms)
{
    size_t length = 0;
    for (size_t at = 0; at < part.length; at++) {
        unsigned char octet = (unsigned char)part.start[at];
        if (is_escape_at(part, at)) {
            length = put_escape(made, length, part.start + at, decoded);
            at += 2;
        } else {
            length = put(made, length, octet, forms->kept[octet]);
        }
    }
    return length;
}

/* Whether a path may have dot segments; in a form without decoding, the dots may be escaped. */
static bool has_dots(po_text path, const po_forms *forms)
{
    for (size_t at = 0; at + 1 < path.length; at++) {
        bool is_escape = !forms->decodes && at + 2 < path.length && memcmp(path.start + at + 1, "%2", 2) == 0;
        if (path.start[at] == '/' && (path.start[at + 1] == '.' || is_escape)) {
            return true;
        }
    }
    return false;
}

/* Write the forms of a target. `made` has room for two forms of at most three times the length of the target. */
static bool write_forms(po_text path, const po_forms *forms, bool with_written, po_target *target, char *made)
{
    po_text query = cut_query(&path);
    char *written = made + 3 * (path.length + query.length) + 1;
    size_t path_length = sent_part(made, path, forms->decoded_in_path, forms);
    target->normal = (po_text){made, path_length};
    if (has_dots(target->normal, forms)) {
        return false;
    }
    if (query.start) {
        made[path_length++] = '?';
        target->normal.length = path_length + sent_part(made + path_length, query, forms->decoded_in_query, forms);
    }
    if (query.start && with_written && forms->decodes) {
        memcpy(written, made, path_length);
        po_text other = {written, path_length};
        other.length += sent_part(written + path_length, query, forms->decoded_in_path, forms);
        target->written = po_compared(target->normal, other) ? other : target->written;
    }
    return target->normal.length <= forms->most_octets && target->written.length <= forms->most_octets;
}

/* Return the target of an http(s) URL; a target is returned as it is. The start is NULL if Python has to read it. */
static po_text target_in(po_text url)
{
    static const po_text schemes[] = {{"https://", 8}, {"http://", 7}};
    if (url.length && url.start[0] == '/') {
        return url;
    }
    for (size_t scheme = 0; scheme < 2; scheme++) {
        if (!po_starts_with(url, schemes[scheme])) {
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

static bool starts_segment_with_dot(po_text target)
{
    const char *dot = target.start, *end = target.start + target.length;
    while (dot < end && (dot = memchr(dot, '.', (size_t)(end - dot))) != NULL) {
        if (dot > target.start && dot[-1] == '/') {
            return true;
        }
        dot++;
    }
    return false;
}

bool po_target_of(po_text url, const po_forms *forms, bool with_written, po_target *target)
{
    target->made = NULL;
    target->written = (po_text){NULL, 0};
    target->normal = target_in(url);
    po_text sent = target->normal;
    if (!sent.start || sent.length > forms->most_octets) {
        return false;
    }
    size_t first = behind_plain(sent, 0, forms->plain);
    for (size_t at = first; at < sent.length; at = behind_plain(sent, at + 1, forms->plain)) {
        unsigned char octet = (unsigned char)sent.start[at];
        if (octet <= ' ' || octet == 0x7f || octet == '#') {
            return false;
        }
    }
    if (starts_segment_with_dot(sent)) { /* dot segments are rare */
        return false;
    }
    if (first == sent.length) {
        return true;
    }
    size_t room = 2 * (3 * sent.length + 1);
    char *made = target->usual;
    if (room > sizeof target->usual) {
        made = target->made = malloc(room);
    }
    return made && write_forms(sent, forms, with_written, target, made);
}

void po_target_free(po_target *target)
{
    free(target->made);
}
