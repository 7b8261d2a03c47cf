/* test_params.c - the parameter store: names, ties, freezing, initial values, misuse. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

static const tp_init zero = { TP_INIT_ZERO, 0, 0 };

Test(params, names_ties_counts_and_iteration)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    const char *path = tp_push(P, "layers.3");
    cr_expect_str_eq(path, "layers.3");
    const char *inner = tp_push(P, "attn");
    cr_expect_str_eq(inner, "layers.3.attn");
    const tp_tensor w = tp_param(P, "weight", TP_SHAPE(3, 5), zero, 0);
    tp_pop(P);
    cr_expect_eq(tp_push(P, "attn"), inner, "paths are interned");
    tp_pop(P);
    tp_param(P, "bias", TP_SHAPE(7), zero, TP_FROZEN);
    tp_buffer(P, "seen", TP_I64, TP_SHAPE(1), &(int64_t){ 42 });
    tp_pop(P);
    tp_tie(P, "out.weight", w);
    cr_expect(tp_params_ok(P), "%s", tp_params_why(P));
    cr_expect_eq(tp_params_count(P), 22);
    const char *names[] = { "layers.3.attn.weight", "layers.3.bias", "layers.3.seen",
                            "out.weight" };
    int n = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it); n++) {
        cr_assert(n < 4);
        cr_expect_str_eq(it.name, names[n]);
        cr_expect_eq(it.alias_of != NULL, n == 3);
        cr_expect_eq(it.buffer, n == 2);
        cr_expect_eq(it.frozen, n == 1);
    }
    cr_expect_eq(n, 4);
    cr_expect(tp_find(P, "out.weight").node == w.node);
    cr_expect(!tp_given(tp_find(P, "nothing")));
    int64_t seen = 0;
    cr_expect(tp_param_get(P, tp_find(P, "layers.3.seen"), TP_I64, &seen, sizeof seen));
    cr_expect_eq(seen, 42);
    cr_expect_eq(tp_freeze(P, "layers.3.attn", true), 1);
    tp_params_free(P);
    tp_device_close(D);
}

Test(params, freezing_compares_whole_components)
{
    static const char *const names[] = { "layers.1.weight", "layers.1.bias", "layers.10.weight",
                                         "layers.1", "layers" };
    static const struct {
        const char *prefix;
        unsigned frozen; /* bit i: names[i] */
    } cases[] = { { "layers.1", 0xb },         { "layers.1.", 0x3 }, { "layers.1.bias", 0x2 },
                  { "layers.10.weight", 0x4 }, { "layers", 0x1f },   { "", 0x1f } };
    tp_device *D = device_open(NULL);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tp_params *P = tp_params_new(D, NULL);
        for (int i = 0; i < 5; i++) tp_param(P, names[i], TP_SHAPE(1), zero, 0);
        cr_expect_eq(tp_freeze(P, cases[k].prefix, true), __builtin_popcount(cases[k].frozen),
                     "'%s': %s", cases[k].prefix, tp_params_why(P));
        for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
            cr_expect_eq(it.frozen, cases[k].frozen >> (it.index - 1) & 1u, "'%s': %s",
                         cases[k].prefix, it.name);
        tp_params_free(P);
    }
    tp_device_close(D);
}

static void moments(const float *x, int n, double *mean, double *dev)
{
    double s = 0, q = 0;
    for (int i = 0; i < n; i++) s += (double)x[i];
    *mean = s / n;
    for (int i = 0; i < n; i++) q += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *dev = sqrt(q / n);
}

static tp_init halve(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)s;
    (void)env;
    return strcmp(name, "ruled") == 0 ? (tp_init){ TP_INIT_CONST, 0.5, 0 } : dflt;
}

