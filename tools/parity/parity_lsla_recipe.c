/* parity_lsla_recipe.c - kinds of ViT-LSLA's training recipe: learning rates, the split of
 * Mini-ImageNet, image operations, mixup and cutmix. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/augment.h>
#include <tapegrad/random.h>

#include "parity_images.h"
#include "parity_lsla.h"

/* The rates of the metadata are per 512 images. They are always compared in double precision. */
void lsla_run_schedule(parity *p)
{
    const int64_t images = par_size(p, "train_images", PAR_NEEDED);
    const int64_t batch = par_size(p, "batch", PAR_NEEDED);
    const int64_t epoch = par_size(p, "updates_per_epoch", images / batch);
    const int64_t warmup = epoch * par_count(p, "warmup_epochs", 20);
    const int64_t total = epoch * par_size(p, "epochs", 300);
    const double k = (double)batch / 512.0;
    const double start = k * par_num(p, "warmup_lr_per_512", 5e-7);
    const double lr = k * par_num(p, "base_lr_per_512", 5e-4);
    const double end = k * par_num(p, "min_lr_per_512", 5e-6);
    tp_shape s;
    const int64_t *u = par_integers(p, "input.update", &s);
    const int64_t n = par_numel(s);
    double *rate = par_alloc(p, n, sizeof *rate);

    par_same(p, "updates_per_epoch", images / batch);
    for (int64_t i = 0; u && rate && i < n; i++)
        rate[i] = tp_lr_cosine_from(u[i], warmup, total, start, lr, end);
    if (rate) par_check(p, "output.lr", rate, n, par_exact(p, "output.lr"));
}

/* The rows of a class, permuted by NumPy with the seed 1. */
void lsla_run_split(parity *p)
{
    const int64_t n = par_numel(par_shape(p, "output.permutation"));
    int64_t *order = par_alloc(p, n, sizeof *order);

    if (!order) return;
    tp_numpy_permutation(1, n, order);
    par_check_integers(p, "output.permutation", order, n);
}

/* ---- images ---- */

/* An image operation, found by the prefix of an output's name, which a number may follow. */
typedef struct operation {
    const char *name;
    tp_pixel_op op;
    int arguments;
} operation;
enum { RESIZE = TP_NPIXEL_OPS, CROP_RESIZE };

/* If one name is a prefix of another, the longer one comes first. */
static const operation operations[] = {
    { "autocontrast", TP_PIXEL_AUTO_CONTRAST, 0 },
    { "equalize", TP_PIXEL_EQUALIZE, 0 },
    { "invert", TP_PIXEL_INVERT, 0 },
    { "rotate", TP_PIXEL_ROTATE, 1 },
    { "posterize", TP_PIXEL_POSTERIZE, 1 },
    { "solarize_add", TP_PIXEL_SOLARIZE_ADD, 2 },
    { "solarize", TP_PIXEL_SOLARIZE, 1 },
    { "color", TP_PIXEL_COLOR, 1 },
    { "contrast", TP_PIXEL_CONTRAST, 1 },
    { "brightness", TP_PIXEL_BRIGHTNESS, 1 },
    { "sharpness", TP_PIXEL_SHARPNESS, 1 },
    { "shear_x", TP_PIXEL_SHEAR_X, 1 },
    { "shear_y", TP_PIXEL_SHEAR_Y, 1 },
    { "translate_x", TP_PIXEL_TRANSLATE_X, 1 },
    { "translate_y", TP_PIXEL_TRANSLATE_Y, 1 },
    { "resize", (tp_pixel_op)RESIZE, 2 },
    { "crop_resize", (tp_pixel_op)CROP_RESIZE, 6 },
};

static const operation *find_operation(const char *name)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const size_t n = strlen(operations[i].name);
        if (strncmp(name, operations[i].name, n) == 0 && (!name[n] || name[n] == '_'))
            return &operations[i];
    }
    return NULL;
}

/* An operation without arguments has no key, or one with an empty value. */
static bool no_arguments(parity *p, const char *key)
{
    const char *text = par_text(p, key);

    if (text && *text) par_fail(p, "metadata %s = '%.40s': there are no arguments", key, text);
    return !p->failed;
}

/* Reads the arguments "arg.NAME" of output.NAME: whole numbers, except factors, angles and fractions.
 * False: failed. */
