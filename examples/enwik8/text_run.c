/* text_run.c - trains on bytes of text: truncated backpropagation through time over contiguous
 * streams, with `accumulation` consecutive segments of every stream in an update. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "enwik8.h"

typedef struct text_run {
    tp_text *text;
    bool shared; /* the text belongs to another run */
    tp_streams *reader;
    int32_t *x, *y; /* [B,M] */

    tp_model_cfg cfg;
    tp_net *m;
    void *cache;              /* of the training streams */
    tp_tensor in, target;     /* slots: [B,M] */
    unknown_bytes unknown[2]; /* of the training and validation texts */
} text_run;

/* What R->sum counts: segments, targets that are not -1, and of these the <unk>. */
enum { SEGMENTS, COUNTED, LACKING };

/* ---- data ---- */

static uint64_t hash_ids(const int16_t *ids, int64_t n)
{
    uint64_t h = TP_HASH;
    for (int64_t i = 0; i < n; i++) h = tp_hash(h, (uint16_t)ids[i]);
    return h;
}

static bool read_vocab(tp_run *R, const tp_file *from, tp_vocab *v)
{
    char why[5000];
    if (lm_vocab_read(v, from, why, sizeof why)) return true;
    tp_run_fail(R, "%s", why);
    return false;
}

/* True if all members that the weights depend on agree with the --init checkpoint. */
static bool same_model(tp_run *R, tp_file *from)
{
    const settings *s = R->settings;
    settings there = *s; /* compared, not owned */
    tp_model_cfg theirs;
    char why[2048];
    if (!lm_cfg_read(&theirs, from, why, sizeof why)) {
        tp_run_fail(R, "%s", why);
        return false;
    }
    lm_cfg_into(&theirs, &there);
    if (!tp_options_differ(train_options, s, &there, TP_WEIGHTS, NULL, why, sizeof why))
        return true;
    tp_run_fail(R, "%s holds another model: %s", tp_file_path(from), why);
    return false;
}

/* A publisher's file does not describe its model. */
static bool is_published(const tp_file *from)
{
    return !tp_file_meta(from, "model");
}

/* The dictionary of the --init weights or of the resumed run. */
static bool take_vocab(tp_run *R, tp_file *from, tp_vocab *v)
{
    const settings *s = R->settings;
    char why[5000];
    if (!tp_run_ok(R)) return false;
    if (s->train.resume) return read_vocab(R, from, v);
    if (!is_published(from)) return same_model(R, from) && read_vocab(R, from, v);
    tp_model_cfg cfg = lm_cfg_of(s, 8); /* any size: that of the file follows */
    if (lm_published(&cfg, from, s->vocab, s->data, v, why, sizeof why)) return true;
    tp_run_fail(R, "%s", why);
    return false;
}

/* Opens a reader that cuts the training text into the run's segments. */
static void open_reader(tp_run *R)
{
    const settings *s = R->settings;
    text_run *t = R->state;
    const size_t cells = (size_t)(s->train.batch * s->tokens);
    t->reader = tp_streams_new(t->text, TP_TRAIN,
                               &(tp_streams_opts){ .batch = s->train.batch,
                                                   .tokens = s->tokens,
                                                   .all_targets = s->targets == TARGETS_ALL,
                                                   .share = tp_run_share(R) });
    t->x = malloc(cells * sizeof *t->x);
    t->y = malloc(cells * sizeof *t->y);
    if (!tp_streams_ok(t->reader)) tp_run_fail(R, "%s: %s", s->data, tp_streams_why(t->reader));
    if (!t->x || !t->y) tp_run_fail(R, "out of memory");
    R->units = (int64_t)cells;
    for (int k = TP_TRAIN; k <= TP_VALID; k++) t->unknown[k] = unknown_of(t->text, (tp_part)k);
}

