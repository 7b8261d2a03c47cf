/* lra_run.c - trains an encoder on labelled documents. As in the official code, training examples
 * form an endless stream, so updates time the validations. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lra.h"

typedef struct lra_run {
    tp_documents *X[3]; /* by tp_part; the test's may be NULL; a trial borrows them */
    tp_loader *L;       /* NULL in a trial, whose documents are noise */
    tp_lra_cfg cfg;
    encoder m;
    tp_optim *O;               /* the engine's; beta1 changes during the run */
    tp_tensor slot[DOC_SLOTS]; /* the batch */
    int64_t length;            /* of a trial's documents */
    double mean;               /* mean tokens of a document */
    int64_t tokens;            /* in the batches up to the last report, with padding */
    doc_noise noise;           /* of a trial */
} lra_run;

/* What R->sum counts: tokens since the last report. */
enum { TOKENS };

/* ---- data ---- */

/* Batches of this process. */
static encoder_batching batching(const tp_run *R)
{
    encoder_batching how = lra_batching(R->settings);
    how.share = tp_run_share(R);
    return how;
}

static void open_parts(tp_run *R)
{
    lra_settings *s = R->settings;
    lra_run *t = R->state;
    task_open_training(&s->d, t->X);
    if (task_is_one_table(&s->d) && tp_documents_ok(t->X[TP_TRAIN]))
        s->d.table = task_table_of(t->X[TP_TRAIN]);
    if (s->d.table)
        tp_run_say(
            R, "%s is one table: every tenth example is for validation and test, not for training",
            s->d.path);
    for (int k = TP_TRAIN; k <= TP_VALID && tp_run_ok(R); k++)
        if (!tp_documents_ok(t->X[k]))
            tp_run_fail(R, "%s", tp_documents_why(t->X[k]));
        else if (tp_documents_note(t->X[k])[0])
            tp_run_say(R, "%s", tp_documents_note(t->X[k]));
}

static void open_loader(tp_run *R)
{
    const lra_settings *s = R->settings;
    lra_run *t = R->state;
    tp_document_loader_opts o = encoder_batches(&t->cfg, batching(R));
    o.seed = (uint64_t)s->train.seed;
    o.train = true;
    t->L = tp_document_loader_new(t->X[TP_TRAIN], &o);
    char source[4200];
    if (!tp_loader_ok(t->L))
        tp_run_fail(R, "%s: %s", task_source(&s->d, source, sizeof source), tp_loader_why(t->L));
    t->mean = o.length ? (double)o.length : doc_mean_length(t->X[TP_TRAIN], NULL);
    R->units = s->train.batch;
    R->data_hash = tp_documents_hash(t->X[TP_TRAIN]);
}

static bool choose_model(tp_run *R)
{
    lra_run *t = R->state;
    char why[512];
    if (lra_model(R->settings, &t->cfg, why, sizeof why)) return true;
    tp_run_fail(R, "impossible model: %s", why);
    return false;
}

static void open_documents(tp_run *R, tp_file *from)
{
    lra_settings *s = R->settings;
    char why[512];
    if (s->train.resume) doc_keep_end(R, from);
    if (s->train.resume && !tp_file_meta(from, "train.packed")) s->packed = 0; /* an older run */
    tp_absolute_path(&s->d.path);
    if (!tp_run_ok(R) || !choose_model(R)) return;
    if (!task_data_check(&s->d, why, sizeof why)) {
        tp_run_fail(R, "%s", why);
        return;
    }
    if (s->train.warmup > (double)s->train.steps)
        tp_run_fail(R, "--warmup %g is longer than the run of --steps %lld", s->train.warmup,
                    (long long)s->train.steps);
    if (tp_run_ok(R)) open_parts(R);
    if (tp_run_ok(R)) open_loader(R);
}

/* The document length of a trial. If padded: that of the run's longest documents. */
static int64_t trial_length(const lra_settings *s, const tp_lra_cfg *c, const tp_documents *X)
{
    const tp_document_loader_opts o = encoder_batches(c, lra_batching(s));
    const int64_t longest = tp_documents_longest(X), unit = o.multiple ? o.multiple : 1;
    if (o.length) return o.length;
    if (o.packed && o.bucket <= 1) return doc_packed_length(X, s->train.batch);
    return (longest + unit - 1) / unit * unit;
}

/* A trial repeats one batch of noise. */
static void share_documents(tp_run *R, const tp_run *with)
{
    const lra_settings *s = R->settings;
    const lra_run *theirs = with->state;
    lra_run *t = R->state;
    memcpy(t->X, theirs->X, sizeof t->X);
    if (!choose_model(R)) return;
    t->length = trial_length(s, &t->cfg, theirs->X[TP_TRAIN]);
    t->mean = (double)t->length;
    R->units = s->train.batch;
    const doc_noise_opts o = { .n = R->units,
                               .length = t->length,
                               .first = 1,
                               .ids = task_of(&s->d)->ids,
                               .classes = t->cfg.classes,
                               .documents = t->cfg.pair ? 2 : 1,
                               .packed = s->packed };
    if (!doc_noise_make(&t->noise, &o)) tp_run_fail(R, "out of memory");
}

