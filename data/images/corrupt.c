/* corrupt.c - corruptions of images: noise, blurs, pixelation, JPEG compression, contrast and
 * colours. Results are rounded to 0 ... 255. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/corrupt.h>

#include "inner.h"

/* ---- blurs ---- */

/* Blurs are convolutions with float kernels, rounded to bytes after each pass. Rows are summed tap
 * by tap, which compilers vectorise; taps of weight 0 are skipped. */

/* Weights [2*ry+1, 2*rx+1] around the centre; NULL: out of memory. */
typedef struct kernel {
    int64_t rx, ry;
    double *w;
} kernel;

static kernel kernel_new(int64_t rx, int64_t ry)
{
    return (kernel){ rx, ry, calloc((size_t)((2 * rx + 1) * (2 * ry + 1)), sizeof(double)) };
}

static double *weight(const kernel *k, int64_t x, int64_t y)
{
    return k->w + (y + k->ry) * (2 * k->rx + 1) + x + k->rx;
}

/* ---- convolution ---- */

/* Copies `in` to `out`, with the first and last pixel of every row repeated rx times. */
static bool pad(tp_image *out, const tp_image *in, int64_t rx)
{
    const int64_t W = in->width;
    if (!tp_image_new(out, W + 2 * rx, in->height)) return false;
    for (int64_t y = 0; y < in->height; y++) {
        const uint8_t *from = in->rgb + y * W * TP_RGB;
        uint8_t *to = out->rgb + y * out->width * TP_RGB;
        memcpy(to + rx * TP_RGB, from, (size_t)W * TP_RGB);
        for (int64_t i = 0; i < rx; i++) {
            memcpy(to + i * TP_RGB, from, TP_RGB);
            memcpy(to + (rx + W + i) * TP_RGB, from + (W - 1) * TP_RGB, TP_RGB);
        }
    }
    return true;
}

static void add_row(float *restrict sum, const uint8_t *restrict row, int64_t n, float w)
{
    for (int64_t i = 0; i < n; i++) sum[i] += w * (float)row[i];
}

/* Convolves p with the kernel, normalised to a sum of 1; frees the kernel. */
static bool convolve(tp_image *p, kernel k, tp_image *work)
{
    const int64_t W = p->width, H = p->height, n = W * TP_RGB;
    const int64_t taps = (2 * k.rx + 1) * (2 * k.ry + 1);
    float *sum = malloc((size_t)n * sizeof *sum);
    double all = 0;
    bool done = k.w && sum && pad(work, p, k.rx);
    for (int64_t i = 0; done && i < taps; i++) all += k.w[i];
    for (int64_t y = 0; done && y < H; y++) {
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t dy = -k.ry; dy <= k.ry; dy++) {
            const uint8_t *row = work->rgb + tp__clamp(y + dy, 0, H - 1) * work->width * TP_RGB;
            for (int64_t dx = -k.rx; dx <= k.rx; dx++) {
                const float w = (float)(*weight(&k, dx, dy) / all);
                if (w != 0) add_row(sum, row + (dx + k.rx) * TP_RGB, n, w);
            }
        }
        for (int64_t i = 0; i < n; i++) p->rgb[y * n + i] = tp__image_byte((double)sum[i]);
    }
    free(sum);
    free(k.w);
    return done || tp__image_no_memory(p, "out of memory for blurring an image");
}

/* ---- kernels ---- */

static double pixels_of(const tp_image *p, double share)
{
    return share * (double)(p->width < p->height ? p->width : p->height);
}

/* share: the deviation as a fraction of the shorter side. */
static bool blur_gaussian(tp_image *p, double share, tp_image *work)
{
    const double sigma = pixels_of(p, share);
    const int64_t r = (int64_t)ceil(4 * sigma);
    /* neighbours would weigh 0, and smaller squares could underflow */
    if (sigma < 1e-3) return true;
    kernel across = kernel_new(r, 0), down = kernel_new(0, r);
    for (int64_t i = -r; i <= r && across.w && down.w; i++)
        *weight(&across, i, 0) = *weight(&down, 0, i) = exp(-(double)(i * i) / (2 * sigma * sigma));
    const bool done = convolve(p, across, work);
    return convolve(p, down, work) && done;
}

/* Pixels with centres within the radius weigh 1; those up to a pixel further out weigh less.
 * share: the radius. */
static bool blur_disk(tp_image *p, double share, tp_image *work)
{
    const double radius = pixels_of(p, share);
    const int64_t r = (int64_t)ceil(radius);
    kernel k = kernel_new(r, r);
    for (int64_t y = -r; y <= r && k.w; y++)
        for (int64_t x = -r; x <= r; x++) {
            const double inside = radius + 0.5 - sqrt((double)(x * x + y * y));
            *weight(&k, x, y) = fmin(fmax(inside, 0), 1);
        }
    return convolve(p, k, work);
}

