/* parity_lsla_recipe.c - cases of ViT-LSLA's training recipe: learning rates, the split of
 * Mini-ImageNet, operations on pictures, mixing of batches. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/augment.h>
#include <tapegrad/random.h>

#include "parity_lsla.h"

/* The rates are numbers of double precision, whatever p->real. */
void lsla_run_schedule(parity *p)
{
    const int64_t epoch = par_int(p, "updates_per_epoch", 0);
    const int64_t warmup = epoch * par_int(p, "warmup_epochs", 20);
    const int64_t total = epoch * par_int(p, "epochs", 300);
    const double k = par_num(p, "batch", 512.0) / 512.0;
    const double start = k * par_num(p, "warmup_lr_per_512", 0.0);
    const double lr = k * par_num(p, "base_lr_per_512", 0.0);
    const double end = k * par_num(p, "min_lr_per_512", 0.0);
    tp_shape s = TP_SHAPE(0);
    int64_t *u = par_integers(p, "input.update", &s);
    double *rate = u ? malloc((size_t)(s.dim[0] + 1) * sizeof *rate) : NULL;
    for (int64_t i = 0; rate && i < s.dim[0]; i++)
        rate[i] = tp_lr_cosine_from(u[i], warmup, total, start, lr, end);
    if (rate) par_check(p, "output.lr", rate, s.dim[0], 1e-12);
    free(u);
    free(rate);
}

void lsla_run_split(parity *p)
{
    enum { IMAGES = 600 };
    int64_t order[IMAGES];
    tp_numpy_permutation(1, IMAGES, order);
    par_check_integers(p, "output.permutation", order, IMAGES);
}

/* ---- pictures ---- */

/* Fills picture with the tensor `name` [H,W,3]. */
static void read_picture(parity *p, const char *name, tp_image *picture)
{
    tp_shape s = TP_SHAPE(0);
    int64_t *x = par_integers(p, name, &s);
    const int64_t n = x && s.ndim == 3 && s.dim[2] == 3 ? s.dim[0] * s.dim[1] * 3 : 0;
    if (n == 0 || !tp_image_new(picture, s.dim[1], s.dim[0]))
        par_fail(p, "%s is no picture", name);
    else
        for (int64_t i = 0; i < n; i++) picture->rgb[i] = (uint8_t)x[i];
    free(x);
}

static void check_picture(parity *p, const char *name, const tp_image *picture)
{
    const int64_t n = picture->width * picture->height * 3;
    int64_t *x = malloc((size_t)(n + 1) * sizeof *x);
    if (!x) par_fail(p, "%s: out of memory", name);
    for (int64_t i = 0; x && i < n; i++) x[i] = picture->rgb[i];
    if (x) par_check_integers(p, name, x, n);
    free(x);
}

/* resize: width, height. crop_resize: rows and columns of the box from, to, then width, height. */
static bool apply_resize(parity *p, const char *key, const tp_image *in, tp_image *out)
{
    double a[6];
    const int n = par_list(p, key, 6, a);
    const tp_box box = { (int64_t)a[2], (int64_t)a[0], (int64_t)(a[3] - a[2]),
                         (int64_t)(a[1] - a[0]) };
    if (n != 2 && n != 6) return false;
    return tp_image_resize(out, in, n == 6 ? &box : NULL, (int64_t)a[n - 2], (int64_t)a[n - 1],
                           TP_BICUBIC);
}

/* The operation that an output's name begins with; the longer of two such names comes first. */
static tp_pixel_op operation(const char *name)
{
    static const struct {
        const char *name;
        tp_pixel_op op;
    } ops[] = {
        { "autocontrast", TP_PIXEL_AUTO_CONTRAST },
        { "equalize", TP_PIXEL_EQUALIZE },
        { "invert", TP_PIXEL_INVERT },
        { "rotate", TP_PIXEL_ROTATE },
        { "posterize", TP_PIXEL_POSTERIZE },
        { "solarize_add", TP_PIXEL_SOLARIZE_ADD },
        { "solarize", TP_PIXEL_SOLARIZE },
        { "color", TP_PIXEL_COLOR },
        { "contrast", TP_PIXEL_CONTRAST },
        { "brightness", TP_PIXEL_BRIGHTNESS },
        { "sharpness", TP_PIXEL_SHARPNESS },
        { "shear_x", TP_PIXEL_SHEAR_X },
        { "shear_y", TP_PIXEL_SHEAR_Y },
        { "translate_x", TP_PIXEL_TRANSLATE_X },
        { "translate_y", TP_PIXEL_TRANSLATE_Y },
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strncmp(name, ops[i].name, strlen(ops[i].name)) == 0) return ops[i].op;
    return TP_NPIXEL_OPS;
}

