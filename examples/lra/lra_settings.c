/* lra_settings.c - the flags, presets, recipes and learning rates of `lra train`. The recipes are
 * the official scripts' (Transformer-LS); for images, Nystroemformer's. A row of the flags also
 * defines how the setting is stored in checkpoints and config.json. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lra.h"
#include "reports/models.h"

#define S lra_settings

const tp_option lra_options[] = {
    TP_HEADING("TASK AND MODEL"),
    TP_CHOICE(
        "task", S, d.task, TASK_NAMES, TP_WEIGHTS,
        "listops: answers of nested operators. text: is a review positive? retrieval: do two "
        "papers cite each other? image: classes of grey images. pathfinder: does a curve join "
        "two discs?"),
    TP_CHOICE("attention", S, attention, ATTENTION_NAMES, TP_WEIGHTS,
              "The attention, with the sizes of the paper's tables; see ATTENTIONS below."),
    TP_STRING_OF("preset", S, preset, "NAME", lra_preset_known, TP_SAVED,
                 "Task and attention in one word, lra-TASK-ATTENTION."),
    OPTION_DATA(S, d, TP_FREE),
    TP_INT(
        "length", S, d.length, 1, 1 << 20, TP_WEIGHTS,
        "Tokens to which documents are cut and padded. Smaller models are for small experiments."),
    TP_INT(
        "window", S, window, 0, 1 << 20, TP_WEIGHTS,
        "ls: tokens of a segment, which see themselves and half as many to either side; 0: none."),
    TP_INT("rank", S, rank, 0, 1 << 20, TP_WEIGHTS,
           "Projections (ls, linformer), landmarks (nystrom) or random features (performer)."),
    TP_INT("conv", S, conv, 0, 65535, TP_WEIGHTS,
           "Width of a convolution of the values, added to the result (ls, linformer, nystrom); 0: "
           "none."),
    TP_INT("layers", S, layers, 1, TP_LRA_MAX_LAYERS, TP_WEIGHTS, "Layers."),
    TP_INT("dim", S, dim, 1, 65536, TP_WEIGHTS, "Width."),
    TP_INT("heads", S, heads, 1, 65536, TP_WEIGHTS, "Attention heads."),
    TP_INT("hidden", S, hidden, 1, 1 << 20, TP_WEIGHTS,
           "Hidden width of the feed-forward layers and of the classifier."),
    TP_CHOICE(
        "pooling", S, pooling, "mean|cls-last|cls-token|cls-pool", TP_WEIGHTS,
        "What stands for the document: the mean of its tokens; an embedding that enters at the "
        "last layer, or at the first (ls); or a word before the document."),
    OPTION_MEMBERS(S, set, TP_WEIGHTS,
                   "Changes members of the model that no flag sets, as dual_ln=0,cls_mode=values"),
    TP_NUM("dropout", S, dropout, 0, 0.99, TP_SAVED,
           "Dropout of embeddings, layers and attention."),
    TP_ROWS(tp_recompute_options),
    TP_HEADING("DOCUMENTS"),
    OPTIONS_TASK_DATA(S, d),
    TP_CHOICE(
        "packed", S, packed, "no|yes", TP_SAVED,
        "Are the documents of a batch packed one after another, without padding? The default is "
        "yes on the CPU for softmax, ls, ls-best, dp and none on listops, text and retrieval, "
        "whose results do not depend on padding. Other attentions require no; so do --conv, and "
        "images whose black pixels count as padding."),
    TP_INT(
        "bucket", S, bucket, 0, 1000000, TP_SAVED,
        "Number of batches whose documents are sorted by length before they are divided into "
        "batches, each padded to its longest document; 0: not sorted, and all padded to --length. "
        "The default is 0 for packed batches, which need no sorting, and for attentions whose "
        "results depend on padding (all but softmax, ls, ls-best, dp and none). Fixed mixtures "
        "(linformer, ls-linformer) require 0."),
    TP_HEADING("RUN"),
    TP_ROWS(tp_run_options),
    TP_HEADING("TRAINING"),
    TP_CHOICE(
        "recipe", S, recipe, "code|paper", TP_SAVED,
        "Sets everything under TRAINING. code: the official code's, whose learning rate rises "
        "and falls in straight lines, and beta1 the other way. paper: the fixed learning rate "
        "that the paper names, and no weight decay."),
    TP_INT(
        "steps", S, train.steps, 1, TP_BIG, TP_FREE,
        "Updates of the whole run, over which the schedule extends. The recipe's warm-up keeps its "
        "share of them."),
    TP_NUM("time", S, train.time, 0, TP_BIG, 0,
           "Stop after this many seconds, with a validation and a checkpoint; 0: no limit."),
    TP_NUM("warmup", S, train.warmup, 0, TP_BIG, TP_SAVED,
           "Updates over which the learning rate rises."),
    TP_CHOICE("schedule", S, train.schedule, "constant|linear|cosine|step|onecycle|plateau|cycle",
              TP_SAVED,
              "Learning rate after the warm-up. plateau: drops where validations find nothing "
              "better. cycle: from lr/25 to lr and down to lr/250000 in "
              "straight lines, with beta1 from 0.95 to 0.85 and back."),
    TP_FLAG("fixed-lr", S, fixed_lr, TP_SAVED,
            "cycle: learning rate and beta1 stay as they are after the warm-up."),
    TP_INT("batch", S, train.batch, 1, 65536, TP_SAVED, "Batch size, in examples."),
    TP_INT("accumulation", S, train.accumulation, 1, 65536, TP_SAVED,
           "Batches whose gradients are averaged for one update."),
    TP_INT("seed", S, train.seed, 0, TP_BIG, TP_SAVED,
           "Seed of initial weights, order of examples and dropout."),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_INT("eval-every", S, train.eval_every, 0, TP_BIG, TP_FREE,
           "Updates between validations; 0: only at the end of the run."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};

/* ---- names ---- */

