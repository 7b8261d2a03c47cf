/* coco_run.c - trains a detector. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coco_commands.h"
#include "coco_file.h"
#include "coco_settings.h"
#include "detect.h"

enum { TRIAL_OBJECTS = 8 };

/* What coco adds to the engine's training run. */
typedef struct coco_run {
    coco_set X[2];       /* by tp_part; a trial borrows them */
    tp_loader *L;        /* NULL in a trial, whose batches are noise */
    int64_t used;        /* training images with objects */
    tp_coco_tally unfit; /* training objects left out */
    tp_detector_cfg cfg;
    tp_detector m;
    tp_tensor images; /* slot: the batch */
    tp_object_batch batch;
    tp_random random; /* for sampling in this batch */
    float *noise;     /* a trial's images, sizes and objects */
    int64_t (*size)[2];
    tp_objects *objects;
    struct trial_objects {
        tp_corners box[TRIAL_OBJECTS];
        int category[TRIAL_OBJECTS];
        int64_t part[TRIAL_OBJECTS + 1], point[TRIAL_OBJECTS + 1];
        double xy[8 * TRIAL_OBJECTS];
    } trial;        /* the objects of each of these images */
    double matched; /* matched anchors per object of a batch; NAN: not counted */
} coco_run;

/* ---- data ---- */

/* A resumed run keeps the end of its schedule. */
static void check_steps(tp_run *R, const tp_file *from)
{
    const coco_settings *s = R->settings;
    const char *former = tp_file_meta(from, "train.steps");
    if (former && coco_steps_shape(s) && strtoll(former, NULL, 10) != s->train.steps)
        tp_run_fail(
            R, "%s: its schedule ends at update %.20s, which --steps cannot change: leave it out",
            tp_file_path(from), former);
}

/* Precedes reading annotations, which takes seconds for COCO. */
static void check_flags(tp_run *R)
{
    coco_settings *s = R->settings;
    char why[512];
    tp_object_loader_opts o;
    tp_detector_cfg c;
    if (!coco_rate_check(s, why, sizeof why) || !coco_loader_opts(s, &o, why, sizeof why) ||
        !coco_model(s, 1, &c, why, sizeof why))
        tp_run_fail(R, "%s", why);
}

/* Reports missing files now; the run may not reach them for hours. */
static void look_for_images(tp_run *R, tp_part part)
{
    const coco_settings *s = R->settings;
    coco_run *t = R->state;
    char why[6000];
    if (!coco_set_look(&t->X[part], part == TP_TRAIN, s->strict, why, sizeof why))
        tp_run_fail(R, "%s", why);
}

static void open_loader(tp_run *R)
{
    const coco_settings *s = R->settings;
    coco_run *t = R->state;
    tp_object_loader_opts o;
    char why[512];
    if (!coco_loader_opts(s, &o, why, sizeof why)) {
        tp_run_fail(R, "%s", why);
        return;
    }
    o.masks = tp_detector_has_masks(&t->cfg);
    o.bad = s->strict ? NULL : tp_run_left_out;
    o.env = R;
    o.missing = t->X[TP_TRAIN].missing;
    o.share = tp_run_share(R);
    t->L = tp_object_loader_new(&t->X[TP_TRAIN].source, &o);
    if (!tp_loader_ok(t->L)) tp_run_fail(R, "%s: %s", t->X[TP_TRAIN].name, tp_loader_why(t->L));
    t->used = tp_object_loader_images(t->L);
    t->unfit = *tp_object_loader_noted(t->L);
    R->batches = tp_loader_steps(t->L);
    R->units = s->train.batch;
    R->data_hash = tp_object_source_hash(&t->X[TP_TRAIN].source);
}

static bool choose_model(tp_run *R)
{
    coco_run *t = R->state;
    char why[512];
    const int classes = tp_coco_categories(t->X[TP_TRAIN].source.coco);
    if (coco_model(R->settings, classes, &t->cfg, why, sizeof why)) return true;
    tp_run_fail(R, "impossible model: %s", why);
    return false;
}

