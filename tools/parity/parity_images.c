/* parity_images.c - kinds of operations on images: those of RandAugment, resizing, cropping and the
 * evaluation transform, with their arguments in the metadata ("value.OUTPUT" or "arg.OUTPUT");
 * mixup and cutmix. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <tapegrad/augment.h>

#include "parity_case.h"

/* ---- images of the file ---- */

void par_read_image(parity *p, const char *name, tp_image *image)
{
    tp_shape s;
    const int64_t *x = par_integers(p, name, &s);
    const bool fits = x && s.ndim == 3 && s.dim[2] == 3 && par_numel(s) > 0;

    if (!fits || !tp_image_new(image, s.dim[1], s.dim[0]))
        par_fail(p, "%s is not an image [height,width,3]", name);
    else
        for (int64_t i = 0; i < par_numel(s); i++) image->rgb[i] = (uint8_t)x[i];
}

void par_check_image(parity *p, const char *name, const tp_image *image)
{
    const tp_shape s = par_shape(p, name);
    const int64_t n = image->width * image->height * 3;

    if (s.ndim != 3 || s.dim[0] != image->height || s.dim[1] != image->width)
        par_fail(p, "%s has a different size than the result, %lld x %lld", name,
                 (long long)image->height, (long long)image->width);
    par_check_bytes(p, name, image->rgb, n);
}

void par_check_pixels(parity *p, const char *name, const float *x, int64_t B, const int64_t s[3],
                      double limit)
{
    const int64_t C = s[0], plane = s[1] * s[2], n = B * C * plane;
    double *y = par_alloc(p, n, sizeof *y);
    for (int64_t i = 0; y && i < n; i++)
        y[(i / C / plane * C + i % C) * plane + i / C % plane] = (double)x[i];
    if (y) par_check(p, name, y, n, limit);
}

void par_three(parity *p, const char *key, double least, double most, float x[3])
{
    int64_t n;
    const double *given = par_list(p, key, &n);
    if (n != 3) par_fail(p, "metadata %s: there are %lld numbers, not 3", key, (long long)n);
    for (int i = 0; i < 3; i++) {
        x[i] = n == 3 ? (float)given[i] : 1.0f;
        if (n == 3 && !(given[i] >= least && given[i] <= most))
            par_illegal(p, "metadata %s: %g is not from %g to %g", key, given[i], least, most);
    }
}

/* ---- operations ---- */

typedef struct job {
    parity *p;
    const char *name; /* of the output */
    double a[6];      /* its arguments */
    tp_image in, out, work;
    uint8_t fill[3];
} job;

/* The library's solarize_add has the threshold 128. */
static bool add_below(tp_image *image, int add, double threshold)
{
    for (int64_t i = 0; i < image->width * image->height * 3; i++) {
        const int v = image->rgb[i], sum = v + add;
        if (v < threshold) image->rgb[i] = (uint8_t)(sum < 255 ? sum : 255);
    }
    return true;
}

static bool apply(job *j, int op)
{
    if (!tp_image_copy(&j->out, &j->in)) return false;
    if (op == TP_PIXEL_SOLARIZE_ADD && j->a[1] != 128.0)
        return add_below(&j->out, (int)j->a[0], j->a[1]);
    return tp_image_apply(&j->out, (tp_pixel_op)op, j->a[0], j->fill, &j->work);
}

static bool rotate(job *j, int filter)
{
    double m[6];
    tp_image_rotation(&j->in, j->a[0], m);
    return tp_image_affine(&j->out, &j->in, m, (tp_filter)filter, j->fill);
}

/* width, height */
static bool resize(job *j, int filter)
{
    return tp_image_resize(&j->out, &j->in, NULL, (int64_t)j->a[0], (int64_t)j->a[1],
                           (tp_filter)filter);
}

/* The box, then the height and width of the result. */
static bool resize_box(job *j, double top, double left, double height, double width)
{
    const tp_box box = { (int64_t)left, (int64_t)top, (int64_t)width, (int64_t)height };
    return tp_image_resize(&j->out, &j->in, &box, (int64_t)j->a[5], (int64_t)j->a[4], TP_BICUBIC);
}

