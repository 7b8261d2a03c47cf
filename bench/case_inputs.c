/* case_inputs.c - see the header. */
#include "case_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/op.h>

/* ---- an activation with the data of a carried tensor, which needs a gradient since the scalar does ---- */

static tp_code held_shape(tp_infer *q)
{
    q->y[0] = q->x[0];
    q->view_at = 0;
    return TP_OK;
}

/* Nobody reads the scalar's gradient. */
static tp_code held_backward(const tp_call *c)
{
    (void)c;
    return TP_OK;
}

static const tp_op held = { .name = "held",
                            .nx = 2,
                            .ny = 1,
                            .shape = held_shape,
                            .backward = { [TP_CPU] = held_backward, [TP_CUDA] = held_backward } };

static bool wants_grad(const op_case *k, int i)
{
    return k->in[i].below == 0 && !(k->fixed >> i & 1u);
}

/* ---- the inputs ---- */

/* A parameter, as what stays in f32 beside bf16 is in a model. */
static bool is_param(const op_case *k, int i)
{
    return wants_grad(k, i) && (k->f32 >> i & 1u);
}

void case_inputs_place(tp_tape *T, const op_case *k, case_inputs *in)
{
    const tp_init uniform = { TP_INIT_UNIFORM, 1.0, 0.0 };
    uint32_t seed = 1;
    *in = (case_inputs){ .P = tp_params_new(tp_device_of(T), NULL) };
    if (!k->apply) {
        in->at[0] = tp_param(in->P, "x", k->in[0].shape, uniform, 0);
        in->O = tp_optim_new(in->P, k->op, NULL);
        return;
    }
    in->scalar = tp_param(in->P, "scalar", TP_SHAPE(1), uniform, 0);
    for (int i = 0; i < op_inputs(k); i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        if (is_param(k, i)) {
            in->at[i] = tp_param(in->P, name, k->in[i].shape, uniform, 0);
            continue;
        }
        void *host = op_numbers(k, i, &seed);
        tp_carry(T, &in->at[i],
                 tp_from(T, k->in[i].below > 0 ? TP_I64 : TP_F32, k->in[i].shape, host));
        free(host);
    }
}

void case_inputs_release(tp_tape *T, const op_case *k, case_inputs *in)
{
    tp_reset(T);
    for (int i = 0; k->apply && i < op_inputs(k); i++)
        if (!is_param(k, i)) tp_carry(T, &in->at[i], TP_NONE);
    tp_optim_free(in->O);
    tp_params_free(in->P);
}

void case_inputs_begin(tp_tape *T, const op_case *k, case_inputs *in, tp_dtype dt, tp_tensor *x)
{
    tp_reset(T);
    tp_grad_clear(in->P);
    tp_device_reset_peak(tp_device_of(T));
    for (int i = 0; i < OP_MAX_IN; i++) {
        x[i] = in->at[i];
        if (in->O || i >= op_inputs(k) || is_param(k, i)) continue;
        if (wants_grad(k, i)) x[i] = tp_apply(T, &held, NULL, in->at[i], in->scalar);
        if (k->in[i].below == 0 && dt != TP_F32 && !(k->f32 >> i & 1u)) x[i] = tp_cast(T, x[i], dt);
    }
    if (in->O) tp_backward(T, tp_sum(T, in->at[0], TP_ALL));
}