static void check_categories(tp_run *R)
{
    const coco_run *t = R->state;
    const tp_coco *a = t->X[TP_TRAIN].source.coco, *b = t->X[TP_VALID].source.coco;
    bool same = tp_coco_categories(a) == tp_coco_categories(b);
    for (int c = 0; same && c < tp_coco_categories(a); c++)
        same = strcmp(tp_coco_category_name(a, c), tp_coco_category_name(b, c)) == 0;
    if (!same)
        tp_run_fail(R, "%s and %s: images for training and validation need the same categories",
                    t->X[TP_TRAIN].name, t->X[TP_VALID].name);
}

/* Reports missing masks for validation before training starts. */
static void check_validation(tp_run *R)
{
    const coco_run *t = R->state;
    char why[4096];
    if (tp_detector_has_masks(&t->cfg) && !coco_set_has_masks(&t->X[TP_VALID], why, sizeof why))
        tp_run_fail(R, "%s; --preset retinanet-BACKBONE needs none", why);
}

static void open_objects(tp_run *R, tp_file *from)
{
    coco_settings *s = R->settings;
    coco_run *t = R->state;
    char why[4096];
    if (s->train.resume) check_steps(R, from);
    t->matched = (double)NAN;
    check_flags(R);
    coco_data_absolute(&s->d);
    tp_absolute_path(&s->weights);
    for (int part = TP_TRAIN; part <= TP_VALID && tp_run_ok(R); part++)
        if (!coco_set_open(&t->X[part], &s->d, (tp_part)part, why, sizeof why) ||
            !coco_set_has_images(&t->X[part], why, sizeof why))
            tp_run_fail(R, "%s", why);
    if (tp_run_ok(R)) check_categories(R);
    if (tp_run_ok(R) && choose_model(R)) check_validation(R);
    if (tp_run_ok(R)) look_for_images(R, TP_TRAIN);
    if (tp_run_ok(R)) open_loader(R);
    if (tp_run_ok(R)) look_for_images(R, TP_VALID);
}

/* ---- a trial's data ---- */

/* Makes one rectangle for each object, on the image's diagonal. */
static void make_objects(coco_run *t, int64_t images, int64_t height, int64_t width)
{
    struct trial_objects *o = &t->trial;
    const double wide = (double)width / (double)TRIAL_OBJECTS,
                 high = (double)height / (double)TRIAL_OBJECTS;
    for (int k = 0; k < TRIAL_OBJECTS; k++) {
        const tp_corners c = { wide * k, high * k, wide * (k + 1), high * (k + 1) };
        const double corner[8] = { c.x1, c.y1, c.x2, c.y1, c.x2, c.y2, c.x1, c.y2 };
        o->box[k] = c;
        o->part[k + 1] = k + 1;
        o->point[k + 1] = 4 * (k + 1);
        memcpy(o->xy + 8 * k, corner, sizeof corner);
    }
    const bool masks = tp_detector_has_masks(&t->cfg);
    for (int64_t i = 0; i < images; i++)
        t->objects[i] = (tp_objects){ .n = TRIAL_OBJECTS,
                                      .box = o->box,
                                      .category = o->category,
                                      .part = masks ? o->part : NULL,
                                      .point = masks ? o->point : NULL,
                                      .xy = masks ? o->xy : NULL };
}

