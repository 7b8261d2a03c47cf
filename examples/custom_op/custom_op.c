/* custom_op.c - adds a custom op with its backward to a program, and checks its gradient.
 *
 * The op is root-mean-square normalisation over the last axis,
 *
 *     y[r,i] = x[r,i] * s[r] * w[i]      s[r] = (mean_i x[r,i]^2 + eps)^(-1/2)
 *
 * s is a second, hidden output: forward stores it, backward reads it. (The library has a fast
 * tp_rmsnorm; this is the plain form that any user can write.) */
#include <math.h>
#include <stdio.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

typedef struct {
    float eps;
} rms_attr;

static tp_code rms_shape(tp_infer *q)
{
    const tp_view *x = &q->x[0], *w = &q->x[1];

    if (w->ndim != 1 || x->ndim < 1 || x->dim[x->ndim - 1] != w->dim[0] || w->dim[0] == 0)
        return tp_fail(q, TP_E_SHAPE, "w must be [n], n > 0 the last size of x");
    q->y[0] = *x;
    q->y[1] = (tp_view){ .dtype = x->dtype, .ndim = 1, .dim = { x->numel / w->dim[0] } };
    return TP_OK;
}

static tp_code rms_forward(const tp_call *c)
{
    const tp_view *x = &c->x[0], *w = &c->x[1], *y = &c->y[0], *s = &c->y[1];
    const double eps = (double)((const rms_attr *)c->attr)->eps;
    const int64_t n = w->numel, rows = x->numel / n;

    for (int64_t r = 0; r < rows; r++) {
        double m = 0.0;
        for (int64_t i = 0; i < n; i++) m += tp_ld(x, r * n + i) * tp_ld(x, r * n + i);
        const double k = 1.0 / sqrt(m / (double)n + eps);
        for (int64_t i = 0; i < n; i++) tp_st(y, r * n + i, tp_ld(x, r * n + i) * k * tp_ld(w, i));
        tp_st(s, r, k);
    }
    return TP_OK;
}

static tp_code rms_backward(const tp_call *c)
{
    const tp_view *x = &c->x[0], *w = &c->x[1], *s = &c->y[1], *dy = &c->dy[0];
    const tp_view *dx = &c->dx[0], *dw = &c->dx[1]; /* data == NULL: not wanted */
    const int64_t n = w->numel, rows = x->numel / n;

    for (int64_t i = 0; dw->data && i < n; i++) {
        double sum = 0.0;
        for (int64_t r = 0; r < rows; r++)
            sum += tp_ld(dy, r * n + i) * tp_ld(x, r * n + i) * tp_ld(s, r);
        tp_st(dw, i, sum);
    }
    for (int64_t r = 0; dx->data && r < rows; r++) {
        const double k = tp_ld(s, r);
        double dot = 0.0;
        for (int64_t i = 0; i < n; i++)
            dot += tp_ld(dy, r * n + i) * tp_ld(w, i) * tp_ld(x, r * n + i);
        for (int64_t i = 0; i < n; i++)
            tp_st(dx, r * n + i,
                  k * (tp_ld(dy, r * n + i) * tp_ld(w, i) -
                       tp_ld(x, r * n + i) * k * k * dot / (double)n));
    }
    return TP_OK;
}

static const tp_gradcase rms_cases[] = {
    { "two rows", .in = { TP_DIMS(2, 5), TP_DIMS(5) }, .attr = &(rms_attr){ 1e-5f } },
    { "large eps", .in = { TP_DIMS(2, 3, 4), TP_DIMS(4) }, .attr = &(rms_attr){ 0.5f } },
    { 0 },
};

static const tp_op my_rmsnorm_op = {
    .name = "my_rmsnorm",
    .nx = 2, /* x, w */
    .ny = 2, /* y, and s for backward */
    .attr_size = sizeof(rms_attr),
    .doc = "y = x * rsqrt(mean(x^2) + eps) * w over the last axis",
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1),
    .shape = rms_shape,
    .forward = { [TP_CPU] = rms_forward },   /* no CUDA kernel: on a GPU tape */
    .backward = { [TP_CPU] = rms_backward }, /* the op fails, TP_E_NOKERNEL */
    .cases = rms_cases,
};

static tp_tensor my_rmsnorm(tp_tape *T, tp_tensor x, tp_tensor w, float eps)
{
    return tp_apply(T, &my_rmsnorm_op, &(rms_attr){ eps }, x, w);
}

/* Records the caller's line for error messages, which would otherwise name an earlier tapegrad
 * call. */
#define my_rmsnorm(T, ...) my_rmsnorm(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)

int main(void)
{
    char text[1024];
    if (!tp_gradcheck(&my_rmsnorm_op, NULL, text, sizeof text)) {
        fprintf(stderr, "the gradient is wrong: %s\n", text);
        return 1;
    }
    printf("gradients agree with finite differences\n");

    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const float x[4] = { 1, 2, 3, 4 }, w[4] = { 1, 1, 1, 1 };
    const tp_tensor X = tp_input(T, TP_F32, TP_SHAPE(1, 4), x);
    const tp_tensor y = my_rmsnorm(T, X, tp_from(T, TP_F32, TP_SHAPE(4), w), 1e-5f);
    tp_backward(T, tp_sum(T, tp_square(T, y), TP_ALL));
    float g[4];
    if (tp_read(T, tp_grad(T, X), g, sizeof g))
        printf("d sum(y^2) / dx = %g %g %g %g\n", (double)g[0], (double)g[1], (double)g[2],
               (double)g[3]);
    else
        fprintf(stderr, "%s\n", tp_why(T));
    const int status = !tp_ok(T);
    tp_tape_free(T);
    tp_device_close(D);
    return status;
}
