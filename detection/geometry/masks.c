/* masks.c - masks of regions: training targets, and pasting into images. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/detection/masks.h>

/* ---- targets ---- */

/* Converts a polygon to coordinates of the box, which is `side` pixels long. */
static void into_box(const double *xy, int64_t points, tp_corners box, int64_t side, double *out)
{
    const double w = box.x2 - box.x1, h = box.y2 - box.y1;
    const double sx = (double)side / (w > 0.1 ? w : 0.1), sy = (double)side / (h > 0.1 ? h : 0.1);
    for (int64_t i = 0; i < points; i++) {
        out[2 * i] = (xy[2 * i] - box.x1) * sx;
        out[2 * i + 1] = (xy[2 * i + 1] - box.y1) * sy;
    }
}

bool tp_mask_target(const double *xy, const int64_t *count, int64_t polygons, tp_corners box,
                    int64_t side, uint8_t *target)
{
    if (!xy) return false;
    int64_t most = 0;
    bool done = true;
    for (int64_t k = 0; k < polygons; k++) most = count[k] > most ? count[k] : most;
    double *shifted = malloc(((size_t)most * 2 + 1) * sizeof *shifted);
    uint8_t *one = malloc((size_t)(side * side) + 1);
    memset(target, 0, (size_t)(side * side));
    done = shifted && one;
    for (int64_t k = 0; done && k < polygons; xy += 2 * count[k++]) {
        tp_rle r;
        into_box(xy, count[k], box, side, shifted);
        done = tp_rle_from_polygon(&r, shifted, count[k], side, side);
        if (!done) break;
        tp_rle_pixels(&r, one);
        tp_rle_free(&r);
        for (int64_t i = 0; i < side * side; i++) target[i] |= one[i];
    }
    free(shifted);
    free(one);
    return done;
}

/* Interpolates between the centres of four pixels; outside, 0 beyond one pixel, else the border's
 * value. */
static double bilinear(const uint8_t *pixels, int64_t height, int64_t width, double y, double x)
{
    if (!(y >= -1.0 && y <= (double)height && x >= -1.0 && x <= (double)width)) return 0.0;
    y = y < 0.0 ? 0.0 : y;
    x = x < 0.0 ? 0.0 : x;
    int64_t y0 = (int64_t)y, x0 = (int64_t)x, y1 = y0 + 1, x1 = x0 + 1;
    if (y0 >= height - 1) y = (double)(y0 = y1 = height - 1);
    if (x0 >= width - 1) x = (double)(x0 = x1 = width - 1);
    const double dy = y - (double)y0, dx = x - (double)x0;
    return (1.0 - dy) * ((1.0 - dx) * pixels[y0 * width + x0] + dx * pixels[y0 * width + x1]) +
           dy * ((1.0 - dx) * pixels[y1 * width + x0] + dx * pixels[y1 * width + x1]);
}

/* Works like tp_roi_align with scale 1, half a pixel of offset, and as many samples as pixels.
 * Samples per direction of a part are limited to the image's pixels and rows outside the image are
 * skipped, so boxes of any size take bounded time. */
void tp_mask_target_from_pixels(const uint8_t *pixels, int64_t height, int64_t width,
                                tp_corners box, int64_t side, double *part)
{
    if (!pixels) return;
    const double x0 = box.x1 - 0.5, y0 = box.y1 - 0.5;
    const double w = (box.x2 - box.x1) / (double)side, h = (box.y2 - box.y1) / (double)side;
    for (int64_t i = 0; i < side * side; i++) part[i] = 0.0;
    if (!(w > 0.0 && h > 0.0 && isfinite(w) && isfinite(h))) return;
    const int64_t nx = (int64_t)fmin(ceil(w), (double)width),
                  ny = (int64_t)fmin(ceil(h), (double)height);
    for (int64_t i = 0; i < side; i++)
        for (int64_t j = 0; j < side; j++) {
            double sum = 0.0;
            for (int64_t a = 0; a < ny; a++) {
                const double y = y0 + (double)i * h + ((double)a + 0.5) * h / (double)ny;
                if (!(y >= -1.0 && y <= (double)height)) continue;
                for (int64_t b = 0; b < nx; b++)
                    sum += bilinear(pixels, height, width, y,
                                    x0 + (double)j * w + ((double)b + 0.5) * w / (double)nx);
            }
            if (nx > 0 && ny > 0) part[i * side + j] = sum / (double)(nx * ny);
        }
}

