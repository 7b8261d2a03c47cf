/* image_run.c - trains on labelled images. Each epoch ends with a validation, a report and a
 * checkpoint. */
#include "image_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "image_commands.h"
#include "names/class_names.h"
#include "reports/plain_text.h"

/* ---- data ---- */

static tp_image_set *open_part(tp_run *R, tp_part part)
{
    const image_settings *s = R->settings;
    const int64_t shapes = part == TP_TRAIN ? s->shapes : (s->shapes + 3) / 4;
    tp_image_set *X = s->data ? tp_image_set_open(s->data, (tp_layout)s->layout, part)
                              : tp_image_set_shapes(shapes, s->size, part);
    if (!tp_image_set_ok(X)) tp_run_fail(R, "%s", tp_image_set_why(X));
    return X;
}

/* Reports what the sets leave out. */
static void say_left_out(tp_run *R, const tp_image_set *X, const tp_image_set *V)
{
    const char *train = tp_image_set_note(X), *valid = tp_image_set_note(V);
    char line[4200];
    if (train[0]) tp_run_say(R, "%s", plain_line(train, line, sizeof line));
    if (valid[0] && strcmp(train, valid) != 0)
        tp_run_say(R, "of validation, %s", plain_line(valid, line, sizeof line));
}

/* Labels are numbers, comparable only if the classes agree. */
static void compare_classes(tp_run *R, tp_file *from)
{
    const image_settings *s = R->settings;
    const image_run *t = R->state;
    const char *names = s->train.resume && from ? tp_file_meta(from, "class_names") : NULL;
    char why[700];
    if (names && !class_names_agree(names, t->X, why, sizeof why))
        tp_run_fail(R, "%s was trained on other classes: %s; give its images with --data",
                    tp_file_path(from), why);
    for (int k = 0; k < tp_image_set_classes(t->V) && k < tp_image_set_classes(t->X); k++)
        if (strcmp(tp_image_set_class(t->V, k), tp_image_set_class(t->X, k)) != 0)
            tp_run_fail(
                R, "class %d is '%s' in the images for training and '%s' in those for validation",
                k, tp_image_set_class(t->X, k), tp_image_set_class(t->V, k));
}

/* The order of --balance; NULL: the usual one, or no memory, which fails R. */
static const tp_example_sampler *balance(tp_run *R)
{
    const image_settings *s = R->settings;
    image_run *t = R->state;
    const int64_t n = tp_image_set_count(t->X);
    if (!s->balance) return NULL;
    t->label = malloc((size_t)n * sizeof *t->label);
    if (!t->label) {
        tp_run_fail(R, "out of memory");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) t->label[i] = tp_image_set_label(t->X, i);
    t->balanced = (tp_balanced){ t->label, tp_image_set_classes(t->X) };
    t->sampler = (tp_example_sampler){ .order = tp_order_balanced, .env = &t->balanced };
    return &t->sampler;
}

static void open_loader(tp_run *R)
{
    const image_settings *s = R->settings;
    image_run *t = R->state;
    const tp_augment a = image_augment(s);
    t->L = tp_image_loader_new(t->X, &(tp_image_loader_opts){ .augment = &a,
                                                              .batch = s->train.batch,
                                                              .seed = (uint64_t)s->train.seed,
                                                              .threads = (int)s->workers,
                                                              .ahead = BATCHES_AHEAD,
                                                              .repeats = (int)s->repeats,
                                                              .train = true,
                                                              .strict = s->strict,
                                                              .bad = tp_run_left_out,
                                                              .env = R,
                                                              .sampler = balance(R),
                                                              .share = tp_run_share(R) });
    if (!tp_loader_ok(t->L)) tp_run_fail(R, "%s", tp_loader_why(t->L));
    R->batches = tp_loader_steps(t->L);
    R->units = s->train.batch;
    R->data_hash = tp_image_set_hash(t->X);
}

/* A captured step would repeat the same random shift. */
static void check_flags(tp_run *R)
{
    const image_settings *s = R->settings;
    if (s->train.graph && s->random_shift > 0)
        tp_run_fail(
            R, "--graph cannot be combined with --random-shift: a captured step repeats its shift");
}

/* Rates follow the batch of all processes. */
static void take_rate(tp_run *R)
{
    image_settings *s = R->settings, whole = *s;
    whole.train.batch *= R->ranks;
    if (s->train.lr == 0) s->train.lr = image_lr(&whole);
    if (s->schedule == RATE_PLATEAU) s->train.schedule = TP_RATE_PLATEAU; /* the engine's part */
}

