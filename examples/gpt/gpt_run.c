/* gpt_run.c - `gpt train`: next-token prediction over windows of texts. Windows form an endless
 * stream, so updates time the validations. They are independent: the model carries nothing from
 * batch to batch, and a run resumes from its position alone. */
#include <math.h>
#include <stdio.h>

#include "gpt.h"
#include "reports/paths.h"

typedef struct gpt_run {
    tp_bpe *vocab; /* these two belong to another run in a trial */
    tp_corpus *C;
    tp_loader *L;
    tp_tensor slot[TP_CLM_SLOTS];
    tp_model_cfg cfg;
    tp_net *m;
    int64_t tokens; /* of a window */
} gpt_run;

/* ---- opening ---- */

/* A new model has the vocabulary's outputs, and positions for the windows. */
static bool new_model(tp_model_cfg *c, const gpt_settings *s, const tp_bpe *X, char *why,
                      size_t size)
{
    if (!gpt_model_of_name(c, s->model, why, size)) return false;
    tp_common_cfg o = tp_model_get(c);
    o.outputs = tp_bpe_size(X);
    if (s->tokens > o.length) o.length = s->tokens;
    tp_model_set(c, &o);
    return true;
}

/* Chooses the model and opens the vocabulary. */
static bool find_model(tp_run *R, tp_file *from, char *why, size_t size)
{
    const gpt_settings *s = R->settings;
    gpt_run *t = R->state;
    const bool resume = s->train.resume;
    if (from && !gpt_model_of_file(&t->cfg, s->model, from, why, size)) return false;
    if (from && !resume && !adaptation_fits(&s->lora, from, "gpt merge", why, size)) return false;
    t->vocab = gpt_tokenizer(resume ? NULL : s->tokenizer, from, why, size);
    if (!t->vocab || (!from && !new_model(&t->cfg, s, t->vocab, why, size))) return false;
    return resume || gpt_change(&t->cfg, s, why, size);
}

static void check(tp_run *R)
{
    const gpt_settings *s = R->settings;
    gpt_run *t = R->state;
    char why[512];
    const int64_t rows = gpt_cfg(&t->cfg)->vocab, places = gpt_cfg(&t->cfg)->positions;
    if (s->lora.rank > 0 && !s->train.init && !s->train.resume)
        tp_run_fail(R, "--lora adapts trained weights: give them with --init");
    t->tokens = s->tokens ? s->tokens : places;
    R->units = s->train.batch * t->tokens;
    if (tp_bpe_size(t->vocab) > rows)
        tp_run_fail(R, "the vocabulary has %lld tokens, the model only %lld",
                    (long long)tp_bpe_size(t->vocab), (long long)rows);
    else if (!tp_model_check(&t->cfg, why, sizeof why))
        tp_run_fail(R, "impossible model: %s", why);
    else if (t->tokens > places)
        tp_run_fail(R, "--tokens %lld: the model has only %lld positions", (long long)t->tokens,
                    (long long)places);
}

static tp_clm_loader_opts windows(const tp_run *R, tp_part part)
{
    const gpt_settings *s = R->settings;
    const gpt_run *t = R->state;
    return (tp_clm_loader_opts){ .batch = s->train.batch,
                                 .length = t->tokens,
                                 .part = part,
                                 .train = part == TP_TRAIN,
                                 .seed = (uint64_t)s->train.seed,
                                 .share = tp_run_share(R) };
}

static void open_windows(tp_run *R)
{
    const gpt_settings *s = R->settings;
    gpt_run *t = R->state;
    const tp_clm_loader_opts o = windows(R, TP_TRAIN);
    t->L = tp_clm_loader_new(t->C, &o);
    if (!tp_loader_ok(t->L)) tp_run_fail(R, "%s: %s", s->x.paths, tp_loader_why(t->L));
    R->data_hash = tp_corpus_hash(t->C);
}

static void open_texts(tp_run *R, tp_file *from)
{
    gpt_settings *s = R->settings;
    gpt_run *t = R->state;
    char why[5000] = "";
    if (!s->x.paths) {
        tp_run_fail(R, "--data FILE is required: the texts to train on");
        return;
    }
    path_list_absolute(&s->x.paths);
    tp_absolute_path(&s->x.cache);
    tp_absolute_path(&s->tokenizer);
    s->x.threads = (int)s->train.machine.threads;
    if (find_model(R, from, why, sizeof why)) {
        check(R);
        t->C = tp_run_ok(R) ? gpt_texts(&s->x, t->vocab, why, sizeof why) : NULL;
    }
    if (why[0])
        tp_run_fail(R, "%s", why);
    else if (t->C && !tp_corpus_ok(t->C))
        tp_run_fail(R, "%s", tp_corpus_why(t->C));
    else if (t->C)
        open_windows(R);
}

