/* adder.c - a sequence-to-sequence transformer learns to add numbers, and answers with cached
 * decoding. */
#include <stdio.h>
#include <tapegrad/random.h>

#include "gallery.h"

enum { DIGITS = 3, QUESTION = 2 * DIGITS + 1, ANSWER = DIGITS + 1 };
enum { PLUS = 10, START, SYMBOLS }; /* after the digits */
enum { BATCH = 128, TESTS = 1000, WIDTH = 64, HEADS = 4 };

/* ---- questions ---- */

typedef struct sums {
    int32_t question[TESTS][QUESTION]; /* 1 2 3 + 4 5 6 */
    int32_t answer[TESTS][ANSWER + 1]; /* START, then the sum, its last digit first: 9 7 5 0 */
} sums;

static void draw_sums(sums *s, int n, tp_random *r)
{
    for (int i = 0; i < n; i++) {
        int64_t a = tp_random_below(r, 1000), b = tp_random_below(r, 1000), sum = a + b;
        s->question[i][DIGITS] = PLUS;
        for (int k = DIGITS - 1; k >= 0; k--, a /= 10, b /= 10) {
            s->question[i][k] = (int32_t)(a % 10);
            s->question[i][DIGITS + 1 + k] = (int32_t)(b % 10);
        }
        s->answer[i][0] = START;
        for (int k = 1; k <= ANSWER; k++, sum /= 10) s->answer[i][k] = (int32_t)(sum % 10);
    }
}

/* ---- the model ---- */

typedef struct net {
    const char *path;
    tp_embedding_m symbols, question_places, answer_places;
    tp_encoder_layer_m encoder;
    tp_decoder_layer_m decoder;
    tp_linear_m out;
} net;

static void net_init(tp_params *P, net *m)
{
    const tp_encoder_layer_cfg layer = {
        .dim = WIDTH, .hidden = 4 * WIDTH, .heads = HEADS, .act = TP_ACT_GELU
    };
    m->path = tp_push(P, "net");
    tp_embedding_init(P, &m->symbols, "symbols", SYMBOLS, WIDTH);
    tp_embedding_init(P, &m->question_places, "question_places", QUESTION, WIDTH);
    tp_embedding_init(P, &m->answer_places, "answer_places", ANSWER, WIDTH);
    tp_encoder_layer_init(P, &m->encoder, "encoder", layer);
    tp_decoder_layer_init(P, &m->decoder, "decoder", layer);
    tp_linear_init(P, &m->out, "out", WIDTH, 10, true);
    tp_pop(P);
}

/* symbols [B,N] at the places first, first + 1, ... -> [B,N,WIDTH] */
static tp_tensor embed(tp_tape *T, const net *m, tp_tensor symbols, const tp_embedding_m *places,
                       int64_t first)
{
    const tp_tensor at = tp_slice(T, places->weight, 0, first, tp_dim(symbols, 1));
    return tp_add(T, tp_embedding_forward(T, &m->symbols, symbols, 1), at);
}

/* questions [B,QUESTION] -> [B,QUESTION,WIDTH] */
static tp_tensor read_question(tp_tape *T, const net *m, tp_tensor questions)
{
    tp_enter(T, m->path);
    const tp_tensor x = embed(T, m, questions, &m->question_places, 0);
    return tp_leave(T, tp_encoder_layer_forward(T, &m->encoder, x, TP_NONE));
}

/* All digits at once, for training: each sees those before it, given [B,ANSWER] -> logits
 * [B,ANSWER,10]. */
static tp_tensor answer_all(tp_tape *T, const net *m, tp_tensor given, tp_tensor memory)
{
    tp_enter(T, m->path);
    tp_tensor x = embed(T, m, given, &m->answer_places, 0);
    x = tp_decoder_layer_forward(T, &m->decoder, x, memory, TP_NONE, TP_NONE);
    return tp_leave(T, tp_linear_forward(T, &m->out, x));
}

