/* gpu_steps.c - see the header. */
#include "gpu_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 64 };

head_start head_start_new(tp_device *D, int64_t n)
{
    const tp_init zero = { TP_INIT_ZERO, 0.0, 0.0 };
    head_start h = { .P = tp_params_new(D, NULL) };
    h.x = tp_param(h.P, "x", TP_SHAPE(n), zero, TP_FROZEN);
    h.bytes = tp_device_stats(D).live_bytes;
    return h;
}

void head_start_free(head_start *h)
{
    tp_params_free(h->P);
}

/* Resets the profile and queues the head start. No case uses its op, the maximum. */
static void start_ahead(tp_tape *T, const head_start *h)
{
    tp_device_reset_profile(tp_device_of(T));
    tp_max(T, h->x, TP_ALL);
}

static bool is_head_start(const char *op)
{
    return strcmp(op, "max") == 0;
}

void gpu_place(tp_tape *T, const op_case *k, gpu_inputs *in)
{
    uint32_t seed = 1;
    in->P = tp_params_new(tp_device_of(T), &(tp_params_opts){ .blank = true });
    for (int i = 0; i < op_inputs(k); i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        in->at[i] =
            k->in[i].below > 0 ? TP_NONE : tp_param(in->P, name, k->in[i].shape, (tp_init){ 0 }, 0);
    }
    for (int i = 0; i < op_inputs(k); i++) {
        void *host = op_numbers(k, i, &seed);
        const size_t n = (size_t)op_numel(k->in[i].shape);
        if (k->in[i].below > 0)
            tp_carry(T, &in->at[i], tp_from(T, TP_I64, k->in[i].shape, host));
        else
            tp_param_set(in->P, in->at[i], TP_F32, host, n * sizeof(float));
        free(host);
    }
    in->O = k->apply ? NULL : op_optimiser(in->P, k);
}

void gpu_release(tp_tape *T, const op_case *k, gpu_inputs *in)
{
    tp_reset(T);
    for (int i = 0; i < op_inputs(k); i++)
        if (k->in[i].below > 0) tp_carry(T, &in->at[i], TP_NONE);
    tp_optim_free(in->O);
    tp_params_free(in->P);
}

static double update(tp_tape *T, gpu_inputs *in, const head_start *h)
{
    tp_op_time line[LINES];
    double seconds = 0.0;
    tp_backward(T, tp_sum(T, in->at[0], TP_ALL));
    start_ahead(T, h);
    if (!tp_step(in->O, 1e-3)) tp_raise(T, TP_E_STATE, "%s", tp_optim_why(in->O));
    const int n = tp_device_profile(tp_device_of(T), line, LINES);
    for (int i = 0; i < n; i++)
        if (!is_head_start(line[i].op)) seconds += line[i].seconds;
    return seconds;
}

void gpu_step(tp_tape *T, const op_case *k, gpu_inputs *in, const head_start *h, tp_dtype dt,
              double *forward, double *backward)
{
    tp_op_time f[LINES], b[LINES];
    tp_device *D = tp_device_of(T);
    tp_tensor x[OP_MAX_IN];
    *forward = *backward = 0.0;
    tp_reset(T);
    tp_grad_clear(in->P);
    tp_device_reset_peak(D);
    if (in->O) {
        *forward = update(T, in, h);
        return;
    }
    for (int i = 0; i < op_inputs(k); i++)
        x[i] = k->in[i].below > 0 || dt == TP_F32 || k->f32 >> i & 1u ? in->at[i]
                                                                      : tp_cast(T, in->at[i], dt);
    start_ahead(T, h);
    const tp_tensor y = k->apply(T, x, k);
    const int nf = tp_device_profile(D, f, LINES);
    tp_tensor loss = tp_numel(y) == 1 ? y : tp_sum(T, tp_square(T, y), TP_ALL);
    start_ahead(T, h);
    tp_backward(T, loss);
    const int nb = tp_device_profile(D, b, LINES);
    for (int i = 0; i < nf; i++) {
        if (is_head_start(f[i].op)) continue;
        *forward += f[i].seconds;
        for (int j = 0; j < nb; j++)
            if (strcmp(f[i].op, b[j].op) == 0) *backward += b[j].seconds;
    }
}
