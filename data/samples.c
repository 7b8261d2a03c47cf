/* samples.c - examples of fixed shapes, made by a function or held in memory, where some may be
 * held back. A batch is an array for each column. */
#include <stdlib.h>
#include <string.h>

#include <tapegrad/loader.h>
#include <tapegrad/random.h>

#include "kit.h"

/* ---- examples made by a function ---- */

typedef struct state {
    tp_sample_source s;
    tp_column column[TP_MAX_COLUMNS];
    size_t bytes[TP_MAX_COLUMNS]; /* of one example */
    int64_t batch;
} state;

typedef struct slot {
    tp_sample_batch b;
    void *value[TP_MAX_COLUMNS]; /* [batch,...] each */
} slot;

static void slot_new(tp_loader *L, const void *of, void *at)
{
    const state *S = of;
    slot *s = at;
    for (int c = 0; c < S->s.columns; c++) s->value[c] = tp_loader_memory(L, S->batch, S->bytes[c]);
}

/* Returns column c of example i. */
static void *value_at(const state *S, const slot *s, int c, int64_t i)
{
    return (unsigned char *)s->value[c] + (size_t)i * S->bytes[c];
}

static tp_example_state make(void *of, const tp_loader_example *e, void *at, void *work, char *why)
{
    const state *S = of;
    void *value[TP_MAX_COLUMNS] = { NULL };
    (void)work;
    for (int c = 0; c < S->s.columns; c++) value[c] = value_at(S, at, c, e->at);
    return S->s.make(S->s.env, e, value, why);
}

static void move(void *of, void *at, int64_t to, int64_t from)
{
    const state *S = of;
    for (int c = 0; c < S->s.columns; c++)
        memcpy(value_at(S, at, c, to), value_at(S, at, c, from), S->bytes[c]);
}

static void finish(tp_loader *L, void *of, const tp_loader_batch *b, void *at)
{
    slot *s = at;
    (void)L, (void)of;
    s->b = (tp_sample_batch){ b->n, b->epoch, b->step, b->index, s->value };
}

static void feed(void *of, const void *at, tp_tape *T, tp_tensor to[])
{
    const state *S = of;
    const slot *s = at;
    for (int c = 0; c < S->s.columns; c++) {
        tp_shape shape = { .ndim = S->column[c].shape.ndim + 1, .dim = { s->b.n } };
        for (int a = 1; a < shape.ndim; a++) shape.dim[a] = S->column[c].shape.dim[a - 1];
        tp_feed(T, &to[c], S->column[c].dtype, shape, s->value[c]);
    }
}

static const char *example_name(const void *of, int64_t number, char *buf, size_t size)
{
    const state *S = of;
    return S->s.name ? S->s.name(S->s.env, number, buf, size) : NULL;
}

#define KIND                                                                                       \
    .name = "examples", .state = sizeof(state), .slot = sizeof(slot), .slot_new = slot_new,        \
    .stream = "samples", .make = make, .move = move, .finish = finish, .feed = feed,               \
    .example_name = example_name
static const tp_loader_kind samples = { KIND };
static const tp_loader_kind stored = { KIND, .shuffle = TP_SHUFFLE_UP }; /* for tp_samples */

/* Returns the bytes of a value; 0: a batch of them is too large, or the column is invalid. */
static size_t bytes_of(const tp_column *c, int64_t batch)
{
    const size_t most = batch > 0 ? SIZE_MAX / 4 / (size_t)batch : 0;
    size_t n = 1;
    if (c->dtype < 0 || c->dtype >= TP_NDTYPES) return 0;
    if (c->shape.ndim < 0 || c->shape.ndim >= TP_MAX_DIMS) return 0;
    n = tp_dtype_size(c->dtype);
    for (int a = 0; a < c->shape.ndim; a++) {
        const int64_t d = c->shape.dim[a];
        if (d < 1 || (uint64_t)d > most / n) return 0;
        n *= (size_t)d;
    }
    return n <= most ? n : 0;
}

