/* support_checkpoint.c - see the header. */
#include "support_checkpoint.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>
#include <tapegrad/file.h>

static tp_dtype dtype_of(const tp_file_tensor *t)
{
    static const char *const names[TP_NDTYPES] = {
        [TP_F32] = "F32", [TP_F64] = "F64", [TP_BF16] = "BF16",
        [TP_I32] = "I32", [TP_I64] = "I64", [TP_U8] = "U8"
    };
    int dt = 0;
    while (dt < TP_NDTYPES && (!names[dt] || strcmp(names[dt], t->stored) != 0)) dt++;
    return (tp_dtype)dt;
}

void change_number(const char *path, const char *key, int64_t value)
{
    const char *k, *text;
    bool found = false;
    tp_file *F = tp_file_open(path);
    tp_writer *W = tp_writer_new(path);
    for (int i = 0; tp_file_meta_at(F, i, &k, &text); i++) {
        const bool here = strcmp(k, key) == 0;
        if (here)
            tp_writer_meta_int(W, k, value);
        else
            tp_writer_meta(W, k, text);
        found = found || here;
    }
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        const bool here = strcmp(t->name, key) == 0;
        tp_writer_add(W, t->name, dtype_of(t), t->shape, here ? &value : tp_file_data(F, t), here);
        found = found || (here && t->numel == 1 && dtype_of(t) == TP_I64);
    }
    cr_assert(found, "%s has no number '%s'", path, key);
    cr_assert(tp_file_ok(F) && tp_writer_commit(W), "%s%s", tp_file_why(F), tp_writer_why(W));
    tp_writer_free(W);
    tp_file_close(F);
}
