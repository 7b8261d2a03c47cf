/* pretrain_run.c - `imdb pretrain`: masked language modelling on any text. Sequences form an
 * endless stream, so updates time the validations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/mlm.h>
#include <tapegrad/random.h>
#include <tapegrad/train.h>

#include "reports/paths.h"
#include "training.h"

typedef struct pretrain_run {
    text_run base;  /* first */
    int32_t *noise; /* a trial's batch: ids, rows and targets */
    tp_corpus *C;   /* a trial borrows it */
    tp_loader *L;   /* NULL in a trial, whose sequences are noise */
    tp_tensor slot[TP_MLM_SLOTS];
    int64_t sequence; /* tokens of a sequence */
} pretrain_run;

/* ---- data ---- */

static void open_corpus(tp_run *R)
{
    const pretrain_settings *s = R->settings;
    pretrain_run *t = R->state;
    path_list list;
    if (!path_list_of(&list, s->data)) {
        tp_run_fail(R, "--data names more than %d paths; name a folder instead", MOST_PATHS);
        return;
    }
    t->C = tp_corpus_open((const char *const *)list.at, list.n, t->base.vocab,
                          &(tp_corpus_opts){ .end = (tp_document_end)s->documents,
                                             .held_out = s->held_out,
                                             .limit = s->limit,
                                             .threads = (int)s->base.train.machine.threads,
                                             .cache = s->cache });
    path_list_free(&list);
    if (!tp_corpus_ok(t->C)) tp_run_fail(R, "%s", tp_corpus_why(t->C));
}

static tp_mlm_loader_opts batches(const tp_run *R, tp_part part)
{
    const pretrain_settings *s = R->settings;
    const pretrain_run *t = R->state;
    return (tp_mlm_loader_opts){ .batch = s->base.train.batch,
                                 .length = t->sequence,
                                 .part = part,
                                 .train = part == TP_TRAIN,
                                 .seed = (uint64_t)s->base.train.seed,
                                 .rate = s->mask_rate,
                                 .exact = s->masks == MASKS_EXACT,
                                 .padded = s->base.train.graph && part == TP_TRAIN,
                                 .share = tp_run_share(R) };
}

static void open_batches(tp_run *R)
{
    pretrain_run *t = R->state;
    const tp_mlm_loader_opts o = batches(R, TP_TRAIN);
    t->L = tp_mlm_loader_new(t->C, &o);
    const pretrain_settings *s = R->settings;
    if (!tp_loader_ok(t->L)) tp_run_fail(R, "%s: %s", s->data, tp_loader_why(t->L));
    R->data_hash = tp_corpus_hash(t->C);
}

static bool choose_model(tp_run *R, tp_file *from)
{
    const pretrain_settings *s = R->settings;
    pretrain_run *t = R->state;
    if (!text_run_choose(R, from, TP_ROBERTA_MLM, 0)) return false;
    t->sequence = s->sequence ? s->sequence : t->base.cfg.length;
    R->units = s->base.train.batch * t->sequence;
    return true;
}

static void check_flags(tp_run *R)
{
    const pretrain_settings *s = R->settings;
    const pretrain_run *t = R->state;
    if (!s->data)
        tp_run_fail(R, "--data FILE is required: the texts to train on");
    else if (t->sequence > t->base.cfg.length)
        tp_run_fail(R, "--sequence %lld is longer than the model's %lld tokens: raise --length",
                    (long long)t->sequence, (long long)t->base.cfg.length);
    else if (t->sequence < 3)
        tp_run_fail(R, "a sequence of %lld tokens has no room for text", (long long)t->sequence);
    else if (s->base.train.graph && s->masks != MASKS_EXACT)
        tp_run_fail(R, "--graph needs --masks exact: its steps have equal shapes");
    else
        text_run_check_warmup(R);
}

static void open_texts(tp_run *R, tp_file *from)
{
    pretrain_settings *s = R->settings;
    path_list_absolute(&s->data);
    tp_absolute_path(&s->cache);
    if (s->base.train.resume) doc_keep_end(R, from);
    if (!tp_run_ok(R) || !text_run_open_vocab(R, from) || !choose_model(R, from)) return;
    check_flags(R);
    if (tp_run_ok(R)) open_corpus(R);
    if (tp_run_ok(R)) open_batches(R);
}

/* Rows of a trial's batch: the run's mean. */
static int64_t noise_rows(const tp_run *R)
{
    const pretrain_settings *s = R->settings;
    return (int64_t)ceil(s->mask_rate * (double)R->units);
}

