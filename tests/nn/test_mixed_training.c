/* test_mixed_training.c - programs written for f32 train on a bf16 tape without a cast: a
 * transformer, a U-Net, an LSTM, a convolution net and a GAN end with the losses of f32. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <tapegrad/nn/transformer.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/sanitized.h"
#include "tensor/rng.h"

enum { B = 8, N = 8, S = 8, V = 7, DIM = 16 };

/* Uniform in [0,1): number i of step u. */
static double number(int u, int64_t i)
{
    return (double)tp__uniform(tp__word(11, (uint64_t)u, (uint64_t)i));
}

/* ---- a transformer repeats the token before the last ---- */

typedef struct transformer {
    tp_embedding_m words;
    tp_tensor places;
    tp_encoder_layer_m layer[2];
    tp_layernorm_m norm;
    tp_linear_m out;
} transformer;

static void transformer_init(tp_params *P, void *model)
{
    transformer *m = model;
    tp_encoder_layer_cfg cfg = { .dim = DIM,
                                 .hidden = 32,
                                 .heads = 2,
                                 .act = TP_ACT_GELU,
                                 .dropout = 0.02,
                                 .attention.attn.causal = true };
    tp_embedding_init(P, &m->words, "words", V, DIM);
    m->places = tp_param(P, "places", TP_SHAPE(16, DIM), (tp_init){ TP_INIT_NORMAL, 0.5, 0 }, 0);
    tp_encoder_layer_init(P, &m->layer[0], "layer0", cfg);
    cfg.norm_after = true;
    tp_encoder_layer_init(P, &m->layer[1], "layer1", cfg);
    tp_layernorm_init(P, &m->norm, "norm", DIM, 1e-5);
    tp_linear_init(P, &m->out, "out", DIM, V, true);
}

static tp_tensor transformer_loss(tp_tape *T, const void *model, int u)
{
    const transformer *m = model;
    int32_t ids[B * N], next[B * N];
    for (int i = 0; i < B * N; i++) {
        ids[i] = (int32_t)(number(u, i) * V);
        next[i] = i % N == 0 ? -1 : ids[i - 1];
    }
    tp_tensor x = tp_embedding_forward(T, &m->words, tp_from(T, TP_I32, TP_SHAPE(B, N), ids), 1);
    x = tp_add(T, x, tp_slice(T, m->places, 0, 0, N));
    for (int i = 0; i < 2; i++) x = tp_encoder_layer_forward(T, &m->layer[i], x, TP_NONE);
    x = tp_linear_forward(T, &m->out, tp_layernorm_forward(T, &m->norm, x));
    return tp_cross_entropy(T, x, tp_from(T, TP_I32, TP_SHAPE(B, N), next), TP_MEAN);
}

/* ---- a U-Net finds the bright square of a noisy image ---- */

typedef struct unet {
    tp_conv2d_m down, low, out;
    tp_batchnorm_m norm;
    tp_conv_transpose2d_m up;
} unet;

static void unet_init(tp_params *P, void *model)
{
    unet *m = model;
    const tp_conv_cfg same = { .pad = { 1, 1 } };
    tp_conv2d_init(P, &m->down, "down", 1, 8, 3, false, same);
    tp_batchnorm_init(P, &m->norm, "norm", 8, 1e-5);
    tp_conv2d_init(P, &m->low, "low", 8, 16, 3, true, same);
    tp_conv_transpose2d_init(P, &m->up, "up", 16, 8, 2, true,
                             (tp_conv_transpose_cfg){ .stride = { 2, 2 } });
    tp_conv2d_init(P, &m->out, "out", 8 + 8 + 1, 1, 1, true, (tp_conv_cfg){ .groups = 1 });
}

