/* finetune_lora.c - a trained encoder learns another script from few examples, by low-rank
 * adaptation. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>
#include <unistd.h>

#include "gallery.h"

enum {
    DIGITS = 3,
    LENGTH = 2 * DIGITS,
    BATCH = 64,
    FEW = 512,
    TESTS = 1000,
    WIDTH = 64,
    LAYERS = 2
};

/* ---- pairs of numbers ---- */

typedef struct pairs {
    int32_t symbol[TESTS][LENGTH], smaller[TESTS]; /* 1: the first number is smaller */
} pairs;

/* Numbers that often begin alike, and no equal ones. */
static void draw_pairs(pairs *p, int n, tp_random *r)
{
    for (int i = 0; i < n; i++) {
        const int64_t a = tp_random_below(r, 1000), near = a / 100 * 100 + tp_random_below(r, 100);
        const int64_t b = tp_random_below(r, 2) ? near : tp_random_below(r, 1000);
        int64_t rest[2] = { a, a == b ? (b + 1) % 1000 : b };
        p->smaller[i] = rest[0] < rest[1];
        for (int k = DIGITS - 1; k >= 0; k--)
            for (int side = 0; side < 2; side++) {
                p->symbol[i][side * DIGITS + k] = (int32_t)(rest[side] % 10);
                rest[side] /= 10;
            }
    }
}

/* ---- the model ---- */

typedef struct net {
    const char *path;
    tp_embedding_m symbols, places;
    tp_encoder_layer_m layer[LAYERS];
    tp_linear_m out;
} net;

/* script: the name of the table of symbols */
static void net_init(tp_params *P, net *m, const char *script)
{
    static const char *const name[LAYERS] = { "layers.0", "layers.1" };
    const tp_encoder_layer_cfg layer = {
        .dim = WIDTH, .hidden = 4 * WIDTH, .heads = 4, .act = TP_ACT_GELU
    };
    m->path = tp_push(P, "net");
    tp_embedding_init(P, &m->symbols, script, 10, WIDTH);
    tp_embedding_init(P, &m->places, "places", LENGTH, WIDTH);
    for (int i = 0; i < LAYERS; i++) tp_encoder_layer_init(P, &m->layer[i], name[i], layer);
    tp_linear_init(P, &m->out, "out", WIDTH, 2, true);
    tp_pop(P);
}

/* symbols [B,LENGTH] -> logits [B,2] */
static tp_tensor net_forward(tp_tape *T, const net *m, tp_tensor symbols)
{
    tp_enter(T, m->path);
    tp_tensor x = tp_embedding_forward(T, &m->symbols, symbols, 1);
    x = tp_add(T, x, m->places.weight);
    for (int i = 0; i < LAYERS; i++) x = tp_encoder_layer_forward(T, &m->layer[i], x, TP_NONE);
    return tp_leave(T, tp_linear_forward(T, &m->out, tp_mean(T, x, 1)));
}

/* ---- a run ---- */

/* Trains what is not frozen on few pairs over and over, or, if few is NULL, on ever new ones. */
static void train(const gallery *g, tp_params *P, const net *m, const pairs *few, tp_random *r)
{
    static pairs fresh;
    tp_tape *T = tp_tape_new(g->D, &g->training);
    tp_optim *O = tp_adamw_new(P, NULL);
    for (int64_t u = 0; u < g->steps && tp_ok(T); u++) {
        const int64_t first = few ? u * BATCH % FEW : 0;
        const pairs *p = few ? few : &fresh;
        if (!few) draw_pairs(&fresh, BATCH, r);
        tp_reset(T);
        const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(BATCH, LENGTH), p->symbol[first]);
        const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(BATCH), p->smaller + first);
        const tp_tensor loss = tp_cross_entropy(T, net_forward(T, m, x), y, TP_MEAN);
        tp_backward(T, loss);
        tp_step(O, tp_lr_cosine(u, 20, g->steps, few ? 1e-2 : 3e-3, 0.0));
        if (gallery_reports(g, u)) printf("loss %.4f\n", tp_item(T, loss));
    }
    tp_optim_free(O);
    tp_tape_free(T);
}

/* The share of fresh pairs that are answered correctly, in percent. */
static double test(const gallery *g, const net *m, tp_random *r)
{
    static pairs p;
    tp_tape *T = tp_tape_new(g->D, &(tp_tape_opts){ .compute = g->training.compute });
    draw_pairs(&p, TESTS, r);
    tp_record(T, false);
    const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(TESTS, LENGTH), p.symbol);
    const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(TESTS), p.smaller);
    const tp_tensor found = tp_argmax(T, net_forward(T, m, x), -1);
    const double right = tp_item(T, tp_mean(T, tp_eq(T, found, y), TP_ALL));
    tp_tape_free(T);
    return 100.0 * right;
}

/* Copies the parameters of equal names by a file in a temporary folder. */
static void hand_over(const gallery *g, tp_params *from, tp_params *to)
{
    const char *parent = getenv("TMPDIR");
    char folder[4000], file[4100];
    snprintf(folder, sizeof folder, "%s/finetune_lora-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(folder)) gallery_fail(g, "%s: %s", folder, strerror(errno));
    snprintf(file, sizeof file, "%s/trained.safetensors", folder);
    const bool ok = tp_save(from, file) && tp_load(to, file, &(tp_load_opts){ .partial = true });
    remove(file);
    rmdir(folder);
    if (!ok) gallery_fail(g, "%s%s", tp_params_why(from), tp_params_why(to));
}

static double run(const gallery *g)
{
    static pairs few;
    tp_random r = tp_random_stream(g->seed, "pairs", 0, 0);
    tp_params *base = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    tp_params *P = tp_params_new(g->D, &(tp_params_opts){ .seed = g->seed });
    net trained, tuned;
    net_init(base, &trained, "digits");
    tp_lora(P,
            &(tp_lora_opts){
                .rank = 2, .dropout = 0.2, .modules = "q_proj,v_proj", .train = "letters.weight" });
    net_init(P, &tuned, "letters");

    puts("trains on numbers in digits");
    train(g, base, &trained, NULL, &r);
    printf("digits: %.1f %% right\n", test(g, &trained, &r));
    hand_over(g, base, P);

    printf("letters, before: %.1f %% right\n", test(g, &tuned, &r));
    printf("trains %d small products and the table of letters\n", tp_lora_count(P));
    draw_pairs(&few, FEW, &r);
    train(g, P, &tuned, &few, &r);
    if (!tp_lora_merge(P)) gallery_fail(g, "%s", tp_params_why(P));
    const double right = test(g, &tuned, &r);
    tp_params_free(base);
    tp_params_free(P);
    return right;
}

static const gallery_program program = {
    .name = "finetune_lora",
    .summary = "a trained encoder learns another script by low-rank adaptation",
    .about = "Trains a transformer to say which of two numbers is smaller, saves it, and loads all "
             "but its table of digits into another model, for numbers written in letters. There "
             "the weights are frozen; what learns, from 512 pairs, is the table of letters, and "
             "small products (LoRA) beside the queries and values of attention, which are then "
             "merged into the weights. The result counts fresh pairs in letters.",
    .steps = 500,
    .result = "letters, after",
    .unit = " % right",
    .goal = 90.0,
    .higher = true,
    .run = run,
};

int main(int argc, char **argv)
{
    return gallery_main(&program, argc, argv);
}