static void check_model(tp_run *R)
{
    const settings *s = R->settings;
    text_run *t = R->state;
    char why[512];
    int64_t tokens;
    tp_text_ids(t->text, TP_TRAIN, &tokens);
    t->cfg = lm_cfg_of(s, tp_text_vocab(t->text)->size);
    if (!tp_model_check(&t->cfg, why, sizeof why))
        tp_run_fail(R, "impossible model: %s", why);
    else if (!lm_segment_check(&t->cfg, "--tokens", s->tokens, why, sizeof why))
        tp_run_fail(R, "%s", why);
    else if (s->mem_len > tokens && !s->train.resume)
        tp_run_fail(R, "--mem-len %lld: the training text has only %lld tokens",
                    (long long)s->mem_len, (long long)tokens);
}

static void open_text(tp_run *R, tp_file *from)
{
    settings *s = R->settings;
    text_run *t = R->state;
    tp_vocab vocab;
    int64_t n;
    if (!s->data) {
        tp_run_fail(R, "--data FILE is required: enwik8, text8 or any text");
        return;
    }
    if (s->vocab && (!from || !is_published(from)))
        tp_run_fail(R, "--vocab is the dictionary of a publisher's weights: give them with --init");
    if (from && !take_vocab(R, from, &vocab)) return;
    tp_absolute_path(&s->data);
    tp_absolute_path(&s->extra);
    t->text = tp_text_open(s->data, &(tp_text_opts){ .style = (tp_text_style)s->style,
                                                     .vocab = from ? &vocab : NULL,
                                                     .extra = s->extra });
    if (!tp_text_ok(t->text)) {
        tp_run_fail(R, "%s", tp_text_why(t->text));
        return;
    }
    const int16_t *ids = tp_text_ids(t->text, TP_TRAIN, &n);
    R->data_hash = hash_ids(ids, n);
    if (s->train.lr == 0)
        s->train.lr = preset_lr(s, tp_text_vocab(t->text)->style == TP_TEXT_TEXT8);
    open_reader(R);
    check_model(R);
}

static void share_text(tp_run *R, const tp_run *with)
{
    text_run *t = R->state;
    t->text = ((const text_run *)with->state)->text;
    t->shared = true;
    open_reader(R);
    check_model(R);
}

static void close_text(tp_run *R)
{
    text_run *t = R->state;
    tp_streams_free(t->reader);
    if (!t->shared) tp_text_close(t->text);
    tp_net_state_free(t->m, R->T, t->cache);
    tp_net_free(t->m);
    free(t->x);
    free(t->y);
}

/* ---- model ---- */

static void build(tp_run *R)
{
    text_run *t = R->state;
    t->m = tp_net_new(R->P, "", &t->cfg);
    t->cache = tp_net_state_new(t->m);
    if (!t->cache) tp_run_fail(R, "out of memory");
}

static tp_optim *new_optimizer(tp_run *R)
{
    const settings *s = R->settings;
    return tp_train_optimizer(R->P, &s->train, lm_kind_at(s->model)->raw_eps, NULL, NULL);
}

/* ---- steps ---- */

/* The number of targets; -1 marks a position without one. */
static int64_t text_targets(const int32_t *y, int64_t n)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i++) counted += y[i] >= 0;
    return counted;
}

static void next_segment(tp_run *R)
{
    const settings *s = R->settings;
    text_run *t = R->state;
    const tp_shape shape = TP_SHAPE(s->train.batch, s->tokens);
    tp_streams_next_host(t->reader, t->x, t->y);
    tp_feed(R->T, &t->in, TP_I32, shape, t->x);
    tp_feed(R->T, &t->target, TP_I32, shape, t->y);
    R->sum[COUNTED] += (double)text_targets(t->y, R->units);
    R->sum[LACKING] += (double)unknown_in(&t->unknown[TP_TRAIN], t->y, R->units);
    R->sum[SEGMENTS]++;
}

static tp_tensor segment_loss(tp_run *R)
{
    text_run *t = R->state;
    const tp_tensor logits = tp_net_forward(R->T, t->m, t->cache, t->in);
    return tp_cross_entropy(R->T, logits, t->target, TP_MEAN_ALL);
}

/* ---- validation ---- */

/* Each process scores some of the streams, perhaps none: `rows` of them from `first` on. */
typedef struct streams {
    tp_streams *reader;
    int32_t *x, *y; /* [B,M]: all streams */
    int64_t B, M, steps;
    int64_t first, rows;
} streams;

