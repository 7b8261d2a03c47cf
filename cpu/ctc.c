/* ctc.c - connectionist temporal classification by forward and backward variables in logarithms.
 *
 * e[u] is the u-th blank of the target, u = 0..S, and o[u] its u-th label, u = 0..S-1; x[t,.] are
 * log-probabilities. With L = log sum exp:
 *
 *     ea_t[u] = x[t,blank] + L(ea_t-1[u], oa_t-1[u-1])
 *     oa_t[u] = x[t,l_u]   + L(oa_t-1[u], ea_t-1[u], oa_t-1[u-1] if l_u differs from l_u-1)
 *
 * and eb, ob, without the emission of row t, run backwards. The log-likelihood is K = L(ea[S],
 * oa[S-1]) of the last row, and dK/dx[t,v] the sum of exp(a + b - K) over the places of v. A row is
 * stored as e, then o, relative to the largest of the row before; these maxima are summed in f64,
 * so values near likely paths keep their digits for any probability. The loops over u vectorise.
 * Each sample has one thread. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "tensor/geometry/index.h"
#include "tensor/geometry/loss.h"
#include "tensor/kernel.h"

/* A sample: its sizes, and its thread's scratch memory. */
typedef struct sample {
    int64_t b, rows, S, V, blank;
    int64_t stride;           /* elements of a stored row of forward variables */
    const real *x;            /* [rows,V] */
    real *alpha, *base;       /* [rows,stride], [N+1,2] */
    int64_t *label;           /* [S] */
    real *skip;               /* [S]: 0 if a label may follow the one before, else -inf */
    real *beta, *next, *post; /* [2S+1], [2S+1], [S] */
} sample;

static size_t room(const tp_call *c)
{
    const size_t S = (size_t)c->x[1].dim[1];
    return (S * sizeof(int64_t) + (6 * S + 2) * sizeof(real) + 63) / 64 * 64;
}

/* A loss per sample, then each thread's scratch. */
static size_t losses(const tp_call *c)
{
    return ((size_t)c->x[0].dim[0] * sizeof(double) + 63) / 64 * 64;
}

static size_t ctc_work(const tp_call *c)
{
    return losses(c) + (size_t)c->dev->threads * room(c);
}

static int64_t length_of(const tp_call *c, int i, int64_t b)
{
    return tp_absent(&c->x[i]) ? c->x[0].dim[1] : tp__index(&c->x[i], b);
}

static sample sample_of(const tp_call *c, int64_t b, int thread)
{
    const int64_t N = c->x[0].dim[1], V = c->x[0].dim[2], S = c->x[1].dim[1];
    char *work = (char *)c->work + losses(c) + (size_t)thread * room(c);
    sample s = { .b = b, .rows = length_of(c, 2, b), .S = length_of(c, 3, b), .V = V };
    s.blank = ((const tp__ctc_attr *)c->attr)->blank;
    s.stride = 2 * S + 1;
    s.x = (const real *)c->x[0].data + b * N * V;
    s.alpha = (real *)c->y[1].data + b * N * s.stride;
    s.base = (real *)c->y[2].data + b * (N + 1) * 2;
    s.label = (int64_t *)work;
    s.skip = (real *)(s.label + S);
    s.beta = s.skip + S;
    s.next = s.beta + s.stride;
    s.post = s.next + s.stride;
    for (int64_t u = 0; u < s.S; u++) {
        s.label[u] = tp__index(&c->x[1], b * S + u);
        s.skip[u] = u > 0 && s.label[u] != s.label[u - 1] ? 0 : -(real)INFINITY;
    }
    return s;
}

/* Stores a double as two reals, precise enough even in f32. */
static void put_base(real *at, double x)
{
    at[0] = (real)x;
    at[1] = isfinite(x) ? (real)(x - (double)at[0]) : 0;
}

static double get_base(const real *at)
{
    return (double)at[0] + (double)at[1];
}

/* ---- sums of logarithms; minus infinity is the logarithm of 0 ---- */

TP_INLINE real larger(real a, real b)
{
    return a > b ? a : b;
}

TP_INLINE real sum2(real a, real b)
{
    const real m = larger(a, b), d = -r_abs(a - b);
    return m == -(real)INFINITY ? m : m + r_log1p_finite(r_exp(d));
}

TP_INLINE real sum3(real a, real b, real c)
{
    const real m = larger(larger(a, b), c), most = m == -(real)INFINITY ? 0 : m;
    const real s = r_exp(a - most) + r_exp(b - most) + r_exp(c - most);
    return m == -(real)INFINITY ? m : m + r_log(s);
}

