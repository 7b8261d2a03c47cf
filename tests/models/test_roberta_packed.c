/* test_roberta_packed.c - RoBERTa, Longformer and long-short RoBERTa over packed documents: logits
 * and gradients equal those of padded and of single documents; dropout, recomputation, predictions
 * of chosen rows, refusals. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/roberta.h>

#include "support/device.h"
#include "support/rig.h"
#include "support/values.h"

enum { B = 5, N = 32, WORDS = 40, CLASSES = 3, D = 16, MOST = 20000 };

static const int64_t lengths[B] = { 13, 1, 32, 5, 8 };

/* ---- models ---- */

typedef enum globals { DEFAULT, NO_TOKEN, SOME, MANY } globals; /* MANY: more than a head's width */

typedef struct variant {
    const char *name;
    tp_roberta_kind kind;
    tp_roberta_head head;
    int64_t window, rank;
    globals global; /* Longformer */
} variant;

static const variant variants[] = {
    { "RoBERTa", TP_ROBERTA_FULL, TP_ROBERTA_CLS, 0, 0, DEFAULT },
    { "RoBERTa, MLM", TP_ROBERTA_FULL, TP_ROBERTA_MLM, 0, 0, DEFAULT },
    { "Longformer", TP_ROBERTA_LONGFORMER, TP_ROBERTA_CLS, 8, 0, DEFAULT },
    { "Longformer, MLM", TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM, 8, 0, DEFAULT },
    { "Longformer, no global token", TP_ROBERTA_LONGFORMER, TP_ROBERTA_CLS, 4, 0, NO_TOKEN },
    { "Longformer, some global tokens", TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM, 4, 0, SOME },
    { "long-short", TP_ROBERTA_LS, TP_ROBERTA_CLS, 4, 3, DEFAULT },
    { "long-short, MLM", TP_ROBERTA_LS, TP_ROBERTA_MLM, 4, 3, DEFAULT },
    { "long-short, no projections", TP_ROBERTA_LS, TP_ROBERTA_MLM, 8, 0, DEFAULT },
    { "long-short, no window", TP_ROBERTA_LS, TP_ROBERTA_CLS, 0, 3, DEFAULT },
    { "Longformer, many global tokens", TP_ROBERTA_LONGFORMER, TP_ROBERTA_MLM, 4, 0, MANY },
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static tp_roberta_cfg config(const variant *v)
{
    return (tp_roberta_cfg){ .kind = v->kind,
                             .head = v->head,
                             .layers = 2,
                             .heads = 2,
                             .dim = D,
                             .hidden = 24,
                             .vocab = WORDS,
                             .length = N,
                             .classes = CLASSES,
                             .window = v->window,
                             .rank = v->rank };
}

static rig open_rig_in(tp_roberta_cfg c, tp_dtype dt)
{
    rig r = rig_open(sizeof(tp_roberta), dt, 1);
    tp_model_roberta.init(r.P, r.m, "", &c);
    rig_scatter(&r);
    return r;
}

static rig open_rig(tp_roberta_cfg c)
{
    return open_rig_in(c, device_real());
}

/* ---- documents ---- */

static int64_t sum_of_lengths(void)
{
    int64_t n = 0;
    for (int b = 0; b < B; b++) n += lengths[b];
    return n;
}

static int64_t word(int64_t b, int64_t i)
{
    return i == 0 ? 0 : 4 + (b * 31 + i * 7) % (WORDS - 5);
}

/* Token i of document b: in SOME and MANY, a number of them that depends on the document is
 * global. */
static uint8_t code(const variant *v, int64_t b, int64_t i)
{
    if (v->global == NO_TOKEN) return 1;
    if (v->global == MANY) return i % 2 == 0 ? 2 : 1;
    return b != 3 && i % 9 == b ? 2 : 1;
}

/* Documents first .. first + n - 1 of n tokens each. */
static tp_roberta_in padded(rig *r, const variant *v, int64_t first, int64_t n, int64_t tokens)
{
    int32_t ids[B * 40];
    uint8_t codes[B * 40];
    for (int64_t i = 0; i < n * tokens; i++) {
        const int64_t b = first + i / tokens, at = i % tokens;
        ids[i] = at < lengths[b] ? (int32_t)word(b, at) : TP_ROBERTA_PAD;
        codes[i] = at < lengths[b] ? code(v, b, at) : 0;
    }
    tp_roberta_in in = { .ids = tp_from(r->T, TP_I32, TP_SHAPE(n, tokens), ids) };
    if (v->global != DEFAULT) in.global = tp_roberta_global_tokens(r->T, codes, n, tokens);
    return in;
}

static tp_roberta_packed packed(rig *r, const variant *v, int64_t longest)
{
    int32_t ids[B * N], position[B * N], offset[B + 1] = { 0 };
    uint8_t codes[B * N];
    int64_t at = 0;
    for (int64_t b = 0; b < B; b++) {
        for (int64_t i = 0; i < lengths[b]; i++, at++) {
            ids[at] = (int32_t)word(b, i);
            position[at] = (int32_t)i;
            codes[at] = code(v, b, i);
        }
        offset[b + 1] = (int32_t)at;
    }
    tp_roberta_packed a = { .ids = tp_from(r->T, TP_I32, TP_SHAPE(at), ids),
                            .position = tp_from(r->T, TP_I32, TP_SHAPE(at), position),
                            .of = { tp_from(r->T, TP_I32, TP_SHAPE(B + 1), offset), longest } };
    if (v->global != DEFAULT) a.global = tp_roberta_global_packed(r->T, codes, offset, B);
    return a;
}

/* ---- results: logits of each document, or of each token, in packed order ---- */

enum { VALUES = B * N * WORDS };

/* Backward from logits z, rows of that width from `at` on. */
static void run_back(rig *r, tp_tensor z, int64_t at, int64_t width, double *logits)
{
    rig_backward(r, z, at * width, logits + at * width);
}

/* Logits of documents first .. first + n - 1, without padding. */
static void run_padded(rig *r, const variant *v, int64_t first, int64_t n, int64_t tokens,
                       double *logits)
{
    const bool mlm = v->head == TP_ROBERTA_MLM;
    const tp_tensor x = tp_roberta_encode(r->T, r->m, padded(r, v, first, n, tokens));
    int32_t rows[B * N];
    int64_t m = 0, before = 0;
    for (int64_t b = 0; b < first; b++) before += lengths[b];
    for (int64_t b = 0; b < n; b++)
        for (int64_t i = 0; i < lengths[first + b]; i++) rows[m++] = (int32_t)(b * tokens + i);
    const tp_tensor real = tp_from(r->T, TP_I32, TP_SHAPE(m), rows);
    run_back(r, mlm ? tp_roberta_predict(r->T, r->m, x, real) : tp_roberta_classify(r->T, r->m, x),
             mlm ? before : first, mlm ? WORDS : CLASSES, logits);
}

static void run_packed(rig *r, const variant *v, int64_t longest, double *logits)
{
    const tp_tensor z = tp_roberta_forward_packed(r->T, r->m, packed(r, v, longest));
    run_back(r, tp_cast(r->T, z, device_real()), 0, v->head == TP_ROBERTA_MLM ? WORDS : CLASSES,
             logits);
}

static int64_t logits_of(const variant *v)
{
    return v->head == TP_ROBERTA_MLM ? sum_of_lengths() * WORDS : B * CLASSES;
}

enum { PACKED, PADDED, ALONE, WAYS };

typedef struct result {
    double *y, *g;
    int64_t n;
} result;

static result run_in(const variant *v, int way, tp_dtype dt)
{
    result z = { malloc(VALUES * sizeof *z.y), malloc(MOST * sizeof *z.g), 0 };
    rig r = open_rig_in(config(v), dt);
    if (way == PACKED) run_packed(&r, v, N, z.y);
    if (way == PADDED) run_padded(&r, v, 0, B, N, z.y);
    for (int64_t b = 0; way == ALONE && b < B; b++) {
        const int64_t half = v->kind == TP_ROBERTA_LONGFORMER ? v->window / 2 : 1;
        run_padded(&r, v, b, 1, (lengths[b] + half - 1) / half * half, z.y);
        tp_reset(r.T);
    }
    z.n = rig_gradients(&r, z.g, MOST);
    rig_close(&r);
    return z;
}

static result run(const variant *v, int way)
{
    return run_in(v, way, device_real());
}

static void free_result(result *z)
{
    free(z->y);
    free(z->g);
}

static void expect_same(const variant *v, const char *what, const double *a, const double *b,
                        int64_t n)
{
    const double error = values_error(a, b, n, 1.0);
    cr_expect_leq(error, device_limit(1e-12, 5e-4), "%s: %s differ by %g", v->name, what, error);
}

Test(roberta_packed, equals_padded_and_alone)
{
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        result a = run(v, PACKED), b = run(v, PADDED), c = run(v, ALONE);
        expect_same(v, "padded logits", a.y, b.y, logits_of(v));
        expect_same(v, "padded gradients", a.g, b.g, a.n);
        expect_same(v, "logits alone", a.y, c.y, logits_of(v));
        expect_same(v, "gradients alone", a.g, c.g, a.n);
        free_result(&a);
        free_result(&b);
        free_result(&c);
    }
}

