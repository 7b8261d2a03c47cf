/* rig.c - opens a model, runs it and reads its gradients. */
#include "support/rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"
#include "support/values.h"

rig rig_open(size_t module, tp_dtype dt, uint64_t seed)
{
    rig r = { .D = device_open(NULL), .m = calloc(1, module) };
    r.P =
        tp_params_new(r.D, &(tp_params_opts){ .seed = seed, .dtype = dt == TP_BF16 ? TP_F32 : dt });
    r.T = tp_tape_new(r.D, &(tp_tape_opts){ .seed = 2, .compute = dt });
    return r;
}

void rig_close(rig *r)
{
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->D);
    free(r->m);
}

static bool is_scale(const tp_param_info *p)
{
    const size_t n = strlen(p->name);
    return p->shape.ndim == 1 && strstr(p->name, "orm") && n > 7 &&
           strcmp(p->name + n - 7, ".weight") == 0;
}

void rig_scatter(rig *r)
{
    cr_assert(tp_params_ok(r->P), "%s", tp_params_why(r->P));
    for (tp_param_info it = { 0 }; tp_next_param(r->P, &it);) {
        const int64_t n = tp_numel(it.tensor);
        if (it.alias_of) continue;
        double *x = malloc((size_t)n * sizeof *x);
        values_random(x, n, (uint64_t)(n + (int64_t)strlen(it.name)));
        for (int64_t i = 0; i < n; i++) x[i] = 0.4 * x[i] + (is_scale(&it) ? 1 : 0);
        cr_assert(tp_param_set(r->P, it.tensor, TP_F64, x, (size_t)n * sizeof *x), "%s",
                  tp_params_why(r->P));
        free(x);
    }
}

void rig_backward(rig *r, tp_tensor z, int64_t first, double *out)
{
    const int64_t n = first + tp_numel(z);
    double *w = malloc((size_t)n * sizeof *w);
    values_random(w, n, 5);
    const tp_tensor weight = values_constant(r->T, device_real(), tp_shape_of(z), w + first);
    tp_backward(r->T, tp_sum(r->T, tp_mul(r->T, z, weight), TP_ALL));
    values_read(r->T, z, out);
    cr_assert(tp_ok(r->T), "%s", tp_why(r->T));
    free(w);
}

int64_t rig_gradients(rig *r, double *g, int64_t most)
{
    int64_t n = 0;
    for (tp_param_info it = { 0 }; tp_next_param(r->P, &it);) {
        const int64_t count = it.alias_of ? 0 : tp_numel(it.tensor);
        cr_assert(n + count <= most);
        memset(g + n, 0, (size_t)count * sizeof *g);
        if (it.has_grad && !it.alias_of)
            cr_expect(tp_param_get_grad(r->P, it.tensor, TP_F64, g + n, (size_t)count * sizeof *g));
        n += count;
    }
    cr_assert(tp_params_ok(r->P), "%s", tp_params_why(r->P));
    return n;
}
