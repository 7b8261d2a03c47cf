/* torch.c - extracts the tensors from the pickle of a PyTorch checkpoint.
 *
 * A tensor is named by the path of keys to it ("model.norm.weight"); numbers and texts become
 * metadata under such names. Nothing is executed (pickle.h). */
#include <stdlib.h>
#include <string.h>

#include "tensor/file/torch.h"

#define AGAIN TP_TORCH_AGAIN

/* ---- storages ---- */

static void bad(tp_torch *C, const char *text)
{
    tp__file_fail(C->F, TP_E_IO, "%s" AGAIN, text);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const tp_storage *)a)->key, ((const tp_storage *)b)->key);
}

static bool is_tuple(const tp_pickle_value *v, size_t least)
{
    return v->kind == TP_PICKLE_TUPLE && v->n >= least;
}

static bool is_natural(const tp_pickle_value *v)
{
    return v->kind == TP_PICKLE_INT && v->whole >= 0;
}

enum { LONGEST_KEY = 256 }; /* keys are numbers; long ones are slow to compare */

/* Reads a storage from its id. False: not a storage id. */
static bool storage_of(const tp_pickle_value *id, tp_storage *s)
{
    const tp_pickle_value *a = id->args;
    if (id->kind != TP_PICKLE_ID || !is_tuple(a, 5)) return false;
    if (!tp__pickle_is(a->at[0], TP_PICKLE_TEXT, "storage") || a->at[1]->kind != TP_PICKLE_NAME ||
        a->at[2]->kind != TP_PICKLE_TEXT || a->at[2]->size > LONGEST_KEY || !is_natural(a->at[4]))
        return false;
    const char *name = a->at[1]->text;
    *s = (tp_storage){ .key = a->at[2]->text, .stored = tp__torch_stored(name), .fd = -1 };
    if (!s->stored && strcmp(name, TP_TORCH_UNTYPED) != 0) s->other = name;
    return tp__size_mul((size_t)a->at[4]->whole, s->stored ? s->stored->size : 1, &s->bytes);
}

void tp__torch_storages(tp_torch *C)
{
    size_t n;
    tp_pickle_value *const *ids = tp__pickle_ids(C->p, &n);
    C->storages = calloc(n + 1, sizeof *C->storages);
    if (!C->storages) {
        tp__file_fail(C->F, TP_E_MEMORY, "out of memory for the %zu storages", n);
        return;
    }
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += storage_of(ids[i], &C->storages[found]);
    if (found) qsort(C->storages, found, sizeof *C->storages, by_key);
    for (size_t i = 0; i < found; i++) {
        const tp_storage *s = &C->storages[i];
        tp_storage *last = C->n ? &C->storages[C->n - 1] : NULL;
        if (!last || strcmp(last->key, s->key) != 0)
            C->storages[C->n++] = *s;
        else if (last->bytes != s->bytes || !last->other != !s->other ||
                 (last->stored != s->stored && last->stored && s->stored))
            last->doubtful = true;
        else if (!last->stored)
            last->stored = s->stored;
    }
}

tp_storage *tp__torch_storage(const tp_torch *C, const char *key)
{
    const tp_storage s = { .key = key };
    return C->n ? bsearch(&s, C->storages, C->n, sizeof s, by_key) : NULL;
}

/* ---- tensors ---- */

/* Reads sizes or strides. */
static bool read_dims(const tp_pickle_value *v, int64_t *dim, int *ndim)
{
    if (v->kind == TP_PICKLE_CALL && v->args->n == 1) v = v->args->at[0]; /* torch.Size((2, 3)) */
    if (!is_tuple(v, 0) || v->n > TP_MAX_DIMS) return false;
    *ndim = (int)v->n;
    for (size_t i = 0; i < v->n; i++) {
        if (!is_natural(v->at[i])) return false;
        dim[i] = v->at[i]->whole;
    }
    return true;
}

