/* ctc_strokes.c - a recurrent network reads numbers from the strokes of a pen. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { BATCH = 32, TESTS = 500, LONGEST = 5, POINTS = 96, HIDDEN = 48, BLANK = 10 };
enum { SHOWN = 8, HEIGHT = 16, WIDTH = 48 };

/* ---- handwriting ---- */

/* The corners of each digit in the order in which it is written, each as x and y, upwards. */
static const char *const digits[10] = { "0848400008",   "162820",   "0628460040",
                                        "084823444000", "30380242", "480805454000",
                                        "480400404404", "084810",   "0048084000",
                                        "4404084840" };

/* The pen's movements from point to point, and 1 where it is lifted. Nothing marks where a digit
 * ends. */
typedef struct writing {
    float move[TESTS][POINTS][3];
    int32_t points[TESTS], number[TESTS][LONGEST], length[TESTS];
} writing;

/* Moves the pen in shaky steps of about 1.5 from *at to a corner. Returns the number of points. */
static int draw_line(float (*move)[3], int room, double at[2], const double to[2], bool lifted,
                     tp_random *r)
{
    const double length = hypot(to[0] - at[0], to[1] - at[1]);
    const int n = lifted ? 1 : (int)ceil(length / tp_random_between(r, 1.2, 2.0));
    const double from[2] = { at[0], at[1] };
    for (int i = 0; i < n && i < room; i++) {
        for (int k = 0; k < 2; k++) {
            const double next = from[k] + (to[k] - from[k]) * (i + 1) / n;
            const double shaky = next + 0.15 * tp_random_normal(r);
            move[i][k] = (float)(shaky - at[k]);
            at[k] = shaky;
        }
        move[i][2] = lifted ? 1.0f : 0.0f;
    }
    return n < room ? n : room;
}

/* Writes a number of 1 to LONGEST digits, each of its own width and height and slanted as the
 * whole number is, as example i. */
static void write_number(writing *w, int i, tp_random *r)
{
    const double slant = tp_random_between(r, -0.3, 0.3);
    double at[2] = { 0 }, left = 0.0;
    int n = 0;
    memset(w->move[i], 0, sizeof w->move[i]);
    w->length[i] = 1 + (int32_t)tp_random_below(r, LONGEST);
    for (int k = 0; k < w->length[i]; k++) {
        const double wide = tp_random_between(r, 0.8, 1.2), high = tp_random_between(r, 0.8, 1.2);
        const char *c = digits[w->number[i][k] = (int32_t)tp_random_below(r, 10)];
        for (int corner = 0; c[2 * corner]; corner++) {
            const double x = c[2 * corner] - '0', y = c[2 * corner + 1] - '0';
            const double to[2] = { left + wide * x + slant * y, high * y };
            n += draw_line(w->move[i] + n, POINTS - n, at, to, corner == 0, r);
        }
        left += 4.0 * wide + 1.5;
    }
    w->points[i] = n;
}

/* ---- the model ---- */

typedef struct net {
    const char *path;
    tp_lstm_m lstm;
    tp_linear_m out;
} net;

static void net_init(tp_params *P, net *m)
{
    const tp_rnn_cfg cfg = { .in = 3, .hidden = HIDDEN, .layers = 2, .bidirectional = true };
    m->path = tp_push(P, "net");
    tp_lstm_init(P, &m->lstm, "lstm", cfg);
    tp_linear_init(P, &m->out, "out", 2 * HIDDEN, BLANK + 1, true);
    tp_pop(P);
}

/* The first n examples -> log-probabilities of digits and blank [n,POINTS,11] */
static tp_tensor net_forward(tp_tape *T, const net *m, const writing *w, int n)
{
    tp_enter(T, m->path);
    tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(n, POINTS, 3), w->move);
    x = tp_lstm_forward(T, &m->lstm, x, NULL, tp_from(T, TP_I32, TP_SHAPE(n), w->points));
    return tp_leave(T, tp_log_softmax(T, tp_linear_forward(T, &m->out, x)));
}