/* Converts a length in updates to epochs. */
static void take_length(tp_run *R)
{
    image_settings *s = R->settings;
    const int64_t U = R->batches / s->train.accumulation, N = s->schedule_steps;
    if (N == 0 || U == 0) return;
    s->train.epochs = (N - 1) / U + 1;
    if (s->train.steps == 0 || s->train.steps > N) s->train.steps = N;
}

static void open_images(tp_run *R, tp_file *from)
{
    image_settings *s = R->settings;
    image_run *t = R->state;
    char why[1024];
    check_flags(R);
    take_rate(R);
    tp_absolute_path(&s->data);
    t->X = open_part(R, TP_TRAIN);
    t->V = open_part(R, image_validation(s));
    if (!tp_run_ok(R)) return;
    say_left_out(R, t->X, t->V);
    compare_classes(R, from);
    open_loader(R);
    take_length(R);
    if (!image_model(s, tp_image_set_classes(t->X), &t->cfg, why, sizeof why))
        tp_run_fail(R, "impossible model: %s", why);
    else if (tp_image_set_classes(t->V) > t->cfg.classes)
        tp_run_fail(R, "the validation images have %d classes, the training images %d",
                    tp_image_set_classes(t->V), tp_image_set_classes(t->X));
    else
        teacher_open(&t->teacher, R, t->X);
}

/* A trial repeats one batch of noise. */
static void share_images(tp_run *R, const tp_run *with)
{
    const image_settings *s = R->settings;
    const image_run *theirs = with->state;
    image_run *t = R->state;
    char why[1024];
    tp_random r = tp_random_stream(1, "probe", 0, 0);
    t->X = theirs->X;
    t->V = theirs->V;
    t->teacher = teacher_for_trial(&theirs->teacher);
    R->batches = with->batches;
    R->units = s->train.batch;
    if (!image_model(s, tp_image_set_classes(t->X), &t->cfg, why, sizeof why))
        tp_run_fail(R, "impossible model: %s", why);
    const int64_t pixels = s->train.batch * s->size * s->size * 3;
    t->noise = calloc((size_t)(pixels + s->train.batch * t->cfg.classes), sizeof *t->noise);
    if (!t->noise)
        tp_run_fail(R, "out of memory");
    else if (s->train.batch <= 64) /* larger batches occur only in dry runs */
        tp_random_normals(&r, t->noise, pixels);
}

static void close_images(tp_run *R)
{
    image_run *t = R->state;
    if (!R->trial) {
        tp_loader_free(t->L);
        tp_image_set_close(t->X);
        tp_image_set_close(t->V);
    }
    score_free(&t->score);
    free(t->label);
    free(t->unread);
    free(t->noise);
    classifier_free(t->m);
    teacher_close(&t->teacher);
}

/* ---- model ---- */

static void build(tp_run *R)
{
    const image_settings *s = R->settings;
    image_run *t = R->state;
    t->m = calloc(1, sizeof *t->m);
    if (!t->m) {
        tp_run_fail(R, "out of memory");
        return;
    }
    classifier_init(R->P, t->m, &t->cfg);
    if (!s->train.resume) classifier_redraw(R->P, t->m, (uint64_t)s->train.seed, 0);
    teacher_build(&t->teacher, R);
}

static tp_optim *new_optimizer(tp_run *R)
{
    return image_new_optimizer(R->P, R->settings);
}

static double rate(const tp_run *R, int64_t update)
{
    return image_rate(R->settings, update, R->per_epoch);
}

/* ---- steps ---- */

/* Redraws Performer's random features on the official code's schedule. The batch's number in the
 * run identifies a draw, so that a resumed run repeats it. */
static void renew_features(tp_run *R)
{
    const image_settings *s = R->settings;
    image_run *t = R->state;
    const uint64_t whole =
        (uint64_t)R->epoch * (uint64_t)R->per_epoch * (uint64_t)s->train.accumulation;
    const double enough = (double)s->redraw + (double)s->redraw_growth * (double)R->epoch;
    if (s->redraw == 0 || (double)t->served++ < enough) return;
    t->served = 0;
    classifier_redraw(R->P, t->m, (uint64_t)s->train.seed, whole + (uint64_t)R->batch);
}

static void feed(tp_run *R, const float *x, const float *target)
{
    const image_settings *s = R->settings;
    image_run *t = R->state;
    tp_feed(R->T, &t->x, TP_F32, TP_SHAPE(R->units, s->size, s->size, 3), x);
    tp_feed(R->T, &t->y, TP_F32, TP_SHAPE(R->units, t->cfg.classes), target);
}

