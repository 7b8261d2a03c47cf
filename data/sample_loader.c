/* sample_loader.c - the loader of examples that a function makes: a batch is an array for each column. */
#include <string.h>
#include <tapegrad/loader.h>

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

/* Column c of example i. */
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

static const tp_loader_kind samples = { .name = "examples",
                                        .state = sizeof(state),
                                        .slot = sizeof(slot),
                                        .slot_new = slot_new,
                                        .stream = "samples",
                                        .make = make,
                                        .move = move,
                                        .finish = finish,
                                        .feed = feed,
                                        .example_name = example_name };

/* The bytes of a value; 0: a batch of them is too large, or there is no such column. */
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
    return n;
}

static bool set_columns(tp_loader *L, state *S)
{
    const int columns = S->s.columns;
    if (columns < 1 || columns > TP_MAX_COLUMNS)
        return tp_loader_fail(L, TP_E_VALUE, "examples: %d columns are not 1 to %d", columns,
                              TP_MAX_COLUMNS);
    for (int c = 0; c < columns; c++) {
        S->column[c] = S->s.column[c];
        S->bytes[c] = bytes_of(&S->column[c], S->batch);
        if (S->bytes[c] == 0)
            return tp_loader_fail(L, TP_E_VALUE,
                                  "examples: column %d has no dtype, no shape, or too many values "
                                  "for batches of %lld",
                                  c, (long long)S->batch);
    }
    return true;
}

tp_loader *tp_sample_loader_new(const tp_sample_source *s, const tp_loader_opts *o)
{
    if (!s) return NULL;
    tp_loader *L = tp_loader_new(&samples);
    state *S = tp_loader_state(L, &samples);
    if (!S) return L;
    *S = (state){ .s = *s, .batch = o->batch < s->count ? o->batch : s->count };
    if (s->count < 1 || o->batch < 1 || set_columns(L, S))
        tp_loader_open(L, &(tp_loader_examples){ .count = s->count }, o);
    return L;
}

bool tp_sample_loader_next(tp_loader *L, tp_sample_batch *b)
{
    return tp_loader_take(L, &samples, b, sizeof *b);
}
