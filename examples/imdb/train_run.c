/* train_run.c - `imdb train`: fine-tunes a classifier on labelled texts. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/random.h>

#include "training.h"

typedef struct train_run {
    text_run base;      /* first */
    tp_documents *X[2]; /* by tp_part; a trial borrows them */
    class_list classes; /* not in a trial */
    tp_loader *L;       /* NULL in a trial, whose texts are noise */
    tp_tensor slot[DOC_SLOTS];
    int64_t length;       /* of a trial's texts */
    double mean;          /* mean tokens of a run's text */
    doc_noise noise;      /* of a trial */
    tp_balanced balanced; /* with --balance */
    tp_example_sampler sampler;
} train_run;

/* ---- data ---- */

static bool open_part(tp_run *R, tp_part part, int64_t length)
{
    const train_settings *s = R->settings;
    train_run *t = R->state;
    const text_view v = { .part = part,
                          .length = length,
                          .limit = part == TP_TRAIN ? s->d.train : s->d.valid,
                          .classes = &t->classes };
    t->X[part] = texts_open(&s->d, t->base.vocab, v);
    if (!tp_documents_ok(t->X[part]))
        tp_run_fail(R, "%s", tp_documents_why(t->X[part]));
    else if (part == TP_TRAIN && t->classes.n == 0 && !class_list_of(&t->classes, t->X[part]))
        tp_run_fail(R, "out of memory");
    else if (tp_documents_note(t->X[part])[0])
        tp_run_say(R, "%s", tp_documents_note(t->X[part]));
    return tp_run_ok(R);
}

/* Before the texts are open, assumes two classes. */
static bool choose_model(tp_run *R, tp_file *from)
{
    const train_run *t = R->state;
    return text_run_choose(R, from, TP_ROBERTA_CLS, t->classes.n ? t->classes.n : 2);
}

/* The order of --balance. */
static const tp_example_sampler *balance(train_run *t)
{
    const tp_documents *X = t->X[TP_TRAIN];
    t->balanced = (tp_balanced){ tp_documents_labels(X), tp_documents_classes(X) };
    t->sampler = (tp_example_sampler){ .order = tp_order_balanced, .env = &t->balanced };
    return &t->sampler;
}

static void open_loader(tp_run *R)
{
    const train_settings *s = R->settings;
    train_run *t = R->state;
    tp_document_loader_opts o = text_batches(&t->base.cfg, train_batching(s));
    o.seed = (uint64_t)s->base.train.seed;
    o.train = true;
    o.share = tp_run_share(R);
    if (s->balance) o.sampler = balance(t);
    t->L = tp_document_loader_new(t->X[TP_TRAIN], &o);
    if (!tp_loader_ok(t->L)) tp_run_fail(R, "%s: %s", s->d.path, tp_loader_why(t->L));
    t->mean = doc_mean_length(t->X[TP_TRAIN], NULL);
    R->units = s->base.train.batch;
    R->data_hash = tp_hash(tp_documents_hash(t->X[TP_TRAIN]), tp_documents_hash(t->X[TP_VALID]));
}

/* Updates per pass over the texts. */
static int64_t pass_of(const tp_run *R)
{
    const train_settings *s = R->settings;
    const int64_t steps = tp_loader_steps(((const train_run *)R->state)->L);
    return steps > s->base.train.accumulation ? steps / s->base.train.accumulation : 1;
}

/* Texts form an endless stream, so that updates time the validations: converts passes to
 * updates. */
static void take_length(tp_run *R)
{
    train_settings *s = R->settings;
    tp_train_settings *o = &s->base.train;
    const int64_t whole = s->passes * pass_of(R);
    if (whole > 0 && (o->steps == 0 || whole < o->steps)) o->steps = whole;
    o->eval_every = s->valid_every == 0 ? pass_of(R) : s->valid_every > 0 ? s->valid_every : 0;
    if (o->checkpoint_every == 0) o->checkpoint_every = pass_of(R);
}

/* A resumed run takes its classes from the checkpoint, a new run from its texts. */
static void find_classes(tp_run *R, tp_file *from)
{
    const train_settings *s = R->settings;
    train_run *t = R->state;
    char why[5000];
    if (s->base.train.resume && !class_list_read(&t->classes, from, why, sizeof why))
        tp_run_fail(R, "%s", why);
}

