/* test_packed.c - packed documents: each op gives the values and gradients of padded documents,
 * whatever the padding holds, and of single documents; dropout, both kinds of offsets, threads,
 * wrong offsets. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/values.h"

enum { SEED = 11, INPUTS = 5, DOCUMENTS = 6 };

/* ---- problems ---- */

typedef struct documents {
    int64_t n, rows[DOCUMENTS];
} documents;

/* An input or the result: `rows` rows per document, or its own if 0. */
typedef struct operand {
    int64_t rows, width;
} operand;

/* For packed documents, and padded ones with a mask or TP_NONE. */
typedef struct op {
    const char *name;
    int inputs;
    operand in[INPUTS], out;
    tp_tensor (*packed)(tp_tape *T, const tp_tensor *x, tp_packed of);
    tp_tensor (*padded)(tp_tape *T, const tp_tensor *x, tp_tensor mask, int64_t longest);
    bool random;
} op;

static const tp_attn_cfg plain = { .heads = 2 },
                         grouped = { .heads = 4, .kv_heads = 2, .dropout = 0.3 },
                         causal = { .heads = 2, .causal = true, .alibi = true };

/* clang-format off */
#define ATTENTION(cfg)                                                                             \
    static tp_tensor packed_##cfg(tp_tape *T, const tp_tensor *x, tp_packed of)                    \
    {                                                                                              \
        return tp_packed_attention(T, x[0], x[1], x[2], of, of, cfg);                              \
    }                                                                                              \
    static tp_tensor padded_##cfg(tp_tape *T, const tp_tensor *x, tp_tensor mask, int64_t longest) \
    {                                                                                              \
        (void)longest;                                                                             \
        return tp_attention(T, x[0], x[1], x[2], mask, TP_NONE, cfg);                              \
    }
ATTENTION(plain)
ATTENTION(grouped)
ATTENTION(causal)
/* clang-format on */

static tp_window_attn_cfg window_cfg(int64_t width, int64_t w, double dropout)
{
    return (tp_window_attn_cfg){ .heads = 2,
                                 .height = 1,
                                 .width = width,
                                 .window = { w > 0, w },
                                 .halo = { 0, w > 1 ? w / 2 : w },
                                 .dropout = dropout };
}

static tp_window_in window_in(const tp_tensor *x, bool low)
{
    return (tp_window_in){ .q = x[0],
                           .k = x[1],
                           .v = x[2],
                           .low_k = low ? x[3] : TP_NONE,
                           .low_v = low ? x[4] : TP_NONE };
}

/* clang-format off */
#define WINDOW(name, w, low, dropout)                                                              \
    static tp_tensor packed_##name(tp_tape *T, const tp_tensor *x, tp_packed of)                   \
    {                                                                                              \
        tp_window_in in = window_in(x, low);                                                       \
        in.offset = of.offset;                                                                     \
        return tp_window_attention_2d(T, in, window_cfg(of.longest, w, dropout));                  \
    }                                                                                              \
    static tp_tensor padded_##name(tp_tape *T, const tp_tensor *x, tp_tensor mask, int64_t longest)\
    {                                                                                              \
        tp_window_in in = window_in(x, low);                                                       \
        in.mask = mask;                                                                            \
        return tp_window_attention_2d(T, in, window_cfg(longest, w, dropout));                     \
    }
WINDOW(window, 4, true, 0.0)
WINDOW(bare, 3, false, 0.0)
WINDOW(low, 0, true, 0.0)
WINDOW(dropped, 8, true, 0.3)
WINDOW(wide, 40, true, 0.0) /* wider than windows with a specialised loop */
/* clang-format on */

/* Hides tokens whose query begins with a negative number. Exact edges and few low keys, as in
 * Longformer. */
static tp_tensor shown(tp_tape *T, tp_tensor q)
{
    const int axis = tp_ndim(q) - 1;
    const tp_tensor first = tp_slice(T, tp_detach(T, q), axis, 0, 1);
    tp_shape s = tp_shape_of(q);
    s.ndim--;
    return tp_ge(T, tp_reshape(T, first, s), tp_number(0.0));
}