Test(params, initial_values)
{
    enum { N = 20000 };
    static float a[N], b[N];
    double mean, dev;
    tp_device *D = device_open(NULL);
    for (int order = 0; order < 2; order++) {
        tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 7 });
        tp_params_init_rule(P, halve, NULL);
        if (order) tp_param(P, "other", TP_SHAPE(3), zero, 0);
        const tp_tensor n =
            tp_param(P, "n", TP_SHAPE(N), (tp_init){ TP_INIT_NORMAL, 0.02, 1.0 }, 0);
        const tp_tensor u = tp_param(P, "u", TP_SHAPE(N), (tp_init){ TP_INIT_UNIFORM, 2.0, 0 }, 0);
        const tp_tensor t = tp_param(P, "t", TP_SHAPE(N), (tp_init){ TP_INIT_TRUNC, 1.0, 0 }, 0);
        const tp_tensor r = tp_param(P, "ruled", TP_SHAPE(2), zero, 0);
        cr_assert(tp_param_get(P, n, TP_F32, order ? b : a, sizeof a), "%s", tp_params_why(P));
        if (order) {
            cr_expect_arr_eq(a, b, sizeof a, "values do not depend on the order of declaration");
            moments(b, N, &mean, &dev);
            cr_expect_float_eq(mean, 1.0, 1e-3);
            cr_expect_float_eq(dev, 0.02, 5e-4);
            cr_expect(tp_param_get(P, u, TP_F32, b, sizeof b));
            moments(b, N, &mean, &dev);
            cr_expect_float_eq(mean, 0.0, 0.03);
            cr_expect_float_eq(dev, 2.0 / sqrt(3.0), 0.02);
            cr_expect(tp_param_get(P, t, TP_F32, b, sizeof b));
            for (int i = 0; i < N; i++) cr_assert(fabsf(b[i]) <= 2.0f);
            cr_expect(tp_param_get(P, r, TP_F32, b, 2 * sizeof *b));
            cr_expect_eq(b[1], 0.5f, "the model's rule wins");
        }
        tp_params_free(P);
    }
    tp_device_close(D);
}

Test(params, blank_values)
{
    static const struct {
        const char *name;
        tp_init init;
        float expect;
    } cases[] = { { "normal", { TP_INIT_NORMAL, 1.0, 3.0 }, 0 },
                  { "uniform", { TP_INIT_UNIFORM, 1.0, 0 }, 0 },
                  { "truncated", { TP_INIT_TRUNC, 1.0, 3.0 }, 0 },
                  { "constant", { TP_INIT_CONST, 0.5, 0 }, 0.5f } };
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 7, .blank = true });
    tp_tensor w[4];
    for (int i = 0; i < 4; i++) w[i] = tp_param(P, cases[i].name, TP_SHAPE(3), cases[i].init, 0);
    for (int i = 0; i < 4; i++) {
        float x[3];
        cr_assert(tp_param_get(P, w[i], TP_F32, x, sizeof x), "%s", tp_params_why(P));
        for (int k = 0; k < 3; k++) cr_expect_eq(x[k], cases[i].expect, "%s", cases[i].name);
    }
    tp_params_free(P);
    tp_device_close(D);
}

static void twice(tp_params *P)
{
    tp_param(P, "w", TP_SHAPE(1), zero, 0);
    tp_param(P, "w", TP_SHAPE(1), zero, 0);
}
static void late(tp_params *P)
{
    float x;
    cr_expect(tp_param_get(P, tp_param(P, "w", TP_SHAPE(1), zero, 0), TP_F32, &x, sizeof x));
    tp_param(P, "v", TP_SHAPE(1), zero, 0);
}
static void pop_only(tp_params *P)
{
    tp_pop(P);
}
static void foreign(tp_params *P)
{
    tp_tie(P, "x", TP_NONE);
}
static void wrong_size(tp_params *P)
{
    float x[2];
    cr_expect_not(tp_param_get(P, tp_param(P, "w", TP_SHAPE(1), zero, 0), TP_F32, x, sizeof x));
}
static void no_gradient(tp_params *P)
{
    float x;
    cr_expect_not(
        tp_param_get_grad(P, tp_param(P, "w", TP_SHAPE(1), zero, 0), TP_F32, &x, sizeof x));
}
static void unpopped(tp_params *P)
{
    float x;
    tp_push(P, "block");
    cr_expect_not(tp_param_get(P, tp_param(P, "w", TP_SHAPE(1), zero, 0), TP_F32, &x, sizeof x));
}
static void freeze_nothing(tp_params *P)
{
    tp_param(P, "layers.10.bias", TP_SHAPE(1), zero, 0);
    tp_buffer(P, "layers.1.seen", TP_I64, TP_SHAPE(1), NULL);
    cr_expect_eq(tp_freeze(P, "layers.1", true), 0);
}
static void freeze_null(tp_params *P)
{
    tp_param(P, "w", TP_SHAPE(1), zero, 0);
    cr_expect_eq(tp_freeze(P, NULL, true), 0);
}
static void no_name(tp_params *P)
{
    tp_push(P, "block");
    tp_param(P, NULL, TP_SHAPE(1), zero, 0);
}
static void empty_name(tp_params *P)
{
    tp_param(P, "w", TP_SHAPE(1), zero, 0);
    tp_buffer(P, "", TP_F32, TP_SHAPE(1), NULL);
}
static void empty_tie(tp_params *P)
{
    tp_tie(P, "", tp_param(P, "w", TP_SHAPE(1), zero, 0));
}
static void push_null(tp_params *P)
{
    tp_push(P, "block");
    tp_push(P, NULL);
}
static void find_null(tp_params *P)
{
    tp_param(P, "w", TP_SHAPE(1), zero, 0);
    cr_expect(!tp_given(tp_find(P, NULL)));
}
static void deep_names(tp_params *P)
{
    for (int i = 0; i < 100; i++) tp_push(P, "deeper");
}