/* A trial repeats one batch of noise of the run's largest size. */
static void share_objects(tp_run *R, const tp_run *with)
{
    const coco_settings *s = R->settings;
    const coco_run *theirs = with->state;
    coco_run *t = R->state;
    int64_t size[2];
    const int64_t B = s->train.batch;
    memcpy(t->X, theirs->X, sizeof t->X);
    t->used = theirs->used;
    t->unfit = theirs->unfit;
    if (!choose_model(R)) return;
    tp_object_loader_largest(theirs->L, size);
    R->batches = with->batches;
    R->units = B;
    const int64_t pixels = B * size[0] * size[1] * 3;
    t->noise = calloc((size_t)pixels, sizeof *t->noise);
    t->size = malloc((size_t)B * sizeof *t->size);
    t->objects = malloc((size_t)B * sizeof *t->objects);
    if (!t->noise || !t->size || !t->objects) {
        tp_run_fail(R, "out of memory");
        return;
    }
    make_objects(t, B, size[0], size[1]);
    tp_random r = tp_random_stream(1, "trial", 0, 0);
    if (B <= 4) tp_random_normals(&r, t->noise, pixels); /* larger batches occur only in dry runs */
    for (int64_t i = 0; i < B; i++) memcpy(t->size[i], size, sizeof size);
    t->batch = (tp_object_batch){ .n = B,
                                  .height = size[0],
                                  .width = size[1],
                                  .x = t->noise,
                                  .size = (const int64_t(*)[2])t->size,
                                  .objects = t->objects };
}

static void close_objects(tp_run *R)
{
    coco_run *t = R->state;
    free(t->objects);
    free(t->noise);
    free(t->size);
    if (R->trial) return;
    tp_loader_free(t->L);
    for (int part = TP_TRAIN; part <= TP_VALID; part++) coco_set_close(&t->X[part]);
}

/* ---- model ---- */

static void build(tp_run *R)
{
    const coco_settings *s = R->settings;
    coco_run *t = R->state;
    char why[1024];
    tp_detector_init(R->P, &t->m, "", &t->cfg);
    /* --plan builds only trials; it must refuse weights that the run would refuse */
    if (s->weights && !s->train.resume && !s->train.init && (!R->trial || s->train.plan) &&
        !tp_detector_load_backbone(R->P, &t->m, s->weights, why, sizeof why))
        tp_run_fail(R, "%s", why);
    if (!s->weights && !s->train.resume && !s->train.init)
        tp_detector_redraw(R->P, &t->m, (uint64_t)s->train.seed, 0);
}

static double rate(const tp_run *R, int64_t update)
{
    return coco_rate(R->settings, update);
}

/* ---- steps ---- */

/* In the batch of all processes. */
static void count_matched(tp_run *R)
{
    coco_run *t = R->state;
    const tp_object_batch *b = &t->batch;
    const double mean = tp_detector_matched(&t->cfg, b->height, b->width, b->objects, b->n);
    double sum[2] = { 0 }; /* anchors, objects */
    for (int64_t i = 0; i < b->n && !isnan(mean); i++) sum[1] += (double)b->objects[i].n;
    sum[0] = sum[1] > 0 ? mean * sum[1] : 0;
    tp_run_total(R, sum, 2);
    t->matched = sum[1] > 0 ? sum[0] / sum[1] : (double)NAN;
}

static void next_batch(tp_run *R)
{
    const coco_settings *s = R->settings;
    coco_run *t = R->state;
    if (s->redraw > 0 && R->update > 0 && R->update % s->redraw == 0)
        tp_detector_redraw(R->P, &t->m, (uint64_t)s->train.seed, (uint64_t)R->update);
    if (t->L) {
        tp_loader_seek(t->L, R->epoch, R->batch);
        if (!tp_object_loader_next(t->L, &t->batch)) {
            tp_run_fail(R, "%s", tp_loader_why(t->L));
            return;
        }
        if ((R->update + 1) % s->train.log_every == 0) count_matched(R);
    }
    const tp_object_batch *b = &t->batch;
    t->random = tp_random_stream((uint64_t)s->train.seed, "samples",
                                 (uint64_t)(R->batch * R->ranks + R->rank), (uint64_t)R->epoch);
    tp_feed(R->T, &t->images, TP_F32, TP_SHAPE(b->n, b->height, b->width, 3), b->x);
}

static void add_up(void *R, double *count)
{
    tp_run_total(R, count, 1);
}

