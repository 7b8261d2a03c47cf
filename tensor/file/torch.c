/* torch.c - the tensors in the pickle of a PyTorch checkpoint.
 *
 * A tensor is named by the path of keys that leads to it ("model.norm.weight"); numbers and texts
 * become metadata under such names. Nothing is executed (pickle.h). */
#include <stdlib.h>
#include <string.h>

#include "tensor/file/torch.h"

#define AGAIN TP_TORCH_AGAIN

/* ---- names ---- */

/* A dtype with the names of its storage class and of the dtype itself. */
static const struct dtype {
    const char *storage, *dtype, *stored;
} dtypes[] = {
    { "torch.FloatStorage", "torch.float32", "F32" },
    { "torch.DoubleStorage", "torch.float64", "F64" },
    { "torch.HalfStorage", "torch.float16", "F16" },
    { "torch.BFloat16Storage", "torch.bfloat16", "BF16" },
    { "torch.LongStorage", "torch.int64", "I64" },
    { "torch.IntStorage", "torch.int32", "I32" },
    { "torch.ShortStorage", "torch.int16", "I16" },
    { "torch.CharStorage", "torch.int8", "I8" },
    { "torch.ByteStorage", "torch.uint8", "U8" },
    { "torch.BoolStorage", "torch.bool", "BOOL" },
    { "torch.ComplexFloatStorage", "torch.complex64", "C64" },
    { NULL, "torch.uint16", "U16" },
    { NULL, "torch.uint32", "U32" },
    { NULL, "torch.uint64", "U64" },
    { NULL, "torch.float8_e4m3fn", "F8_E4M3" },
    { NULL, "torch.float8_e5m2", "F8_E5M2" },
};

enum { NDTYPES = sizeof dtypes / sizeof *dtypes };

#define UNTYPED "torch.storage.UntypedStorage" /* its size is in bytes */

/* Other classes and functions that training programs put into their checkpoints and that hold no
 * code. */
static const char *const others[] = {
    UNTYPED,
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
    "torch.Size",
    "torch.device",
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "argparse.Namespace",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath", /* as Python 3.13 calls them */
    "pathlib._local.WindowsPath",
    "_codecs.encode",
    "numpy.dtype",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "__builtin__.set",
    "builtins.set",
    "__builtin__.list",
    "builtins.list",
    "__builtin__.dict",
    "builtins.dict",
};

enum { NOTHERS = sizeof others / sizeof *others };

static const tp_stored *stored_as(const char *name)
{
    for (size_t i = 0; i < NDTYPES; i++)
        if ((dtypes[i].storage && strcmp(name, dtypes[i].storage) == 0) ||
            strcmp(name, dtypes[i].dtype) == 0)
            return tp__stored(dtypes[i].stored);
    return NULL;
}

bool tp__torch_allows(const char *name)
{
    bool found = stored_as(name) != NULL;
    for (size_t i = 0; i < NOTHERS && !found; i++) found = strcmp(name, others[i]) == 0;
    return found;
}

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

