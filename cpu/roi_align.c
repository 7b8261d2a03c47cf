/* roi_align.c - RoIAlign: a bin is a weighted sum of the pixels it reads, each read once.
 *
 * Samples share pixels: n x n samples of a bin read (n + 1)^2 pixels instead of 4 n^2. Forward
 * visits regions. Backward visits bands of rows of the maps: a thread owns a band and adds the
 * regions that touch it in order, so sums do not depend on the number of threads and no two threads
 * write the same pixel. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"
#include "tensor/geometry/index.h"
#include "tensor/geometry/roi_align.h"
#include "tensor/kernel.h"

enum { VECTORS = 4, BAND = 1 << 17, BAND_ROWS = 8 };

/* The pixels of a bin along an axis; in backward, for columns, the bins of a pixel. */
typedef struct span {
    int64_t first, end;
    real *weight; /* of first, first + 1, ... */
} span;

/* A region on its map. */
typedef struct plan {
    int64_t image, level;
    tp__roi_axis axis[2]; /* rows, columns */
    span *bins[2];
    span *readers; /* backward: the bins of each map column; without weights */
} plan;

typedef struct job {
    const tp_call *c;
    const tp__roi_attr *at;
    int64_t images, channels, bins[2], longest[2], regions;
    size_t each;           /* bytes of a thread's plan */
    int64_t *list, *start; /* backward: regions of each map's images, in order */
    int64_t tiles[TP_ROI_LEVELS], band[TP_ROI_LEVELS]; /* per image; rows of each */
    char *work;
} job;

/* ---- plans ---- */

static job job_of(const tp_call *c)
{
    const tp__roi_attr *at = c->attr;
    job j = { .c = c,
              .at = at,
              .images = c->x[0].dim[0],
              .channels = c->x[0].dim[3],
              .regions = c->x[TP_ROI_BOXES].dim[0],
              .work = c->work };
    for (int k = 0; k < 2; k++) {
        j.bins[k] = at->cfg.size[k];
        for (int l = 0; l < at->levels; l++)
            j.longest[k] = tp__most(j.longest[k], c->x[l].dim[1 + k]);
    }
    const int64_t weights = j.longest[0] + j.longest[1] + 2 * (j.bins[0] + j.bins[1]),
                  spans = j.bins[0] + j.bins[1] + (tp_is_backward(c) ? j.longest[1] : 0);
    j.each = (size_t)spans * sizeof(span) + (size_t)weights * sizeof(real);
    j.each = (j.each + 63) / 64 * 64;
    return j;
}

/* Spans of an axis, without weights. */
static void find_spans(plan *p, int k, int64_t bins)
{
    for (int64_t b = 0; b < bins; b++) {
        const tp__range r = tp__roi_span(&p->axis[k], b);
        p->bins[k][b] = (span){ r.first, r.end, NULL };
    }
}

static real *weigh(plan *p, int k, int64_t bins, real *weight)
{
    const tp__roi_axis *a = &p->axis[k];
    const double share = 1.0 / (double)tp__most(a->samples, 1);
    for (int64_t b = 0; b < bins; b++) {
        span *s = &p->bins[k][b];
        const tp__range r = tp__roi_samples(a, b);
        s->weight = weight;
        memset(weight, 0, (size_t)(s->end - s->first) * sizeof *weight);
        for (int64_t i = r.first; i < r.end; i++) {
            int64_t low;
            double t;
            if (!tp__roi_sample(a, b, i, &low, &t)) continue;
            weight[low - s->first] += (real)((1.0 - t) * share);
            if (t > 0.0) weight[low + 1 - s->first] += (real)(t * share);
        }
        weight += s->end - s->first;
    }
    return weight;
}

/* Region r, with the thread's memory for its spans. */
static plan plan_of(const job *j, int64_t r, int thread)
{
    const real *box = (const real *)j->c->x[TP_ROI_BOXES].data + 4 * r;
    const tp_view *place = &j->c->x[TP_ROI_PLACE];
    plan p = { .image = tp__index(place, 2 * r), .level = tp__index(place, 2 * r + 1) };
    const tp_view *x = &j->c->x[p.level];
    for (int k = 0; k < 2; k++)
        p.axis[k] = tp__roi_axis_of(&j->at->cfg, j->at->cfg.scale[p.level], (double)box[1 - k],
                                    (double)box[3 - k], j->bins[k], x->dim[1 + k]);
    p.bins[0] = (span *)(void *)(j->work + (size_t)thread * j->each);
    p.bins[1] = p.bins[0] + j->bins[0];
    p.readers = p.bins[1] + j->bins[1];
    return p;
}

static real *weights_of(const job *j, const plan *p)
{
    return (real *)(void *)(p->readers + (tp_is_backward(j->c) ? j->longest[1] : 0));
}

/* ---- forward ---- */

