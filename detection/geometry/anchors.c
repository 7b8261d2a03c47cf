/* anchors.c - anchor boxes, from which detectors predict offsets. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

static tp_anchor_cfg with_ratios(void)
{
    return (tp_anchor_cfg){ .levels = 5, .ratios = 3, .ratio = { 0.5, 1.0, 2.0 } };
}

tp_anchor_cfg tp_anchors_rpn(void)
{
    tp_anchor_cfg c = with_ratios();
    c.sizes = 1;
    for (int k = 0; k < c.levels; k++) {
        c.stride[k] = 4 << k;
        c.size[k][0] = 32 << k;
    }
    return c;
}

tp_anchor_cfg tp_anchors_retinanet(tp_detection_profile profile)
{
    tp_anchor_cfg c = with_ratios();
    c.sizes = 3;
    c.ratio_major = profile == TP_MMDETECTION;
    for (int k = 0; k < c.levels; k++) {
        c.stride[k] = 8 << k;
        for (int s = 0; s < c.sizes; s++) c.size[k][s] = (32 << k) * pow(2.0, s / 3.0);
    }
    return c;
}

void tp__anchors_halve(tp_anchor_cfg *a)
{
    for (int l = 0; l < a->levels; l++)
        for (int s = 0; s < a->sizes; s++) a->size[l][s] *= 0.5;
}

void tp__anchor_sizes_print(const tp_anchor_cfg *c, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < c->levels * c->sizes && n < size; i++) {
        char number[40];
        tp_number_write(number, sizeof number, c->size[i / c->sizes][i % c->sizes], 1);
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? "," : "", number);
    }
}

bool tp__anchor_sizes_parse(tp_anchor_cfg *c, const char *text, char *why, size_t size)
{
    double x[TP_ANCHOR_LEVELS * TP_ANCHOR_SIZES];
    const int most = c->levels * TP_ANCHOR_SIZES;
    int n = 0;
    char *end = (char *)text;
    for (const char *at = text; n < most; at = end + 1) {
        x[n++] = tp_number_read(at, &end);
        if (end == at || *end != ',') break;
    }
    if (end == text || *end || n % c->levels != 0) {
        snprintf(
            why, size,
            "anchors.size = '%.60s' is not a list of equally many numbers for each of %d levels",
            text, c->levels);
        return false;
    }
    c->sizes = n / c->levels;
    memset(c->size, 0, sizeof c->size);
    for (int i = 0; i < n; i++) c->size[i / c->sizes][i % c->sizes] = x[i];
    return true;
}

bool tp_anchor_check(const tp_anchor_cfg *c, char *why, size_t size)
{
    if (!c)
        return tp__refuse(why, size, "anchor_check: NULL was given in place of a configuration");
    if (c->levels < 1 || c->levels > TP_ANCHOR_LEVELS || c->sizes < 1 ||
        c->sizes > TP_ANCHOR_SIZES || c->ratios < 1 || c->ratios > TP_ANCHOR_SIZES)
        return tp__refuse(why, size,
                          "anchors: %d levels, %d sizes, %d ratios: 1 to %d of each are possible",
                          c->levels, c->sizes, c->ratios, TP_ANCHOR_LEVELS);
    if (!(fabs(c->offset) < 1e6))
        return tp__refuse(why, size, "anchors: offset %g is not between -1e6 and 1e6", c->offset);
    for (int r = 0; r < c->ratios; r++)
        if (!(c->ratio[r] > 1e-6 && c->ratio[r] < 1e6))
            return tp__refuse(why, size, "anchors: ratio %g is not between 1e-6 and 1e6",
                              c->ratio[r]);
    for (int k = 0; k < c->levels; k++)
        for (int s = 0; s < c->sizes; s++)
            if (!(c->stride[k] > 0.0 && c->size[k][s] > 0.0 && c->size[k][s] < 1e9 &&
                  c->stride[k] < 1e9))
                return tp__refuse(
                    why, size,
                    "anchors: level %d has stride %g and size %g, which must be positive", k,
                    c->stride[k], c->size[k][s]);
    return true;
}

/* Computed in double; the published anchors are floats. */
static tp_corners cell_of(double size, double ratio)
{
    const double w = sqrt(size * size / ratio), h = ratio * w;
    return (tp_corners){ (float)(-0.5 * w), (float)(-0.5 * h), (float)(0.5 * w), (float)(0.5 * h) };
}

void tp_anchor_cells(const tp_anchor_cfg *c, int level, tp_corners *cell)
{
    if (!c) return;
    const int outer = c->ratio_major ? c->ratios : c->sizes,
              inner = c->ratio_major ? c->sizes : c->ratios;
    for (int i = 0; i < outer; i++)
        for (int j = 0; j < inner; j++)
            *cell++ =
                cell_of(c->size[level][c->ratio_major ? j : i], c->ratio[c->ratio_major ? i : j]);
}

void tp_anchors(const tp_anchor_cfg *c, int level, int64_t height, int64_t width,
                tp_corners *anchor)
{
    if (!c) return;
    tp_corners cell[TP_ANCHOR_SIZES * TP_ANCHOR_SIZES] = { { 0 } };
    const double t = c->stride[level], first = c->offset * t;
    tp_anchor_cells(c, level, cell);
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            const double dx = first + (double)x * t, dy = first + (double)y * t;
            for (int a = 0; a < c->sizes * c->ratios; a++)
                *anchor++ = (tp_corners){ cell[a].x1 + dx, cell[a].y1 + dy, cell[a].x2 + dx,
                                          cell[a].y2 + dy };
        }
}

bool tp__anchor_list(tp_anchor_list *a, const tp_anchor_cfg *c, int levels,
                     const int64_t (*size)[2])
{
    *a = (tp_anchor_list){ .levels = levels };
    for (int k = 0; k < levels; k++)
        a->first[k + 1] = a->first[k] + size[k][0] * size[k][1] * c->sizes * c->ratios;
    a->n = a->first[levels];
    a->box = malloc((size_t)(a->n + 1) * sizeof *a->box);
    for (int k = 0; a->box && k < levels; k++)
        tp_anchors(c, k, size[k][0], size[k][1], a->box + a->first[k]);
    return a->box != NULL;
}
