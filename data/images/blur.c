/* blur.c - blurs of images: convolutions with float kernels, rounded to bytes after each pass. Rows are summed tap by
 * tap, which compilers vectorise; taps of weight 0 are skipped. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

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

/* out: every row of in with its first and last pixel repeated rx times. */
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

/* Convolves p with the kernel, whose weights it divides by their sum; frees the kernel. */
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

bool tp__blur_gaussian(tp_image *p, double share, tp_image *work)
{
    const double sigma = pixels_of(p, share);
    const int64_t r = (int64_t)ceil(4 * sigma);
    if (sigma < 1e-3)
        return true; /* neighbours would weigh 0, and smaller squares could underflow */
    kernel across = kernel_new(r, 0), down = kernel_new(0, r);
    for (int64_t i = -r; i <= r && across.w && down.w; i++)
        *weight(&across, i, 0) = *weight(&down, 0, i) = exp(-(double)(i * i) / (2 * sigma * sigma));
    const bool done = convolve(p, across, work);
    return convolve(p, down, work) && done;
}

/* A pixel whose centre is within the radius counts 1, one at most a pixel further out less. */
bool tp__blur_disk(tp_image *p, double share, tp_image *work)
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

/* Points on the line, each shared among the four pixels around it. */
bool tp__blur_line(tp_image *p, double share, double angle, tp_image *work)
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