static tp_window_attn_cfg exact_cfg(int64_t width)
{
    return (tp_window_attn_cfg){ .heads = 2,
                                 .height = 1,
                                 .width = width,
                                 .window = { 1, 8 },
                                 .halo = { 0, 8 },
                                 .edge = TP_EDGE_EXACT,
                                 .dropout = 0.3 };
}

/* clang-format off */
#define HIDING(name, cfg)                                                                          \
    static tp_tensor packed_##name(tp_tape *T, const tp_tensor *x, tp_packed of)                   \
    {                                                                                              \
        tp_window_in in = window_in(x, true);                                                      \
        in.mask = shown(T, x[0]);                                                                  \
        in.offset = of.offset;                                                                     \
        return tp_window_attention_2d(T, in, cfg(of.longest));                                     \
    }                                                                                              \
    static tp_tensor padded_##name(tp_tape *T, const tp_tensor *x, tp_tensor mask, int64_t longest)\
    {                                                                                              \
        tp_window_in in = window_in(x, true);                                                      \
        in.mask = shown(T, x[0]);                                                                  \
        if (tp_given(mask)) in.mask = tp_logical_and(T, in.mask, mask);                            \
        return tp_window_attention_2d(T, in, cfg(longest));                                        \
    }
/* clang-format on */
#define LINE_CFG(width) window_cfg(width, 4, 0.0)
HIDING(hidden, exact_cfg)
HIDING(hidden_line, LINE_CFG)

static tp_tensor packed_projection(tp_tape *T, const tp_tensor *x, tp_packed of)
{
    const tp_kv y = tp_packed_project_kv(T, x[0], x[1], x[2], of, 2, 3);
    return tp_concat(T, 2, y.k, y.v);
}

static tp_tensor padded_projection(tp_tape *T, const tp_tensor *x, tp_tensor mask, int64_t longest)
{
    const tp_kv y = tp_chunk_project_kv(T, x[0], x[1], x[2], mask, 2, (int)longest, 3);
    return tp_concat(T, 2, y.k, y.v);
}

static tp_tensor packed_total(tp_tape *T, const tp_tensor *x, tp_packed of)
{
    return tp_packed_sum(T, x[0], of);
}

static tp_tensor padded_total(tp_tape *T, const tp_tensor *x, tp_tensor mask, int64_t longest)
{
    tp_tensor y = x[0];
    (void)longest;
    if (tp_given(mask)) y = tp_masked_fill(T, y, tp_logical_not(T, tp_unsqueeze(T, mask, -1)), 0.0);
    return tp_sum(T, y, 1);
}

/* clang-format off */
#define ROWS(width) { 0, width }
static const op ops[] = {
    { "attention", 3, { ROWS(8), ROWS(8), ROWS(8) }, ROWS(8), packed_plain, padded_plain, false },
    { "causal attention", 3, { ROWS(8), ROWS(8), ROWS(8) }, ROWS(8), packed_causal, padded_causal,
      false },
    { "grouped attention, dropout", 3, { ROWS(8), ROWS(4), ROWS(4) }, ROWS(8), packed_grouped,
      padded_grouped, true },
    { "windows", 5, { ROWS(8), ROWS(8), ROWS(8), { 3, 8 }, { 3, 8 } }, ROWS(8), packed_window,
      padded_window, false },
    { "windows without low keys", 3, { ROWS(8), ROWS(8), ROWS(8) }, ROWS(8), packed_bare,
      padded_bare, false },
    { "low keys", 5, { ROWS(8), ROWS(8), ROWS(8), { 3, 8 }, { 3, 8 } }, ROWS(8), packed_low,
      padded_low, false },
    { "windows, dropout", 5, { ROWS(8), ROWS(8), ROWS(8), { 3, 8 }, { 3, 8 } }, ROWS(8),
      packed_dropped, padded_dropped, true },
    { "wide windows", 5, { ROWS(8), ROWS(8), ROWS(8), { 3, 8 }, { 3, 8 } }, ROWS(8), packed_wide,
      padded_wide, false },
    { "hidden tokens", 5, { ROWS(8), ROWS(8), ROWS(8), { 3, 8 }, { 3, 8 } }, ROWS(8),
      packed_hidden_line, padded_hidden_line, false },
    { "hidden tokens, exact edges", 5, { ROWS(8), ROWS(8), ROWS(8), { 3, 8 }, { 3, 8 } }, ROWS(8),
      packed_hidden, padded_hidden, true },
    { "windows, heads of whole vectors", 5, { ROWS(64), ROWS(64), ROWS(64), { 3, 64 }, { 3, 64 } },
      ROWS(64), packed_window, padded_window, false },
    { "projection, heads of whole vectors", 3, { ROWS(64), ROWS(64), ROWS(6) }, { 3, 128 },
      packed_projection, padded_projection, false },
    { "projection", 3, { ROWS(8), ROWS(8), ROWS(6) }, { 3, 16 }, packed_projection,
      padded_projection, false },
    { "sum", 1, { ROWS(70) }, { 1, 70 }, packed_total, padded_total, false },
};
static const documents sets[] = {
    { 4, { 5, 1, 3, 9 } }, { 1, { 1 } }, { 1, { 37 } }, { 5, { 0, 4, 0, 7, 0 } },
    { 4, { 140, 1, 70, 270 } }, { 6, { 2, 17, 8, 4, 1, 3 } },
};
/* clang-format on */
enum { OPS = sizeof ops / sizeof *ops, SETS = sizeof sets / sizeof *sets };

