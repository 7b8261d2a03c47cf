/* test_lra_model.c - batches of documents in Long Range Arena encoders through the table of models:
 * masks made from ids, pairs, shorter batches, recomputation, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lra.h>

#include "support/device.h"

enum { B = 2, N = 32, WORDS = 300, CLASSES = 3, LOGITS = B * CLASSES };

static tp_model_cfg small(tp_lra_kind kind)
{
    const bool ls = kind == TP_LRA_LS;
    tp_model_cfg c = { .model = &tp_model_lra };
    *(tp_lra_cfg *)&c.at = (tp_lra_cfg){ .attn = { .kind = kind,
                                                   .dim = 16,
                                                   .heads = 2,
                                                   .length = N,
                                                   .rank = 4,
                                                   .window = ls ? 4 : 0,
                                                   .chunk = 8 },
                                         .layers = 3,
                                         .hidden = 24,
                                         .vocab = WORDS,
                                         .classes = CLASSES,
                                         .pooling = ls ? TP_LRA_CLS_LAST : TP_LRA_MEAN };
    return c;
}

static tp_lra_cfg *lra_of(tp_model_cfg *c)
{
    return (tp_lra_cfg *)&c->at;
}

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_net *net;
} rig;

static rig open_rig(const tp_model_cfg *c)
{
    rig r = { .D = device_open(NULL) };
    r.P = tp_params_new(r.D, &(tp_params_opts){ .seed = 1 });
    r.T = tp_tape_new(r.D, &(tp_tape_opts){ .seed = 2 });
    r.net = tp_net_new(r.P, "", c);
    return r;
}

static void close_rig(rig *r)
{
    tp_tape_free(r->T);
    tp_net_free(r->net);
    tp_params_free(r->P);
    tp_device_close(r->D);
}

/* Document i, of n tokens with padding. Its ids include 255 and 256, which a byte would turn into
 * 255 and 0. */
static int32_t id_of(int i, int t)
{
    const int lengths[] = { N, 13, 5, 21 };
    return t < lengths[i] ? 1 + (i * 37 + t * 51) % (WORDS - 1) : 0;
}

static void fill(int32_t *ids, int documents, int n)
{
    for (int i = 0; i < documents * n; i++) ids[i] = id_of(i / n, i % n);
}

static void read_logits(rig *r, tp_tensor z, float y[LOGITS])
{
    cr_assert(tp_read(r->T, z, y, LOGITS * sizeof *y), "%s", tp_why(r->T));
}

static void expect_equal(const char *what, const float *a, const float *b, float most)
{
    for (int i = 0; i < LOGITS; i++)
        cr_expect(isfinite(a[i]) && fabsf(a[i] - b[i]) <= most, "%s: %g, %g", what, a[i], b[i]);
}

/* ---- masks and pairs ---- */

/* Document i of each sample, of `each` documents, with a mask made here. */
static tp_tensor masked(tp_tape *T, const tp_lra *m, const int32_t *ids, int each, int i)
{
    int32_t own[B * N];
    uint8_t mask[B * N];
    for (int k = 0; k < B * N; k++) {
        own[k] = ids[(k / N * each + i) * N + k % N];
        mask[k] = own[k] != 0;
    }
    return tp_lra_pool(T, m,
                       tp_lra_encode(T, m, tp_from(T, TP_I32, TP_SHAPE(B, N), own),
                                     tp_from(T, TP_U8, TP_SHAPE(B, N), mask)));
}

static void compare_masks(tp_lra_kind kind, bool pair)
{
    const int each = pair ? 2 : 1;
    int32_t ids[2 * B * N];
    float a[LOGITS], b[LOGITS];
    tp_model_cfg c = small(kind);
    lra_of(&c)->pair = pair;
    rig r = open_rig(&c);
    uint64_t seed, offset;
    fill(ids, each * B, N);
    tp_random_state(r.T, &seed, &offset);
    const tp_tensor x = tp_from(r.T, TP_I32, tp_model_input_shape(&c, B, 0), ids);
    read_logits(&r, tp_net_forward(r.T, r.net, NULL, x), a);
    tp_reset(r.T);
    tp_set_random_state(r.T, seed, offset);
    const tp_lra *m = tp_net_module(r.net);
    const tp_tensor one = masked(r.T, m, ids, each, 0);
    const tp_tensor two = pair ? masked(r.T, m, ids, each, 1) : TP_NONE;
    read_logits(&r, tp_lra_classify(r.T, m, one, two), b);
    expect_equal(pair ? "pairs" : "documents", a, b, 0.0f);
    close_rig(&r);
}

Test(lra_model, masks_come_from_ids)
{
    for (int kind = TP_LRA_LS; kind <= TP_LRA_NONE; kind++) {
        compare_masks((tp_lra_kind)kind, false);
        compare_masks((tp_lra_kind)kind, true);
    }
}

/* Shorter batches cost less and give the same results if a CLS token is pooled. */
Test(lra_model, padding_beyond_the_longest_document)
{
    enum { SHORT = 16 };
    int32_t ids[B * N];
    float a[LOGITS], b[LOGITS];
    const tp_model_cfg c = small(TP_LRA_LS);
    rig r = open_rig(&c);
    fill(ids, 2 * B, N / 2);
    for (int n = N; n >= SHORT; n -= N - SHORT) {
        for (int i = 0; i < B * n; i++) ids[i] = id_of(1 + i / n, i % n);
        tp_reset(r.T);
        const tp_tensor x = tp_from(r.T, TP_I32, TP_SHAPE(B, n), ids);
        read_logits(&r, tp_net_forward(r.T, r.net, NULL, x), n == N ? a : b);
    }
    expect_equal("padded", a, b, 1e-6f);
    close_rig(&r);
}

