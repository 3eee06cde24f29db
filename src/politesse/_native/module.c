/* The binding of rules.c and scan.c: three types, immutable once they are made, so that any thread may use them.

   Dialect  how a file is read; made once by Python, from the tables of politesse/robots/dialect.py
   File     the rows of a body; it holds the body
   Rules    the rules of a crawler; they hold the dialect, and no body

   For a rare target, `decide` returns OTHER: Python then normalises the target, and calls `decide_normal`. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"
#include "scan.h"

enum { LARGE_OCTETS = 32 * 1024, MANY_RULES = 500 }; /* from these sizes on, the GIL is released during the work */
enum { MOST_AT_ONCE = 1000 }; /* the objects that are made while no other thread can run */
enum { MOST_BESIDE_SITEMAP = 16 }; /* the octets of a line and of two separators, and a final NUL */

typedef struct {
    PyObject_HEAD
    po_forms forms;
    po_work work;
    po_syntax syntax;
    PyObject *names;      /* the tuple that owns the names of `syntax` */
    PyObject *starts;     /* the tuple that owns the starts of `syntax` */
    PyObject *odd_blanks; /* the bytes that own the odd blanks of `syntax` */
} dialect_object;

typedef struct {
    PyObject_HEAD
    dialect_object *dialect;
    PyObject *body;
    po_row *rows;
    size_t count;
} file_object;

typedef struct {
    PyObject_HEAD
    dialect_object *dialect;
    po_rules *rules;
} rules_object;

typedef struct {
    PyTypeObject *file;
    PyTypeObject *rules;
} module_state;

static void freed(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DecRef((PyObject *)type);
}

/* References are counted by functions of the interpreter that runs, not by macros of the headers: the macros of a later
   version count none for None, which an earlier version then frees. */

/* Return an object, which may be NULL, with another reference. */
static void *kept(void *object)
{
    Py_IncRef(object);
    return object;
}

/* Return an object, or release it and return NULL; it may be NULL. */
static PyObject *if_done(bool done, PyObject *made)
{
    if (done) {
        return made;
    }
    Py_DecRef(made);
    return NULL;
}

static void *allocated(PyTypeObject *type)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

static PyObject *str_of(po_text text)
{
    return PyUnicode_DecodeUTF8(text.start, (Py_ssize_t)text.length, "surrogateescape");
}

/* Return the UTF-8 of a str, which the str owns; with a NULL start and an error if it has none. */
static po_text utf8_of(PyObject *text)
{
    Py_ssize_t length = 0;
    const char *start = PyUnicode_AsUTF8AndSize(text, &length);
    return (po_text){start, start ? (size_t)length : 0};
}

/* Dialect */

/* Return the names of a tuple of (name in lower case, kind); NULL with an error. The tuple owns the texts. */
static po_name *names_of(PyObject *given, size_t *count)
{
    Py_ssize_t size = PyTuple_Size(given);
    if (size < 0) {
        return NULL;
    }
    po_name *names = calloc((size_t)size + 1, sizeof *names);
    if (!names) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t at = 0; at < size; at++) {
        int kind = 0;
        PyObject *pair = PyTuple_GetItem(given, at), *name = NULL;
        if (!PyArg_ParseTuple(pair, "Ui", &name, &kind) || !(names[at].text = utf8_of(name)).start) {
            free(names);
            return NULL;
        }
        names[at].kind = (po_kind)kind;
    }
    *count = (size_t)size;
    return names;
}

/* Read a table of 256 octets, and release it. */
static bool read_table(bool *table, Py_buffer *given)
{
    bool is_whole = given->len == 256;
    for (Py_ssize_t at = 0; is_whole && at < 256; at++) {
        table[at] = ((const char *)given->buf)[at] != 0;
    }
    PyBuffer_Release(given);
    return is_whole;
}

static bool read_tables(dialect_object *self, PyObject *given)
{
    Py_buffer tables[5] = {{0}};
    if (!PyArg_ParseTuple(given, "y*y*y*y*y*", &tables[0], &tables[1], &tables[2], &tables[3], &tables[4])) {
        return false;
    }
    bool *read[] = {self->forms.plain, self->forms.kept, self->forms.decoded_in_path, self->forms.decoded_in_query,
                    self->syntax.in_token};
    bool done = true;
    for (int at = 0; at < 5; at++) {
        done = read_table(read[at], &tables[at]) && done;
    }
    for (int octet = 0; octet < 256; octet++) {
        self->forms.decodes = self->forms.decodes || self->forms.decoded_in_path[octet];
    }
    if (!done) {
        PyErr_SetString(PyExc_ValueError, "a table has 256 octets");
    }
    return done;
}