void lsla_run_image_ops(parity *p)
{
    static const uint8_t fill[3] = { 124, 116, 104 };
    tp_image in = { 0 }, out = { 0 }, work = { 0 };
    const char *key, *argument;
    read_picture(p, "input.image", &in);
    for (int i = 0; !p->failed && tp_file_meta_at(p->F, i, &key, &argument); i++) {
        char name[128];
        if (strncmp(key, "arg.", 4) != 0) continue;
        const tp_pixel_op op = operation(key + 4);
        snprintf(name, sizeof name, "output.%s", key + 4);
        const bool done = op == TP_NPIXEL_OPS
                              ? apply_resize(p, key, &in, &out)
                              : tp_image_copy(&out, &in) &&
                                    tp_image_apply(&out, op, strtod(argument, NULL), fill, &work);
        if (done)
            check_picture(p, name, &out);
        else
            par_fail(p, "%s: %s", key, out.why);
    }
    tp_image_free(&in);
    tp_image_free(&out);
    tp_image_free(&work);
}

/* ---- mixing ---- */

enum { BATCH = 4, CLASSES = 7, MOST = 1024 };

/* Images [B,C,H,W] and targets of a batch that is mixed so. */
static void check_mixed(parity *p, const tp_mixing *d, const char *images, const char *targets)
{
    tp_shape s = TP_SHAPE(0);
    double *x = par_values(p, "input.x", &s), got[MOST];
    int64_t *label = par_integers(p, "input.label", NULL);
    float f[MOST], t[BATCH * CLASSES];
    int32_t y[BATCH];
    if (x && label && s.ndim == 4 && s.dim[0] == BATCH &&
        BATCH * s.dim[1] * s.dim[2] * s.dim[3] <= MOST) {
        const int64_t C = s.dim[1], plane = s.dim[2] * s.dim[3], n = BATCH * C * plane;
        for (int i = 0; i < BATCH; i++) y[i] = (int32_t)label[i];
        for (int64_t i = 0; i < n; i++) { /* to channels last */
            const int64_t image = i / (C * plane), at = i / C % plane;
            f[i] = (float)x[(image * C + i % C) * plane + at];
        }
        tp_mix_apply(d, f, BATCH, s.dim[2], s.dim[3], C);
        for (int64_t i = 0; i < n; i++)
            got[(i / (C * plane) * C + i % C) * plane + i / C % plane] = (double)f[i];
        par_check(p, images, got, n, par_limit(p, PAR_OUTPUT));
        tp_mix_targets(d, par_num(p, "label_smoothing", 0.0), y, BATCH, CLASSES, t);
        for (int i = 0; i < BATCH * CLASSES; i++) got[i] = (double)t[i];
        par_check(p, targets, got, BATCH * CLASSES, par_limit(p, PAR_OUTPUT));
    } else {
        par_fail(p, "input.x is no batch of %d images, or input.label is missing", BATCH);
    }
    free(x);
    free(label);
}

/* The loss with mixed targets, as the case has them. */
static void check_soft_loss(parity *p)
{
    tp_tape *T = tp_tape_new(p->D, &(tp_tape_opts){ .compute = p->compute });
    const tp_tensor logits = par_input(p, T, "input.logits");
    const tp_tensor targets = par_tensor(p, T, "output.cutmix_target");
    const tp_tensor loss = tp_cross_entropy(T, logits, targets, TP_MEAN);
    par_check_tensor(p, T, "output.soft_loss", loss);
    tp_backward(T, loss);
    if (par_ok(p, T, NULL)) par_check_input_grad(p, T, "logits", logits);
    tp_tape_free(T);
}

void lsla_run_mixing(parity *p)
{
    const tp_file_tensor *x = tp_file_find(p->F, "input.x");
    double centre[2] = { 0 }, box[4] = { 0 };
    if (!x || x->shape.ndim != 4 || par_list(p, "cutmix_centre", 2, centre) != 2 ||
        par_list(p, "cutmix_box", 4, box) != 4 || par_int(p, "classes", 0) != CLASSES) {
        par_fail(p, "the case lacks input.x [B,C,H,W], cutmix_centre or cutmix_box");
        return;
    }
    const tp_mixing blend = { .lambda = par_num(p, "mixup_lambda", 1.0) };
    check_mixed(p, &blend, "output.mixup_x", "output.mixup_target");
    const tp_mixing cut = tp_mix_cut(par_num(p, "cutmix_lambda_drawn", 1.0), (int64_t)centre[1],
                                     (int64_t)centre[0], x->shape.dim[2], x->shape.dim[3]);
    if (cut.box.y != (int64_t)box[0] || cut.box.y + cut.box.height != (int64_t)box[1] ||
        cut.box.x != (int64_t)box[2] || cut.box.x + cut.box.width != (int64_t)box[3])
        par_fail(p, "the box is another than cutmix_box");
    check_mixed(p, &cut, "output.cutmix_x", "output.cutmix_target");
    par_check_one(p, "output.cutmix_lambda", cut.lambda, 1e-6);
    check_soft_loss(p);
}