static void open_texts(tp_run *R, tp_file *from)
{
    train_settings *s = R->settings;
    train_run *t = R->state;
    tp_absolute_path(&s->d.path);
    if (!s->d.path) tp_run_fail(R, "--data FILE is required: the texts and their classes");
    if (tp_run_ok(R)) find_classes(R, from);
    if (!tp_run_ok(R) || !text_run_open_vocab(R, from)) return;
    if (!choose_model(R, from)) return; /* its length cuts the texts */
    for (int k = TP_TRAIN; k <= TP_VALID && tp_run_ok(R); k++)
        open_part(R, (tp_part)k, t->base.cfg.length);
    if (tp_run_ok(R) && t->classes.n < 2)
        tp_run_fail(R, "%s: all texts have the class '%s': a classifier needs at least two",
                    s->d.path, t->classes.name[0]);
    if (!tp_run_ok(R) || !choose_model(R, from)) return;
    if (t->base.cfg.classes != t->classes.n)
        tp_run_fail(R, "the model has %lld classes, the texts have %d",
                    (long long)t->base.cfg.classes, t->classes.n);
    if (tp_run_ok(R)) open_loader(R);
    if (tp_run_ok(R) && s->base.train.resume) doc_keep_end(R, from);
    if (tp_run_ok(R)) take_length(R);
    if (tp_run_ok(R)) text_run_check_warmup(R);
}

/* A trial repeats one batch of noise. */
static void share_texts(tp_run *R, const tp_run *with)
{
    const train_settings *s = R->settings;
    const train_run *theirs = with->state;
    train_run *t = R->state;
    text_run_share(R, with);
    memcpy(t->X, theirs->X, sizeof t->X);
    t->length = s->packed ? doc_packed_length(t->X[TP_TRAIN], s->base.train.batch)
                          : tp_documents_longest(t->X[TP_TRAIN]);
    t->mean = (double)t->length;
    R->units = s->base.train.batch;
    const doc_noise_opts o = { .n = R->units,
                               .length = t->length,
                               .first = 4,
                               .ids = t->base.cfg.vocab,
                               .classes = t->base.cfg.classes,
                               .documents = 1,
                               .packed = s->packed };
    if (!doc_noise_make(&t->noise, &o)) tp_run_fail(R, "out of memory");
}

static void close_texts(tp_run *R)
{
    train_run *t = R->state;
    tp_loader_free(t->L);
    if (!R->trial) {
        for (int k = TP_TRAIN; k <= TP_VALID; k++) tp_documents_close(t->X[k]);
        class_list_free(&t->classes);
    }
    doc_noise_free(&t->noise);
    text_run_close(R);
}

/* ---- model ---- */

/* No token is global in pretraining, so Longformer's global projections are copied again. */
static bool copies_global(const tp_run *R, tp_file *from)
{
    const train_run *t = R->state;
    const char *head = tp_file_meta(from, "head");
    return t->base.cfg.kind == TP_ROBERTA_LONGFORMER && head && strcmp(head, "mlm") == 0;
}

static const char *not_the_head(const tp_file_tensor *t, void *env)
{
    (void)env;
    return strncmp(t->name, "classifier.", 11) == 0 ? NULL : t->name;
}

/* Keeps a head only from our checkpoints and only for the same class names. */
static bool keeps_head(tp_run *R, tp_file *from)
{
    const train_run *t = R->state;
    class_list theirs;
    char why[5000];
    bool same = class_list_read(&theirs, from, why, sizeof why) && theirs.n == t->classes.n;
    for (int i = 0; same && i < theirs.n; i++)
        same = strcmp(theirs.name[i], t->classes.name[i]) == 0;
    class_list_free(&theirs);
    return same;
}

static void take_weights(tp_run *R, tp_file *from)
{
    const train_run *t = R->state;
    if (tp_file_find(from, "classifier.out_proj.weight") && !keeps_head(R, from)) {
        tp_run_say(R, "the head of %s is for other classes; a new one begins", tp_file_path(from));
        tp_file_rename(from, not_the_head, NULL);
    }
    bool done = tp_net_load(R->P, t->base.m.net, from, true);
    if (done && copies_global(R, from)) done = tp_roberta_copy_global(R->P, model_of(&t->base.m));
    if (!done) tp_run_fail(R, "%s", tp_params_why(R->P));
}

/* ---- steps ---- */

static void next_batch(tp_run *R)
{
    train_run *t = R->state;
    if (t->L)
        R->sum[TOKENS] += (double)doc_next(R, t->L, t->slot);
    else
        doc_put(R->T, &t->noise.b, true, t->slot);
}

static tp_tensor batch_loss(tp_run *R)
{
    const train_settings *s = R->settings;
    const train_run *t = R->state;
    return tp_cross_entropy_smooth(R->T, text_logits(R->T, &t->base.m, t->slot),
                                   text_labels(t->slot), s->smoothing, TP_MEAN);
}

static double validate(tp_run *R, char *text, size_t size)
{
    const train_settings *s = R->settings;
    train_run *t = R->state;
    doc_score v;
    if (R->trial) return 0; /* needs less memory than training */
    text_batching how = train_batching(s);
    how.share = tp_run_share(R);
    if (!text_score(&v, R->E, &t->base.m, t->X[TP_VALID], how,
                    (doc_watch){ .go_on = doc_not_stopped, .env = R }))
        tp_run_fail(R, "%s", v.why);
    doc_score_total(&v, R);
    const double accuracy = doc_score_accuracy(&v), loss = doc_score_loss(&v);
    snprintf(text, size, "loss %.4f  accuracy %.2f %%", loss, accuracy);
    tp_run_note(R, "valid_loss", loss);
    return accuracy;
}