/* The number of tokens to score; 0: all. A trial only measures memory, so it stops once the cache
 * is full. */
static int64_t most_tokens(const tp_run *R)
{
    const settings *s = R->settings;
    const int64_t enough = (s->mem_len / s->tokens + 2) * R->units, limit = s->eval_tokens;
    return R->trial && (limit == 0 || limit > enough) ? enough : limit;
}

static streams open_streams(tp_run *R)
{
    const settings *s = R->settings;
    const text_run *t = R->state;
    int64_t n;
    tp_text_ids(t->text, TP_VALID, &n);
    const int64_t M = s->tokens, blocks = n > 1 ? (n - 1) / M + 1 : 1, most = most_tokens(R);
    const int64_t batch = s->train.batch * R->ranks, B = batch < blocks ? batch : blocks;
    streams v = { .B = B, .M = M, .first = B * R->rank / R->ranks };
    v.rows = B * (R->rank + 1) / R->ranks - v.first;
    v.reader = tp_streams_new(t->text, TP_VALID,
                              &(tp_streams_opts){ .batch = B, .tokens = M, .all_targets = true });
    v.x = malloc((size_t)(B * M) * sizeof *v.x);
    v.y = malloc((size_t)(B * M) * sizeof *v.y);
    if (!tp_streams_ok(v.reader)) tp_run_fail(R, "%s", tp_streams_why(v.reader));
    if (!v.x || !v.y) tp_run_fail(R, "out of memory");
    v.steps = tp_streams_ok(v.reader) && v.rows > 0 ? tp_streams_steps(v.reader) : 0;
    if (most > 0 && v.steps > (most - 1) / (B * M) + 1) v.steps = (most - 1) / (B * M) + 1;
    return v;
}

static void close_streams(streams *v)
{
    tp_streams_free(v->reader);
    free(v->x);
    free(v->y);
}

/* Scores the next segment of this process's streams; adds its cross entropy and counts to sum. */
static void score_segment(tp_run *R, const streams *v, void *cache, double sum[3])
{
    const text_run *t = R->state;
    tp_tape *E = R->E;
    const int64_t n = v->rows * v->M;
    tp_reset(E);
    tp_streams_next_host(v->reader, v->x, v->y);
    const int32_t *own = v->x + v->first * v->M, *target = v->y + v->first * v->M;
    const tp_tensor x = tp_from(E, TP_I32, TP_SHAPE(v->rows, v->M), own);
    const tp_tensor y = tp_from(E, TP_I32, TP_SHAPE(v->rows, v->M), target);
    const tp_tensor logits = tp_net_forward(E, t->m, cache, x);
    sum[0] += tp_item(E, tp_cross_entropy(E, logits, y, TP_SUM));
    sum[COUNTED] += (double)text_targets(target, n);
    sum[LACKING] += (double)unknown_in(&t->unknown[TP_VALID], target, n);
}

/* Scores every token of the validation text in one pass, in as many streams as in training. */
static double text_measure(tp_run *R, char *text, size_t size)
{
    const text_run *t = R->state;
    streams v = open_streams(R);
    void *cache = tp_net_state_new(t->m);
    double sum[3] = { 0 };
    for (int64_t i = 0; i < v.steps && !tp_run_stopped(R); i++) score_segment(R, &v, cache, sum);
    tp_net_state_free(t->m, R->E, cache);
    tp_reset(R->E);
    close_streams(&v);
    tp_run_total(R, sum, 3);
    const double bpc =
        unknown_bpc(&t->unknown[TP_VALID], sum[0], (int64_t)sum[COUNTED], (int64_t)sum[LACKING]);
    snprintf(text, size, "%.4f bpc", bpc);
    tp_run_note(R, "valid_bpc", bpc);
    return bpc;
}

/* ---- descriptions and reports ---- */

/* FLOPs of this process in an update; backward counts as twice forward, recomputation is not
 * counted. */
static double flops_by(const settings *s, int64_t vocab)
{
    const tp_model_cfg c = lm_cfg_of(s, vocab);
    return 6.0 * tp_model_cost(&c, s->tokens, s->mem_len).macs *
           (double)(s->train.batch * s->train.accumulation);
}

