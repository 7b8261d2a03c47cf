/* model_steps.c - training steps of a model with made-up inputs, their kernels' time, and the time
 * to generate a token. */
#include "model_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tapegrad/lm.h>
#include <tapegrad/roberta.h>

#include "timing.h"

/* Before a step whose kernels are measured, MAXIMA maxima over this many elements are queued (10 ms
 * on a GPU). The models do not use this op. */
enum { MAXIMA = 32, ELEMENTS = 134217728, SMOKE_ELEMENTS = 1024, LINES = 256 };

double process_peak_mb(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_maxrss / 1024.0;
}

bool on_cuda(const setup *s)
{
    return strncmp(s->device, "cuda", 4) == 0;
}

/* ---- batches ---- */

/* Does the model predict 15 % of the tokens of its texts? */
static bool is_mlm(const setup *s)
{
    return s->model.model == &tp_model_roberta &&
           ((const tp_roberta_cfg *)&s->model.at)->head == TP_ROBERTA_MLM;
}

double skipped_macs(const setup *s)
{
    const tp_roberta_cfg *c = (const tp_roberta_cfg *)&s->model.at;
    if (!is_mlm(s)) return 0.0;
    return 0.85 * (double)s->tokens * (double)c->dim * (double)(c->dim + c->vocab);
}

/* Host arrays: random images and labels, the same in every step; or memory for tokens, which are
 * redrawn for each step. */
typedef struct batch {
    tp_shape shape, targets;
    float *images;
    int32_t *ids, *labels, *rows; /* rows: of tokens that is_mlm() predicts */
} batch;

static uint32_t state;

