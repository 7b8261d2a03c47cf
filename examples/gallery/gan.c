/* gan.c - a generative adversarial network learns eight clouds of points on a circle. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { CLOUDS = 8, BATCH = 256, NOISE = 8, HIDDEN = 128, TESTS = 4000, SIDE = 128 };
static const double spread = 0.08; /* of a cloud; the circle has radius 1 */

/* v [n,2] */
static void draw_points(float *v, int64_t n, tp_random *r)
{
    for (int64_t i = 0; i < n; i++) {
        const double angle = 2.0 * acos(-1.0) * (double)tp_random_below(r, CLOUDS) / CLOUDS;
        *v++ = (float)(cos(angle) + spread * tp_random_normal(r));
        *v++ = (float)(sin(angle) + spread * tp_random_normal(r));
    }
}

/* A generator [B,NOISE] -> [B,2], or a critic [B,2] -> [B,1]. */
typedef struct net {
    const char *path;
    tp_linear_m in, hidden, out;
} net;

static void net_init(tp_params *P, net *m, const char *name, int64_t in, int64_t out)
{
    m->path = tp_push(P, name);
    tp_linear_init(P, &m->in, "in", in, HIDDEN, true);
    tp_linear_init(P, &m->hidden, "hidden", HIDDEN, HIDDEN, true);
    tp_linear_init(P, &m->out, "out", HIDDEN, out, true);
    tp_pop(P);
}

static tp_tensor net_forward(tp_tape *T, const net *m, tp_tensor x)
{
    tp_enter(T, m->path);
    x = tp_linear_act(T, &m->in, x, TP_ACT_RELU);
    x = tp_linear_act(T, &m->hidden, x, TP_ACT_RELU);
    return tp_leave(T, tp_linear_forward(T, &m->out, x));
}

/* The loss of the relativistic GAN (Jolicoeur-Martineau 2018): high where the critic finds worse[i]
 * more real than better[i]. It does not reward crowding into one cloud. */
static tp_tensor ranking_loss(tp_tape *T, const net *critic, tp_tensor better, tp_tensor worse)
{
    const tp_tensor a = net_forward(T, critic, better), b = net_forward(T, critic, worse);
    return tp_mean(T, tp_softplus(T, tp_sub(T, b, a)), TP_ALL);
}

static tp_tensor make_points(tp_tape *T, const net *generator, int64_t n)
{
    return net_forward(T, generator, tp_randn(T, TP_F32, TP_SHAPE(n, NOISE)));
}

/* The share of points within three deviations of a cloud's centre, times the share of clouds that
 * have at least a quarter of their points, in percent. */
static double judge(const float *v, int n)
{
    int hits = 0, in[CLOUDS] = { 0 }, alive = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < CLOUDS; k++) {
            const double angle = 2.0 * acos(-1.0) * k / CLOUDS;
            const double dx = (double)v[2 * i] - cos(angle), dy = (double)v[2 * i + 1] - sin(angle);
            in[k] += hypot(dx, dy) < 3 * spread;
        }
    for (int k = 0; k < CLOUDS; k++) {
        hits += in[k];
        alive += in[k] >= n / CLOUDS / 4;
    }
    printf("%.1f %% of the points lie in clouds; %d of %d clouds are found\n", 100.0 * hits / n,
           alive, CLOUDS);
    return 100.0 * hits / n * alive / CLOUDS;
}

/* A map of [-1.5,1.5] x [-1.5,1.5]: lighter where points are. */
static void plot(float *map, const float *v, int n)
{
    memset(map, 0, SIDE * SIDE * sizeof *map);
    for (int i = 0; i < n; i++) {
        const int x = (int)floor(((double)v[2 * i] + 1.5) / 3.0 * SIDE);
        const int y = (int)floor((1.5 - (double)v[2 * i + 1]) / 3.0 * SIDE);
        if (x >= 0 && x < SIDE && y >= 0 && y < SIDE) map[y * SIDE + x] += 0.4f;
    }
}

static double run(const gallery *g)
{
    static float v[2 * TESTS], maps[2][SIDE * SIDE];
    const tp_adam_opts options = { .beta1 = 0.5 };
    tp_random r = tp_random_stream(g->seed, "points", 0, 0);
    tp_params *PG = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_params *PC = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net generator, critic;
    net_init(PG, &generator, "generator", NOISE, 2);
    net_init(PC, &critic, "critic", 2, 1);
    tp_optim *OG = tp_adam_new(PG, &options), *OC = tp_adam_new(PC, &options);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        const double lr = tp_lr_linear(u, 0, g->steps, 1e-3, 0.0);
        draw_points(v, BATCH, &r);
        tp_reset(T); /* the critic's turn: the points of the generator are data */
        const tp_tensor real = tp_from(T, TP_F32, TP_SHAPE(BATCH, 2), v);
        const tp_tensor made = tp_detach(T, make_points(T, &generator, BATCH));
        const tp_tensor cost = ranking_loss(T, &critic, real, made);
        tp_backward(T, cost);
        tp_step(OC, 2 * lr);
        const bool reports = gallery_reports(g, u);
        if (reports) printf("critic %.3f", tp_item(T, cost));

        /* the generator's turn: gradients pass through the critic, which is frozen */
        tp_freeze(PC, "", true);
        const tp_tensor loss = ranking_loss(T, &critic, make_points(T, &generator, BATCH), real);
        tp_backward(T, loss);
        tp_freeze(PC, "", false);
        tp_step(OG, lr);
        if (reports) printf("  generator %.3f\n", tp_item(T, loss));
    }
    tp_record(T, false);
    tp_reset(T);
    draw_points(v, TESTS, &r);
    plot(maps[0], v, TESTS);
    tp_read(T, tp_cast(T, make_points(T, &generator, TESTS), TP_F32), v, sizeof v);
    plot(maps[1], v, TESTS);
    gallery_images(g, 1, 2, SIDE, SIDE, maps[0]);
    tp_optim_free(OG);
    tp_optim_free(OC);
    tp_tape_free(T);
    tp_params_free(PG);
    tp_params_free(PC);
    return judge(v, TESTS);
}

static const gallery_program program = {
    .name = "gan",
    .summary = "a generative adversarial network learns eight clouds of points",
    .about = "Trains a generator of points against a critic that tells them from points of eight "
             "clouds on a circle. The picture shows points of the clouds and, beside them, of the "
             "generator. The result is the share of generated points within three deviations of a "
             "cloud's centre, times the share of clouds that are found.",
    .picture = "gan.png",
    .steps = 5000,
    .result = "points in clouds, times clouds found",
    .unit = " %",
    .goal = 88.0,
    .higher = true,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