static tp_tensor batch_loss(tp_run *R)
{
    coco_run *t = R->state;
    const tp_detection_in in = { .images = tp_cast(R->T, t->images, tp_compute_dtype(R->T)),
                                 .size = t->batch.size,
                                 .objects = t->batch.objects,
                                 .random = &t->random,
                                 .share = { R->ranks, R->ranks > 1 ? add_up : NULL, R } };
    const tp_detection_losses all = tp_detector_losses(R->T, &t->m, &in);
    if (!R->trial) tp_run_sum(R, all.n, all.term);
    return all.total;
}

/* ---- validation ---- */

static bool go_on(void *env, int64_t images)
{
    (void)images;
    return !tp_run_stopped(env);
}

static void note_figures(tp_run *R, const char *what, const tp_coco_eval *E)
{
    static const int shown[] = { 0, 1, 2 };
    for (size_t i = 0; E && i < sizeof shown / sizeof *shown; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s_%s", what, tp_coco_figure_name(shown[i]));
        tp_run_note(R, key, 100 * tp_coco_eval_figure(E, shown[i]));
    }
}

/* Adds the number of scored images, if some were left out. */
static void note_images(tp_run *R, const tp_coco *X, const bool *left_out, char *text, size_t size)
{
    const long long all = tp_coco_images(X), counted = detect_counted(X, left_out);
    const size_t n = strlen(text);
    if (counted == all) return;
    tp_run_note_int(R, "valid_images", counted);
    snprintf(text + n, size - n, " on %lld of %lld images", counted, all);
}

static double validate(tp_run *R, char *text, size_t size)
{
    const coco_settings *s = R->settings;
    coco_run *t = R->state;
    char why[2048];
    double score = (double)NAN;
    detect_figures f = { 0 };
    if (R->trial) return 0; /* needs less memory than training */
    const tp_object_source *source = &t->X[TP_VALID].source;
    bool *left_out = t->X[TP_VALID].missing; /* will also mark unreadable images */
    const bool masks = tp_detector_has_masks(&t->cfg);
    const detect_opts o = { .batch = s->train.batch,
                            .size = s->size,
                            .longest = s->longest,
                            .profile = (tp_detection_profile)s->profile,
                            .threads = (int)s->workers,
                            .go_on = go_on,
                            .bad = s->strict ? NULL : tp_run_left_out,
                            .env = R,
                            .bad_env = R,
                            .left_out = left_out,
                            .share = tp_run_share(R) };
    tp_detections *own = tp_detections_new(source->coco);
    if (detect_all(R->E, &t->m, source, &o, own, why, sizeof why) < 0) tp_run_fail(R, "%s", why);
    tp_detections *found = detect_gather(R, own, left_out);
    tp_detections_close(own);
    if (!found || !tp_run_ok(R)) {
        tp_detections_close(found);
        return score;
    }
    if (!detect_evaluate(found, left_out, true, masks, false, &f, why, sizeof why)) {
        tp_run_fail(R, "%s", why);
    } else if (detect_counted(source->coco, left_out) == 0) {
        snprintf(text, size, "without a score: none of the images can be read");
    } else {
        score = 100 * tp_coco_eval_figure(f.box, 0);
        note_figures(R, "box", f.box);
        note_figures(R, "mask", f.mask);
        const int n = snprintf(text, size, "box AP %.2f, AP50 %.2f", score,
                               100 * tp_coco_eval_figure(f.box, 1));
        if (masks && n > 0 && (size_t)n < size)
            snprintf(text + n, size - (size_t)n, "; mask AP %.2f, AP50 %.2f",
                     100 * tp_coco_eval_figure(f.mask, 0), 100 * tp_coco_eval_figure(f.mask, 1));
        note_images(R, source->coco, left_out, text, size);
    }
    detect_figures_free(&f);
    tp_detections_close(found);
    return score;
}

/* ---- descriptions and reports ---- */

static void say(void *R, const char *text)
{
    tp_run_say(R, "%s", text);
}