Test(roberta_packed, bf16)
{
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        result a = run(v, PACKED), b = run_in(v, PACKED, TP_BF16);
        const double of_y = values_error(a.y, b.y, logits_of(v), 1.0);
        const double of_g = values_error(a.g, b.g, a.n, 1.0);
        cr_expect(of_y > 1e-5 && of_y < 0.04, "%s: logits differ by %g", v->name, of_y);
        cr_expect(of_g > 1e-5 && of_g < 0.04, "%s: gradients differ by %g", v->name, of_g);
        free_result(&a);
        free_result(&b);
    }
}

/* ---- training ---- */

/* Dropout reaches every model; a looser bound for the longest document draws other masks. */
Test(roberta_packed, trains_with_dropout)
{
    double *y[2] = { malloc(VALUES * sizeof(double)), malloc(VALUES * sizeof(double)) };
    for (int i = 0; i < VARIANTS; i++) {
        for (int place = 0; place < 2; place++) {
            tp_roberta_cfg c = config(&variants[i]);
            *(place ? &c.attention_dropout : &c.dropout) = 0.3;
            rig r = open_rig(c);
            for (int k = 0; k < 2; k++) {
                tp_train(r.T, k);
                run_packed(&r, &variants[i], N, y[k]);
                tp_reset(r.T);
            }
            cr_expect(memcmp(y[0], y[1], (size_t)logits_of(&variants[i]) * sizeof(double)) != 0,
                      "%s, %d", variants[i].name, place);
            rig_close(&r);
        }
    }
    free(y[0]);
    free(y[1]);
}

