/* boxes.c - boxes by their corners: intersection over union (IoU), clipping, encoding, decoding. */
#include <math.h>
#include <tapegrad/detection/boxes.h>

#include "inner.h"

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double tp_corners_area(tp_corners a)
{
    return (a.x2 - a.x1) * (a.y2 - a.y1);
}

tp_corners tp_corners_from_xywh(const double box[4])
{
    if (!box) return (tp_corners){ 0 };
    return (tp_corners){ box[0], box[1], box[0] + box[2], box[1] + box[3] };
}

void tp_corners_xywh(tp_corners a, double box[4])
{
    if (!box) return;
    box[0] = a.x1;
    box[1] = a.y1;
    box[2] = a.x2 - a.x1;
    box[3] = a.y2 - a.y1;
}

/* Keeps NaN. */
static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

tp_corners tp_corners_clip(tp_corners a, double height, double width)
{
    return (tp_corners){ clamp(a.x1, 0.0, width), clamp(a.y1, 0.0, height), clamp(a.x2, 0.0, width),
                         clamp(a.y2, 0.0, height) };
}

tp_corners tp_corners_scale(tp_corners a, double x, double y)
{
    return (tp_corners){ a.x1 * x, a.y1 * y, a.x2 * x, a.y2 * y };
}

bool tp_corners_exceed(tp_corners a, double side)
{
    return a.x2 - a.x1 > side && a.y2 - a.y1 > side;
}

/* ---- intersection over union ---- */

static double intersection(tp_corners a, tp_corners b)
{
    const double w = smaller(a.x2, b.x2) - larger(a.x1, b.x1),
                 h = smaller(a.y2, b.y2) - larger(a.y1, b.y1);
    return w > 0.0 && h > 0.0 ? w * h : 0.0;
}

double tp_corners_iou(tp_corners a, tp_corners b)
{
    const double both = intersection(a, b);
    return both > 0.0 ? both / (tp_corners_area(a) + tp_corners_area(b) - both) : 0.0;
}

double tp_corners_ioa(tp_corners a, tp_corners b)
{
    const double both = intersection(a, b);
    return both > 0.0 ? both / tp_corners_area(b) : 0.0;
}

double tp_corners_giou(tp_corners a, tp_corners b, double eps)
{
    const double both = intersection(a, b), any = tp_corners_area(a) + tp_corners_area(b) - both;
    const double hull =
        (larger(a.x2, b.x2) - smaller(a.x1, b.x1)) * (larger(a.y2, b.y2) - smaller(a.y1, b.y1));
    return both / (any + eps) - (hull - any) / (hull + eps);
}

void tp_corners_iou_all(const tp_corners *a, int64_t n, const tp_corners *b, int64_t m, double *iou)
{
    if (!a) return;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) iou[i * m + j] = tp_corners_iou(a[i], b[j]);
}

/* ---- encoding and decoding ---- */

/* A box by its centre and sides. */
typedef struct middle {
    double x, y, w, h;
} middle;

static middle middle_of(tp_corners a)
{
    const double w = a.x2 - a.x1, h = a.y2 - a.y1;
    return (middle){ a.x1 + 0.5 * w, a.y1 + 0.5 * h, w, h };
}

double tp__box_weight(const tp_box_coder *c, int i)
{
    const double *w = c->weight;
    return w[0] == 0.0 && w[1] == 0.0 && w[2] == 0.0 && w[3] == 0.0 ? 1.0 : w[i];
}

void tp_box_encode(const tp_box_coder *c, tp_corners box, tp_corners target, double offset[4])
{
    if (!c) return;
    const middle from = middle_of(box), to = middle_of(target);
    offset[0] = tp__box_weight(c, 0) * (to.x - from.x) / from.w;
    offset[1] = tp__box_weight(c, 1) * (to.y - from.y) / from.h;
    offset[2] = tp__box_weight(c, 2) * log(to.w / from.w);
    offset[3] = tp__box_weight(c, 3) * log(to.h / from.h);
}

double tp__box_most(const tp_box_coder *c)
{
    return c->most > 0.0 ? c->most : log(1000.0 / 16.0);
}

/* Clamps the logarithm of a ratio of sides; *cut: it was out of range. */
static double ratio(const tp_box_coder *c, double x, bool *cut)
{
    const double hi = tp__box_most(c), lo = c->both ? -hi : -INFINITY;
    *cut = x > hi || x < lo;
    return clamp(x, lo, hi);
}

tp_corners tp_box_decode(const tp_box_coder *c, tp_corners box, const double offset[4])
{
    if (!c) return (tp_corners){ 0 };
    bool cut;
    const middle from = middle_of(box);
    const double x = offset[0] / tp__box_weight(c, 0) * from.w + from.x,
                 y = offset[1] / tp__box_weight(c, 1) * from.h + from.y;
    const double w = exp(ratio(c, offset[2] / tp__box_weight(c, 2), &cut)) * from.w;
    const double h = exp(ratio(c, offset[3] / tp__box_weight(c, 3), &cut)) * from.h;
    return (tp_corners){ x - 0.5 * w, y - 0.5 * h, x + 0.5 * w, y + 0.5 * h };
}

void tp_box_decode_grad(const tp_box_coder *c, tp_corners box, const double offset[4],
                        tp_corners grad, double grad_offset[4])
{
    if (!c) return;
    bool cut_w, cut_h;
    const middle from = middle_of(box);
    const double w = exp(ratio(c, offset[2] / tp__box_weight(c, 2), &cut_w)) * from.w;
    const double h = exp(ratio(c, offset[3] / tp__box_weight(c, 3), &cut_h)) * from.h;
    grad_offset[0] = (grad.x1 + grad.x2) * from.w / tp__box_weight(c, 0);
    grad_offset[1] = (grad.y1 + grad.y2) * from.h / tp__box_weight(c, 1);
    grad_offset[2] = cut_w ? 0.0 : 0.5 * (grad.x2 - grad.x1) * w / tp__box_weight(c, 2);
    grad_offset[3] = cut_h ? 0.0 : 0.5 * (grad.y2 - grad.y1) * h / tp__box_weight(c, 3);
}

static int64_t rounded_side(double x)
{
    return x < 1 ? 1 : (int64_t)(x + 0.5);
}

void tp_shortest_side(tp_detection_profile profile, int64_t height, int64_t width, int64_t size,
                      int64_t most, int64_t resized[2])
{
    if (!resized) return;
    const double shorter = (double)(height < width ? height : width),
                 longer = (double)(height < width ? width : height);
    double scale = (double)size / shorter;
    double h = height < width ? (double)size : scale * (double)height,
           w = height < width ? scale * (double)width : (double)size;
    if (profile == TP_MMDETECTION) {
        scale = fmin((double)most / longer, scale);
        h = (double)height * scale;
        w = (double)width * scale;
    } else if (larger(h, w) > (double)most) {
        scale = (double)most / larger(h, w);
        h *= scale;
        w *= scale;
    }
    resized[0] = rounded_side(h);
    resized[1] = rounded_side(w);
}
