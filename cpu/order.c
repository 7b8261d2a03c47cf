/* order.c - sort and topk along one axis, stable, NaN largest.
 *
 * A lane becomes a list of (key, index) with integer keys in the wanted order. Long lists are
 * sorted by radix, 8 or 11 bits per pass, without comparisons; short ones by insertion. For a small
 * k a lane is read once: elements that beat the worst of the best so far are inserted or, for a
 * larger k, collected and sorted whenever the buffer of a few times k is full. A pass reads and
 * writes 16 bytes per element (f32). */
#include "tensor/geometry/order.h"

#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

#if TP_REAL == 64
typedef uint64_t word;
#define KEY tp__order_key64
#else
typedef uint32_t word;
#define KEY tp__order_key32
#endif

enum {
    SHORT = 32,
    LONG = 8192,
    BLOCK = 32,
    LEAST_ROOM = 128,
    PANEL = 64,
    LINE = 16,
    L1 = 8192,
    MOST_APART = 1 << 17,
    GRAIN = 4096
};

typedef struct item {
    word key;
    uint32_t at;
} item;

static void insert_each(item *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const item v = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1].key > v.key; j--) a[j] = a[j - 1];
        a[j] = v;
    }
}

/* Sorts n items; returns the result, in a or in b. */
TP_INLINE item *sort_by_digits(item *a, item *b, int64_t n, int bits)
{
    enum { COUNTS = (TP_REAL + 10) / 11 << 11 }; /* more than passes of 8 bits have */
    const int digits = 1 << bits, passes = (TP_REAL + bits - 1) / bits;
    uint32_t count[COUNTS];
    memset(count, 0, (size_t)(passes * digits) * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        for (int p = 0; p < passes; p++)
            count[p * digits + (int)(a[i].key >> (p * bits) & (word)(digits - 1))]++;
    for (int p = 0; p < passes; p++) {
        uint32_t *at = count + p * digits, sum = 0;
        if (at[a[0].key >> (p * bits) & (word)(digits - 1)] == n) continue; /* all share it */
        for (int d = 0; d < digits; d++) {
            const uint32_t here = at[d];
            at[d] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++) b[at[a[i].key >> (p * bits) & (word)(digits - 1)]++] = a[i];
        item *other = a;
        a = b;
        b = other;
    }
    return a;
}

static item *sort(item *a, item *b, int64_t n)
{
    if (n > LONG) return sort_by_digits(a, b, n, 11);
    if (n > SHORT) return sort_by_digits(a, b, n, 8);
    insert_each(a, n);
    return a;
}

/* A lane; its elements are `step` apart. */
typedef struct lane {
    const real *x;
    int64_t step, n;
    bool descending;
} lane;

static inline item item_at(const lane *l, int64_t i)
{
    return (item){ KEY(l->x[i * l->step], l->descending), (uint32_t)i };
}

static item *sort_lane(const lane *l, item *a, item *b)
{
    if (l->step == 1)
        for (int64_t i = 0; i < l->n; i++)
            a[i] = (item){ KEY(l->x[i], l->descending), (uint32_t)i };
    else
        for (int64_t i = 0; i < l->n; i++) a[i] = item_at(l, i);
    return sort(a, b, l->n);
}

/* Does any of BLOCK adjacent elements from i on come before `limit`? */
static inline bool any_before(const lane *l, int64_t i, word limit)
{
    const bool descending = l->descending;
    int found = 0;
    for (int64_t j = 0; j < BLOCK; j++) found |= KEY(l->x[i + j], descending) < limit;
    return found;
}

/* Finds the first k of the lane in order, k at most SHORT: their list is always sorted. */
static item *insert_first(const lane *l, int64_t k, item *a)
{
    int64_t have = 0;
    for (int64_t i = 0; i < l->n; i += BLOCK) {
        const int64_t end = i + BLOCK < l->n ? i + BLOCK : l->n;
        const bool whole = have == k && l->step == 1 && end - i == BLOCK;
        if (whole && !any_before(l, i, a[k - 1].key)) continue;
        for (int64_t e = i; e < end; e++) {
            const item v = item_at(l, e);
            if (have == k && v.key >= a[k - 1].key) continue;
            int64_t j = have < k ? have++ : k - 1;
            for (; j > 0 && a[j - 1].key > v.key; j--) a[j] = a[j - 1];
            a[j] = v;
        }
    }
    return a;
}

/* Finds the first k of the lane in order; a and b hold n items. Equal elements stay in order. */
static item *select_first(const lane *l, int64_t k, item *a, item *b)
{
    const int64_t most = 4 * k > LEAST_ROOM ? 4 * k : LEAST_ROOM;
    if (k <= SHORT && k < l->n) return insert_first(l, k, a);
    if (most >= l->n) return sort_lane(l, a, b);
    int64_t have = 0;
    word limit = 0;
    bool limited = false;
    for (int64_t i = 0; i < l->n; i += BLOCK) {
        const int64_t end = i + BLOCK < l->n ? i + BLOCK : l->n;
        const bool whole = limited && l->step == 1 && end - i == BLOCK;
        if (whole && !any_before(l, i, limit)) continue;
        for (int64_t j = i; j < end; j++) {
            const item v = item_at(l, j);
            if (limited && v.key >= limit) continue;
            a[have++] = v;
            if (have < most) continue;
            item *sorted = sort(a, b, have);
            if (sorted != a) memcpy(a, sorted, (size_t)k * sizeof *a);
            have = k;
            limit = a[k - 1].key;
            limited = true;
        }
    }
    return sort(a, b, have);
}

static int64_t lists(const tp_call *c, const tp_order *o)
{
    const int64_t lanes = o->outer * o->inner;
    return lanes < c->dev->threads ? lanes : c->dev->threads;
}

static void order_range(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_order o = tp__order(&c->x[0], c->attr);
    const int64_t slots = lists(c, &o);
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / o.inner, j = i - row * o.inner;
        const int64_t slot = slots < c->dev->threads ? i : thread;
        const real *x = (const real *)c->x[0].data + row * o.dim * o.inner + j;
        const lane l = { x, o.inner, o.dim, o.descending };
        item *a = (item *)c->work + 2 * slot * o.dim;
        const item *first = select_first(&l, o.k, a, a + o.dim);
        real *y = (real *)c->y[0].data + row * o.k * o.inner + j;
        int64_t *at = (int64_t *)c->y[1].data + row * o.k * o.inner + j;
        for (int64_t r = 0; r < o.k; r++) {
            y[r * o.inner] = x[first[r].at * o.inner];
            at[r * o.inner] = first[r].at;
        }
    }
}

