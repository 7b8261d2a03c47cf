/* ref_roi_align.c - RoIAlign in plain ops: multiplies, for each region, a matrix [bins,pixels] of
 * bilinear sample weights by the map [pixels,C]. */
#include "ops/ref_roi_align.h"

#include <math.h>
#include <stdlib.h>

/* Adds a sample at (y, x) with that weight to the row of a bin. */
static void add_sample(double *row, int64_t H, int64_t W, double y, double x, double weight)
{
    if (y < -1.0 || y > (double)H || x < -1.0 || x > (double)W) return;
    if (y < 0.0) y = 0.0;
    if (x < 0.0) x = 0.0;
    int64_t top = (int64_t)y, left = (int64_t)x, bottom = top + 1, right = left + 1;
    if (top >= H - 1) {
        top = bottom = H - 1;
        y = (double)top;
    }
    if (left >= W - 1) {
        left = right = W - 1;
        x = (double)left;
    }
    const double s = y - (double)top, t = x - (double)left;
    row[top * W + left] += weight * (1.0 - s) * (1.0 - t);
    row[top * W + right] += weight * (1.0 - s) * t;
    row[bottom * W + left] += weight * s * (1.0 - t);
    row[bottom * W + right] += weight * s * t;
}

/* The weights [rows * columns,H * W] of a region. */
static void fill(const tp_roi_align_cfg *c, const double box[4], double scale, int64_t H, int64_t W,
                 double *weights)
{
    const double o = c->aligned ? 0.5 : 0.0, x0 = box[0] * scale - o, y0 = box[1] * scale - o;
    double w = box[2] * scale - o - x0, h = box[3] * scale - o - y0;
    if (!c->aligned) {
        w = fmax(w, 1.0);
        h = fmax(h, 1.0);
    }
    const double bh = h / (double)c->size[0], bw = w / (double)c->size[1];
    const int down = c->samples > 0 ? c->samples : (int)ceil(bh),
              across = c->samples > 0 ? c->samples : (int)ceil(bw);
    for (int64_t b = 0; b < c->size[0] * c->size[1]; b++)
        for (int i = 0; i < down; i++)
            for (int k = 0; k < across; k++)
                add_sample(weights + b * H * W, H, W,
                           y0 + (double)(b / c->size[1]) * bh + (i + 0.5) * bh / down,
                           x0 + (double)(b % c->size[1]) * bw + (k + 0.5) * bw / across,
                           1.0 / (down * across));
}

/* Uploads x in the maps' dtype, rounded here as some devices lack f64. */
static tp_tensor upload(tp_tape *T, tp_dtype dt, tp_shape s, const double *x, int64_t n)
{
    if (dt == TP_F64) return tp_from(T, dt, s, x);
    float *f = malloc((size_t)(n + 1) * sizeof *f);
    for (int64_t i = 0; i < n; i++) f[i] = (float)x[i];
    const tp_tensor y = tp_from(T, TP_F32, s, f);
    free(f);
    return y;
}

tp_tensor ref_roi_align(tp_tape *T, const tp_tensor *map, int64_t n, double (*box)[4],
                        int32_t (*place)[2], tp_roi_align_cfg cfg)
{
    enum { MOST = 64 };
    tp_tensor all[MOST];
    const int64_t C = tp_dim(map[0], 3), bins = cfg.size[0] * cfg.size[1];
    for (int64_t r = 0; r < n && r < MOST; r++) {
        const tp_tensor x = map[place[r][1]];
        const int64_t H = tp_dim(x, 1), W = tp_dim(x, 2);
        double *weights = calloc((size_t)(bins * H * W), sizeof *weights);
        fill(&cfg, box[r], cfg.scale[place[r][1]], H, W, weights);
        const tp_tensor w = upload(T, tp_dtype_of(x), TP_SHAPE(bins, H * W), weights, bins * H * W);
        const tp_tensor pixels =
            tp_reshape(T, tp_slice(T, x, 0, place[r][0], 1), TP_SHAPE(H * W, C));
        all[r] = tp_reshape(T, tp_matmul(T, w, pixels), TP_SHAPE(1, cfg.size[0], cfg.size[1], C));
        free(weights);
    }
    return tp_concat_n(T, 0, (int)n, all);
}