static bool arguments(parity *p, const operation *o, const char *name, double a[6])
{
    const char *key = par_name(p, "arg.%s", name);
    const bool add = o->op == TP_PIXEL_SOLARIZE_ADD;
    const bool whole = add || o->op == TP_PIXEL_POSTERIZE || o->op == TP_PIXEL_SOLARIZE;
    int64_t n;

    if (o->arguments == 0) return no_arguments(p, key);
    const double *x = par_list(p, key, &n);
    if (n != o->arguments && !(add && n == 1))
        par_fail(p, "metadata %s: %s takes %d numbers", key, o->name, o->arguments);
    a[1] = 128.0; /* the default threshold of solarize_add */
    for (int64_t i = 0; i < n && !p->failed; i++) {
        a[i] = x[i];
        if ((whole || n > 1) && (x[i] < 0.0 || x[i] > 65536.0 || x[i] != (double)(int64_t)x[i]))
            par_fail(p, "metadata %s: %g is not a whole number that %s accepts", key, x[i],
                     o->name);
    }
    return !p->failed;
}

/* a: width, height; for a crop top, bottom, left, right (ends exclusive), then height, width. */
static bool resize(const operation *o, const double *a, const tp_image *in, tp_image *out)
{
    if ((int)o->op == RESIZE)
        return tp_image_resize(out, in, NULL, (int64_t)a[0], (int64_t)a[1], TP_BICUBIC);
    const tp_box box = { (int64_t)a[2], (int64_t)a[0], (int64_t)(a[3] - a[2]),
                         (int64_t)(a[1] - a[0]) };
    return tp_image_resize(out, in, &box, (int64_t)a[5], (int64_t)a[4], TP_BICUBIC);
}

/* The library supports only the threshold 128. */
static void add_below(tp_image *image, int add, int threshold)
{
    for (int64_t i = 0; i < image->width * image->height * 3; i++) {
        const int v = image->rgb[i], sum = v + add;
        if (v < threshold) image->rgb[i] = (uint8_t)(sum < 255 ? sum : 255);
    }
}

/* Applies operation o to `in`, with the result in out. False with the reason in out->why. */
static bool apply(const operation *o, const double *a, const tp_image *in, tp_image *out,
                  tp_image *work)
{
    static const uint8_t fill[3] = { 124, 116, 104 };

    if ((int)o->op >= RESIZE) return resize(o, a, in, out);
    if (!tp_image_copy(out, in)) return false;
    if (o->op != TP_PIXEL_SOLARIZE_ADD || a[1] == 128.0)
        return tp_image_apply(out, o->op, a[0], fill, work);
    add_below(out, (int)a[0], (int)a[1]);
    return true;
}

static void run_operation(parity *p, const char *name, const tp_image *in, tp_image *out,
                          tp_image *work)
{
    const operation *o = find_operation(name);
    if (!o) {
        par_fail(p, "output.%s: there is no operation of this name", name);
        return;
    }
    double a[6] = { 0.0 };
    if (!arguments(p, o, name, a)) return;
    const bool done = apply(o, a, in, out, work);
    if (!done) par_fail(p, "output.%s: %s", name, out->why);
    if (done) par_check_image(p, par_name(p, "output.%s", name), out);
}

void lsla_run_image_ops(parity *p)
{
    tp_image in = { 0 }, out = { 0 }, work = { 0 };

    par_read_image(p, "input.image", &in);
    for (int i = 0; i < tp_file_count(p->F) && !p->failed; i++) {
        const char *name = tp_file_at(p->F, i)->name;
        if (strncmp(name, "output.", 7) == 0) run_operation(p, name + 7, &in, &out, &work);
    }
    tp_image_free(&in);
    tp_image_free(&out);
    tp_image_free(&work);
}

/* ---- mixing ---- */

/* A batch to mix: images [B,C,H,W] and labels. */
typedef struct batch {
    int64_t B, C, H, W, classes;
    const double *x;
    int32_t *label;
} batch;

/* The index in [C,H,W] of element i of a channels-last image. */
static int64_t channel_first(const batch *b, int64_t i)
{
    const int64_t plane = b->H * b->W;
    return i % b->C * plane + i / b->C;
}

static void check_mixed_images(parity *p, const batch *b, const tp_mixing *d, const char *name)
{
    const int64_t image = b->C * b->H * b->W, n = b->B * image;
    float *f = par_alloc(p, n, sizeof *f);
    double *got = par_alloc(p, n, sizeof *got);

    if (!f || !got) return;
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)b->x[i / image * image + channel_first(b, i % image)];
    tp_mix_apply(d, f, b->B, b->H, b->W, b->C);
    for (int64_t i = 0; i < n; i++)
        got[i / image * image + channel_first(b, i % image)] = (double)f[i];
    par_check(p, name, got, n, par_limit(p, PAR_OUTPUT));
}