/* For a trial, which reads the same texts. */
static void share_texts(tp_run *R, const tp_run *with)
{
    const gpt_settings *s = R->settings;
    const gpt_run *theirs = with->state;
    gpt_run *t = R->state;
    tp_gpt_cfg g = *gpt_cfg(&theirs->cfg);
    g.recompute = (tp_recompute)s->train.recompute;
    *t = (gpt_run){ .vocab = theirs->vocab,
                    .C = theirs->C,
                    .cfg = tp_model_cfg_of(theirs->cfg.model, &g),
                    .tokens = theirs->tokens };
    R->units = s->train.batch * t->tokens;
    open_windows(R);
}

static void close_texts(tp_run *R)
{
    gpt_run *t = R->state;
    tp_loader_free(t->L);
    tp_net_free(t->m);
    if (R->trial) return;
    tp_corpus_close(t->C);
    tp_bpe_close(t->vocab);
}

/* ---- the model ---- */

static void build(tp_run *R)
{
    const gpt_settings *s = R->settings;
    gpt_run *t = R->state;
    adaptation_begin(R->P, &s->lora, NULL);
    t->m = tp_net_new(R->P, "", &t->cfg);
}

static void take_weights(tp_run *R, tp_file *from)
{
    const gpt_run *t = R->state;
    if (!tp_net_load(R->P, t->m, from, false)) tp_run_fail(R, "%s", tp_params_why(R->P));
}

/* Neither biases nor norms decay. */
static tp_factors decay_matrices(const char *name, tp_shape shape, void *env)
{
    (void)name;
    (void)env;
    return (tp_factors){ .lr = 1, .decay = shape.ndim > 1 };
}

static tp_optim *new_optimizer(tp_run *R)
{
    const gpt_settings *s = R->settings;
    return tp_train_optimizer(R->P, &s->train, false, decay_matrices, NULL);
}

/* ---- steps ---- */

static void next_batch(tp_run *R)
{
    gpt_run *t = R->state;
    const int64_t steps = tp_loader_steps(t->L);
    const int64_t n = tp_loader_feed(t->L, R->T, R->batch / steps, R->batch % steps, t->slot);
    if (n == 0 && tp_ok(R->T)) tp_run_fail(R, "%s", tp_loader_why(t->L));
}

static tp_tensor batch_loss(tp_run *R)
{
    const gpt_run *t = R->state;
    const tp_tensor z = tp_net_forward(R->T, t->m, NULL, t->slot[0]);
    return tp_cross_entropy(R->T, z, t->slot[1], TP_MEAN);
}

/* ---- validation ---- */

static double validate(tp_run *R, char *text, size_t size)
{
    const gpt_settings *s = R->settings;
    const gpt_run *t = R->state;
    text_sum sum = { 0 };
    if (R->trial) return 0; /* needs less memory than training */
    const tp_clm_loader_opts o = windows(R, TP_VALID);
    tp_loader *V = tp_clm_loader_new(t->C, &o);
    tp_clm_batch b;
    for (int64_t n = 0; tp_clm_loader_next(V, &b) && !tp_run_stopped(R);) {
        gpt_score(&sum, R->E, t->m, t->vocab, &b);
        n += o.batch * R->ranks;
        if (s->eval_windows > 0 && n >= s->eval_windows) break;
    }
    tp_reset(R->E);
    if (!tp_loader_ok(V)) tp_run_fail(R, "%s", tp_loader_why(V));
    tp_loader_free(V);
    double all[] = { sum.nats, sum.targets, sum.bytes };
    tp_run_total(R, all, 3);
    sum = (text_sum){ all[0], all[1], all[2] };
    const double bits = gpt_bits_per_byte(&sum), perplexity = gpt_perplexity(&sum);
    snprintf(text, size, "%.4f bits per byte, perplexity %.2f", bits, perplexity);
    tp_run_note(R, "valid_perplexity", perplexity);
    tp_run_note_int(R, "valid_targets", (int64_t)sum.targets);
    return bits;
}

/* ---- descriptions and reports ---- */

static double flops(const tp_run *R)
{
    const gpt_settings *s = R->settings;
    const gpt_run *t = R->state;
    return 6.0 * tp_model_cost(&t->cfg, t->tokens, 0).macs *
           (double)(s->train.batch * s->train.accumulation);
}