static int64_t sum_of(const documents *d)
{
    int64_t n = 0;
    for (int64_t b = 0; b < d->n; b++) n += d->rows[b];
    return n;
}

static int64_t longest_of(const documents *d)
{
    int64_t n = 0;
    for (int64_t b = 0; b < d->n; b++) n = d->rows[b] > n ? d->rows[b] : n;
    return n;
}

/* ---- running them ---- */

/* Values and gradients in packed layout. */
typedef struct result {
    double *x[INPUTS], *dx[INPUTS], *y, *dy;
} result;

static int64_t numel(const documents *d, const operand *o)
{
    return (o->rows ? o->rows * d->n : sum_of(d)) * o->width;
}

static result begin_result(const op *p, const documents *d)
{
    result r = { .y = calloc((size_t)numel(d, &p->out) + 1, sizeof(double)),
                 .dy = calloc((size_t)numel(d, &p->out) + 1, sizeof(double)) };
    values_random(r.dy, numel(d, &p->out), 99);
    for (int i = 0; i < p->inputs; i++) {
        r.x[i] = calloc((size_t)numel(d, &p->in[i]) + 1, sizeof(double));
        r.dx[i] = calloc((size_t)numel(d, &p->in[i]) + 1, sizeof(double));
        values_random(r.x[i], numel(d, &p->in[i]), (uint64_t)i);
    }
    return r;
}

static void end_result(result *r)
{
    for (int i = 0; i < INPUTS; i++) {
        free(r->x[i]);
        free(r->dx[i]);
    }
    free(r->y);
    free(r->dy);
}

static tp_shape packed_shape(const documents *d, const operand *o)
{
    if (o->rows > 1) return TP_SHAPE(d->n, o->rows, o->width);
    return TP_SHAPE(o->rows ? d->n : sum_of(d), o->width);
}

static tp_tensor offsets(tp_tape *T, const documents *d, tp_dtype dt)
{
    double at[DOCUMENTS + 1] = { 0 };
    for (int64_t b = 0; b < d->n; b++) at[b + 1] = at[b] + (double)d->rows[b];
    return tp_cast(T, values_constant(T, TP_F32, TP_SHAPE(d->n + 1), at), dt);
}

static tp_tape *tape_of(tp_device *D)
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = device_real() });
    tp_train(T, true);
    return T;
}

