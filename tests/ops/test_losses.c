/* test_losses.c - losses and their gradients against the plain formulas in f64, on every
 * instruction set, in f32 and f64; ignored rows, extreme logits, messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/values.h"

static const tp_isa isas[] = { TP_ISA_BASE, TP_ISA_AVX2, TP_ISA_AVX512 };
static const char *const reductions[] = { "mean", "mean of all", "sum", "each" };

typedef struct world {
    tp_device *D;
    tp_tape *T;
} world;

static world begin(tp_isa isa)
{
    world s;
    s.D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2, .isa = isa });
    s.T = tp_tape_new(s.D, NULL);
    return s;
}

static void end(world *s)
{
    tp_tape_free(s->T);
    tp_device_close(s->D);
}

static double tolerance(tp_dtype dt)
{
    return dt == TP_F32 ? 1e-5 : 1e-12;
}

/* Reduces n row losses; g: each one's gradient. weight: the gradient of an unreduced loss. */
static void reduce(tp_reduction r, int64_t n, int64_t counted, const double *weight, double *loss,
                   double *g)
{
    const double divisor = r == TP_MEAN ? (double)counted : r == TP_MEAN_ALL ? (double)n : 1.0;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += loss[i];
        g[i] = r == TP_EACH ? weight[i] : 1.0 / (divisor > 0.0 ? divisor : 1.0);
    }
    if (r != TP_EACH) loss[0] = sum / (divisor > 0.0 ? divisor : 1.0);
}

/* Reads the loss into y and the gradient of sum(weight loss) by x into dx. */
static void run(world *s, tp_tensor x, tp_tensor loss, const double *weight, double *y, double *dx)
{
    values_read(s->T, loss, y);
    if (tp_ndim(loss) > 0) {
        const tp_tensor w = values_constant(s->T, tp_dtype_of(loss), tp_shape_of(loss), weight);
        loss = tp_sum(s->T, tp_mul(s->T, loss, w), TP_ALL);
    }
    tp_backward(s->T, loss);
    values_read(s->T, tp_grad(s->T, x), dx);
}

/* ---- cross entropy ---- */

enum { ROWS = 37, MAX_V = 300 };

/* The loss and gradient of one row; q: its target probabilities before smoothing. */
static void naive_row(const double *x, const double *q, int64_t V, double e, double *loss,
                      double *dx)
{
    double most = -INFINITY, sum = 0.0, total = 0.0;
    *loss = 0.0;
    for (int64_t j = 0; j < V; j++) most = fmax(most, x[j]);
    for (int64_t j = 0; j < V; j++) sum += exp(x[j] - most);
    for (int64_t j = 0; j < V; j++) {
        const double t = (1.0 - e) * q[j] + e / (double)V;
        *loss -= t * (x[j] - most - log(sum));
        total += t;
    }
    for (int64_t j = 0; j < V; j++)
        dx[j] = total * exp(x[j] - most) / sum - (1.0 - e) * q[j] - e / (double)V;
}

typedef struct xent_case {
    int64_t V;
    bool soft;
    double e;
    tp_reduction r;
    tp_dtype dt;
} xent_case;