/* Sums points on the line, each shared among the four pixels around it. share: the length. */
static bool blur_line(tp_image *p, double share, double angle, tp_image *work)
{
    enum { POINTS_PER_PIXEL = 8 };
    const double length = pixels_of(p, share), c = cos(angle), s = sin(angle);
    const int64_t r = (int64_t)ceil(length / 2) + 1;
    const int64_t n = POINTS_PER_PIXEL * (int64_t)ceil(length) + 1;
    kernel k = kernel_new(r, r);
    for (int64_t i = 0; i < n && k.w; i++) {
        const double t = length * (((double)i + 0.5) / (double)n - 0.5), x = t * c, y = t * s;
        const int64_t x0 = (int64_t)floor(x), y0 = (int64_t)floor(y);
        for (int q = 0; q < 4; q++) {
            const int64_t qx = x0 + q % 2, qy = y0 + q / 2;
            *weight(&k, qx, qy) += (1 - fabs(x - (double)qx)) * (1 - fabs(y - (double)qy));
        }
    }
    return convolve(p, k, work);
}

/* ---- kinds ---- */

/* The legal arguments, and those for severities 1 to 5. */
static const struct {
    double lo, hi, at[TP_CORRUPT_SEVERITIES];
} kinds[TP_NCORRUPT] = {
    [TP_CORRUPT_NONE] = { -INFINITY, INFINITY, { NAN, NAN, NAN, NAN, NAN } },
    [TP_CORRUPT_GAUSSIAN_NOISE] = { 0, 100, { 0.05, 0.09, 0.14, 0.2, 0.3 } },
    [TP_CORRUPT_SHOT_NOISE] = { 0.01, 500, { 80, 40, 20, 10, 5 } },
    [TP_CORRUPT_IMPULSE_NOISE] = { 0, 1, { 0.02, 0.05, 0.1, 0.17, 0.27 } },
    [TP_CORRUPT_GAUSSIAN_BLUR] = { 0, 1, { 0.006, 0.011, 0.017, 0.024, 0.034 } },
    [TP_CORRUPT_DEFOCUS_BLUR] = { 0, 1, { 0.01, 0.017, 0.025, 0.035, 0.05 } },
    [TP_CORRUPT_MOTION_BLUR] = { 0, 1, { 0.03, 0.055, 0.085, 0.12, 0.17 } },
    [TP_CORRUPT_PIXELATE] = { 0, 1, { 0.5, 0.36, 0.25, 0.18, 0.125 } },
    [TP_CORRUPT_JPEG] = { 1, 100, { 30, 20, 13, 8, 5 } },
    [TP_CORRUPT_CONTRAST] = { 0, 100, { 0.6, 0.43, 0.3, 0.2, 0.12 } },
    [TP_CORRUPT_BRIGHTNESS] = { -1, 1, { 0.1, 0.2, 0.3, 0.4, 0.5 } },
    [TP_CORRUPT_DARKNESS] = { 0, 100, { 0.7, 0.5, 0.35, 0.24, 0.16 } },
    [TP_CORRUPT_SATURATION] = { 0, 100, { 1.6, 2.4, 3.6, 5.4, 8 } },
    [TP_CORRUPT_GREY] = { 0, 100, { 0.7, 0.5, 0.3, 0.15, 0 } },
};
static const char *const names[TP_NCORRUPT] = {
#define NAME(name, text) text,
    TP_CORRUPT_KINDS(NAME)
};

const char *tp_corrupt_name(tp_corrupt c)
{
    return c < TP_NCORRUPT ? names[c] : "none";
}

bool tp_corrupt_find(const char *name, tp_corrupt *c)
{
    if (!name) return false;
    for (int i = 0; i < TP_NCORRUPT; i++)
        if (strcmp(names[i], name) == 0) {
            *c = (tp_corrupt)i;
            return true;
        }
    return false;
}

double tp_corrupt_argument(tp_corrupt c, int severity)
{
    return c < TP_NCORRUPT && severity >= 1 && severity <= TP_CORRUPT_SEVERITIES
               ? kinds[c].at[severity - 1]
               : NAN;
}

/* ---- noise ---- */

static void gaussian_noise(tp_image *p, double deviation, tp_random *r)
{
    enum { CHUNK = 1024 };
    float z[CHUNK];
    const int64_t n = p->width * p->height * TP_RGB;
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t m = n - i < CHUNK ? n - i : CHUNK;
        tp_random_normals(r, z, m);
        for (int64_t k = 0; k < m; k++)
            p->rgb[i + k] = tp__image_byte(p->rgb[i + k] + 255 * deviation * (double)z[k]);
    }
}

