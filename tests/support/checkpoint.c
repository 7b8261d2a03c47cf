/* checkpoint.c - edits, reads, compares and publishes checkpoints. */
#include "support/checkpoint.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

void read_tensor(const char *path, const char *name, double *x, int64_t n)
{
    tp_file *F = tp_file_open(path);
    const tp_file_tensor *t = tp_file_find(F, name);
    cr_assert(t && t->numel == n && tp_file_read(F, t, TP_F64, x), "%s: %s", name, tp_file_why(F));
    tp_file_close(F);
}

double tensor_distance(const char *a, const char *b, const char *tensor)
{
    double most = 0;
    tp_file *A = tp_file_open(a), *B = tp_file_open(b);
    const tp_file_tensor *x = tp_file_find(A, tensor), *y = tp_file_find(B, tensor);
    cr_assert(x && y && x->numel == y->numel, "%s: %s%s", tensor, tp_file_why(A), tp_file_why(B));
    double *v = malloc(2 * (size_t)x->numel * sizeof *v);
    cr_assert(v && tp_file_read(A, x, TP_F64, v) && tp_file_read(B, y, TP_F64, v + x->numel));
    for (int64_t i = 0; i < x->numel; i++) most = fmax(most, fabs(v[i] - v[x->numel + i]));
    free(v);
    tp_file_close(A);
    tp_file_close(B);
    return most;
}

void publish_weights(const char *from, const char *to)
{
    static int64_t index[4];
    tp_file *F = tp_file_open(from);
    tp_writer *W = tp_writer_new(to);
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        char name[512];
        if (strncmp(t->name, "optim.", 6) == 0 || strncmp(t->name, "state.", 6) == 0 ||
            strncmp(t->name, "ema.", 4) == 0)
            continue;
        const tp_dtype dt = strcmp(t->stored, "I64") == 0 ? TP_I64 : TP_F32;
        const size_t bytes = (size_t)t->numel * tp_dtype_size(dt);
        void *x = malloc(bytes + 1);
        cr_assert(tp_file_read(F, t, dt, x), "%s", tp_file_why(F));
        snprintf(name, sizeof name, "state_dict.module.%s", t->name);
        tp_writer_add(W, name, dt, t->shape, x, true);
        memset(x, 0, bytes);
        snprintf(name, sizeof name, "state_dict_ema.module.%s", t->name);
        tp_writer_add(W, name, dt, t->shape, x, true);
        free(x);
    }
    tp_writer_add(W, "state_dict.module.attn.relative_position_index", TP_I64, TP_SHAPE(2, 2),
                  index, false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file_close(F);
}