static uint32_t draw(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static int64_t count(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

static bool batch_new(batch *b, const setup *s)
{
    const int64_t outputs = tp_model_get(&s->model).outputs;
    *b = (batch){ .shape = tp_model_input_shape(&s->model, s->batch, s->tokens) };
    const int64_t values = count(b->shape);
    b->targets = is_lm(s) ? b->shape : TP_SHAPE(is_mlm(s) ? (values * 15 + 99) / 100 : s->batch);
    const int64_t n = count(b->targets);
    state = 1;
    b->labels = malloc((size_t)n * sizeof *b->labels);
    for (int64_t i = 0; b->labels && i < n; i++) b->labels[i] = (int32_t)(i * 7 % outputs);
    if (is_text(s)) {
        b->ids = malloc((size_t)values * sizeof *b->ids);
        b->rows = malloc((size_t)n * sizeof *b->rows);
        for (int64_t i = 0; b->rows && i < n; i++) b->rows[i] = (int32_t)(i * values / n);
        return b->ids && b->labels && b->rows;
    }
    b->images = malloc((size_t)values * sizeof *b->images);
    for (int64_t i = 0; b->images && i < values; i++)
        b->images[i] = (float)draw() / 8388608.0F - 1.0F;
    return b->images && b->labels;
}

static void batch_free(batch *b)
{
    free(b->images);
    free(b->ids);
    free(b->labels);
    free(b->rows);
}

/* Draws tokens from [4,vocab), or from [0,vocab) for a smaller vocabulary. Documents are full: 0,
 * padding, is not drawn for them. */
static void draw_tokens(const setup *s, tp_shape shape, int32_t *ids)
{
    const tp_common_cfg o = tp_model_get(&s->model);
    const int64_t vocab = is_lm(s) ? o.outputs : o.vocab, first = vocab > 4 ? 4 : !is_lm(s);
    const int64_t n = count(shape), words = vocab > first ? vocab - first : 1;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(first + draw() % words);
}

/* Feeds inputs and targets of a step into their slots, as a loader would. */
static void feed(tp_tape *T, const setup *s, const batch *b, tp_tensor *x, tp_tensor *y,
                 tp_tensor *rows)
{
    if (b->ids) {
        draw_tokens(s, b->shape, b->ids);
        tp_feed(T, x, TP_I32, b->shape, b->ids);
        if (is_lm(s)) draw_tokens(s, b->targets, b->labels);
    } else {
        tp_feed(T, x, TP_F32, b->shape, b->images);
    }
    tp_feed(T, y, TP_I32, b->targets, b->labels);
    if (is_mlm(s)) tp_feed(T, rows, TP_I32, b->targets, b->rows);
}

/* ---- steps ---- */

#define RATE 1e-4

typedef struct training {
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_capture *C;
    tp_net *net;
    void *state;
    tp_tensor x, y, rows; /* slots */
} training;

static void training_new(training *t, tp_device *D, const setup *s)
{
    *t = (training){ .x = TP_NONE, .y = TP_NONE, .rows = TP_NONE };
    t->P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    t->T = tp_tape_new(D, &(tp_tape_opts){ .seed = 1, .compute = s->dtype, .train = true });
    t->net = tp_net_new(t->P, "", &s->model);
    t->state = tp_net_state_new(t->net);
    if (s->model.model->redraw) s->model.model->redraw(t->P, tp_net_module(t->net), 1, 0);
    if (!tp_params_ok(t->P)) tp_raise(t->T, TP_E_VALUE, "%s", tp_params_why(t->P));
    t->O = tp_adamw_new(t->P, &(tp_adamw_opts){ .weight_decay = 0.01, .raw_eps = true });
    t->C = tp_capture_new(t->T);
}

static void training_free(training *t)
{
    tp_capture_free(t->C);
    tp_optim_free(t->O);
    tp_net_state_free(t->net, t->T, t->state);
    tp_tape_free(t->T);
    tp_net_free(t->net);
    tp_params_free(t->P);
}

static void queue_ahead(tp_tape *T, tp_tensor x)
{
    for (int i = 0; tp_given(x) && i < MAXIMA; i++) tp_max(T, x, TP_ALL);
}

/* Full texts as packed documents. */
static tp_roberta_packed packed(tp_tape *T, tp_tensor ids)
{
    const int64_t B = tp_dim(ids, 0), n = tp_dim(ids, 1);
    const double each = (double)n, end = (double)((B + 1) * n);
    const tp_tensor place = tp_expand(T, tp_arange(T, TP_I32, 0.0, each, 1.0), TP_SHAPE(B, n));
    return (tp_roberta_packed){ .ids = tp_reshape(T, ids, TP_SHAPE(B * n)),
                                .position = tp_reshape(T, place, TP_SHAPE(B * n)),
                                .of = { tp_arange(T, TP_I32, 0.0, end, each), n } };
}

/* Texts are packed on the CPU and padded on a GPU, as examples/imdb does it. */
static tp_tensor logits_of(training *t, const setup *s)
{
    const tp_roberta *m = tp_net_module(t->net);
    tp_tape *T = t->T;
    if (s->model.model != &tp_model_roberta || (on_cuda(s) && !is_mlm(s)))
        return tp_net_forward(T, t->net, t->state, t->x);
    if (!is_mlm(s)) return tp_roberta_forward_packed(T, m, packed(T, t->x));
    const tp_tensor x = on_cuda(s) ? tp_roberta_encode(T, m, (tp_roberta_in){ .ids = t->x })
                                   : tp_roberta_encode_packed(T, m, packed(T, t->x));
    return tp_roberta_predict(T, m, x, t->rows);
}

/* Forward, backward, clipping and AdamW. */
static void run_step(training *t, const setup *s)
{
    tp_backward(t->T, tp_cross_entropy(t->T, logits_of(t, s), t->y, TP_MEAN));
    if (s->clip) tp_clip_grad_norm(t->P, 1.0);
    tp_step(t->O, RATE);
}

static void take_step(training *t, const setup *s, const batch *b, tp_tensor ahead)
{
    tp_tape *T = t->T;
    feed(T, s, b, &t->x, &t->y, &t->rows);
    if (!s->graph) tp_reset(T);
    queue_ahead(T, ahead);
    tp_next_rate(t->O, RATE);
    if (!s->graph || tp_capture_begin(t->C)) {
        run_step(t, s);
        if (s->graph) tp_capture_end(t->C);
    }
}

bool take_steps(tp_device *D, const setup *s, tp_tensor ahead, double *seconds)
{
    const int warm_up = on_cuda(s) && !s->smoke ? 4 : 1;
    double began = 0.0;
    training t;
    batch data;
    training_new(&t, D, s);
    if (!batch_new(&data, s)) tp_raise(t.T, TP_E_MEMORY, "out of memory for the batch");
    for (int u = -warm_up; u < s->steps && tp_ok(t.T); u++) {
        const double start = now();
        if (u == 0) {
            tp_device_sync(D);
            tp_device_reset_profile(D);
            if (s->mark) s->mark();
            began = now();
        }
        take_step(&t, s, &data, ahead);
        if (u >= 0) seconds[u] = now() - start;
        if (tp_given(ahead)) tp_device_profile(D, NULL, 0); /* waits for the step */
    }
    if (s->mark) s->mark();
    if (tp_device_sync(D) && on_cuda(s))
        for (int u = 0; u < s->steps; u++) seconds[u] = (now() - began) / s->steps;
    const bool done = tp_ok(t.T);
    if (!done) fprintf(stderr, "%s\n", tp_why(t.T));
    training_free(&t);
    batch_free(&data);
    return done;
}

double predicted_mb(const setup *s)
{
    static double unused[MAX_STEPS];
    const tp_device_opts o = { .threads = s->threads, .dry = true };
    tp_device *D = tp_device_open(s->device, &o);
    const bool done = take_steps(D, s, TP_NONE, unused);
    const tp_stats stats = tp_device_stats(D);
    tp_device_close(D);
    return done ? (double)stats.peak_bytes / 1048576.0 : 0.0;
}

double kernel_seconds(const setup *s)
{
    static double unused[MAX_STEPS];
    tp_op_time line[LINES];
    const tp_device_opts o = { .threads = s->threads, .profile = true };
    setup plain = *s;
    plain.graph = false; /* kernels of a graph are not timed individually */
    tp_device *D = tp_device_open(s->device, &o);
    tp_params *P = tp_params_new(D, NULL);
    const int64_t n = s->smoke ? SMOKE_ELEMENTS : ELEMENTS;
    const tp_init zero = { TP_INIT_ZERO, 0.0, 0.0 };
    const tp_tensor x = tp_param(P, "x", TP_SHAPE(n), zero, TP_FROZEN);
    double sum = 0.0;
    if (take_steps(D, &plain, x, unused)) {
        const int lines = tp_device_profile(D, line, LINES);
        for (int i = 0; i < lines && i < LINES; i++)
            if (strcmp(line[i].op, "max") != 0) sum += line[i].seconds / s->steps;
    }
    tp_params_free(P);
    tp_device_close(D);
    return sum;
}

/* ---- generating ---- */

enum { DECODED = 200, MOST_SYMBOLS = 1 << 16 };

/* Token t of a fixed sequence. */
static int64_t token(const setup *s, int64_t t)
{
    const int64_t vocab = tp_model_get(&s->model).outputs;
    return vocab > 4 ? 4 + t * 7 % (vocab - 4) : 0;
}

int decode(const setup *s)
{
    static const int64_t contexts[] = { 1024, 16384, 65536 };
    static double seconds[DECODED];
    static float logits[MOST_SYMBOLS];
    if (s->model.model != &tp_model_ls_lm || tp_model_get(&s->model).outputs > MOST_SYMBOLS) {
        fprintf(stderr, "bench_models: --generate needs a Transformer-LS language model\n");
        return 2;
    }
    tp_device *D = tp_device_open(s->device, &(tp_device_opts){ .threads = s->threads });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = s->dtype });
    tp_net *N = tp_net_new(P, "", &s->model);
    tp_ls_lm_decoder *d = tp_ls_lm_decoder_new(T, tp_net_module(N), s->tokens);
    int64_t t = 0;
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts && tp_ok(T); i++) {
        for (; t < contexts[i]; t++) tp_ls_lm_decode(d, token(s, t), NULL);
        for (int u = 0; u < DECODED; u++, t++) {
            const double start = now();
            tp_ls_lm_decode(d, token(s, t), logits);
            seconds[u] = now() - start;
        }
        printf("{\"model\": \"%s\", \"context\": %lld, \"threads\": %d, \"ms_a_token\": %.4f, "
               "\"process_peak_mb\": %.0f}\n",
               s->name, (long long)contexts[i], tp_device_stats(D).threads,
               1e3 * median(seconds, DECODED), process_peak_mb());
        fflush(stdout);
    }
    if (!tp_ok(T)) fprintf(stderr, "%s\n", tp_why(T));
    const int status = !tp_ok(T);
    tp_ls_lm_decoder_free(d);
    tp_tape_free(T);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return status;
}
