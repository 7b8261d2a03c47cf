/* unet_denoiser.c - a small U-Net removes noise from images. */
#include <math.h>
#include <stdio.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { SIDE = 32, PIXELS = SIDE * SIDE, BATCH = 16, TESTS = 64, WIDTH = 16, SHOWN = 8 };
static const double noise = 0.3; /* its deviation; pixels are in [0,1] */

/* ---- images ---- */

/* Grey discs and boxes on a slope of grey: v [n,SIDE,SIDE,1]. */
static void draw_images(float *v, int64_t n, tp_random *r)
{
    for (int64_t i = 0; i < n; i++, v += PIXELS) {
        const double left = tp_random_uniform(r), right = tp_random_uniform(r);
        for (int p = 0; p < PIXELS; p++) v[p] = (float)(left + (right - left) * (p % SIDE) / SIDE);
        for (int k = 0; k < 5; k++) {
            const double x = tp_random_between(r, 0, SIDE), y = tp_random_between(r, 0, SIDE);
            const double size = tp_random_between(r, 3, 9), grey = tp_random_uniform(r);
            const bool disc = tp_random_below(r, 2) == 0;
            for (int p = 0; p < PIXELS; p++) {
                const double dx = fabs(p % SIDE - x), dy = fabs(p / SIDE - y);
                if ((disc ? hypot(dx, dy) : fmax(dx, dy)) < size) v[p] = (float)grey;
            }
        }
    }
}

/* ---- the model ---- */

/* Two convolutions, each followed by a norm and an activation. */
typedef struct block {
    tp_conv2d_m conv[2];
    tp_groupnorm_m norm[2];
} block;

/* Three resolutions; on the way up each level sees what the way down left at it. */
typedef struct net {
    const char *path;
    block down[2], middle, up[2];
    tp_conv_transpose2d_m grow[2];
    tp_conv2d_m out;
} net;

static void block_init(tp_params *P, block *m, const char *name, int64_t in, int64_t out)
{
    static const char *const part[2][2] = { { "conv1", "norm1" }, { "conv2", "norm2" } };
    tp_push(P, name);
    for (int i = 0; i < 2; i++) {
        tp_conv2d_init(P, &m->conv[i], part[i][0], i ? out : in, out, 3, false,
                       (tp_conv_cfg){ .pad = { 1, 1 } });
        tp_groupnorm_init(P, &m->norm[i], part[i][1], out, 4, 1e-5);
    }
    tp_pop(P);
}

static tp_tensor block_forward(tp_tape *T, const block *m, tp_tensor x)
{
    for (int i = 0; i < 2; i++)
        x = tp_silu(T, tp_groupnorm_forward(T, &m->norm[i], tp_conv2d_forward(T, &m->conv[i], x)));
    return x;
}

static void net_init(tp_params *P, net *m)
{
    const tp_conv_transpose_cfg twice = { .stride = { 2, 2 } };
    m->path = tp_push(P, "net");
    block_init(P, &m->down[0], "down.0", 1, WIDTH);
    block_init(P, &m->down[1], "down.1", WIDTH, 2 * WIDTH);
    block_init(P, &m->middle, "middle", 2 * WIDTH, 4 * WIDTH);
    tp_conv_transpose2d_init(P, &m->grow[1], "grow.1", 4 * WIDTH, 2 * WIDTH, 2, true, twice);
    block_init(P, &m->up[1], "up.1", 4 * WIDTH, 2 * WIDTH);
    tp_conv_transpose2d_init(P, &m->grow[0], "grow.0", 2 * WIDTH, WIDTH, 2, true, twice);
    block_init(P, &m->up[0], "up.0", 2 * WIDTH, WIDTH);
    tp_conv2d_init(P, &m->out, "out", WIDTH, 1, 1, true, (tp_conv_cfg){ 0 });
    tp_pop(P);
}

/* noisy [B,H,W,1] -> the image [B,H,W,1]; H and W are multiples of 4 */
static tp_tensor net_forward(tp_tape *T, const net *m, tp_tensor noisy)
{
    const tp_pool_cfg half = { .kernel = { 2, 2 } };
    tp_tensor left[2], x = noisy;
    tp_enter(T, m->path);
    for (int i = 0; i < 2; i++) {
        left[i] = block_forward(T, &m->down[i], x);
        x = tp_max_pool2d(T, left[i], half);
    }
    x = block_forward(T, &m->middle, x);
    for (int i = 1; i >= 0; i--) {
        x = tp_conv_transpose2d_forward(T, &m->grow[i], x);
        x = block_forward(T, &m->up[i], tp_concat(T, -1, left[i], x));
    }
    return tp_leave(T, tp_sub(T, noisy, tp_conv2d_forward(T, &m->out, x))); /* it finds the noise */
}

/* ---- a run ---- */

static tp_tensor images(tp_tape *T, const float *v, int64_t n)
{
    return tp_from(T, TP_F32, TP_SHAPE(n, SIDE, SIDE, 1), v);
}

static tp_tensor spoil(tp_tape *T, tp_tensor x)
{
    return tp_add(T, x, tp_scale(T, tp_randn(T, TP_F32, tp_shape_of(x)), noise));
}

/* Removes noise from fresh images, shows some, and returns by how much less noise is left, in
 * decibels. */
static double test(const gallery *g, tp_tape *T, const net *m, tp_random *r)
{
    static float v[TESTS * PIXELS], shown[3][SHOWN * PIXELS]; /* noisy, denoised, true */
    draw_images(v, TESTS, r);
    tp_reset(T);
    const tp_tensor x = images(T, v, TESTS), y = spoil(T, x), z = net_forward(T, m, y);
    const double before = tp_item(T, tp_mse(T, y, x, TP_MEAN));
    const double after = tp_item(T, tp_mse(T, z, x, TP_MEAN));
    const tp_tensor rows[3] = { y, z, x };
    for (int i = 0; i < 3; i++)
        tp_read(T, tp_slice(T, rows[i], 0, 0, SHOWN), shown[i], sizeof shown[i]);
    gallery_images(g, 3, SHOWN, SIDE, SIDE, shown[0]);
    return 10.0 * log10(before / after);
}

static double run(const gallery *g)
{
    static float v[BATCH * PIXELS];
    tp_random r = tp_random_stream(g->seed, "images", 0, 0);
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net m;
    net_init(P, &m);
    tp_optim *O = tp_adamw_new(P, NULL);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        draw_images(v, BATCH, &r);
        tp_reset(T);
        const tp_tensor x = images(T, v, BATCH);
        const tp_tensor loss = tp_mse(T, net_forward(T, &m, spoil(T, x)), x, TP_MEAN);
        tp_backward(T, loss);
        tp_step(O, tp_lr_cosine(u, 20, g->steps, 3e-3, 0.0));
        if (gallery_reports(g, u)) printf("loss %.5f\n", tp_item(T, loss));
    }
    tp_train(T, false);
    tp_record(T, false);
    const double gain = test(g, T, &m, &r);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return gain;
}

static const gallery_program program = {
    .name = "unet_denoiser",
    .summary = "a small U-Net removes noise from images",
    .about = "Trains a U-Net of three resolutions on images of discs and boxes with strong noise. "
             "The picture shows fresh images: noisy, denoised, and as they were. The result is "
             "the noise that is removed from them.",
    .picture = "unet_denoiser.png",
    .steps = 500,
    .result = "less noise",
    .unit = " dB",
    .goal = 9.5,
    .higher = true,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
