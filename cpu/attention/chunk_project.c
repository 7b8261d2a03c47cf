/* chunk_project.c - the dynamic projection of chunks, in one pass over the values.
 *
 * A task is one chunk of l rows or, with few chunks, such as whole sequences, some of its heads. It
 * computes the weights of its H heads in the thread's scratch [l][H r], column by column of the
 * scores, then sums the rows of the values, which are in cache. Runs of hidden rows are skipped, so
 * padding costs nothing. chunk_long.h handles long chunks. */
#include "tensor/geometry/chunk_project.h"
#include "cpu/attention/chunk_long.h"
#include "cpu/kit/packed.h"
#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"
#include "tensor/kernel.h"

enum {
    ROWS = 64, /* rows of a task's chunks: 16 rows of 512 floats are 32 KB */
    TASKS = 16 /* with fewer chunks, heads are divided, for any number of threads */
};

/* H heads of one chunk. */
typedef struct part {
    tp_packing chunks;
    int64_t l, r, D, H, parts;
    int64_t C, columns;  /* row lengths of the values and of the scores */
    int64_t row, result; /* first row of the values and scores; of a result */
    int64_t head, n;     /* first head; H r */
    const uint8_t *mask; /* [l] or NULL */
    real *p, *g;         /* [l][n] weights; in backward, their gradients */
    real *most, *sum;    /* [n] */
} part;

static int64_t chunks_of(const tp_call *c)
{
    return tp__chunks(c->x, c->nx, c->attr).n;
}

/* Parts of a chunk. */
static int64_t parts_of(const tp_call *c)
{
    const tp__chunk_attr *a = c->attr;
    const int64_t chunks = chunks_of(c), most = chunks > 0 ? TASKS / chunks : 1;
    if (a->chunk < ROWS || most < 2) return 1;
    return a->heads < most ? a->heads : most;
}

static int64_t grain(const tp__chunk_attr *a)
{
    return a->chunk < ROWS ? ROWS / a->chunk : 1;
}

/* Elements of scratch a thread needs. */
static size_t scratch_of(const tp_call *c)
{
    const tp__chunk_attr *a = c->attr;
    const int64_t parts = parts_of(c), columns = (a->heads + parts - 1) / parts * a->rank;
    const int64_t rows = (tp_is_backward(c) ? 2 : 1) * a->chunk + 2;
    return (size_t)(rows * columns + 15) / 16 * 16;
}

/* What all parts of a thread share. */
static part begin_parts(const tp_call *c, int thread)
{
    const tp__chunk_attr *a = c->attr;
    const int64_t C = c->x[CHUNK_X].dim[c->x[CHUNK_X].ndim - 1];
    return (part){ .chunks = tp__chunks(c->x, c->nx, a),
                   .r = a->rank,
                   .D = C / a->heads,
                   .C = C,
                   .columns = a->heads * a->rank,
                   .parts = parts_of(c),
                   .most = (real *)c->work + (size_t)thread * scratch_of(c) };
}

static void set_part(part *u, const tp_call *c, int64_t task)
{
    const int64_t heads = ((const tp__chunk_attr *)c->attr)->heads, parts = u->parts;
    const int64_t chunk = parts > 1 ? task / parts : task, i = task - chunk * parts;
    const tp_rows rows = tp__document(&u->chunks, chunk);
    const uint8_t *mask = c->x[CHUNK_MASK].data;
    u->head = parts > 1 ? i * heads / parts : 0;
    u->H = parts > 1 ? (i + 1) * heads / parts - u->head : heads;
    u->n = u->H * u->r;
    u->l = rows.count;
    u->row = rows.first;
    u->result = chunk * u->r;
    u->mask = mask ? mask + u->row : NULL;
    u->sum = u->most + u->n;
    u->p = u->sum + u->n;
    u->g = u->p + u->l * u->n;
}

/* The part of the values, or of their gradient: rows of C elements from its first head on. */
static real *values_of(const part *u, const tp_view *x)
{
    return (real *)x->data + u->row * u->C + u->head * u->D;
}

static real *results_of(const part *u, const tp_view *y)
{
    return (real *)y->data + u->result * u->C + u->head * u->D;
}