static result step(const variant *v, tp_recompute way)
{
    result z = { malloc(VALUES * sizeof *z.y), malloc(MOST * sizeof *z.g), 0 };
    tp_roberta_cfg c = config(v);
    c.recompute = way;
    c.dropout = c.attention_dropout = 0.2;
    rig r = open_rig(c);
    tp_train(r.T, true);
    run_packed(&r, v, N, z.y);
    z.n = rig_gradients(&r, z.g, MOST);
    rig_close(&r);
    return z;
}

Test(roberta_packed, recomputes_the_same_bits)
{
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        result first = step(v, TP_RECOMPUTE_NONE);
        for (int way = TP_RECOMPUTE_ATTENTION; way <= TP_RECOMPUTE_BLOCK; way++) {
            result again = step(v, (tp_recompute)way);
            const size_t bytes = (size_t)logits_of(v) * sizeof(double);
            const bool cuda = device_is_cuda(); /* sums in another order */
            if (cuda) {
                expect_same(v, "logits", first.y, again.y, logits_of(v));
                expect_same(v, "gradients", first.g, again.g, first.n);
            } else {
                cr_expect(memcmp(first.y, again.y, bytes) == 0, "%s, %d", v->name, way);
                cr_expect(memcmp(first.g, again.g, (size_t)first.n * sizeof(double)) == 0, "%s, %d",
                          v->name, way);
            }
            free_result(&again);
        }
        free_result(&first);
    }
}

/* ---- predictions ---- */

Test(roberta_packed, logits_of_chosen_rows)
{
    static const int32_t rows[] = { 0, 13, 14, 58 };
    static double all[VALUES], some[4 * WORDS];
    rig r = open_rig(config(&variants[1]));
    const tp_tensor x = tp_roberta_encode_packed(r.T, r.m, packed(&r, &variants[1], N));
    values_read(r.T, tp_roberta_predict(r.T, r.m, x, TP_NONE), all);
    const tp_tensor at = tp_from(r.T, TP_I32, TP_SHAPE(4), rows);
    values_read(r.T, tp_roberta_predict(r.T, r.m, x, at), some);
    cr_assert(tp_ok(r.T), "%s", tp_why(r.T));
    for (int i = 0; i < 4; i++)
        expect_same(&variants[1], "rows", all + rows[i] * WORDS, some + i * WORDS, WORDS);
    rig_close(&r);
}

/* ---- refusals ---- */

Test(roberta_packed, impossible_inputs)
{
    static const struct {
        const char *text;
        int what;
    } cases[] = { { "1 to 32 tokens in this model, not 33: cut them", 0 },
                  { "1 to 32 tokens in this model, not 0", 1 },
                  { "ids and positions must be vectors of one size", 2 },
                  { "the offsets must be [documents + 1]", 3 },
                  { "4 tokens are fewer than the 5 documents", 4 } };
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const variant *v = &variants[3 * kind];
            rig r = open_rig(config(v));
            tp_roberta_packed a = packed(&r, v,
                                         cases[i].what == 0   ? 33
                                         : cases[i].what != 1 ? N
                                                              : 0);
            if (cases[i].what == 2) a.position = tp_slice(r.T, a.position, 0, 1, 7);
            if (cases[i].what == 3) a.of.offset = TP_NONE;
            if (cases[i].what == 4) {
                a.ids = tp_slice(r.T, a.ids, 0, 0, 4);
                a.position = tp_slice(r.T, a.position, 0, 0, 4);
            }
            tp_roberta_encode_packed(r.T, r.m, a);
            cr_expect(!tp_ok(r.T) && strstr(tp_why(r.T), cases[i].text), "%s: %s", cases[i].text,
                      tp_why(r.T));
            rig_close(&r);
        }
}
