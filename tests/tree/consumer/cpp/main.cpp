/* main.cpp - uses every header macro that makes a value, and a user-defined op, in C++17 or later.
 */
#include <cstdio>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

static tp_code twice_shape(tp_infer *q)
{
    q->y[0] = q->x[0];
    return TP_OK;
}

static tp_code twice_forward(const tp_call *c)
{
    for (int64_t i = 0; i < c->x[0].numel; i++) tp_st(&c->y[0], i, 2 * tp_ld(&c->x[0], i));
    return TP_OK;
}

static tp_code twice_backward(const tp_call *c)
{
    for (int64_t i = 0; i < c->x[0].numel; i++) tp_st(&c->dx[0], i, 2 * tp_ld(&c->dy[0], i));
    return TP_OK;
}

static int made = 0;

static tp_tensor make(tp_tape *T, const float *v)
{
    made++;
    return tp_input(T, TP_F32, TP_SHAPE(2, 1), v);
}

int main()
{
    static constexpr tp_shape shape = TP_SHAPE(2, 3, 5), scalar = TP_SCALAR;
    static constexpr tp_shape counted = TP_DIMS(2, 3);
    static_assert(shape.ndim == 3 && shape.dim[2] == 5 && scalar.ndim == 0 && counted.ndim == 2);
    tp_op twice = {};
    twice.name = "twice";
    twice.nx = twice.ny = 1;
    twice.shape = twice_shape;
    twice.forward[TP_CPU] = twice_forward;
    twice.backward[TP_CPU] = twice_backward;

    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const float v[2] = { 3, 4 };
    const tp_tensor x = make(T, v);
    const tp_tensor row = tp_concat(T, 1, x, make(T, v), x);
    const tp_tensor all = tp_stack(T, 0, row, row);
    const bool sizes = tp_ndim(all) == 3 && tp_dim(all, 0) == 2 && tp_dim(all, 2) == 3;
    tp_backward(T, tp_sum(T, tp_apply(T, &twice, NULL, all), TP_ALL));
    float g[2] = {};
    tp_read(T, tp_grad(T, x), g, sizeof g);
    if (!tp_ok(T)) std::fprintf(stderr, "%s\n", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
    return sizes && made == 2 && g[1] == 8 && !tp_given(TP_NONE) ? 0 : 1;
}
