/* exchange.c - sums gradients over processes: the plain version, after backward, whole gradients. */
#include <stdlib.h>
#include <string.h>

#include "autograd/params.h"
#include "train/peers/inner.h"

struct tp_exchange {
    tp_err err;
    tp_params *P;
    tp_peers *G;
    tp_exchange_stats stats;
};

tp_exchange *tp_exchange_new(tp_params *P, tp_peers *G, const tp_exchange_opts *o)
{
    tp_exchange *X = calloc(1, sizeof *X);
    (void)o;
    if (X) *X = (tp_exchange){ .P = P, .G = G };
    return X;
}

void tp_exchange_free(tp_exchange *X)
{
    free(X);
}

bool tp_exchange_ok(const tp_exchange *X)
{
    return X && X->err.code == TP_OK;
}

const char *tp_exchange_why(const tp_exchange *X)
{
    return X ? X->err.text : "";
}

void tp_exchange_begin(tp_exchange *X)
{
    (void)X;
}

static bool sum_one(tp_exchange *X, const tp_param_info *it)
{
    const int64_t n = tp_numel(it->tensor);
    double *x = calloc((size_t)n + 1, sizeof *x);
    bool done = x != NULL;
    x[n] = it->has_grad;
    if (it->has_grad) done = tp_param_get_grad(X->P, it->tensor, TP_F64, x, (size_t)n * sizeof *x);
    done = done && tp_peers_sum(X->G, x, (int)n + 1);
    if (done && x[n] > 0)
        done = tp_param_set_grad(X->P, it->tensor, TP_F64, x, (size_t)n * sizeof *x);
    free(x);
    return done;
}

bool tp_exchange_finish(tp_exchange *X)
{
    bool done = true;
    for (tp_param_info it = { 0 }; done && tp_next_param(X->P, &it);) {
        const tp_entry *e = tp__entry(X->P, it.tensor, "tp_exchange_finish", &X->err);
        if (e && !e->alias_of && !e->node->buffer) done = sum_one(X, &it);
    }
    X->stats.updates++;
    return done;
}

tp_exchange_stats tp_exchange_stats_of(const tp_exchange *X)
{
    return X->stats;
}