static void check_cross_entropy(world *s, const xent_case *c)
{
    static double x[ROWS * MAX_V], q[ROWS * MAX_V], dx[ROWS * MAX_V], got_dx[ROWS * MAX_V];
    double weight[ROWS], loss[ROWS], got[ROWS], g[ROWS];
    int32_t index[ROWS];
    const int64_t V = c->V;
    int64_t counted = 0;

    tp_reset(s->T);
    values_random(x, ROWS * V, 1);
    values_random(q, ROWS * V, 2);
    values_random(weight, ROWS, 3);
    for (int64_t i = 0; i < ROWS * V; i++) x[i] = (double)(float)(10.0 * x[i]);
    for (int64_t r = 0; r < ROWS; r++) {
        index[r] = r % 5 == 2 ? -100 : (int32_t)((r * 7919) % V);
        weight[r] = (double)(float)weight[r];
        for (int64_t j = 0; j < V; j++)
            q[r * V + j] = c->soft ? (double)(float)fabs(q[r * V + j]) : index[r] == j;
        naive_row(x + r * V, q + r * V, V, c->e, &loss[r], dx + r * V);
        if (!c->soft && index[r] < 0)
            loss[r] = 0.0;
        else
            counted++;
    }
    reduce(c->r, ROWS, counted, weight, loss, g);
    for (int64_t i = 0; i < ROWS * V; i++) dx[i] *= !c->soft && index[i / V] < 0 ? 0.0 : g[i / V];

    const tp_tensor logits = values_input(s->T, c->dt, TP_SHAPE(ROWS, V), x);
    const tp_tensor target = c->soft ? values_constant(s->T, c->dt, TP_SHAPE(ROWS, V), q)
                                     : tp_from(s->T, TP_I32, TP_SHAPE(ROWS), index);
    const tp_tensor y = tp_cross_entropy_smooth(s->T, logits, target, c->e, c->r);
    run(s, logits, y, weight, got, got_dx);
    const double off = values_error(got, loss, c->r == TP_EACH ? ROWS : 1, 0.0);
    const double off_dx = values_error(got_dx, dx, ROWS * V, c->r >= TP_SUM ? 1.0 : 1.0 / ROWS);
    cr_expect(tp_ok(s->T), "%s", tp_why(s->T));
    cr_expect(off <= tolerance(c->dt) && off_dx <= tolerance(c->dt),
              "%s, %s, V %lld, %s, smoothing %g, %s: off by %.2g, gradient by %.2g",
              tp_device_stats(s->D).isa, tp_dtype_name(c->dt), (long long)V,
              c->soft ? "soft" : "index", c->e, reductions[c->r], off, off_dx);
}

Test(losses, cross_entropy)
{
    static const int64_t sizes[] = { 1, 2, 17, 204, MAX_V };
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        if (!tp_isa_runs(isas[k])) continue;
        world s = begin(isas[k]);
        for (size_t v = 0; v < sizeof sizes / sizeof *sizes; v++)
            for (int soft = 0; soft < 2; soft++)
                for (int smooth = 0; smooth < 2; smooth++)
                    for (int r = TP_MEAN; r <= TP_EACH; r++)
                        for (int dt = TP_F32; dt <= TP_F64; dt++)
                            check_cross_entropy(&s, &(xent_case){ sizes[v], soft, smooth * 0.1,
                                                                  (tp_reduction)r, (tp_dtype)dt });
        end(&s);
    }
}

Test(losses, no_row_counts)
{
    world s = begin(TP_ISA_AUTO);
    const double x[6] = { 1, 2, 3, 4, 5, 6 };
    const int64_t none[2] = { -1, -1 };
    double dx[6];
    const tp_tensor logits = values_input(s.T, TP_F64, TP_SHAPE(2, 3), x);
    const tp_tensor y =
        tp_cross_entropy(s.T, logits, tp_from(s.T, TP_I64, TP_SHAPE(2), none), TP_MEAN);
    cr_expect_eq(tp_item(s.T, y), 0.0);
    tp_backward(s.T, y);
    values_read(s.T, tp_grad(s.T, logits), dx);
    for (int i = 0; i < 6; i++) cr_expect_eq(dx[i], 0.0);

    const tp_tensor empty = tp_input(s.T, TP_F64, TP_SHAPE(0, 3), NULL);
    const tp_tensor ids = tp_from(s.T, TP_I64, TP_SHAPE(0), NULL);
    cr_expect_eq(tp_item(s.T, tp_cross_entropy(s.T, empty, ids, TP_MEAN)), 0.0, "no rows");
    cr_expect_eq(tp_item(s.T, tp_mse(s.T, empty, empty, TP_MEAN)), 0.0, "no elements");
    cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    end(&s);
}

/* Masked classes, and logits whose exponentials overflow or underflow. */
Test(losses, cross_entropy_of_extreme_logits)
{
    static const struct {
        double x[3];
        int64_t target;
        double loss;
    } table[] = {
        { { 0.0, -INFINITY, 0.0 }, 0, 0.69314718055994531 },
        { { 0.0, -INFINITY, 0.0 }, 1, INFINITY },
        { { 1e30, 0.0, -1e30 }, 0, 0.0 },
        { { 1e4, 0.0, 0.0 }, 1, 1e4 },
        { { -1e5, -1e5, -1e5 }, 2, 1.0986122886681098 },
        { { NAN, 0.0, 0.0 }, 1, NAN },
        { { -INFINITY, -INFINITY, -INFINITY }, 1, NAN },
    };
    world s = begin(TP_ISA_AUTO);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int dt = TP_F32; dt <= TP_F64; dt++) {
            const tp_tensor x = values_constant(s.T, (tp_dtype)dt, TP_SHAPE(1, 3), table[i].x);
            const tp_tensor t = tp_from(s.T, TP_I64, TP_SHAPE(1), &table[i].target);
            const double loss = tp_item(s.T, tp_cross_entropy(s.T, x, t, TP_SUM));
            cr_expect_leq(values_error(&loss, &table[i].loss, 1, 0.0), 1e-6, "case %zu, %s: %g", i,
                          tp_dtype_name((tp_dtype)dt), loss);
        }
    end(&s);
}