/* ---- descriptions and reports ---- */

/* Padding is not counted. */
static double flops(const tp_run *R)
{
    const train_run *t = R->state;
    return text_run_flops(R, (int64_t)t->mean, 0);
}

static void describe(tp_run *R)
{
    const train_settings *s = R->settings;
    const tp_train_settings *o = &s->base.train;
    const train_run *t = R->state;
    const int64_t all = o->steps;
    char recipe[32];
    tp_option_get(tp_option_find(text_train_options, "recipe"), s, recipe, sizeof recipe);
    tp_run_note_int(R, "texts", tp_documents_count(t->X[TP_TRAIN]));
    text_run_describe(R, t->base.cfg.classes, "classes");
    tp_run_say(R,
               "%s: %lld texts for training, %lld for validation; %.0f tokens on average, at most "
               "%lld",
               s->d.path, (long long)tp_documents_count(t->X[TP_TRAIN]),
               (long long)tp_documents_count(t->X[TP_VALID]),
               doc_mean_length(t->X[TP_TRAIN], NULL), /* a trial's t->mean differs */
               (long long)tp_documents_longest(t->X[TP_TRAIN]));
    tp_run_say(
        R,
        "recipe %s: %lld updates of %lld x %lld texts, %s; learning rate %g, warm-up of %lld "
        "updates, weight decay %g",
        recipe, (long long)all, (long long)o->accumulation, (long long)(R->ranks * o->batch),
        s->packed ? "packed" : "padded", o->lr, (long long)text_warmup(o, all),
        tp_train_get(o, "weight_decay"));
}

static void report(tp_run *R, double loss, char *text, size_t size)
{
    const train_run *t = R->state;
    (void)loss;
    snprintf(text, size, "pass %.2f", text_run_report(R, tp_loader_steps(t->L)));
}

/* ---- checkpoints ---- */

static void save_adapter(tp_run *R)
{
    const train_settings *s = R->settings;
    adaptation_save(R, &s->base.lora);
}

static void write_model(tp_run *R, tp_writer *W)
{
    const train_settings *s = R->settings;
    const train_run *t = R->state;
    text_run_write_model(R, W);
    class_list_write(&t->classes, W);
    tp_writer_meta_int(W, "text_tail", s->d.tail);
}

/* ---- the program ---- */

static const char manual_more[] =
    "LOG\n"
    "    examples and tokens (seen so far; padding counts), examples_per_s, passes (over the\n"
    "    training texts); after a validation accuracy (percent) and valid_loss\n\n"
    "EXAMPLES\n"
    "    imdb train --data aclImdb --init roberta-base/model.safetensors\n"
    "    imdb train --data aclImdb --init roberta-base/model.safetensors \\\n"
    "        --preset roberta_ls-base\n"
    "    imdb train --data mail.csv --text-column body --label-column folder \\\n"
    "        --init run/best.safetensors\n"
    "    imdb train --data aclImdb --tokenizer words --plan\n";

static const tp_training training = {
    .command = {
        .name = "imdb train",
        .summary = "trains a classifier of texts",
        .synopsis = "--data FILE [--init FILE] [--preset NAME] [flag ...]\n"
                    "    imdb train --resume [--run-dir DIR] [flag ...]",
        .about =
            "Trains a classifier of texts with RoBERTa, Longformer or long-short RoBERTa, usually "
            "from the weights of a pretrained model: fine-tuning. The texts are a folder with one "
            "folder of files .txt for each class, or CSV or JSON lines. They are cut to the "
            "length of the model.\n\n"
            "The model sets the recipe; flags override both. The defaults below are those of "
            "roberta-mini. best.safetensors is the model with the best validation accuracy; it "
            "holds vocabulary and classes, so that 'imdb predict' needs nothing else.",
        .table = text_train_options,
        .more = manual_more,
    },
    .unit = "examples",
    .score = "accuracy",
    .score_text = "accuracy %.2f %%",
    .higher = true,
    TEXT_TRAINING,
    .settings_size = sizeof(train_settings),
    .state_size = sizeof(train_run),
    .settings_of = train_settings_of,
    .open = open_texts,
    .share = share_texts,
    .init = take_weights,
    .next = next_batch,
    .loss = batch_loss,
    .validate = validate,
    .describe = describe,
    .report = report,
    .write_model = write_model,
    .best = save_adapter,
    .flops = flops,
    .close = close_texts,
};

int imdb_train_main(int argc, char **argv)
{
    return tp_train_main(&training, argc, argv);
}