static void run_packed(const op *p, const documents *d, tp_device *D, tp_dtype wide, result *r)
{
    tp_tape *T = tape_of(D);
    tp_tensor x[INPUTS];
    for (int i = 0; i < p->inputs; i++)
        x[i] = values_input(T, device_real(), packed_shape(d, &p->in[i]), r->x[i]);
    const tp_packed of = { offsets(T, d, wide), longest_of(d) };
    tp_set_random_state(T, SEED, 0);
    const tp_tensor y = p->packed(T, x, of);
    const tp_tensor dy = values_constant(T, device_real(), tp_shape_of(y), r->dy);
    tp_backward(T, tp_sum(T, tp_mul(T, y, dy), TP_ALL));
    values_read(T, y, r->y);
    for (int i = 0; i < p->inputs; i++) values_read(T, tp_grad(T, x[i]), r->dx[i]);
    cr_assert(tp_ok(T), "%s: %s", p->name, tp_why(T));
    tp_tape_free(T);
}

/* Copies documents first .. first + n - 1 between packed and padded rows. */
static void move(const documents *d, const operand *o, int64_t first, int64_t n, int64_t longest,
                 double *packed, double *padded, bool pad)
{
    int64_t at = 0;
    for (int64_t b = 0; b < d->n; b++) {
        const int64_t rows = o->rows ? o->rows : d->rows[b];
        const int64_t room = o->rows ? o->rows : longest;
        for (int64_t i = 0; b >= first && b < first + n && i < rows * o->width; i++) {
            double *far = padded + (b - first) * room * o->width + i;
            double *near = packed + at * o->width + i;
            *(pad ? far : near) = *(pad ? near : far);
        }
        at += rows;
    }
}

static double *padded_values(const documents *d, const operand *o, int64_t first, int64_t n,
                             int64_t longest, double *packed, tp_shape *s)
{
    *s = TP_SHAPE(n, o->rows ? o->rows : longest, o->width);
    const int64_t count = s->dim[0] * s->dim[1] * s->dim[2];
    double *x = malloc((size_t)(count + 1) * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = 1e3;
    move(d, o, first, n, longest, packed, x, true);
    if (o->rows == 1) *s = TP_SHAPE(n, o->width);
    return x;
}

static void run_padded(const op *p, const documents *d, int64_t first, int64_t n, int64_t longest,
                       tp_device *D, result *r)
{
    tp_tape *T = tape_of(D);
    tp_tensor x[INPUTS], mask = TP_NONE;
    tp_shape s;
    for (int i = 0; i < p->inputs; i++) {
        double *v = padded_values(d, &p->in[i], first, n, longest, r->x[i], &s);
        x[i] = values_input(T, device_real(), s, v);
        free(v);
    }
    if (n > 1) {
        uint8_t *seen = calloc((size_t)(n * longest) + 1, 1);
        for (int64_t b = 0; b < n; b++) memset(seen + b * longest, 1, (size_t)d->rows[b + first]);
        mask = tp_from(T, TP_U8, TP_SHAPE(n, longest), seen);
        free(seen);
    }
    tp_set_random_state(T, SEED, 0);
    const tp_tensor y = p->padded(T, x, mask, longest);
    double *v = padded_values(d, &p->out, first, n, longest, r->dy, &s);
    for (int64_t i = 0; i < tp_numel(y); i++) v[i] = v[i] == 1e3 ? 0 : v[i];
    const tp_tensor dy = values_constant(T, device_real(), tp_shape_of(y), v);
    tp_backward(T, tp_sum(T, tp_mul(T, y, dy), TP_ALL));
    values_read(T, y, v);
    move(d, &p->out, first, n, longest, r->y, v, false);
    free(v);
    for (int i = 0; i < p->inputs; i++) {
        v = malloc((size_t)(tp_numel(x[i]) + 1) * sizeof *v);
        values_read(T, tp_grad(T, x[i]), v);
        move(d, &p->in[i], first, n, longest, r->dx[i], v, false);
        free(v);
    }
    cr_assert(tp_ok(T), "%s: %s", p->name, tp_why(T));
    tp_tape_free(T);
}

static void expect_same(const op *p, int set, const char *what, const result *a, const result *b,
                        double limit)
{
    const documents *d = &sets[set];
    const double error = values_error(a->y, b->y, numel(d, &p->out), 1.0);
    cr_expect_leq(error, limit, "%s, set %d, %s: values differ by %g", p->name, set, what, error);
    for (int i = 0; i < p->inputs; i++) {
        const double e = values_error(a->dx[i], b->dx[i], numel(d, &p->in[i]), 1.0);
        cr_expect_leq(e, limit, "%s, set %d, %s: gradients %d differ by %g", p->name, set, what, i,
                      e);
    }
}

Test(packed, equals_padded_and_alone)
{
    tp_device *D = device_open(NULL);
    const double limit = device_limit(1e-12, 2e-5);
    for (int set = 0; set < SETS; set++)
        for (int o = 0; o < OPS; o++) {
            const documents *d = &sets[set];
            if (device_is_emulated() && sum_of(d) > 60 && o % 3) continue;
            result packed = begin_result(&ops[o], d), other = begin_result(&ops[o], d);
            run_packed(&ops[o], d, D, set % 2 ? TP_I64 : TP_I32, &packed);
            run_padded(&ops[o], d, 0, d->n, longest_of(d), D, &other);
            expect_same(&ops[o], set, "padded", &packed, &other, limit);
            for (int64_t b = 0; b < d->n && !ops[o].random; b++)
                if (d->rows[b] > 0) run_padded(&ops[o], d, b, 1, d->rows[b], D, &other);
            if (!ops[o].random) expect_same(&ops[o], set, "alone", &packed, &other, limit);
            end_result(&packed);
            end_result(&other);
        }
    tp_device_close(D);
}

Test(packed, same_bits_for_any_number_of_threads)
{
    device_cpu_only();
    for (int o = 0; o < OPS; o++)
        for (int set = 3; set < SETS; set++) {
            result one = begin_result(&ops[o], &sets[set]);
            for (int threads = 1; threads <= 4; threads++) {
                tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = threads });
                result r = begin_result(&ops[o], &sets[set]);
                run_packed(&ops[o], &sets[set], D, TP_I32, threads == 1 ? &one : &r);
                if (threads > 1) expect_same(&ops[o], set, "threads", &r, &one, 0.0);
                end_result(&r);
                tp_device_close(D);
            }
            end_result(&one);
        }
}

