/* test_compare.c - stored calls of tests/compare_pytorch.py: results and gradients equal PyTorch's, which
 * the files hold beside the inputs. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"
#include "support_values.h"

typedef struct check {
    tp_file *file;
    int results;
} check;

static double element(const void *data, tp_dtype dt, int64_t i)
{
    switch (dt) {
    case TP_F64: return ((const double *)data)[i];
    case TP_F32: return (double)((const float *)data)[i];
    case TP_I64: return (double)((const int64_t *)data)[i];
    case TP_I32: return ((const int32_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

/* Compares a result with the file's, in doubles. */
static void compare_result(void *env, const compare_call *c, const char *name, tp_dtype dt,
                           tp_shape s, const void *data)
{
    check *k = env;
    char full[300];
    snprintf(full, sizeof full, "%d.%s", c->number, name);
    const tp_file_tensor *t = tp_file_find(k->file, full);
    const char *op = compare_text(c, "op", "");
    k->results++;
    if (!t) {
        cr_expect(false, "%s: the file has no %s", op, full);
        return;
    }
    const size_t room = (size_t)t->numel + 1;
    double *want = malloc(room * sizeof *want), *got = malloc(room * sizeof *got);
    bool equal = s.ndim == t->shape.ndim;
    for (int i = 0; equal && i < s.ndim; i++) equal = s.dim[i] == t->shape.dim[i];
    cr_expect(equal, "%s: the shape of %s differs", op, full);
    if (equal && want && got) {
        const bool floating = tp_is_float(dt);
        int64_t *whole = malloc(room * sizeof *whole);
        cr_expect(whole && tp_file_read(k->file, t, floating ? TP_F64 : TP_I64,
                                        floating ? (void *)want : (void *)whole),
                  "%s", tp_file_why(k->file));
        for (int64_t i = 0; i < t->numel; i++) {
            if (!floating) want[i] = (double)whole[i];
            got[i] = element(data, dt, i);
        }
        free(whole);
        const double error = values_error(got, want, t->numel, 1.0);
        cr_expect_leq(error, compare_number(c, "tolerance", 1e-9), "%s: the error of %s is %g", op,
                      full, error);
    }
    free(want);
    free(got);
}

static void replay(tp_device *D, const char *path)
{
    tp_file *F = tp_file_open(path);
    const int calls = compare_calls(F);
    cr_assert(calls > 0, "%s: %s", path, tp_file_why(F));
    check k = { F, 0 };
    for (int i = 0; i < calls; i++) {
        char why[1024];
        cr_expect_eq(compare_run(D, F, i, compare_result, &k, why, sizeof why), 0,
                     "%s, call %d: %s", path, i, why);
    }
    cr_expect(k.results >= calls, "each call of %s has a result", path);
    tp_file_close(F);
}

Test(compare, stored_calls)
{
    const char *folder = TP_SOURCE_DIR "/tests/compare/stored";
    char path[1024];
    int files = 0;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    DIR *d = opendir(folder);
    cr_assert(d, "%s is there", folder);
    for (const struct dirent *e; (e = readdir(d));) {
        if (!tp_ends_in(e->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        replay(D, path);
        files++;
    }
    closedir(d);
    cr_expect(files > 0);
    tp_device_close(D);
}
