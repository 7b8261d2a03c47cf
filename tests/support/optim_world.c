/* optim_world.c - parameters that optimisers update. */
#include "support/optim_world.h"

#include <criterion/criterion.h>

#include "support/device.h"
#include "support/weigh.h"

const optim_param optim_params[OPTIM_PARAMS] = {
    { "wide.weight", { 2, { 70, 130 } }, 70 * 130 }, /* two full blocks and a remainder */
    { "block.bias", { 1, { 4096 } }, 4096 },
    { "one", { 0, { 0 } }, 1 },
    { "empty", { 2, { 0, 3 } }, 0 },
    { "late.weight", { 1, { 33 } }, 33 },
    { "stack.weight", { 3, { 2, 131, 65 } }, OPTIM_LARGEST }, /* several slabs of rows */
    { "conv.weight", { 4, { 50, 24, 3, 3 } }, 50 * 24 * 9 },
};

optim_world optim_world_new(tp_dtype dt, int threads)
{
    optim_world w;
    w.D = device_open(&(tp_device_opts){ .threads = threads });
    w.P = tp_params_new(w.D, &(tp_params_opts){ .seed = 5, .dtype = dt });
    w.T = tp_tape_new(w.D, &(tp_tape_opts){ .compute = dt });
    tp_buffer(w.P, "seen", TP_I64, TP_SHAPE(1), NULL);
    for (int i = 0; i < OPTIM_PARAMS; i++)
        w.p[i] = tp_param(w.P, optim_params[i].name, optim_params[i].shape,
                          (tp_init){ TP_INIT_NORMAL, 0.5, 0 }, 0);
    tp_tie(w.P, "tied", w.p[0]);
    return w;
}

void optim_world_free(optim_world *w)
{
    tp_tape_free(w->T);
    tp_params_free(w->P);
    tp_device_close(w->D);
}

void optim_get(const optim_world *w, int i, double *host)
{
    cr_assert(
        tp_param_get(w->P, w->p[i], TP_F64, host, (size_t)optim_params[i].numel * sizeof *host),
        "%s", tp_params_why(w->P));
}

void optim_gradient(int step, int i, double *g)
{
    for (int64_t k = 0; k < optim_params[i].numel; k++)
        g[k] = (double)((k * 37 + step * 101 + i * 53 + k * k % 11) % 255 - 127) / 256.0;
}

bool optim_reached(int step, int i)
{
    return !(i == 2 && step == 2) && !(i == 4 && step < 3);
}

void optim_run_step(const optim_world *w, tp_optim *O, int step, double lr)
{
    static double g[OPTIM_PARAMS][OPTIM_LARGEST];
    tp_tensor p[OPTIM_PARAMS];
    double *at[OPTIM_PARAMS];
    tp_freeze(w->P, "one", step == 2);
    for (int pass = 0; pass <= (step == 4); pass++) {
        int n = 0;
        for (int i = 0; i < OPTIM_PARAMS; i++) {
            if (i != 2 && !optim_reached(step, i)) continue; /* the frozen parameter counts */
            optim_gradient(step + 50 * pass, i, g[i]);
            p[n] = w->p[i];
            at[n++] = g[i];
        }
        give_grads(w->T, n, p, at);
    }
    if (step == 4) tp_grad_scale(O, 0.5);
    cr_assert(tp_ok(w->T), "%s", tp_why(w->T));
    cr_expect(tp_step(O, lr), "%s", tp_optim_why(O));
}