/* `vectors` vectors of a bin, channels from c on. */
TP_INLINE void sum_bin(const span *h, const span *w, const real *map, int64_t line, int64_t C,
                       int64_t c, int vectors, real *to)
{
    vec sum[VECTORS];
    TP_UNROLL
    for (int v = 0; v < vectors; v++) sum[v] = (vec){ 0 };
    for (int64_t i = h->first; i < h->end; i++)
        for (int64_t k = w->first; k < w->end; k++) {
            const real weight = h->weight[i - h->first] * w->weight[k - w->first];
            const real *x = map + i * line + k * C + c;
            TP_UNROLL
            for (int v = 0; v < vectors; v++) sum[v] += weight * vec_load(x + v * LANES);
        }
    TP_UNROLL
    for (int v = 0; v < vectors; v++) vec_store(to + c + v * LANES, sum[v]);
}

static void run_bin(const span *h, const span *w, const real *map, int64_t line, int64_t C,
                    real *to)
{
    int64_t c = 0;
    for (; c + VECTORS * LANES <= C; c += VECTORS * LANES)
        sum_bin(h, w, map, line, C, c, VECTORS, to);
    for (; c + LANES <= C; c += LANES) sum_bin(h, w, map, line, C, c, 1, to);
    for (; c < C; c++) {
        real sum = 0;
        for (int64_t i = h->first; i < h->end; i++)
            for (int64_t k = w->first; k < w->end; k++)
                sum +=
                    h->weight[i - h->first] * w->weight[k - w->first] * map[i * line + k * C + c];
        to[c] = sum;
    }
}

static void run_regions(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const int64_t C = j->channels;
    for (int64_t r = begin; r < end; r++) {
        plan p = plan_of(j, r, thread);
        const tp_view *x = &j->c->x[p.level];
        const int64_t line = x->dim[2] * C;
        const real *map = (const real *)x->data + p.image * x->dim[1] * line;
        real *to = (real *)j->c->y[0].data + r * j->bins[0] * j->bins[1] * C;
        real *weight = weights_of(j, &p);
        for (int k = 0; k < 2; k++) {
            find_spans(&p, k, j->bins[k]);
            weight = weigh(&p, k, j->bins[k], weight);
        }
        for (int64_t h = 0; h < j->bins[0]; h++)
            for (int64_t w = 0; w < j->bins[1]; w++, to += C)
                run_bin(&p.bins[0][h], &p.bins[1][w], map, line, C, to);
    }
}

static tp_code roi_align_fwd(const tp_call *c)
{
    const job j = job_of(c);
    const tp_view *place = &c->x[TP_ROI_PLACE];
    for (int64_t r = 0; r < j.regions; r++) {
        const int64_t image = tp__index(place, 2 * r), level = tp__index(place, 2 * r + 1);
        if (image >= 0 && image < j.images && level >= 0 && level < j.at->levels) continue;
        snprintf(
            c->why, TP_WHY, "region %lld is of image %lld and map %lld, but there are %lld and %d",
            (long long)r, (long long)image, (long long)level, (long long)j.images, j.at->levels);
        return TP_E_VALUE;
    }
    tp__parallel(c->dev, j.regions, 1, run_regions, &j);
    return TP_OK;
}

/* ---- backward ---- */

/* Lists the regions of each image of each map. */
static void list_regions(job *j)
{
    const tp_view *place = &j->c->x[TP_ROI_PLACE];
    const int64_t maps = j->at->levels * j->images;
    memset(j->start, 0, (size_t)(maps + 1) * sizeof *j->start);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t r = 0; r < j->regions; r++) {
            const int64_t m = tp__index(place, 2 * r + 1) * j->images + tp__index(place, 2 * r);
            if (pass == 0)
                j->start[m + 1]++;
            else
                j->list[j->start[m]++] = r;
        }
        if (pass == 0)
            for (int64_t m = 0; m < maps; m++) j->start[m + 1] += j->start[m];
    }
    for (int64_t m = maps; m > 0; m--) j->start[m] = j->start[m - 1];
    j->start[0] = 0;
}

/* The bins of each column in `reach`; a column's bins are adjacent. */
static void find_readers(plan *p, tp__range reach, int64_t bins)
{
    for (int64_t k = reach.first; k < reach.end; k++) p->readers[k] = (span){ bins, 0, NULL };
    for (int64_t b = 0; b < bins; b++)
        for (int64_t k = p->bins[1][b].first; k < p->bins[1][b].end; k++) {
            span *s = &p->readers[k];
            s->first = tp__least(s->first, b);
            s->end = b + 1;
        }
}

/* `vectors` vectors of the gradient of pixel (i, k), channels from c on. dy: the region's. */
TP_INLINE void add_pixel(const job *j, const plan *p, const span *rows, int64_t i, int64_t k,
                         const real *dy, int64_t c, int vectors, real *to)
{
    vec sum[VECTORS];
    const span *cols = &p->readers[k];
    TP_UNROLL
    for (int v = 0; v < vectors; v++) sum[v] = vec_load(to + c + v * LANES);
    for (int64_t h = rows->first; h < rows->end; h++)
        for (int64_t w = cols->first; w < cols->end; w++) {
            const span *a = &p->bins[0][h], *b = &p->bins[1][w];
            const real weight = a->weight[i - a->first] * b->weight[k - b->first];
            const real *g = dy + (h * j->bins[1] + w) * j->channels + c;
            TP_UNROLL
            for (int v = 0; v < vectors; v++) sum[v] += weight * vec_load(g + v * LANES);
        }
    TP_UNROLL
    for (int v = 0; v < vectors; v++) vec_store(to + c + v * LANES, sum[v]);
}

