/* training.c - building a run: from a preset, a recipe and flags, or from the checkpoint of an
 * earlier one.
 *
 * Flags are read twice: first to learn preset, recipe, folder and whether to resume, then on top of
 * the preset's values. A resumed run has the checkpoint's settings; only flags that do not change
 * its course may differ from them. */
#include "training.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool training_fail(training *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!t->why[0]) vsnprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    return false;
}

bool training_lost(training *t, const char *why)
{
    static const char advice[] = "a lower --lr, a longer --warmup or a smaller --clip";
    const char *search = t->s.check_finite ? "" : "; --check-finite names the op (slow)";
    if (t->saved < 0) return training_fail(t, "%s\nTry %s%s.", why, advice, search);
    return training_fail(
        t,
        "%s\n%s still holds update %lld: begin another run from it with --init and "
        "%s%s.",
        why, t->run.last, (long long)t->saved, advice, search);
}

void training_bad_picture(void *env, const char *name, const char *why)
{
    training *t = env;
    progress_say(&t->bar, "left out: %s: %s", name, why);
}

/* ---- settings ---- */

/* What no preset decides, then what this one does. */
static bool start_settings(image_settings *s, const char *preset, int recipe, char *why,
                           size_t size)
{
    *s = (image_settings){
        .c = { .device = strdup("cpu"),
               .run_dir = strdup("runs/imagenet"),
               .log_every = 50,
               .eval_every = 1 },
        .shapes = 2000,
        .accumulation = 1,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .momentum = 0.9,
        .nu = 1,
        .redraw = 1,
        .redraw_growth = 5,
        .repeats = 1,
        .workers = 2,
    };
    return image_preset(s, preset, recipe, why, size);
}

/* Takes over the given flags that a resumed run may set; names those that it may not. */
static bool merge_resumed(training *t, const image_settings *asked, const bool *given)
{
    char text[2048], why[512];
    if (options_differ(image_options, asked, &t->s, IMAGE_SAVED, given, text, sizeof text))
        return training_fail(t,
                             "%s was trained with other settings: %s; leave these flags out, or "
                             "begin another run",
                             t->run.last, text);
    for (const option *o = image_options; o->kind != OPT_END; o++) {
        char value[4200];
        if (!given[o - image_options]) continue;
        option_get(o, asked, value, sizeof value);
        if (!option_set(o, &t->s, value, why, sizeof why))
            return training_fail(t, "--%s: %s", o->name, why);
    }
    return true;
}

/* ---- building ---- */

static uint64_t hash_pictures(const tp_pictures *X)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a */
    for (int64_t i = 0; i < tp_pictures_count(X); i++) {
        char buf[512];
        const char *name = tp_pictures_name(X, i, buf, sizeof buf), *base = strrchr(name, '/');
        for (const char *c = base ? base : name; *c; c++)
            h = (h ^ (uint64_t)(unsigned char)*c) * 0x100000001b3;
        h = (h ^ (uint64_t)(uint32_t)tp_pictures_label(X, i)) * 0x100000001b3;
    }
    return h;
}

static tp_pictures *open_part(training *t, tp_part part)
{
    const image_settings *s = &t->s;
    const bool train = part == TP_TRAIN;
    if (s->c.data) return tp_pictures_open(s->c.data, (tp_layout)s->layout, part);
    return shapes_open(&t->drawn[train ? 0 : 1], train ? s->shapes : (s->shapes + 3) / 4, s->size,
                       part);
}