/* ---- pasting ---- */

/* Finds the pixels in a direction that the mask can reach: centres in it or half a tap beyond. */
static void reach(double lo, double hi, int64_t side, int64_t n, int64_t *from, int64_t *to)
{
    const double margin = (hi - lo) / (double)side + 1.0;
    const double a = floor(lo - margin), b = ceil(hi + margin);
    *from = !(a > 0.0) ? 0 : a < (double)n ? (int64_t)a : n;
    *to = !(b > 0.0) ? 0 : b < (double)n ? (int64_t)b : n;
    if (!(hi > lo)) *from = *to = 0;
}

/* Returns a tap, or 0 outside. */
static double tap(const float *p, int64_t side, int64_t v, int64_t u)
{
    return v < 0 || v >= side || u < 0 || u >= side ? 0.0 : p[v * side + u];
}

static bool inside(const float *p, int64_t side, tp_corners box, double threshold, int64_t i,
                   int64_t j)
{
    const double u = ((double)j + 0.5 - box.x1) / (box.x2 - box.x1) * (double)side - 0.5;
    const double v = ((double)i + 0.5 - box.y1) / (box.y2 - box.y1) * (double)side - 0.5;
    if (!(u > -1.0 && u < (double)side && v > -1.0 && v < (double)side)) return false;
    const double fu = floor(u), fv = floor(v), du = u - fu, dv = v - fv;
    const int64_t x = (int64_t)fu, y = (int64_t)fv;
    const double value =
        (1.0 - dv) * ((1.0 - du) * tap(p, side, y, x) + du * tap(p, side, y, x + 1)) +
        dv * ((1.0 - du) * tap(p, side, y + 1, x) + du * tap(p, side, y + 1, x + 1));
    return value >= threshold;
}

void tp_paste_mask(const float *probability, int64_t side, tp_corners box, double threshold,
                   int64_t height, int64_t width, uint8_t *pixels)
{
    if (!probability) return;
    int64_t x0, x1, y0, y1;
    reach(box.x1, box.x2, side, width, &x0, &x1);
    reach(box.y1, box.y2, side, height, &y0, &y1);
    memset(pixels, 0, (size_t)(height * width));
    for (int64_t i = y0; i < y1; i++)
        for (int64_t j = x0; j < x1; j++)
            pixels[i * width + j] = inside(probability, side, box, threshold, i, j);
}

/* Appends a run of a value to counts, whose values alternate from 0 on. */
static void append(int64_t *count, int64_t *n, bool value, int64_t length)
{
    if (length == 0) return;
    if ((*n % 2 == 0) != value) count[(*n)++] = 0; /* the value changes: begin a run */
    count[*n - 1] += length;
}

bool tp_paste_rle(const float *probability, int64_t side, tp_corners box, double threshold,
                  int64_t height, int64_t width, tp_rle *r)
{
    if (!probability) return false;
    int64_t x0, x1, y0, y1, n = 1;
    char why[1];
    *r = (tp_rle){ 0 };
    reach(box.x1, box.x2, side, width, &x0, &x1);
    reach(box.y1, box.y2, side, height, &y0, &y1);
    int64_t *count = malloc(((size_t)((x1 - x0) * (y1 - y0)) * 2 + 3) * sizeof *count);
    if (!count) return false;
    count[0] = x0 * height;
    for (int64_t j = x0; j < x1; j++) {
        append(count, &n, false, y0);
        for (int64_t i = y0; i < y1; i++)
            append(count, &n, inside(probability, side, box, threshold, i, j), 1);
        append(count, &n, false, height - y1);
    }
    append(count, &n, false, (width - x1) * height);
    const bool done = tp_rle_from_counts(r, count, n, height, width, why, 0);
    free(count);
    return done;
}