#define NO_COLUMNS "%d columns are not 1 to %d"
#define NO_COLUMN  "column %d has no dtype, no shape, or too many values for batches of %lld"

static bool set_columns(tp_loader *L, state *S)
{
    const int columns = S->s.columns;
    if (columns < 1 || columns > TP_MAX_COLUMNS)
        return tp_loader_fail(L, TP_E_VALUE, "examples: " NO_COLUMNS, columns, TP_MAX_COLUMNS);
    for (int c = 0; c < columns; c++) {
        S->column[c] = S->s.column[c];
        S->bytes[c] = bytes_of(&S->column[c], S->batch);
        if (S->bytes[c] == 0)
            return tp_loader_fail(L, TP_E_VALUE, "examples: " NO_COLUMN, c, (long long)S->batch);
    }
    return true;
}

static tp_loader *new_loader(const tp_loader_kind *kind, const tp_sample_source *s,
                             const tp_loader_opts *o)
{
    tp_loader *L = tp_loader_new(kind);
    state *S = tp_loader_state(L, kind);
    if (!S) return L;
    *S = (state){ .s = *s, .batch = o->batch < s->count ? o->batch : s->count };
    if (s->count < 1 || o->batch < 1 || set_columns(L, S))
        tp_loader_open(L, &(tp_loader_examples){ .count = s->count }, o);
    return L;
}

tp_loader *tp_sample_loader_new(const tp_sample_source *s, const tp_loader_opts *o)
{
    return s ? new_loader(&samples, s, o) : NULL;
}

bool tp_sample_loader_next(tp_loader *L, tp_sample_batch *b)
{
    return tp_loader_take(L, &samples, b, sizeof *b);
}

/* ---- examples in memory ---- */

/* The training part, or the held-back one. */
typedef struct side {
    const tp_samples *X;
    tp_part part;
    tp_loader *L; /* of the examples so far, or NULL */
} side;

struct tp_samples {
    int columns;
    tp_column column[TP_MAX_COLUMNS];
    size_t bytes[TP_MAX_COLUMNS]; /* of one example */
    unsigned char *data[TP_MAX_COLUMNS];
    size_t room[TP_MAX_COLUMNS]; /* of data, in examples */
    tp_samples_opts opts;
    int64_t count;
    side side[2];
    uint64_t hash;
    char why[TP_WHY];
};

TP_FAILS(tp_samples, no_samples, "samples: out of memory",
         "samples: NULL was given in place of samples")

tp_samples *tp_samples_new(int columns, const tp_column *c, const tp_samples_opts *o)
{
    if (!c) return NULL;
    tp_samples *X = calloc(1, sizeof *X);
    if (!X) return &no_samples;
    X->hash = TP_HASH;
    X->opts = *o;
    for (int k = 0; k < 2; k++) X->side[k] = (side){ .X = X, .part = k ? TP_VALID : TP_TRAIN };
    if (columns < 1 || columns > TP_MAX_COLUMNS)
        tp__fail(X, "samples: " NO_COLUMNS, columns, TP_MAX_COLUMNS);
    else if (o->batch < 1 || o->batch > INT32_MAX)
        tp__fail(X, "samples: the batch is %lld, not 1 to 2^31 - 1", (long long)o->batch);
    else if (!tp__share_ok(o->share))
        tp__fail(X, "samples: " TP_NO_SHARE, o->share.rank, o->share.ranks);
    else if (o->hold_back < 0 || o->hold_back == 1)
        tp__fail(X, "samples: hold_back is %lld, not 0 or at least 2", (long long)o->hold_back);
    for (int k = 0; k < columns && !X->why[0]; k++) {
        X->column[k] = c[k];
        X->bytes[k] = bytes_of(&c[k], o->batch);
        if (X->bytes[k] == 0) tp__fail(X, "samples: " NO_COLUMN, k, (long long)o->batch);
        X->columns = k + 1;
    }
    return X;
}