enum { TASKS = 5, PIXELS = 3 }; /* first task whose ids are pixels; black ones are padding */

static const char *preset_name(int task, int attention, char name[64])
{
    snprintf(name, 64, "lra-%s-%s", tp_task_at(task)->name, attention_name(attention));
    return name;
}

const char *lra_preset_known(int i)
{
    static char name[TASKS * ATTENTIONS][64];
    tp_model_cfg c;
    char why[200];
    for (int k = 0; k < TASKS * ATTENTIONS; k++) {
        preset_name(k / ATTENTIONS, k % ATTENTIONS, name[k]);
        if (tp_model_preset(&c, name[k], why, sizeof why) && i-- == 0) return name[k];
    }
    return NULL;
}

static bool parse(const char *preset, int *task, int *attention)
{
    char name[64];
    for (int t = 0; t < TASKS; t++)
        for (int a = 0; a < ATTENTIONS; a++) {
            if (strcmp(preset_name(t, a, name), preset) != 0) continue;
            *task = t;
            *attention = a;
            return true;
        }
    return false;
}

static bool preset_cfg(int task, int attention, tp_lra_cfg *c, char *why, size_t size)
{
    char name[64];
    tp_model_cfg m;
    if (tp_model_preset(&m, preset_name(task, attention, name), why, size)) {
        memcpy(c, &m.at, sizeof *c);
        return true;
    }
    snprintf(why, size, "--attention %s: no window and rank were published for the task %s",
             attention_name(attention), tp_task_at(task)->name);
    return false;
}

/* ---- recipes ---- */

/* By task. */
static const struct recipe {
    int64_t warmup, steps, batch, eval_every, seed;
    double weight_decay;
} recipes[TASKS] = {
    { 1000, 5000, 32, 50, 1234, 0.0 },    { 8000, 20000, 32, 500, 1234, 0.01 },
    { 8000, 30000, 32, 300, 4096, 0.01 }, { 175, 35000, 256, 350, 1234, 0.0 },
    { 312, 62400, 256, 624, 1234, 0.0 },
};

/* The paper has one for all attentions of a task, Nyströmformer's code its own. */
static int64_t warmup_of(int task, int attention, bool code)
{
    const bool nystrom = strncmp(attention_name(attention), "nystrom", 7) == 0;
    return code && task == 2 && nystrom ? 800 : recipes[task].warmup;
}