static double flops(const tp_run *R)
{
    return flops_by(R->settings, tp_text_vocab(((const text_run *)R->state)->text)->size);
}

/* For a dictionary of other text (--init). */
static void say_unknown(tp_run *R)
{
    static const char *const part[] = { "the training text", "the validation text" };
    const text_run *t = R->state;
    for (int k = TP_TRAIN; k <= TP_VALID; k++) {
        char line[300];
        const int64_t count = tp_text_unknown(t->text, (tp_part)k);
        unknown_say(&t->unknown[k], count, part[k], line, sizeof line);
        if (count > 0) tp_run_say(R, "%s", line);
    }
}

static void describe(tp_run *R)
{
    const settings *s = R->settings;
    const text_run *t = R->state;
    const int64_t vocab = tp_text_vocab(t->text)->size;
    tp_run_note_int(R, "vocabulary", vocab);
    tp_run_say(R, "%s: %lld layers, width %lld; %lld parameters, %lld of them embeddings",
               lm_kind_at(s->model)->name, (long long)s->layers, (long long)s->dim,
               (long long)tp_params_count(R->P), (long long)(vocab * s->dim));
    tp_run_say(R, "%s%s%s: %lld + %lld + %lld bytes for training, validation and test, %lld tokens",
               s->data, s->extra ? " and " : "", s->extra ? s->extra : "",
               (long long)tp_text_bytes(t->text, TP_TRAIN),
               (long long)tp_text_bytes(t->text, TP_VALID),
               (long long)tp_text_bytes(t->text, TP_TEST), (long long)vocab);
    say_unknown(R);
    tp_run_say(R, "an update: %lld x %lld streams of %lld tokens after %lld cached, %.4g GFLOP",
               (long long)s->train.accumulation, (long long)(s->train.batch * R->ranks),
               (long long)s->tokens, (long long)s->mem_len, R->ranks * flops(R) * 1e-9);
}

/* The loss averages over all positions, bits per character over those with a target. */
static void report(tp_run *R, double loss, char *text, size_t size)
{
    const text_run *t = R->state;
    const double nll = loss * R->sum[SEGMENTS] * (double)R->units;
    const double bpc =
        unknown_bpc(&t->unknown[TP_TRAIN], nll, (int64_t)R->sum[COUNTED], (int64_t)R->sum[LACKING]);
    snprintf(text, size, "bpc %.4f", bpc);
    tp_run_note(R, "bpc", bpc);
}

/* ---- checkpoints ---- */

/* The metadata for evaluation and generation. */
static void write_model(tp_run *R, tp_writer *W)
{
    const settings *s = R->settings;
    const text_run *t = R->state;
    char vocab[2048];
    tp_vocab_print(tp_text_vocab(t->text), vocab, sizeof vocab);
    tp_model_write(&t->cfg, W);
    tp_writer_meta(W, "vocab", vocab);
    tp_writer_meta_int(W, "segment", s->tokens);
}

static const char *const sum_key[] = { "sum.segments", "sum.counted", "sum.lacking" };

static void write_state(tp_run *R, tp_writer *W)
{
    const text_run *t = R->state;
    tp_writer_meta_int(W, "position", tp_streams_position(t->reader));
    for (int k = SEGMENTS; k <= LACKING; k++) tp_writer_meta_int(W, sum_key[k], (int64_t)R->sum[k]);
    t->cfg.model->state_write(R->T, tp_net_module(t->m), t->cache, W);
}

static void read_state(tp_run *R, tp_file *F)
{
    text_run *t = R->state;
    int64_t position = -1, sum[3] = { 0 };
    for (int k = SEGMENTS; k <= LACKING; k++) {
        if (!tp_file_int(F, sum_key[k], &sum[k])) return;
        R->sum[k] = (double)sum[k];
    }
    if (!tp_file_int(F, "position", &position)) return;
    if (position < 0 || position > INT64_C(1) << 60) {
        tp_run_fail(R, "%s: 'position' is %s", tp_file_path(F),
                    tp_file_meta(F, "position") ? "out of range" : "missing");
        return;
    }
    t->cfg.model->state_read(R->T, tp_net_module(t->m), t->cache, F);
    tp_streams_seek(t->reader, position);
}

