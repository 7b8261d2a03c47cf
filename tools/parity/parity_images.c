/* parity_images.c - kinds of the image baselines' data: operations of RandAugment, resizing, cropping and
 * the evaluation transform, with their arguments in the metadata ("value.OUTPUT"). */
#include <math.h>
#include <string.h>
#include <tapegrad/image.h>

#include "parity_images.h"

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
    int64_t *x = par_alloc(p, n, sizeof *x);

    if (s.ndim != 3 || s.dim[0] != image->height || s.dim[1] != image->width)
        par_fail(p, "%s has a different size than the result, %lld x %lld", name,
                 (long long)image->height, (long long)image->width);
    for (int64_t i = 0; x && i < n; i++) x[i] = image->rgb[i];
    if (x) par_check_integers(p, name, x, n);
}

/* ---- arguments ---- */

typedef struct job {
    parity *p;
    const char *name; /* of the output */
    double a[6];      /* its arguments */
    int64_t n;
    tp_image in, out, work;
    uint8_t fill[3];
} job;

/* Fails unless there are n arguments, whole numbers from `least` on if that is not negative. */
static bool expect(job *j, int64_t n, double least)
{
    if (j->n != n)
        par_fail(j->p, "metadata value.%s: there are %lld numbers, not %lld", j->name,
                 (long long)j->n, (long long)n);
    for (int64_t i = 0; i < j->n; i++)
        if (least >= 0.0 && (j->a[i] < least || j->a[i] > 65536.0 || j->a[i] != floor(j->a[i])))
            par_fail(j->p, "metadata value.%s: %g is not a whole number from %g on", j->name,
                     j->a[i], least);
    return !j->p->failed;
}

/* Three numbers of the metadata. */
static void read_three(parity *p, const char *key, double most, double x[3])
{
    int64_t n;
    const double *given = par_list(p, key, &n);
    if (n != 3) par_fail(p, "metadata %s: there are %lld numbers, not 3", key, (long long)n);
    for (int i = 0; i < 3; i++) {
        x[i] = n == 3 ? given[i] : 0.0;
        if (!(x[i] >= 0.0 && x[i] <= most))
            par_fail(p, "metadata %s: %g is out of range", key, x[i]);
    }
}

/* ---- operations ---- */

