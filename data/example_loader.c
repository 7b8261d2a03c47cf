/* example_loader.c - loaders of examples of fixed shapes that a function makes, or whose first axis
 * is padded to the longest of the batch. A batch is an array for each column. */
#include <stdio.h>
#include <string.h>

#include <tapegrad/loader.h>

#include "engine/order.h"
#include "example_loader.h"

typedef struct state {
    tp_example_source s;
    tp_column column[TP_MAX_COLUMNS];
    size_t bytes[TP_MAX_COLUMNS]; /* of one example */
    bool padded[TP_MAX_COLUMNS];
    double pad[TP_MAX_COLUMNS];
    int64_t batch;
} state;

typedef struct slot {
    tp_example_batch b;
    void *value[TP_MAX_COLUMNS]; /* [batch,...] each */
    int64_t width[TP_MAX_COLUMNS];
} slot;

static void slot_new(tp_loader *L, const void *of, void *at)
{
    const state *S = of;
    slot *s = at;
    for (int c = 0; c < S->s.columns; c++) s->value[c] = tp_loader_alloc(L, S->batch, S->bytes[c]);
}

/* Returns column c of example i. */
static void *value_at(const state *S, const slot *s, int c, int64_t i)
{
    return (unsigned char *)s->value[c] + (size_t)i * S->bytes[c];
}

/* Rows of the first axis. */
static int64_t full_width(const tp_column *c)
{
    return c->shape.ndim ? c->shape.dim[0] : 1;
}

/* ---- padding ---- */

/* The nearest bf16, even of two. */
static uint16_t to_bf16(double x)
{
    const float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40); /* rounding could make it infinite */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void fill(tp_dtype dt, void *to, size_t n, double x)
{
    for (size_t i = 0; i < n; i++) switch (dt) {
        case TP_F32: ((float *)to)[i] = (float)x; break;
        case TP_F64: ((double *)to)[i] = x; break;
        case TP_BF16: ((uint16_t *)to)[i] = to_bf16(x); break;
        case TP_I32: ((int32_t *)to)[i] = (int32_t)x; break;
        case TP_I64: ((int64_t *)to)[i] = (int64_t)x; break;
        default: ((uint8_t *)to)[i] = (uint8_t)x; break;
        }
}

/* The rows of a column that some example of a batch fills. */
static int64_t width_of(const state *S, const tp_loader_batch *b, int c)
{
    int64_t width = 1;
    for (int64_t i = 0; i < b->total; i++) {
        const int64_t n = S->s.length(S->s.env, b->all[i], c);
        if (n > width) width = n;
    }
    return width < full_width(&S->column[c]) ? width : full_width(&S->column[c]);
}

/* Moves examples together, so that each has `width` rows. */
static void narrow(const state *S, slot *s, int c, int64_t n, int64_t width)
{
    const size_t bytes = S->bytes[c] / (size_t)full_width(&S->column[c]) * (size_t)width;
    unsigned char *all = s->value[c];
    for (int64_t i = 1; i < n; i++)
        memmove(all + (size_t)i * bytes, all + (size_t)i * S->bytes[c], bytes);
}

/* ---- the kind ---- */

static tp_example_state make(void *of, const tp_loader_example *e, void *at, void *work, char *why)
{
    const state *S = of;
    void *value[TP_MAX_COLUMNS] = { NULL };
    (void)work;
    for (int c = 0; c < S->s.columns; c++) {
        value[c] = value_at(S, at, c, e->at);
        if (S->padded[c])
            fill(S->column[c].dtype, value[c], S->bytes[c] / tp_dtype_size(S->column[c].dtype),
                 S->pad[c]);
    }
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
    const state *S = of;
    slot *s = at;
    (void)L;
    for (int c = 0; c < S->s.columns; c++) {
        s->width[c] = S->padded[c] ? width_of(S, b, c) : full_width(&S->column[c]);
        if (s->width[c] < full_width(&S->column[c])) narrow(S, s, c, b->n, s->width[c]);
    }
    s->b = (tp_example_batch){ b->n, b->epoch, b->step, b->index, s->value, s->width };
}

static void feed(void *of, const void *at, tp_tape *T, tp_tensor to[])
{
    const state *S = of;
    const slot *s = at;
    for (int c = 0; c < S->s.columns; c++) {
        tp_shape shape = { .ndim = S->column[c].shape.ndim + 1, .dim = { s->b.n } };
        for (int a = 1; a < shape.ndim; a++) shape.dim[a] = S->column[c].shape.dim[a - 1];
        if (shape.ndim > 1) shape.dim[1] = s->width[c];
        tp_feed(T, &to[c], S->column[c].dtype, shape, s->value[c]);
    }
}

