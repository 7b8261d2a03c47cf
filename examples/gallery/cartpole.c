/* cartpole.c - a policy learns to balance a pole on a cart, by policy gradients. */
#include <math.h>
#include <stdio.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { POLES = 32, LIMIT = 500, HIDDEN = 64, WIDTH = 64, HEIGHT = 32, FRAMES = 6 };

/* ---- the world ---- */

typedef struct pole {
    double x, v, angle, turn; /* metres from the middle, radians from upright, per second */
} pole;

/* 20 milliseconds with a force to the left (0) or right (1), as Barto, Sutton and Anderson (1983)
 * have it. False if the pole has fallen or the cart has left the track. */
static bool pole_move(pole *p, int right)
{
    const double c = cos(p->angle), s = sin(p->angle), force = right ? 10.0 : -10.0;
    const double push = (force + 0.05 * p->turn * p->turn * s) / 1.1;
    const double turning = (9.8 * s - c * push) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1));
    const double moving = push - 0.05 * turning * c / 1.1;
    p->x += 0.02 * p->v;
    p->v += 0.02 * moving;
    p->angle += 0.02 * p->turn;
    p->turn += 0.02 * turning;
    return fabs(p->x) < 2.4 && fabs(p->angle) < 12.0 * acos(-1.0) / 180.0;
}

/* ---- the policy ---- */

typedef struct net {
    const char *path;
    tp_linear_m in, out;
} net;

static void net_init(tp_params *P, net *m)
{
    m->path = tp_push(P, "net");
    tp_linear_init(P, &m->in, "in", 4, HIDDEN, true);
    tp_linear_init(P, &m->out, "out", HIDDEN, 2, true);
    tp_pop(P);
}

/* states [B,4] -> logits of left and right [B,2] */
static tp_tensor net_forward(tp_tape *T, const net *m, tp_tensor states)
{
    tp_enter(T, m->path);
    return tp_leave(T,
                    tp_linear_forward(T, &m->out, tp_linear_act(T, &m->in, states, TP_ACT_TANH)));
}

/* ---- episodes ---- */

/* What happened to all poles, as rows: of time step t, those from first[t] to first[t + 1]. */
typedef struct episodes {
    float state[POLES * LIMIT][4], advantage[POLES * LIMIT];
    int32_t action[POLES * LIMIT];
    int who[POLES * LIMIT], first[LIMIT + 1], length[POLES], steps;
} episodes;

/* Plays POLES episodes at once, each until its pole falls. Actions are drawn from the policy.
 * Returns the mean number of steps. */
static double play(tp_tape *T, const net *m, episodes *e, tp_random *r)
{
    pole p[POLES];
    bool up[POLES];
    int n = 0, alive = POLES;
    for (int i = 0; i < POLES; i++) {
        p[i].x = tp_random_between(r, -0.05, 0.05), p[i].v = tp_random_between(r, -0.05, 0.05);
        p[i].angle = tp_random_between(r, -0.05, 0.05), p[i].turn = 0.0;
        up[i] = true;
        e->length[i] = 0;
    }
    for (e->steps = 0; e->steps < LIMIT && alive > 0 && tp_ok(T); e->steps++) {
        int64_t right[POLES] = { 0 };
        const int at = e->first[e->steps] = n;
        for (int i = 0; i < POLES; i++) {
            if (!up[i]) continue;
            e->state[n][0] = (float)p[i].x, e->state[n][1] = (float)p[i].v;
            e->state[n][2] = (float)p[i].angle, e->state[n][3] = (float)p[i].turn;
            e->who[n++] = i;
        }
        tp_reset(T);
        const tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(alive, 4), e->state[at]);
        const tp_tensor drawn = tp_categorical(T, net_forward(T, m, x));
        tp_read(T, drawn, right, (size_t)alive * sizeof *right);
        for (int k = at; k < n; k++) {
            const int i = e->who[k];
            e->action[k] = (int32_t)right[k - at];
            e->length[i]++;
            up[i] = pole_move(&p[i], e->action[k]);
            alive -= !up[i];
        }
    }
    e->first[e->steps] = n;
    return (double)n / POLES;
}

