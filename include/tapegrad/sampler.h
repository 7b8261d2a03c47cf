/* sampler.h - which examples an epoch has, and in which order, in place of the loaders' shuffle:
 * weighted, balanced by class, a list, or a function of yours. Part of the data library.
 *
 *     const tp_weighted by = { .weight = weights };
 *     const tp_example_sampler sampler = { .order = tp_order_weighted, .env = &by };
 *     tp_example_loader_new(&source, &(tp_loader_opts){ .sampler = &sampler, .train = true, .. });
 *
 * An order depends on the seed of the loader and the epoch alone, so a resumed run, which seeks to
 * an epoch and a step, reads the same examples. Samplers and what they point to must outlive the
 * loader and not change. */
#ifndef TAPEGRAD_SAMPLER_H
#define TAPEGRAD_SAMPLER_H

#include <tapegrad/base.h>
#include <tapegrad/random.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an order is made for. */
typedef struct tp_epoch {
    int64_t count;  /* examples there are: 0 .. count - 1 */
    int64_t length; /* of the order */
    int64_t epoch;
    bool train; /* false: one pass, which usual orders do not shuffle */
} tp_epoch;

typedef struct tp_example_sampler {
    /* Writes the numbers of `length` examples to order; a number may come again. r is a stream of
     * the seed and the epoch. NULL, or what is wrong, which fails the loader. */
    const char *(*order)(const void *env, const tp_epoch *s, tp_random *r, int64_t *order);
    const void *env;
    int64_t length; /* of an epoch; 0: as many as there are examples */
} tp_example_sampler;

/* Draws examples with probabilities in proportion to their weights [count], finite and at least 0:
 * independent draws, in which an example may come again, or, with `once`, one after another from
 * those that are left (Efraimidis, Spirakis 2006), for which tp_example_sampler.length must not
 * exceed the number of weights above 0. */
typedef struct tp_weighted {
    const double *weight;
    bool once;
} tp_weighted;
TP_API const char *tp_order_weighted(const void *tp_weighted, const tp_epoch *s, tp_random *r,
                                     int64_t *order);

/* All classes equally often, up to one example, whatever their frequencies: a class gives its
 * examples in turns, each turn shuffled, so that none comes again before all have come. label
 * [count]: in [0, classes), or negative for an example that is left out. A class without examples
 * is passed over. */
typedef struct tp_balanced {
    const int32_t *label;
    int32_t classes;
} tp_balanced;
TP_API const char *tp_order_balanced(const void *tp_balanced, const tp_epoch *s, tp_random *r,
                                     int64_t *order);

/* The examples with these numbers, shuffled in training: a part of tp_split_numbers (dataset.h),
 * for example. tp_example_sampler.length must be n. */
typedef struct tp_listed {
    const int64_t *number;
    int64_t n;
} tp_listed;
TP_API const char *tp_order_listed(const void *tp_listed, const tp_epoch *s, tp_random *r,
                                   int64_t *order);

#ifdef __cplusplus
}
#endif
#endif
