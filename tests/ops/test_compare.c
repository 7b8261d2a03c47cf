/* test_compare.c - stored calls of tests/compare/compare_pytorch.py: results and gradients equal
 * PyTorch's in the files. */
#define TP_NO_SITE
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>

#include "compare/compare.h"
#include "support/values.h"
#include "tools/op_calls/op_calls.h"

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

/* ---- unknown options ---- */

typedef struct one_option {
    const char *name, *word; /* NULL: the number 1 */
} one_option;

static int option_numbers(const void *env, const char *name, int max, double *out)
{
    const one_option *o = env;
    if (max < 1 || o->word || strcmp(o->name, name) != 0) return -1;
    out[0] = 1.0;
    return 1;
}

static const char *option_text(const void *env, const char *name)
{
    const one_option *o = env;
    return strcmp(o->name, name) == 0 ? o->word : NULL;
}

static const char *option_name(const void *env, int i)
{
    return i == 0 ? ((const one_option *)env)->name : NULL;
}

Test(compare, strange_options_are_errors)
{
    static const struct {
        const char *op, *name, *word, *why; /* why NULL: accepted */
    } cases[] = {
        { "sum", "axes", NULL, NULL },
        { "sum", "keep", NULL, NULL },
        { "sum", "axis", NULL, "tp_sum has no option 'axis'" },
        { "sum", "k", NULL, "tp_sum has no option 'k'" },
        { "maximum", "k", NULL, NULL },
        { "maximum", "keep", NULL, "tp_maximum has no option 'keep'" },
        { "max_pool2d", "ceil", NULL, NULL },
        { "max_pool2d", "ceiling", NULL, "tp_max_pool2d has no option 'ceiling'" },
        { "interpolate", "mode", "bicubic", NULL },
        { "interpolate", "mode", "cubic", "'cubic' is no mode of tp_interpolate" },
        { "cast", "dt", "bf16", NULL },
        { "cast", "dt", "half", "'half' is no dt of tp_cast" },
    };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const one_option given = { cases[i].name, cases[i].word };
        const op_options o = { &given, option_numbers, option_text, option_name };
        tp_tape *T = tp_tape_new(D, NULL);
        const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(1, 2, 2, 1), 0.0);
        tp_tensor y[TP_MAX_OUTPUTS];
        op_call(T, op_signature_of(cases[i].op), 1, &x, o, y);
        const char *why = tp_ok(T) ? "" : tp_why(T);
        const bool refused = strstr(why, "has no option") || strstr(why, "' is no ");
        cr_expect_eq(refused, cases[i].why != NULL, "%s %s: %s", cases[i].op, cases[i].name, why);
        if (cases[i].why) cr_expect(strstr(why, cases[i].why), "%s: %s", cases[i].op, why);
        tp_tape_free(T);
    }
    tp_device_close(D);
}