static bool open_pictures(training *t)
{
    image_settings *s = &t->s;
    run_absolute(&s->c.data);
    t->X = open_part(t, TP_TRAIN);
    if (!tp_pictures_ok(t->X)) return training_fail(t, "%s", tp_pictures_why(t->X));
    t->V = open_part(t, TP_VALID);
    if (!tp_pictures_ok(t->V)) return training_fail(t, "%s", tp_pictures_why(t->V));
    const tp_augment a = image_augment(s);
    t->data_hash = hash_pictures(t->X);
    t->L = tp_loader_new(t->X, &(tp_loader_opts){ .augment = &a,
                                                  .batch = s->c.batch,
                                                  .seed = (uint64_t)s->c.seed,
                                                  .threads = (int)s->workers,
                                                  .ahead = BATCHES_AHEAD,
                                                  .repeats = (int)s->repeats,
                                                  .train = true,
                                                  .strict = s->strict,
                                                  .bad = training_bad_picture,
                                                  .env = t });
    if (!tp_loader_ok(t->L)) return training_fail(t, "%s", tp_loader_why(t->L));
    t->per_epoch = tp_loader_steps(t->L) / s->accumulation;
    return t->per_epoch > 0 ||
           training_fail(t,
                         "%lld pictures are too few for an update of %lld x %lld (--batch x "
                         "--accumulation)",
                         (long long)tp_pictures_count(t->X), (long long)s->c.batch,
                         (long long)s->accumulation);
}

static bool build_model(training *t)
{
    image_settings *s = &t->s;
    const tp_dtype dtype = (tp_dtype)s->c.dtype;
    t->D = tp_device_open(s->c.device,
                          &(tp_device_opts){ .threads = (int)s->c.threads, .profile = s->profile });
    t->P = tp_params_new(t->D, &(tp_params_opts){ .seed = (uint64_t)s->c.seed,
                                                  .dtype = dtype == TP_F64 ? TP_F64 : TP_F32,
                                                  .blank = s->c.resume });
    t->T = tp_tape_new(t->D, &(tp_tape_opts){ .seed = (uint64_t)s->c.seed,
                                              .compute = dtype,
                                              .train = true,
                                              .check_finite = s->check_finite });
    t->E = tp_tape_new(t->D, &(tp_tape_opts){ .compute = dtype });
    t->on_card = strncmp(s->c.device, "cuda", 4) == 0;
    t->m = calloc(1, sizeof *t->m);
    if (!t->m) return training_fail(t, "out of memory");
    tp_record(t->E, false);
    classifier_init(t->P, t->m, &t->cfg);
    if (!s->c.resume) classifier_redraw(t->P, t->m, (uint64_t)s->c.seed, 0);
    if (s->init && !tp_params_ok(t->P)) return training_fail(t, "%s", tp_params_why(t->P));
    if (s->init && !training_init(t)) return false;
    t->O = image_new_optimizer(t->P, s);
    if (s->ema > 0) t->ema = tp_ema_new(t->P, s->ema);
    if (!tp_device_ok(t->D)) return training_fail(t, "%s", tp_device_why(t->D));
    if (!tp_params_ok(t->P)) return training_fail(t, "%s", tp_params_why(t->P));
    if (!tp_optim_ok(t->O)) return training_fail(t, "%s", tp_optim_why(t->O));
    if (t->ema && !tp_ema_ok(t->ema)) return training_fail(t, "%s", tp_ema_why(t->ema));
    return tp_ok(t->T) || training_fail(t, "%s", tp_why(t->T));
}

static bool build(training *t)
{
    image_settings *s = &t->s;
    char why[1024];
    if (s->c.lr == 0) s->c.lr = image_lr(s);
    if (!open_pictures(t)) return false;
    if (!image_model(s, tp_pictures_classes(t->X), &t->cfg, why, sizeof why))
        return training_fail(t, "impossible model: %s", why);
    if (tp_pictures_classes(t->V) > t->cfg.classes)
        return training_fail(t,
                             "the pictures for validation have %d classes, those for training %d",
                             tp_pictures_classes(t->V), tp_pictures_classes(t->X));
    return s->plan || build_model(t);
}

/* ---- two beginnings ---- */

static bool open_fresh(training *t)
{
    if (access(t->run.last, F_OK) == 0 && !t->s.overwrite)
        return training_fail(t,
                             "run folder %s holds a run already: continue it with --resume, choose "
                             "another --run-dir, or begin anew with --overwrite",
                             t->run.path);
    t->best = -1;
    t->saved = -1;
    return build(t);
}

