/* diffusion.c - a small diffusion transformer draws images from noise. */
#include <math.h>
#include <stdio.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { SIDE = 16, PIXELS = SIDE * SIDE, PATCH = 4, PATCHES = PIXELS / (PATCH * PATCH) };
enum { BATCH = 64, WIDTH = 64, LAYERS = 3, SAMPLES = 64, MOVES = 30 };
static const double radius = 3.5;

/* ---- images ---- */

/* A white disc with a soft edge around (x,y): v [SIDE,SIDE] in [-1,1]. */
static void draw_disc(float *v, double x, double y)
{
    for (int p = 0; p < PIXELS; p++) {
        const double d = hypot(p % SIDE + 0.5 - x, p / SIDE + 0.5 - y);
        v[p] = (float)(2.0 * fmin(1.0, fmax(0.0, radius - d)) - 1.0);
    }
}

/* v [BATCH,SIDE,SIDE] */
static void draw_batch(float *v, tp_random *r)
{
    for (int i = 0; i < BATCH; i++) {
        const double x = tp_random_between(r, 3, SIDE - 3), y = tp_random_between(r, 3, SIDE - 3);
        draw_disc(v + (ptrdiff_t)i * PIXELS, x, y);
    }
}

/* The mean squared difference from the most similar disc. */
static double distance(const float *v)
{
    double best = 4.0;
    for (int y = 4 * 3; y <= 4 * (SIDE - 3); y++) /* in quarters of a pixel */
        for (int x = 4 * 3; x <= 4 * (SIDE - 3); x++) {
            float disc[PIXELS];
            double sum = 0.0;
            draw_disc(disc, x / 4.0, y / 4.0);
            for (int p = 0; p < PIXELS; p++) sum += pow((double)(v[p] - disc[p]), 2.0);
            best = fmin(best, sum / PIXELS);
        }
    return best;
}

/* ---- the model ---- */

static const tp_unfold_cfg patches = { .kernel = { PATCH, PATCH }, .stride = { PATCH, PATCH } };

/* Patches of the image are tokens; the first token is the time. */
typedef struct net {
    const char *path;
    tp_linear_m in, time1, time2, out;
    tp_embedding_m places;
    tp_encoder_layer_m layer[LAYERS];
    tp_layernorm_m norm;
} net;

static void net_init(tp_params *P, net *m)
{
    static const char *const name[LAYERS] = { "layers.0", "layers.1", "layers.2" };
    const tp_encoder_layer_cfg layer = {
        .dim = WIDTH, .hidden = 4 * WIDTH, .heads = 4, .act = TP_ACT_GELU
    };
    m->path = tp_push(P, "net");
    tp_linear_init(P, &m->in, "in", PATCH * PATCH, WIDTH, true);
    tp_linear_init(P, &m->time1, "time1", 1, WIDTH, true);
    tp_linear_init(P, &m->time2, "time2", WIDTH, WIDTH, true);
    tp_embedding_init(P, &m->places, "places", PATCHES, WIDTH);
    for (int i = 0; i < LAYERS; i++) tp_encoder_layer_init(P, &m->layer[i], name[i], layer);
    tp_layernorm_init(P, &m->norm, "norm", WIDTH, 1e-5);
    tp_linear_init(P, &m->out, "out", WIDTH, PATCH * PATCH, true);
    tp_pop(P);
}

/* Images x [B,SIDE,SIDE,1] at times t [B,1] -> the direction from image to noise, of x's shape */
static tp_tensor net_forward(tp_tape *T, const net *m, tp_tensor x, tp_tensor t)
{
    const int64_t B = tp_dim(x, 0);
    tp_enter(T, m->path);
    x = tp_reshape(T, tp_unfold(T, x, patches), TP_SHAPE(B, PATCHES, PATCH * PATCH));
    x = tp_add(T, tp_linear_forward(T, &m->in, x), m->places.weight);
    t = tp_linear_forward(T, &m->time2, tp_linear_act(T, &m->time1, t, TP_ACT_SILU));
    x = tp_concat(T, 1, tp_unsqueeze(T, t, 1), x);
    for (int i = 0; i < LAYERS; i++) x = tp_encoder_layer_forward(T, &m->layer[i], x, TP_NONE);
    x = tp_layernorm_forward(T, &m->norm, tp_slice(T, x, 1, 1, PATCHES));
    x = tp_reshape(T, tp_linear_forward(T, &m->out, x),
                   TP_SHAPE(B, SIDE / PATCH, SIDE / PATCH, PATCH * PATCH));
    return tp_leave(T, tp_fold(T, x, SIDE, SIDE, patches));
}

