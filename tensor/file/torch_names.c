/* torch_names.c - PyTorch names: the classes and functions allowed in a checkpoint, and the
 * components that module wrappers insert into tensor names. */
#include <string.h>

#include <tapegrad/file.h>

#include "tensor/file/torch.h"

/* The classes and functions that a checkpoint may name; none is ever called. Dtypes come first. */
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
    { NULL, "torch.float8_e8m0fnu", "F8_E8M0" },
    { "torch.ComplexDoubleStorage", "torch.complex128", "C128" },
    { "torch.QInt8Storage", "torch.qint8", "QI8" },
    { "torch.QUInt8Storage", "torch.quint8", "QU8" },
    { "torch.QInt32Storage", "torch.qint32", "QI32" },
};

enum { NDTYPES = sizeof dtypes / sizeof *dtypes };

/* Other classes and functions found in training checkpoints, which hold no code. */
static const char *const others[] = {
    TP_TORCH_UNTYPED,
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
    "torch.Size",
    "torch.device",
    "torch.Tensor",
    "torch.serialization._get_layout",
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "argparse.Namespace",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath", /* as named by Python 3.13 */
    "pathlib._local.WindowsPath",
    "_codecs.encode",
    "numpy.dtype",
    "numpy.ndarray",
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

const tp_stored *tp__torch_stored(const char *name)
{
    for (size_t i = 0; i < NDTYPES; i++)
        if ((dtypes[i].storage && strcmp(name, dtypes[i].storage) == 0) ||
            strcmp(name, dtypes[i].dtype) == 0)
            return tp__stored(dtypes[i].stored);
    return NULL;
}

/* Functions that make tensors not readable here. */
static const struct unreadable {
    const char *callee, *why;
} unreadable[] = {
    { "torch._utils._rebuild_qtensor", "is quantised; save it as floats: t.dequantize()" },
    { "torch._utils._rebuild_sparse_tensor", "is sparse; save it as dense: t.to_dense()" },
    { "torch._utils._rebuild_sparse_csr_tensor", "is sparse; save it as dense: t.to_dense()" },
    { "torch._utils._rebuild_nested_tensor", "is nested; save its parts: t.unbind()" },
    { "torch._utils._rebuild_meta_tensor_no_storage",
      "is on the device 'meta' and has no values; load the model before saving it" },
    { "torch._utils._rebuild_device_tensor_from_numpy",
      "is on a custom device; save t.cpu() instead" },
    { "torch._utils._rebuild_device_tensor_from_cpu_tensor",
      "is on a custom device; save t.cpu() instead" },
    { "torch._utils._rebuild_xla_tensor", "is on a custom device; save t.cpu() instead" },
    { "torch._utils._rebuild_wrapper_subclass",
      "is of a subclass of tensors; save the plain tensor it stands for" },
    { "torch._tensor._rebuild_from_type", "is of a subclass of tensors; save the plain tensor" },
    { "torch._tensor._rebuild_from_type_v2", "is of a subclass of tensors; save the plain tensor" },
    { "numpy.core.multiarray._reconstruct", "is an array of NumPy; save torch.from_numpy(a)" },
    { "numpy._core.multiarray._reconstruct", "is an array of NumPy; save torch.from_numpy(a)" },
};

const char *tp__torch_unreadable(const char *callee)
{
    for (size_t i = 0; i < sizeof unreadable / sizeof *unreadable; i++)
        if (strcmp(callee, unreadable[i].callee) == 0) return unreadable[i].why;
    return NULL;
}

/* Dtypes, layouts, quantisation schemes and storage classes, including future ones: "torch.qint8",
 * "torch.sparse_coo", "torch.per_tensor_affine", "torch.FloatStorage". */
static bool is_word_of_tensors(const char *name)
{
    static const char *const begins[] = { "float", "bfloat", "complex", "int",     "uint",   "qint",
                                          "quint", "bits",   "per_",    "sparse_", "strided" };
    if (strncmp(name, "torch.", 6) != 0 || strchr(name + 6, '.')) return false;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name + 6, begins[i], strlen(begins[i])) == 0) return true;
    return tp_ends_in(name, "Storage");
}

bool tp__torch_allows(const char *name)
{
    bool found = tp__torch_stored(name) || tp__torch_unreadable(name) || is_word_of_tensors(name);
    for (size_t i = 0; i < NOTHERS && !found; i++) found = strcmp(name, others[i]) == 0;
    return found;
}

/* ---- names without wrappers ---- */

/* Names of tensors without the components that PyTorch's module wrappers insert.
 *
 * A wrapper is a module with one child, whose name is part of the names of all weights below it:
 * "layers.0._orig_mod.weight". It may be anywhere on a path, if a part of a model was wrapped. */

static const char *const wrappers[] = {
    "_orig_mod",            /* torch.compile */
    "module",               /* DataParallel, DistributedDataParallel, AveragedModel, DeepSpeed */
    "_fsdp_wrapped_module", /* FullyShardedDataParallel */
    "_fpw_module",          /* the same, before PyTorch 1.13 */
    "_checkpoint_wrapped_module", /* checkpoint_wrapper, offload_wrapper */
    "_forward_module",            /* Lightning's Fabric */
    "_dp_module",                 /* DataParallel of opacus and others */
};

static bool is_wrapper(const char *part, size_t n)
{
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strlen(wrappers[i]) == n && memcmp(wrappers[i], part, n) == 0) return true;
    return false;
}

bool tp_file_unwrapped(const char *name, char *plain, size_t size)
{
    size_t used = 0;
    bool removed = false;
    for (const char *part = name, *dot; part; part = dot ? dot + 1 : NULL) {
        dot = strchr(part, '.');
        const size_t n = dot ? (size_t)(dot - part) : strlen(part);
        if (dot && is_wrapper(part, n)) {
            removed = true;
            continue;
        }
        if (used + n + 2 > size) return false;
        memcpy(plain + used, part, n);
        used += n;
        plain[used] = '\0';
        if (dot) plain[used++] = '.';
    }
    return removed && used > 0;
}
