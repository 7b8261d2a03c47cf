/* examples.c - examples of fixed shapes in memory, of which some may be held back. */
#include <stdlib.h>
#include <string.h>

#include <tapegrad/loader.h>
#include <tapegrad/random.h>

#include "example_loader.h"
#include "kit.h"

/* ---- examples in memory ---- */

/* The training part, or the held-back one. */
typedef struct side {
    const tp_examples *X;
    tp_part part;
    tp_loader *L; /* of the examples so far, or NULL */
} side;

struct tp_examples {
    int columns;
    tp_column column[TP_MAX_COLUMNS];
    size_t bytes[TP_MAX_COLUMNS]; /* of one example */
    unsigned char *data[TP_MAX_COLUMNS];
    size_t room[TP_MAX_COLUMNS]; /* of data, in examples */
    tp_examples_opts opts;
    int64_t count;
    side side[2];
    uint64_t hash;
    char why[TP_WHY];
};

TP_FAILS(tp_examples, no_examples, "examples: out of memory",
         "examples: NULL was given in place of examples")

tp_examples *tp_examples_new(int columns, const tp_column *c, const tp_examples_opts *o)
{
    if (!c) return NULL;
    tp_examples *X = calloc(1, sizeof *X);
    if (!X) return &no_examples;
    X->hash = TP_HASH;
    X->opts = *o;
    for (int k = 0; k < 2; k++) X->side[k] = (side){ .X = X, .part = k ? TP_VALID : TP_TRAIN };
    if (columns < 1 || columns > TP_MAX_COLUMNS)
        tp__fail(X, "examples: " TP_NO_COLUMNS, columns, TP_MAX_COLUMNS);
    else if (o->batch < 1 || o->batch > INT32_MAX)
        tp__fail(X, "examples: the batch is %lld, not 1 to 2^31 - 1", (long long)o->batch);
    else if (!tp__share_ok(o->share))
        tp__fail(X, "examples: " TP_NO_SHARE, o->share.rank, o->share.ranks);
    else if (o->hold_back_every < 0 || o->hold_back_every == 1)
        tp__fail(X, "examples: hold_back_every is %lld, not 0 or at least 2",
                 (long long)o->hold_back_every);
    for (int k = 0; k < columns && !X->why[0]; k++) {
        X->column[k] = c[k];
        X->bytes[k] = tp__column_bytes(&c[k], o->batch);
        if (X->bytes[k] == 0) tp__fail(X, "examples: " TP_NO_COLUMN, k, (long long)o->batch);
        X->columns = k + 1;
    }
    return X;
}

static void forget_loaders(tp_examples *X)
{
    for (int k = 0; k < 2; k++) {
        tp_loader_free(X->side[k].L);
        X->side[k].L = NULL;
    }
}

void tp_examples_free(tp_examples *X)
{
    if (!X || X == &no_examples) return;
    forget_loaders(X);
    for (int k = 0; k < X->columns; k++) free(X->data[k]);
    free(X);
}

/* Hashes words of eight bytes, then the remaining bytes. */
static uint64_t hash_bytes(uint64_t h, const unsigned char *bytes, size_t n)
{
    for (; n >= 8; n -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = tp_hash(h, word);
    }
    while (n-- > 0) h = tp_hash(h, *bytes++);
    return h;
}

void tp_examples_add(tp_examples *X, const void *const value[])
{
    if (!X || X->why[0]) return;
    const size_t n = (size_t)X->count;
    for (int k = 0; k < X->columns; k++)
        if (!tp_reserve(&X->data[k], &X->room[k], n, 1, X->bytes[k])) {
            tp__fail(X, "examples: out of memory for %zu examples", n + 1);
            return;
        }
    for (int k = 0; k < X->columns; k++) {
        memcpy(X->data[k] + n * X->bytes[k], value[k], X->bytes[k]);
        X->hash = hash_bytes(X->hash, value[k], X->bytes[k]);
    }
    X->count++;
    forget_loaders(X);
}

int64_t tp_examples_count(const tp_examples *X, tp_part part)
{
    if (!X) return 0;
    const int64_t held = X->opts.hold_back_every ? X->count / X->opts.hold_back_every : 0;
    return part == TP_TRAIN ? X->count - held : held;
}

int64_t tp_examples_steps(tp_examples *X, tp_part part)
{
    if (!X || X->why[0]) return 0;
    const int64_t n = tp_examples_count(X, part);
    const int64_t batch = X->opts.batch * tp_share_parts(X->opts.share);
    if (part != TP_TRAIN) return (n + batch - 1) / batch;
    if (n < batch)
        tp__fail(
            X,
            "examples: %lld examples to train on are too few for a batch of %lld; lower the batch",
            (long long)n, (long long)batch);
    return n / batch;
}

static tp_example_state copy(void *env, const tp_loader_example *e, void *const value[], char *why)
{
    const side *s = env;
    const tp_examples *X = s->X;
    const int64_t every = X->opts.hold_back_every, i = e->number;
    const int64_t at = s->part != TP_TRAIN ? (i + 1) * every - 1 : every ? i + i / (every - 1) : i;
    (void)why;
    for (int k = 0; k < X->columns; k++)
        memcpy(value[k], X->data[k] + (size_t)at * X->bytes[k], X->bytes[k]);
    return TP_EXAMPLE_MADE;
}

/* Returns the loader of a part, made on first use. */
static tp_loader *loader_of(tp_examples *X, tp_part part)
{
    side *s = &X->side[part != TP_TRAIN];
    const tp_example_source from = { .count = tp_examples_count(X, part),
                                     .columns = X->columns,
                                     .column = X->column,
                                     .make = copy,
                                     .env = s };
    if (!s->L) {
        s->L = tp_loader_new(&tp__stored_examples);
        tp__examples_open(s->L, &tp__stored_examples, &from,
                          &(tp_loader_opts){ .batch = X->opts.batch,
                                             .seed = X->opts.seed,
                                             .train = part == TP_TRAIN,
                                             .share = X->opts.share });
    }
    if (!tp_loader_ok(s->L)) tp__fail(X, "%s", tp_loader_why(s->L));
    return s->L;
}

int64_t tp_examples_feed(tp_examples *X, tp_tape *T, tp_part part, int64_t epoch, int64_t step,
                         tp_tensor to[])
{
    if (!X) {
        tp_raise_here(T, TP_E_STATE, "examples_feed: NULL was given in place of examples");
        return 0;
    }
    const int64_t steps = tp_examples_steps(X, part);
    if (X->why[0]) tp_raise(T, TP_E_VALUE, "%s", X->why);
    if (epoch < 0 || epoch > INT32_MAX)
        tp_raise(T, TP_E_VALUE, "examples_feed: epoch %lld is not from 0 to below 2^31",
                 (long long)epoch);
    if (step < 0 || step >= steps || !tp_ok(T)) return 0;
    return tp_loader_feed(loader_of(X, part), T, epoch, step, to);
}

uint64_t tp_examples_hash(const tp_examples *X)
{
    return X ? X->hash : 0;
}