/* ---- elementwise losses ---- */

enum { POINTS = 9001 }; /* more than two blocks */

typedef void (*naive_fn)(double x, double t, double *loss, double *slope);

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void naive_bce(double x, double t, double *loss, double *slope)
{
    *loss = t * log1p(exp(-x)) + (1.0 - t) * log1p(exp(x));
    *slope = sigmoid(x) - t;
}

static void naive_mse(double x, double t, double *loss, double *slope)
{
    *loss = (x - t) * (x - t);
    *slope = 2.0 * (x - t);
}

/* torchvision's sigmoid_focal_loss, and its derivative by the product rule for t = 0 and t = 1. */
static void focal(double x, double t, double alpha, double gamma, double *loss, double *slope)
{
    const double sign = t > 0.5 ? 1.0 : -1.0, pt = sigmoid(sign * x), rest = sigmoid(-sign * x);
    const double log_pt = -log1p(exp(-sign * x));
    const double a = alpha < 0.0 ? 1.0 : t > 0.5 ? alpha : 1.0 - alpha;
    *loss = -a * pow(rest, gamma) * log_pt;
    *slope = a * sign * pow(rest, gamma) * (gamma * pt * log_pt - rest);
}

static void naive_focal(double x, double t, double *loss, double *slope)
{
    focal(x, t, 0.25, 2.0, loss, slope);
}

static void naive_focal_plain(double x, double t, double *loss, double *slope)
{
    focal(x, t, -1.0, 0.0, loss, slope);
}

static void naive_smooth_l1(double x, double t, double *loss, double *slope)
{
    const double d = x - t, beta = 0.75;
    *loss = fabs(d) < beta ? d * d / (2.0 * beta) : fabs(d) - 0.5 * beta;
    *slope = fabs(d) < beta ? d / beta : d > 0.0 ? 1.0 : -1.0;
}

static void naive_l1(double x, double t, double *loss, double *slope)
{
    *loss = fabs(x - t);
    *slope = x > t ? 1.0 : x < t ? -1.0 : 0.0;
}

static void naive_probs(double x, double t, double *loss, double *slope)
{
    *loss = -t * fmax(log(x), -100.0) - (1.0 - t) * fmax(log1p(-x), -100.0);
    *slope = (x - t) / fmax(x * (1.0 - x), 1e-12);
}

static void naive_kl(double x, double t, double *loss, double *slope)
{
    *loss = t > 0.0 ? t * (log(t) - x) : 0.0;
    *slope = -t;
}

static void naive_kl_log(double x, double t, double *loss, double *slope)
{
    *loss = exp(t) * (t - x);
    *slope = -exp(t);
}

static void naive_poisson(double x, double t, double *loss, double *slope)
{
    *loss = exp(x) - t * x + (t > 1.0 ? t * log(t) - t + 0.5 * log(2.0 * acos(-1.0) * t) : 0.0);
    *slope = exp(x) - t;
}

static void naive_rate(double x, double t, double *loss, double *slope)
{
    *loss = x - t * log(x + 0.01);
    *slope = 1.0 - t / (x + 0.01);
}

static void naive_hinge(double x, double t, double *loss, double *slope)
{
    *loss = fmax(0.0, 1.0 - t * x);
    *slope = t * x > 1.0 ? 0.0 : -t;
}

static void naive_embedding(double x, double t, double *loss, double *slope)
{
    *loss = t > 0.0 ? x : fmax(0.0, 0.5 - x);
    *slope = t > 0.0 ? 1.0 : x > 0.5 ? 0.0 : -1.0;
}

static void naive_soft(double x, double t, double *loss, double *slope)
{
    *loss = log1p(exp(-t * x));
    *slope = -t * sigmoid(-t * x);
}

static tp_tensor probs(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_bce(T, x, t, r);
}