static void begin_report(tp_run *R)
{
    image_run *t = R->state;
    t->from = tp_seconds();
    t->waited = tp_loader_waited(t->L);
}

static void count_skipped(tp_run *R)
{
    image_run *t = R->state;
    const int64_t all = tp_loader_skipped(t->L);
    R->sum[SKIPPED] += (double)(all - t->unfit);
    t->unfit = all;
}

static void next_batch(tp_run *R)
{
    const image_settings *s = R->settings;
    image_run *t = R->state;
    const double shifted = s->random_shift * (double)s->train.epochs;
    tp_image_batch b;
    if (t->from == 0 && t->L) begin_report(R);
    classifier_random_shift(t->m, (double)R->epoch < shifted);
    renew_features(R);
    if (t->L) tp_loader_seek(t->L, R->epoch, R->batch);
    if (!t->L)
        feed(R, t->noise, t->noise + R->units * s->size * s->size * 3);
    else if (tp_image_loader_next(t->L, &b))
        feed(R, b.x, b.target);
    else
        tp_run_fail(R, "%s", tp_loader_why(t->L));
    if (t->L) count_skipped(R);
}

static tp_tensor batch_loss(tp_run *R)
{
    const tp_dtype dtype = tp_compute_dtype(R->T);
    const image_run *t = R->state;
    tp_tensor x = t->x, y = t->y;
    if (dtype == TP_F64) x = tp_cast(R->T, x, TP_F64);
    if (dtype == TP_F64) y = tp_cast(R->T, y, TP_F64);
    if (t->teacher.m) return teacher_loss(R->T, &t->teacher, t->m, x, y, R->settings);
    tp_tensor z = classifier_forward(R->T, t->m, x);
    if (dtype == TP_BF16) z = tp_cast(R->T, z, TP_F32); /* the targets' dtype */
    return tp_cross_entropy(R->T, z, y, TP_MEAN);
}

/* ---- descriptions and reports ---- */

/* FLOPs of an update per image: backward counts twice forward, recomputation is not counted. A
 * teacher only runs forward. */
static double flops_of_image(const image_run *t)
{
    return 6.0 * classifier_macs(&t->cfg) +
           (t->teacher.path[0] ? 2.0 * classifier_macs(&t->teacher.cfg) : 0);
}

static double flops(const tp_run *R)
{
    const tp_train_settings *o = R->settings;
    return flops_of_image(R->state) * (double)(o->batch * o->accumulation);
}

static const char *chosen(const image_settings *s, const char *flag, char *text, size_t size)
{
    tp_option_get(tp_option_find(image_options, flag), s, text, size);
    return text;
}

static void describe_teacher(tp_run *R)
{
    const image_settings *s = R->settings;
    const teacher *t = &((const image_run *)R->state)->teacher;
    char how[32];
    if (!t->path[0]) return;
    tp_run_note_text(R, "teacher", classifier_family(&t->cfg));
    tp_run_note_int(R, "teacher_parameters", tp_params_count(t->P));
    tp_run_say(R,
               "teacher %s (%s): %lld parameters, %.4g GFLOP each forward; distillation %s, alpha "
               "%g, tau %g",
               t->path, classifier_family(&t->cfg), (long long)tp_params_count(t->P),
               2e-9 * classifier_macs(&t->cfg), chosen(s, "distill", how, sizeof how),
               s->distill_alpha, s->distill_tau);
}