static void close_documents(tp_run *R)
{
    lra_run *t = R->state;
    tp_loader_free(t->L);
    for (int k = TP_TRAIN; k <= TP_TEST && !R->trial; k++) tp_documents_close(t->X[k]);
    doc_noise_free(&t->noise);
    encoder_free(&t->m);
}

/* ---- model ---- */

static void build(tp_run *R)
{
    const lra_settings *s = R->settings;
    lra_run *t = R->state;
    encoder_init(R->P, &t->m, &t->cfg, (uint64_t)s->train.seed);
}

static tp_optim *new_optimizer(tp_run *R)
{
    lra_run *t = R->state;
    return t->O = tp_train_optimizer(R->P, R->settings, false, NULL, NULL);
}

static double rate(const tp_run *R, int64_t update)
{
    return lra_rate(R->settings, update);
}

/* ---- steps ---- */

static void next_batch(tp_run *R)
{
    lra_run *t = R->state;
    const lra_settings *s = R->settings;
    if (s->train.schedule == RATE_CYCLE) tp_optim_set(t->O, "beta1", lra_beta1(s, R->update));
    if (t->L)
        R->sum[TOKENS] += (double)doc_next(R, t->L, t->slot);
    else
        doc_put(R->T, &t->noise.b, true, t->slot);
}

static tp_tensor batch_loss(tp_run *R)
{
    const lra_run *t = R->state;
    return encoder_loss(R->T, &t->m, t->slot);
}

static double validate(tp_run *R, char *text, size_t size)
{
    lra_run *t = R->state;
    doc_score v;
    if (R->trial) return 0; /* needs less memory than training */
    if (!encoder_score(&v, R->E, &t->m, t->X[TP_VALID], batching(R),
                       (doc_watch){ .go_on = doc_not_stopped, .env = R }))
        tp_run_fail(R, "%s", v.why);
    doc_score_total(&v, R);
    snprintf(text, size, "loss %.4f  accuracy %.2f %%", doc_score_loss(&v), doc_score_accuracy(&v));
    tp_run_note(R, "valid_loss", doc_score_loss(&v));
    tp_run_note(R, "accuracy", doc_score_accuracy(&v));
    return doc_score_accuracy(&v);
}

/* ---- the end: tests the best model and writes test.json ---- */

typedef struct progress {
    tp_run *R;
    tp_ticker line;
} progress;

/* Process 0 shows its own progress as that of all. */
static bool tick(void *env, const doc_score *s)
{
    progress *p = env;
    const int64_t count = s->count * p->R->ranks, all = p->line.last;
    if (p->R->rank == 0 && tp_ticker_due(&p->line))
        tp_ticker_draw(&p->line, count < all ? count : all, "test accuracy %.2f %%",
                       doc_score_accuracy(s));
    return !tp_run_stopped(p->R);
}

/* Is `here` true in all processes? None may work on the test alone, because it adds up counts. */
static bool everywhere(tp_run *R, bool here)
{
    double missing = !here;
    tp_run_total(R, &missing, 1);
    return missing == 0 && tp_run_ok(R);
}

/* Loads best.safetensors. A damaged file costs the test, not the run. */
static bool load_best(tp_run *R, const char *path)
{
    const lra_run *t = R->state;
    tp_file *F = tp_file_open(path);
    const char *why = tp_file_why(F);
    const bool there = tp_file_ok(F), done = there && tp_net_load(R->P, t->m.net, F, false);
    if (!done) tp_run_say(R, "the best model is not tested: %s", there ? tp_params_why(R->P) : why);
    tp_file_close(F);
    const bool all = everywhere(R, done);
    if (done && !all) tp_run_say(R, "the best model is not tested: another process cannot load it");
    return all;
}

static void write_test(tp_run *R, const lra_report *r)
{
    const doc_score *v = r->v;
    char path[4400], why[4800];
    tp_run_path(R, "test.json", path, sizeof path);
    if (!lra_report_write(r, path, why, sizeof why)) tp_run_fail(R, "%s", why);
    tp_run_say(R, "test: %lld examples: loss %.4f, accuracy %.2f %%; of whole batches %.2f %%",
               (long long)v->count, doc_score_loss(v), doc_score_accuracy(v),
               doc_score_official(v));
}