static tp_tensor kl(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_kl_div(T, x, t, false, r);
}

static tp_tensor kl_log(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_kl_div(T, x, t, true, r);
}

static tp_tensor poisson(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_poisson_nll(T, x, t, (tp_poisson_nll_cfg){ .full = true }, r);
}

static tp_tensor rate(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_poisson_nll(T, x, t, (tp_poisson_nll_cfg){ .rate = true, .eps = 0.01 }, r);
}

static tp_tensor hinge(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_hinge(T, x, t, 1.0, r);
}

static tp_tensor embedding(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_hinge_embedding(T, x, t, 0.5, r);
}

static tp_tensor soft(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_soft_margin(T, x, t, r);
}

static tp_tensor bce(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_bce_logits(T, x, t, r);
}

static tp_tensor mse(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_mse(T, x, t, r);
}

static tp_tensor focal_usual(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_focal(T, x, t, 0.25, 2.0, r);
}

static tp_tensor focal_plain(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_focal(T, x, t, -1.0, 0.0, r);
}

static tp_tensor smooth_l1(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_smooth_l1(T, x, t, 0.75, r);
}

static tp_tensor l1(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r)
{
    return tp_smooth_l1(T, x, t, 0.0, r);
}

static const struct {
    const char *name;
    tp_tensor (*op)(tp_tape *T, tp_tensor x, tp_tensor t, tp_reduction r);
    naive_fn naive;
    enum { NUMBERS, BITS, SIGNS, COUNTS, SHARES } target;
    enum { ANY, SHARE, POSITIVE, SMALL } input;
} points[] = {
    { "bce_logits", bce, naive_bce, BITS, ANY },
    { "mse", mse, naive_mse, NUMBERS, ANY },
    { "focal", focal_usual, naive_focal, BITS, ANY },
    { "focal, no alpha, gamma 0", focal_plain, naive_focal_plain, BITS, ANY },
    { "smooth_l1", smooth_l1, naive_smooth_l1, NUMBERS, ANY },
    { "l1", l1, naive_l1, NUMBERS, ANY },
    { "bce", probs, naive_probs, SHARES, SHARE },
    { "kl_div", kl, naive_kl, SHARES, ANY },
    { "kl_div of logarithms", kl_log, naive_kl_log, NUMBERS, ANY },
    { "poisson_nll", poisson, naive_poisson, COUNTS, SMALL },
    { "poisson_nll of rates", rate, naive_rate, COUNTS, POSITIVE },
    { "hinge", hinge, naive_hinge, SIGNS, ANY },
    { "hinge_embedding", embedding, naive_embedding, SIGNS, ANY },
    { "soft_margin", soft, naive_soft, SIGNS, ANY },
};

/* x and t: uniform in [-1,1). */
static double input_of(size_t k, double x)
{
    switch (points[k].input) {
    case SHARE: return (double)(float)(0.5 + 0.499 * x);
    case POSITIVE: return (double)(float)(2.1 + 2.0 * x);
    case SMALL: return (double)(float)(3.0 * x);
    default: return (double)(float)(12.0 * x);
    }
}

static double target_of(size_t k, double t)
{
    switch (points[k].target) {
    case BITS: return t > 0.0;
    case SIGNS: return t > 0.0 ? 1.0 : -1.0;
    case COUNTS: return floor(4.0 + 4.0 * t);
    case SHARES: return t < -0.8 ? 0.0 : (double)(float)fabs(t);
    default: return (double)(float)(12.0 * t);
    }
}

