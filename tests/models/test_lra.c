/* test_lra.c - Long Range Arena encoders through the public interface: counts and costs of every
 * published model, names, refusals, padding, dropout, random features. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lra.h>

#include "support/device.h"
#include "support/rig.h"

static tp_lra_cfg preset(const char *task, const char *attention)
{
    char name[64], why[256];
    tp_model_cfg c;
    snprintf(name, sizeof name, "lra-%s-%s", task, attention);
    cr_assert(tp_model_find(name) && tp_model_preset(&c, name, why, sizeof why), "%s", name);
    cr_expect(c.model == &tp_model_lra && tp_model_check(&c, why, sizeof why), "%s", name);
    return *(const tp_lra_cfg *)&c.at;
}

/* Parameters and GFLOPs of the paper's models, by the rules of Tables 1 and 9. */
/* clang-format off */
static const struct {
    const char *attention;
    int64_t params[3];
    double flops[3];
} published[] = {
    { "softmax",      { 240522, 370562, 395138 },    { 1.2112, 4.5700, 9.1399 } },
    { "reformer",     { 240522, 370562, 395138 },    { 0.2717, 0.5770, 1.1540 } },
    { "linformer",    { 1289098, 2467714, 2492290 }, { 0.4059, 0.8119, 1.6238 } },
    { "performer",    { 240522, 370562, 395138 },    { 0.4080, 0.8161, 1.6321 } },
    { "nystrom",      { 240522, 370562, 395138 },    { 0.6094, 1.0153, 2.0306 } },
    { "nystrom-conv", { 240662, 370702, 395278 },    { 0.6185, 1.0336, 2.0673 } },
    { "ls",           { 249418, 379458, 404034 },    { 0.1988, 0.3975, 0.7950 } },
    { "dp",           { 242138, 404418, 462274 },    { 0.1463, 0.6828, 2.1713 } },
    { "ls-best",      { 241618, 371398, 461754 },    { 0.1600, 0.2863, 2.1650 } },
};
/* clang-format on */

Test(lra, published_counts)
{
    static const char *const tasks[] = { "listops", "text", "retrieval" };
    tp_device *D = device_open(NULL);
    tp_lra *m = malloc(sizeof *m);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        for (int t = 0; t < 3; t++) {
            const tp_lra_cfg c = preset(tasks[t], published[i].attention);
            tp_params *P = tp_params_new(D, &(tp_params_opts){ .blank = true });
            tp_model_lra.init(P, m, "", &c);
            cr_expect(tp_params_ok(P), "%s", tp_params_why(P));
            cr_expect_eq(tp_params_count(P), published[i].params[t], "%s %s: %lld",
                         published[i].attention, tasks[t], (long long)tp_params_count(P));
            const tp_model_cfg of = tp_model_cfg_of(&tp_model_lra, &c);
            const tp_cost f = tp_model_cost(&of, 0, 0);
            const double giga = (f.paper + 5.0 * f.norm) * 1e-9;
            cr_expect_lt(fabs(giga - published[i].flops[t]), 0.50001e-4, "%s %s: %.5f",
                         published[i].attention, tasks[t], giga);
            tp_params_free(P);
        }
    free(m);
    tp_device_close(D);
}