/* top, left, height, width */
static bool crop(job *j, int unused)
{
    (void)unused;
    return resize_box(j, j->a[0], j->a[1], j->a[2], j->a[3]);
}

/* top, bottom, left, right (ends exclusive) */
static bool crop_edges(job *j, int unused)
{
    (void)unused;
    return resize_box(j, j->a[0], j->a[2], j->a[1] - j->a[0], j->a[3] - j->a[2]);
}

/* Resizes the shorter edge and crops the centre; compares the normalised floats [3,H,W]. */
static bool evaluate(job *j, int unused)
{
    parity *p = j->p;
    const char *name = par_name(p, "output.%s", j->name);
    const int64_t least = j->in.width < j->in.height ? j->in.width : j->in.height;
    const int64_t edge = (int64_t)j->a[0], side = (int64_t)j->a[1], plane = side * side;
    const double share = par_num(p, "crop_pct", 0.875);
    float mean[3], std[3];
    (void)unused;
    par_three(p, "mean", 0.0, 1.0, mean);
    par_three(p, "std", 1e-9, 1e6, std);
    if (edge != (int64_t)floor((double)side / share))
        par_fail(p, "metadata crop_pct: an edge of %lld is not that of a crop of %lld",
                 (long long)edge, (long long)side);
    if (p->failed || least < 1) return false;
    float *f = par_alloc(p, 3 * plane, sizeof *f);
    if (!f ||
        !tp_image_resize(&j->work, &j->in, NULL, edge * j->in.width / least,
                         edge * j->in.height / least, TP_BICUBIC) ||
        !tp_image_crop(&j->out, &j->work, tp_image_centre(&j->work, side, side), NULL))
        return false;
    tp_image_floats(&j->out, mean, std, f);
    par_check_pixels(p, name, f, 1, (int64_t[]){ 3, side, side }, 1e-6);
    return true;
}

typedef struct operation {
    const char *name; /* of an output, without case and '_'; a number or more words may follow */
    bool (*run)(job *j, int which); /* false, with the reason in out.why, if it failed */
    int which;
    int arguments;
    bool whole; /* they are whole numbers */
} operation;

/* If one name is the beginning of another, the longer one comes first. */
static const operation operations[] = {
    { "autocontrast", apply, TP_PIXEL_AUTO_CONTRAST, 0, false },
    { "equalize", apply, TP_PIXEL_EQUALIZE, 0, false },
    { "invert", apply, TP_PIXEL_INVERT, 0, false },
    { "rotatebilinear", rotate, TP_BILINEAR, 1, false },
    { "rotate", apply, TP_PIXEL_ROTATE, 1, false },
    { "posterize", apply, TP_PIXEL_POSTERIZE, 1, true },
    { "solarizeadd", apply, TP_PIXEL_SOLARIZE_ADD, 2, true },
    { "solarize", apply, TP_PIXEL_SOLARIZE, 1, true },
    { "color", apply, TP_PIXEL_COLOR, 1, false },
    { "contrast", apply, TP_PIXEL_CONTRAST, 1, false },
    { "brightness", apply, TP_PIXEL_BRIGHTNESS, 1, false },
    { "sharpness", apply, TP_PIXEL_SHARPNESS, 1, false },
    { "shearx", apply, TP_PIXEL_SHEAR_X, 1, false },
    { "sheary", apply, TP_PIXEL_SHEAR_Y, 1, false },
    { "translatex", apply, TP_PIXEL_TRANSLATE_X, 1, false },
    { "translatey", apply, TP_PIXEL_TRANSLATE_Y, 1, false },
    { "resizebilinear", resize, TP_BILINEAR, 2, true },
    { "resize", resize, TP_BICUBIC, 2, true },
    { "resizedcrop", crop, 0, 6, true },
    { "cropresize", crop_edges, 0, 6, true },
    { "evaltransform", evaluate, 0, 2, true },
};

/* What follows the operation in an output's name; NULL: it is another operation. */
static const char *after(const char *name, const char *own)
{
    for (; *own; name++)
        if (*name != '_' && tolower((unsigned char)*name) != *own++) return NULL;
    return name;
}

