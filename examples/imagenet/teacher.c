/* teacher.c - loads a trained teacher and computes the distillation loss.
 *
 * The teacher runs on the student's tape before the student, in evaluation mode and unrecorded, so
 * that its memory is free again when the student's activations accumulate. */
#include "image_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/random.h>
#include <tapegrad/vit.h>

#include "image_file.h"
#include "names/class_names.h"

/* ---- finding it ---- */

/* A folder names its run's best checkpoint, or its last. */
static void find(teacher *t, char *name)
{
    struct stat st;
    const bool folder = stat(name, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(t->path, sizeof t->path, "%.4096s", name);
    if (folder) {
        const tp_trained found = tp_trained_find(&(tp_trained_settings){ .run_dir = name });
        memcpy(t->path, found.path, sizeof t->path);
    }
}

/* Describes published weights. Their file does not state an image size; if the weights do not
 * depend on it, the teacher takes the run's. */
static bool describe_published(teacher *t, const image_settings *s, char *why, size_t size)
{
    char text[2048];
    if (!s->teacher_preset) {
        snprintf(why, size,
                 "--teacher %s does not say which model it holds: name it with --teacher-preset",
                 t->path);
        return false;
    }
    if (!image_file_describe(s->teacher_preset, t->F, &t->cfg, NULL, text, sizeof text)) {
        const bool flag = strncmp(text, "--preset", 8) == 0;
        snprintf(why, size, "%s%s", flag ? "--teacher-" : "", text + (flag ? 2 : 0));
        return false;
    }
    if (!classifier_resizing(&t->cfg)) classifier_fit(&t->cfg, s->size, t->cfg.classes);
    return true;
}

static bool describe(teacher *t, const image_settings *s, char *why, size_t size)
{
    if (!tp_file_ok(t->F)) {
        snprintf(why, size, "--teacher: %s", tp_file_why(t->F));
        return false;
    }
    if (!tp_file_meta(t->F, "model") && !tp_file_meta(t->F, "classifier"))
        return describe_published(t, s, why, size);
    if (!s->teacher_preset) return classifier_read(&t->cfg, t->F, why, size);
    snprintf(why, size,
             "--teacher-preset names the model of published weights, but %s says which model it "
             "holds: leave the flag out",
             t->path);
    return false;
}

/* Do published weights, which do not name classes, have the images' in order? */
static bool same_order(const teacher *t, const tp_image_set *X, char *why, size_t size)
{
    class_names names;
    char warning[700] = "";
    const int n = tp_image_set_classes(X);
    int32_t *label = malloc((size_t)(n + 1) * sizeof *label);
    bool done = label && class_names_find(&names, NULL, NULL, t->cfg.classes, why, size);
    if (!label) snprintf(why, size, "out of memory");
    if (done)
        done = class_labels(&names, t->cfg.classes, X, label, warning, sizeof warning, why, size);
    for (int k = 0; done && k < n; k++) {
        if (label[k] == k) continue;
        snprintf(why, size, "'%.200s' is its class %d, and class %d of the images",
                 tp_image_set_class(X, k), (int)label[k], k);
        done = false;
    }
    free(label);
    return done;
}

/* Does the teacher have the run's image size and classes? */
static bool fits(const teacher *t, const image_settings *s, const tp_image_set *X, char *why,
                 size_t size)
{
    char differs[700];
    const char *names = tp_file_meta(t->F, "class_names");
    const long long side = t->cfg.size;
    if (t->cfg.classes != tp_image_set_classes(X))
        snprintf(why, size,
                 "the teacher %s has %lld classes, the images have %d: it must have been trained "
                 "on the same classes",
                 t->path, (long long)t->cfg.classes, tp_image_set_classes(X));
    else if (!(names ? class_names_agree(names, X, differs, sizeof differs)
                     : same_order(t, X, differs, sizeof differs)))
        snprintf(why, size, "the teacher %s was trained on other classes: %s", t->path, differs);
    else if (side != s->size)
        snprintf(
            why, size,
            "the teacher %s takes images of %lld x %lld pixels, this run has %lld x %lld: give "
            "--size %lld or another teacher",
            t->path, side, side, (long long)s->size, (long long)s->size, side);
    else if (!classifier_check(&t->cfg, differs, sizeof differs))
        snprintf(why, size, "the teacher %s: %s", t->path, differs);
    else
        return true;
    return false;
}

/* Is it one of the files that the run writes? */
static bool is_ours(const teacher *t, const tp_run *R)
{
    static const char *const files[] = { "best.safetensors", "last.safetensors" };
    struct stat theirs, ours;
    char path[4400];
    for (int i = 0; i < 2 && stat(t->path, &theirs) == 0; i++)
        if (stat(tp_run_path(R, files[i], path, sizeof path), &ours) == 0 &&
            ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)
            return true;
    return false;
}

/* Do the flags agree on whether there is a teacher? */
static bool agreed(const image_settings *s, char *why, size_t size)
{
    if (s->teacher && s->distill == DISTILL_NONE)
        snprintf(why, size, "--distill none trains without a teacher: leave --teacher out");
    else if (!s->teacher && s->distill != DISTILL_NONE)
        snprintf(why, size, "--distill %s needs a teacher: give --teacher",
                 s->distill == DISTILL_HARD ? "hard" : "soft");
    else if (!s->teacher && s->teacher_preset)
        snprintf(why, size, "--teacher-preset names the model of a teacher: give --teacher");
    else
        return true;
    return false;
}

void teacher_open(teacher *t, tp_run *R, const tp_image_set *X)
{
    image_settings *s = R->settings;
    char why[5800];
    bool done = agreed(s, why, sizeof why);
    if (done && s->teacher) {
        tp_absolute_path(&s->teacher);
        find(t, s->teacher);
        if (is_ours(t, R)) {
            tp_run_fail(R, "the teacher %s is in this run's own folder: choose another --run-dir",
                        t->path);
            return;
        }
        t->F = tp_file_open(t->path);
        done = describe(t, s, why, sizeof why) && fits(t, s, X, why, sizeof why);
    }
    if (!done) tp_run_fail(R, "%s", why);
}

teacher teacher_for_trial(const teacher *of)
{
    teacher t = { .cfg = of->cfg };
    memcpy(t.path, of->path, sizeof t.path);
    return t;
}

void teacher_close(teacher *t)
{
    tp_file_close(t->F);
    classifier_free(t->m);
    tp_params_free(t->P);
}

/* ---- its weights ---- */

/* Reading also completes P, so that its memory is known. */
static uint64_t hash_of(tp_params *P)
{
    uint64_t h = TP_HASH;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        if (it.alias_of || (it.dtype != TP_F32 && it.dtype != TP_F64)) continue;
        const size_t n = (size_t)tp_numel(it.tensor);
        uint32_t *x = malloc((n + 1) * sizeof *x);
        if (!x)
            tp_params_raise(P, TP_E_MEMORY, "out of host memory");
        else if (!tp_param_get(P, it.tensor, TP_F32, x, n * sizeof *x))
            tp_params_raise(P, TP_E_STATE, "%s", tp_params_why(P));
        else
            for (size_t i = 0; i < n; i++) h = tp_hash(h, x[i]);
        h = tp_hash_text(h, it.name);
        free(x);
    }
    return h;
}