static void test(tp_run *R, const tp_documents *X)
{
    const lra_run *t = R->state;
    progress p = { R, tp_ticker_start("examples", tp_documents_count(X)) };
    doc_score v;
    const bool done =
        encoder_score(&v, R->E, &t->m, X, batching(R), (doc_watch){ .go_on = tick, .env = &p });
    tp_ticker_end(&p.line);
    if (!done) tp_run_fail(R, "%s", v.why);
    doc_score_total(&v, R);
    if (!everywhere(R, done && !tp_stop_signal()) || R->rank > 0) return;
    write_test(R, &(lra_report){ .v = &v, .part = "test", .seconds = tp_seconds() - p.line.began });
}

/* A new best model voids an earlier test. */
static void forget_test(tp_run *R)
{
    char path[4400];
    unlink(tp_run_path(R, "test.json", path, sizeof path));
}

/* Process 0 has written the best model, if there is one. */
static bool has_best(const tp_run *R, const char *path)
{
    return R->rank > 0 || access(path, F_OK) == 0 || errno != ENOENT;
}

/* Tests the best model when training ends and writes test.json. */
static void test_best(tp_run *R)
{
    const lra_settings *s = R->settings;
    lra_run *t = R->state;
    char path[4400];
    tp_run_path(R, "best.safetensors", path, sizeof path);
    if (!everywhere(R, !tp_stop_signal() && has_best(R, path))) return;
    if (!t->X[TP_TEST]) t->X[TP_TEST] = task_open(&s->d, (task_view){ .part = TP_TEST });
    const tp_documents *X = t->X[TP_TEST];
    if (!tp_documents_ok(X)) tp_run_fail(R, "%s", tp_documents_why(X));
    if (everywhere(R, tp_documents_ok(X)) && load_best(R, path)) test(R, X);
}

/* ---- descriptions and reports ---- */

/* FLOPs of this process in an update: backward counts twice forward. Padding counts. */
static double flops(const tp_run *R)
{
    const lra_settings *s = R->settings;
    const lra_run *t = R->state;
    const int64_t unit = encoder_multiple(&t->cfg), n = ((int64_t)t->mean + unit - 1) / unit * unit;
    const tp_model_cfg c = tp_model_cfg_of(&tp_model_lra, &t->cfg);
    return 6.0 * tp_model_cost(&c, n, 0).macs * (double)(s->train.batch * s->train.accumulation);
}

static void describe_data(tp_run *R)
{
    const lra_settings *s = R->settings;
    const lra_run *t = R->state;
    const long long batch = (long long)(s->train.batch * R->ranks);
    char source[4200];
    tp_run_note_int(R, "documents", tp_documents_count(t->X[TP_TRAIN]));
    tp_run_say(R,
               "%s, %s: %lld examples for training, %lld for validation, %.0f tokens on average, "
               "at most %lld",
               task_of(&s->d)->name, task_source(&s->d, source, sizeof source),
               (long long)tp_documents_count(t->X[TP_TRAIN]),
               (long long)tp_documents_count(t->X[TP_VALID]), doc_mean_length(t->X[TP_TRAIN], NULL),
               (long long)tp_documents_longest(t->X[TP_TRAIN]));
    if (s->packed)
        tp_run_say(R, "batches of %lld are packed, without padding", batch);
    else if (s->bucket > 1)
        tp_run_say(R, "batches of %lld are padded to their longest document", batch);
    else
        tp_run_say(R, "batches of %lld are padded to %lld tokens", batch,
                   (long long)t->cfg.attn.length);
}

static void describe(tp_run *R)
{
    const lra_settings *s = R->settings;
    const tp_train_settings *o = &s->train;
    const lra_run *t = R->state;
    const tp_model_cfg c = tp_model_cfg_of(&tp_model_lra, &t->cfg);
    const tp_cost cost = tp_model_cost(&c, 0, 0);
    char recipe[32], schedule[32];
    tp_option_get(tp_option_find(lra_options, "recipe"), s, recipe, sizeof recipe);
    tp_option_get(tp_option_find(lra_options, "schedule"), s, schedule, sizeof schedule);
    tp_run_note(R, "gflops", (cost.paper + 5 * cost.norm) * 1e-9);
    tp_run_say(
        R,
        "%s: %lld parameters, %lld layers, width %lld, at most %lld tokens, %.4f GFLOP forward "
        "as the paper counts",
        attention_name(s->attention), (long long)tp_params_count(R->P), (long long)s->layers,
        (long long)s->dim, (long long)t->cfg.attn.length, (cost.paper + 5 * cost.norm) * 1e-9);
    describe_data(R);
    tp_run_say(
        R,
        "recipe %s: learning rate %g, schedule %s%s, warm-up %g of %lld updates, weight decay %g",
        recipe, o->lr, schedule, s->fixed_lr ? " (fixed)" : "", o->warmup, (long long)o->steps,
        tp_train_get(o, "weight_decay"));
}

