/* test_params_io.c - saving and loading weights: round trips, all differences in one message, ties,
 * prefixes, conversion; a failure changes nothing. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/folder.h"
#include "tensor/backend.h"

TestSuite(params_io, .init = make_folder, .fini = remove_folder);

static const tp_init normal = { TP_INIT_NORMAL, 1.0, 0 };

/* A small model: two parameters, one with two names, one frozen, one without elements, and two
 * buffers. */
static tp_params *make(tp_device *D, uint64_t seed, tp_dtype dt)
{
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = seed, .dtype = dt });
    const tp_tensor emb = tp_param(P, "in_emb.weight", TP_SHAPE(50, 100), normal, 0);
    tp_param(P, "norm.bias", TP_SHAPE(3), normal, 0);
    tp_param(P, "table", TP_SCALAR, normal, TP_FROZEN);
    tp_param(P, "none", TP_SHAPE(0, 4), normal, 0);
    tp_tie(P, "out_emb.weight", emb);
    tp_buffer(P, "seen", TP_I64, TP_SHAPE(1), &(int64_t){ (int64_t)seed });
    tp_param(P, "running_mean", TP_SHAPE(2), normal, TP_BUFFER);
    return P;
}

static void values(tp_params *P, double *v) /* of in_emb, norm.bias, table, running_mean, seen */
{
    int64_t seen;
    cr_assert(tp_param_get(P, tp_find(P, "in_emb.weight"), TP_F64, v, 5000 * sizeof *v), "%s",
              tp_params_why(P));
    cr_assert(tp_param_get(P, tp_find(P, "norm.bias"), TP_F64, v + 5000, 3 * sizeof *v));
    cr_assert(tp_param_get(P, tp_find(P, "table"), TP_F64, v + 5003, sizeof *v));
    cr_assert(tp_param_get(P, tp_find(P, "running_mean"), TP_F64, v + 5004, 2 * sizeof *v));
    cr_assert(tp_param_get(P, tp_find(P, "seen"), TP_I64, &seen, sizeof seen));
    v[5006] = (double)seen;
}

enum { VALUES = 5007 };

Test(params_io, there_and_back)
{
    static double a[VALUES], b[VALUES];
    tp_device *D = device_open(NULL);
    for (int i = 0; i < (device_is_cuda() ? 1 : 2); i++) {
        const char *path = in_folder("model.safetensors");
        tp_params *P = make(D, 1, i ? TP_F64 : TP_F32), *Q = make(D, 2, i ? TP_F64 : TP_F32);
        cr_expect(tp_save(P, path), "%s", tp_params_why(P));
        cr_expect(tp_load(Q, path, NULL), "%s", tp_params_why(Q));
        values(P, a);
        values(Q, b);
        cr_expect_arr_eq(a, b, sizeof a);
        cr_expect_eq(b[5006], 1.0);
        tp_file *F = tp_file_open(path);
        cr_expect_eq(tp_file_count(F), 6, "the tied parameter is there once");
        cr_expect_str_eq(tp_file_meta(F, "alias.out_emb.weight"), "in_emb.weight");
        cr_expect_str_eq(tp_file_meta(F, "format"), "pt");
        cr_expect_str_eq(tp_file_find(F, "table")->stored, i ? "F64" : "F32");
        tp_file_close(F);
        tp_params_free(P);
        tp_params_free(Q);
    }
    tp_device_close(D);
}

/* ---- files as other programs write them ---- */

typedef struct line {
    const char *name;
    tp_dtype dt;
    tp_shape shape;
} line;

#define EMB                                                                                        \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            50, 100                                                                                \
        }                                                                                          \
    }
#define NORM                                                                                       \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            3                                                                                      \
        }                                                                                          \
    }
#define NONE                                                                                       \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            0, 4                                                                                   \
        }                                                                                          \
    }
#define ONE                                                                                        \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            1                                                                                      \
        }                                                                                          \
    }
#define TWO                                                                                        \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            2                                                                                      \
        }                                                                                          \
    }
#define WHOLE                                                                                      \
    { "norm.bias", TP_F32, NORM }, { "table", TP_F32, { 0, { 0 } } }, { "none", TP_F32, NONE },    \
        { "seen", TP_I64, ONE },                                                                   \
    {                                                                                              \
        "running_mean", TP_F32, TWO                                                                \
    }

