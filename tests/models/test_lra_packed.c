/* test_lra_packed.c - Long Range Arena encoders over packed documents: logits and gradients equal
 * those of padded and of single documents; batches of the loader; refusals. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lra.h>

#include "support/device.h"
#include "support/rig.h"
#include "support/values.h"

enum { B = 5, N = 24, WORDS = 21, CLASSES = 3, MOST = 20000 };

static const int64_t lengths[B] = { 13, 1, 20, 5, 8 };

/* ---- models ---- */

typedef struct variant {
    const char *name;
    tp_lra_kind kind;
    tp_lra_pooling pooling;
    int64_t rank, window;
    bool cls_values, tied, pair;
} variant;

static const variant variants[] = {
    { "CLS at last", TP_LRA_LS, TP_LRA_CLS_LAST, 4, 4, false, false, true },
    { "CLS from the first layer", TP_LRA_LS, TP_LRA_CLS_TOKEN, 4, 4, false, true, false },
    { "a token as CLS", TP_LRA_LS, TP_LRA_CLS_POOL, 4, 4, false, false, false },
    { "mean", TP_LRA_LS, TP_LRA_MEAN, 4, 4, false, false, false },
    { "values of the CLS", TP_LRA_LS, TP_LRA_CLS_LAST, 3, 2, true, false, false },
    { "no window", TP_LRA_LS, TP_LRA_CLS_LAST, 4, 0, false, false, false },
    { "no projections", TP_LRA_LS, TP_LRA_MEAN, 0, 8, false, false, false },
    { "tokens see themselves and the CLS", TP_LRA_LS, TP_LRA_CLS_TOKEN, 0, 0, false, false, false },
    { "softmax, mean", TP_LRA_SOFTMAX, TP_LRA_MEAN, 0, 0, false, false, false },
    { "softmax, a token as CLS", TP_LRA_SOFTMAX, TP_LRA_CLS_POOL, 0, 0, false, true, true },
    { "no attention, mean", TP_LRA_NONE, TP_LRA_MEAN, 0, 0, false, false, false },
    { "no attention, a token as CLS", TP_LRA_NONE, TP_LRA_CLS_POOL, 0, 0, false, false, false },
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static tp_lra_cfg config(const variant *v)
{
    return (tp_lra_cfg){ .attn = { .kind = v->kind,
                                   .dim = 16,
                                   .heads = 2,
                                   .length = N,
                                   .rank = v->rank,
                                   .window = v->window,
                                   .cls_values = v->cls_values,
                                   .raw_kv = v->cls_values },
                         .layers = 2,
                         .hidden = 24,
                         .vocab = WORDS,
                         .classes = CLASSES,
                         .pooling = v->pooling,
                         .tied = v->tied,
                         .pair = v->pair };
}

static rig open_rig(tp_lra_cfg c)
{
    rig r = rig_open(sizeof(tp_lra), device_real(), 1);
    tp_model_lra.init(r.P, r.m, "", &c);
    rig_scatter(&r);
    return r;
}

/* ---- documents ---- */

static int64_t word(int64_t b, int64_t i)
{
    return 1 + (b * 31 + i * 7) % (WORDS - 2);
}

/* Documents first .. first + n - 1 of n tokens each, padded with a word other than 0. */
static tp_tensor padded(tp_tape *T, const tp_lra *m, int64_t first, int64_t n, int64_t tokens)
{
    int64_t ids[B * N];
    uint8_t mask[B * N];
    for (int64_t i = 0; i < n * tokens; i++) {
        const int64_t b = first + i / tokens;
        mask[i] = i % tokens < lengths[b];
        ids[i] = mask[i] ? word(b, i % tokens) : 7;
    }
    return tp_lra_pool(T, m,
                       tp_lra_encode(T, m, tp_from(T, TP_I64, TP_SHAPE(n, tokens), ids),
                                     tp_from(T, TP_U8, TP_SHAPE(n, tokens), mask)));
}

static tp_lra_packed packed(tp_tape *T, int64_t longest)
{
    int32_t ids[B * N], position[B * N], offset[B + 1] = { 0 };
    int64_t at = 0;
    for (int64_t b = 0; b < B; b++) {
        for (int64_t i = 0; i < lengths[b]; i++, at++) {
            ids[at] = (int32_t)word(b, i);
            position[at] = (int32_t)i;
        }
        offset[b + 1] = (int32_t)at;
    }
    return (tp_lra_packed){ tp_from(T, TP_I32, TP_SHAPE(at), ids),
                            tp_from(T, TP_I32, TP_SHAPE(at), position),
                            { tp_from(T, TP_I32, TP_SHAPE(B + 1), offset), longest },
                            N };
}

/* Backward from logits of documents from `first`. */
static void run_back(rig *r, tp_tensor z, int64_t first, double *logits)
{
    rig_backward(r, z, first * CLASSES, logits + first * CLASSES);
}

static tp_tensor packed_logits(rig *r, tp_lra_packed a)
{
    const tp_lra *m = r->m;
    const tp_tensor x = tp_lra_encode_packed(r->T, m, a);
    return tp_lra_classify(r->T, m, x, m->cfg.pair ? x : TP_NONE);
}

static tp_tensor padded_logits(rig *r, int64_t first, int64_t n, int64_t tokens)
{
    const tp_lra *m = r->m;
    const tp_tensor a = padded(r->T, m, first, n, tokens);
    return tp_lra_classify(r->T, m, a, m->cfg.pair ? a : TP_NONE);
}

static void expect_same(const variant *v, const char *what, const double *a, const double *b,
                        int64_t n)
{
    const double error = values_error(a, b, n, 1.0);
    cr_expect_leq(error, device_limit(1e-12, 2e-4), "%s: %s differ by %g", v->name, what, error);
}

/* Packed, padded, and each document in a separate pass, with added gradients. */
enum { PACKED, PADDED, ALONE, WAYS };

static int64_t run(const variant *v, int way, double *logits, double *g)
{
    rig r = open_rig(config(v));
    const int64_t unit = v->window ? v->window : 1;
    if (way == PACKED) {
        run_back(&r, packed_logits(&r, packed(r.T, 22)), 0, logits);
    } else if (way == PADDED) {
        run_back(&r, padded_logits(&r, 0, B, N), 0, logits);
    }
    for (int64_t b = 0; way == ALONE && b < B; b++) {
        const bool mean = v->pooling == TP_LRA_MEAN; /* depends on the padded length */
        const int64_t tokens = mean ? N : (lengths[b] + unit - 1) / unit * unit;
        run_back(&r, padded_logits(&r, b, 1, tokens), b, logits);
        tp_reset(r.T);
    }
    const int64_t n = rig_gradients(&r, g, MOST);
    rig_close(&r);
    return n;
}

static void check(const variant *v)
{
    static const char *const names[WAYS][2] = { { NULL, NULL },
                                                { "padded logits", "padded gradients" },
                                                { "logits alone", "gradients alone" } };
    double y[WAYS][B * CLASSES];
    double *g[WAYS];
    int64_t n = 0;
    for (int way = 0; way < WAYS; way++) {
        g[way] = malloc(MOST * sizeof *g[way]);
        n = run(v, way, y[way], g[way]);
    }
    for (int way = PADDED; way < WAYS; way++) {
        expect_same(v, names[way][0], y[PACKED], y[way], B * CLASSES);
        expect_same(v, names[way][1], g[PACKED], g[way], n);
    }
    for (int way = 0; way < WAYS; way++) free(g[way]);
}

Test(lra_packed, equals_padded_and_alone)
{
    for (int i = 0; i < VARIANTS; i++) check(&variants[i]);
}

/* Dropout acts everywhere and keeps results finite. */
Test(lra_packed, trains_with_dropout)
{
    for (int i = 0; i < VARIANTS; i++) {
        tp_lra_cfg c = config(&variants[i]);
        c.dropout = c.attn.dropout = 0.3;
        c.pair = false;
        rig r = open_rig(c);
        double y[2][B * CLASSES];
        for (int k = 0; k < 2; k++) {
            tp_train(r.T, k);
            run_back(&r, packed_logits(&r, packed(r.T, 20)), 0, y[k]);
            tp_reset(r.T);
        }
        cr_expect(memcmp(y[0], y[1], sizeof y[0]) != 0, "%s", variants[i].name);
        rig_close(&r);
    }
}

/* Logits and gradients of a training step. longest: the model's, for recomputation. */
static int64_t step(const variant *v, tp_recompute way, double *logits, double *g)
{
    tp_lra_cfg c = config(v);
    c.recompute = way;
    c.dropout = c.attn.dropout = 0.2;
    c.pair = false;
    rig r = open_rig(c);
    tp_train(r.T, true);
    run_back(&r, packed_logits(&r, packed(r.T, N)), 0, logits);
    const int64_t n = rig_gradients(&r, g, MOST);
    rig_close(&r);
    return n;
}

Test(lra_packed, recomputes_the_same_bits)
{
    double y[2][B * CLASSES];
    double *g[2] = { malloc(MOST * sizeof(double)), malloc(MOST * sizeof(double)) };
    for (int i = 0; i < VARIANTS; i++) {
        const int64_t n = step(&variants[i], TP_RECOMPUTE_NONE, y[0], g[0]);
        for (int way = TP_RECOMPUTE_ATTENTION; way <= TP_RECOMPUTE_BLOCK; way++) {
            cr_expect_eq(step(&variants[i], (tp_recompute)way, y[1], g[1]), n);
            cr_expect(memcmp(y[0], y[1], sizeof y[0]) == 0, "%s, %d", variants[i].name, way);
            cr_expect(memcmp(g[0], g[1], (size_t)n * sizeof(double)) == 0, "%s, %d",
                      variants[i].name, way);
        }
    }
    free(g[0]);
    free(g[1]);
}

/* ---- refusals ---- */

static void expect_refused(tp_lra_cfg c, int64_t longest, int64_t length, const char *text)
{
    rig r = open_rig(c);
    tp_lra_packed a = packed(r.T, longest);
    a.length = length;
    tp_lra_encode_packed(r.T, r.m, a);
    cr_expect(!tp_ok(r.T) && strstr(tp_why(r.T), text), "%s: %s", text, tp_why(r.T));
    rig_close(&r);
}

Test(lra_packed, impossible_inputs)
{
    tp_lra_cfg c = config(&variants[0]);
    expect_refused(c, 22, 21, "a padded length of 21 is less than the longest document, 22");
    expect_refused(c, 22, 25, "1 to 24 tokens in this model, not 25");
    expect_refused(c, 3, 20, "cannot fill 47 rows");
    c.attn.kind = TP_LRA_LINEAR;
    c.pooling = TP_LRA_MEAN;
    expect_refused(c, 22, 24, "only softmax attention, none, and long-short attention");
    c = config(&variants[0]);
    c.attn.conv = 3;
    expect_refused(c, 22, 24, "take packed documents: pad them");
    c.attn.conv = 0;
    c.attn.fixed = true;
    expect_refused(c, 22, 24, "take packed documents: pad them");
}