static void describe(tp_run *R)
{
    const image_settings *s = R->settings;
    const tp_train_settings *o = &s->train;
    const image_run *t = R->state;
    char recipe[32], optimizer[32], schedule[32];
    tp_run_note_text(R, "model", classifier_family(&t->cfg));
    tp_run_note_int(R, "classes", t->cfg.classes);
    tp_run_say(R,
               "%s (%s): %lld parameters, %lld classes, "
               "images of %lld x %lld, %.4g GFLOP each forward",
               s->preset, classifier_family(&t->cfg), (long long)tp_params_count(R->P),
               (long long)t->cfg.classes, (long long)s->size, (long long)s->size,
               2e-9 * classifier_macs(&t->cfg));
    describe_teacher(R);
    tp_run_say(R, "%s: %lld training images, %lld %s images",
               s->data ? s->data : "shapes drawn by the program",
               (long long)tp_image_set_count(t->X), (long long)tp_image_set_count(t->V),
               s->validate ? "test" : "validation");
    tp_run_say(R,
               "recipe %s: %s, learning rate %g, schedule %s after %g %s of warm-up, weight decay "
               "%g, drop path %g",
               chosen(s, "recipe", recipe, sizeof recipe),
               chosen(s, "optimizer", optimizer, sizeof optimizer), o->lr,
               chosen(s, "schedule", schedule, sizeof schedule),
               s->warmup_steps > 0 ? (double)s->warmup_steps : o->warmup,
               s->warmup_steps > 0 ? "updates" : "epochs", tp_train_get(o, "weight_decay"),
               s->drop_path);
    tp_run_say(R,
               "%lld epochs of %lld updates of %lld x %lld images (accumulation x batch), "
               "%.4g GFLOP an update",
               (long long)o->epochs, (long long)R->per_epoch, (long long)o->accumulation,
               (long long)(R->ranks * o->batch), R->ranks * flops(R) * 1e-9);
}

static int64_t skipped_so_far(const tp_run *R)
{
    return ((const image_run *)R->state)->skipped + (int64_t)R->sum[SKIPPED];
}

/* waited: the fraction of time that this process's device waited for images. */
static void report(tp_run *R, double loss, char *text, size_t size)
{
    const image_run *t = R->state;
    const double passed = tp_seconds() - t->from;
    const double waited = (tp_loader_waited(t->L) - t->waited) / passed;
    (void)loss;
    snprintf(text, size, "waited %.0f %%", 100 * waited);
    tp_run_note(R, "waited", waited);
    tp_run_note_int(R, "skipped", skipped_so_far(R));
}

static void say_skipped(tp_run *R)
{
    const int64_t n = skipped_so_far(R);
    if (n > 0) tp_run_say(R, "%lld images could not be read and were skipped", (long long)n);
}

static void after(tp_run *R)
{
    ((image_run *)R->state)->skipped = skipped_so_far(R);
    begin_report(R);
}

/* ---- checkpoints ---- */

/* The metadata for evaluation and prediction. */
static void write_model(tp_run *R, tp_writer *W)
{
    const image_settings *s = R->settings;
    const image_run *t = R->state;
    char filter[32];
    classifier_write(&t->cfg, W);
    class_names_write(W, t->X);
    tp_writer_meta_num(W, "eval_crop_ratio", s->eval_crop_ratio);
    tp_writer_meta(W, "eval_filter", chosen(s, "filter", filter, sizeof filter));
}

static void write_state(tp_run *R, tp_writer *W)
{
    const image_run *t = R->state;
    tp_writer_meta_int(W, "features_served", t->served);
    if (t->teacher.m) teacher_write(&t->teacher, W);
}

static void read_state(tp_run *R, tp_file *F)
{
    image_run *t = R->state;
    tp_file_int(F, "features_served", &t->served);
    if (t->served < 0 || t->served > INT64_C(1) << 60)
        tp_run_fail(R, "%s: 'features_served' is out of range", tp_file_path(F));
    if (t->teacher.m) teacher_compare(&t->teacher, R, F);
}

/* ---- forecasts ---- */

static double bytes_ahead(const tp_run *R)
{
    const image_settings *s = R->settings;
    const int64_t values = s->size * s->size * 3 + ((const image_run *)R->state)->cfg.classes;
    return 4.0 * BATCHES_AHEAD * (double)(s->train.batch * values);
}

static double teacher_bytes(const tp_run *R)
{
    return ((const image_run *)R->state)->teacher.bytes;
}

/* ---- the program ---- */

/* Are two flags for one length given? why says so. */
static bool both_given(const tp_given_flags *given, const char *one, const char *other, char *why,
                       size_t size)
{
    if (!tp_was_given(given, one) || !tp_was_given(given, other)) return false;
    snprintf(why, size, "--%s and --%s set the same length, in epochs and in updates: give one",
             one, other);
    return true;
}

/* Sets values that depend on the given flags. */
static void adapt(image_settings *s, const image_settings *a, const tp_given_flags *given)
{
    image_settings theirs = *s;
    if (tp_was_given(given, "batch")) theirs.train.batch = a->train.batch;
    if (tp_was_given(given, "accumulation")) theirs.train.accumulation = a->train.accumulation;
    s->train.lr_end = image_lr_end(&theirs);
    if (tp_was_given(given, "epochs")) s->schedule_steps = 0;
    if (tp_was_given(given, "warmup")) s->warmup_steps = 0;
    if (a->teacher && !tp_was_given(given, "distill")) s->distill = DISTILL_HARD;
}