static const char *example_name(const void *of, int64_t number, char *buf, size_t size)
{
    const state *S = of;
    return S->s.name ? S->s.name(S->s.env, number, buf, size) : NULL;
}

/* The length that `bucket` sorts by: that of the longest padded column. */
static int64_t length(const void *of, int64_t number)
{
    const state *S = of;
    int64_t longest = 0;
    for (int c = 0; c < S->s.columns; c++) {
        const int64_t n = S->padded[c] ? S->s.length(S->s.env, number, c) : 0;
        if (n > longest) longest = n;
    }
    return longest;
}

#define KIND                                                                                       \
    .name = "examples", .state = sizeof(state), .slot = sizeof(slot), .slot_new = slot_new,        \
    .stream = "samples", .make = make, .move = move, .finish = finish, .feed = feed,               \
    .example_name = example_name
const tp_loader_kind tp__made_examples = { KIND };
const tp_loader_kind tp__padded_examples = { KIND, .length = length };
const tp_loader_kind tp__stored_examples = { KIND, .shuffle = TP_SHUFFLE_UP };

size_t tp__column_bytes(const tp_column *c, int64_t batch)
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

static bool set_columns(tp_loader *L, state *S)
{
    const int columns = S->s.columns;
    if (columns < 1 || columns > TP_MAX_COLUMNS)
        return tp_loader_fail(L, TP_E_VALUE, "examples: " TP_NO_COLUMNS, columns, TP_MAX_COLUMNS);
    for (int c = 0; c < columns; c++) {
        S->column[c] = S->s.column[c];
        S->bytes[c] = tp__column_bytes(&S->column[c], S->batch);
        if (S->bytes[c] == 0)
            return tp_loader_fail(L, TP_E_VALUE, "examples: " TP_NO_COLUMN, c, (long long)S->batch);
    }
    return true;
}

/* Checks the lengths of all examples in a padded column. */
static bool check_lengths(tp_loader *L, const state *S, int c)
{
    const int64_t most = full_width(&S->column[c]);
    for (int64_t i = 0; i < S->s.count; i++) {
        char buf[600];
        const int64_t n = S->s.length(S->s.env, i, c);
        if (n >= 0 && n <= most) continue;
        const char *name = example_name(S, i, buf, sizeof buf);
        if (!name) snprintf(buf, sizeof buf, "example %lld", (long long)i);
        return tp_loader_fail(L, TP_E_VALUE,
                              "%s: it has length %lld in column %d, not 0 to %lld, the first axis "
                              "of its shape; cut it to that",
                              name ? name : buf, (long long)n, c, (long long)most);
    }
    return true;
}

/* Notes which columns are padded: those that have a length in some example, and are no scalars. */
static bool set_padding(tp_loader *L, state *S)
{
    for (int c = 0; S->s.length && c < S->s.columns; c++) {
        S->pad[c] = S->s.pad ? S->s.pad[c] : 0;
        for (int64_t i = 0; S->column[c].shape.ndim > 0 && i < S->s.count && !S->padded[c]; i++)
            S->padded[c] = S->s.length(S->s.env, i, c) >= 0;
        if (S->padded[c] && !check_lengths(L, S, c)) return false;
    }
    return true;
}

void tp__examples_open(tp_loader *L, const tp_loader_kind *kind, const tp_example_source *s,
                       const tp_loader_opts *o)
{
    state *S = tp_loader_state(L, kind);
    if (!S) return;
    const int64_t epoch = tp__order_length(o->sampler, s->count);
    *S = (state){ .s = *s, .batch = o->batch < epoch ? o->batch : epoch };
    if (s->count < 1 || o->batch < 1 || (set_columns(L, S) && set_padding(L, S)))
        tp_loader_open(L, &(tp_loader_examples){ .count = s->count, .tries = s->length ? 1 : 0 },
                       o);
}

tp_loader *tp_example_loader_new(const tp_example_source *s, const tp_loader_opts *o)
{
    if (!s) return NULL;
    const tp_loader_kind *kind = s->length ? &tp__padded_examples : &tp__made_examples;
    tp_loader *L = tp_loader_new(kind);
    tp__examples_open(L, kind, s, o);
    return L;
}

bool tp_example_loader_next(tp_loader *L, tp_example_batch *b)
{
    const bool padded = tp_loader_state(L, &tp__padded_examples) != NULL;
    return tp_loader_take(L, padded ? &tp__padded_examples : &tp__made_examples, b, sizeof *b);
}