/* Reads a storage from its id. False: the id is not one of a storage. */
static bool storage_of(const tp_pickle_value *id, tp_storage *s)
{
    const tp_pickle_value *a = id->args;
    if (id->kind != TP_PICKLE_ID || !is_tuple(a, 5)) return false;
    if (!tp__pickle_is(a->at[0], TP_PICKLE_TEXT, "storage") || a->at[1]->kind != TP_PICKLE_NAME ||
        a->at[2]->kind != TP_PICKLE_TEXT || !is_natural(a->at[4]))
        return false;
    const char *name = a->at[1]->text;
    *s = (tp_storage){ .key = a->at[2]->text, .stored = stored_as(name), .fd = -1 };
    if (!s->stored && strcmp(name, UNTYPED) != 0) return false;
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
    for (size_t i = 0; i < n; i++)
        if (!storage_of(ids[i], &C->storages[i])) {
            bad(C, "a persistent id of the pickle is not that of a storage");
            return;
        }
    qsort(C->storages, n, sizeof *C->storages, by_key);
    for (size_t i = 0; i < n; i++) {
        const tp_storage *s = &C->storages[i], *last = C->n ? &C->storages[C->n - 1] : NULL;
        if (!last || strcmp(last->key, s->key) != 0)
            C->storages[C->n++] = *s;
        else if (last->bytes != s->bytes ||
                 (last->stored != s->stored && last->stored && s->stored))
            bad(C, "a storage has two sizes or dtypes");
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
    if ((uint64_t)numel > most) return false; /* expanded: few bytes, any number of elements */
    for (int i = 0; i < s->ndim; i++) {
        uint64_t step;
        if (__builtin_mul_overflow((uint64_t)(s->dim[i] - 1), (uint64_t)stride[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    }
    return last < most;
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

/* a: (storage, offset, sizes, strides, ...), with the dtype as the seventh item if the storage is
 * untyped. */
static void add_tensor(tp_torch *C, const char *name, const tp_pickle_value *a)
{
    tp_storage s;
    tp_shape shape = { 0 };
    int64_t stride[TP_MAX_DIMS], numel;
    int nstrides;
    uint64_t view;
    if (!is_tuple(a, 4) || !storage_of(a->at[0], &s) || !is_natural(a->at[1]) ||
        !read_dims(a->at[2], shape.dim, &shape.ndim) || !read_dims(a->at[3], stride, &nstrides) ||
        nstrides != shape.ndim || !view_offset(a->at[0], &view)) {
        tp__file_fail(C->F, TP_E_IO, "tensor '%.200s' has no storage, sizes and strides" AGAIN,
                      name);
        return;
    }
    if (!s.stored && a->n > 6 && a->at[6]->kind == TP_PICKLE_NAME)
        s.stored = stored_as(a->at[6]->text);
    const tp_storage *place = tp__torch_storage(C, s.key);
    if (!s.stored || !place || place->fd < 0) {
        tp__file_fail(C->F, TP_E_IO, "tensor '%.200s' has no dtype or no data" AGAIN, name);
        return;
    }
    const uint64_t first = view + (uint64_t)a->at[1]->whole;
    if (!tp__numel(&shape, &numel) || first < view ||
        !is_inside(&shape, stride, numel, first, s.bytes / s.stored->size)) {
        tp__file_fail(
            C->F, TP_E_IO,
            "tensor '%.200s' is not inside its storage of %zu bytes; save a contiguous copy of it, "
            "or download the file again",
            name, s.bytes);
        return;
    }
    tp__file_add(C->F, name, true, s.stored, &shape, stride, place->fd,
                 place->from + (size_t)first * s.stored->size);
}

/* ---- the tree of names ---- */

enum { NAME = 1024, DEEPEST = 32, MOST_VISITS = 1 << 23, MOST_TEXT = 4096 };

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

/* Visits (list of pairs), the form in which Python 2 wrote an OrderedDict. */
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

static void visit_call(tp_torch *C, const tp_pickle_value *v, char *name, size_t length, int depth)
{
    const char *callee = v->callee->text;
    if (begins_with(callee, "torch._utils._rebuild_tensor"))
        add_tensor(C, name, v->args);
    else if (begins_with(callee, "torch._utils._rebuild_parameter") ||
             strcmp(callee, "torch.nn.parameter.Parameter") == 0) {
        if (v->args->n) visit(C, v->args->at[0], name, length, depth + 1);
    } else if (begins_with(callee, "collections.")) {
        visit_pairs(C, v->args, name, length, depth);
        visit_dict(C, v, name, length, depth);
    } else if (strcmp(callee, "argparse.Namespace") == 0 && v->state &&
               v->state->kind == TP_PICKLE_DICT)
        visit_dict(C, v->state, name, length, depth);
}

static void add_text(tp_torch *C, const char *name, const tp_pickle_value *v)
{
    if (v->size <= MOST_TEXT && strlen(v->text) == v->size && tp_is_utf8(v->text))
        tp__file_add_meta(C->F, name, v->text);
}

static void visit(tp_torch *C, const tp_pickle_value *v, char *name, size_t length, int depth)
{
    char number[32];
    if (depth > DEEPEST || C->visited++ > MOST_VISITS) {
        bad(C, "values of the pickle are nested too deep, or contain themselves");
        return;
    }
    switch (v->kind) {
    case TP_PICKLE_DICT: visit_dict(C, v, name, length, depth); break;
    case TP_PICKLE_LIST:
    case TP_PICKLE_TUPLE: visit_list(C, v, name, length, depth); break;
    case TP_PICKLE_CALL: visit_call(C, v, name, length, depth); break;
    case TP_PICKLE_TEXT: add_text(C, name, v); break;
    case TP_PICKLE_BOOL: tp__file_add_meta(C->F, name, v->whole ? "true" : "false"); break;
    case TP_PICKLE_INT:
        snprintf(number, sizeof number, "%lld", (long long)v->whole);
        tp__file_add_meta(C->F, name, number);
        break;
    case TP_PICKLE_FLOAT:
        tp_number_write(number, sizeof number, v->real, 17);
        tp__file_add_meta(C->F, name, number);
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