/* Reports the annotations and images that training and validation leave out. */
static void describe_left_out(tp_run *R)
{
    const coco_run *t = R->state;
    const tp_coco_tally *dropped = tp_coco_noted(t->X[TP_TRAIN].source.coco);
    tp_coco_tally all = t->unfit;
    char out[2000];
    for (int r = TP_COCO_UNKNOWN_IMAGE; r <= TP_COCO_UNKNOWN_CATEGORY; r++) {
        all.count[r] = dropped->count[r];
        all.first[r] = dropped->first[r];
    }
    if (tp_coco_tally_text(&all, "annotation", out, sizeof out)) {
        tp_run_say(R, "%s: left out of training: %s", t->X[TP_TRAIN].name, out);
        tp_run_note_text(R, "left_out", out);
    }
    coco_set_remarks(&t->X[TP_VALID], say, R);
    for (int part = TP_TRAIN; part <= TP_VALID; part++) {
        const coco_set *X = &t->X[part];
        if (X->absent > 0)
            tp_run_say(
                R, "%s: left out of %s, as files are missing: %lld of %lld images; the first: %s",
                X->name, part == TP_TRAIN ? "training" : "validation", (long long)X->absent,
                (long long)tp_coco_images(X->source.coco), X->first);
    }
}

static void describe(tp_run *R)
{
    const coco_settings *s = R->settings;
    const coco_run *t = R->state;
    const coco_set *X = t->X;
    tp_run_note_int(R, "images", t->used);
    tp_run_say(R, "%s: %lld parameters, %d categories", s->preset, (long long)tp_params_count(R->P),
               tp_coco_categories(X[0].source.coco));
    tp_run_say(R, "%s: %lld images with objects of %lld for training, %lld for validation",
               X[0].name, (long long)t->used, (long long)tp_coco_images(X[0].source.coco),
               (long long)tp_coco_images(X[1].source.coco));
    describe_left_out(R);
    tp_run_say(R,
               "shorter side %s, longer at most %lld; batches of %lld; learning rate %g, weight "
               "decay %g, clipping %g, %lld updates",
               s->sizes, (long long)s->longest, (long long)(R->ranks * s->train.batch), s->train.lr,
               tp_train_get(&s->train, "weight_decay"), s->train.clip, (long long)s->train.steps);
}

static void report(tp_run *R, double loss, char *text, size_t size)
{
    coco_run *t = R->state;
    (void)loss;
    size_t n = 0;
    const char *name;
    for (int k = 0; R->summed > 0 && (name = t->cfg.kind->terms[k]); k++) {
        const double mean = R->sum[k] / (double)R->summed;
        tp_run_note(R, name, mean);
        if (n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s %.3f", k ? "  " : "",
                                  name + strlen("loss_"), mean);
    }
    if (!isnan(t->matched)) tp_run_note(R, "anchors_per_object", t->matched);
}

static void after(tp_run *R)
{
    coco_run *t = R->state;
    t->matched = (double)NAN;
}

/* ---- checkpoints ---- */

static void write_model(tp_run *R, tp_writer *W)
{
    const coco_settings *s = R->settings;
    const coco_run *t = R->state;
    const coco_shape shape = { .profile = s->profile,
                               .size = s->size,
                               .longest = s->longest,
                               .drawn = coco_data_drawn(&s->d),
                               .scenes = s->d };
    if (!coco_shape_write(&shape, s->preset, s->set, t->X[TP_TRAIN].source.coco, W))
        tp_run_fail(R, "out of memory");
}

/* Stores the sums of the next report, so that it does not depend on the interruption. */
static void write_state(tp_run *R, tp_writer *W)
{
    const coco_run *t = R->state;
    tp_writer_meta_int(W, "coco.summed", R->summed);
    for (int k = 0; k < TP_DETECTION_LOSSES; k++) {
        char key[40];
        snprintf(key, sizeof key, "coco.sum%d", k);
        tp_writer_meta_num(W, key, R->sum[k]);
    }
    if (!isnan(t->matched)) tp_writer_meta_num(W, "coco.matched", t->matched);
}

