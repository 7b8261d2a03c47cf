/* samples.c - examples in memory, one contiguous array per column, and batches of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/data.h>
#include <tapegrad/random.h>

enum { WHY = 512 };

typedef struct column {
    tp_column is;
    size_t bytes;         /* of one example */
    unsigned char *data;  /* [count,...]    */
    unsigned char *batch; /* [batch,...]    */
} column;

struct tp_samples {
    int columns;
    column column[TP_MAX_COLUMNS];
    tp_samples_opts opts;
    int64_t count, room;
    int64_t *order; /* [training examples]: their order in epoch `shuffled`, if it is not -1 */
    int64_t shuffled;
    uint64_t hash;
    char why[WHY];
};

static tp_samples no_memory = { .why = "samples: out of memory" };

static void out_of_memory(tp_samples *X, int64_t count)
{
    snprintf(X->why, WHY, "samples: out of memory for %lld examples", (long long)count);
}

/* ---- creating ---- */

static bool possible(tp_samples *X, int columns, const tp_column *c, const tp_samples_opts *o)
{
    if (columns < 1 || columns > TP_MAX_COLUMNS)
        snprintf(X->why, WHY, "samples: %d columns are not 1 to %d", columns, TP_MAX_COLUMNS);
    else if (o->batch < 1)
        snprintf(X->why, WHY, "samples: the batch is %lld, not at least 1", (long long)o->batch);
    else if (o->hold_back < 0 || o->hold_back == 1)
        snprintf(X->why, WHY, "samples: hold_back is %lld, not 0 or at least 2",
                 (long long)o->hold_back);
    for (int k = 0; !X->why[0] && k < columns; k++)
        if (c[k].dtype < 0 || c[k].dtype >= TP_NDTYPES || c[k].shape.ndim < 0 ||
            c[k].shape.ndim >= TP_MAX_DIMS)
            snprintf(X->why, WHY, "samples: column %d has no dtype, or %d axes", k,
                     c[k].shape.ndim);
    return !X->why[0];
}

/* False if out of memory, or if the size of a batch overflows. */
static bool set_column(column *c, tp_column is, int64_t batch)
{
    const size_t most = SIZE_MAX / 4 / (size_t)batch;
    *c = (column){ .is = is, .bytes = tp_dtype_size(is.dtype) };
    for (int a = 0; a < is.shape.ndim; a++) {
        const int64_t n = is.shape.dim[a];
        if (n < 1 || (uint64_t)n > most / c->bytes) return false;
        c->bytes *= (size_t)n;
    }
    c->batch = malloc(c->bytes * (size_t)batch);
    return c->batch != NULL;
}

tp_samples *tp_samples_new(int columns, const tp_column *c, const tp_samples_opts *o)
{
    if (!c) return NULL;
    tp_samples *X = calloc(1, sizeof *X);
    if (!X) return &no_memory;
    X->shuffled = -1;
    X->hash = TP_HASH;
    X->opts = *o;
    if (!possible(X, columns, c, o)) return X;
    for (; X->columns < columns; X->columns++)
        if (!set_column(&X->column[X->columns], c[X->columns], o->batch)) {
            snprintf(X->why, WHY, "samples: out of memory for %lld examples of column %d",
                     (long long)o->batch, X->columns);
            break;
        }
    return X;
}

void tp_samples_free(tp_samples *X)
{
    if (!X || X == &no_memory) return;
    for (int k = 0; k < X->columns; k++) {
        free(X->column[k].data);
        free(X->column[k].batch);
    }
    free(X->order);
    free(X);
}

/* ---- adding ---- */

static bool grow(tp_samples *X)
{
    const int64_t room = X->room ? 2 * X->room : 64;
    int64_t *order = realloc(X->order, (size_t)room * sizeof *order);
    if (!order) return false;
    X->order = order;
    for (int k = 0; k < X->columns; k++) {
        column *c = &X->column[k];
        unsigned char *data = NULL;
        if ((size_t)room <= SIZE_MAX / c->bytes) data = realloc(c->data, (size_t)room * c->bytes);
        if (!data) return false;
        c->data = data;
    }
    X->room = room;
    return true;
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
    if (!X) return;
    if (X->why[0]) return;
    if (X->count == X->room && !grow(X)) {
        out_of_memory(X, X->count + 1);
        return;
    }
    for (int k = 0; k < X->columns; k++) {
        const column *c = &X->column[k];
        memcpy(c->data + (size_t)X->count * c->bytes, value[k], c->bytes);
        X->hash = hash_bytes(X->hash, value[k], c->bytes);
    }
    X->count++;
    X->shuffled = -1;
}