static void share_texts(tp_run *R, const tp_run *with)
{
    const pretrain_settings *s = R->settings;
    const pretrain_run *theirs = with->state;
    pretrain_run *t = R->state;
    text_run_share(R, with);
    t->C = theirs->C;
    t->sequence = theirs->sequence;
    R->units = s->base.train.batch * t->sequence;
    const int64_t cells = R->units, rows = noise_rows(R);
    tp_random r = tp_random_stream(1, "trial", 0, 0);
    t->noise = malloc((size_t)(cells + 2 * rows) * sizeof *t->noise);
    if (!t->noise) {
        tp_run_fail(R, "out of memory");
        return;
    }
    for (int64_t i = 0; i < cells; i++)
        t->noise[i] = 4 + (int32_t)tp_random_below(&r, t->base.cfg.vocab - 4);
    int32_t *row = t->noise + cells, *target = row + rows;
    for (int64_t i = 0; i < rows; i++)
        row[i] = target[i] = (int32_t)fmin((double)i / s->mask_rate, (double)(cells - 1));
}

static void close_texts(tp_run *R)
{
    pretrain_run *t = R->state;
    tp_loader_free(t->L);
    if (!R->trial) tp_corpus_close(t->C);
    free(t->noise);
    text_run_close(R);
}

/* ---- model ---- */

static void take_weights(tp_run *R, tp_file *from)
{
    const pretrain_run *t = R->state;
    if (!tp_net_load(R->P, t->base.m.net, from, true)) tp_run_fail(R, "%s", tp_params_why(R->P));
}

/* ---- steps ---- */

static void feed_noise(tp_run *R)
{
    const pretrain_settings *s = R->settings;
    pretrain_run *t = R->state;
    const int64_t cells = R->units, rows = noise_rows(R);
    tp_feed(R->T, &t->slot[0], TP_I32, TP_SHAPE(s->base.train.batch, t->sequence), t->noise);
    tp_feed(R->T, &t->slot[1], TP_I32, TP_SHAPE(rows), t->noise + cells);
    tp_feed(R->T, &t->slot[2], TP_I32, TP_SHAPE(rows), t->noise + cells + rows);
}

static void next_batch(tp_run *R)
{
    pretrain_run *t = R->state;
    if (!t->L) {
        feed_noise(R);
        return;
    }
    const int64_t steps = tp_loader_steps(t->L);
    const int64_t n = tp_loader_feed(t->L, R->T, R->batch / steps, R->batch % steps, t->slot);
    R->targets = tp_mlm_loader_targets(t->L);
    if (n == 0 && tp_ok(R->T)) tp_run_fail(R, "%s", tp_loader_why(t->L));
    R->sum[TOKENS] += (double)R->units;
}

/* The mean over targets. */
static tp_tensor loss_of(tp_tape *T, const text_model *m, const tp_tensor slot[TP_MLM_SLOTS],
                         tp_reduction reduction)
{
    const tp_tensor x = tp_roberta_encode(T, model_of(m), (tp_roberta_in){ .ids = slot[0] });
    tp_tensor z = tp_roberta_predict(T, model_of(m), x, slot[1]);
    if (tp_compute_dtype(T) == TP_BF16) z = tp_cast(T, z, TP_F32);
    return tp_cross_entropy(T, z, slot[2], reduction);
}

static tp_tensor batch_loss(tp_run *R)
{
    const pretrain_run *t = R->state;
    return loss_of(R->T, &t->base.m, t->slot, TP_MEAN);
}

/* Validation masks never change, so that its figures are comparable. */
static double validate(tp_run *R, char *text, size_t size)
{
    const pretrain_settings *s = R->settings;
    pretrain_run *t = R->state;
    double sum[2] = { 0 }; /* losses, targets */
    int64_t sequences = 0;
    if (R->trial) return 0; /* needs less memory than training */
    const tp_mlm_loader_opts o = batches(R, TP_VALID);
    tp_loader *V = tp_mlm_loader_new(t->C, &o);
    tp_mlm_batch b;
    while (tp_mlm_loader_next(V, &b) && !tp_run_stopped(R)) {
        tp_reset(R->E);
        const tp_tensor slot[] = { tp_from(R->E, TP_I32, TP_SHAPE(b.n, b.length), b.ids),
                                   tp_from(R->E, TP_I32, TP_SHAPE(b.rows), b.row),
                                   tp_from(R->E, TP_I32, TP_SHAPE(b.rows), b.target) };
        sum[0] += tp_item(R->E, loss_of(R->E, &t->base.m, slot, TP_SUM));
        sum[1] += (double)b.targets;
        sequences += o.batch * R->ranks;
        if (s->eval_sequences > 0 && sequences >= s->eval_sequences) break;
    }
    tp_reset(R->E);
    if (!tp_loader_ok(V)) tp_run_fail(R, "%s", tp_loader_why(V));
    tp_loader_free(V);
    tp_run_total(R, sum, 2);
    const double bits = sum[1] > 0 ? sum[0] / sum[1] / log(2) : NAN;
    snprintf(text, size, "%.4f bits", bits);
    tp_run_note_int(R, "valid_targets", (int64_t)sum[1]);
    return bits;
}

/* ---- descriptions and reports ---- */

