/* muon.c - Muon's update over the flat blocks of a parameter set; formula in segments.h.
 *
 * One pass over all blocks moves the moments, updates what AdamW does, and leaves the sum of
 * squares of each block of a matrix's direction. Then the matrices come one after another, each of
 * their products on all threads: two X and two A of scratch memory serve all. */
#include "tensor/geometry/muon.h"
#include "cpu/kit/gemm.h"
#include "cpu/kit/real.h"
#include "cpu/kit/segment_loop.h"
#include "tensor/geometry/whole.h"

/* c->work: a sum of squares for each block, the factor 1 / |d|, two X and two A, scratch. */
typedef struct work {
    double *squares, *factor;
    real *x, *next, *a, *b;
    void *scratch;
} work;

static work work_of(const tp_call *c)
{
    const tp_segments *s = c->attr;
    const tp_muon_sizes n = tp__muon_sizes(s);
    double *squares = c->work;
    real *x = (real *)(squares + tp__muon_doubles(s));
    return (work){ .squares = squares,
                   .factor = squares + s->blocks,
                   .x = x,
                   .next = x + n.x,
                   .a = x + 2 * n.x,
                   .b = x + 2 * n.x + n.a,
                   .scratch = x + 2 * n.x + 2 * n.a };
}

/* What is added to momentum u for the direction. */
static real of_gradient(const tp_optim_attr *a)
{
    const double k = a->k[TP_MUON_NESTEROV] != 0.0 ? 1.0 - a->k[TP_MUON_MOMENTUM] : 0.0;
    return (real)(k * a->scale);
}

static real of_momentum(const tp_optim_attr *a)
{
    return a->k[TP_MUON_NESTEROV] != 0.0 ? (real)a->k[TP_MUON_MOMENTUM] : 1;
}

static void matrix_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                         int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const double momentum = a->k[TP_MUON_MOMENTUM];
    const real keep = (real)momentum, rest = (real)((1.0 - momentum) * a->scale);
    const real of_u = of_momentum(a), of_g = of_gradient(a);
    const real *restrict g = tp__gradient(s, at);
    real *restrict u = tp__state(c, s, 0, at);
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        u[i] = keep * u[i] + rest * g[i];
        const double d = (double)(of_u * u[i] + of_g * g[i]);
        sum += d * d;
    }
    work_of(c).squares[block] = sum;
}

static void adamw_block(const tp_call *c, const tp_segment *s, int64_t at, int64_t n)
{
    const tp_optim_attr *a = c->attr;
    const double beta1 = a->k[TP_MUON_BETA1], beta2 = a->k[TP_MUON_BETA2];
    const real scale = (real)a->scale, eps = (real)a->k[TP_MUON_EPS];
    const real b1 = (real)beta1, b2 = (real)beta2;
    const real c1 = (real)(1.0 - beta1), c2 = (real)(1.0 - beta2);
    const real rate = (real)s->rate, root = (real)s->root, before = (real)s->before;
    const real *restrict g = tp__gradient(s, at);
    real *restrict p = (real *)c->y[0].data + at;
    real *restrict m = tp__state(c, s, 0, at), *restrict v = (real *)c->y[2].data + s->own[1];
    v += at - s->at;
    for (int64_t i = 0; i < n; i++) {
        const real d = scale * g[i];
        m[i] = b1 * m[i] + c1 * d;
        v[i] = b2 * v[i] + c2 * d * d;
        p[i] = p[i] - before * p[i] - rate * m[i] / (root * r_sqrt(v[i]) + eps);
    }
}

static void moments_block(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                          int64_t n)
{
    if (s->taken)
        matrix_block(c, s, block, at, n);
    else
        adamw_block(c, s, at, n);
}

/* ---- one matrix ---- */

typedef struct matrix {
    const tp_call *c;
    const tp_segment *s;
    const real *from; /* its X */
    real *to;
    int64_t side; /* of A */
} matrix;

/* X = d / |d| */
static void start(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const matrix *m = ctx;
    const tp_optim_attr *a = m->c->attr;
    const real by = (real)*work_of(m->c).factor, of_u = of_momentum(a), of_g = of_gradient(a);
    const real *restrict g = m->s->grad;
    const real *restrict u = (const real *)m->c->y[1].data + m->s->own[0];
    (void)thread;
    for (int64_t i = begin; i < end; i++) m->to[i] = by * (of_u * u[i] + of_g * g[i]);
}