static tp_code order_fwd(const tp_call *c)
{
    const tp_order o = tp__order(&c->x[0], c->attr);
    if (c->y[0].numel == 0) return TP_OK;
    tp__for_threads(c, o.outer * o.inner, 1 + GRAIN / o.dim, order_range);
    return TP_OK;
}

static void clear_range(const tp_call *c, int64_t begin, int64_t end)
{
    memset((real *)c->dx[0].data + begin, 0, (size_t)(end - begin) * sizeof(real));
}

/* Elements of a thread's scratch in backward. Rows of a panel that are far apart share few cache
 * sets, so a panel is assembled contiguously and then copied; 0: panels are rows already, or too
 * large for L2. */
static int64_t apart(const tp_order *o)
{
    const int64_t n = tp__least(o->inner, PANEL);
    return o->inner > 1 && o->dim <= MOST_APART / n ? o->dim * n : 0;
}

/* dx[at] = dy for n adjacent lanes, whose elements are x_step and y_step apart. For lanes larger
 * than L1 the destinations are prefetched: stores that miss it would wait for each other. */
TP_INLINE void put_lanes(real *restrict dx, int64_t x_step, const real *restrict dy,
                         const int64_t *restrict at, int64_t end, int64_t y_step, int64_t n,
                         bool large)
{
    const int64_t ahead = PANEL / n * y_step;
    for (int64_t r = 0; r < end; r += y_step) {
        for (int64_t l = 0; large && r + ahead < end && l < n; l++)
            __builtin_prefetch(&dx[at[r + ahead + l] * x_step + l], 1);
        for (int64_t l = 0; l < n; l++) dx[at[r + l] * x_step + l] = dy[r + l];
    }
}

/* dy goes where the elements were: panels of adjacent lanes, so that dy is read in order. */
static void order_grad_range(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_order o = tp__order(&c->dx[0], c->attr);
    const int64_t panels = tp__ceil_div(o.inner, PANEL), room = apart(&o);
    real *const scratch = (real *)c->work + thread * room;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / panels, j = (i - row * panels) * PANEL;
        const int64_t from = row * o.k * o.inner + j, n = tp__least(o.inner - j, PANEL);
        const real *dy = (const real *)c->dy[0].data + from;
        const int64_t *at = (const int64_t *)c->y[1].data + from;
        real *dx = (real *)c->dx[0].data + row * o.dim * o.inner + j;
        const bool large = o.dim * n > L1;
        if (room > 0) {
            if (o.k < o.dim) memset(scratch, 0, (size_t)(o.dim * n) * sizeof *dx);
            put_lanes(scratch, n, dy, at, o.k * o.inner, o.inner, n, large);
            for (int64_t d = 0; d < o.dim; d++)
                memcpy(dx + d * o.inner, scratch + d * n, (size_t)n * sizeof *dx);
        } else if (o.inner > 1) {
            put_lanes(dx, o.inner, dy, at, o.k * o.inner, o.inner, n, large);
        } else if (large) {
            put_lanes(dx, 1, dy, at, o.k, 1, 1, true);
        } else {
            for (int64_t e = o.dim; i + 1 < end && e < 2 * o.dim; e += LINE) /* the next lane */
                __builtin_prefetch(dx + e, 1);
            put_lanes(dx, 1, dy, at, o.k, 1, 1, false);
        }
    }
}

static tp_code order_bwd(const tp_call *c)
{
    const tp_order o = tp__order(&c->dx[0], c->attr);
    const int64_t n = c->dx[0].numel, panels = tp__ceil_div(o.inner, PANEL);
    if (!c->dx[0].data || n == 0) return TP_OK;
    if (o.k < o.dim && apart(&o) == 0) tp__for(c, n, GRAIN, clear_range);
    tp__for_threads(c, o.outer * panels, 1 + GRAIN * panels / (1 + o.k * o.inner),
                    order_grad_range);
    return TP_OK;
}

/* Two lists per lane in progress; in backward a panel per thread. */
static size_t order_work(const tp_call *c)
{
    const tp_order o = tp__order(tp_is_backward(c) ? &c->dx[0] : &c->x[0], c->attr);
    if (tp_is_backward(c)) return (size_t)(c->dev->threads * apart(&o)) * sizeof(real);
    if (o.k == 0) return 0;
    return (size_t)(2 * lists(c, &o) * o.dim) * sizeof(item);
}

TP_CPU_WORK(order_work)
TP_CPU_KERNEL(order_fwd)
TP_CPU_KERNEL(order_bwd)