static tp_tensor loss_of(tp_tape *T, const net *m, const writing *w, int n)
{
    const tp_tensor x = net_forward(T, m, w, n);
    const tp_tensor numbers = tp_from(T, TP_I32, TP_SHAPE(n, LONGEST), w->number);
    return tp_ctc(T, x, numbers, tp_from(T, TP_I32, TP_SHAPE(n), w->points),
                  tp_from(T, TP_I32, TP_SHAPE(n), w->length), (tp_ctc_cfg){ .blank = BLANK },
                  TP_MEAN);
}

/* ---- a run ---- */

/* Draws the points of an example where the pen is down: v [HEIGHT,WIDTH]. */
static void draw(const writing *w, int i, float *v)
{
    double x = 4.0, y = 2.0;
    for (int k = 0; k < w->points[i]; k++) {
        const float *move = w->move[i][k];
        for (int part = 1; part <= 4; part++) {
            x += (double)move[0] / 4;
            y += (double)move[1] / 4;
            const int col = (int)(1.3 * x), row = HEIGHT - 1 - (int)(1.3 * y);
            if (move[2] == 0.0f && col >= 0 && col < WIDTH && row >= 0 && row < HEIGHT)
                v[row * WIDTH + col] = 1.0f;
        }
    }
}

/* The share of fresh numbers that are read without an error, in percent. */
static double test(const gallery *g, tp_tape *T, const net *m, writing *w, tp_random *r)
{
    static int32_t label[TESTS][POINTS];
    int64_t length[TESTS];
    static float v[SHOWN][HEIGHT * WIDTH];
    int right = 0;
    for (int i = 0; i < TESTS; i++) write_number(w, i, r);
    tp_reset(T);
    const tp_tensor points = tp_from(T, TP_I32, TP_SHAPE(TESTS), w->points);
    if (!tp_ctc_decode(T, net_forward(T, m, w, TESTS), points,
                       (tp_ctc_decode_cfg){ .blank = BLANK }, label[0], length, NULL))
        return 0.0;
    for (int i = 0; i < TESTS; i++) {
        char text[POINTS + 1] = "", wanted[LONGEST + 1] = "";
        for (int k = 0; k < w->length[i]; k++) wanted[k] = (char)('0' + w->number[i][k]);
        for (int k = 0; k < length[i]; k++) text[k] = (char)('0' + label[i][k]);
        right += strcmp(text, wanted) == 0;
        if (i < SHOWN) draw(w, i, v[i]);
        if (i < SHOWN) printf("%s%s", text, i < SHOWN - 1 ? " " : "\n");
    }
    gallery_images(g, 2, SHOWN / 2, HEIGHT, WIDTH, v[0]);
    return 100.0 * right / TESTS;
}

static double run(const gallery *g)
{
    static writing w;
    tp_random r = tp_random_stream(g->seed, "numbers", 0, 0);
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net m;
    net_init(P, &m);
    tp_optim *O = tp_adamw_new(P, NULL);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        for (int i = 0; i < BATCH; i++) write_number(&w, i, &r);
        tp_reset(T);
        const tp_tensor loss = loss_of(T, &m, &w, BATCH);
        tp_backward(T, loss);
        tp_clip_grad_norm(P, 5.0);
        tp_step(O, tp_lr_cosine(u, 20, g->steps, 1e-2, 0.0));
        if (gallery_reports(g, u)) printf("loss %.4f\n", tp_item(T, loss));
    }
    tp_train(T, false);
    tp_record(T, false);
    const double right = test(g, T, &m, &w, &r);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return right;
}

static const gallery_program program = {
    .name = "ctc_strokes",
    .summary = "a recurrent network reads numbers from the strokes of a pen",
    .about = "Trains a bidirectional LSTM on numbers of one to five digits that a shaky pen "
             "writes. The loss, connectionist temporal classification, needs no marks where a "
             "digit begins and ends. It then reads fresh numbers: the picture shows the first of "
             "them, and the output what was read.",
    .picture = "ctc_strokes.png",
    .steps = 1000,
    .result = "numbers read without an error",
    .unit = " %",
    .goal = 85.0,
    .higher = true,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
