/* trainer.c - building a run: from a preset and flags, or from the checkpoint of an earlier one.
 *
 * Flags are read twice: first to learn the preset, the folder and whether to resume, then on top of
 * the preset's values. A resumed run has the checkpoint's settings; only flags that do not change
 * its course may differ from them. */
#include "trainer.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool trainer_fail(trainer *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!t->why[0]) vsnprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    return false;
}

bool trainer_lost(trainer *t, const char *why)
{
    static const char advice[] = "a lower --lr, a longer --warmup or a smaller --clip";
    const char *search = t->s.check_finite ? "" : "; --check-finite names the op (slow)";
    if (t->saved < 0) return trainer_fail(t, "%s\nTry %s%s.", why, advice, search);
    return trainer_fail(t,
                        "%s\n%s still holds update %lld: begin another run from it with --init and "
                        "%s%s.",
                        why, t->run.last, (long long)t->saved, advice, search);
}

/* ---- settings ---- */

/* What no preset decides, then what this one does. */
static bool start_settings(settings *s, int model, int which, int64_t phase, char *why, size_t size)
{
    *s = (settings){
        .c = { .device = strdup("cpu"), .run_dir = strdup("runs/enwik8"), .seed = 2 },
        .model = model,
        .preset = which,
        .phase = phase,
        .accumulation = 1,
        .lr_every = 1000,
        .lr_factor = 0.5,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .momentum = 0.9,
        .chunk = 16,
        .rank = 1,
        .window = 64,
        .d_head = 64,
        .dual_ln = true,
    };
    return settings_preset(s, why, size);
}

/* The schedules whose shape depends on the number of steps: a resumed run cannot change it. */
static bool steps_matter(const settings *s)
{
    return s->schedule == SCHEDULE_LINEAR || s->schedule == SCHEDULE_COSINE ||
           s->schedule == SCHEDULE_ONECYCLE;
}

/* Takes over the given flags that a resumed run may set; names those that it may not. */
static bool merge_resumed(trainer *t, const settings *asked, const bool *given)
{
    char text[2048], why[512];
    if (options_differ(train_options, asked, &t->s, TAG_SAVED | TAG_MODEL, given, text,
                       sizeof text))
        return trainer_fail(t,
                            "%s was trained with other settings: %s; leave these flags out, or "
                            "begin another run",
                            t->run.last, text);
    for (const option *o = train_options; o->kind != OPT_END; o++) {
        if (!given[o - train_options] || o->kind == OPT_HEADING) continue;
        if (strcmp(o->name, "steps") == 0 && steps_matter(&t->s) && asked->c.steps != t->s.c.steps)
            return trainer_fail(t, "%s: its schedule ends at --steps %lld, which cannot be changed",
                                t->run.last, (long long)t->s.c.steps);
        char value[4200];
        option_get(o, asked, value, sizeof value);
        if (!option_set(o, &t->s, value, why, sizeof why))
            return trainer_fail(t, "--%s: %s", o->name, why);
    }
    return true;
}

/* ---- building ---- */

static uint64_t hash_ids(const int16_t *ids, int64_t n)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a, a token at a time */
    for (int64_t i = 0; i < n; i++) h = (h ^ (uint64_t)(uint16_t)ids[i]) * 0x100000001b3;
    return h;
}

static bool open_text(trainer *t, const tp_vocab *vocab)
{
    settings *s = &t->s;
    int64_t n;
    run_absolute(&s->c.data);
    if (s->extra && *s->extra) run_absolute(&s->extra);
    if (!s->c.data) return trainer_fail(t, "--data FILE is needed: enwik8, text8 or any text");
    t->text = tp_text_open(s->c.data,
                           &(tp_text_opts){ .style = (tp_text_style)s->style,
                                            .vocab = vocab,
                                            .extra = s->extra && *s->extra ? s->extra : NULL });
    if (!tp_text_ok(t->text)) return trainer_fail(t, "%s", tp_text_why(t->text));
    const int16_t *ids = tp_text_ids(t->text, TP_TRAIN, &n);
    t->text_hash = hash_ids(ids, n);
    t->reader = tp_bytes_new(t->text, TP_TRAIN,
                             &(tp_bytes_opts){ .batch = s->c.batch,
                                               .tokens = s->tokens,
                                               .all_targets = s->targets == TARGETS_ALL });
    if (!tp_bytes_ok(t->reader)) return trainer_fail(t, "%s", tp_bytes_why(t->reader));
    t->x = malloc((size_t)(s->c.batch * s->tokens) * sizeof *t->x);
    t->y = malloc((size_t)(s->c.batch * s->tokens) * sizeof *t->y);
    if (s->c.lr == 0) s->c.lr = preset_lr(s, tp_text_vocab(t->text)->style == TP_TEXT_TEXT8);
    return (t->x && t->y) || trainer_fail(t, "out of memory");
}