Test(packed, rows_are_put_before_documents)
{
    const documents d = { 4, { 2, 0, 1, 3 } };
    const double want[] = { 10, 0, 1, 11, 12, 2, 13, 3, 4, 5 }, at[] = { 0, 3, 4, 6, 10 };
    const double want_first[] = { 0, 3, 4, 6 }, want_x[] = { 1, 2, 5, 7, 8, 9 };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    double y[10], first[4], x[6];
    for (int dt = TP_I32; dt <= TP_I64; dt++) {
        tp_packed longer;
        for (int i = 0; i < 6; i++) x[i] = i;
        for (int i = 0; i < 4; i++) first[i] = 10 + i;
        const tp_packed of = { offsets(T, &d, (tp_dtype)dt), 3 };
        const tp_tensor a = values_input(T, TP_F32, TP_SHAPE(4), first);
        const tp_tensor b = values_input(T, TP_F32, TP_SHAPE(6), x);
        const tp_tensor c = tp_packed_prepend(T, a, b, of, &longer);
        values_read(T, c, y);
        cr_expect(values_error(y, want, 10, 1) == 0);
        values_read(T, longer.offset, y);
        cr_expect(values_error(y, at, 5, 1) == 0 && longer.longest == 4);
        for (int i = 0; i < 10; i++) y[i] = i;
        const tp_tensor dy = values_constant(T, TP_F32, TP_SHAPE(10), y);
        tp_backward(T, tp_sum(T, tp_mul(T, c, dy), TP_ALL));
        values_read(T, tp_grad(T, a), first);
        values_read(T, tp_grad(T, b), x);
        cr_expect(values_error(first, want_first, 4, 1) == 0);
        cr_expect(values_error(x, want_x, 6, 1) == 0);
        const tp_tensor ids = tp_packed_prepend(T, tp_full(T, TP_I32, TP_SHAPE(4), 9.0),
                                                tp_arange(T, TP_I32, 0, 6, 1), of, NULL);
        values_read(T, ids, y);
        cr_expect(y[0] == 9 && y[1] == 0 && y[3] == 9 && y[9] == 5);
        cr_expect(tp_ok(T), "%s", tp_why(T));
    }
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- wrong offsets ---- */

/* Applies each op to five rows divided by these offsets. */
static void divide(int o, const int32_t *at, int64_t n, int64_t longest, tp_tape *T)
{
    const documents d = { n, { 0 } };
    tp_tensor x[INPUTS];
    for (int i = 0; i < ops[o].inputs; i++) {
        tp_shape s = packed_shape(&d, &ops[o].in[i]);
        if (ops[o].in[i].rows == 0) s.dim[0] = 5;
        double v[3 * 3 * 70];
        values_random(v, 3 * 3 * 70, (uint64_t)i);
        x[i] = values_input(T, TP_F32, s, v);
    }
    const tp_packed of = { tp_from(T, TP_I32, TP_SHAPE(n + 1), at), longest };
    const tp_tensor y = ops[o].packed(T, x, of);
    if (tp_ok(T)) tp_backward(T, tp_sum(T, y, TP_ALL));
}

Test(packed, offsets_that_are_wrong)
{
    static const struct {
        int32_t at[4];
        const char *text;
    } wrong[] = {
        { { 0, 3, 2, 5 }, "offset 2 is 2 after 3" }, /* documents that overlap */
        { { 1, 2, 3, 5 }, "offset 0 is 1 after 0" },
        { { 0, 1, 2, 4 }, "offset 3 is 4 after 2" },
        { { 0, 1, 2, 6 }, "offset 3 is 6 after 2" },
        { { 0, 0, 0, 5 }, "by at most 4" },
        { { 0, -7, 900, 5 }, "offset 1 is -7 after 0, but offsets must rise from 0 to 5" },
    };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (int o = 0; o < OPS; o++)
        for (size_t i = device_is_cuda(); i < sizeof wrong / sizeof *wrong; i++) {
            tp_reset(T);
            divide(o, wrong[i].at, 3, 4, T);
            if (device_is_cuda()) /* the emulation checks all accesses */
                cr_expect(tp_ok(T), "%s: %s", ops[o].name, tp_why(T));
            else
                cr_expect(!tp_ok(T) && strstr(tp_why(T), wrong[i].text), "%s: %s", ops[o].name,
                          tp_why(T));
            tp_clear(T);
        }
    tp_tape_free(T);
    tp_device_close(D);
}

Test(packed, shapes_that_are_wrong)
{
    static const int32_t at[] = { 0, 2, 4, 5 };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (int o = 0; o < OPS; o++) {
        divide(o, at, 3, 1, T);
        cr_expect(!tp_ok(T) && strstr(tp_why(T), "cannot fill 5 rows"), "%s", tp_why(T));
        tp_clear(T);
        divide(o, at, 3, -1, T);
        cr_expect(!tp_ok(T), "%s", ops[o].name);
        tp_clear(T);
    }
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(5, 4), 1.0);
    const tp_packed of = { tp_full(T, TP_F32, TP_SHAPE(2), 1.0), 5 };
    tp_packed_sum(T, x, of);
    cr_expect(!tp_ok(T) && strstr(tp_why(T), "of.offset must be i32 or i64"), "%s", tp_why(T));
    tp_clear(T);
    tp_packed_prepend(T, x, x, (tp_packed){ tp_from(T, TP_I32, TP_SHAPE(4), at), 5 }, NULL);
    cr_expect(!tp_ok(T) && strstr(tp_why(T), "first has 5 rows"), "%s", tp_why(T));
    tp_clear(T);
    const tp_window_in in = {
        .q = x, .k = x, .v = x, .offset = tp_from(T, TP_I32, TP_SHAPE(4), at)
    };
    tp_window_attention_2d(
        T, in, (tp_window_attn_cfg){ .heads = 1, .height = 5, .width = 1, .window = { 1, 1 } });
    cr_expect(!tp_ok(T) && strstr(tp_why(T), "maps of height 1"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}
