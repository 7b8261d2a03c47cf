/* vae.c - a variational autoencoder finds the two numbers behind pictures of discs. */
#include <math.h>
#include <stdio.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { SIDE = 16, PIXELS = SIDE * SIDE, BATCH = 64, HIDDEN = 128, LATENT = 2, TESTS = 1000 };
enum { GRID = 12 }; /* pictures along each axis of the latent space */

/* A white disc with a soft edge, at a random place: v [n,SIDE,SIDE] in [0,1]. */
static void draw_discs(float *v, int64_t n, tp_random *r)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = tp_random_between(r, 3, SIDE - 3), y = tp_random_between(r, 3, SIDE - 3);
        for (int p = 0; p < PIXELS; p++) {
            const double d = hypot(p % SIDE + 0.5 - x, p / SIDE + 0.5 - y);
            *v++ = (float)fmin(1.0, fmax(0.0, 3.5 - d));
        }
    }
}

typedef struct net {
    const char *path;
    tp_linear_m in, encode, decode, out;
} net;

static void net_init(tp_params *P, net *m)
{
    m->path = tp_push(P, "net");
    tp_linear_init(P, &m->in, "in", PIXELS, HIDDEN, true);
    tp_linear_init(P, &m->encode, "encode", HIDDEN, 2 * LATENT, true);
    tp_linear_init(P, &m->decode, "decode", LATENT, HIDDEN, true);
    tp_linear_init(P, &m->out, "out", HIDDEN, PIXELS, true);
    tp_pop(P);
}

/* x [B,PIXELS] -> mean and logarithm of the variance [B,LATENT] */
static void net_encode(tp_tape *T, const net *m, tp_tensor x, tp_tensor y[2])
{
    tp_enter(T, m->path);
    const tp_tensor h = tp_linear_act(T, &m->in, x, TP_ACT_TANH);
    tp_split(T, tp_linear_forward(T, &m->encode, h), -1, 2, y);
    tp_leave_n(T, 2, y);
}

/* z [B,LATENT] -> logits [B,PIXELS] */
static tp_tensor net_decode(tp_tape *T, const net *m, tp_tensor z)
{
    tp_enter(T, m->path);
    const tp_tensor h = tp_linear_act(T, &m->decode, z, TP_ACT_TANH);
    return tp_leave(T, tp_linear_forward(T, &m->out, h));
}

/* The negative evidence lower bound of x [B,PIXELS], in nats per picture: what the pixels cost,
 * given a drawn z, and what z costs, KL(N(mean, variance) || N(0, 1)). */
static tp_tensor bound(tp_tape *T, const net *m, tp_tensor x)
{
    tp_tensor q[2];
    net_encode(T, m, x, q);
    const tp_tensor deviation = tp_exp(T, tp_scale(T, q[1], 0.5));
    const tp_tensor noise = tp_randn(T, tp_dtype_of(q[0]), tp_shape_of(q[0]));
    const tp_tensor z = tp_add(T, q[0], tp_mul(T, deviation, noise));
    const tp_tensor pixels = tp_bce_logits(T, net_decode(T, m, z), x, TP_SUM);
    const tp_tensor spread = tp_sub(T, tp_add(T, tp_square(T, q[0]), tp_exp(T, q[1])), q[1]);
    const tp_tensor kl = tp_scale(T, tp_sum(T, tp_sub(T, spread, 1), TP_ALL), 0.5);
    return tp_scale(T, tp_add(T, pixels, kl), 1.0 / (double)tp_dim(x, 0));
}

/* Decodes a grid of codes between -2 and 2, where N(0, 1) has most of them. */
static void draw_grid(const gallery *g, tp_tape *T, const net *m)
{
    static float z[GRID * GRID][LATENT], v[GRID * GRID * PIXELS];
    for (int i = 0; i < GRID * GRID; i++) {
        z[i][0] = 4.0f * ((float)(i % GRID) + 0.5f) / GRID - 2.0f;
        z[i][1] = 4.0f * ((float)(i / GRID) + 0.5f) / GRID - 2.0f;
    }
    tp_reset(T);
    const tp_tensor logits = net_decode(T, m, tp_from(T, TP_F32, TP_SHAPE(GRID * GRID, LATENT), z));
    tp_read(T, tp_cast(T, tp_sigmoid(T, logits), TP_F32), v, sizeof v);
    gallery_images(g, GRID, GRID, SIDE, SIDE, v);
}

static double run(const gallery *g)
{
    static float v[TESTS * PIXELS];
    tp_random r = tp_random_stream(g->seed, "discs", 0, 0);
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net m;
    net_init(P, &m);
    tp_optim *O = tp_adamw_new(P, NULL);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        draw_discs(v, BATCH, &r);
        tp_reset(T);
        const tp_tensor loss = bound(T, &m, tp_from(T, TP_F32, TP_SHAPE(BATCH, PIXELS), v));
        tp_backward(T, loss);
        tp_step(O, tp_lr_cosine(u, 50, g->steps, 3e-3, 0.0));
        if (gallery_reports(g, u)) printf("%.2f nats per picture\n", tp_item(T, loss));
    }
    tp_train(T, false);
    tp_record(T, false);
    draw_discs(v, TESTS, &r);
    tp_reset(T);
    const double nats = tp_item(T, bound(T, &m, tp_from(T, TP_F32, TP_SHAPE(TESTS, PIXELS), v)));
    draw_grid(g, T, &m);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return nats;
}

static const gallery_program program = {
    .name = "vae",
    .summary = "a variational autoencoder finds the two numbers behind pictures of discs",
    .about = "Trains an encoder and a decoder on pictures of a disc at a random place. Nothing "
             "tells them that a picture has two degrees of freedom, but its code is two numbers. "
             "The picture shows what the decoder makes of a grid of codes. The result is the "
             "negative evidence lower bound of fresh pictures.",
    .picture = "vae.png",
    .steps = 3000,
    .result = "negative evidence lower bound",
    .unit = " nats per picture",
    .goal = 20.0,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