static void check_point(world *s, size_t k, tp_dtype dt, tp_reduction r)
{
    static double x[POINTS], t[POINTS], weight[POINTS], loss[POINTS], g[POINTS], dx[POINTS],
        got[POINTS], got_dx[POINTS];

    tp_reset(s->T);
    values_random(x, POINTS, 1);
    values_random(t, POINTS, 2);
    values_random(weight, POINTS, 3);
    for (int64_t i = 0; i < POINTS; i++) {
        x[i] = input_of(k, x[i]);
        t[i] = points[k].target == NUMBERS && i % 100 == 0 ? x[i] : target_of(k, t[i]);
        weight[i] = (double)(float)weight[i];
        points[k].naive(x[i], t[i], &loss[i], &dx[i]);
    }
    reduce(r, POINTS, POINTS, weight, loss, g);
    for (int64_t i = 0; i < POINTS; i++) dx[i] *= g[i];

    const tp_tensor tx = values_input(s->T, dt, TP_SHAPE(POINTS), x);
    const tp_tensor tt = values_constant(s->T, dt, TP_SHAPE(POINTS), t);
    run(s, tx, points[k].op(s->T, tx, tt, r), weight, got, got_dx);
    const double off = values_error(got, loss, r == TP_EACH ? POINTS : 1, 0.0);
    const double off_dx = values_error(got_dx, dx, POINTS, 0.0);
    cr_expect(tp_ok(s->T), "%s", tp_why(s->T));
    cr_expect(off <= tolerance(dt) && off_dx <= tolerance(dt),
              "%s, %s, %s, %s: off by %.2g, gradient by %.2g", points[k].name,
              tp_device_stats(s->D).isa, tp_dtype_name(dt), reductions[r], off, off_dx);
}

Test(losses, elementwise)
{
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (!tp_isa_runs(isas[i])) continue;
        world s = begin(isas[i]);
        for (size_t k = 0; k < sizeof points / sizeof *points; k++)
            for (int dt = TP_F32; dt <= TP_F64; dt++)
                for (int r = TP_MEAN; r <= TP_EACH; r++)
                    check_point(&s, k, (tp_dtype)dt, (tp_reduction)r);
        end(&s);
    }
}

/* Where exp overflows or underflows, the losses are linear or 0; small losses stay accurate. */
Test(losses, extreme_logits)
{
    static const struct {
        double x, t, bce, focal;
    } table[] = {
        { 300.0, 0.0, 300.0, 225.0 },
        { 300.0, 1.0, 0.0, 0.0 },
        { -300.0, 1.0, 300.0, 75.0 },
        { -300.0, 0.0, 0.0, 0.0 },
        { 20.0, 1.0, 2.0611536181902037e-9, 0.25 * 2.0611536181902037e-9 * 4.2483542465e-18 },
    };
    world s = begin(TP_ISA_AUTO);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int dt = TP_F32; dt <= TP_F64; dt++) {
            const tp_tensor x = values_input(s.T, (tp_dtype)dt, TP_SHAPE(1), &table[i].x);
            const tp_tensor t = values_constant(s.T, (tp_dtype)dt, TP_SHAPE(1), &table[i].t);
            const tp_tensor b = tp_bce_logits(s.T, x, t, TP_SUM);
            const tp_tensor f = tp_focal(s.T, x, t, 0.25, 2.0, TP_SUM);
            const double bce_loss = tp_item(s.T, b), focal_loss = tp_item(s.T, f);
            double dx;
            cr_expect_leq(values_error(&bce_loss, &table[i].bce, 1, 0.0), 2e-6, "bce %zu, %s: %g",
                          i, tp_dtype_name((tp_dtype)dt), bce_loss);
            cr_expect_leq(values_error(&focal_loss, &table[i].focal, 1, 0.0), 1e-5,
                          "focal %zu, %s: %g", i, tp_dtype_name((tp_dtype)dt), focal_loss);
            tp_backward(s.T, f);
            values_read(s.T, tp_grad(s.T, x), &dx);
            cr_expect(isfinite(dx), "focal %zu: gradient %g", i, dx);
        }
    end(&s);
}

/* ---- dtypes and messages ---- */

Test(losses, bf16_gives_f32)
{
    world s = begin(TP_ISA_AUTO);
    const double x[6] = { 1.0, -2.0, 0.5, 3.0, 0.25, -1.5 }; /* exact in bf16 */
    const int64_t t[2] = { 2, 0 };
    const tp_tensor a = values_input(s.T, TP_BF16, TP_SHAPE(2, 3), x);
    const tp_tensor b = values_constant(s.T, TP_F32, TP_SHAPE(2, 3), x);
    const tp_tensor ids = tp_from(s.T, TP_I64, TP_SHAPE(2), t);
    const tp_tensor loss = tp_cross_entropy(s.T, a, ids, TP_MEAN);
    cr_expect_eq(tp_dtype_of(loss), TP_F32);
    cr_expect_eq(tp_dtype_of(tp_mse(s.T, a, a, TP_EACH)), TP_F32);
    cr_expect_eq(tp_item(s.T, loss), tp_item(s.T, tp_cross_entropy(s.T, b, ids, TP_MEAN)));
    tp_backward(s.T, loss);
    cr_expect_eq(tp_dtype_of(tp_grad(s.T, a)), TP_BF16, "%s", tp_why(s.T));
    end(&s);
}