static void read_state(tp_run *R, tp_file *F)
{
    coco_run *t = R->state;
    tp_file_int(F, "coco.summed", &R->summed);
    for (int k = 0; k < TP_DETECTION_LOSSES; k++) {
        char key[40];
        snprintf(key, sizeof key, "coco.sum%d", k);
        tp_file_num(F, key, &R->sum[k]);
    }
    t->matched = (double)NAN;
    if (tp_file_meta(F, "coco.matched")) tp_file_num(F, "coco.matched", &t->matched);
    if (R->summed < 0 || R->summed > INT64_C(1) << 60)
        tp_run_fail(R, "%s: 'coco.summed' is out of range", tp_file_path(F));
}

static double host_bytes(const tp_run *R)
{
    const coco_run *t = R->state;
    enum { AHEAD = 4 };
    return AHEAD * 4.0 * (double)(t->batch.n * t->batch.height * t->batch.width * 3);
}

/* ---- the program ---- */

static const char manual_more[] =
    "BACKBONES\n"
    "    vil-tiny, vil-small, vil-medium, vil-base    Vision Longformer with relative positions;\n"
    "                   -ape: with absolute ones\n"
    "    resnet18, resnet34, resnet50, resnet101\n"
    "    pvt-tiny, pvt-small, pvt-medium, pvt-large\n"
    "    vil-mini, resnet-mini, pvt-mini    for drawn scenes\n\n"
    "LOG\n"
    "    the terms of the loss (loss_cls, loss_box_reg; of Mask R-CNN also loss_rpn_cls,\n"
    "    loss_rpn_loc and loss_mask), anchors_per_object (matched anchors of the last batch);\n"
    "    after a validation valid_ap (of boxes, percent), box_AP50, box_AP75, mask_AP ...,\n"
    "    and valid_images if some could not be read\n\n"
    "EXAMPLES\n"
    "    coco train\n"
    "    coco train --preset mask-rcnn-vil-mini --run-dir runs/masks\n"
    "    coco train --data coco --preset mask-rcnn-resnet50 --weights resnet50.safetensors \\\n"
    "        --batch 2 --accumulation 8\n";

static const tp_training coco_training = {
    .command = {
        .name = "coco train",
        .summary = "trains a detector of objects",
        .synopsis = "[--preset NAME] [--data DIR] [flag ...]\n"
                    "    coco train --resume [--run-dir DIR] [flag ...]",
        .about =
            "Trains RetinaNet, which finds boxes, or Mask R-CNN, which finds boxes and masks, on "
            "COCO's or Pascal VOC's files (Mask R-CNN needs masks, which VOC's lack). Without "
            "--data, scenes of simple shapes are drawn, and a small model learns them in "
            "minutes.\n\n"
            "The recipe (scenes, or with files 1x) sets model, sizes and training; flags override "
            "it. Validation computes COCO's average precision (AP); the model with the best AP of "
            "boxes is kept. The defaults below are those of drawn scenes; a Vision Longformer "
            "learns them with 6000 updates of 8 images, a learning rate of 0.001 and a warm-up of "
            "200 updates.",
        .table = coco_options,
        .more = manual_more,
    },
    .program = "coco",
    .unit = "images",
    .score = "valid_ap",
    .score_text = "box AP %.2f",
    .higher = true,
    .other_data = "the images or objects differ from those this run was trained on",
    .settings_size = sizeof(coco_settings),
    .state_size = sizeof(coco_run),
    .settings_of = coco_settings_of,
    .open = open_objects,
    .share = share_objects,
    .build = build,
    .rate = rate,
    .next = next_batch,
    .loss = batch_loss,
    .validate = validate,
    .describe = describe,
    .report = report,
    .after = after,
    .write_model = write_model,
    .write = write_state,
    .read = read_state,
    .host_bytes = host_bytes,
    .close = close_objects,
};

int coco_train_main(int argc, char **argv)
{
    return tp_train_main(&coco_training, argc, argv);
}
