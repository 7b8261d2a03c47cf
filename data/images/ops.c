/* ops.c - the 15 operations of RandAugment, bit-identical to Pillow's.
 *
 * Most are tables of 256 values per channel, or blends a + f (b - a) of the image b with a degraded
 * image a, in float32 and truncated. The others are affine: rotation, shear and translation. */
#include "loops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rotation, shear and translation ---- */

bool tp_image_affine(tp_image *out, const tp_image *in, const double m[6], tp_filter filter,
                     const uint8_t fill[3])
{
    if (!out) return false;
    if (!tp_image_ok(in)) return tp__image_fail_as(out, in);
    if (!tp_image_new(out, in->width, in->height)) return false;
    tp__loops()->affine(out, in, m, filter, fill);
    return true;
}

/* Rounds to 15 decimals, as Pillow does. */
static double rounded(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.15f", x);
    return strtod(text, NULL);
}

void tp_image_rotation(const tp_image *in, double degrees, double m[6])
{
    if (!in) return;
    const double turn = fmod(degrees, 360), pi = 3.141592653589793;
    const double angle = -((turn < 0 ? turn + 360 : turn) * (pi / 180));
    const double x = (double)in->width / 2, y = (double)in->height / 2;
    const double c = rounded(cos(angle)), s = rounded(sin(angle)), d = rounded(-sin(angle));
    const double rotation[6] = { c, s, c * -x + s * -y + x, d, c, d * -x + c * -y + y };
    memcpy(m, rotation, sizeof rotation);
}

enum { VALUES = 256 };

typedef struct table {
    uint8_t of[TP_RGB][VALUES];
} table;

static uint8_t clip(double x)
{
    return x <= 0 ? 0 : x >= 255 ? 255 : (uint8_t)x;
}

static void look_up(tp_image *p, const table *t)
{
    uint8_t *v = p->rgb, *end = v + p->width * p->height * TP_RGB;
    for (; v < end; v += TP_RGB)
        for (int c = 0; c < TP_RGB; c++) v[c] = t->of[c][v[c]];
}

static void histogram(const tp_image *p, int64_t h[TP_RGB][VALUES])
{
    const int64_t n = p->width * p->height * TP_RGB;
    memset(h, 0, sizeof(int64_t[TP_RGB][VALUES]));
    for (int64_t i = 0; i < n; i += TP_RGB)
        for (int c = 0; c < TP_RGB; c++) h[c][p->rgb[i + c]]++;
}

/* ---- tables ---- */

static void stretch(uint8_t *out, const int64_t *h)
{
    int lo = 0, hi = VALUES - 1;
    while (lo < VALUES - 1 && !h[lo]) lo++;
    while (hi > 0 && !h[hi]) hi--;
    const double scale = hi > lo ? 255.0 / (hi - lo) : 1, offset = hi > lo ? -lo * scale : 0;
    for (int v = 0; v < VALUES; v++) out[v] = clip(v * scale + offset);
}

static void flatten(uint8_t *out, const int64_t *h)
{
    int64_t total = 0, last = 0;
    for (int v = 0; v < VALUES; v++) {
        total += h[v];
        if (h[v]) last = h[v];
    }
    const int64_t step = (total - last) / 255; /* 0 also if there is only one value */
    int64_t sum = step / 2;
    for (int v = 0; v < VALUES; v++) {
        const int64_t flat = step ? sum / step : v;
        out[v] = (uint8_t)(flat < 255 ? flat : 255);
        sum += h[v];
    }
}

/* Maps each channel by its histogram. */
static void equalise(tp_image *p, void (*rule)(uint8_t *, const int64_t *))
{
    int64_t h[TP_RGB][VALUES];
    table t;
    histogram(p, h);
    for (int c = 0; c < TP_RGB; c++) rule(t.of[c], h[c]);
    look_up(p, &t);
}

static int simple(tp_pixel_op op, int v, int argument)
{
    switch (op) {
    case TP_PIXEL_POSTERIZE:
        return argument >= 8 ? v : argument < 1 ? 0 : v & -(1 << (8 - argument));
    case TP_PIXEL_SOLARIZE: return v < argument ? v : 255 - v;
    case TP_PIXEL_SOLARIZE_ADD: return v < 128 ? v + argument : v;
    default: return 255 - v; /* TP_PIXEL_INVERT */
    }
}