static int64_t tokens_so_far(const tp_run *R)
{
    return ((const lra_run *)R->state)->tokens + (int64_t)R->sum[TOKENS];
}

/* passes: over the training examples. */
static void report(tp_run *R, double loss, char *text, size_t size)
{
    const lra_settings *s = R->settings;
    const lra_run *t = R->state;
    const double passes =
        (double)(R->update * s->train.accumulation) / (double)tp_loader_steps(t->L);
    (void)loss;
    snprintf(text, size, "pass %.2f", passes);
    tp_run_note(R, "passes", passes);
    tp_run_note(R, "beta1", lra_beta1(s, R->update - 1));
    tp_run_note_int(R, "tokens", tokens_so_far(R));
}

static void after(tp_run *R)
{
    ((lra_run *)R->state)->tokens = tokens_so_far(R);
}

/* ---- checkpoints ---- */

/* The metadata for evaluation. */
static void write_model(tp_run *R, tp_writer *W)
{
    const lra_settings *s = R->settings;
    const lra_run *t = R->state;
    encoder_write(&t->cfg, W);
    task_data_write(&s->d, W);
    tp_writer_meta(W, "attention", attention_name(s->attention));
    tp_writer_meta_int(W, "sorted", s->bucket > 1);
    tp_writer_meta_int(W, "packed", s->packed);
}

static void write_state(tp_run *R, tp_writer *W)
{
    tp_writer_meta_int(W, "tokens", tokens_so_far(R));
}

static void read_state(tp_run *R, tp_file *F)
{
    lra_run *t = R->state;
    doc_read_tokens(R, F, &t->tokens);
}

/* ---- the program ---- */

static const char manual_more[] =
    "ATTENTIONS\n"
    "    softmax       all tokens\n"
    "    ls            long-short: a window of 8 and 32 dynamic projections\n"
    "    ls-best, dp   the window and rank that were best for the task; projections alone\n"
    "    linformer     256 fixed mixtures; ls-linformer: in place of ls's projections\n"
    "    performer     256 random features\n"
    "    nystrom       128 landmarks; nystrom-conv: with its convolution of 35 tokens\n"
    "    reformer      tokens that hash to near buckets, 2 rounds\n"
    "    linear        elu + 1 as kernel\n"
    "    none          no attention: values only\n\n"
    "LOG\n"
    "    examples and tokens (seen so far; padding counts), examples_per_s, passes (over the\n"
    "    training examples), beta1; after a validation accuracy (percent) and valid_loss\n\n"
    "    When the run ends, test.json gets the accuracy of the best model on the test part: of\n"
    "    all examples, and of whole batches only (official_accuracy), as the official code\n"
    "    counts.\n\n"
    "EXAMPLES\n"
    "    lra train --steps 500 --examples 5000\n"
    "    lra train --task text --data aclImdb --attention softmax --run-dir runs/text\n"
    "    lra train --preset lra-retrieval-ls-best --data aan --plan\n";

static const tp_training lra_training = {
    .command = {
        .name = "lra train",
        .summary = "trains an encoder of long documents",
        .synopsis = "[--task NAME] [--attention NAME] [--data PATH] [flag ...]\n"
                    "    lra train --resume [--run-dir DIR] [flag ...]",
        .about =
            "Trains a classifier of long documents on a task of the Long Range Arena, with one of "
            "the attentions that Transformer-LS is compared with. Without --data, expressions of "
            "ListOps are drawn, or images in the manner of Pathfinder.\n\n"
            "Task and attention set the model, as in the paper's tables, and the task sets a "
            "recipe; flags override both. The model with the best validation accuracy is tested "
            "when the run ends. The defaults below are those of listops with long-short attention.",
        .table = lra_options,
        .more = manual_more,
    },
    .program = "lra",
    .unit = "examples",
    .score = "accuracy",
    .score_text = "accuracy %.2f %%",
    .higher = true,
    .other_data = "the documents differ from those this run was trained on; give those with --data",
    .settings_size = sizeof(lra_settings),
    .state_size = sizeof(lra_run),
    .settings_of = lra_settings_of,
    .open = open_documents,
    .share = share_documents,
    .build = build,
    .optimizer = new_optimizer,
    .rate = rate,
    .next = next_batch,
    .loss = batch_loss,
    .validate = validate,
    .best = forget_test,
    .describe = describe,
    .report = report,
    .after = after,
    .done = test_best,
    .write_model = write_model,
    .write = write_state,
    .read = read_state,
    .flops = flops,
    .close = close_documents,
};

int lra_train_main(int argc, char **argv)
{
    return tp_train_main(&lra_training, argc, argv);
}