static tp_tensor unet_loss(tp_tape *T, const void *model, int u)
{
    const unet *m = model;
    const tp_shape size = TP_SHAPE(B, S, S, 1);
    float image[B * S * S], mask[B * S * S];
    for (int i = 0; i < B * S * S; i++) {
        const int b = i / (S * S), r = i / S % S, c = i % S;
        const int top = (int)(number(u, b) * 4), left = (int)(number(u, b + B) * 4);
        mask[i] = r >= top && r < top + 4 && c >= left && c < left + 4;
        image[i] = mask[i] + (float)number(u, i + 100) - 0.5f;
    }
    const tp_tensor x = tp_from(T, TP_F32, size, image), y = tp_from(T, TP_F32, size, mask);
    const tp_tensor d =
        tp_relu(T, tp_batchnorm_forward(T, &m->norm, tp_conv2d_forward(T, &m->down, x)));
    tp_tensor z = tp_max_pool2d(T, d, (tp_pool_cfg){ .kernel = { 2, 2 } });
    z = tp_relu(T, tp_conv2d_forward(T, &m->low, z));
    z = tp_conv_transpose2d_forward(T, &m->up, z);
    z = tp_conv2d_forward(T, &m->out, tp_concat(T, -1, z, d, x)); /* bf16, bf16, f32 */
    return tp_add(T, tp_bce_logits(T, z, y, TP_MEAN),
                  tp_dice(T, tp_sigmoid(T, z), y, 3, 1.0, TP_MEAN));
}

/* ---- an LSTM predicts waves, from the state of the part before ---- */

typedef struct lstm {
    tp_lstm_m rnn;
    tp_linear_m out;
} lstm;

static void lstm_init(tp_params *P, void *model)
{
    lstm *m = model;
    tp_lstm_init(P, &m->rnn, "rnn", (tp_rnn_cfg){ .in = 1, .hidden = DIM, .layers = 2 });
    tp_linear_init(P, &m->out, "out", DIM, 1, true);
}

static tp_tensor lstm_loss(tp_tape *T, const void *model, int u)
{
    const lstm *m = model;
    const tp_shape states = TP_SHAPE(2, B, DIM);
    float wave[B][2 * N + 1], x[2][B * N], y[2][B * N];
    for (int b = 0; b < B; b++)
        for (int t = 0; t <= 2 * N; t++)
            wave[b][t] = sinf(6.0f * (float)number(u, b) + 0.7f * (float)t);
    for (int i = 0; i < 2 * B * N; i++) {
        const int part = i / (B * N), b = i / N % B, t = part * N + i % N;
        x[part][i % (B * N)] = wave[b][t];
        y[part][i % (B * N)] = wave[b][t + 1];
    }
    tp_lstm_state state = { tp_full(T, TP_F32, states, 0), tp_full(T, TP_F32, states, 0) };
    tp_tensor loss = TP_NONE;
    for (int part = 0; part < 2; part++) {
        tp_tensor z = tp_from(T, TP_F32, TP_SHAPE(B, N, 1), x[part]);
        z = tp_linear_forward(T, &m->out, tp_lstm_forward(T, &m->rnn, z, &state, TP_NONE));
        const tp_tensor t = tp_from(T, TP_F32, TP_SHAPE(B, N, 1), y[part]);
        const tp_tensor e = tp_mse(T, z, t, TP_MEAN);
        loss = part == 0 ? e : tp_add(T, loss, e);
    }
    return loss;
}

/* ---- a convolution net tells apart waves of four directions ---- */

typedef struct convnet {
    tp_conv2d_m in, mid;
    tp_groupnorm_m norm;
    tp_tensor gain; /* of the residual branch */
    tp_linear_m out;
} convnet;

static void convnet_init(tp_params *P, void *model)
{
    convnet *m = model;
    const tp_conv_cfg same = { .pad = { 1, 1 } };
    tp_conv2d_init(P, &m->in, "in", 1, DIM, 3, true, same);
    tp_groupnorm_init(P, &m->norm, "norm", DIM, 4, 1e-5);
    tp_conv2d_init(P, &m->mid, "mid", DIM, DIM, 3, true, same);
    m->gain = tp_param(P, "gain", TP_SHAPE(DIM), (tp_init){ TP_INIT_CONST, 1, 0 }, 0);
    tp_linear_init(P, &m->out, "out", DIM, 4, true);
}