static void take_recipe(lra_settings *s, lra_recipe recipe, int64_t steps)
{
    const struct recipe *r = &recipes[s->d.task];
    const bool code = recipe == RECIPE_CODE;
    const int64_t warmup = warmup_of(s->d.task, s->attention, code);
    s->recipe = (int)recipe;
    s->train.steps = steps > 0 ? steps : r->steps;
    s->train.warmup = round((double)warmup * (double)s->train.steps / (double)r->steps);
    s->train.batch = r->batch;
    s->train.lr = 1e-4;
    s->train.schedule = code ? RATE_CYCLE : TP_RATE_CONSTANT;
    tp_train_choose(&s->train, "adamw");
    tp_train_set(&s->train, "beta1", 0.9);
    tp_train_set(&s->train, "beta2", 0.999);
    tp_train_set(&s->train, "eps", 1e-6);
    tp_train_set(&s->train, "weight_decay", code ? r->weight_decay : 0.0);
    s->train.eval_every = s->train.checkpoint_every = r->eval_every;
    s->train.seed = r->seed;
}

static void take_batches(lra_settings *s, const tp_lra_cfg *c, bool packed)
{
    s->packed = packed;
    s->bucket = encoder_ignores_padding(c) && !packed ? 50 : 0;
}

static void take_model(lra_settings *s, const tp_lra_cfg *c)
{
    s->layers = c->layers;
    s->dim = c->attn.dim;
    s->heads = c->attn.heads;
    s->hidden = c->hidden;
    s->rank = c->attn.rank;
    s->window = c->attn.window;
    s->conv = c->attn.conv;
    s->pooling = (int)c->pooling;
    s->dropout = c->dropout;
    take_batches(s, c, tp_lra_packs(c) && s->d.task < PIXELS);
}

bool lra_start(lra_settings *s, int task, int attention, lra_recipe recipe, int64_t steps,
               char *why, size_t size)
{
    tp_lra_cfg c;
    *s = (lra_settings){ .train = tp_train_defaults("runs/lra"), .attention = attention };
    s->d.task = task;
    task_data_defaults(&s->d);
    if (!preset_cfg(task, attention, &c, why, size)) return false;
    take_model(s, &c);
    take_recipe(s, recipe, steps);
    s->train.epochs = 0;
    return true;
}

/* Flags that decide whether batches are packed also change the default bucket. A GPU pads by
 * default: whether packing is faster there has not been measured. */
static bool choose_batches(lra_settings *s, const lra_settings *asked, const tp_given_flags *given,
                           char *why, size_t size)
{
    tp_lra_cfg c;
    char reason[512];
    if (!preset_cfg(s->d.task, s->attention, &c, why, size)) return false;
    if (tp_was_given(given, "conv")) c.attn.conv = asked->conv;
    tp_model_cfg m = tp_model_cfg_of(&tp_model_lra, &c); /* lra_model will report --set's errors */
    if (asked->set && tp_model_change(&m, asked->set, NULL, reason, sizeof reason))
        memcpy(&c, &m.at, sizeof c);
    const char *device = asked->train.machine.device;
    const bool usual = s->packed && tp_lra_packs(&c) && (!device || strcmp(device, "cpu") == 0);
    take_batches(s, &c, tp_was_given(given, "packed") ? asked->packed : usual);
    return true;
}

encoder_batching lra_batching(const lra_settings *s)
{
    return (encoder_batching){ .batch = s->train.batch, .bucket = s->bucket, .packed = s->packed };
}

bool lra_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                     size_t size)
{
    const lra_settings *a = asked;
    int task = a ? a->d.task : 0, attention = a ? a->attention : ATTENTION_LS;
    int named = task, kind = attention;
    if (a && a->preset) {
        if (!parse(a->preset, &named, &kind)) {
            snprintf(why, size, "--preset: '%.80s' is not lra-TASK-ATTENTION; --help lists both",
                     a->preset);
            return false;
        }
        if ((tp_was_given(given, "task") && named != task) ||
            (tp_was_given(given, "attention") && kind != attention)) {
            snprintf(why, size, "--preset %s contradicts --task or --attention: leave one out",
                     a->preset);
            return false;
        }
    }
    const int64_t steps = a && tp_was_given(given, "steps") ? a->train.steps : 0;
    return lra_start(settings, named, kind, a ? (lra_recipe)a->recipe : RECIPE_CODE, steps, why,
                     size) &&
           (!a || choose_batches(settings, a, given, why, size));
}