/* Writes tensors filled with `fill` (0: zero bits in any dtype), with an optional alias. */
static const char *file_of(const line *lines, const char *alias, const char *of, float fill)
{
    static float data[5000];
    const char *path = in_folder("foreign.safetensors");
    for (int i = 0; i < 5000; i++) data[i] = fill;
    tp_writer *W = tp_writer_new(path);
    for (; lines->name; lines++)
        tp_writer_add(W, lines->name, lines->dt, lines->shape, data, false);
    if (alias) tp_writer_meta(W, alias, of);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    return path;
}

static const struct {
    const char *name;
    line file[12];
    tp_load_opts o;
    const char *why; /* after the path; NULL: loads */
} cases[] = {
    { "first name", { { "in_emb.weight", TP_F32, EMB }, WHOLE }, { 0 }, NULL },
    { "second name", { { "out_emb.weight", TP_F32, EMB }, WHOLE }, { 0 }, NULL },
    { "both names",
      { { "in_emb.weight", TP_F32, EMB }, { "out_emb.weight", TP_F32, EMB }, WHOLE },
      { 0 },
      NULL },
    { "prefix of another library",
      { { "module.in_emb.weight", TP_F32, EMB }, WHOLE },
      { .strip = "module." },
      NULL },
    { "parts of a training checkpoint",
      { { "in_emb.weight", TP_F32, EMB },
        WHOLE,
        { "optim.m.table", TP_F32, ONE },
        { "ema.table", TP_F32, ONE },
        { "state.cache", TP_F32, ONE } },
      { 0 },
      NULL },
    { "missing",
      { WHOLE },
      { 0 },
      " does not fit these parameters: 1 missing\n"
      "  missing: in_emb.weight f32[50,100]" },
    { "everything at once",
      { { "in_emb.weight", TP_F32, { 2, { 100, 50 } } },
        { "norm.bias", TP_F64, NORM },
        { "none", TP_F32, NONE },
        { "seen", TP_I32, ONE },
        { "head.bias", TP_F32, TWO },
        { "running_mean", TP_F32, TWO } },
      { 0 },
      " does not fit these parameters: 1 missing, 1 unknown, 1 of another shape, 2 of another "
      "dtype\n"
      "  unknown: head.bias F32[2]\n"
      "  shape: in_emb.weight is [100,50] in the file, [50,100] here\n"
      "  dtype: norm.bias is F64 in the file, f32 here (convert allows that)\n"
      "  missing: table f32[]\n"
      "  dtype: seen is I32 in the file, i64 here" },
    { "conversion wanted",
      { { "in_emb.weight", TP_BF16, EMB },
        { "norm.bias", TP_F64, NORM },
        { "table", TP_F32, { 0, { 0 } } },
        { "none", TP_F32, NONE },
        { "seen", TP_I64, ONE },
        { "running_mean", TP_F32, TWO } },
      { .convert = true },
      NULL },
    { "partial",
      { { "in_emb.weight", TP_F32, EMB },
        { "norm.bias", TP_F32, TWO },
        { "head.bias", TP_F32, TWO },
        { "none", TP_F32, NONE },
        { "running_mean", TP_F32, TWO },
        { "seen", TP_I64, ONE },
        { "table", TP_F32, { 0, { 0 } } } },
      { .partial = true },
      NULL },
    { "partial does not convert",
      { { "in_emb.weight", TP_BF16, EMB } },
      { .partial = true },
      " does not fit these parameters: 1 of another dtype\n"
      "  dtype: in_emb.weight is BF16 in the file, f32 here (convert allows that)" },
    { "nothing in common",
      { { "a", TP_F32, ONE } },
      { .partial = true },
      " has no tensor in common with these parameters; check names and prefix" },
};

/* Infinity is accepted: masks contain it. */
Test(params_io, nan_is_not_saved)
{
    const char *path = in_folder("nan.safetensors");
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    const float masked[2] = { -INFINITY, 1 }, broken[2] = { 1, NAN };
    float read[2];
    cr_assert(tp_param_set(P, w, TP_F32, masked, sizeof masked));
    cr_expect(tp_save(P, path), "%s", tp_params_why(P));
    cr_assert(tp_param_set(P, w, TP_F32, broken, sizeof broken));
    cr_expect_not(tp_save(P, path));
    cr_expect(strstr(tp_params_why(P), "element 1 of tensor 'w' is NaN; the former file is"), "%s",
              tp_params_why(P));
    tp_params_free(P);
    tp_file *F = tp_file_open(path);
    cr_expect(tp_file_read(F, tp_file_find(F, "w"), TP_F32, read), "%s", tp_file_why(F));
    cr_expect_eq(read[1], 1.0f);
    tp_file_close(F);
    tp_device_close(D);
}