/* Draws a number of events by inversion: adds probabilities until they exceed a uniform number. */
static int64_t poisson(tp_random *r, double mean)
{
    enum { MOST = 10000 }; /* rounding may keep the sum below 1 */
    const double u = tp_random_uniform(r);
    double each = exp(-mean), sum = each;
    int64_t n = 0;
    while (u >= sum && n < MOST) {
        n++;
        each *= mean / (double)n;
        sum += each;
    }
    return n;
}

static void shot_noise(tp_image *p, double photons, tp_random *r)
{
    const int64_t n = p->width * p->height * TP_RGB;
    for (int64_t i = 0; i < n; i++) {
        const double counted = (double)poisson(r, p->rgb[i] / 255.0 * photons);
        p->rgb[i] = tp__image_byte(255 * counted / photons);
    }
}

static void impulse_noise(tp_image *p, double share, tp_random *r)
{
    const int64_t n = p->width * p->height * TP_RGB;
    for (int64_t i = 0; i < n; i++) {
        const double u = tp_random_uniform(r);
        if (u < share) p->rgb[i] = u < share / 2 ? 0 : 255;
    }
}

/* ---- values and cells ---- */

static void brighten(tp_image *p, double by)
{
    const int64_t n = p->width * p->height * TP_RGB;
    for (int64_t i = 0; i < n; i++) p->rgb[i] = tp__image_byte(p->rgb[i] + 255 * by);
}

static int64_t cells_of(int64_t side, double share)
{
    const int64_t n = (int64_t)ceil((double)side * share);
    return n < 1 ? 1 : n;
}

static void average(tp_image *p, tp_box b)
{
    const int64_t n = b.width * b.height;
    for (int c = 0; c < TP_RGB; c++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += p->rgb[((b.y + i / b.width) * p->width + b.x + i % b.width) * TP_RGB + c];
        const uint8_t mean = (uint8_t)((2 * sum + n) / (2 * n));
        for (int64_t i = 0; i < n; i++)
            p->rgb[((b.y + i / b.width) * p->width + b.x + i % b.width) * TP_RGB + c] = mean;
    }
}

static void pixelate(tp_image *p, double share)
{
    const int64_t W = p->width, H = p->height, across = cells_of(W, share),
                  down = cells_of(H, share);
    for (int64_t i = 0; i < down; i++)
        for (int64_t k = 0; k < across; k++) {
            const int64_t x = k * W / across, y = i * H / down;
            average(p, (tp_box){ x, y, (k + 1) * W / across - x, (i + 1) * H / down - y });
        }
}

/* ---- all corruptions ---- */

bool tp_image_corrupt(tp_image *p, tp_corrupt c, double argument, tp_random *r, tp_image *work)
{
    if (!p) return false;
    if (!tp_image_ok(p)) return false;
    if (c >= TP_NCORRUPT) return tp__image_fail(p, "corruption %d does not exist", (int)c);
    if (c != TP_CORRUPT_NONE && !(argument >= kinds[c].lo && argument <= kinds[c].hi))
        return tp__image_fail(p, "corruption %s of strength %g: it must be from %g to %g", names[c],
                              argument, kinds[c].lo, kinds[c].hi);
    switch (c) {
    case TP_CORRUPT_GAUSSIAN_NOISE: gaussian_noise(p, argument, r); break;
    case TP_CORRUPT_SHOT_NOISE: shot_noise(p, argument, r); break;
    case TP_CORRUPT_IMPULSE_NOISE: impulse_noise(p, argument, r); break;
    case TP_CORRUPT_GAUSSIAN_BLUR: return blur_gaussian(p, argument, work);
    case TP_CORRUPT_DEFOCUS_BLUR: return blur_disk(p, argument, work);
    case TP_CORRUPT_MOTION_BLUR:
        return blur_line(p, argument, 3.14159265358979323846 * tp_random_uniform(r), work);
    case TP_CORRUPT_PIXELATE: pixelate(p, argument); break;
    case TP_CORRUPT_JPEG: return tp__jpeg_recode(p, (int)argument);
    case TP_CORRUPT_CONTRAST: return tp_image_apply(p, TP_PIXEL_CONTRAST, argument, NULL, work);
    case TP_CORRUPT_BRIGHTNESS: brighten(p, argument); break;
    case TP_CORRUPT_DARKNESS: return tp_image_apply(p, TP_PIXEL_BRIGHTNESS, argument, NULL, work);
    case TP_CORRUPT_SATURATION:
    case TP_CORRUPT_GREY: return tp_image_apply(p, TP_PIXEL_COLOR, argument, NULL, work);
    default: break; /* TP_CORRUPT_NONE */
    }
    return true;
}