/* No run folder is touched. */
static bool open_planned(training *t)
{
    if (t->s.c.resume)
        return training_fail(t, "--plan describes a run from its beginning: leave out --resume and "
                                "give the flags of the run");
    return build(t);
}

static bool open_resumed(training *t, const image_settings *asked, const bool *given)
{
    char why[5000];
    if (asked->init || asked->overwrite)
        return training_fail(t, "--resume continues a run: it goes with neither --init nor "
                                "--overwrite");
    tp_file *F = tp_file_open(t->run.last);
    bool done = tp_file_ok(F) || training_fail(t, "cannot resume: %s", tp_file_why(F));
    if (done && !options_read(image_options, &t->s, F, why, sizeof why))
        done = training_fail(t, "%s", why);
    if (done && t->s.c.data && !t->s.c.data[0]) { /* a run on drawn shapes */
        free(t->s.c.data);
        t->s.c.data = NULL;
    }
    done = done && merge_resumed(t, asked, given) && build(t) && training_load(t, F);
    tp_file_close(F);
    t->best = training_best_so_far(t->run.best);
    return done;
}

static json_t *config(const training *t)
{
    json_t *c = json_object();
    json_object_set_new(c, "program", json_string("imagenet"));
    json_object_set_new(c, "version", json_string(tp_version()));
    json_object_set_new(c, "model", json_string(classifier_family(&t->cfg)));
    json_object_set_new(c, "parameters", json_integer(tp_params_count(t->P)));
    json_object_set_new(c, "classes", json_integer(t->cfg.classes));
    json_object_set_new(c, "settings", options_json(image_options, &t->s));
    return c;
}

/* Puts the folder of a run that is built in order; removes the files of one that it is begun over.
 */
static bool begin_files(training *t, bool resumed)
{
    const char *const former[] = { t->run.last, t->run.best };
    if (!run_write_config(&t->run, config(t))) return training_fail(t, "%s", t->run.why);
    for (int i = 0; i < 2 && !resumed; i++)
        if (remove(former[i]) != 0 && errno != ENOENT)
            return training_fail(t, "%s cannot be removed: %s; choose another --run-dir", former[i],
                                 strerror(errno));
    if (!log_open(&t->log, t->run.log, t->update)) return training_fail(t, "%s", t->log.why);
    t->seconds = log_last(&t->log, "seconds");
    return true;
}

int training_open(training *t, const program *p, int argc, char **argv)
{
    image_settings asked;
    bool given[OPT_MAX];
    char why[1024] = "";
    *t = (training){ .run = { .lock = -1 }, .log = { .fd = -1 } };
    start_settings(&asked, "tiny", -1, why, sizeof why);
    int status = options_parse(p, argc, argv, &asked, given);
    if (status == OPTIONS_RUN) {
        int recipe = -1;
        for (const option *o = image_options; o->kind != OPT_END; o++)
            if (strcmp(o->name, "recipe") == 0 && given[o - image_options]) recipe = asked.recipe;
        if (!start_settings(&t->s, asked.preset, recipe, why, sizeof why))
            training_fail(t, "%s", why);
        else if (asked.plan) {
            if (options_parse(p, argc, argv, &t->s, NULL) == OPTIONS_RUN) open_planned(t);
        } else if (!run_open(&t->run, asked.c.run_dir))
            training_fail(t, "%s", t->run.why);
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
    options_free(image_options, &asked);
    return status;
}

void training_close(training *t)
{
    log_close(&t->log);
    tp_loader_free(t->L);
    tp_pictures_close(t->X);
    tp_pictures_close(t->V);
    tp_ema_free(t->ema);
    tp_optim_free(t->O);
    tp_tape_free(t->T);
    tp_tape_free(t->E);
    tp_params_free(t->P);
    tp_device_close(t->D);
    free(t->m);
    options_free(image_options, &t->s);
    run_close(&t->run);
}