/* Computes logits only for targets. */
static double flops(const tp_run *R)
{
    const pretrain_settings *s = R->settings;
    const pretrain_run *t = R->state;
    const double head = (double)(t->base.cfg.dim * (t->base.cfg.dim + t->base.cfg.vocab));
    return text_run_flops(R, t->sequence, (1 - s->mask_rate) * (double)t->sequence * head);
}

static void describe(tp_run *R)
{
    const pretrain_settings *s = R->settings;
    const tp_train_settings *o = &s->base.train;
    const pretrain_run *t = R->state;
    char schedule[32];
    tp_option_get(tp_option_find(pretrain_options, "schedule"), s, schedule, sizeof schedule);
    text_run_describe(R, tp_bpe_size(t->base.vocab), "entries of the vocabulary");
    tp_run_note_int(R, "documents", tp_corpus_documents(t->C));
    tp_run_note_int(R, "bytes", tp_corpus_bytes(t->C));
    tp_run_note_int(R, "train_tokens", tp_corpus_tokens(t->C, TP_TRAIN));
    tp_run_note_int(R, "valid_tokens", tp_corpus_tokens(t->C, TP_VALID));
    tp_run_say(R, "%s: %lld documents, %lld bytes, %lld tokens for training, %lld for validation%s",
               s->data, (long long)tp_corpus_documents(t->C), (long long)tp_corpus_bytes(t->C),
               (long long)tp_corpus_tokens(t->C, TP_TRAIN),
               (long long)tp_corpus_tokens(t->C, TP_VALID),
               tp_corpus_was_cached(t->C) ? ", from the cache" : "");
    if (tp_corpus_unknown(t->C) > 0) {
        tp_run_note_int(R, "unknown_tokens", tp_corpus_unknown(t->C));
        tp_run_say(R,
                   "%lld of the tokens are <unk>, bytes that the vocabulary lacks; they are never "
                   "predicted, so the bits do not count them",
                   (long long)tp_corpus_unknown(t->C));
    }
    tp_run_say(R,
               "%lld updates of %lld x %lld sequences of %lld tokens; learning rate %g, schedule "
               "%s, warm-up of %lld updates, weight decay %g",
               (long long)o->steps, (long long)o->accumulation, (long long)(R->ranks * o->batch),
               (long long)t->sequence, o->lr, schedule, (long long)text_warmup(o, o->steps),
               tp_train_get(o, "weight_decay"));
}

static void report(tp_run *R, double loss, char *text, size_t size)
{
    const pretrain_run *t = R->state;
    const double passes = text_run_report(R, tp_loader_steps(t->L)), bits = loss / log(2);
    snprintf(text, size, "%.3f bits  pass %.2f", bits, passes);
    tp_run_note(R, "bits", bits);
}

/* ---- the program ---- */

static const char manual_more[] =
    "LOG\n"
    "    tokens (seen so far), tokens_per_s, passes (over the training sequences), bits (of the\n"
    "    loss); after a validation valid_bits and valid_targets, the masked tokens behind it\n\n"
    "EXAMPLES\n"
    "    tp-bpe train texts/*.txt --size 8000 --output words\n"
    "    imdb pretrain --data texts --tokenizer words --length 128\n"
    "    imdb pretrain --data texts --init roberta-base/model.safetensors \\\n"
    "        --preset longformer-base\n";

static const tp_training pretraining = {
    .command = {
        .name = "imdb pretrain",
        .summary = "trains an encoder of text on masked tokens",
        .synopsis = "--data FILE[,FILE ...] [--tokenizer FILE] [--init FILE] [flag ...]\n"
                    "    imdb pretrain --resume [--run-dir DIR] [flag ...]",
        .about =
            "Trains RoBERTa, Longformer or long-short RoBERTa to predict masked tokens of any "
            "texts (masked language modelling), from new weights or from those of a file. "
            "Documents are packed one after another into sequences without padding; part of the "
            "stream is held out for validation, which gives bits per masked token. Logits are "
            "computed for the masked tokens alone.\n\n"
            "The preset sets model and recipe; flags override both. The defaults below are those "
            "of roberta-mini. Checkpoints hold the vocabulary, so that 'imdb train' and 'imdb "
            "convert' need nothing else.",
        .table = pretrain_options,
        .more = manual_more,
    },
    .unit = "tokens",
    .score = "valid_bits",
    .score_text = "validation %.4f bits",
    TEXT_TRAINING,
    .settings_size = sizeof(pretrain_settings),
    .state_size = sizeof(pretrain_run),
    .settings_of = pretrain_settings_of,
    .open = open_texts,
    .share = share_texts,
    .init = take_weights,
    .next = next_batch,
    .loss = batch_loss,
    .validate = validate,
    .describe = describe,
    .report = report,
    .write_model = text_run_write_model,
    .flops = flops,
    .close = close_texts,
};

int imdb_pretrain_main(int argc, char **argv)
{
    return tp_train_main(&pretraining, argc, argv);
}