/* Whether all elements are inside a storage of `most` elements. */
static bool is_inside(const tp_shape *s, const int64_t *stride, int64_t numel, uint64_t first,
                      uint64_t most)
{
    uint64_t last = first;
    if (numel == 0) return true;
    if ((uint64_t)numel > most) return false; /* expanded: few bytes, many elements */
    for (int i = 0; i < s->ndim; i++) {
        uint64_t step;
        if (__builtin_mul_overflow((uint64_t)(s->dim[i] - 1), (uint64_t)stride[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    }
    return last < most;
}

/* Whether all elements of an expanded tensor, many of them shared, are in a storage. */
static bool is_inside_once(const tp_shape *s, const int64_t *stride, uint64_t first, uint64_t most)
{
    tp_shape once = *s;
    int64_t numel;
    for (int i = 0; i < s->ndim; i++)
        if (stride[i] == 0) once.dim[i] = 1;
    return tp__numel(&once, &numel) && is_inside(&once, stride, numel, first, most);
}

/* Does the metadata, the last argument, say that the elements are stored negated or conjugated?
 * There are only two such flags; larger metadata could be searched too often. */
static bool is_negated(const tp_pickle_value *a)
{
    const tp_pickle_value *meta = a->at[a->n - 1];
    if ((meta->kind == TP_PICKLE_DICT || meta->kind == TP_PICKLE_CALL) && meta->n > 64) return true;
    const tp_pickle_value *neg = tp__pickle_find(meta, "neg"),
                          *conj = tp__pickle_find(meta, "conj");
    return (neg && neg->kind == TP_PICKLE_BOOL && neg->whole) ||
           (conj && conj->kind == TP_PICKLE_BOOL && conj->whole);
}

/* Offset of the id's view of its storage, in elements. */
static bool view_offset(const tp_pickle_value *id, uint64_t *offset)
{
    const tp_pickle_value *view = id->args->n > 5 ? id->args->at[5] : NULL;
    *offset = 0;
    if (!view || view->kind == TP_PICKLE_NONE) return true;
    if (!is_tuple(view, 3) || !is_natural(view->at[1])) return false;
    *offset = (uint64_t)view->at[1]->whole;
    return true;
}

/* Spoils the slot with the reason if its storage has no data. */
static bool has_data(tp_torch *C, tp_file_slot *slot, const tp_storage *place)
{
    if (place && place->fd >= 0 && !place->doubtful) return true;
    if (!place)
        tp__file_spoil(C->F, slot, TP_E_IO, "has no storage" AGAIN);
    else if (place->doubtful)
        tp__file_spoil(C->F, slot, TP_E_IO,
                       "is in storage '%.100s', which has two sizes or dtypes" AGAIN, place->key);
    else
        tp__file_spoil(
            C->F, slot, TP_E_IO,
            "is in storage '%.100s', which has %zu bytes in the pickle, %zu in the archive" AGAIN,
            place->key, place->bytes, place->found);
    return false;
}

/* Accounts for the memory of a tensor or a metadata pair. One object may appear at many places, so
 * a few bytes could produce any number of names; returns false with C failed if they produce more
 * than any checkpoint. */
static bool take(tp_torch *C, size_t bytes)
{
    enum { TIMES = 128, FREE = 1 << 16, MOST = 1 << 30 };
    const size_t pickled = C->pickled < C->F->size ? C->pickled : C->F->size;
    const size_t most = pickled < MOST / TIMES ? TIMES * pickled + FREE : MOST;
    C->taken += bytes;
    if (C->taken > most)
        tp__file_fail(
            C->F, TP_E_IO,
            "holds objects that are at so many places that their names and values would take "
            "more than %zu bytes, %d times the %zu bytes that describe them: the file is refused; "
            "save the state dict alone, torch.save(model.state_dict(), PATH)",
            most, TIMES, pickled);
    return tp_file_ok(C->F);
}

static tp_file_slot *append(tp_torch *C, const char *name)
{
    return take(C, 3 * sizeof(tp_file_slot) + strlen(name)) ? tp__file_append(C->F, name, true)
                                                            : NULL;
}

/* a: (storage, offset, sizes, strides, ...), with the dtype seventh if the storage is untyped. */
static void add_tensor(tp_torch *C, const char *name, const tp_pickle_value *a)
{
    tp_storage s;
    tp_shape shape = { 0 };
    int64_t stride[TP_MAX_DIMS], numel;
    int nstrides;
    uint64_t view;
    tp_file_slot *slot = append(C, name);
    if (!slot) return;
    if (is_tuple(a, 4) && is_tuple(a->at[2], TP_MAX_DIMS + 1)) {
        tp__file_spoil(C->F, slot, TP_E_DTYPE, "has %zu axes; at most %d are supported: reshape it",
                       a->at[2]->n, TP_MAX_DIMS);
        return;
    }
    if (!is_tuple(a, 4) || !storage_of(a->at[0], &s) || !is_natural(a->at[1]) ||
        !read_dims(a->at[2], shape.dim, &shape.ndim) || !read_dims(a->at[3], stride, &nstrides) ||
        nstrides != shape.ndim || !view_offset(a->at[0], &view)) {
        tp__file_spoil(C->F, slot, TP_E_IO, "has no storage, sizes and strides" AGAIN);
        return;
    }
    const char *dtype = s.other;
    if (!s.stored && a->n > 6 && a->at[6]->kind == TP_PICKLE_NAME) {
        dtype = a->at[6]->text;
        s.stored = tp__torch_stored(dtype);
    }
    slot->tensor.shape = shape;
    if (!s.stored && dtype) {
        tp__file_stored(C->F, slot, dtype);
        tp__file_spoil(C->F, slot, TP_E_DTYPE,
                       "has the unknown dtype '%.64s'; save it as float32: t.float()", dtype);
    } else if (!s.stored) {
        tp__file_spoil(C->F, slot, TP_E_IO, "has no dtype" AGAIN);
    }
    if (slot->tensor.code != TP_OK || !s.stored) return;
    slot->tensor.stored = s.stored->name;
    const tp_storage *place = tp__torch_storage(C, s.key);
    if (!has_data(C, slot, place)) return;
    const uint64_t first = view + (uint64_t)a->at[1]->whole, most = s.bytes / s.stored->size;
    const bool counted = tp__numel(&shape, &numel);
    if (counted && (uint64_t)numel > most && is_inside_once(&shape, stride, first, most))
        tp__file_spoil(C->F, slot, TP_E_DTYPE,
                       "is expanded: its %lld elements are views of fewer; save t.contiguous()",
                       (long long)numel);
    else if (!counted || first < view || !is_inside(&shape, stride, numel, first, most))
        tp__file_spoil(
            C->F, slot, TP_E_IO,
            "is not inside its storage of %zu bytes; save a contiguous copy of it, or download "
            "the file again",
            s.bytes);
    if (is_negated(a))
        tp__file_spoil(C->F, slot, TP_E_DTYPE,
                       "is a negated or conjugate view; save t.resolve_neg()");
    if (slot->tensor.code != TP_OK) return;
    tp__file_place(C->F, slot, s.stored, &shape, stride, place->fd,
                   place->from + (size_t)first * s.stored->size);
    tp__file_count(C->F, slot,
                   "as views of one storage: the file is refused; save the state dict alone");
}

/* Finds the sizes among the arguments of a tensor constructor. */
static bool find_dims(const tp_pickle_value *args, tp_shape *shape, int depth)
{
    for (size_t i = 0; args->kind == TP_PICKLE_TUPLE && i < args->n && i < 8; i++)
        if (read_dims(args->at[i], shape->dim, &shape->ndim) ||
            (depth > 0 && find_dims(args->at[i], shape, depth - 1)))
            return true;
    return false;
}

static void add_unreadable(tp_torch *C, const char *name, const tp_pickle_value *args,
                           const char *why)
{
    tp_storage s;
    tp_shape shape = { 0 };
    tp_file_slot *slot = append(C, name);
    if (!slot) return;
    if (find_dims(args, &shape, 1)) slot->tensor.shape = shape;
    if (is_tuple(args, 1) && storage_of(args->at[0], &s) && s.stored)
        slot->tensor.stored = s.stored->name;
    tp__file_spoil(C->F, slot, TP_E_DTYPE, "%s", why);
}

/* ---- the tree of names ---- */

enum { NAME = 1024, DEEPEST = 32, MOST_TEXT = 4096 };

static void visit(tp_torch *C, const tp_pickle_value *v, char *name, size_t length, int depth);

/* Visits v as name.key. */
static void visit_child(tp_torch *C, const tp_pickle_value *v, const char *key, char *name,
                        size_t length, int depth)
{
    const size_t n = strlen(key), dot = length > 0;
    if (length + dot + n >= NAME) {
        bad(C, "a name is longer than any model's");
        return;
    }
    if (dot) name[length] = '.';
    memcpy(name + length + dot, key, n + 1);
    visit(C, v, name, length + dot + n, depth + 1);
    name[length] = 0;
}

static void visit_dict(tp_torch *C, const tp_pickle_value *v, char *name, size_t length, int depth)
{
    char number[24];
    for (size_t i = 0; i + 1 < v->n && tp_file_ok(C->F); i += 2) {
        const tp_pickle_value *key = v->at[i];
        snprintf(number, sizeof number, "%lld",
                 key->kind == TP_PICKLE_INT ? (long long)key->whole : 0LL);
        if (key->kind == TP_PICKLE_TEXT || key->kind == TP_PICKLE_INT)
            visit_child(C, v->at[i + 1], key->kind == TP_PICKLE_INT ? number : key->text, name,
                        length, depth);
    }
}

static void visit_list(tp_torch *C, const tp_pickle_value *v, char *name, size_t length, int depth)
{
    char number[24];
    for (size_t i = 0; i < v->n && tp_file_ok(C->F); i++) {
        const tp_pickle_kind kind = v->at[i]->kind;
        if (kind < TP_PICKLE_TUPLE) continue; /* thousands of numbers are not metadata */
        snprintf(number, sizeof number, "%zu", i);
        visit_child(C, v->at[i], number, name, length, depth);
    }
}

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Visits (list of pairs), the form of an OrderedDict in Python 2. */
static void visit_pairs(tp_torch *C, const tp_pickle_value *args, char *name, size_t length,
                        int depth)
{
    const tp_pickle_value *list = args->n == 1 ? args->at[0] : args;
    for (size_t i = 0;
         args->n == 1 && list->kind == TP_PICKLE_LIST && i < list->n && tp_file_ok(C->F); i++) {
        const tp_pickle_value *pair = list->at[i];
        if ((pair->kind == TP_PICKLE_LIST || pair->kind == TP_PICKLE_TUPLE) && pair->n == 2 &&
            pair->at[0]->kind == TP_PICKLE_TEXT)
            visit_child(C, pair->at[1], pair->at[0]->text, name, length, depth);
    }
}

/* Visits what a function makes of its arguments; false: no tensors. */
static bool visit_tensor(tp_torch *C, const char *callee, const tp_pickle_value *args, char *name,
                         size_t length, int depth)
{
    const char *why = tp__torch_unreadable(callee);
    const bool typed = begins_with(callee, "torch._tensor._rebuild_from_type") &&
                       is_tuple(args, 3) && args->at[0]->kind == TP_PICKLE_NAME &&
                       is_tuple(args->at[2], 0);
    if (typed && depth < DEEPEST &&
        visit_tensor(C, args->at[0]->text, args->at[2], name, length, depth + 1))
        return true;
    if (begins_with(callee, "torch._utils._rebuild_tensor"))
        add_tensor(C, name, args);
    else if (why)
        add_unreadable(C, name, args, why);
    else if (!begins_with(callee, "torch._utils._rebuild_parameter") &&
             strcmp(callee, "torch.nn.parameter.Parameter") != 0)
        return false;
    else if (args->n)
        visit(C, args->at[0], name, length, depth + 1);
    return true;
}

/* The number of values a visit looks at, mostly to skip them. */
static size_t items_of(const tp_pickle_value *v)
{
    const bool call = v->kind == TP_PICKLE_CALL;
    size_t n = 0;
    if (call || v->kind == TP_PICKLE_DICT || v->kind == TP_PICKLE_LIST ||
        v->kind == TP_PICKLE_TUPLE)
        n = v->n;
    if (call && v->args->n == 1 && v->args->at[0]->kind == TP_PICKLE_LIST) n += v->args->at[0]->n;
    if (call && v->state && v->state->kind == TP_PICKLE_DICT) n += v->state->n;
    return n;
}

static void visit_call(tp_torch *C, const tp_pickle_value *v, char *name, size_t length, int depth)
{
    const char *callee = v->callee->text;
    const bool array = begins_with(callee, "numpy.") && v->state; /* its shape is there */
    if (visit_tensor(C, callee, array ? v->state : v->args, name, length, depth)) return;
    if (begins_with(callee, "collections.")) {
        visit_pairs(C, v->args, name, length, depth);
        visit_dict(C, v, name, length, depth);
    } else if (strcmp(callee, "argparse.Namespace") == 0 && v->state &&
               v->state->kind == TP_PICKLE_DICT)
        visit_dict(C, v->state, name, length, depth);
}

static void add_meta(tp_torch *C, const char *name, const char *value)
{
    if (take(C, 128 + strlen(name) + strlen(value))) tp__file_add_meta(C->F, name, value);
}

static void add_text(tp_torch *C, const char *name, const tp_pickle_value *v)
{
    if (v->size <= MOST_TEXT && strlen(v->text) == v->size && tp_is_utf8(v->text))
        add_meta(C, name, v->text);
}

static void visit(tp_torch *C, const tp_pickle_value *v, char *name, size_t length, int depth)
{
    char number[32];
    if (depth > DEEPEST) {
        bad(C, "values of the pickle are nested too deep, or contain themselves");
        return;
    }
    if (!take(C, 8 + length / 8 + items_of(v))) return; /* time, too */
    switch (v->kind) {
    case TP_PICKLE_DICT: visit_dict(C, v, name, length, depth); break;
    case TP_PICKLE_LIST:
    case TP_PICKLE_TUPLE: visit_list(C, v, name, length, depth); break;
    case TP_PICKLE_CALL: visit_call(C, v, name, length, depth); break;
    case TP_PICKLE_TEXT: add_text(C, name, v); break;
    case TP_PICKLE_BOOL: add_meta(C, name, v->whole ? "true" : "false"); break;
    case TP_PICKLE_INT:
        snprintf(number, sizeof number, "%lld", (long long)v->whole);
        add_meta(C, name, number);
        break;
    case TP_PICKLE_FLOAT:
        tp_number_write(number, sizeof number, v->real, 17);
        add_meta(C, name, number);
        break;
    default: break;
    }
}

void tp__torch_add(tp_torch *C, const tp_pickle_value *root)
{
    char name[NAME] = "";
    visit(C, root, name, 0, 0);
}

const tp_pickle_value *tp__torch_next(tp_torch *C)
{
    const tp_pickle_value *v = tp__pickle_next(C->p);
    const tp_err *e = tp__pickle_error(C->p);
    if (!v) tp__file_fail(C->F, e->code, "%s", e->text);
    return v;
}