static real *scores_of(const part *u, const tp_view *z)
{
    return (real *)z->data + u->row * u->columns + u->head * u->r;
}

/* Finds the next visible rows [*begin, *end) from *end on; false if there are none. */
static bool next_run(const part *u, int64_t *begin, int64_t *end)
{
    int64_t s = *end;
    while (u->mask && s < u->l && !u->mask[s]) s++;
    *begin = s;
    while (u->mask && s < u->l && u->mask[s]) s++;
    *end = u->mask ? s : u->l;
    return *begin < *end;
}

/* Clears hidden rows of x: `width` elements each, `stride` apart. */
static void clear_hidden(const part *u, real *x, int64_t stride, int64_t width)
{
    for (int64_t s = 0; u->mask && s < u->l; s++)
        if (!u->mask[s]) memset(x + s * stride, 0, (size_t)width * sizeof *x);
}

/* p[s][k] = softmax over visible s of z[s][k], k < n. */
static void chunk_softmax(const part *u, const real *z)
{
    const int64_t n = u->n, ld = u->columns;
    real *restrict p = u->p, *restrict most = u->most, *restrict sum = u->sum;
    for (int64_t k = 0; k < n; k++) most[k] = -(real)INFINITY;
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t begin, end = 0; next_run(u, &begin, &end);)
        for (int64_t s = begin; s < end; s++)
            for (int64_t k = 0; k < n; k++)
                most[k] = z[s * ld + k] > most[k] ? z[s * ld + k] : most[k];
    for (int64_t begin, end = 0; next_run(u, &begin, &end);)
        for (int64_t s = begin; s < end; s++)
            for (int64_t k = 0; k < n; k++) {
                p[s * n + k] = r_exp(z[s * ld + k] - most[k]);
                sum[k] += p[s * n + k];
            }
    for (int64_t k = 0; k < n; k++) sum[k] = RC(1.0) / sum[k];
    for (int64_t begin, end = 0; next_run(u, &begin, &end);)
        for (int64_t s = begin; s < end; s++)
            for (int64_t k = 0; k < n; k++) p[s * n + k] *= sum[k];
}

/* y[j] += p[s][i r + j] x[s] over each head i, for one token. */
TP_INLINE void chunk_add_row(const part *u, int64_t s, const real *x, real *y)
{
    const int64_t r = u->r, D = u->D, C = u->C, H = u->H;
    const real *p = u->p + s * u->n;
    for (int64_t i = 0; i < H; i++)
        for (int64_t j = 0; j < r; j++) {
            const real w = p[i * r + j], *xs = x + s * C + i * D;
            real *yj = y + j * C + i * D;
            for (int64_t d = 0; d < D; d++) yj[d] += w * xs[d];
        }
}

/* y[j] = sum_s p[s][i r + j] x[s] over each head i. */
static void chunk_sums(const part *u, const real *x, real *y)
{
    for (int64_t j = 0; j < u->r; j++) memset(y + j * u->C, 0, (size_t)(u->H * u->D) * sizeof *y);
    for (int64_t begin, end = 0; next_run(u, &begin, &end);)
        for (int64_t s = begin; s < end; s++) chunk_add_row(u, s, x, y);
}

/* c->work: the scratch of each thread. */
static size_t chunk_project_work(const tp_call *c)
{
    if (c->x[CHUNK_SCORES].numel == 0) return 0;
    if (is_long(c)) return long_work(c);
    return (size_t)c->dev->threads * scratch_of(c) * sizeof(real);
}

static void chunk_forward(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    part u = begin_parts(c, thread);
    for (int64_t task = begin; task < end; task++) {
        set_part(&u, c, task);
        chunk_softmax(&u, scores_of(&u, &c->x[CHUNK_SCORES]));
        for (int i = 0; i < c->ny; i++)
            chunk_sums(&u, values_of(&u, &c->x[tp__chunk_values(i)]), results_of(&u, &c->y[i]));
    }
}