static tp_optim *new_optimizer(tp_params *P, const settings *s)
{
    const tp_adam_opts adam = {
        .beta1 = s->beta1,
        .beta2 = s->beta2,
        .eps = s->eps,
        .weight_decay = s->weight_decay,
        .raw_eps = s->model == MODEL_LS, /* as fairseq, which trained it, has it */
    };
    switch ((optimizer)s->optimizer) {
    case OPTIMIZER_ADAM: return tp_adam_new(P, &adam);
    case OPTIMIZER_SGD:
        return tp_sgd_new(P, &(tp_sgd_opts){ .momentum = s->momentum,
                                             .weight_decay = s->weight_decay,
                                             .nesterov = s->nesterov });
    case OPTIMIZER_ADAMW: break;
    }
    return tp_adamw_new(P, &adam);
}

static bool build(trainer *t, const tp_vocab *vocab)
{
    const settings *s = &t->s;
    char why[512];
    if (!open_text(t, vocab)) return false;
    t->cfg = model_cfg_from(s, tp_text_vocab(t->text)->size);
    if (!model_cfg_check(&t->cfg, why, sizeof why))
        return trainer_fail(t, "impossible model: %s", why);
    if (!model_segment_check(&t->cfg, "--tokens", s->tokens, why, sizeof why))
        return trainer_fail(t, "%s", why);
    return s->plan || trainer_build(t, false);
}

bool trainer_build(trainer *t, bool dry)
{
    const settings *s = &t->s;
    const tp_dtype dtype = (tp_dtype)s->c.dtype;
    t->D = tp_device_open(
        s->c.device,
        &(tp_device_opts){ .threads = (int)s->c.threads, .dry = dry, .profile = s->profile });
    t->P = tp_params_new(t->D, &(tp_params_opts){ .seed = (uint64_t)s->c.seed,
                                                  .dtype = dtype == TP_F64 ? TP_F64 : TP_F32,
                                                  .blank = s->c.resume || s->init });
    t->T = tp_tape_new(t->D, &(tp_tape_opts){ .seed = (uint64_t)s->c.seed,
                                              .compute = dtype,
                                              .train = true,
                                              .check_finite = s->check_finite });
    t->E = tp_tape_new(t->D, &(tp_tape_opts){ .compute = dtype });
    t->on_card = strncmp(s->c.device, "cuda", 4) == 0;
    if (s->graph && s->accumulation == 1) t->C = tp_capture_new(t->T);
    t->m = calloc(1, sizeof *t->m);
    if (!t->m) return trainer_fail(t, "out of memory");
    tp_record(t->E, false);
    model_init(t->P, t->m, &t->cfg);
    t->O = new_optimizer(t->P, s);
    if (s->ema > 0) t->ema = tp_ema_new(t->P, s->ema);
    if (!tp_device_ok(t->D)) return trainer_fail(t, "%s", tp_device_why(t->D));
    if (!tp_params_ok(t->P)) return trainer_fail(t, "%s", tp_params_why(t->P));
    if (!tp_optim_ok(t->O)) return trainer_fail(t, "%s", tp_optim_why(t->O));
    if (t->ema && !tp_ema_ok(t->ema)) return trainer_fail(t, "%s", tp_ema_why(t->ema));
    return tp_ok(t->T) || trainer_fail(t, "%s", tp_why(t->T));
}

/* ---- three beginnings ---- */

static bool read_vocab(trainer *t, const tp_file *F, tp_vocab *v)
{
    const char *text = tp_file_meta(F, "vocab");
    return (text && tp_vocab_parse(v, text)) ||
           trainer_fail(t, "%s: the dictionary ('vocab') is %s", tp_file_path(F),
                        text ? "malformed" : "missing");
}

/* The weights of --init, which must mean the same in this model (a plan does without them). */
static bool init_from(trainer *t, tp_file *F, tp_vocab *vocab)
{
    char why[2048];
    model_cfg theirs;
    settings there = t->s; /* compared, not owned */
    if (!model_cfg_read(&theirs, F, why, sizeof why)) return trainer_fail(t, "%s", why);
    model_cfg_into(&theirs, &there);
    if (options_differ(train_options, &t->s, &there, TAG_MODEL, NULL, why, sizeof why))
        return trainer_fail(t, "%s holds another model: %s", tp_file_path(F), why);
    if (!read_vocab(t, F, vocab) || !build(t, vocab)) return false;
    if (t->s.plan) return true;
    return model_read_weights(t->P, F) || trainer_fail(t, "%s", tp_params_why(t->P));
}

static bool begin_from(trainer *t)
{
    tp_vocab vocab;
    if (!t->s.init) return build(t, NULL);
    tp_file *F = tp_file_open(t->s.init);
    const bool done = init_from(t, F, &vocab);
    tp_file_close(F);
    return done;
}

static bool open_fresh(trainer *t)
{
    if (access(t->run.last, F_OK) == 0 && !t->s.overwrite)
        return trainer_fail(t,
                            "run folder %s holds a run already: continue it with --resume, choose "
                            "another --run-dir, or begin anew with --overwrite",
                            t->run.path);
    if (!begin_from(t)) return false;
    t->best = (double)INFINITY;
    t->saved = -1;
    return true;
}

