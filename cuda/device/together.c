/* together.c - vectors of the GPU that become those of all processes (tensor/together.h). */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/device/gpu.h"
#include "tensor/together.h"

bool tp__cuda_joins(const tp_call *c)
{
    return c->dev->together.ranks > 1;
}

static tp_code refused(const tp_call *c, tp_code code, const char *why)
{
    snprintf(c->why, TP_WHY, "batch norm: %s", why);
    return code;
}

/* host [2 C] and x [1 + 2 C] are room. */
static tp_code join(const tp_call *c, int64_t C, double *rows, float *a, float *b, bool moments,
                    float *host, double *x)
{
    tp_device *D = c->dev;
    const size_t bytes = (size_t)C * sizeof *host;
    D->be->download(D, host, a, bytes);
    D->be->download(D, host + C, b, bytes);
    x[0] = *rows;
    for (int64_t i = 0; i < 2 * C; i++) x[1 + i] = (double)host[i];
    const bool done = moments ? tp__together_moments(&D->together, C, x)
                              : tp__together_sum(&D->together, 1 + 2 * C, x);
    if (!done) return refused(c, TP_E_IO, "the statistics of the other processes did not come");
    *rows = x[0];
    for (int64_t i = 0; i < 2 * C; i++) host[i] = (float)x[1 + i];
    D->be->upload(D, a, host, bytes);
    D->be->upload(D, b, host + C, bytes);
    return TP_OK;
}

tp_code tp__cuda_join(const tp_call *c, int64_t C, double *rows, float *a, float *b, bool moments)
{
    if (c->dev->capturing)
        return refused(c, TP_E_STATE,
                       "statistics of several processes cannot be part of a recorded step");
    float *host = malloc((size_t)(2 * C) * sizeof *host);
    double *x = malloc((size_t)(1 + 2 * C) * sizeof *x);
    const tp_code code = host && x ? join(c, C, rows, a, b, moments, host, x)
                                   : refused(c, TP_E_MEMORY, "out of host memory");
    free(host);
    free(x);
    return code;
}