static tp_tensor convnet_loss(tp_tape *T, const void *model, int u)
{
    const convnet *m = model;
    float image[B * S * S], target[B * 4] = { 0 };
    for (int i = 0; i < B * S * S; i++) {
        static const float rows[] = { 0, 1, 1, 1 }, columns[] = { 1, 0, 1, -1 };
        const int b = i / (S * S), k = (int)(number(u, b) * 4);
        const float at = rows[k] * (float)(i / S % S) + columns[k] * (float)(i % S);
        image[i] = sinf(1.5f * at + 6.0f * (float)number(u, b + B));
        target[b * 4 + k] = 1;
    }
    tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(B, S, S, 1), image);
    x = tp_sub(T, x, tp_mean(T, x, TP_ALL));
    x = tp_conv2d_forward(T, &m->in, x);
    tp_tensor y = tp_gelu(T, tp_groupnorm_forward(T, &m->norm, x));
    y = tp_mul(T, m->gain, tp_conv2d_forward(T, &m->mid, y)); /* a parameter first */
    x = tp_mean(T, tp_square(T, tp_add(T, x, y)), TP_AXES(1, 2));
    const tp_tensor z = tp_linear_forward(T, &m->out, x);
    return tp_cross_entropy_smooth(T, z, tp_from(T, TP_F32, TP_SHAPE(B, 4), target), 0.02, TP_MEAN);
}

/* ---- training ---- */

/* A kind of program; its model fits in room. */
typedef struct program {
    const char *name;
    void (*init)(tp_params *P, void *model);
    tp_tensor (*loss)(tp_tape *T, const void *model, int u);
    int steps;
    double rate, most; /* the loss must end below `most` */
} program;

enum { ROOM = 8192, LAST = 10 }; /* bytes of a model; steps whose mean loss counts */

/* The emulated GPU takes fewer steps, sanitized only those whose losses are compared. */
static int steps_of(int steps)
{
    return !device_is_emulated() ? steps : sanitized() ? LAST : steps / 4;
}

static double train(tp_device *D, const program *p, tp_dtype compute, uint64_t seed)
{
    static union {
        char bytes[ROOM];
        max_align_t aligned;
    } model;
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = seed });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 1, .compute = compute, .train = true });
    p->init(P, &model);
    tp_optim *O = tp_adamw_new(P, NULL);
    const int steps = steps_of(p->steps);
    double sum = 0.0;
    for (int u = 0; u < steps && tp_ok(T); u++) {
        tp_reset(T);
        const tp_tensor loss = p->loss(T, &model, u);
        cr_expect_eq(tp_dtype_of(loss), TP_F32, "%s", p->name);
        tp_backward(T, loss);
        tp_step(O, p->rate);
        if (u >= steps - LAST) sum += tp_item(T, loss) / LAST;
    }
    cr_expect(tp_ok(T), "%s: %s", p->name, tp_why(T));
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return sum;
}

/* Trains in f32 and in bf16: both must learn, and end closer to each other than two seeds do, or
 * nearly so. */
static void compare(const program *p)
{
    tp_device *D = device_open(NULL);
    const double f32 = train(D, p, TP_F32, 1), other = train(D, p, TP_F32, 2);
    const double bf16 = train(D, p, TP_BF16, 1);
    const double noise = fabs(f32 - other);
    printf("%-12s f32 %.4f, another seed %.4f, bf16 %.4f\n", p->name, f32, other, bf16);
    if (!device_is_emulated()) cr_expect_lt(bf16, p->most, "%s: %g", p->name, bf16);
    cr_expect_lt(fabs(bf16 - f32), noise + 0.1 * f32 + 0.01, "%s: %g in f32, %g in bf16", p->name,
                 f32, bf16);
    tp_device_close(D);
}

Test(mixed_training, transformer, .timeout = 300)
{
    compare(&(program){ "transformer", transformer_init, transformer_loss, 200, 5e-3, 0.2 });
}

Test(mixed_training, unet, .timeout = 300)
{
    compare(&(program){ "U-Net", unet_init, unet_loss, 120, 1e-2, 0.6 });
}

Test(mixed_training, lstm, .timeout = 300)
{
    compare(&(program){ "LSTM", lstm_init, lstm_loss, 200, 1e-2, 0.1 });
}

Test(mixed_training, convnet, .timeout = 300)
{
    compare(&(program){ "convnet", convnet_init, convnet_loss, 120, 1e-2, 0.5 });
}

/* ---- a GAN draws bars ---- */

typedef struct generator {
    tp_linear_m in;
    tp_batchnorm_m norm;
    tp_conv_transpose2d_m up;
} generator;

typedef struct critic {
    tp_conv2d_m conv;
    tp_linear_m out;
} critic;