/* ---- forecasts ---- */

/* Updates until the cache is full. */
static int64_t warm_updates(const tp_run *R)
{
    const settings *s = R->settings;
    return s->mem_len / s->tokens + 2;
}

static const double TRIAL_FLOPS = 8e10;

/* Keeps one layer and halves segment and cache until a batch is cheap enough for a trial. Shortens
 * a growing cache so that two updates fill it. */
static void make_smaller(const tp_run *R, void *settings_of_trial)
{
    const int64_t vocab = tp_text_vocab(((const text_run *)R->state)->text)->size;
    settings *s = settings_of_trial;
    s->layers = 1;
    while (flops_by(s, vocab) > TRIAL_FLOPS) {
        char why[512];
        settings h = *s;
        h.tokens /= 2;
        h.mem_len /= 2;
        const tp_model_cfg c = lm_cfg_of(&h, vocab);
        if (h.tokens < 2 || !tp_model_check(&c, why, sizeof why) ||
            !lm_segment_check(&c, "--tokens", h.tokens, why, sizeof why))
            break;
        *s = h;
    }
    if (lm_kind_at(s->model)->grows(s) && s->mem_len > 2 * s->tokens) s->mem_len = 2 * s->tokens;
}

/* ---- the program ---- */

static bool settings_of(void *settings_of_run, const void *asked, const tp_given_flags *given,
                        char *why, size_t size)
{
    const settings *a = asked;
    if (!a) return settings_start(settings_of_run, 0, PRESET_TINY, 1, why, size);
    return settings_start(settings_of_run, a->model, a->preset, a->phase, why, size) &&
           (!a->set || a->train.resume || settings_set(settings_of_run, a, given, why, size));
}

static const char manual_more[] =
    "LOG\n"
    "    tokens (seen so far), bpc, tokens_per_s; valid_bpc after a validation\n\n"
    "EXAMPLES\n"
    "    enwik8 train --data enwik8.zip --preset small --run-dir runs/phase1\n"
    "    enwik8 train --data enwik8.zip --preset small --phase 2 --run-dir runs/phase2 \\\n"
    "        --init runs/phase1/last.safetensors\n"
    "    enwik8 train --data novel.txt --time 600 --run-dir runs/novel\n";

static const tp_training text_training = {
    .command = {
        .name = "enwik8 train",
        .summary = "trains a language model on bytes of text",
        .synopsis = "--data FILE [--preset tiny|mini|small|large] [--phase 1|2|3] [flag ...]\n"
                    "    enwik8 train --resume [--run-dir DIR] [--steps N] [flag ...]",
        .about =
            "Trains Transformer-LS (or Transformer-XL) to predict the next byte of enwik8, text8 "
            "or any other text: 90 % of the file is for training, 5 % each for validation and "
            "test. A batch of text streams is read segment by segment, with a cache of earlier "
            "segments.\n\n"
            "A preset sets every hyperparameter; flags override it. The presets small and large "
            "have the paper's three phases: each starts from the weights of the previous one "
            "(--init) and doubles the segment length. The defaults below are those of the preset "
            "tiny.",
        .table = train_options,
        .more = manual_more,
    },
    .program = "enwik8",
    .unit = "tokens",
    .score = "valid_bpc",
    .score_text = "validation %.4f bpc",
    .other_data = "the text differs from the one this run was trained on; "
                  "give that one with --data (and --extra)",
    .settings_size = sizeof(settings),
    .state_size = sizeof(text_run),
    .settings_of = settings_of,
    .open = open_text,
    .share = share_text,
    .build = build,
    .optimizer = new_optimizer,
    .next = next_segment,
    .loss = segment_loss,
    .validate = text_measure,
    .describe = describe,
    .report = report,
    .write_model = write_model,
    .write = write_state,
    .read = read_state,
    .flops = flops,
    .warm = warm_updates,
    .smaller = make_smaller,
    .close = close_text,
};

int train_main(int argc, char **argv)
{
    return tp_train_main(&text_training, argc, argv);
}