Test(lra, unknown_names)
{
    static const char *const names[] = { "lra",           "lra-listops",       "lra-listops-",
                                         "lra-text-fnet", "lra-image-ls-best", "lra-pathfinder-dp",
                                         "vil-listops-ls" };
    tp_model_cfg c;
    char why[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect(!tp_model_preset(&c, names[i], why, sizeof why) && strstr(why, names[i]), "%s",
                  names[i]);
}

/* ---- a small model ---- */

enum { B = 3, N = 24, WORDS = 21 };

static tp_lra_cfg small(tp_lra_kind kind)
{
    const bool ls = kind == TP_LRA_LS;
    return (tp_lra_cfg){ .attn = { .kind = kind,
                                   .dim = 16,
                                   .heads = 2,
                                   .length = N,
                                   .rank = 4,
                                   .window = ls ? 4 : 0,
                                   .chunk = 4,
                                   .buckets = { 4 } },
                         .layers = 2,
                         .hidden = 24,
                         .vocab = WORDS,
                         .classes = 3,
                         .pooling = ls ? TP_LRA_CLS_LAST : TP_LRA_MEAN };
}

static rig open_rig(tp_lra_cfg c)
{
    rig r = rig_open(sizeof(tp_lra), TP_F32, 1);
    tp_model_lra.init(r.P, r.m, "", &c);
    return r;
}

static const int64_t lengths[B] = { N, 13, 5 };

/* Logits; padding has the ids of `other`. */
static tp_tensor forward(rig *r, int64_t other)
{
    int64_t ids[B * N];
    uint8_t mask[B * N];
    for (int64_t i = 0; i < B * N; i++) {
        mask[i] = i % N < lengths[i / N];
        ids[i] = mask[i] ? 1 + i * 7 % (WORDS - 2) : other;
    }
    const tp_tensor x = tp_lra_encode(r->T, r->m, tp_from(r->T, TP_I64, TP_SHAPE(B, N), ids),
                                      tp_from(r->T, TP_U8, TP_SHAPE(B, N), mask));
    return tp_lra_classify(r->T, r->m, tp_lra_pool(r->T, r->m, x), TP_NONE);
}

static void logits_of(rig *r, int64_t other, float y[B * 3])
{
    tp_reset(r->T);
    const tp_tensor z = forward(r, other);
    cr_assert(tp_read(r->T, z, y, B * 3 * sizeof *y), "%s", tp_why(r->T));
}

/* Padding's contents change no result; fixed rotations keep Reformer's buckets. */
Test(lra, padding_is_not_read)
{
    for (int kind = TP_LRA_LS; kind <= TP_LRA_NONE; kind++) {
        float a[B * 3], b[B * 3];
        rig r = open_rig(small((tp_lra_kind)kind));
        uint64_t seed, offset;
        tp_random_state(r.T, &seed, &offset);
        logits_of(&r, 0, a);
        tp_set_random_state(r.T, seed, offset);
        logits_of(&r, 17, b);
        for (int i = 0; i < B * 3; i++)
            cr_expect(isfinite(a[i]) && fabsf(a[i] - b[i]) < 1e-6f, "kind %d: %g, %g", kind, a[i],
                      b[i]);
        rig_close(&r);
    }
}

/* In training, every dropout of the model acts; gradients reach all that has an effect. */
Test(lra, trains_with_dropout)
{
    for (int pooling = TP_LRA_MEAN; pooling <= TP_LRA_CLS_POOL; pooling++) {
        float a[B * 3], b[B * 3];
        tp_lra_cfg c = small(TP_LRA_LS);
        c.pooling = (tp_lra_pooling)pooling;
        c.dropout = c.attn.dropout = 0.3;
        rig r = open_rig(c);
        logits_of(&r, 0, a);
        tp_train(r.T, true);
        logits_of(&r, 0, b);
        cr_expect(memcmp(a, b, sizeof a) != 0, "pooling %d", pooling);
        tp_reset(r.T);
        const tp_tensor z = forward(&r, 0);
        tp_backward(r.T, tp_sum(r.T, tp_square(r.T, z), TP_ALL));
        cr_expect(tp_ok(r.T), "%s", tp_why(r.T));
        for (tp_param_info it = { 0 }; tp_next_param(r.P, &it);)
            cr_expect(it.has_grad || strstr(it.name, "dual_ln_s"), "%s", it.name);
        rig_close(&r);
    }
}

Test(lra, features_are_orthogonal)
{
    float w[4 * 8];
    rig r = open_rig(small(TP_LRA_PERFORMER));
    cr_assert(tp_model_lra.redraw(r.P, r.m, 1, 0));
    const tp_tensor x = tp_find(r.P, "model.transformer_1.mha.attn.attn_fn.projection_matrix");
    cr_assert(tp_param_get(r.P, x, TP_F32, w, sizeof w), "%s", tp_params_why(r.P));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) {
            float dot = 0;
            for (int c = 0; c < 8; c++) dot += w[i * 8 + c] * w[k * 8 + c];
            cr_expect_lt(fabsf(dot), 1e-5f);
        }
    rig_close(&r);
}

