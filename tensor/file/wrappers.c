/* wrappers.c - names of tensors without the components that PyTorch's wrappers of modules insert.
 *
 * A wrapper is a module with one child, whose name is a component of the names of all weights below:
 * "layers.0._orig_mod.weight". It may be anywhere on a path, where only a part of a model was wrapped. */
#include <string.h>

#include <tapegrad/file.h>

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