Test(losses, messages)
{
    world s = begin(TP_ISA_AUTO);
    double zeros[12] = { 0 };
    const int64_t ids[3] = { 0, 1, 4 };
    static const char *const expected[] = {
        "cross_entropy: target 4 in row 2, but there are 4 classes",
        "cross_entropy: index targets must have the shape [3]\n  inputs f32[3,4], i64[3,1]",
        "cross_entropy: soft targets must have the shape [3,4]\n  inputs f32[3,4], f32[4,3]",
        "cross_entropy: target must be i32, i64 or floating point",
        "cross_entropy: logits must have at least one class along the last axis",
        "cross_entropy: smoothing must be in [0,1], not 1.5",
        "cross_entropy: unknown reduction 9",
        "bce_logits: x and target differ in shape\n  inputs f32[3,4], f32[4,3]",
        "mse: x must be floating point, not i64",
        "mse: inputs mix f32 and f64",
        "focal: alpha must be at most 1, or negative for none, not 2",
        "focal: gamma must be in [0,100], not -1",
        "smooth_l1: beta must not be negative or infinite: -0.5",
        "poisson_nll: eps must be in [0,1], not 2",
        "hinge: margin must be finite: inf",
        "cosine_embedding: margin must be in [-1,1], not 1.5",
        "kl_div: x and target differ in shape\n  inputs f32[3,4], f32[4,3]",
        ("cross_entropy: soft targets must have the shape [3,4]; numbers of classes are i32 or "
         "i64: tp_cast converts\n  inputs f32[3,4], f32[3]"),
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        tp_tape *T = s.T;
        tp_reset(T);
        const tp_tensor x = values_input(T, TP_F32, TP_SHAPE(3, 4), zeros);
        const tp_tensor turned = values_constant(T, TP_F32, TP_SHAPE(4, 3), zeros);
        const tp_tensor t = tp_from(T, TP_I64, TP_SHAPE(3), ids);
        const tp_tensor column = tp_from(T, TP_I64, TP_SHAPE(3, 1), ids);
        switch (i) {
        case 0: tp_cross_entropy(T, x, t, TP_MEAN); break;
        case 1: tp_cross_entropy(T, x, column, TP_MEAN); break;
        case 2: tp_cross_entropy(T, x, turned, TP_MEAN); break;
        case 3: tp_cross_entropy(T, x, tp_from(T, TP_U8, TP_SHAPE(3), ids), TP_MEAN); break;
        case 4: tp_cross_entropy(T, tp_from(T, TP_F32, TP_SHAPE(3, 0), NULL), t, TP_MEAN); break;
        case 5: tp_cross_entropy_smooth(T, x, t, 1.5, TP_MEAN); break;
        case 6: tp_cross_entropy(T, x, t, (tp_reduction)9); break;
        case 7: tp_bce_logits(T, x, turned, TP_MEAN); break;
        case 8: tp_mse(T, column, column, TP_MEAN); break;
        case 9: tp_mse(T, x, values_constant(T, TP_F64, TP_SHAPE(3, 4), zeros), TP_MEAN); break;
        case 10: tp_focal(T, x, x, 2.0, 2.0, TP_MEAN); break;
        case 11: tp_focal(T, x, x, 0.5, -1.0, TP_MEAN); break;
        case 12: tp_smooth_l1(T, x, x, -0.5, TP_MEAN); break;
        case 13: tp_poisson_nll(T, x, x, (tp_poisson_nll_cfg){ .eps = 2 }, TP_MEAN); break;
        case 14: tp_hinge(T, x, x, INFINITY, TP_MEAN); break;
        case 15:
            tp_cosine_embedding(T, x, x, tp_from(T, TP_F32, TP_SHAPE(3), zeros), 1.5, TP_MEAN);
            break;
        case 16: tp_kl_div(T, x, turned, false, TP_MEAN); break;
        case 17: tp_cross_entropy(T, x, tp_full(T, TP_F32, TP_SHAPE(3), 1), TP_MEAN); break;
        }
        cr_expect_eq(strncmp(tp_why(T), expected[i], strlen(expected[i])), 0, "case %zu: %s", i,
                     tp_why(T));
        tp_clear(T);
    }
    end(&s);
}
