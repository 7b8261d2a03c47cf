/* lstm_text.c - an LSTM language model learns a small language and writes in it. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/data.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { BATCH = 32, TOKENS = 64, WIDTH = 128, LETTERS = 200000, SAMPLE = 240 };

/* ---- the language ---- */

static const char *const nouns[] = { "cat", "dog", "owl", "fox", "hen", "cow", "pig", "rat" };
static const char *const manners[] = { "often", "never", "softly", "gladly" };
static const char *const sounds[] = { "purrs",  "growls", "hoots",  "barks",
                                      "clucks", "lows",   "grunts", "squeaks" };

/* Writes n letters of sentences such as "the cat softly purrs at the hen. ", and returns the bits
 * per letter that chose them: no model of the language can need fewer. */
static double write_text(char *text, size_t n, uint64_t seed)
{
    tp_random r = tp_random_stream(seed, "sentences", 0, 0);
    double bits = 0.0;
    size_t at = 0;
    while (at + 60 < n) {
        const int64_t who = tp_random_below(&r, 8), whom = tp_random_below(&r, 8);
        at += (size_t)sprintf(text + at, "the %s %s %s at the %s. ", nouns[who],
                              manners[tp_random_below(&r, 4)], sounds[who], nouns[whom]);
        bits += 3 + 2 + 3;
    }
    bits /= (double)at;
    memset(text + at, ' ', n - at);
    return bits;
}

/* ---- the model ---- */

typedef struct net {
    const char *path;
    tp_embedding_m letters;
    tp_lstm_m lstm;
    tp_linear_m out;
    tp_lstm_state memory; /* of the streams, [1,B,WIDTH]: carried from step to step */
} net;

static void net_init(tp_params *P, net *m)
{
    m->path = tp_push(P, "net");
    m->memory = (tp_lstm_state){ TP_NONE, TP_NONE };
    tp_embedding_init(P, &m->letters, "letters", 256, WIDTH);
    tp_lstm_init(P, &m->lstm, "lstm", (tp_rnn_cfg){ .in = WIDTH, .hidden = WIDTH });
    tp_linear_init(P, &m->out, "out", WIDTH, 256, true);
    tp_pop(P);
}

/* letters [B,N] -> logits [B,N,256], continuing where the last call ended */
static tp_tensor net_forward(tp_tape *T, net *m, tp_tensor letters)
{
    tp_lstm_state s = m->memory;
    tp_enter(T, m->path);
    tp_tensor x = tp_embedding_forward(T, &m->letters, letters, 1);
    x = tp_lstm_forward(T, &m->lstm, x, &s, TP_NONE);
    tp_carry(T, &m->memory.h, s.h);
    tp_carry(T, &m->memory.c, s.c);
    return tp_leave(T, tp_linear_forward(T, &m->out, x));
}

static void forget(tp_tape *T, net *m)
{
    tp_carry(T, &m->memory.h, TP_NONE);
    tp_carry(T, &m->memory.c, TP_NONE);
}

/* ---- a run ---- */

/* The mean loss over the held-out text, in bits per letter. */
static double validate(tp_tape *T, net *m, const tp_text *X)
{
    tp_streams *S = tp_streams_new(
        X, TP_VALID, &(tp_streams_opts){ .batch = 1, .tokens = TOKENS, .all_targets = true });
    const int64_t steps = tp_streams_steps(S);
    double sum = 0.0;
    forget(T, m);
    for (int64_t i = 0; i < steps && tp_ok(T); i++) {
        tp_tensor x, y;
        tp_reset(T);
        tp_streams_next(S, T, &x, &y);
        sum += tp_item(T, tp_cross_entropy(T, net_forward(T, m, x), y, TP_MEAN));
    }
    tp_streams_free(S);
    return sum / (double)steps / log(2.0);
}

/* Lets the model write: each letter is drawn from its prediction and read in turn. */
static void write_sample(tp_tape *T, net *m)
{
    int64_t letter = ' ';
    forget(T, m);
    for (int i = 0; i < SAMPLE && tp_ok(T); i++) {
        tp_reset(T);
        const tp_tensor z = net_forward(T, m, tp_from(T, TP_I64, TP_SHAPE(1, 1), &letter));
        tp_read(T, tp_categorical(T, z), &letter, sizeof letter);
        putchar(letter >= ' ' && letter < 127 ? (int)letter : '?');
    }
    putchar('\n');
}

static double run(const gallery *g)
{
    static char text[LETTERS];
    const double entropy = write_text(text, sizeof text, g->seed);
    tp_text *X =
        tp_text_from((const uint8_t *)text, sizeof text, &(tp_text_opts){ .style = TP_TEXT_BYTES });
    tp_streams *S = tp_streams_new(
        X, TP_TRAIN, &(tp_streams_opts){ .batch = BATCH, .tokens = TOKENS, .all_targets = true });
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net m;
    net_init(P, &m);
    tp_optim *O = tp_adamw_new(P, NULL);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        tp_tensor x, y;
        tp_reset(T);
        tp_streams_next(S, T, &x, &y);
        tp_tensor loss = tp_cross_entropy(T, net_forward(T, &m, x), y, TP_MEAN);
        tp_backward(T, loss);
        tp_clip_grad_norm(P, 1.0);
        tp_step(O, tp_lr_cosine(u, 20, g->steps, 1e-2, 0.0));
        if (gallery_reports(g, u)) printf("%.3f bits per letter\n", tp_item(T, loss) / log(2.0));
    }
    tp_train(T, false);
    tp_record(T, false);
    const double bits = validate(T, &m, X);
    printf("held-out text: %.3f bits per letter; the language has %.3f\n", bits, entropy);
    write_sample(T, &m);
    tp_streams_free(S);
    tp_text_close(X);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return 100.0 * (bits / entropy - 1.0);
}

static const gallery_program program = {
    .name = "lstm_text",
    .summary = "an LSTM learns a small language and writes in it",
    .about = "Trains a language model over letters, whose memory is carried from step to step, on "
             "generated sentences whose verb depends on their subject. It is compared with the "
             "entropy of the language on held-out sentences, and then writes some.",
    .steps = 500,
    .result = "bits above the entropy",
    .unit = " %",
    .goal = 10.0,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