static void gan_init(tp_params *P, generator *g, tp_params *Q, critic *c)
{
    tp_linear_init(P, &g->in, "in", 4, 4 * 4 * 8, true);
    tp_batchnorm_init(P, &g->norm, "norm", 8, 1e-5);
    tp_conv_transpose2d_init(P, &g->up, "up", 8, 1, 4, true,
                             (tp_conv_transpose_cfg){ .stride = { 2, 2 }, .pad = { 1, 1 } });
    tp_conv2d_init(Q, &c->conv, "conv", 1, 8, 4, true,
                   (tp_conv_cfg){ .stride = { 2, 2 }, .pad = { 1, 1 } });
    tp_linear_init(Q, &c->out, "out", 4 * 4 * 8, 1, true);
}

/* [B,S,S,1] in [-1,1], from noise of the tape. */
static tp_tensor draw(tp_tape *T, const generator *g)
{
    tp_tensor x = tp_linear_forward(T, &g->in, tp_randn(T, TP_F32, TP_SHAPE(B, 4)));
    x = tp_relu(T, tp_batchnorm_forward(T, &g->norm, tp_reshape(T, x, TP_SHAPE(B, 4, 4, 8))));
    return tp_tanh(T, tp_conv_transpose2d_forward(T, &g->up, x));
}

static tp_tensor judge(tp_tape *T, const critic *c, tp_tensor x, double label)
{
    const tp_tensor y = tp_leaky_relu(T, tp_conv2d_forward(T, &c->conv, x), 0.2);
    const tp_tensor z = tp_linear_forward(T, &c->out, tp_reshape(T, y, TP_SHAPE(B, 4 * 4 * 8)));
    return tp_bce_logits(T, z, tp_full(T, TP_F32, TP_SHAPE(B, 1), label), TP_MEAN);
}

/* Images whose rows alternate, beside which noise is added so that dtypes meet. */
static tp_tensor bars(tp_tape *T)
{
    float image[B * S * S];
    for (int i = 0; i < B * S * S; i++) image[i] = i / S % 2 ? 0.8f : -0.8f;
    return tp_from(T, TP_F32, TP_SHAPE(B, S, S, 1), image);
}

/* Returns the distance of the last drawings from the bars. */
static double train_gan(tp_device *D, tp_dtype compute)
{
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_params *Q = tp_params_new(D, &(tp_params_opts){ .seed = 2 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 1, .compute = compute, .train = true });
    generator g;
    critic c;
    gan_init(P, &g, Q, &c);
    tp_optim *O = tp_adam_new(P, &(tp_adam_opts){ .beta1 = 0.5 });
    tp_optim *R = tp_adam_new(Q, &(tp_adam_opts){ .beta1 = 0.5 });
    const int steps = steps_of(200);
    double distance = 0.0;
    for (int u = 0; u < steps && tp_ok(T); u++) {
        tp_reset(T);
        const tp_tensor real = bars(T), made = draw(T, &g);
        const tp_tensor noise = tp_scale(T, tp_randn(T, TP_F32, TP_SHAPE(B, S, S, 1)), 0.1);
        const tp_tensor fake = tp_add(T, tp_detach(T, made), noise); /* bf16 and f32 */
        tp_backward(T, tp_add(T, judge(T, &c, tp_add(T, real, noise), 1), judge(T, &c, fake, 0)));
        tp_step(R, 2e-3);
        tp_reset(T);
        const tp_tensor again = draw(T, &g);
        tp_freeze(Q, "", true);
        tp_backward(T, judge(T, &c, again, 1));
        tp_freeze(Q, "", false);
        tp_step(O, 2e-3);
        if (u >= steps - LAST) distance += tp_item(T, tp_mse(T, again, bars(T), TP_MEAN)) / LAST;
    }
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_optim_free(O);
    tp_optim_free(R);
    tp_tape_free(T);
    tp_params_free(P);
    tp_params_free(Q);
    return distance;
}

Test(mixed_training, gan, .timeout = 300)
{
    tp_device *D = device_open(NULL);
    const double f32 = train_gan(D, TP_F32), bf16 = train_gan(D, TP_BF16);
    printf("GAN          f32 %.4f, bf16 %.4f\n", f32, bf16);
    if (!device_is_emulated()) cr_expect_lt(bf16, 0.3, "%g", bf16);
    cr_expect_lt(fabs(f32 - bf16), 0.1 * f32 + 0.05, "%g in f32, %g in bf16", f32, bf16);
    tp_device_close(D);
}