/* ---- refusals ---- */

#define WRONG(text, ...)                                                                           \
    do {                                                                                           \
        tp_lra_cfg c = small(TP_LRA_LS);                                                           \
        char why[256];                                                                             \
        __VA_ARGS__;                                                                               \
        cr_expect(!tp_model_lra.check(&c, why, sizeof why) && strstr(why, text), "%s: %s", text,   \
                  why);                                                                            \
    } while (0)

Test(lra, impossible_configurations)
{
    WRONG("attn_type has no value number 8", c.attn.kind = (tp_lra_kind)8);
    WRONG("16 does not divide into 3 heads", c.attn.heads = 3);
    WRONG("max_seq_len = 0 must be 1 to 1048576", c.attn.length = 0);
    WRONG("in [0,1), not 1", c.attn.dropout = 1.0);
    WRONG("in [0,1), not nan", c.dropout = NAN);
    WRONG("window_size = -1 must be 0 to 1048576", c.attn.window = -1);
    WRONG("neither odd nor 0", c.attn.conv = 4);
    WRONG("num_layers = 65 must be 1 to 64", c.layers = 65);
    WRONG("vocab_size = 0 must be 1 to 1048576", c.vocab = 0);
    WRONG("pooling_mode has no value number 4", c.pooling = (tp_lra_pooling)4);
    WRONG("every layer needs a CLS", c.attn.window = c.attn.rank = 0);
    WRONG("24 tokens are no multiple of the window 5", c.attn.window = 5);
    WRONG("follows from its pooling", c.attn.cls_from_seq = true);
    WRONG("takes an embedding as CLS", c.attn.kind = TP_LRA_SOFTMAX);
    WRONG("rank (mixtures, landmarks or features) is 0", c = small(TP_LRA_PERFORMER);
          c.attn.rank = 0);
    WRONG("multiple of 5 landmarks", c = small(TP_LRA_NYSTROM); c.attn.rank = 5);
    WRONG("one even factor or two", c = small(TP_LRA_REFORMER); c.attn.buckets[0] = 3);
    WRONG("2 heads of rank 1048576", c.attn.rank = TP_LRA_MAX_SIZE);
    WRONG("24 tokens are no multiple of a chunk of 5", c = small(TP_LRA_REFORMER);
          c.attn.chunk = 5);
    WRONG("a CLS in place of the last token", c = small(TP_LRA_REFORMER);
          c.pooling = TP_LRA_CLS_POOL; c.attn.length = 1);
    WRONG("no recomputation number 3", c.recompute = (tp_recompute)3);
    WRONG("num_hash = -1 must be 0 to 1024", c = small(TP_LRA_REFORMER); c.attn.rounds = -1);
}

static void expect_refused(tp_lra_cfg c, tp_shape s, const char *text)
{
    rig r = open_rig(c);
    const tp_tensor ids = tp_full(r.T, TP_I64, s, 1.0);
    const tp_tensor x = tp_lra_pool(r.T, r.m, tp_lra_encode(r.T, r.m, ids, TP_NONE));
    tp_lra_classify(r.T, r.m, x, TP_NONE);
    cr_expect(!tp_ok(r.T) && strstr(tp_why(r.T), text), "%s: %s", text, tp_why(r.T));
    rig_close(&r);
}

Test(lra, impossible_inputs)
{
    tp_lra_cfg pair = small(TP_LRA_LS);
    pair.pair = true;
    expect_refused(small(TP_LRA_LS), TP_SHAPE(2, N + 4), "longer than the 24");
    expect_refused(small(TP_LRA_LS), TP_SHAPE(2, 7), "7 tokens are no multiple of the window 4");
    expect_refused(small(TP_LRA_LS), TP_SHAPE(2), "[batch,tokens]");
    expect_refused(small(TP_LRA_LINFORMER), TP_SHAPE(2, 8), "8 tokens, but E is for 24");
    expect_refused(small(TP_LRA_NYSTROM), TP_SHAPE(2, 7), "no multiple of 4 landmarks");
    expect_refused(pair, TP_SHAPE(2, 8), "reads two documents");
}
