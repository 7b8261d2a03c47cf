/* split.c - divides examples into those to train on and those that are held back. They are shuffled
 * and, if classes are given, sorted by class; then example p is held back
 *
 *     folds      if p % folds == fold
 *     fraction   if round((p + 1) * held_back) > round(p * held_back)
 *
 * so that each stretch of the order, a class, has its share of both, to within one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/dataset.h"
#include "engine/order.h"

typedef struct shuffled {
    int64_t number, place;
    int32_t label;
} shuffled;

static int by_class(const void *a, const void *b)
{
    const shuffled *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static bool is_held_back(const tp_split_opts *o, int64_t p)
{
    if (o->folds > 0) return p % o->folds == o->fold;
    return floor((double)(p + 1) * o->held_back + 0.5) > floor((double)p * o->held_back + 0.5);
}

/* Marks the examples that are held back. False: out of memory. */
static bool mark(int64_t n, const tp_split_opts *o, bool *held)
{
    int64_t *order = malloc((size_t)n * sizeof *order);
    shuffled *all = o->label ? malloc((size_t)n * sizeof *all) : NULL;
    const bool fits = order && (all || !o->label);
    tp_random r = tp_random_stream(o->seed, "split", 0, 0);
    for (int64_t i = 0; fits && i < n; i++) order[i] = i;
    if (fits) tp__order_shuffle(order, n, TP_SHUFFLE_DOWN, &r);
    for (int64_t i = 0; fits && all && i < n; i++)
        all[i] = (shuffled){ .number = order[i], .place = i, .label = o->label[order[i]] };
    if (fits && all) qsort(all, (size_t)n, sizeof *all, by_class);
    for (int64_t p = 0; fits && p < n; p++)
        held[all ? all[p].number : order[p]] = is_held_back(o, p);
    free(order);
    free(all);
    return fits;
}

/* Says what is wrong with the options. False: nothing. */
static bool refuses(int64_t n, const tp_split_opts *o, char *why, size_t size)
{
    if (n < 2)
        snprintf(why, size, "split: %lld examples cannot be divided; give at least 2",
                 (long long)n);
    else if (o->folds ? o->folds < 2 || o->folds > n : !(o->held_back > 0 && o->held_back < 1))
        snprintf(why, size,
                 "split: held_back is %g and folds %d; give a fraction above 0 and below 1, or 2 "
                 "to %lld folds",
                 o->held_back, o->folds, (long long)n);
    else if (o->folds && (o->fold < 0 || o->fold >= o->folds || o->held_back != 0))
        snprintf(why, size,
                 "split: fold %d of %d with held_back %g; folds are numbered from 0, and have no "
                 "fraction",
                 o->fold, o->folds, o->held_back);
    else
        return false;
    return true;
}

int64_t tp_split_numbers(int64_t n, tp_part part, const tp_split_opts *o, int64_t *number,
                         char *why, size_t size)
{
    int64_t m = 0;
    if (size) *why = '\0';
    if (!o || !number) {
        snprintf(why, size, "split: NULL was given in place of options or of room for numbers");
        return 0;
    }
    if (refuses(n, o, why, size)) return 0;
    bool *held = malloc((size_t)n * sizeof *held);
    const bool marked = held && mark(n, o, held);
    for (int64_t i = 0; marked && i < n; i++)
        if (held[i] == (part != TP_TRAIN)) number[m++] = i;
    free(held);
    if (!marked)
        snprintf(why, size, "split: out of memory for %lld examples", (long long)n);
    else if (m == 0 || m == n)
        snprintf(
            why, size,
            "split: with held_back %g one part of %lld examples is empty; change held_back, or "
            "give folds",
            o->held_back, (long long)n);
    return m < n ? m : 0;
}

tp_dataset *tp_dataset_split(const tp_dataset *X, tp_part part, const tp_split_opts *o)
{
    char why[300] = "";
    const int64_t n = tp_dataset_count(X);
    int64_t *number = n ? malloc((size_t)n * sizeof *number) : NULL;
    const int64_t m = number ? tp_split_numbers(n, part, o, number, why, sizeof why) : 0;
    tp_dataset *P = m ? tp_dataset_choose(X, number, m) : tp__dataset_new(NULL, "");
    free(number);
    if (m) return P;
    if (!P) return &tp__no_dataset;
    if (!tp_dataset_ok(X))
        tp__dataset_fail(P, tp_dataset_code(X), "%s", tp_dataset_why(X));
    else
        tp__dataset_fail(P, *why ? TP_E_VALUE : TP_E_MEMORY, "dataset %s: %s", X->name,
                         *why ? why : "out of memory to divide it");
    return P;
}