/* ---- recomputation ---- */

/* The loss and the gradients of a step with dropout, in *grad. */
static size_t step(tp_model_cfg c, tp_recompute way, float **grad)
{
    int32_t ids[B * N], labels[B] = { 2, 0 };
    tp_common_cfg o = tp_model_get(&c);
    o.recompute = way;
    tp_model_set(&c, &o);
    lra_of(&c)->dropout = lra_of(&c)->attn.dropout = 0.3;
    rig r = open_rig(&c);
    size_t n = 0;
    *grad = malloc(((size_t)tp_params_count(r.P) + 1) * sizeof **grad);
    fill(ids, B, N);
    tp_train(r.T, true);
    const tp_tensor x = tp_from(r.T, TP_I32, TP_SHAPE(B, N), ids);
    const tp_tensor y = tp_from(r.T, TP_I32, TP_SHAPE(B), labels);
    const tp_tensor loss = tp_cross_entropy(r.T, tp_net_forward(r.T, r.net, NULL, x), y, TP_MEAN);
    tp_backward(r.T, loss);
    (*grad)[n++] = (float)tp_item(r.T, loss);
    cr_assert(tp_ok(r.T), "%s", tp_why(r.T));
    for (tp_param_info it = { 0 }; tp_next_param(r.P, &it);) {
        const size_t size = (size_t)tp_numel(it.tensor);
        if (it.buffer || it.alias_of || !it.has_grad) continue;
        cr_assert(tp_param_get_grad(r.P, it.tensor, TP_F32, *grad + n, size * sizeof **grad));
        n += size;
    }
    close_rig(&r);
    return n;
}

static void compare_recomputation(tp_model_cfg c)
{
    float *want, *got;
    const size_t n = step(c, TP_RECOMPUTE_NONE, &want);
    for (int way = TP_RECOMPUTE_ATTENTION; way <= TP_RECOMPUTE_BLOCK; way++) {
        const size_t m = step(c, (tp_recompute)way, &got);
        cr_expect(n == m && memcmp(want, got, n * sizeof *want) == 0, "kind %d, pooling %d, way %d",
                  (int)lra_of(&c)->attn.kind, (int)lra_of(&c)->pooling, way);
        free(got);
    }
    free(want);
}

/* The same bits with dropout and Reformer's random rotations. */
Test(lra_model, recomputation)
{
    for (int kind = TP_LRA_LS; kind <= TP_LRA_NONE; kind++)
        compare_recomputation(small((tp_lra_kind)kind));
    for (int pooling = TP_LRA_MEAN; pooling <= TP_LRA_CLS_POOL; pooling++) {
        tp_model_cfg c = small(TP_LRA_LS);
        lra_of(&c)->pooling = (tp_lra_pooling)pooling;
        lra_of(&c)->tied = pooling == TP_LRA_CLS_LAST;
        compare_recomputation(c);
    }
}

/* ---- other ---- */

/* Drawn features replace the initial ones and depend only on the seed and a number. */
Test(lra_model, features_are_drawn)
{
    float a[4 * 8], b[4 * 8], c[4 * 8];
    const tp_model_cfg cfg = small(TP_LRA_PERFORMER);
    rig r = open_rig(&cfg);
    float *const to[] = { a, b, c };
    const tp_tensor w = tp_find(r.P, "model.transformer_2.mha.attn.attn_fn.projection_matrix");
    for (int i = 0; i < 3; i++) {
        cr_assert(tp_model_lra.redraw(r.P, tp_net_module(r.net), 1, i == 2));
        cr_assert(tp_param_get(r.P, w, TP_F32, to[i], sizeof a), "%s", tp_params_why(r.P));
    }
    cr_expect(memcmp(a, b, sizeof a) == 0 && memcmp(a, c, sizeof a) != 0);
    close_rig(&r);
}

static void expect_refused(const tp_model_cfg *c, tp_dtype dt, tp_shape s, const char *text)
{
    rig r = open_rig(c);
    tp_net_forward(r.T, r.net, NULL, tp_full(r.T, dt, s, 1.0));
    cr_expect(!tp_ok(r.T) && strstr(tp_why(r.T), text), "%s: %s", text, tp_why(r.T));
    close_rig(&r);
}

Test(lra_model, other_inputs_are_refused)
{
    tp_model_cfg one = small(TP_LRA_LS), two = one;
    lra_of(&two)->pair = true;
    expect_refused(&one, TP_I32, TP_SHAPE(B, 2, N), "ids must be [batch,tokens]");
    expect_refused(&two, TP_I32, TP_SHAPE(B, N), "[batch,2,tokens]: the model reads pairs");
    expect_refused(&two, TP_I32, TP_SHAPE(B, 3, N), "[batch,2,tokens]");
    expect_refused(&one, TP_I32, TP_SHAPE(B, N + 4), "longer than the 32");
    expect_refused(&two, TP_I32, TP_SHAPE(B, 2, N + 4), "longer than the 32");
    expect_refused(&one, TP_F32, TP_SHAPE(B, N), "ids must be i32 or i64");
    lra_of(&one)->layers = 0;
    expect_refused(&one, TP_I32, TP_SHAPE(B, N), "LRA encoder: num_layers = 0 must be 1 to 64");
}