/* Digit k from the symbol before it, last [B,1] -> the most probable digit [B,1]. The cache keeps
 * keys and values of the earlier ones. */
static tp_tensor answer_next(tp_tape *T, const net *m, tp_decoder_cache *cache, tp_tensor last,
                             int64_t k, tp_tensor memory)
{
    tp_enter(T, m->path);
    tp_tensor x = embed(T, m, last, &m->answer_places, k);
    x = tp_decoder_layer_decode(T, &m->decoder, cache, x, memory, TP_NONE);
    return tp_leave(T, tp_argmax(T, tp_linear_forward(T, &m->out, x), -1));
}

/* ---- a run ---- */

/* The share of fresh questions that are answered without an error, in percent. */
static double test(tp_tape *T, const net *m, tp_random *r)
{
    static sums s;
    static int64_t digit[ANSWER][TESTS];
    tp_decoder_cache cache = { .own = { .room = ANSWER } };
    draw_sums(&s, TESTS, r);
    tp_reset(T);
    const tp_tensor questions = tp_from(T, TP_I32, TP_SHAPE(TESTS, QUESTION), s.question);
    const tp_tensor memory = read_question(T, m, questions);
    tp_tensor last = tp_full(T, TP_I64, TP_SHAPE(TESTS, 1), START);
    for (int k = 0; k < ANSWER; k++) {
        last = answer_next(T, m, &cache, last, k, memory);
        tp_read(T, last, digit[k], sizeof digit[k]);
    }
    int right = 0;
    for (int i = 0; i < TESTS; i++) {
        int wrong = 0, value = 0;
        for (int k = ANSWER - 1; k >= 0; k--) {
            wrong += digit[k][i] != s.answer[i][k + 1];
            value = 10 * value + (int)digit[k][i];
        }
        right += wrong == 0;
        const int32_t *q = s.question[i];
        if (i < 5) printf("%d%d%d + %d%d%d = %d\n", q[0], q[1], q[2], q[4], q[5], q[6], value);
    }
    tp_kv_cache_free(T, &cache.own);
    tp_kv_cache_free(T, &cache.memory);
    return 100.0 * right / TESTS;
}

static double run(const gallery *g)
{
    static sums s;
    tp_random r = tp_random_stream(g->seed, "sums", 0, 0);
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_tape *T = tp_tape_new(g->D, &g->training);
    net m;
    net_init(P, &m);
    tp_optim *O = tp_adamw_new(P, NULL);

    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        draw_sums(&s, BATCH, &r);
        tp_reset(T);
        const tp_tensor all = tp_from(T, TP_I32, TP_SHAPE(BATCH, ANSWER + 1), s.answer);
        const tp_tensor given = tp_slice(T, all, 1, 0, ANSWER);
        const tp_tensor wanted = tp_slice(T, all, 1, 1, ANSWER);
        const tp_tensor questions = tp_from(T, TP_I32, TP_SHAPE(BATCH, QUESTION), s.question);
        const tp_tensor z = answer_all(T, &m, given, read_question(T, &m, questions));
        const tp_tensor loss = tp_cross_entropy(T, z, wanted, TP_MEAN);
        tp_backward(T, loss);
        tp_step(O, tp_lr_cosine(u, 50, g->steps, 3e-3, 0.0));
        if (gallery_reports(g, u)) printf("loss %.4f\n", tp_item(T, loss));
    }
    tp_train(T, false);
    tp_record(T, false);
    const double right = test(T, &m, &r);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    return right;
}

static const gallery_program program = {
    .name = "adder",
    .summary = "a sequence-to-sequence transformer learns to add numbers",
    .about = "Trains an encoder and a decoder on sums of two numbers of three digits, which it "
             "sees as symbols. The sum is written from its last digit on. It then answers fresh "
             "questions, digit by digit, with cached keys and values.",
    .steps = 800,
    .result = "right answers",
    .unit = " %",
    .goal = 95.0,
    .higher = true,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