/* Pieces are zeroed and aligned for any type; one that is too large fails the set. */
Test(params, room_for_modules)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, NULL);
    for (size_t bytes = 0; bytes < 100; bytes++) {
        unsigned char *x = tp_params_alloc(P, bytes);
        cr_assert(x && (uintptr_t)x % _Alignof(max_align_t) == 0);
        for (size_t i = 0; i < bytes; i++) cr_assert_eq(x[i]++, 0);
    }
    cr_expect_null(tp_params_alloc(P, SIZE_MAX));
    cr_expect(strstr(tp_params_why(P), "memory"), "%s", tp_params_why(P));
    cr_expect_null(tp_params_alloc(P, 1), "P has failed");
    tp_params_free(P);
    tp_device_close(D);
}

Test(params, misuse)
{
    const struct {
        void (*run)(tp_params *P);
        const char *part;
    } cases[] = {
        { twice, "tp_param 'w': this name exists already" },
        { late, "tp_param 'v': the parameters are in use already" },
        { pop_only, "tp_pop: without a matching tp_push" },
        { foreign, "tp_tie: not a parameter of this set" },
        { wrong_size, "parameter 'w': 8 bytes given, it has 4 as f32" },
        { no_gradient, "parameter 'w' has no gradient" },
        { unpopped, "'block' was pushed and never popped" },
        { freeze_nothing, "tp_freeze: no parameter is named 'layers.1' or 'layers.1.*'" },
        { freeze_null, "tp_freeze: no parameter is named '(NULL)'" },
        { no_name, "tp_param: parameter 1, below 'block', has no name" },
        { empty_name, "tp_param: parameter 2, below '', has an empty name" },
        { empty_tie, "tp_param: parameter 2, below '', has an empty name" },
        { push_null, "tp_push: the name is NULL, below 'block'" },
        { find_null, "" },
        { deep_names, "tp_push: names nest too deep" },
    };
    tp_device *D = device_open(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_params *P = tp_params_new(D, NULL);
        cases[i].run(P);
        cr_expect(strstr(tp_params_why(P), cases[i].part), "%zu: %s", i, tp_params_why(P));
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* ---- tables ---- */

static double item(tp_tape *T, tp_tensor x)
{
    const double y = tp_item(T, tp_cast(T, x, TP_F32));
    cr_assert(tp_ok(T), "%s", tp_why(T));
    tp_reset(T);
    return y;
}

/* Row 1 of a table by lookup, and by a product that reads its bf16 copy. */
static double looked_up(tp_tape *T, tp_tensor table)
{
    return item(
        T, tp_sum(T, tp_embedding(T, table, tp_full(T, TP_I32, TP_SHAPE(1), 1.0), 1.0), TP_ALL));
}

static double multiplied(tp_tape *T, tp_tensor table)
{
    const tp_tensor one = tp_one_hot(T, tp_full(T, TP_I32, TP_SHAPE(1), 1.0), 1000, TP_F32);
    return item(T, tp_sum(T, tp_matmul(T, one, table), TP_ALL));
}

static void set_table(tp_params *P, tp_tensor table, double value)
{
    static double x[1000 * 64];
    for (int i = 0; i < 1000 * 64; i++) x[i] = value;
    cr_assert(tp_param_set(P, table, TP_F64, x, sizeof x), "%s", tp_params_why(P));
}

Test(params, a_table_has_a_bf16_copy_once_a_product_reads_it)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor table = tp_param(P, "table", TP_SHAPE(1000, 64), zero, TP_TABLE);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(64, 3), zero, 0);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_BF16 });
    const size_t copy = sizeof(uint16_t) * 1000 * 64;
    set_table(P, table, 0.25);
    cr_expect_eq(looked_up(T, table), 16.0);
    item(T, tp_sum(T, tp_matmul(T, tp_full(T, TP_F32, TP_SHAPE(1, 64), 1.0), w), TP_ALL));
    const size_t before = tp_device_stats(D).live_bytes;
    cr_expect_eq(looked_up(T, table), 16.0);
    cr_expect_eq(tp_device_stats(D).live_bytes, before, "no copy for a lookup");
    cr_expect_eq(multiplied(T, table), 16.0);
    cr_expect_geq(tp_device_stats(D).live_bytes, before + copy);
    set_table(P, table, 0.5);
    cr_expect_eq(multiplied(T, table), 32.0, "the copy is renewed");
    cr_expect_eq(looked_up(T, table), 32.0);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}