static tp_code chunk_project_fwd(const tp_call *c)
{
    const tp_packing p = tp__chunks(c->x, c->nx, c->attr);
    const tp_code code = p.offset ? tp__check_packing(c, &p) : TP_OK;
    if (code != TP_OK) return code;
    if (is_long(c)) return long_forward(c);
    tp__for_threads(c, chunks_of(c) * parts_of(c), grain(c->attr), chunk_forward);
    return TP_OK;
}

/* g[s][i r + j] = or += dy[j] x[s] over head i; dx[s] = sum_j p dy[j], unless dx is NULL. */
TP_INLINE void chunk_row_products(const part *u, int64_t s, const real *x, const real *dy, bool add,
                                  real *dx)
{
    const int64_t r = u->r, D = u->D, C = u->C, H = u->H;
    const real *p = u->p + s * u->n;
    real *g = u->g + s * u->n;
    if (dx) memset(dx + s * C, 0, (size_t)(H * D) * sizeof *dx);
    for (int64_t i = 0; i < H; i++)
        for (int64_t j = 0; j < r; j++) {
            const real *dyj = dy + j * C + i * D, *xs = x + s * C + i * D;
            const real w = p[i * r + j];
            real dot = 0;
#pragma omp simd reduction(+ : dot)
            for (int64_t d = 0; d < D; d++) dot += dyj[d] * xs[d];
            g[i * r + j] = add ? g[i * r + j] + dot : dot;
            if (!dx) continue;
            real *dxs = dx + s * C + i * D;
            for (int64_t d = 0; d < D; d++) dxs[d] += w * dyj[d];
        }
}

static void chunk_products(const part *u, const real *x, const real *dy, bool add, real *dx)
{
    if (dx) clear_hidden(u, dx, u->C, u->H * u->D);
    for (int64_t begin, end = 0; next_run(u, &begin, &end);)
        for (int64_t s = begin; s < end; s++) chunk_row_products(u, s, x, dy, add, dx);
}

/* dz = p (g - sum_s p g), the gradient of the softmax of each column. */
static void chunk_scores_grad(const part *u, real *dz)
{
    const int64_t n = u->n, ld = u->columns;
    const real *p = u->p, *g = u->g;
    real *sum = u->sum;
    memset(sum, 0, (size_t)n * sizeof *sum);
    clear_hidden(u, dz, ld, n);
    for (int64_t begin, end = 0; next_run(u, &begin, &end);)
        for (int64_t s = begin; s < end; s++)
            for (int64_t k = 0; k < n; k++) sum[k] += p[s * n + k] * g[s * n + k];
    for (int64_t begin, end = 0; next_run(u, &begin, &end);)
        for (int64_t s = begin; s < end; s++)
            for (int64_t k = 0; k < n; k++) dz[s * ld + k] = p[s * n + k] * (g[s * n + k] - sum[k]);
}

static void chunk_backward(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    part u = begin_parts(c, thread);
    for (int64_t task = begin; task < end; task++) {
        set_part(&u, c, task);
        chunk_softmax(&u, scores_of(&u, &c->x[CHUNK_SCORES]));
        for (int i = 0; i < c->ny; i++) {
            const tp_view *dx = &c->dx[tp__chunk_values(i)];
            chunk_products(&u, values_of(&u, &c->x[tp__chunk_values(i)]), results_of(&u, &c->dy[i]),
                           i > 0, dx->data ? values_of(&u, dx) : NULL);
        }
        if (c->dx[CHUNK_SCORES].data) chunk_scores_grad(&u, scores_of(&u, &c->dx[CHUNK_SCORES]));
    }
}

static tp_code chunk_project_bwd(const tp_call *c)
{
    const tp_packing p = tp__chunks(c->x, c->nx, c->attr);
    const tp_code code = p.offset ? tp__check_packing(c, &p) : TP_OK;
    if (code != TP_OK) return code;
    if (is_long(c)) return long_backward(c);
    tp__for_threads(c, chunks_of(c) * parts_of(c), grain(c->attr), chunk_backward);
    return TP_OK;
}

TP_CPU_WORK(chunk_project_work)
TP_CPU_KERNEL(chunk_project_fwd)
TP_CPU_KERNEL(chunk_project_bwd)