static bool open_resumed(trainer *t, const settings *asked, const bool *given)
{
    char why[5000];
    tp_vocab vocab;
    if (asked->init || asked->overwrite)
        return trainer_fail(t, "--resume continues a run: it goes with neither --init nor "
                               "--overwrite");
    tp_file *F = tp_file_open(t->run.last);
    bool done = tp_file_ok(F) || trainer_fail(t, "cannot resume: %s", tp_file_why(F));
    if (done && !options_read(train_options, &t->s, F, why, sizeof why))
        done = trainer_fail(t, "%s", why);
    done = done && merge_resumed(t, asked, given) && read_vocab(t, F, &vocab) && build(t, &vocab) &&
           trainer_load(t, F);
    tp_file_close(F);
    t->best = trainer_best_so_far(t->run.best);
    return done;
}

static json_t *config(const trainer *t)
{
    json_t *c = json_object();
    json_object_set_new(c, "program", json_string("enwik8"));
    json_object_set_new(c, "version", json_string(tp_version()));
    json_object_set_new(c, "parameters", json_integer(tp_params_count(t->P)));
    json_object_set_new(c, "vocabulary", json_integer(tp_text_vocab(t->text)->size));
    json_object_set_new(c, "settings", options_json(train_options, &t->s));
    return c;
}

/* The files of the run that this one is begun over. */
static bool discard_former(trainer *t)
{
    const char *const former[] = { t->run.last, t->run.best };
    for (int i = 0; i < 2; i++)
        if (remove(former[i]) != 0 && errno != ENOENT)
            return trainer_fail(t, "%s cannot be removed: %s; choose another --run-dir", former[i],
                                strerror(errno));
    return true;
}

/* Puts the folder of a run that is built in order. */
static bool begin_files(trainer *t, bool resumed)
{
    if (!run_write_config(&t->run, config(t))) return trainer_fail(t, "%s", t->run.why);
    if (!resumed && !discard_former(t)) return false;
    if (!log_open(&t->log, t->run.log, t->update)) return trainer_fail(t, "%s", t->log.why);
    t->seconds = log_last(&t->log, "seconds");
    return true;
}

/* No run folder is touched. */
static bool open_planned(trainer *t)
{
    if (t->s.c.resume)
        return trainer_fail(t, "--plan describes a run from its beginning: leave out --resume and "
                               "give the flags of the run");
    return begin_from(t);
}

int trainer_open(trainer *t, const program *p, int argc, char **argv)
{
    settings asked;
    bool given[OPT_MAX];
    char why[512] = "";
    *t = (trainer){ .run = { .lock = -1 }, .log = { .fd = -1 } };
    start_settings(&asked, MODEL_LS, PRESET_TINY, 1, why, sizeof why);
    int status = options_parse(p, argc, argv, &asked, given);
    if (status == OPTIONS_RUN) {
        if (!start_settings(&t->s, asked.model, asked.preset, asked.phase, why, sizeof why))
            trainer_fail(t, "%s", why);
        else if (asked.plan) {
            if (options_parse(p, argc, argv, &t->s, NULL) == OPTIONS_RUN) open_planned(t);
        } else if (!run_open(&t->run, asked.c.run_dir))
            trainer_fail(t, "%s", t->run.why);
        else if (asked.c.resume)
            open_resumed(t, &asked, given);
        else if (options_parse(p, argc, argv, &t->s, NULL) == OPTIONS_RUN)
            open_fresh(t);
        if (!t->why[0] && !t->s.plan) begin_files(t, asked.c.resume);
        if (t->why[0]) {
            fprintf(stderr, "%s: %s\n", p->name, t->why);
            status = 1;
        }
    }
    options_free(train_options, &asked);
    return status;
}

void trainer_rescue(trainer *t)
{
    char path[RUN_PATH];
    snprintf(path, sizeof path, "%s", t->run.path);
    t->why[0] = '\0';
    log_close(&t->log);
    run_close(&t->run);
    if (!run_open(&t->run, path)) {
        trainer_fail(t, "the run folder was removed while in use, and cannot be made again: %s",
                     t->run.why);
    } else if (access(t->run.last, F_OK) == 0) {
        trainer_fail(t,
                     "run folder %s was replaced while in use, and holds another run; update "
                     "%lld is lost",
                     path, (long long)t->update);
    } else if (trainer_save(t)) {
        trainer_fail(t,
                     "run folder %s was removed while in use; it is made again with a "
                     "checkpoint of update %lld: continue with --resume",
                     path, (long long)t->update);
    }
}

void trainer_close(trainer *t)
{
    log_close(&t->log);
    tp_bytes_free(t->reader);
    tp_text_close(t->text);
    tp_ema_free(t->ema);
    tp_optim_free(t->O);
    tp_capture_free(t->C);
    tp_tape_free(t->T);
    tp_tape_free(t->E);
    tp_params_free(t->P);
    tp_device_close(t->D);
    free(t->m);
    free(t->x);
    free(t->y);
    options_free(train_options, &t->s);
    run_close(&t->run);
}