/* ---- the model ---- */

/* Returns the flag that differs, or NULL. */
static const char *flag_between(const lra_settings *a, const lra_settings *b)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(lra_options, row);
    for (int i = 0; i < n; i++) {
        char x[256], y[256];
        tp_option_get(row[i], a, x, sizeof x);
        tp_option_get(row[i], b, y, sizeof y);
        if (strcmp(x, y) != 0) return row[i]->name;
    }
    return NULL;
}

/* Changes members that have no flag. */
static bool change(const lra_settings *s, tp_lra_cfg *c, char *why, size_t size)
{
    static const char *const set_by[TP_COMMON_KINDS] = {
        [TP_COMMON_LENGTH] = "--length",   [TP_COMMON_VOCAB] = "--task",
        [TP_COMMON_PAIR] = "--task",       [TP_COMMON_OUTPUTS] = "--task",
        [TP_COMMON_DROPOUT] = "--dropout",
    };
    tp_model_cfg m = tp_model_cfg_of(&tp_model_lra, c);
    if (!model_set(&m, s->set, set_by, why, size)) return false;
    const tp_lra_kind kind = c->attn.kind;
    lra_settings changed = *s;
    memcpy(c, &m.at, sizeof *c);
    take_model(&changed, c);
    changed.packed = s->packed;
    changed.bucket = s->bucket;
    const char *flag = kind == c->attn.kind ? flag_between(s, &changed) : "attention";
    if (flag) snprintf(why, size, "--set: --%s sets this member: give that", flag);
    return !flag;
}

bool lra_model(const lra_settings *s, tp_lra_cfg *c, char *why, size_t size)
{
    if (!preset_cfg(s->d.task, s->attention, c, why, size)) return false;
    c->layers = (int)s->layers;
    c->hidden = s->hidden;
    c->pooling = (tp_lra_pooling)s->pooling;
    c->dropout = c->attn.dropout = s->dropout;
    c->recompute = (tp_recompute)s->train.recompute;
    c->attn.dim = s->dim;
    c->attn.heads = (int)s->heads;
    c->attn.rank = s->rank;
    c->attn.window = s->window;
    c->attn.conv = s->conv;
    c->attn.length = s->d.length;
    if (s->set && !change(s, c, why, size)) return false;
    if (s->bucket > 1 && encoder_is_fixed(c)) {
        snprintf(why, size,
                 "--bucket %lld: fixed mixtures need documents of the full length: leave "
                 "it out",
                 (long long)s->bucket);
        return false;
    }
    if (s->packed && !tp_lra_packs(c)) {
        snprintf(why, size, "--packed yes: " UNPACKABLE ": leave it out");
        return false;
    }
    return tp_model_lra.check(c, why, size);
}

/* ---- rates ---- */

/* The update whose rate applies; *pct: the warm-up's share of the run. */
static int64_t place(const lra_settings *s, int64_t u, double *pct)
{
    const int64_t warm = (int64_t)s->train.warmup;
    *pct = s->train.warmup / (double)s->train.steps;
    return s->fixed_lr && u > warm ? warm : u;
}

double lra_rate(const lra_settings *s, int64_t u)
{
    const tp_train_settings *o = &s->train;
    double pct;
    if (o->schedule != RATE_CYCLE) return tp_train_rate(o, u, o->steps);
    const int64_t at = place(s, u, &pct);
    return tp_cycle_linear(at, o->steps, pct, o->lr / 25, o->lr, o->lr / 25 / 1e4);
}

double lra_beta1(const lra_settings *s, int64_t u)
{
    double pct;
    if (s->train.schedule != RATE_CYCLE) return tp_train_get(&s->train, "beta1");
    const int64_t at = place(s, u, &pct);
    return tp_cycle_linear(at, s->train.steps, pct, 0.95, 0.85, 0.95);
}