static bool begins(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

/* The operation "Color", "ColorIncreasing.level0"; TP_NPIXEL_OPS if there is none. */
static tp_pixel_op find_op(const char *name)
{
    int op = 0;
    for (; op < TP_NPIXEL_OPS; op++) {
        const char *own = tp_pixel_op_name((tp_pixel_op)op), *rest = name + strlen(own);
        if (!begins(name, own)) continue;
        if (begins(rest, "Increasing")) rest += strlen("Increasing");
        if (*rest == '.' || !*rest) break;
    }
    return (tp_pixel_op)op;
}

static bool apply(job *j, tp_pixel_op op)
{
    const bool none =
        op == TP_PIXEL_AUTO_CONTRAST || op == TP_PIXEL_EQUALIZE || op == TP_PIXEL_INVERT;
    const bool whole =
        op == TP_PIXEL_POSTERIZE || op == TP_PIXEL_SOLARIZE || op == TP_PIXEL_SOLARIZE_ADD;
    if (!expect(j, none ? 0 : 1, whole ? 0.0 : -1.0) || !tp_image_copy(&j->out, &j->in))
        return false;
    return tp_image_apply(&j->out, op, none ? 0.0 : j->a[0], j->fill, &j->work);
}

static bool rotate(job *j)
{
    double m[6];
    if (!expect(j, 1, -1.0)) return false;
    tp_image_rotation(&j->in, j->a[0], m);
    return tp_image_affine(&j->out, &j->in, m, TP_BILINEAR, j->fill);
}

static bool resize(job *j, tp_filter filter)
{
    return expect(j, 2, 1.0) &&
           tp_image_resize(&j->out, &j->in, NULL, (int64_t)j->a[0], (int64_t)j->a[1], filter);
}

/* top, left, height, width, then the height and width of the result. */
static bool crop(job *j)
{
    if (!expect(j, 6, 0.0)) return false;
    const tp_box box = { (int64_t)j->a[1], (int64_t)j->a[0], (int64_t)j->a[3], (int64_t)j->a[2] };
    return tp_image_resize(&j->out, &j->in, &box, (int64_t)j->a[5], (int64_t)j->a[4], TP_BICUBIC);
}

/* Resizes the shorter edge, crops the centre and normalises: floats [3,H,W]. */
static void evaluate(job *j)
{
    parity *p = j->p;
    const char *name = par_name(p, "output.%s", j->name);
    const int64_t least = j->in.width < j->in.height ? j->in.width : j->in.height;
    double mean[3], std[3];
    float m[3], s[3];
    read_three(p, "mean", 1.0, mean);
    read_three(p, "std", 1e6, std);
    if (!expect(j, 2, 1.0) || least < 1) return;
    const int64_t edge = (int64_t)j->a[0], side = (int64_t)j->a[1], plane = side * side;
    const double share = par_num(p, "crop_pct", 0.875);
    if (edge != (int64_t)floor((double)side / share))
        par_fail(p, "metadata crop_pct: an edge of %lld is not that of a crop of %lld",
                 (long long)edge, (long long)side);
    for (int c = 0; c < 3; c++) {
        m[c] = (float)mean[c];
        s[c] = (float)std[c];
    }
    const tp_box box = { 0, 0, side, side };
    float *f = par_alloc(p, 3 * plane, sizeof *f);
    double *x = par_alloc(p, 3 * plane, sizeof *x);
    const bool done =
        tp_image_resize(&j->work, &j->in, NULL, edge * j->in.width / least,
                        edge * j->in.height / least, TP_BICUBIC) &&
        tp_image_crop(&j->out, &j->work, tp_image_centre(&j->work, box.width, box.height), NULL);
    if (!done) par_fail(p, "%s: %s", name, j->out.why);
    if (p->failed || !f || !x) return;
    tp_image_floats(&j->out, m, s, f);
    for (int64_t i = 0; i < 3 * plane; i++) x[i % 3 * plane + i / 3] = (double)f[i];
    par_check(p, name, x, 3 * plane, 1e-6);
}

static void run_one(job *j)
{
    const tp_pixel_op op = find_op(j->name);
    const char *name = par_name(j->p, "output.%s", j->name);
    bool done = false;
    int64_t n = 0;
    const char *key = par_name(j->p, "value.%s", j->name), *text = par_text(j->p, key);
    const double *given = text && *text ? par_list(j->p, key, &n) : NULL; /* blank: none */
    for (j->n = 0; j->n < n && j->n < 6; j->n++) j->a[j->n] = given[j->n];
    if (n > 6) par_fail(j->p, "metadata %s: there are %lld numbers", key, (long long)n);
    if (j->p->failed) return;
    if (begins(j->name, "eval_transform")) {
        evaluate(j);
        return;
    }
    if (op < TP_NPIXEL_OPS)
        done = apply(j, op);
    else if (begins(j->name, "rotate_bilinear"))
        done = rotate(j);
    else if (begins(j->name, "resize_bilinear") || begins(j->name, "resize_bicubic"))
        done = resize(j, begins(j->name, "resize_bic") ? TP_BICUBIC : TP_BILINEAR);
    else if (begins(j->name, "resized_crop"))
        done = crop(j);
    else
        par_fail(j->p, "%s: there is no operation of this name", name);
    if (!done) par_fail(j->p, "%s: %s", name, j->out.why);
    if (done) par_check_image(j->p, name, &j->out);
}

void par_run_images(parity *p)
{
    job j = { .p = p };
    double fill[3];

    read_three(p, "fill_colour", 255.0, fill);
    for (int i = 0; i < 3; i++) j.fill[i] = (uint8_t)fill[i];
    par_read_image(p, "input.image", &j.in);
    for (int i = 0; i < tp_file_count(p->F) && !p->failed; i++) {
        const char *name = tp_file_at(p->F, i)->name;
        if (!begins(name, "output.")) continue;
        j.name = name + strlen("output.");
        run_one(&j);
    }
    tp_image_free(&j.in);
    tp_image_free(&j.out);
    tp_image_free(&j.work);
}
