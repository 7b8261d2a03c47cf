/* map_numbers.c - the numbers behind figures, in double on the host. */
#include "map_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <tapegrad/op.h>

/* ---- numbers ---- */

/* With u[i] = x[i] / |x[i]|, the sum over all pairs is |sum of u|^2; pairs of a row with itself are
 * subtracted. */
double mean_cosine(const double *x, int64_t n, int64_t d, double *work)
{
    double all = 0;
    for (int64_t c = 0; c < d; c++) work[c] = 0;
    for (int64_t i = 0; i < n; i++) {
        const double length = row_norm(x + i * d, d);
        if (length == 0) continue;
        for (int64_t c = 0; c < d; c++) work[c] += x[i * d + c] / length;
        all -= 1;
    }
    for (int64_t c = 0; c < d; c++) all += work[c] * work[c];
    return n > 1 ? all / ((double)n * (double)(n - 1)) : 0;
}

void softmax_of(double *x, int64_t n)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, x[i]);
    for (int64_t i = 0; i < n; i++) sum += x[i] = exp(x[i] - most);
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

/* Computes the n tokens' weights in one projected vector: softmax of a score column. */
static void weights_of(const double *scores, int64_t n, int64_t ld, int64_t column, double *work)
{
    for (int64_t i = 0; i < n; i++) work[i] = scores[i * ld + column];
    softmax_of(work, n);
}

/* ---- spans ---- */

void span_free(span *s)
{
    free(s->direct);
    free(s->through);
    free(s->front);
    *s = (span){ 0 };
}

static bool span_new(span *s, int64_t heads, int64_t rows, int64_t cols)
{
    const size_t n = (size_t)(heads * rows * cols + 1);
    *s = (span){ heads,
                 rows,
                 cols,
                 calloc(n, sizeof *s->direct),
                 calloc(n, sizeof *s->through),
                 calloc((size_t)heads, sizeof *s->front) };
    return s->direct && s->through && s->front;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Does the query at (iy,ix) see the token at (jy,jx)? */
static bool sees(const tp_window_attn_cfg *c, int64_t iy, int64_t ix, int64_t jy, int64_t jx)
{
    const int64_t i[2] = { iy, ix }, j[2] = { jy, jx };
    for (int a = 0; a < 2; a++) {
        const int64_t w = c->window[a], halo = c->block == TP_BLOCK_OWN ? 0 : c->halo[a];
        if (w == 0) return false;
        const int64_t chunk = i[a] / w * w;
        if (j[a] < chunk - halo || j[a] >= chunk + w + halo) return false;
        if (c->edge == TP_EDGE_EXACT && llabs(j[a] - i[a]) > halo) return false;
    }
    return true;
}

/* Logits of head h: low-rank keys, global tokens, all tokens of the map. */
static void window_logits(const window_seen *in, int64_t h, int64_t row, int64_t col, double *z)
{
    const tp_window_attn_cfg *c = &in->cfg;
    const int64_t C = in->q.dim[2], H = c->heads, D = C / H, g = c->global,
                  N = c->height * c->width;
    const int64_t low = in->low_k.v ? in->low_k.dim[1] : 0;
    const double scale = c->scale != 0 ? c->scale : 1 / sqrt((double)D);
    const double *q = in->q.v + (g + row * c->width + col) * C + h * D;
    int64_t reach[2];
    for (int a = 0; a < 2; a++)
        reach[a] = c->reach[a] ? c->reach[a] : c->window[a] + c->halo[a] - 1;
    const int64_t stride = c->stride ? c->stride : 2 * reach[1] + 1;
    for (int64_t j = 0; j < low; j++) z[j] = scale * dot(q, in->low_k.v + j * C + h * D, D);
    for (int64_t j = 0; j < g; j++)
        z[low + j] = scale * dot(q, in->k.v + j * C + h * D, D) +
                     (in->global_bias.v ? in->global_bias.v[h * g + j] : 0);
    for (int64_t j = 0; j < N; j++) {
        const int64_t y = j / c->width, x = j % c->width;
        const int64_t bias = (row - y + reach[0]) * stride + col - x + reach[1];
        double *to = &z[low + g + j];
        *to = -INFINITY;
        if (!sees(c, row, col, y, x)) continue;
        *to = scale * dot(q, in->k.v + (g + j) * C + h * D, D);
        if (in->table.v) *to += in->table.v[bias * H + h];
    }
}

/* Distributes the low-rank keys' probabilities w [low] over their tokens. */
static void spread_low(span *s, const window_seen *in, int64_t h, const double *w, int64_t low,
                       double *work)
{
    const int64_t H = s->heads, N = s->rows * s->cols;
    const int64_t rank = in->scores.v ? in->scores.dim[2] / H : 0;
    for (int64_t j = 0; j < low; j++) {
        if (j >= rank) {
            s->front[h] += w[j];
            continue;
        }
        weights_of(in->scores.v, N, H * rank, h * rank + j, work);
        for (int64_t i = 0; i < N; i++) s->through[h * N + i] += w[j] * work[i];
    }
}

bool window_span(span *s, const window_seen *in, int64_t row, int64_t col)
{
    const tp_window_attn_cfg *c = &in->cfg;
    const int64_t H = c->heads, N = c->height * c->width, g = c->global;
    const int64_t low = in->low_k.v ? in->low_k.dim[1] : 0;
    if (!span_new(s, H, c->height, c->width) || c->edge == TP_EDGE_CYCLIC || c->block > 0)
        return false;
    double *z = malloc((size_t)(low + g + N) * sizeof *z), *work = malloc((size_t)N * sizeof *work);
    for (int64_t h = 0; h < H && z && work; h++) {
        window_logits(in, h, row, col, z);
        softmax_of(z, low + g + N);
        spread_low(s, in, h, z, low, work);
        for (int64_t j = 0; j < g; j++) s->front[h] += z[low + j];
        for (int64_t j = 0; j < N; j++) s->direct[h * N + j] = z[low + g + j];
    }
    const bool done = z && work;
    free(z);
    free(work);
    return done;
}

bool full_span(span *s, const host_array *q, const host_array *k, const host_array *bias,
               const tp_attn_cfg *cfg, int64_t front, int64_t query)
{
    const int64_t C = q->dim[2], H = cfg->heads, D = C / H, S = k->dim[1], N = q->dim[1];
    const int64_t side = llround(sqrt((double)(S - front)));
    const double scale = cfg->scale != 0 ? cfg->scale : 1 / sqrt((double)D);
    if (!span_new(s, H, side, side) || side * side != S - front) return false;
    double *z = calloc((size_t)S, sizeof *z);
    for (int64_t h = 0; h < H && z; h++) {
        for (int64_t j = 0; j < S; j++) {
            z[j] = scale * dot(q->v + query * C + h * D, k->v + j * C + h * D, D);
            if (bias->v) z[j] += bias->v[(h * N + query) * S + j];
        }
        softmax_of(z, S);
        for (int64_t j = 0; j < front; j++) s->front[h] += z[j];
        for (int64_t j = front; j < S; j++) s->direct[h * side * side + j - front] = z[j];
    }
    const bool done = z != NULL;
    free(z);
    return done;
}