static bool read_dialect(dialect_object *self, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"tables", "most_octets", "work", "names", "starts", "odd_blanks", "missing_colon",
                               "most_line_octets", "implies_directories", NULL};
    int missing_colon = 0, implies_directories = 0;
    Py_ssize_t most_octets = 0, most_line_octets = 0;
    unsigned long long work[5] = {0};
    PyObject *tables = NULL, *names = NULL, *starts = NULL, *odd = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!n(KKKKK)O!O!Spnp:Dialect", keywords, &PyTuple_Type, &tables,
                                     &most_octets, &work[0], &work[1], &work[2], &work[3], &work[4], &PyTuple_Type,
                                     &names, &PyTuple_Type, &starts, &odd, &missing_colon, &most_line_octets,
                                     &implies_directories)) {
        return false;
    }
    if (work[3] == 0 || most_octets < 0 || most_line_octets < 0) {
        PyErr_SetString(PyExc_ValueError, "no bound is less than 0");
        return false;
    }
    self->forms.implies_directories = implies_directories != 0;
    self->forms.most_octets = (size_t)most_octets;
    self->work = (po_work){work[0], work[1], work[2], work[3], work[4]};
    self->syntax.missing_colon = missing_colon != 0;
    self->syntax.most_line_octets = (size_t)most_line_octets;
    self->names = kept(names);
    self->starts = kept(starts);
    self->odd_blanks = kept(odd);
    self->syntax.odd_blanks = (po_text){PyBytes_AsString(odd), (size_t)PyBytes_Size(odd)};
    self->syntax.names = names_of(names, &self->syntax.name_count);
    self->syntax.starts = self->syntax.names ? names_of(starts, &self->syntax.start_count) : NULL;
    return self->syntax.starts && read_tables(self, tables);
}

static PyObject *dialect_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    dialect_object *self = allocated(type);
    return if_done(self && read_dialect(self, args, kwargs), (PyObject *)self);
}

static void dialect_free(PyObject *object)
{
    dialect_object *self = (dialect_object *)object;
    free((void *)self->syntax.names);
    free((void *)self->syntax.starts);
    Py_DecRef(self->names);
    Py_DecRef(self->starts);
    Py_DecRef(self->odd_blanks);
    freed(object);
}

static PyObject *dialect_scan(PyObject *object, PyObject *body)
{
    dialect_object *self = (dialect_object *)object;
    module_state *state = PyModule_GetState(PyType_GetModule(Py_TYPE(object)));
    char *start = NULL;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(body, &start, &length) < 0) {
        return NULL;
    }
    file_object *file = allocated(state->file);
    if (!file) {
        return NULL;
    }
    file->dialect = kept(object);
    file->body = kept(body);
    po_text text = {start, (size_t)length};
    if (length > LARGE_OCTETS) {
        Py_BEGIN_ALLOW_THREADS
        file->rows = po_scan(text, &self->syntax, &file->count);
        Py_END_ALLOW_THREADS
    } else {
        file->rows = po_scan(text, &self->syntax, &file->count);
    }
    return if_done(file->rows || PyErr_NoMemory(), (PyObject *)file);
}

/* File */

static void file_free(PyObject *object)
{
    file_object *self = (file_object *)object;
    free(self->rows);
    Py_DecRef(self->body);
    Py_DecRef((PyObject *)self->dialect);
    freed(object);
}

/* Append `made` to a list, and release it; `made` may be NULL. */
static bool append(PyObject *list, PyObject *made)
{
    bool done = made && PyList_Append(list, made) == 0;
    Py_DecRef(made);
    return done;
}

/* Append the groups that name a crawler, each as (line, end, name, version); all are of version 1. */
static bool append_groups(const file_object *file, PyObject *found, PyObject *crawler)
{
    po_text name = utf8_of(crawler);
    bool done = name.start != NULL;
    po_span span;
    for (size_t at = 0; done && po_next_span(file->rows, file->count, &at, name, &span);) {
        done = append(found, Py_BuildValue("(IIO(iii))", span.listed_at, span.end, crawler, 1, 0, 0));
    }
    return done;
}

