/* interpolate.c - resizes channels-last images.
 *
 * The weights of an output are products of those of its row and of its column, so the axes are
 * summed in turn: rows of inputs into a row of scratch, then its columns. Backward does the same
 * with the transposed weights: an input is a sum over the outputs that read it. Each result has one
 * writer. */
#include "tensor/geometry/interpolate.h"
#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"
#include "tensor/kernel.h"

#define LINE ((int64_t)(64 / sizeof(real))) /* elements in a cache line */

enum { MOST_VECTORS = 4, GRAIN = 16384, AHEAD = 512 };

/* A result is the sum of weight[k] times line first + k, k < count. */
typedef struct span {
    int64_t first, count;
    const real *weight;
} span;

/* One resize. c->work holds the spans of both axes' outputs, in backward also of their inputs, then
 * the weights, at most `taps` per output of an axis and direction, then the scratch rows. */
typedef struct job {
    const real *from;
    real *to;
    tp__resize g;
    int64_t height[2], width[2]; /* of what is read and what is written */
    span *rows, *cols;           /* of what is written */
    real *scratch;               /* [threads][width read, C] */
    size_t bytes;                /* of c->work */
} job;

/* ---- weights ---- */

/* Spans of inputs for each output. Taps past an end use its input. Returns the end of weights. */
static real *output_spans(const tp__resize_axis *a, span *to, real *weight)
{
    for (int64_t o = 0; o < a->out; o++) {
        double w[4], sum[4] = { 0 };
        int64_t at;
        tp__resize_weights(a, o, w, &at);
        const int64_t first = tp__resize_inside(a, at);
        for (int k = 0; k < a->taps; k++) sum[tp__resize_inside(a, at + k) - first] += w[k];
        to[o] = (span){ first, tp__resize_inside(a, at + a->taps - 1) - first + 1, weight };
        for (int64_t k = 0; k < to[o].count; k++) *weight++ = (real)sum[k];
    }
    return weight;
}

/* Spans of outputs for each input: both ends of an output's span never decrease. */
static real *input_spans(const tp__resize_axis *a, const span *of, span *to, real *weight)
{
    int64_t first = 0;
    for (int64_t i = 0; i < a->in; i++) {
        while (first < a->out && of[first].first + of[first].count <= i) first++;
        to[i] = (span){ first, 0, weight };
        for (int64_t o = first; o < a->out && of[o].first <= i; o++, to[i].count++)
            *weight++ = of[o].weight[i - of[o].first];
    }
    return weight;
}

/* Places the spans, the weights and the rows of scratch in c->work. */
static job job_of(const tp_call *c)
{
    const bool back = tp_is_backward(c);
    job j = { .g = tp__resize_of(c->attr, back ? &c->dx[0] : &c->x[0]) };
    const tp__resize_axis *h = &j.g.axis[0], *w = &j.g.axis[1];
    const int64_t spans = h->out + w->out + (back ? h->in + w->in : 0);
    const int64_t weights = h->taps * (h->out + w->out) * (back ? 2 : 1);
    j.height[back] = h->in;
    j.width[back] = w->in;
    j.height[!back] = h->out;
    j.width[!back] = w->out;
    j.bytes = (size_t)spans * sizeof(span) + (size_t)weights * sizeof(real) +
              (size_t)(c->dev->threads * j.width[0] * j.g.channels) * sizeof(real);
    if (!c->work) return j;
    span *const outputs = c->work;
    real *weight = (real *)(outputs + spans);
    j.scratch = weight + weights;
    j.rows = outputs;
    j.cols = outputs + h->out;
    weight = output_spans(h, j.rows, weight);
    weight = output_spans(w, j.cols, weight);
    if (!back) return j;
    j.rows = outputs + h->out + w->out;
    j.cols = j.rows + h->in;
    weight = input_spans(h, outputs, j.rows, weight);
    input_spans(w, outputs + h->out, j.cols, weight);
    return j;
}

/* ---- sums ---- */

/* Sums elements from i on, `vectors` vectors. x: first line of the span. */
TP_INLINE void sum_vectors(const span *s, const real *x, int64_t step, int64_t i, int vectors,
                           real *to)
{
    vec sum[MOST_VECTORS];
    TP_UNROLL
    for (int v = 0; v < vectors; v++) sum[v] = s->weight[0] * vec_load(x + i + v * LANES);
    for (int64_t k = 1; k < s->count; k++) {
        TP_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[v] += s->weight[k] * vec_load(x + k * step + i + v * LANES);
    }
    TP_UNROLL
    for (int v = 0; v < vectors; v++) vec_store(to + i + v * LANES, sum[v]);
}

/* to[n] = the span's sum over lines of n elements, `step` apart. */
static void sum_span(const span *s, const real *from, int64_t step, int64_t n, real *to)
{
    const real *x = from + s->first * step;
    int64_t i = 0;
    if (s->count == 0) {
        memset(to, 0, (size_t)n * sizeof *to);
        return;
    }
    for (; i + MOST_VECTORS * LANES <= n; i += MOST_VECTORS * LANES)
        sum_vectors(s, x, step, i, MOST_VECTORS, to);
    for (; i + LANES <= n; i += LANES) sum_vectors(s, x, step, i, 1, to);
    for (; i < n; i++) {
        real sum = s->weight[0] * x[i];
        for (int64_t k = 1; k < s->count; k++) sum += s->weight[k] * x[k * step + i];
        to[i] = sum;
    }
}

/* Prefetches n results AHEAD of `to`: stores that miss the caches would wait for each other. */
static inline void fetch_results(const real *to, const real *end, int64_t n)
{
    for (int64_t i = AHEAD; i < AHEAD + n && i < end - to; i += LINE) __builtin_prefetch(to + i, 1);
}

/* Writes rows [begin, end) of all images. */
static void resize_rows(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const int64_t C = j->g.channels, line = j->width[0] * C, size = j->width[1] * C;
    real *const scratch = j->scratch + thread * line, *to = j->to + begin * size;
    const real *const last = j->to + end * size;
    for (int64_t r = begin; r < end; r++) {
        const int64_t image = r / j->height[1];
        const real *row = j->from + image * j->height[0] * line;
        const span *s = &j->rows[r - image * j->height[1]];
        if (s->count == 1 && s->weight[0] == 1) {
            row += s->first * line;
        } else {
            sum_span(s, row, line, line, scratch);
            row = scratch;
        }
        for (int64_t x = 0; x < j->width[1]; x++, to += C) {
            fetch_results(to, last, C);
            sum_span(&j->cols[x], row, C, C, to);
        }
    }
}

static tp_code resize(const tp_call *c, const tp_view *from, const tp_view *to)
{
    if (!to->data || to->numel == 0) return TP_OK;
    job j = job_of(c);
    j.from = from->data;
    j.to = to->data;
    tp__parallel(c->dev, j.g.batch * j.height[1], GRAIN / (j.width[1] * j.g.channels), resize_rows,
                 &j);
    return TP_OK;
}

static tp_code interpolate_fwd(const tp_call *c)
{
    return resize(c, &c->x[0], &c->y[0]);
}

static tp_code interpolate_bwd(const tp_call *c)
{
    return resize(c, &c->dy[0], &c->dx[0]);
}

static size_t interpolate_work(const tp_call *c)
{
    tp_call unknown = *c;
    unknown.work = NULL;
    return job_of(&unknown).bytes;
}

TP_CPU_WORK(interpolate_work)
TP_CPU_KERNEL(interpolate_fwd)
TP_CPU_KERNEL(interpolate_bwd)