static void describe(tp_run *R)
{
    const gpt_settings *s = R->settings;
    const tp_train_settings *o = &s->train;
    const gpt_run *t = R->state;
    char model[300];
    gpt_model_text(&t->cfg, model, sizeof model);
    tp_run_note_text(R, "model", model);
    tp_run_note_int(R, "vocabulary", tp_bpe_size(t->vocab));
    tp_run_note_int(R, "documents", tp_corpus_documents(t->C));
    tp_run_note_int(R, "bytes", tp_corpus_bytes(t->C));
    tp_run_note_int(R, "train_tokens", tp_corpus_tokens(t->C, TP_TRAIN));
    tp_run_note_int(R, "valid_tokens", tp_corpus_tokens(t->C, TP_VALID));
    tp_run_say(R, "%s; %lld parameters, %lld entries of the vocabulary", model,
               (long long)tp_params_count(R->P), (long long)tp_bpe_size(t->vocab));
    tp_run_say(R, "%s: %lld documents, %lld bytes, %lld tokens for training, %lld for validation%s",
               s->x.paths, (long long)tp_corpus_documents(t->C), (long long)tp_corpus_bytes(t->C),
               (long long)tp_corpus_tokens(t->C, TP_TRAIN),
               (long long)tp_corpus_tokens(t->C, TP_VALID),
               tp_corpus_was_cached(t->C) ? ", from the cache" : "");
    adaptation_say(R, &s->lora);
    tp_run_say(R, "an update: %lld x %lld windows of %lld tokens, %.4g GFLOP",
               (long long)o->accumulation, (long long)(R->ranks * o->batch), (long long)t->tokens,
               R->ranks * flops(R) * 1e-9);
}

static void report(tp_run *R, double loss, char *text, size_t size)
{
    const gpt_settings *s = R->settings;
    const gpt_run *t = R->state;
    const double passes =
        (double)(R->update * s->train.accumulation) / (double)tp_loader_steps(t->L);
    snprintf(text, size, "perplexity %.2f  pass %.2f", exp(loss), passes);
    tp_run_note(R, "perplexity", exp(loss));
    tp_run_note(R, "passes", passes);
}

/* The metadata for evaluation and generation. */
static void write_model(tp_run *R, tp_writer *W)
{
    const gpt_run *t = R->state;
    tp_model_write(&t->cfg, W);
    tokenizer_write(t->vocab, W);
    tp_writer_meta_int(W, "window", t->tokens);
    adaptation_write(&((const gpt_settings *)R->settings)->lora, NULL, W);
}

static void save_adapter(tp_run *R)
{
    adaptation_save(R, &((const gpt_settings *)R->settings)->lora);
}

/* ---- the program ---- */

static const char manual_more[] =
    "LOG\n"
    "    tokens (seen so far), tokens_per_s, loss (nats per token), perplexity, passes (over the\n"
    "    training windows); after a validation valid_bpb (bits per byte), valid_perplexity and\n"
    "    valid_targets, the tokens behind them\n\n"
    "EXAMPLES\n"
    "    gpt train --data novel.txt --time 600 --run-dir runs/novel\n"
    "    gpt train --data texts --tokenizer gpt2 --model gpt2 --cache texts.tokens --dtype bf16\n"
    "    gpt train --data novel.txt --init gpt2/model.safetensors --steps 100\n";

static const tp_training training = {
    .command = {
        .name = "gpt train",
        .summary = "trains GPT-2 or Llama on text",
        .synopsis = "--data FILE[,FILE ...] [--model NAME] [--tokenizer FILE] [flag ...]\n"
                    "    gpt train --resume [--run-dir DIR] [flag ...]",
        .about =
            "Trains a decoder-only transformer to predict the next token of any texts, from new "
            "weights or from those of a file. The texts are tokenised once, by byte pairs or as "
            "bytes, and cut into windows without padding; an epoch has each window once. Part of "
            "the stream is held out for validation, which gives bits per byte, comparable "
            "between vocabularies, and the perplexity per token.\n\n"
            "Without --recipe the recipe follows from --init, --lora and the model; other flags "
            "override it. The defaults below are those of " MODEL_DEFAULT ". Checkpoints hold the "
            "vocabulary.",
        .table = gpt_options,
        .more = manual_more,
    },
    .program = "gpt",
    .unit = "tokens",
    .score = "valid_bpb",
    .score_text = "validation %.4f bits per byte",
    .other_data = "the texts differ from those that this run trains and validates on; give those "
                  "with --data",
    .settings_size = sizeof(gpt_settings),
    .state_size = sizeof(gpt_run),
    .settings_of = gpt_settings_of,
    .open = open_texts,
    .share = share_texts,
    .build = build,
    .init = take_weights,
    .optimizer = new_optimizer,
    .next = next_batch,
    .loss = batch_loss,
    .validate = validate,
    .describe = describe,
    .report = report,
    .best = save_adapter,
    .write_model = write_model,
    .flops = flops,
    .close = close_texts,
};

int gpt_train_main(int argc, char **argv)
{
    return tp_train_main(&training, argc, argv);
}