static PyObject *file_binding(PyObject *object, PyObject *crawlers)
{
    PyObject *found = PyList_New(0);
    Py_ssize_t count = PyList_Size(crawlers);
    bool done = found && count >= 0;
    for (Py_ssize_t at = 0; done && at < count && PyList_Size(found) == 0; at++) {
        done = append_groups((file_object *)object, found, PyList_GetItem(crawlers, at));
    }
    return if_done(done, found);
}

static PyObject *file_others(PyObject *object, PyObject *line)
{
    file_object *self = (file_object *)object;
    size_t first = PyLong_AsSize_t(line), count = 0;
    PyObject *found = PyErr_Occurred() ? NULL : PyList_New(0);
    bool done = found != NULL, in_group = false;
    for (size_t at = 0; done && at < self->count && count < MOST_AT_ONCE; at++) {
        const po_row *row = &self->rows[at];
        in_group = in_group || row->kind == PO_USER_AGENT;
        if (row->line >= first && (row->kind == PO_FIELD || row->kind == PO_USAGE_RULE)) {
            count++;
            done = append(found, Py_BuildValue("(INNOO)", row->line, str_of(row->name), str_of(row->value),
                                               row->has_control ? Py_True : Py_False, in_group ? Py_True : Py_False));
        }
    }
    return if_done(done, found);
}

/* Write the number of a line and the value of each Sitemap row, and return where the text ends. */
static char *write_sitemaps(const file_object *file, char *text)
{
    for (size_t at = 0; at < file->count; at++) {
        const po_row *row = &file->rows[at];
        if (row->kind == PO_SITEMAP) {
            text += PyOS_snprintf(text, MOST_BESIDE_SITEMAP, "%" PRIu32 " ", row->line);
            if (row->value.length) {
                memcpy(text, row->value.start, row->value.length);
            }
            text += row->value.length;
            *text++ = '\n';
        }
    }
    return text;
}

static PyObject *file_sitemaps(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    file_object *self = (file_object *)object;
    size_t most = 0;
    for (size_t at = 0; at < self->count; at++) {
        most += self->rows[at].kind == PO_SITEMAP ? self->rows[at].value.length + MOST_BESIDE_SITEMAP : 0;
    }
    char *text = malloc(most + 1);
    if (!text) {
        return PyErr_NoMemory();
    }
    size_t length = (size_t)(write_sitemaps(self, text) - text);
    PyObject *made = str_of((po_text){text, length - (length > 0)});
    free(text);
    return made;
}

/* The rules of a crawler while they are collected. */
typedef struct {
    po_rule *rules;
    size_t count;
    size_t room; /* the number of rules for which `rules` has room */
} collection;

static bool collect(collection *found, const po_row *row)
{
    /* RFC 9309 2.2: a path starts with "/"; the example in 5.1 starts with "*". An empty path restricts nothing. */
    if (row->has_control || !row->value.length || (row->value.start[0] != '/' && row->value.start[0] != '*')) {
        return true;
    }
    if (found->count == found->room) {
        size_t room = 2 * found->room + 16;
        po_rule *more = realloc(found->rules, room * sizeof *more);
        if (!more) {
            PyErr_NoMemory();
            return false;
        }
        found->rules = more;
        found->room = room;
    }
    found->rules[found->count++] = (po_rule){row->value, row->name, row->line, row->kind == PO_ALLOW};
    return true;
}

/* Collect the rules in the given spans of the file. */
static bool collect_all(const file_object *file, PyObject *spans, collection *found)
{
    Py_ssize_t count = PyList_Size(spans);
    for (Py_ssize_t place = 0; place < count; place++) {
        po_span span;
        PyObject *name = NULL, *version = NULL;
        if (!PyArg_ParseTuple(PyList_GetItem(spans, place), "IIOO", &span.listed_at, &span.end, &name, &version)) {
            return false;
        }
        size_t at = po_row_at(file->rows, file->count, span.listed_at);
        for (; at < file->count && file->rows[at].line < span.end; at++) {
            if (po_is_rule(&file->rows[at]) && !collect(found, &file->rows[at])) {
                return false;
            }
        }
    }
    return count >= 0;
}

