/* sampler.c - orders of examples other than a shuffle: weighted, balanced, listed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/sampler.h>

#include "engine/order.h"

static const char no_memory[] = "out of memory for the order of an epoch";
static const char no_env[] = "NULL was given in place of what the sampler needs";

/* ---- weighted ---- */

typedef struct keyed {
    double key;
    int64_t number;
} keyed;

/* Smaller keys first; equal ones by number, so that the order is the same everywhere. */
static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* The waiting time of an example is exponential with its weight as the rate: those that come first
 * are a draw without replacement. */
static const char *draw_once(const double *weight, const tp_epoch *s, tp_random *r, int64_t *order)
{
    keyed *all = malloc((size_t)s->count * sizeof *all);
    int64_t n = 0;
    if (!all) return no_memory;
    for (int64_t i = 0; i < s->count; i++) {
        const double u = tp_random_uniform(r);
        if (weight[i] > 0.0) all[n++] = (keyed){ -log1p(-u) / weight[i], i };
    }
    qsort(all, (size_t)n, sizeof *all, by_key);
    for (int64_t i = 0; i < s->length && n >= s->length; i++) order[i] = all[i].number;
    free(all);
    return n >= s->length ? NULL : "fewer weights are above 0 than an epoch has examples";
}

/* The first example whose sum of weights exceeds x. */
static int64_t find(const double *sum, int64_t n, double x)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (sum[mid] > x)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static const char *draw_again(const double *weight, const tp_epoch *s, tp_random *r, int64_t *order)
{
    double *sum = malloc((size_t)s->count * sizeof *sum), total = 0.0;
    int64_t last = 0; /* with a weight: rounding may lead beyond it */
    if (!sum) return no_memory;
    for (int64_t i = 0; i < s->count; i++) {
        sum[i] = total += weight[i];
        if (weight[i] > 0.0) last = i;
    }
    for (int64_t i = 0; i < s->length; i++) {
        const int64_t k = find(sum, s->count, tp_random_uniform(r) * total);
        order[i] = k < last ? k : last;
    }
    free(sum);
    return total > 0.0 && isfinite(total) ? NULL : "the sum of the weights must be finite, above 0";
}

const char *tp_order_weighted(const void *env, const tp_epoch *s, tp_random *r, int64_t *order)
{
    const tp_weighted *w = env;
    if (!w || !w->weight) return no_env;
    for (int64_t i = 0; i < s->count; i++)
        if (!(w->weight[i] >= 0.0 && isfinite(w->weight[i])))
            return "weights must be finite, at least 0";
    return (w->once ? draw_once : draw_again)(w->weight, s, r, order);
}

/* ---- groups of examples ---- */

/* Examples by class, and where each class begins: [classes + 1]. */
typedef struct groups {
    int64_t *number, *begin;
} groups;

static void groups_free(groups *g)
{
    free(g->number);
    free(g->begin);
}

/* Those with a negative label are left out. NULL, or what is wrong. */
static const char *group(groups *g, const int32_t *label, int64_t count, int32_t classes)
{
    *g = (groups){ malloc((size_t)count * sizeof *g->number + 1),
                   calloc((size_t)classes + 2, sizeof *g->begin) };
    if (!g->number || !g->begin) return no_memory;
    for (int64_t i = 0; i < count; i++) {
        if (label[i] >= classes) return "a label is not below the number of classes";
        if (label[i] >= 0) g->begin[label[i] + 2]++;
    }
    for (int32_t c = 0; c < classes; c++) g->begin[c + 2] += g->begin[c + 1];
    for (int64_t i = 0; i < count; i++)
        if (label[i] >= 0) g->number[g->begin[label[i] + 1]++] = i;
    return NULL;
}

/* ---- balanced ---- */

/* n examples of one class, in turns. */
static void take_turns(int64_t *own, int64_t size, int64_t n, tp_random *r, int64_t *order)
{
    for (int64_t done = 0; done < n; done += size) {
        tp__order_shuffle(own, size, TP_SHUFFLE_UP, r);
        const int64_t part = n - done < size ? n - done : size;
        memcpy(order + done, own, (size_t)part * sizeof *order);
    }
}

static const char *balance(groups *g, int32_t classes, const tp_epoch *s, tp_random *r,
                           int64_t *order)
{
    int64_t *present = malloc((size_t)classes * sizeof *present), n = 0, done = 0;
    if (!present) return no_memory;
    for (int32_t c = 0; c < classes; c++)
        if (g->begin[c + 1] > g->begin[c]) present[n++] = c;
    tp__order_shuffle(present, n, TP_SHUFFLE_UP, r); /* the first have one more */
    for (int64_t k = 0; k < n; k++) {
        const int64_t c = present[k], size = g->begin[c + 1] - g->begin[c];
        const int64_t own = s->length / n + (k < s->length % n);
        take_turns(g->number + g->begin[c], size, own, r, order + done);
        done += own;
    }
    free(present);
    tp__order_shuffle(order, done, TP_SHUFFLE_UP, r);
    return n > 0 ? NULL : "no example has a class";
}

const char *tp_order_balanced(const void *env, const tp_epoch *s, tp_random *r, int64_t *order)
{
    const tp_balanced *b = env;
    groups g;
    if (!b || !b->label) return no_env;
    if (b->classes < 1) return "classes must be at least 1";
    const char *why = group(&g, b->label, s->count, b->classes);
    if (!why) why = balance(&g, b->classes, s, r, order);
    groups_free(&g);
    return why;
}

/* ---- listed ---- */

const char *tp_order_listed(const void *env, const tp_epoch *s, tp_random *r, int64_t *order)
{
    const tp_listed *l = env;
    if (!l || !l->number) return no_env;
    if (l->n != s->length) return "the sampler's length must be that of its list";
    memcpy(order, l->number, (size_t)l->n * sizeof *order);
    if (s->train) tp__order_shuffle(order, l->n, TP_SHUFFLE_DOWN, r);
    return NULL;
}