static void run_pixel(const job *j, const plan *p, const span *rows, int64_t i, int64_t k,
                      const real *dy, real *to)
{
    const span *cols = &p->readers[k];
    int64_t c = 0;
    for (; c + VECTORS * LANES <= j->channels; c += VECTORS * LANES)
        add_pixel(j, p, rows, i, k, dy, c, VECTORS, to);
    for (; c + LANES <= j->channels; c += LANES) add_pixel(j, p, rows, i, k, dy, c, 1, to);
    for (; c < j->channels; c++)
        for (int64_t h = rows->first; h < rows->end; h++)
            for (int64_t w = cols->first; w < cols->end; w++) {
                const span *a = &p->bins[0][h], *b = &p->bins[1][w];
                to[c] += a->weight[i - a->first] * b->weight[k - b->first] *
                         dy[(h * j->bins[1] + w) * j->channels + c];
            }
}

/* Adds region r to rows [top, bottom) of its map. */
static void add_region(const job *j, int64_t r, int64_t top, int64_t bottom, real *map, int thread)
{
    plan p = plan_of(j, r, thread);
    const int64_t C = j->channels, line = p.axis[1].size * C;
    const real *dy = (const real *)j->c->dy[0].data + r * j->bins[0] * j->bins[1] * C;
    const tp__range rows = tp__roi_reach(&p.axis[0]), cols = tp__roi_reach(&p.axis[1]);
    if (rows.end <= top || rows.first >= bottom || cols.first >= cols.end) return;
    real *weight = weights_of(j, &p);
    for (int k = 0; k < 2; k++) {
        find_spans(&p, k, j->bins[k]);
        weight = weigh(&p, k, j->bins[k], weight);
    }
    find_readers(&p, cols, j->bins[1]);
    for (int64_t i = tp__most(top, rows.first); i < tp__least(bottom, rows.end); i++) {
        span bins = { j->bins[0], 0, NULL };
        for (int64_t b = 0; b < j->bins[0]; b++)
            if (i >= p.bins[0][b].first && i < p.bins[0][b].end) {
                bins.first = tp__least(bins.first, b);
                bins.end = b + 1;
            }
        for (int64_t k = cols.first; k < cols.end; k++)
            if (p.readers[k].end > 0) run_pixel(j, &p, &bins, i, k, dy, map + i * line + k * C);
    }
}

/* Bands [begin, end) of all maps: levels, images, rows. */
static void run_bands(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    for (int64_t t = begin; t < end; t++) {
        int64_t at = t, level = 0;
        while (at >= j->tiles[level] * j->images) at -= j->tiles[level++] * j->images;
        const tp_view *x = &j->c->x[level], *dx = &j->c->dx[level];
        const int64_t image = at / j->tiles[level], H = x->dim[1], line = x->dim[2] * j->channels;
        const int64_t top = (at % j->tiles[level]) * j->band[level],
                      bottom = tp__least(top + j->band[level], H);
        real *map = (real *)dx->data + image * H * line;
        if (!dx->data) continue;
        if (!(j->c->add >> level & 1u))
            memset(map + top * line, 0, (size_t)((bottom - top) * line) * sizeof *map);
        const int64_t m = level * j->images + image;
        for (int64_t i = j->start[m]; i < j->start[m + 1]; i++)
            add_region(j, j->list[i], top, bottom, map, thread);
    }
}

static tp_code roi_align_bwd(const tp_call *c)
{
    job j = job_of(c);
    int64_t tiles = 0;
    j.start = (int64_t *)(void *)(j.work + (size_t)c->dev->threads * j.each);
    j.list = j.start + j.at->levels * j.images + 1;
    list_regions(&j);
    for (int l = 0; l < j.at->levels; l++) {
        const int64_t H = c->x[l].dim[1], line = c->x[l].dim[2] * j.channels;
        j.band[l] = tp__most(BAND_ROWS, BAND / tp__most(line, 1));
        j.tiles[l] = tp__ceil_div(H, j.band[l]);
        tiles += j.tiles[l] * j.images;
    }
    tp__parallel(c->dev, tiles, 1, run_bands, &j);
    return TP_OK;
}

static size_t roi_align_work(const tp_call *c)
{
    const job j = job_of(c);
    const size_t lists =
        tp_is_backward(c) ? (size_t)(j.at->levels * j.images + 1 + j.regions) * sizeof(int64_t) : 0;
    return (size_t)c->dev->threads * j.each + lists;
}

TP_CPU_WORK(roi_align_work)
TP_CPU_KERNEL(roi_align_fwd)
TP_CPU_KERNEL(roi_align_bwd)
