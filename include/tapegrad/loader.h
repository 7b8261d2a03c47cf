/* loader.h - batches of examples, made ahead by worker threads: the common interface, loaders of
 * examples that your function makes, and the declaration of new kinds. Part of the data library.
 *
 *     epoch      an order of the examples: shuffled in training, otherwise as they are numbered, or
 *                a sampler's (sampler.h)
 *     batch      the next `batch` examples of it; if processes share it (data.h), as many for each
 *     example    depends only on its number, the seed, the epoch and its place in the epoch
 *
 * Batches therefore do not depend on the number of threads, on when they are made, or on those
 * before them: a resumed run seeks to an epoch and a step, and needs nothing else. */
#ifndef TAPEGRAD_LOADER_H
#define TAPEGRAD_LOADER_H

#include <tapegrad/data.h>
#include <tapegrad/sampler.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- every loader ---- */

/* Constructors never return NULL unless they are given NULL for the examples: tp_loader_why says
 * what is wrong. Errors are sticky. The examples must outlive the loader. */
typedef struct tp_loader tp_loader;
TP_API void tp_loader_free(tp_loader *L);
TP_API bool tp_loader_ok(const tp_loader *L);         /* false as soon as a worker fails */
TP_API tp_code tp_loader_code(const tp_loader *L);    /* TP_OK while it is ok */
TP_API const char *tp_loader_why(const tp_loader *L); /* "" while it is ok */
TP_API int64_t tp_loader_steps(const tp_loader *L);   /* per epoch; equal if processes share them */

/* Continues with that batch of that epoch (below 2^31), as a resumed run does. Free if it is the
 * next batch anyway. */
TP_API void tp_loader_seek(tp_loader *L, int64_t epoch, int64_t step);
/* Seeks, and feeds the batch into slots of T (tp_feed), described at the loader's constructor.
 * Returns the number of examples, or 0 at the end (unless it trains) or if T has failed. A batch
 * without a good example is passed over: calls for one step after another in one pass feed each
 * example once. A failed loader fails T, and so does one whose kind cannot be fed; it is
 * unchanged. */
TP_API int64_t tp_loader_feed(tp_loader *L, tp_tape *T, int64_t epoch, int64_t step,
                              tp_tensor slot[]);

TP_API double tp_loader_waited(const tp_loader *L);   /* seconds spent waiting for batches */
TP_API int64_t tp_loader_skipped(const tp_loader *L); /* known bad, in this process */

typedef struct tp_loader_opts {
    int64_t batch; /* examples */
    uint64_t seed; /* of the order, and of what is drawn for an example */
    /* endless: shuffled for each epoch, whole batches only. Otherwise one pass in order, whose last
     * batch may be smaller */
    bool train;
    bool whole;  /* drops that smaller batch */
    int threads; /* workers; 0: the caller's thread makes a batch when it asks for it */
    int ahead;   /* batches in memory, the caller's included; 0: 4, or 1 without workers */
    /* A bad example is an error, TP_E_IO. Otherwise it is left out of its batch. In training the
     * example with the next number replaces it, even if that is in another process's part of the
     * epoch. With a sampler nothing replaces it, because the order may exclude the next number.
     * Training fails if no example of an epoch is good. */
    bool strict;
    /* Reports each bad example once, on the thread that asks for a batch. May be NULL. */
    void (*bad)(void *env, const char *name, const char *why);
    void *env;
    /* > 1: sorts the examples of each group of that many batches by length, divides them and, if
     * train, shuffles the batches, for kinds whose examples have lengths */
    int64_t bucket;
    /* Gives the order of each epoch; NULL: the usual one. Loaders of masked and causal texts have
     * an order of their own and refuse a sampler. It must outlive the loader. */
    const tp_example_sampler *sampler;
    tp_share share; /* the part of each batch that this process reads; zero: all of it */
} tp_loader_opts;

/* ---- examples that a function makes ---- */

/* Which example is made, and what its random numbers may depend on. */
typedef struct tp_loader_example {
    int64_t number; /* among all examples */
    uint64_t seed;
    int64_t epoch, step; /* of its batch */
    int64_t place;       /* in the epoch */
    int64_t at;          /* in the batch, of this process */
} tp_loader_example;

/* The outcome. */
typedef enum tp_example_state {
    TP_EXAMPLE_MADE,
    TP_EXAMPLE_BAD, /* it cannot be used; others can */
    /* Another example in its place would change the run, so the loader fails: through no fault of
     * the example (open files, the disk) with TP_E_IO, or because memory ran out with
     * TP_E_MEMORY. */
    TP_EXAMPLE_FAILED,
    TP_EXAMPLE_NO_MEMORY
} tp_example_state;

enum { TP_EXAMPLE_WHY = 512 };
typedef struct tp_example_source {
    int64_t count;
    int columns; /* of an example, at most TP_MAX_COLUMNS */
    const tp_column *column;
    /* Writes column c of the example to value[c]. Workers call it at the same time. The reason for
     * a failure goes to why [TP_EXAMPLE_WHY]. Random numbers: tp_random_stream(e->seed, "name",
     * e->place, e->epoch). */
    tp_example_state (*make)(void *env, const tp_loader_example *e, void *const value[], char *why);
    /* Names an example in messages, in buf or elsewhere. NULL: "example 7". */
    const char *(*name)(void *env, int64_t number, char *buf, size_t size);
    void *env;
    /* The rows, along the first axis, that an example fills of column c: 0 to shape.dim[0]; or, for
     * all examples, -1 in columns that are not padded. Rows beyond are filled with pad[c] before
     * make is called, and a batch is as wide as the longest example of the global batch, at least
     * 1. Bad examples are then left out in training, too, because another one may not fit. Must be
     * fast; any thread calls it. NULL: every value has the whole shape. */
    int64_t (*length)(void *env, int64_t number, int c);
    const double *pad; /* [columns]; NULL: zeros */
} tp_example_source;