static po_rules *compiled(const collection *found, const po_forms *forms)
{
    po_rules *made = NULL;
    if (found->count < MANY_RULES) {
        return po_rules_new(found->rules, found->count, forms);
    }
    Py_BEGIN_ALLOW_THREADS
    made = po_rules_new(found->rules, found->count, forms);
    Py_END_ALLOW_THREADS
    return made;
}

static PyObject *file_rules(PyObject *object, PyObject *spans)
{
    file_object *self = (file_object *)object;
    module_state *state = PyModule_GetState(PyType_GetModule(Py_TYPE(object)));
    collection found = {NULL, 0, 0};
    rules_object *made = NULL;
    bool done = false;
    if (collect_all(self, spans, &found) && (made = allocated(state->rules))) {
        made->dialect = kept(self->dialect);
        made->rules = compiled(&found, &self->dialect->forms);
        done = made->rules || PyErr_NoMemory();
    }
    free(found.rules);
    return if_done(done, (PyObject *)made);
}

/* Rules */

static void rules_free(PyObject *object)
{
    rules_object *self = (rules_object *)object;
    po_rules_free(self->rules);
    Py_DecRef((PyObject *)self->dialect);
    freed(object);
}

static po_decision decided(rules_object *self, PyObject *url)
{
    po_text text = utf8_of(url);
    if (!text.start) {
        PyErr_Clear(); /* a lone surrogate, or no str: Python raises the error */
        return (po_decision){PO_OTHER, false};
    }
    return po_decide(self->rules, &self->dialect->forms, &self->dialect->work, text);
}

/* Return (line, name, value, pattern, allow) of a rule, and move `place` to the next one. */
static PyObject *rule_of(const po_rules *rules, size_t *place)
{
    po_text pattern;
    po_rule one = po_rules_at(rules, place, &pattern);
    bool is_spelled_so = one.value.start == pattern.start;
    PyObject *form = str_of(pattern), *value = is_spelled_so ? kept(form) : str_of(one.value);
    return Py_BuildValue("(kNNNO)", (unsigned long)one.line, str_of(one.name), value, form,
                         one.allow ? Py_True : Py_False);
}

/* Return four times the place of the rule that decides, plus two at the bound, plus one for an Allow; without such a
   rule, twice the number of the decision, plus one at the bound. */
static PyObject *told(const rules_object *self, po_decision decision)
{
    long long number = 2 * decision.place + decision.bound_reached;
    if (decision.place >= 0) {
        number = 2 * number + po_rules_allow(self->rules, (size_t)decision.place);
    }
    return PyLong_FromLongLong(number);
}

static PyObject *rules_decide(PyObject *object, PyObject *url)
{
    rules_object *self = (rules_object *)object;
    return told(self, decided(self, url));
}

static PyObject *rules_allows(PyObject *object, PyObject *url)
{
    rules_object *self = (rules_object *)object;
    po_decision decision = decided(self, url);
    bool allowed = decision.place < 0 || po_rules_allow(self->rules, (size_t)decision.place);
    return decision.place == PO_OTHER ? kept(Py_None) : PyBool_FromLong(allowed);
}

