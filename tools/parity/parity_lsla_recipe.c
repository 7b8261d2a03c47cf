/* parity_lsla_recipe.c - kinds of ViT-LSLA's training recipe: learning rates, the split of
 * Mini-ImageNet, mixup and cutmix. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/augment.h>
#include <tapegrad/random.h>

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
        par_illegal(p, "metadata cutmix_centre and cutmix_lambda_drawn give no box in an image");
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