static real largest_of(const real *x, int64_t n)
{
    real most = -(real)INFINITY;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* ---- forward ---- */

/* Row t from row t - 1, each relative to the largest of the row before; most: that of row t - 1. */
static void advance(const sample *s, int64_t t, real most)
{
    const int64_t S = s->S, *label = s->label;
    const real *x = s->x + t * s->V, blank = x[s->blank] - most, *skip = s->skip;
    const real *restrict pe = s->alpha + (t - 1) * s->stride, *restrict po = pe + S + 1;
    real *restrict e = s->alpha + t * s->stride, *restrict o = e + S + 1;
    e[0] = blank + pe[0];
    for (int64_t u = 1; u <= S; u++) e[u] = blank + sum2(pe[u], po[u - 1]);
    if (S > 0) o[0] = x[label[0]] - most + sum2(po[0], pe[0]);
    for (int64_t u = 1; u < S; u++)
        o[u] = x[label[u]] - most + sum3(po[u], pe[u], po[u - 1] + skip[u]);
}

/* The log-likelihood of the target. */
static double likelihood(const sample *s)
{
    const int64_t S = s->S, n = 2 * S + 1;
    double base = 0.0;
    if (s->rows == 0) return S == 0 ? 0.0 : -(double)INFINITY;
    for (int64_t i = 0; i < n; i++) s->alpha[i] = -(real)INFINITY;
    s->alpha[0] = s->x[s->blank];
    if (S > 0) s->alpha[S + 1] = s->x[s->label[0]];
    put_base(s->base, 0.0);
    for (int64_t t = 1; t < s->rows; t++) {
        const real most = largest_of(s->alpha + (t - 1) * s->stride, n);
        if (most == -(real)INFINITY) return -(double)INFINITY;
        advance(s, t, most);
        put_base(s->base + 2 * t, base += (double)most);
    }
    const real *last = s->alpha + (s->rows - 1) * s->stride;
    return base + (double)(S > 0 ? sum2(last[S], last[2 * S]) : last[0]);
}

/* The factor of a sample's loss in the result. */
static double share(const tp_call *c, int64_t b)
{
    const tp_reduction r = ((const tp__ctc_attr *)c->attr)->reduction;
    const int64_t B = c->x[0].dim[0], S = length_of(c, 3, b);
    if (r == TP_MEAN) return 1.0 / ((double)B * (double)(S > 1 ? S : 1));
    return r == TP_MEAN_ALL ? 1.0 / (double)B : 1.0;
}

static void ctc_samples(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ctc_attr *a = c->attr;
    for (int64_t b = begin; b < end; b++) {
        const sample s = sample_of(c, b, thread);
        const double k = likelihood(&s);
        const double loss = a->zero_infinity && k == -(double)INFINITY ? 0.0 : -k;
        put_base(s.base + 2 * c->x[0].dim[1], k);
        if (a->reduction == TP_EACH)
            ((real *)c->y[0].data)[b] = (real)loss;
        else
            ((double *)c->work)[b] = loss * share(c, b);
    }
}

static tp_code check_range(const tp_call *c, int i, const char *name, int64_t most)
{
    if (tp_absent(&c->x[i])) return TP_OK;
    const int64_t bad = tp__first_outside(&c->x[i], 0, most + 1);
    if (bad < 0) return TP_OK;
    snprintf(c->why, TP_WHY, "%s[%lld] is %lld; it must be in [0,%lld]", name, (long long)bad,
             (long long)tp__index(&c->x[i], bad), (long long)most);
    return TP_E_VALUE;
}

/* Checks lengths and the labels within them; the rest of a row of targets is never read. */
static tp_code check_values(const tp_call *c)
{
    const int64_t B = c->x[0].dim[0], V = c->x[0].dim[2], S = c->x[1].dim[1];
    const int64_t blank = ((const tp__ctc_attr *)c->attr)->blank;
    tp_code code = check_range(c, 2, "x_lengths", c->x[0].dim[1]);
    if (code == TP_OK) code = check_range(c, 3, "target_lengths", S);
    for (int64_t b = 0; code == TP_OK && b < B; b++)
        for (int64_t u = 0; u < tp__index(&c->x[3], b); u++) {
            const int64_t label = tp__index(&c->x[1], b * S + u);
            if (label >= 0 && label < V && label != blank) continue;
            snprintf(c->why, TP_WHY,
                     "target[%lld,%lld] is %lld; labels are in [0,%lld) without the "
                     "blank, %lld",
                     (long long)b, (long long)u, (long long)label, (long long)V, (long long)blank);
            return TP_E_VALUE;
        }
    return code;
}

static tp_code ctc_fwd(const tp_call *c)
{
    const double *loss = c->work;
    const int64_t B = c->x[0].dim[0];
    const tp_code code = check_values(c);
    double sum = 0.0;
    if (code != TP_OK) return code;
    tp__for_threads(c, B, 1, ctc_samples);
    if (((const tp__ctc_attr *)c->attr)->reduction == TP_EACH) return TP_OK;
    for (int64_t b = 0; b < B; b++) sum += loss[b];
    *(real *)c->y[0].data = (real)sum;
    return TP_OK;
}

/* ---- backward ---- */

/* Adds -g exp(a + b - K) to the gradients of row t's log-probabilities; off: to be added to the
 * stored a + b. */
static void expect(const sample *s, int64_t t, double off, real g, real *dx)
{
    const int64_t S = s->S;
    const real *restrict e = s->alpha + t * s->stride, *restrict o = e + S + 1, k = (real)off;
    const real *restrict be = s->beta, *restrict bo = be + S + 1;
    real *restrict post = s->post, blanks = 0;
    memset(dx, 0, (size_t)s->V * sizeof(real));
#pragma omp simd reduction(+ : blanks)
    for (int64_t u = 0; u <= S; u++) blanks += r_exp(e[u] + be[u] + k);
    for (int64_t u = 0; u < S; u++) post[u] = r_exp(o[u] + bo[u] + k);
    dx[s->blank] = -g * blanks;
    for (int64_t u = 0; u < S; u++) dx[s->label[u]] -= g * post[u];
}

/* Backward variables of row t - 1 from those of row t, relative to `most`, their largest. */
static void retreat(const sample *s, int64_t t, real most)
{
    const int64_t S = s->S, *label = s->label;
    const real *x = s->x + t * s->V, blank = x[s->blank] - most, *skip = s->skip;
    real *restrict e = s->beta, *restrict o = e + S + 1;
    real *restrict ne = s->next, *restrict no = ne + S + 1;
    for (int64_t u = 0; u <= S; u++) ne[u] = e[u] + blank;
    for (int64_t u = 0; u < S; u++) no[u] = o[u] + (x[label[u]] - most);
    for (int64_t u = 0; u < S; u++) e[u] = sum2(ne[u], no[u]);
    e[S] = ne[S];
    for (int64_t u = 0; u + 1 < S; u++) o[u] = sum3(no[u], ne[u + 1], no[u + 1] + skip[u + 1]);
    if (S > 0) o[S - 1] = sum2(no[S - 1], ne[S]);
}

static void ctc_grad_samples(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ctc_attr *a = c->attr;
    const int64_t N = c->x[0].dim[1], V = c->x[0].dim[2];
    const real *dy = c->dy[0].data;
    for (int64_t b = begin; b < end; b++) {
        const sample s = sample_of(c, b, thread);
        const int64_t n = 2 * s.S + 1;
        const double k = get_base(s.base + 2 * N);
        const real g = a->reduction == TP_EACH ? dy[b] : (real)((double)*dy * share(c, b));
        real *dx = (real *)c->dx[0].data + b * N * V;
        const int64_t rows = k == -(double)INFINITY ? 0 : s.rows;
        double base = 0.0;
        memset(dx + rows * V, 0, (size_t)((N - rows) * V) * sizeof(real));
        for (int64_t i = 0; i < n; i++) s.beta[i] = -(real)INFINITY;
        s.beta[s.S] = 0;
        if (s.S > 0) s.beta[2 * s.S] = 0;
        for (int64_t t = rows - 1; t >= 0; t--) {
            expect(&s, t, get_base(s.base + 2 * t) + base - k, g, dx + t * V);
            if (t == 0) break;
            const real most = largest_of(s.beta, n);
            retreat(&s, t, most);
            base += (double)most;
        }
    }
}

static tp_code ctc_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for_threads(c, c->x[0].dim[0], 1, ctc_grad_samples);
    return TP_OK;
}

TP_CPU_KERNEL(ctc_fwd)
TP_CPU_KERNEL(ctc_bwd)
TP_CPU_WORK(ctc_work)
