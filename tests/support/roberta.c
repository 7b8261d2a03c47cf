/* roberta.c - makes small RoBERTa models and texts. */
#include "support/roberta.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { B = ROBERTA_TEXTS, WORDS = ROBERTA_WORDS, D = ROBERTA_DIM };

tp_roberta_cfg roberta_small(tp_roberta_kind kind, tp_roberta_head head)
{
    return (tp_roberta_cfg){ .kind = kind,
                             .head = head,
                             .layers = 2,
                             .heads = 2,
                             .dim = D,
                             .hidden = 24,
                             .vocab = WORDS,
                             .length = 32,
                             .classes = 3,
                             .window = kind == TP_ROBERTA_FULL ? 0 : 8,
                             .rank = kind == TP_ROBERTA_LS ? 3 : 0 };
}

rig *roberta_open(tp_roberta_cfg c, uint64_t seed)
{
    rig *r = malloc(sizeof *r);
    *r = rig_open(sizeof(tp_roberta), TP_F32, seed);
    tp_model_roberta.init(r->P, r->m, "", &c);
    cr_assert(tp_params_ok(r->P), "%s", tp_params_why(r->P));
    return r;
}

void roberta_close(rig *r)
{
    rig_close(r);
    free(r);
}

const tp_roberta *roberta_of(const rig *r)
{
    return r->m;
}

tp_tensor roberta_texts(tp_tape *T, int n, int padding)
{
    int32_t ids[B * 64];
    for (int i = 0; i < B * n; i++) ids[i] = i % n == 0 ? 0 : 4 + (i * 7 + i / n) % (WORDS - 5);
    for (int i = B * n - padding; i < B * n; i++) ids[i] = TP_ROBERTA_PAD;
    return tp_from(T, TP_I32, TP_SHAPE(B, n), ids);
}

void roberta_expect_near(const char *what, const float *a, const float *b, int n, double most)
{
    double off = 0.0;
    for (int i = 0; i < n; i++) off = fmax(off, fabs((double)a[i] - b[i]));
    cr_expect(off <= most, "%s: %g", what, off);
}

void roberta_values(rig *r, tp_tensor x, float *to, int n)
{
    cr_assert_eq(tp_numel(x), n, "%s", tp_why(r->T));
    cr_assert(tp_read(r->T, x, to, (size_t)n * sizeof *to), "%s", tp_why(r->T));
}