static bool settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                        size_t size)
{
    const image_settings *a = asked;
    const int recipe = a && tp_was_given(given, "recipe") ? a->recipe : -1;
    const bool done = image_start(settings, a ? a->preset : "tiny", recipe, why, size);
    if (!done || !a) return done;
    if (both_given(given, "epochs", "schedule-steps", why, size) ||
        both_given(given, "warmup", "warmup-steps", why, size))
        return false;
    adapt(settings, a, given);
    return true;
}

static const char manual_more[] =
    "MODELS\n"
    "    tiny           five convolutions, 16 to 128 channels, 32 x 32 images\n"
    "    convnet        five convolutions, 32 to 256 channels, 64 x 64\n"
    "    cvt-small      CvT* with full attention; cvt-ls-small: with long-short attention\n"
    "    vil-small      Vision Longformer with relative positions; vil-ls-small: with\n"
    "                   long-short attention; vil-full-small: with full attention\n"
    "    lsla-small     ViT-LSLA; lsla-qkv-small: with separate keys and values;\n"
    "                   lsla-inner-small: without the outer bias; lsla-full-small: softmax\n"
    "                   attention over the whole map\n"
    "    deit-mini, deit-mini-distilled, resnet-mini, pvt-mini, pvt2-mini, swin-mini,\n"
    "    cswin-mini, coat-mini, mpvit-mini: small versions of the image baselines\n"
    "    lsla-mini: ViT-LSLA with as many parameters as these\n"
    "    All small models are for 64 x 64 images; --size 32 makes them smaller.\n"
    "    cvt-13, cvt-21, cvt-w24, cvt-star-13, cvt-star-21, cvt-ls-13, cvt-ls-17,\n"
    "    cvt-ls-21, cvt-ls-21s, vit-lsla: the papers' models, 224 x 224, with their\n"
    "    recipes. vil-SHAPE-ATTENTION: every published Vision Longformer, such as\n"
    "    vil-tiny-rpb. The other image models that tp-models lists are presets too.\n\n"
    "LOG\n"
    "    images (seen so far), images_per_s, waited (fraction of the time that the device\n"
    "    waited for images), skipped (images that could not be read); after a validation\n"
    "    test_loss, top1, top5 and, if some could not be read, test_images. The best validation\n"
    "    also draws confusion.png, if gnuplot is installed (docs/pictures.md).\n\n"
    "EXAMPLES\n"
    "    imagenet train\n"
    "    imagenet train --data imagenette2 --preset convnet --run-dir runs/convnet\n"
    "    imagenet train --data imagenet --preset vil-tiny-rpb --plan\n"
    "    imagenet train --data imagenette2 --preset deit-mini-distilled --teacher runs/convnet\n";

static const tp_training image_training = {
    .command = {
        .name = "imagenet train",
        .summary = "trains an image classifier",
        .synopsis = "[--data DIR] [--preset NAME] [--recipe NAME] [flag ...]\n"
                    "    imagenet train --resume [--run-dir DIR] [flag ...]",
        .about =
            "Trains an image classifier on a folder of images in one of the published layouts, or, "
            "if --data is not given, on shapes of ten kinds that the program draws.\n\n"
            "A preset sets the model, its image size and a recipe. A recipe sets optimiser, "
            "schedule and augmentation. Flags override both. The defaults below are those of the "
            "preset tiny.",
        .table = image_options,
        .more = manual_more,
    },
    .program = "imagenet",
    .unit = "images",
    .score = "top1",
    .score_text = "top-1 %.2f %%",
    .higher = true,
    .other_data = "the images differ from those this run was trained on; give those with --data",
    .settings_size = sizeof(image_settings),
    .state_size = sizeof(image_run),
    .settings_of = settings_of,
    .open = open_images,
    .share = share_images,
    .build = build,
    .init = image_init,
    .optimizer = new_optimizer,
    .rate = rate,
    .next = next_batch,
    .loss = batch_loss,
    .validate = image_validate,
    .best = image_draw_best,
    .describe = describe,
    .report = report,
    .after = after,
    .done = say_skipped,
    .write_model = write_model,
    .write = write_state,
    .read = read_state,
    .flops = flops,
    .host_bytes = bytes_ahead,
    .other_bytes = teacher_bytes,
    .close = close_images,
};

int image_train_main(int argc, char **argv)
{
    return tp_train_main(&image_training, argc, argv);
}