Test(params_io, fitting_and_unfitting_files)
{
    static double before[VALUES], after[VALUES];
    tp_device *D = device_open(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_params *P = make(D, 3, TP_F32);
        const char *path = file_of(cases[i].file, NULL, NULL, 0.0f), *why = cases[i].why;
        values(P, before);
        const bool ok = tp_load(P, path, &cases[i].o);
        cr_expect_eq(ok, why == NULL, "%s: %s", cases[i].name, tp_params_why(P));
        cr_expect(tp_params_ok(P), "%s: a refused file fails nothing", cases[i].name);
        if (why)
            cr_expect_str_eq(tp_params_why(P) + (strlen(tp_params_why(P)) ? strlen(path) : 0), why,
                             "%s: %s", cases[i].name, tp_params_why(P));
        if (ok) values(P, after);
        for (int k = 0; ok && k < VALUES; k++) {
            const bool kept = cases[i].o.partial && k >= 5000 && k < 5003; /* its shape differs */
            cr_expect_eq(after[k], kept ? before[k] : 0.0, "%s: value %d", cases[i].name, k);
        }
        tp_params_free(P);
    }
    tp_device_close(D);
}

Test(params_io, a_failed_load_changes_nothing)
{
    static double before[VALUES], after[VALUES];
    const line file[] = { { "in_emb.weight", TP_F32, EMB }, { "norm.bias", TP_F32, NORM }, { 0 } };
    tp_device *D = device_open(NULL);
    tp_params *P = make(D, 3, TP_F32);
    values(P, before);
    tp_writer *W = tp_writer_new(in_folder("after"));
    cr_expect(tp_params_write(P, W, ""));
    cr_expect(!tp_load(P, file_of(file, NULL, NULL, 7.0f), NULL));
    cr_expect(tp_writer_commit(W), "what P holds is read now");
    tp_writer_free(W);
    tp_params *Q = make(D, 4, TP_F32);
    cr_expect(tp_load(Q, in_folder("after"), NULL), "%s", tp_params_why(Q));
    values(Q, after);
    cr_expect_arr_eq(before, after, sizeof before);
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

Test(params_io, tied_names_that_differ)
{
    char why[1200];
    static float zeros[5000], ones[5000] = { 1.0f };
    const char *path = in_folder("two");
    tp_writer *W = tp_writer_new(path);
    tp_device *D = device_open(NULL);
    tp_params *P = make(D, 3, TP_F32);
    cr_assert(tp_params_write(P, W, ""));
    tp_writer_add(W, "out_emb.weight", TP_F32, TP_SHAPE(50, 100), zeros, false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    cr_expect(!tp_load(P, path, NULL));
    snprintf(why, sizeof why,
             "%s does not fit these parameters: 1 ambiguous\n"
             "  ambiguous: in_emb.weight and out_emb.weight are one here, but differ in the file",
             path);
    cr_expect_str_eq(tp_params_why(P), why, "%s", tp_params_why(P));
    tp_writer_free(W);
    tp_params_free(P);

    /* the reverse: one tensor with an alias in the file, two parameters in P */
    const line one[] = { { "in_emb.weight", TP_F32, EMB }, { 0 } };
    path = file_of(one, "alias.out_emb.weight", "in_emb.weight", 2.0f);
    P = tp_params_new(D, NULL);
    tp_param(P, "in_emb.weight", TP_SHAPE(50, 100), normal, 0);
    const tp_tensor out = tp_param(P, "out_emb.weight", TP_SHAPE(50, 100), normal, 0);
    cr_expect(tp_load(P, path, NULL), "%s", tp_params_why(P));
    cr_expect(tp_param_get(P, out, TP_F32, ones, sizeof ones));
    cr_expect(ones[0] == 2.0f && ones[4999] == 2.0f);
    tp_params_free(P);
    tp_device_close(D);
}

Test(params_io, many_differences_are_counted)
{
    char name[32], expected[1200];
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "layers.%d.weight", i);
        tp_param(P, name, TP_SHAPE(2), normal, 0);
    }
    const line one[] = { { "layers.7.weight", TP_F32, TWO }, { 0 } };
    const char *path = file_of(one, NULL, NULL, 0.0f);
    cr_expect(!tp_load(P, path, NULL));
    const char *why = tp_params_why(P), *end = strrchr(why, '\n');
    snprintf(expected, sizeof expected, "%s does not fit these parameters: 299 missing\n", path);
    cr_expect_eq(strncmp(why, expected, strlen(expected)), 0, "%s", why);
    cr_assert(end);
    cr_expect_str_eq(end, "\n  and 289 more", "%s", why);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- prefixes and renaming ---- */

static const char *without_head(const char *name, void *env)
{
    ++*(int *)env;
    if (strncmp(name, "head.", 5) == 0) return NULL;
    return strcmp(name, "ln.bias") == 0 ? "norm.bias" : name;
}

Test(params_io, renaming_and_skipping)
{
    int calls = 0;
    static double v[VALUES];
    const line file[] = { { "m.in_emb.weight", TP_F32, EMB }, { "m.ln.bias", TP_F32, NORM },
                          { "m.head.bias", TP_F32, TWO },     { "table", TP_F32, { 0, { 0 } } },
                          { "none", TP_F32, NONE },           { "seen", TP_I64, ONE },
                          { "running_mean", TP_F32, TWO },    { 0 } };
    tp_device *D = device_open(NULL);
    tp_params *P = make(D, 3, TP_F32);
    const tp_load_opts o = { .strip = "m.", .rename = without_head, .env = &calls };
    cr_expect(tp_load(P, file_of(file, NULL, NULL, 0.0f), &o), "%s", tp_params_why(P));
    values(P, v);
    for (int k = 0; k < VALUES; k++) cr_expect_eq(v[k], 0.0, "value %d", k);
    cr_expect_eq(calls, 7);
    tp_params_free(P);
    tp_device_close(D);
}

Test(params_io, two_models_in_one_file)
{
    static double a[VALUES], b[VALUES];
    const char *path = in_folder("both");
    tp_device *D = device_open(NULL);
    tp_params *P = make(D, 1, TP_F32), *Q = make(D, 2, TP_F32), *R = make(D, 3, TP_F32);
    tp_writer *W = tp_writer_new(path);
    cr_expect(tp_params_write(P, W, "student."));
    cr_expect(tp_params_write(Q, W, "teacher."));
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(path);
    cr_expect_str_eq(tp_file_meta(F, "alias.teacher.out_emb.weight"), "teacher.in_emb.weight");
    cr_expect(tp_params_read(R, F, "teacher.", NULL), "%s", tp_params_why(R));
    values(Q, a);
    values(R, b);
    cr_expect_arr_eq(a, b, sizeof a);
    tp_file_close(F);
    tp_params_free(P);
    tp_params_free(Q);
    tp_params_free(R);
    tp_device_close(D);
}

/* ---- earlier failures ---- */

Test(params_io, failed_files_and_failed_parameters)
{
    char why[1200];
    tp_device *D = device_open(NULL);
    tp_params *P = make(D, 1, TP_F32);
    const char *gone = in_folder("gone");
    cr_expect(!tp_load(P, gone, NULL));
    snprintf(why, sizeof why,
             "%s: cannot be opened (No such file or directory); check the path and its permissions",
             gone);
    cr_expect_str_eq(tp_params_why(P), why);
    tp_params_raise(P, TP_E_VALUE, "%s", why);
    tp_writer *W = tp_writer_new(in_folder("bad"));
    cr_expect(!tp_params_write(P, W, "") && !tp_writer_commit(W), "a failed P is not written");
    cr_expect(strstr(tp_writer_why(W), why), "%s", tp_writer_why(W));
    cr_expect(!tp_save(P, in_folder("bad")));
    cr_expect_eq(files_in_folder(), 0);
    tp_writer_free(W);
    tp_params_free(P);

    P = make(D, 1, TP_F32);
    cr_expect(!tp_save(P, in_folder("no/folder")));
    cr_expect(strstr(tp_params_why(P), "create the folder first"), "%s", tp_params_why(P));
    tp_params_free(P);
    tp_device_close(D);
}

/* A configuration in a file can describe a model of any size. Memory is allocated only after the
 * file is known to contain it. */
Test(params_io, an_unfitting_load_takes_no_memory)
{
    tp_device *D = device_open(NULL);
    tp_params *P = make(D, 1, TP_F32), *Q = tp_params_new(D, NULL);
    cr_assert(tp_save(P, in_folder("small")), "%s", tp_params_why(P));
    tp_params_free(P);
    tp_device_trim(D);
    tp_device_reset_peak(D);
    tp_param(Q, "norm.bias", TP_SHAPE(1 << 24, 1 << 22), normal, 0);
    cr_expect(!tp_load(Q, in_folder("small"), &(tp_load_opts){ 0 }));
    cr_expect(
        strstr(tp_params_why(Q), "shape: norm.bias is [3] in the file, [16777216,4194304] here"),
        "%s", tp_params_why(Q));
    cr_expect_eq(tp_device_stats(D).peak_bytes, 0, "%zu bytes were taken",
                 tp_device_stats(D).peak_bytes);
    tp_params_free(Q);
    tp_device_close(D);
}

/* Loading raises the version: a graph that read old values cannot run backward. */
Test(params_io, loading_between_forward_and_backward)
{
    const char *path = in_folder("model");
    tp_device *D = device_open(NULL);
    tp_params *P = make(D, 1, TP_F32);
    tp_tape *T = tp_tape_new(D, NULL);
    cr_assert(tp_save(P, path));
    const tp_tensor y = tp_scale(T, tp_find(P, "norm.bias"), 2.0);
    cr_expect(tp_load(P, path, NULL));
    tp_backward(T, tp_mean(T, tp_square(T, y), TP_ALL));
    cr_expect_eq(tp_code_of(T), TP_E_STATE, "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- a device that fails during a read ---- */

static int reads_left;

/* Fails permanently, like a GPU, and leaves garbage in host memory. */
static void failing_read(tp_device *D, void *host, const void *from, size_t bytes)
{
    if (bytes) memcpy(host, from, bytes);
    if (reads_left-- > 0) return;
    if (bytes) memset(host, 0x55, bytes);
    tp__err(&D->err, TP_E_CUDA, "device cuda:0: illegal address");
}

static void failing_sync(tp_device *D)
{
    failing_read(D, NULL, NULL, 0);
}

static bool saves(tp_params *P)
{
    return tp_save(P, in_folder("model"));
}

static bool gets(tp_params *P)
{
    float v[3];
    return tp_param_get(P, tp_find(P, "norm.bias"), TP_F32, v, sizeof v);
}

static const struct {
    const char *name;
    bool (*act)(tp_params *P);
    int reads; /* successful reads; in_emb, norm.bias, table, seen, running_mean are five */
    bool ok;
} late_faults[] = {
    { "save, first read", saves, 0, false }, { "save, last read", saves, 4, false },
    { "save, after it", saves, 5, true },    { "get", gets, 0, false },
    { "get, after it", gets, 1, true },
};

Test(params_io, a_device_that_fails_while_it_is_read)
{
    static double before[VALUES], after[VALUES];
    for (size_t i = 0; i < sizeof late_faults / sizeof *late_faults; i++) {
        const char *name = late_faults[i].name;
        tp_device *D = tp_device_open("cpu", NULL), *other = tp_device_open("cpu", NULL);
        const tp_backend *cpu = D->be;
        tp_backend gpu = *cpu;
        tp_params *P = make(D, 1, TP_F32), *Q = make(other, 2, TP_F32);
        gpu.kind = TP_CUDA;
        gpu.download = failing_read;
        cr_assert(saves(P), "%s: %s", name, tp_params_why(P));
        values(P, before);

        D->be = &gpu;
        reads_left = late_faults[i].reads;
        cr_expect_eq(late_faults[i].act(P), late_faults[i].ok, "%s", name);
        cr_expect_eq(strstr(tp_params_why(P), "illegal address") != NULL, !late_faults[i].ok,
                     "%s: '%s'", name, tp_params_why(P));
        D->be = cpu;

        cr_expect(tp_load(Q, in_folder("model"), NULL), "%s: %s", name, tp_params_why(Q));
        values(Q, after);
        cr_expect_arr_eq(before, after, sizeof before, "%s: the file is what it was", name);
        cr_expect_eq(files_in_folder(), 1, "%s: no temporary file stays", name);
        tp_params_free(P);
        tp_params_free(Q);
        tp_device_close(D);
        tp_device_close(other);
    }
}

Test(params_io, a_device_that_fails_while_it_is_waited_for)
{
    tp_device *D = tp_device_open("cpu", NULL);
    const tp_backend *cpu = D->be;
    tp_backend gpu = *cpu;
    gpu.sync = failing_sync;
    D->be = &gpu;
    reads_left = 1;
    cr_expect(tp_device_sync(D), "%s", tp_device_why(D));
    cr_expect(!tp_device_sync(D));
    cr_expect_str_eq(tp_device_why(D), "device cuda:0: illegal address");
    D->be = cpu;
    tp_device_close(D);
}
