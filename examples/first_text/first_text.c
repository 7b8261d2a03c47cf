/* first_text.c - a small transformer that labels lines of text; docs/tutorial.md explains it. */
#include <stdio.h>
#include <tapegrad/data.h>
#include <tapegrad/random.h>
#include <tapegrad/train.h>

enum { LAYERS = 2, WIDTH = 64, HEADS = 4, MAX_LENGTH = 4096 };

typedef struct settings {
    tp_train_settings train; /* the settings of every training program */
    char *data;
    int64_t length, hold_back;
} settings;

static const tp_option flags[] = {
    TP_HEADING("DATA"),
    TP_STRING("data", settings, data, "FILE", TP_FREE, "Lines \"LABEL<tab>TEXT\"."),
    TP_INT("length", settings, length, 1, MAX_LENGTH, TP_SAVED,
           "Read the first N bytes of a text."),
    TP_INT("hold-back", settings, hold_back, 2, 1000000, TP_SAVED,
           "Keep every N-th line for validation."),
    TP_ROWS(tp_train_options),
    { 0 },
};

typedef struct state {
    tp_table *lines;
    tp_examples *examples;
    tp_tensor train[2], valid[2]; /* a batch: bytes [B,length], labels [B] */
    tp_embedding_m bytes, places;
    tp_encoder_layer_m layer[LAYERS];
    tp_linear_m head;
} state;

/* Generates true and false comparisons of numbers. */
static tp_table *make_up(void)
{
    static char text[100000];
    size_t n = 0;
    tp_random r = tp_random_stream(1, "comparisons", 0, 0);
    for (int i = 0; i < 4000; i++) {
        const int a = (int)tp_random_below(&r, 1000), b = (int)tp_random_below(&r, 1000);
        n += (size_t)sprintf(text + n, "%s\t%03d < %03d\n", a < b ? "true" : "false", a, b);
    }
    return tp_table_from(text, n, NULL);
}

static void open_lines(tp_run *R, tp_file *from)
{
    settings *s = R->settings;
    state *t = R->state;
    const tp_column columns[] = { { TP_I32, TP_SHAPE(s->length) }, { TP_I32, TP_SCALAR } };
    const tp_examples_opts o = { .batch = s->train.batch,
                                 .seed = (uint64_t)s->train.seed,
                                 .hold_back_every = s->hold_back,
                                 .share = tp_run_share(R) };
    (void)from; /* the checkpoint of --resume or --init, or NULL */
    tp_absolute_path(&s->data);
    t->lines = s->data ? tp_table_open(s->data, &(tp_table_opts){ .columns = 2 }) : make_up();
    t->examples = tp_examples_new(2, columns, &o);
    for (int64_t i = 0; i < tp_table_rows(t->lines); i++) {
        int32_t bytes[MAX_LENGTH], label = tp_table_label(t->lines, i, 0);
        const char *text = tp_table_cell(t->lines, i, 1);
        for (int64_t k = 0; k < s->length; k++) bytes[k] = *text ? (unsigned char)*text++ : ' ';
        tp_examples_add(t->examples, (const void *[]){ bytes, &label });
    }
    R->batches = tp_examples_steps(t->examples, TP_TRAIN);
    R->data_hash = tp_examples_hash(t->examples);
    if (!tp_table_ok(t->lines)) tp_run_fail(R, "%s", tp_table_why(t->lines));
    if (!tp_examples_ok(t->examples)) tp_run_fail(R, "%s", tp_examples_why(t->examples));
    if (tp_examples_count(t->examples, TP_VALID) == 0)
        tp_run_fail(R, "no line is left for validation: lower --hold-back");
}

static void build(tp_run *R)
{
    static const char *const name[LAYERS] = { "layers.0", "layers.1" };
    const tp_encoder_layer_cfg layer = { WIDTH, 4 * WIDTH, HEADS, TP_ACT_GELU, .dropout = 0.1 };
    const int64_t length = ((settings *)R->settings)->length;
    state *t = R->state;
    tp_embedding_init(R->P, &t->bytes, "bytes", 256, WIDTH);
    tp_embedding_init(R->P, &t->places, "places", length, WIDTH);
    for (int i = 0; i < LAYERS; i++) tp_encoder_layer_init(R->P, &t->layer[i], name[i], layer);
    tp_linear_init(R->P, &t->head, "head", WIDTH, tp_table_labels(t->lines, 0), true);
}

/* bytes [B,length] -> logits [B,labels] */
static tp_tensor forward(tp_tape *T, const state *t, tp_tensor bytes)
{
    tp_tensor x = tp_add(T, tp_embedding_forward(T, &t->bytes, bytes, 1), t->places.weight);
    x = tp_cast(T, x, tp_compute_dtype(T)); /* --dtype */
    for (int i = 0; i < LAYERS; i++) x = tp_encoder_layer_forward(T, &t->layer[i], x, TP_NONE);
    return tp_linear_forward(T, &t->head, tp_mean(T, x, 1));
}

static void next(tp_run *R)
{
    state *t = R->state;
    tp_examples_feed(t->examples, R->T, TP_TRAIN, R->epoch, R->batch, t->train);
}

static tp_tensor loss(tp_run *R)
{
    const state *t = R->state;
    return tp_cross_entropy(R->T, forward(R->T, t, t->train[0]), t->train[1], TP_MEAN);
}

static double validate(tp_run *R, char *text, size_t size)
{
    state *t = R->state;
    tp_tape *E = R->E;
    double found = 0;
    (void)text, (void)size; /* text could describe more than the score */
    for (int64_t i = 0; !tp_run_stopped(R); i++) {
        tp_reset(E);
        if (tp_examples_feed(t->examples, E, TP_VALID, 0, i, t->valid) == 0) break;
        const tp_tensor best = tp_argmax(E, forward(E, t, t->valid[0]), 1);
        found += tp_item(E, tp_sum(E, tp_eq(E, best, t->valid[1]), TP_ALL));
    }
    tp_run_total(R, &found, 1);
    return 100 * found / (double)tp_examples_count(t->examples, TP_VALID);
}

static void close_lines(tp_run *R)
{
    tp_examples_free(((state *)R->state)->examples);
    tp_table_close(((state *)R->state)->lines);
}

static const tp_training training = {
    .command = { .name = "first_text",
                 .summary = "trains a small text classifier",
                 .about =
                     "Trains a small transformer on --data, or on comparisons of numbers if it "
                     "is not given.",
                 .table = flags },
    .unit = "lines",
    .score = "accuracy",
    .score_text = "accuracy %.2f %%",
    .higher = true,
    .settings_size = sizeof(settings),
    .state_size = sizeof(state),
    .defaults = "--epochs 6 --lr 0.001 --ema 0.99 --length 32 --hold-back 10",
    .open = open_lines,
    .build = build,
    .next = next,
    .loss = loss,
    .validate = validate,
    .close = close_lines,
};

int main(int argc, char **argv)
{
    return tp_train_main(&training, argc - 1, argv + 1);
}