/* Compares the mixed targets [B,classes] and returns them. */
static const double *mixed_targets(parity *p, const batch *b, const tp_mixing *d, const char *name)
{
    const int64_t n = b->B * b->classes;
    float *t = par_alloc(p, n, sizeof *t);
    double *got = par_alloc(p, n, sizeof *got);

    if (!t || !got) return NULL;
    tp_mix_targets(d, par_num(p, "label_smoothing", 0.1), b->label, b->B, b->classes, t);
    for (int64_t i = 0; i < n; i++) got[i] = (double)t[i];
    par_check(p, name, got, n, par_limit(p, PAR_OUTPUT));
    return got;
}

/* The names of labels and of the number of classes in this case. */
static const char *labels_of(const parity *p)
{
    return par_has(p, "input.labels") ? "input.labels" : "input.label";
}

static const char *classes_of(const parity *p)
{
    return par_given(p, "num_classes") ? "num_classes" : "classes";
}

static void read_batch(parity *p, batch *b)
{
    tp_shape s, labels;
    b->x = par_values(p, "input.x", &s);
    const int64_t *label = par_integers(p, labels_of(p), &labels);
    b->classes = par_size(p, classes_of(p), PAR_NEEDED);
    if (p->failed) return;
    if (s.ndim != 4 || par_numel(labels) != s.dim[0]) {
        par_fail(p, "input.x must be images [B,C,H,W], input.label their labels [B]");
        return;
    }
    b->B = s.dim[0];
    b->C = s.dim[1];
    b->H = s.dim[2];
    b->W = s.dim[3];
    b->label = par_alloc(p, b->B, sizeof *b->label);
    for (int64_t i = 0; b->label && i < b->B; i++) {
        if (label[i] < 0 || label[i] >= b->classes)
            par_fail(p, "input.label: there is no class %lld of %lld", (long long)label[i],
                     (long long)b->classes);
        b->label[i] = (int32_t)label[i];
    }
    par_same(p, "batch", b->B);
}

/* The cutmix box around the drawn centre, checked against the file's. */
static tp_mixing cut(parity *p, const batch *b)
{
    int64_t n, edges;
    const int64_t *centre = par_sizes(p, "cutmix_centre", 0, &n);
    const int64_t *box = par_sizes(p, "cutmix_box", 0, &edges);
    const double lambda = par_num(p, "cutmix_lambda_drawn", PAR_NEEDED);

    if (n != 2 || !(lambda >= 0.0 && lambda <= 1.0) || centre[0] >= b->H || centre[1] >= b->W) {
        par_fail(p, "metadata cutmix_centre and cutmix_lambda_drawn give no box in an image");
        return (tp_mixing){ .lambda = 1.0 };
    }
    const tp_mixing d = tp_mix_cut(lambda, centre[1], centre[0], b->H, b->W);
    const int64_t own[] = { d.box.y, d.box.y + d.box.height, d.box.x, d.box.x + d.box.width };
    if (edges != 0 && (edges != 4 || memcmp(own, box, sizeof own) != 0))
        par_fail(p, "metadata cutmix_box: the box is %lld,%lld,%lld,%lld", (long long)own[0],
                 (long long)own[1], (long long)own[2], (long long)own[3]);
    par_check_integers(p, "output.cutmix_box", own, 4);
    return d;
}

/* Compares the loss with mixed targets [B,classes]. */
static void check_soft_loss(parity *p, const batch *b, const double *targets)
{
    if (!par_has(p, "input.logits") || !targets || p->failed) return;
    par_begin(p);
    const tp_tensor logits = par_take(p, "logits");
    const tp_tensor t = tp_cast(p->T, par_matrix(p, b->B, b->classes, targets), p->o->compute);
    const tp_tensor loss = tp_cross_entropy(p->T, logits, t, TP_MEAN);
    par_loss(p, loss);
    par_check_tensor(p, "output.soft_loss", loss);
    par_differentiate(p);
}

/* The loss uses the targets of cutmix if the case has them, else those of mixup. */
void lsla_run_mixing(parity *p)
{
    const double *targets = NULL;
    batch b = { 0 };

    read_batch(p, &b);
    if (par_given(p, "mixup_lambda") && !p->failed) {
        const tp_mixing d = { .lambda = par_num(p, "mixup_lambda", 1.0) };
        check_mixed_images(p, &b, &d, "output.mixup_x");
        targets = mixed_targets(p, &b, &d, "output.mixup_target");
    }
    if (par_given(p, "cutmix_lambda_drawn") && !p->failed) {
        const tp_mixing d = cut(p, &b);
        check_mixed_images(p, &b, &d, "output.cutmix_x");
        targets = mixed_targets(p, &b, &d, "output.cutmix_target");
        par_check_one(p, "output.cutmix_lambda", d.lambda, 1e-6);
    }
    check_soft_loss(p, &b, targets);
}