/* The loss of images v [BATCH,SIDE,SIDE]: each is moved to a random time on the straight line from
 * the image, 0, to noise, 1, and the model says in which direction it went (Liu et al. 2023). */
static tp_tensor loss_of(tp_tape *T, const net *m, const float *v)
{
    const tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(BATCH, SIDE, SIDE, 1), v);
    const tp_tensor noise = tp_randn(T, TP_F32, tp_shape_of(x));
    const tp_tensor way = tp_sub(T, noise, x), t = tp_rand(T, TP_F32, TP_SHAPE(BATCH, 1));
    const tp_tensor moved = tp_mul(T, tp_reshape(T, t, TP_SHAPE(BATCH, 1, 1, 1)), way);
    return tp_mse(T, net_forward(T, m, tp_add(T, x, moved), t), way, TP_MEAN);
}

/* Goes the other way, from noise to images v [SAMPLES,SIDE,SIDE], in MOVES moves. */
static void draw_samples(tp_tape *T, const net *m, float *v)
{
    tp_tensor x = TP_NONE;
    tp_reset(T);
    tp_carry(T, &x, tp_randn(T, TP_F32, TP_SHAPE(SAMPLES, SIDE, SIDE, 1)));
    for (int i = 0; i < MOVES; i++) {
        tp_reset(T);
        const tp_tensor t = tp_full(T, TP_F32, TP_SHAPE(SAMPLES, 1), 1.0 - (double)i / MOVES);
        const tp_tensor way = tp_scale(T, net_forward(T, m, x, t), 1.0 / MOVES);
        tp_carry(T, &x, tp_sub(T, x, tp_cast(T, way, TP_F32)));
    }
    tp_read(T, x, v, SAMPLES * PIXELS * sizeof *v);
}

/* ---- a run ---- */

static double run(const gallery *g)
{
    static float v[BATCH * PIXELS], drawn[SAMPLES * PIXELS];
    tp_random r = tp_random_stream(g->seed, "discs", 0, 0);
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net m;
    net_init(P, &m);
    tp_optim *O = tp_adamw_new(P, NULL);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        draw_batch(v, &r);
        tp_reset(T);
        const tp_tensor loss = loss_of(T, &m, v);
        tp_backward(T, loss);
        tp_step(O, tp_lr_cosine(u, 50, g->steps, 2e-3, 0.0));
        if (gallery_reports(g, u)) printf("loss %.4f\n", tp_item(T, loss));
    }
    tp_train(T, false);
    tp_record(T, false);
    draw_samples(T, &m, drawn);
    int good = 0;
    for (int i = 0; i < SAMPLES && tp_ok(T); i++)
        good += distance(drawn + (ptrdiff_t)i * PIXELS) < 0.05;
    for (int i = 0; i < SAMPLES * PIXELS; i++) drawn[i] = (drawn[i] + 1.0f) / 2.0f;
    gallery_images(g, 4, SAMPLES / 4, SIDE, SIDE, drawn);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return 100.0 * good / SAMPLES;
}

static const gallery_program program = {
    .name = "diffusion",
    .summary = "a small diffusion transformer draws images from noise",
    .about = "Trains a transformer over patches to lead noise back to images of a disc at a random "
             "place, along straight lines (rectified flow), and then draws new ones, which the "
             "picture shows. A drawn image is good if some disc differs from it by a mean square "
             "of less than 0.05, where black is -1 and white is 1.",
    .picture = "diffusion.png",
    .steps = 1500,
    .result = "good images",
    .unit = " %",
    .goal = 80.0,
    .higher = true,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