/* ---- batches ---- */

/* The index of example i of a part. */
static int64_t example(const tp_samples *X, tp_part part, int64_t i)
{
    const int64_t every = X->opts.hold_back;
    if (part != TP_TRAIN) return (i + 1) * every - 1;
    return every ? i + i / (every - 1) : i;
}

int64_t tp_samples_count(const tp_samples *X, tp_part part)
{
    if (!X) return 0;
    const int64_t held = X->opts.hold_back ? X->count / X->opts.hold_back : 0;
    return part == TP_TRAIN ? X->count - held : held;
}

int64_t tp_samples_steps(tp_samples *X, tp_part part)
{
    if (!X) return 0;
    const int64_t n = tp_samples_count(X, part), batch = X->opts.batch;
    if (X->why[0]) return 0;
    if (part != TP_TRAIN) return (n + batch - 1) / batch;
    if (n < batch)
        snprintf(
            X->why, WHY,
            "samples: %lld examples to train on are too few for a batch of %lld; lower the batch",
            (long long)n, (long long)batch);
    return n / batch;
}

static void shuffle(tp_samples *X, int64_t epoch)
{
    tp_random r = tp_random_stream(X->opts.seed, "samples", 0, (uint64_t)epoch);
    for (int64_t i = 0; i < tp_samples_count(X, TP_TRAIN); i++) {
        const int64_t j = tp_random_below(&r, i + 1);
        X->order[i] = X->order[j];
        X->order[j] = example(X, TP_TRAIN, i);
    }
    X->shuffled = epoch;
}

static void gather(tp_samples *X, tp_part part, int64_t first, int64_t n)
{
    for (int k = 0; k < X->columns; k++) {
        const column *c = &X->column[k];
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = part == TP_TRAIN ? X->order[first + i] : example(X, part, first + i);
            memcpy(c->batch + (size_t)i * c->bytes, c->data + (size_t)at * c->bytes, c->bytes);
        }
    }
}

static void feed_column(const column *c, tp_tape *T, int64_t n, tp_tensor *slot)
{
    tp_shape s = { .ndim = c->is.shape.ndim + 1, .dim = { n } };
    for (int a = 0; a < c->is.shape.ndim; a++) s.dim[a + 1] = c->is.shape.dim[a];
    tp_feed(T, slot, c->is.dtype, s, c->batch);
}

int64_t tp_samples_feed(tp_samples *X, tp_tape *T, tp_part part, int64_t epoch, int64_t step,
                        tp_tensor slot[])
{
    if (!X) {
        tp_raise_here(T, TP_E_STATE, "samples_feed: NULL was given in place of samples");
        return 0;
    }
    const int64_t steps = tp_samples_steps(X, part), batch = X->opts.batch;
    const int64_t left = tp_samples_count(X, part) - step * batch;
    const int64_t n = left < batch ? left : batch;
    if (X->why[0]) tp_raise(T, TP_E_VALUE, "%s", X->why);
    if (step < 0 || step >= steps || !tp_ok(T)) return 0;
    if (part == TP_TRAIN && X->shuffled != epoch) shuffle(X, epoch);
    gather(X, part, step * batch, n);
    for (int k = 0; k < X->columns; k++) feed_column(&X->column[k], T, n, &slot[k]);
    return tp_ok(T) ? n : 0;
}

/* ---- queries ---- */

bool tp_samples_ok(const tp_samples *X)
{
    if (!X) return false;
    return !X->why[0];
}
const char *tp_samples_why(const tp_samples *X)
{
    if (!X) return "samples: NULL was given in place of samples";
    return X->why;
}
uint64_t tp_samples_hash(const tp_samples *X)
{
    if (!X) return 0;
    return X->hash;
}