static void forget_loaders(tp_samples *X)
{
    for (int k = 0; k < 2; k++) {
        tp_loader_free(X->side[k].L);
        X->side[k].L = NULL;
    }
}

void tp_samples_free(tp_samples *X)
{
    if (!X || X == &no_samples) return;
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

void tp_samples_add(tp_samples *X, const void *const value[])
{
    if (!X || X->why[0]) return;
    const size_t n = (size_t)X->count;
    for (int k = 0; k < X->columns; k++)
        if (!tp_reserve(&X->data[k], &X->room[k], n, 1, X->bytes[k])) {
            tp__fail(X, "samples: out of memory for %zu examples", n + 1);
            return;
        }
    for (int k = 0; k < X->columns; k++) {
        memcpy(X->data[k] + n * X->bytes[k], value[k], X->bytes[k]);
        X->hash = hash_bytes(X->hash, value[k], X->bytes[k]);
    }
    X->count++;
    forget_loaders(X);
}

int64_t tp_samples_count(const tp_samples *X, tp_part part)
{
    if (!X) return 0;
    const int64_t held = X->opts.hold_back ? X->count / X->opts.hold_back : 0;
    return part == TP_TRAIN ? X->count - held : held;
}

int64_t tp_samples_steps(tp_samples *X, tp_part part)
{
    if (!X || X->why[0]) return 0;
    const int64_t n = tp_samples_count(X, part);
    const int64_t batch = X->opts.batch * tp_share_parts(X->opts.share);
    if (part != TP_TRAIN) return (n + batch - 1) / batch;
    if (n < batch)
        tp__fail(
            X,
            "samples: %lld examples to train on are too few for a batch of %lld; lower the batch",
            (long long)n, (long long)batch);
    return n / batch;
}

static tp_example_state copy(void *env, const tp_loader_example *e, void *const value[], char *why)
{
    const side *s = env;
    const tp_samples *X = s->X;
    const int64_t every = X->opts.hold_back, i = e->number;
    const int64_t at = s->part != TP_TRAIN ? (i + 1) * every - 1 : every ? i + i / (every - 1) : i;
    (void)why;
    for (int k = 0; k < X->columns; k++)
        memcpy(value[k], X->data[k] + (size_t)at * X->bytes[k], X->bytes[k]);
    return TP_EXAMPLE_MADE;
}

/* Returns the loader of a part, made on first use. */
static tp_loader *loader_of(tp_samples *X, tp_part part)
{
    side *s = &X->side[part != TP_TRAIN];
    const tp_sample_source from = { .count = tp_samples_count(X, part),
                                    .columns = X->columns,
                                    .column = X->column,
                                    .make = copy,
                                    .env = s };
    if (!s->L)
        s->L = new_loader(&stored, &from,
                          &(tp_loader_opts){ .batch = X->opts.batch,
                                             .seed = X->opts.seed,
                                             .train = part == TP_TRAIN,
                                             .share = X->opts.share });
    if (!tp_loader_ok(s->L)) tp__fail(X, "%s", tp_loader_why(s->L));
    return s->L;
}

int64_t tp_samples_feed(tp_samples *X, tp_tape *T, tp_part part, int64_t epoch, int64_t step,
                        tp_tensor to[])
{
    if (!X) {
        tp_raise_here(T, TP_E_STATE, "samples_feed: NULL was given in place of samples");
        return 0;
    }
    const int64_t steps = tp_samples_steps(X, part);
    if (X->why[0]) tp_raise(T, TP_E_VALUE, "%s", X->why);
    if (epoch < 0 || epoch > INT32_MAX)
        tp_raise(T, TP_E_VALUE, "samples_feed: epoch %lld is not from 0 to below 2^31",
                 (long long)epoch);
    if (step < 0 || step >= steps || !tp_ok(T)) return 0;
    return tp_loader_feed(loader_of(X, part), T, epoch, step, to);
}

uint64_t tp_samples_hash(const tp_samples *X)
{
    return X ? X->hash : 0;
}