/* B = c B + b A + a I, rows begin .. end. */
static void polynomial(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const matrix *m = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const real *restrict a = m->from + i * m->side;
        real *restrict b = m->to + i * m->side;
        for (int64_t j = 0; j < m->side; j++)
            b[j] = (real)TP_MUON_C * b[j] + (real)TP_MUON_B * a[j];
        b[i] += (real)TP_MUON_A;
    }
}

static void apply(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const matrix *m = ctx;
    const real rate = (real)m->s->rate, before = (real)m->s->before;
    real *restrict p = (real *)m->c->y[0].data + m->s->at;
    (void)thread;
    for (int64_t i = begin; i < end; i++) p[i] = p[i] - before * p[i] - rate * m->from[i];
}

/* C = op(A) op(B); columns: of C and of B's rows. */
static void product(const matrix *m, bool ta, bool tb, const real *a, const real *b, real *z,
                    int64_t rows, int64_t terms, int64_t columns)
{
    tp__gemm_parallel(m->c->dev, &(tp_gemm){ .dtype = REAL,
                                             .m = rows,
                                             .n = columns,
                                             .k = terms,
                                             .a = a,
                                             .b = b,
                                             .c = z,
                                             .ta = ta,
                                             .tb = tb,
                                             .lda = ta ? rows : terms,
                                             .ldb = tb ? terms : columns,
                                             .ldc = columns,
                                             .batch = 1,
                                             .work = work_of(m->c).scratch });
}

/* One iteration: from w->x to w->next. */
static void iterate(matrix *m, const work *w)
{
    const int64_t R = m->s->rows, C = m->s->cols, n = m->side;
    const bool wide = R <= C;
    product(m, !wide, wide, w->x, w->x, w->a, n, wide ? C : R, n);
    product(m, false, false, w->a, w->a, w->b, n, n, n);
    m->from = w->a;
    m->to = w->b;
    tp__parallel(m->c->dev, n, 16, polynomial, m);
    if (wide)
        product(m, false, false, w->b, w->x, w->next, R, R, C);
    else
        product(m, false, false, w->x, w->b, w->next, R, C, C);
}

static void step_matrix(const tp_call *c, const tp_segment *s)
{
    const tp_optim_attr *a = c->attr;
    work w = work_of(c);
    matrix m = { .c = c, .s = s, .to = w.x, .side = tp__muon_side(s) };
    const int64_t blocks = (s->numel + TP_BLOCK - 1) / TP_BLOCK;
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++) sum += w.squares[s->block + b];
    const double norm = sqrt(sum);
    *w.factor = 1.0 / (norm < TP_MUON_LEAST ? TP_MUON_LEAST : norm); /* NaN stays */
    tp__parallel(c->dev, s->numel, TP_BLOCK, start, &m);
    for (int k = 0; k < (int)a->k[TP_MUON_ITERATIONS]; k++) {
        iterate(&m, &w);
        real *x = w.x;
        w.x = w.next;
        w.next = x;
    }
    m.from = w.x;
    tp__parallel(c->dev, s->numel, TP_BLOCK, apply, &m);
}

static tp_code muon_step(const tp_call *c)
{
    const tp_optim_attr *a = c->attr;
    tp__for_blocks(c, moments_block);
    for (int64_t i = 0; i < a->s.n; i++)
        if (a->s.at[i].taken) step_matrix(c, &a->s.at[i]);
    return TP_OK;
}

static size_t muon_work(const tp_call *c)
{
    const tp_segments *s = c->attr;
    int64_t most = 1;
    for (int64_t i = 0; i < s->n; i++)
        if (s->at[i].taken) most = tp__most(most, tp__most(s->at[i].rows, s->at[i].cols));
    return tp__muon_bytes(s, sizeof(real)) + (size_t)c->dev->threads * tp__gemm_scratch(REAL, most);
}

TP_CPU_KERNEL(muon_step)
TP_CPU_WORK(muon_work)