void teacher_build(teacher *t, tp_run *R)
{
    const image_settings *s = R->settings;
    const bool exact = s->train.machine.dtype == TP_F64;
    const size_t before = tp_device_stats(R->D).live_bytes;
    if (!t->path[0]) return;
    t->m = calloc(1, sizeof *t->m);
    if (!t->m) {
        tp_run_fail(R, "out of memory");
        return;
    }
    t->P = tp_params_new(
        R->D, &(tp_params_opts){ .dtype = exact ? TP_F64 : TP_F32, .blank = t->F != NULL });
    classifier_init(t->P, t->m, &t->cfg);
    tp_freeze(t->P, "", true);
    if (t->F && !classifier_weights(t->P, t->m, t->F))
        tp_params_raise(t->P, TP_E_IO, "%s", tp_params_why(t->P));
    t->hash = hash_of(t->P);
    if (!tp_params_ok(t->P)) tp_run_fail(R, "the teacher %s: %s", t->path, tp_params_why(t->P));
    tp_file_close(t->F);
    t->F = NULL;
    t->bytes = (double)(tp_device_stats(R->D).live_bytes - before);
}

void teacher_write(const teacher *t, tp_writer *W)
{
    char hash[24];
    snprintf(hash, sizeof hash, "%016" PRIx64, t->hash);
    tp_writer_meta(W, "teacher_hash", hash);
}

void teacher_compare(const teacher *t, tp_run *R, const tp_file *F)
{
    char hash[24];
    const char *found = tp_file_meta(F, "teacher_hash");
    snprintf(hash, sizeof hash, "%016" PRIx64, t->hash);
    if (!found || strcmp(found, hash) != 0)
        tp_run_fail(R,
                    "%s: the weights of %s differ from those of this run's teacher; give that one "
                    "with --teacher",
                    tp_file_path(F), t->path);
}

/* ---- the loss ---- */

static tp_tensor logits(tp_tape *T, const teacher *t, tp_tensor x)
{
    const bool training = tp_is_training(T), recording = tp_record(T, false);
    tp_train(T, false);
    tp_enter(T, "teacher");
    const tp_tensor z = tp_leave(T, classifier_forward(T, t->m, x));
    tp_train(T, training);
    tp_record(T, recording);
    return z;
}

/* Losses are computed in the dtype of the targets. */
static tp_tensor wide(tp_tape *T, tp_tensor z)
{
    return tp_compute_dtype(T) == TP_BF16 ? tp_cast(T, z, TP_F32) : z;
}

tp_tensor teacher_loss(tp_tape *T, const teacher *t, const classifier *m, tp_tensor x, tp_tensor y,
                       const image_settings *s)
{
    tp_tensor dist;
    const tp_tensor seen = wide(T, logits(T, t, x));
    const tp_tensor z = wide(T, tp_net_heads(T, m->net, x, &dist));
    return tp_distill_loss(T, tp_cross_entropy(T, z, y, TP_MEAN), wide(T, dist), seen,
                           (tp_distill_cfg){ .soft = s->distill == DISTILL_SOFT,
                                             .alpha = s->distill_alpha,
                                             .tau = s->distill_tau });
}