/* The advantage of each action: for how long its pole still stood, up to about 100 steps, less the
 * mean over the poles at that time. The tape divides by the deviation. */
static void judge(episodes *e)
{
    for (int t = 0; t < e->steps; t++) {
        double mean = 0.0;
        for (int k = e->first[t]; k < e->first[t + 1]; k++) {
            const double left = e->length[e->who[k]] - t; /* 1 + 0.99 + 0.99^2 + ... */
            e->advantage[k] = (float)(100.0 * (1.0 - pow(0.99, left)));
            mean += (double)e->advantage[k] / (e->first[t + 1] - e->first[t]);
        }
        for (int k = e->first[t]; k < e->first[t + 1]; k++) e->advantage[k] -= (float)mean;
    }
}

/* ---- a run ---- */

/* Draws the cart and the pole of a state: v [HEIGHT,WIDTH]. */
static void draw(float *v, const float state[4])
{
    const double x = WIDTH / 2.0 * (1.0 + (double)state[0] / 2.4), y = HEIGHT - 6.0;
    const double dx = sin((double)state[2]), dy = -cos((double)state[2]);
    for (int i = 0; i < HEIGHT * WIDTH; i++) {
        const double px = i % WIDTH + 0.5 - x, py = i / WIDTH + 0.5 - y;
        const double along = fmin(20.0, fmax(0.0, px * dx + py * dy));
        const bool on_pole = hypot(px - along * dx, py - along * dy) < 0.8;
        v[i] = on_pole || (fabs(px) < 6.0 && py > 0.0 && py < 4.0) ? 1.0f : 0.0f;
    }
}

/* Frames of the first pole, whose rows come first, over equal parts of its time. */
static void film(const episodes *e, float *v)
{
    for (int f = 0; f < FRAMES; f++)
        draw(v + (ptrdiff_t)f * WIDTH * HEIGHT,
             e->state[e->first[f * (e->length[0] - 1) / (FRAMES - 1)]]);
}

static double run(const gallery *g)
{
    static episodes e;
    static float frames[2][FRAMES * WIDTH * HEIGHT]; /* at first, in the end */
    tp_random r = tp_random_stream(g->seed, "poles", 0, 0);
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net m;
    net_init(P, &m);
    tp_optim *O = tp_adam_new(P, NULL);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        tp_record(T, false);
        const double steps = play(T, &m, &e, &r);
        const int n = e.first[e.steps];
        if (u == 0) film(&e, frames[0]);
        judge(&e);
        tp_record(T, true);
        tp_reset(T);
        const tp_tensor states = tp_from(T, TP_F32, TP_SHAPE(n, 4), e.state);
        const tp_tensor actions = tp_from(T, TP_I32, TP_SHAPE(n), e.action);
        tp_tensor advantage = tp_from(T, TP_F32, TP_SHAPE(n), e.advantage);
        advantage = tp_div(T, advantage, tp_add(T, tp_std(T, advantage, TP_ALL, 0), 1e-4));
        const tp_tensor chosen = tp_categorical_log_prob(T, net_forward(T, &m, states), actions);
        tp_backward(T, tp_neg(T, tp_mean(T, tp_mul(T, chosen, advantage), TP_ALL)));
        tp_clip_grad_norm(P, 0.5);
        tp_step(O, tp_lr_linear(u, 0, g->steps, 2e-2, 0.0));
        if (gallery_reports(g, u)) printf("%.1f steps per episode\n", steps);
    }
    tp_record(T, false);
    const double steps = play(T, &m, &e, &r);
    if (tp_ok(T)) film(&e, frames[1]);
    gallery_images(g, 2, FRAMES, HEIGHT, WIDTH, frames[0]);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return steps;
}

static const gallery_program program = {
    .name = "cartpole",
    .summary = "a policy learns to balance a pole on a cart",
    .about = "Trains a policy by REINFORCE: a step plays 32 episodes of at most 500 moves and "
             "makes the moves more probable after which the pole stood longer than others did. "
             "The picture shows an episode before training and, below it, one after training.",
    .picture = "cartpole.png",
    .steps = 60,
    .result = "mean moves before the pole falls",
    .unit = "",
    .goal = 450.0,
    .higher = true,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