static PyObject *rules_decide_normal(PyObject *object, PyObject *args)
{
    rules_object *self = (rules_object *)object;
    PyObject *normal = NULL, *written = NULL;
    if (!PyArg_ParseTuple(args, "UO:decide_normal", &normal, &written)) {
        return NULL;
    }
    po_text target = utf8_of(normal), other = {NULL, 0};
    if (target.start && written != Py_None) {
        other = utf8_of(written);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    return told(self, po_decide_normal(self->rules, &self->dialect->work, target, other));
}

static PyObject *rules_rule(PyObject *object, PyObject *number)
{
    const po_rules *rules = ((rules_object *)object)->rules;
    size_t place = PyLong_AsSize_t(number) / 4;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (place < po_rules_start(rules) || place >= po_rules_end(rules)) {
        PyErr_SetNone(PyExc_IndexError);
        return NULL;
    }
    return rule_of(rules, &place);
}

static PyObject *rules_listed(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    const po_rules *rules = ((rules_object *)object)->rules;
    PyObject *found = PyList_New(0);
    bool done = found != NULL;
    for (size_t place = po_rules_start(rules); done && place < po_rules_end(rules);) {
        done = append(found, rule_of(rules, &place));
    }
    return if_done(done, found);
}

static PyObject *rules_octets(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromSize_t(sizeof(rules_object) + po_rules_octets(((rules_object *)object)->rules));
}

static Py_ssize_t rules_length(PyObject *object)
{
    return (Py_ssize_t)po_rules_count(((rules_object *)object)->rules);
}

/* The module */

static PyMethodDef dialect_methods[] = {
    {"scan", dialect_scan, METH_O, "Return the File of a body, as octets."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef file_methods[] = {
    {"binding", file_binding, METH_O, "Return (line, end, name, version) of the groups of the first crawler that any group names."},
    {"others", file_others, METH_O, "Return (line, name, value, control, in a group) of the next other rows, from a line on."},
    {"sitemaps", file_sitemaps, METH_NOARGS, "Return a text with the line and the value of each Sitemap row."},
    {"rules", file_rules, METH_O, "Return the Rules in some groups."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef rules_methods[] = {
    {"decide", rules_decide, METH_O, "Return the decision, or the rule that decides, as a number; see `told`."},
    {"decide_normal", rules_decide_normal, METH_VARARGS, "Do as decide does, for a target in its normal forms."},
    {"allows", rules_allows, METH_O, "Whether a URL or target is allowed; None if it needs another reader."},
    {"rule", rules_rule, METH_O, "Return (line, name, value, pattern, allow) of a rule that `decide` returned."},
    {"listed", rules_listed, METH_NOARGS, "Return all rules, as rule does."},
    {"octets", rules_octets, METH_NOARGS, "Return the memory that the rules take."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot dialect_slots[] = {
    {Py_tp_new, dialect_new}, {Py_tp_dealloc, dialect_free}, {Py_tp_methods, dialect_methods}, {0, NULL}};
static PyType_Slot file_slots[] = {{Py_tp_dealloc, file_free}, {Py_tp_methods, file_methods}, {0, NULL}};
static PyType_Slot rules_slots[] = {
    {Py_tp_dealloc, rules_free}, {Py_tp_methods, rules_methods}, {Py_sq_length, rules_length}, {0, NULL}};

static PyType_Spec dialect_spec = {"politesse._native._core.Dialect", sizeof(dialect_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, dialect_slots};
static PyType_Spec file_spec = {"politesse._native._core.File", sizeof(file_object), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                file_slots};
static PyType_Spec rules_spec = {"politesse._native._core.Rules", sizeof(rules_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 rules_slots};

static int module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    PyObject *dialect = PyType_FromModuleAndSpec(module, &dialect_spec, NULL);
    state->file = (PyTypeObject *)PyType_FromModuleAndSpec(module, &file_spec, NULL);
    state->rules = (PyTypeObject *)PyType_FromModuleAndSpec(module, &rules_spec, NULL);
    int failed = !dialect || !state->file || !state->rules || PyModule_AddType(module, (PyTypeObject *)dialect) < 0;
    Py_DecRef(dialect);
    return failed ? -1 : 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->file);
    Py_VISIT(state->rules);
    return 0;
}

static int module_clear(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    PyTypeObject *file = state->file, *rules = state->rules;
    *state = (module_state){NULL, NULL};
    Py_DecRef((PyObject *)file);
    Py_DecRef((PyObject *)rules);
    return 0;
}

/* The slots in the order of the versions that know them. The headers name the last two only for those versions; the
   numbers belong to the stable ABI. */
static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {3, (void *)2}, /* Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED: from 3.12 on */
    {4, (void *)1}, /* Py_mod_gil, Py_MOD_GIL_NOT_USED: from 3.13 on */
    {0, NULL},
};

static struct PyModuleDef module_def = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "The compiled core of politesse.robots.",
    .m_size = sizeof(module_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__core(void)
{
    /* An unknown slot is an error. */
    module_slots[Py_Version < 0x030c0000 ? 1 : Py_Version < 0x030d0000 ? 2 : 3] = (PyModuleDef_Slot){0, NULL};
    return PyModuleDef_Init(&module_def);
}