static void by_value(tp_image *p, tp_pixel_op op, double argument)
{
    table t;
    const int whole = (int)fmin(fmax(argument, -255), 256);
    for (int v = 0; v < VALUES; v++) {
        const uint8_t to = clip(simple(op, v, whole));
        for (int c = 0; c < TP_RGB; c++) t.of[c][v] = to;
    }
    look_up(p, &t);
}

/* ---- blends ---- */

static void with_constant(tp_image *p, int poor, float f)
{
    table t;
    for (int v = 0; v < VALUES; v++)
        for (int c = 0; c < TP_RGB; c++) t.of[c][v] = tp__blend(poor, v, f);
    look_up(p, &t);
}

static int mean_grey(const tp_image *p)
{
    const int64_t n = p->width * p->height;
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += tp__grey(p->rgb + i * TP_RGB);
    return (int)((double)sum / (double)n + 0.5);
}

/* Leaves border pixels unchanged: they have no smoothed value to blend with. */
static bool with_smooth(tp_image *out, const tp_image *in, float f)
{
    if (!tp_image_copy(out, in)) return false;
    const int64_t stride = in->width * TP_RGB;
    for (int64_t y = 1; y < in->height - 1; y++)
        tp__loops()->sharpen(out->rgb + y * stride + TP_RGB, in->rgb + y * stride + TP_RGB, stride,
                             stride - 2 * TP_RGB, f);
    return true;
}

/* ---- all operations ---- */

static void matrix(const tp_image *p, tp_pixel_op op, double argument, double m[6])
{
    const double still[6] = { 1, 0, 0, 0, 1, 0 };
    memcpy(m, still, sizeof still);
    switch (op) {
    case TP_PIXEL_SHEAR_X: m[1] = argument; break;
    case TP_PIXEL_SHEAR_Y: m[3] = argument; break;
    case TP_PIXEL_TRANSLATE_X: m[2] = argument * (double)p->width; break;
    case TP_PIXEL_TRANSLATE_Y: m[5] = argument * (double)p->height; break;
    default: tp_image_rotation(p, argument, m); /* TP_PIXEL_ROTATE */
    }
}

static bool exchange(tp_image *p, tp_image *work, bool ok)
{
    const tp_image t = *p;
    *p = *work;
    *work = t;
    return ok;
}

bool tp_image_apply(tp_image *p, tp_pixel_op op, double argument, const uint8_t fill[3],
                    tp_image *work)
{
    if (!p) return false;
    const float f = (float)argument;
    double m[6];
    if (!tp_image_ok(p)) return false;
    switch (op) {
    case TP_PIXEL_AUTO_CONTRAST: equalise(p, stretch); return true;
    case TP_PIXEL_EQUALIZE: equalise(p, flatten); return true;
    case TP_PIXEL_INVERT:
    case TP_PIXEL_POSTERIZE:
    case TP_PIXEL_SOLARIZE:
    case TP_PIXEL_SOLARIZE_ADD: by_value(p, op, argument); return true;
    case TP_PIXEL_COLOR: tp__loops()->colour(p->rgb, p->width * p->height, f); return true;
    case TP_PIXEL_CONTRAST: with_constant(p, mean_grey(p), f); return true;
    case TP_PIXEL_BRIGHTNESS: with_constant(p, 0, f); return true;
    case TP_PIXEL_SHARPNESS: return exchange(p, work, with_smooth(work, p, f));
    default:
        matrix(p, op, argument, m);
        return exchange(p, work, tp_image_affine(work, p, m, TP_BICUBIC, fill));
    }
}

const char *tp_pixel_op_name(tp_pixel_op op)
{
#define TP_PIXEL_OP_NAME(name, text) text,
    static const char *const names[] = { TP_PIXEL_OPS(TP_PIXEL_OP_NAME) };
#undef TP_PIXEL_OP_NAME
    return op < TP_NPIXEL_OPS ? names[op] : "none";
}