/* A batch in host memory, valid until the next call. */
typedef struct tp_example_batch {
    int64_t n;            /* examples: batch, or fewer at the end or if some are bad */
    int64_t epoch, step;  /* step: within the epoch */
    const int64_t *index; /* [n]: their numbers */
    void *const *value;   /* [columns]: arrays [n,...] */
    const int64_t *width; /* [columns]: the first axis of an example, 1 for scalars */
} tp_example_batch;

/* Shuffles, batches and prefetches a function's examples. They are fed into a slot for each column,
 * [n,...], where it is padded [n,width,...]. */
TP_API tp_loader *tp_example_loader_new(const tp_example_source *s, const tp_loader_opts *o);
/* The next batch. False at the end (unless it trains) or on an error. */
TP_API bool tp_example_loader_next(tp_loader *L, tp_example_batch *b);

/* ---- declaring a kind of loader ---- */

/* The head of a batch. */
typedef struct tp_loader_batch {
    int64_t n, epoch, step;
    const int64_t *index; /* [n]: the numbers of its examples */
    /* Of the global batch that processes share: its examples, before some turn out to be bad, and
     * the place of the first in the epoch. */
    int64_t total, place;
    const int64_t *all; /* [total] */
} tp_loader_batch;

/* How an order is shuffled. Both are uniform; runs that were begun with one resume with it. */
typedef enum tp_shuffle {
    TP_SHUFFLE_DOWN, /* exchanges from the last to the first (Fisher and Yates) */
    TP_SHUFFLE_UP    /* inserts from the first to the last */
} tp_shuffle;

/* Everything specific to images, documents ... `state` belongs to a loader, a slot to one of its
 * batches, and work to a worker; they begin as zeros, and the engine frees them. Functions may be
 * NULL unless noted. */
typedef struct tp_loader_kind {
    const char *name; /* what its examples are called in messages: "images" */
    /* Bytes. A slot begins with the struct that tp_loader_take gives to callers. */
    size_t state, slot, work;
    /* Allocates what a slot needs with tp_loader_alloc. */
    void (*slot_new)(tp_loader *L, const void *state, void *slot);
    void (*slot_free)(const void *state, void *slot); /* frees what else it owns */
    void (*work_free)(void *work);

    /* The order of an epoch: shuffled in training, with random numbers of that stream. */
    const char *stream;
    tp_shuffle shuffle;
    int64_t (*length)(const void *state, int64_t number); /* by which `bucket` sorts */
    /* Changes an order of n numbers once it is shuffled, or a sampler has made it. */
    void (*arrange)(void *state, int64_t *order, int64_t n);
    /* Instead of all these, the number of the example at a place of an epoch, so that no order is
     * stored. NULL: there is a stream. */
    int64_t (*number)(void *state, int64_t epoch, int64_t place);

    /* Makes example e->at of a slot; workers make examples of a batch at the same time. Text in
     * `why` for an example that was made is reported once, like a bad one. NULL: finish does
     * everything. */
    tp_example_state (*make)(void *state, const tp_loader_example *e, void *slot, void *work,
                             char *why);
    /* Moves an example of a slot over an omitted one. Not NULL if make is not. */
    void (*move)(void *state, void *slot, int64_t to, int64_t from);
    /* Completes a batch, which has examples; workers may complete several batches at the same time.
     * Not NULL. Reports a failure with tp_loader_fail. */
    void (*finish)(tp_loader *L, void *state, const tp_loader_batch *b, void *slot);
    void (*feed)(void *state, const void *slot, tp_tape *T, tp_tensor to[]);
    const char *(*example_name)(const void *state, int64_t number, char *buf, size_t size);
} tp_loader_kind;

/* The examples of a loader. */
typedef struct tp_loader_examples {
    int64_t count;
    int64_t length; /* of an epoch, at most count unless of a sampler; 0: count */
    /* How many examples training tries for a place in a batch. The first is the one that the order
     * has there. Those that follow have the next numbers, or, with a sampler, the next places in
     * the batch. 0: count, or 1 with a sampler. */
    int64_t tries;
    const bool *missing; /* [count]: known to be bad, neither made nor reported; or NULL */
} tp_loader_examples;

/* A loader of that kind, whose state is zeros. The constructor of the kind fills the state, fails
 * the loader if something is wrong, and opens it, which does nothing if it has failed. */
TP_API tp_loader *tp_loader_new(const tp_loader_kind *kind);
TP_API void tp_loader_open(tp_loader *L, const tp_loader_examples *X, const tp_loader_opts *o);
/* The state of a loader; NULL if it is of another kind, or if memory ran out. */
TP_API void *tp_loader_state(const tp_loader *L, const tp_loader_kind *kind);
/* n zeroed elements, which are freed with the loader; before it is opened and in slot_new. NULL: L
 * has failed. */
TP_API void *tp_loader_alloc(tp_loader *L, int64_t n, size_t size);
/* The first failure counts. Workers may call it. Returns false. */
TP_API bool tp_loader_fail(tp_loader *L, tp_code code, const char *format, ...) TP_PRINTF(3, 4);
/* Waits for the next batch and copies the first bytes of its slot. False, and zeros: see
 * tp_example_loader_next. */
TP_API bool tp_loader_take(tp_loader *L, const tp_loader_kind *kind, void *batch, size_t bytes);
/* Whether an example is known bad. */
TP_API bool tp_loader_is_bad(tp_loader *L, int64_t number);

#ifdef __cplusplus
}
#endif
#endif