static const operation *find(const char *name)
{
    static const char *const more[] = { "Rel", "Increasing" };
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const char *rest = after(name, operations[i].name);
        for (int k = 0; k < 2 && rest; k++)
            if (strncmp(rest, more[k], strlen(more[k])) == 0) rest += strlen(more[k]);
        if (rest && (!*rest || strchr("._", *rest))) return &operations[i];
    }
    return NULL;
}

/* ---- arguments ---- */

/* An operation without arguments has no key, or one with an empty value. */
static void read_arguments(job *j, const operation *o)
{
    parity *p = j->p;
    const char *value = par_name(p, "value.%s", j->name);
    const char *key = par_given(p, value) ? value : par_name(p, "arg.%s", j->name);
    int64_t n;
    if (o->arguments == 0) {
        const char *text = par_text(p, key);
        if (text && *text) par_fail(p, "metadata %s = '%.40s': there are no arguments", key, text);
        return;
    }
    const double *x = par_list(p, key, &n);
    const bool add = o->which == TP_PIXEL_SOLARIZE_ADD && o->run == apply;
    if (n != o->arguments && !(add && n == 1))
        par_illegal(p, "metadata %s: %s takes %d numbers", key, o->name, o->arguments);
    j->a[1] = 128.0; /* the default threshold of solarize_add */
    for (int64_t i = 0; i < n && !p->failed; i++) {
        j->a[i] = x[i];
        if (o->whole && (x[i] < 0.0 || x[i] > 65536.0 || x[i] != floor(x[i])))
            par_illegal(p, "metadata %s: %g is not a whole number that %s accepts", key, x[i],
                        o->name);
    }
}

static void run_one(job *j)
{
    const char *name = par_name(j->p, "output.%s", j->name);
    const operation *o = find(j->name);
    if (!o) {
        par_fail(j->p, "%s: there is no operation of this name", name);
        return;
    }
    read_arguments(j, o);
    if (j->p->failed) return;
    if (!o->run(j, o->which))
        par_fail(j->p, "%s: %s", name, *j->out.why ? j->out.why : j->work.why);
    else if (o->run != evaluate)
        par_check_image(j->p, name, &j->out);
}

void par_run_images(parity *p)
{
    job j = { .p = p };
    float fill[3] = { 124, 116, 104 };

    if (par_given(p, "fill_colour")) par_three(p, "fill_colour", 0.0, 255.0, fill);
    for (int i = 0; i < 3; i++) j.fill[i] = (uint8_t)fill[i];
    par_read_image(p, "input.image", &j.in);
    for (int i = 0; i < tp_file_count(p->F) && !p->failed; i++) {
        const char *name = tp_file_at(p->F, i)->name;
        if (strncmp(name, "output.", 7) != 0) continue;
        j.name = name + 7;
        run_one(&j);
    }
    tp_image_free(&j.in);
    tp_image_free(&j.out);
    tp_image_free(&j.work);
}

/* ---- mixing ---- */

/* A batch to mix: images [B,C,H,W] and labels. */
typedef struct batch {
    int64_t B, C, H, W, classes;
    const double *x;
    const int32_t *label;
} batch;

static void check_mixed_images(parity *p, const batch *b, const tp_mixing *d, const char *name)
{
    const int64_t C = b->C, plane = b->H * b->W, n = b->B * C * plane;
    float *f = par_alloc(p, n, sizeof *f);
    if (!f) return;
    for (int64_t i = 0; i < n; i++) /* channels last */
        f[i] = (float)b->x[(i / C / plane * C + i % C) * plane + i / C % plane];
    tp_mix_apply(d, f, b->B, b->H, b->W, C);
    par_check_pixels(p, name, f, b->B, (int64_t[]){ C, b->H, b->W }, par_limit(p, PAR_OUTPUT));
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
    tp_shape s = { 0 };
    b->x = par_values(p, "input.x", &s);
    b->classes = par_size(p, classes_of(p), PAR_NEEDED);
    if (s.ndim != 4) par_fail(p, "input.x must be images [B,C,H,W]");
    if (p->failed) return;
    b->B = s.dim[0];
    b->C = s.dim[1];
    b->H = s.dim[2];
    b->W = s.dim[3];
    b->label = par_categories(p, labels_of(p), b->B, b->classes - 1);
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
void par_run_mixing(parity *p)
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
