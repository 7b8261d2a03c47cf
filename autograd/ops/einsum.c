/* einsum.c - tp_einsum, composed of other ops: contracts operands from left to right, each pair by
 * a matrix product, or elementwise if there is nothing to sum.
 *
 * A pair's labels are
 *
 *     batch   in both operands and needed later       sum   in both and not needed later
 *     m, n    in one of them and needed later
 *
 * and others are summed first. The product is [batch,m,sum] by [batch,sum,n]. Either operand may be
 * stored with its last two groups exchanged, and the operands may be exchanged: `choose` compares
 * these layouts, and the orders of labels within groups, by the elements to be moved. Axes of size
 * 1 have no label: they are dropped first and restored in the result, which is all that
 * broadcasting needs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/ops.h>
#include <tapegrad/tensor.h>

#include "autograd/nodes.h"
#include "autograd/ops/einsum.h"
#include "autograd/tape.h"

typedef tp_einsum_axes axes;

/* A tensor and the labels of its axes. */
typedef struct term {
    tp_tensor x;
    axes a;
} term;

static bool has(const axes *a, int label)
{
    for (int i = 0; i < a->n; i++)
        if (a->label[i] == label) return true;
    return false;
}

static bool same(const axes *a, const axes *b)
{
    return a->n == b->n && memcmp(a->label, b->label, (size_t)a->n * sizeof *a->label) == 0;
}

/* The labels of a, then those of b; together at most TP_MAX_DIMS. */
static axes joined(axes a, const axes *b)
{
    for (int i = 0; i < b->n; i++) a.label[a.n++] = b->label[i];
    return a;
}

/* a b, or on overflow the largest number, which no shape has. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t n;
    return __builtin_mul_overflow(a, b, &n) ? INT64_MAX : n;
}

static int64_t numel(const tp_einsum_spec *s, const axes *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->n; i++) n = times(n, s->size[a->label[i]]);
    return n;
}

static tp_shape shape_of(const tp_einsum_spec *s, const axes *a)
{
    tp_shape to = { .ndim = a->n };
    for (int i = 0; i < a->n; i++) to.dim[i] = s->size[a->label[i]];
    return to;
}

/* ---- one operand ---- */

static term moved(tp_tape *T, term t, const axes *to)
{
    tp_shape order = { .ndim = to->n };
    if (same(&t.a, to)) return t;
    for (int i = 0; i < to->n; i++)
        while (t.a.label[order.dim[i]] != to->label[i]) order.dim[i]++;
    return (term){ tp_permute(T, t.x, order), *to };
}

/* x [P,n,n,Q] -> [P,n,Q]: places i (n + 1) of [P,n n,Q]. */
static tp_tensor diagonal_of(tp_tape *T, tp_tensor x, int64_t P, int64_t n, int64_t Q)
{
    if (times(P, Q) == 0) return tp_reshape(T, x, TP_SHAPE(P, n, Q));
    int64_t *const at = malloc((size_t)(n + 1) * sizeof *at);
    if (!at) return tp_raise(T, TP_E_MEMORY, "no memory for %lld indices", (long long)n), TP_NONE;
    for (int64_t i = 0; i < n; i++) at[i] = i * (n + 1);
    const tp_tensor places = tp_from(T, TP_I64, TP_SHAPE(n), at);
    free(at);
    return tp_index_select(T, tp_reshape(T, x, TP_SHAPE(P, times(n, n), Q)), 1, places);
}

/* Takes the diagonal of axes i < j, which share a label; j moves next to i. */
static term diagonal(const tp_einsum_spec *s, term t, int i, int j)
{
    tp_shape order = { .ndim = t.a.n };
    axes left = { 0 }, before = t.a, behind = { 0 };
    for (int k = 0, to = 0; k < t.a.n; k++) {
        if (k == j) continue;
        order.dim[to++] = k;
        if (k == i) order.dim[to++] = j;
        if (k > i) behind.label[behind.n++] = t.a.label[k];
        left.label[left.n++] = t.a.label[k];
    }
    before.n = i;
    const int64_t n = s->size[t.a.label[i]], P = numel(s, &before), Q = numel(s, &behind);
    const tp_tensor x = j == i + 1 ? t.x : tp_permute(s->T, t.x, order);
    return (term){ tp_reshape(s->T, diagonal_of(s->T, x, P, n, Q), shape_of(s, &left)), left };
}

/* Reads an operand: drops axes of size 1, keeps each label once. */
static term operand(tp_einsum_spec *s, tp_tensor x)
{
    term t = { 0 };
    tp_shape to = { 0, { 0 } };
    const axes all = tp__einsum_next(s, x);
    for (int i = 0; i < all.n; i++) {
        if (tp_dim(x, i) == 1) continue;
        to.dim[to.ndim++] = tp_dim(x, i);
        t.a.label[t.a.n++] = all.label[i];
    }
    t.x = to.ndim == all.n ? x : tp_reshape(s->T, x, to);
    for (int i = 0; i < t.a.n; i++)
        for (int j = i + 1; j < t.a.n; j++)
            if (t.a.label[i] == t.a.label[j]) {
                t = diagonal(s, t, i, j);
                i = -1;
                break;
            }
    return t;
}

/* Sums over labels that are neither in `other` nor needed later. */
static term summed(tp_tape *T, term t, const axes *other, const int *later)
{
    axes left = { 0 };
    int set = TP__AXES_MARK;
    for (int i = 0; i < t.a.n; i++)
        if (has(other, t.a.label[i]) || later[t.a.label[i]] > 0)
            left.label[left.n++] = t.a.label[i];
        else
            set |= 1 << i;
    if (left.n == t.a.n) return t;
    return (term){ tp_sum(T, t.x, set), left };
}

/* ---- pairs ---- */

/* Labels by their role in a product; each group in the first (or second) operand's order. */
typedef struct groups {
    axes batch[3], sum[2], m[2], n[2]; /* last of batch, m, n: in the order of the result */
    bool ordered;                      /* the result's order is known */
} groups;

static axes picked(const axes *from, const axes *other, bool in_other, const int *later,
                   bool needed)
{
    axes a = { 0 };
    for (int i = 0; i < from->n; i++) {
        const int label = from->label[i];
        if (has(other, label) == in_other && (later[label] > 0) == needed) a.label[a.n++] = label;
    }
    return a;
}

/* The labels of a in the order of `out`, if given. */
static axes ordered(const axes *a, const axes *out)
{
    axes to = { 0 };
    for (int i = 0; out && i < out->n; i++)
        if (has(a, out->label[i])) to.label[to.n++] = out->label[i];
    return to.n == a->n ? to : *a;
}

static groups groups_of(const axes *a, const axes *b, const int *later, const axes *out)
{
    groups g = {
        .batch = { picked(a, b, true, later, true), picked(b, a, true, later, true) },
        .sum = { picked(a, b, true, later, false), picked(b, a, true, later, false) },
        .m = { picked(a, b, false, later, true) },
        .n = { picked(b, a, false, later, true) },
        .ordered = out != NULL,
    };
    g.batch[2] = ordered(&g.batch[0], out);
    g.m[1] = ordered(&g.m[0], out);
    g.n[1] = ordered(&g.n[0], out);
    return g;
}

/* How an operand is stored for the product: [batch,rows,columns], its transpose, or, for a first
 * operand without batch, [lead,sum,m], where lead is the first labels of m. */
typedef struct side {
    axes order;
    int lead;
    bool transposed;
    double cost; /* elements to be moved */
} side;

static side side_of(const tp_einsum_spec *s, const axes *is, const axes *batch, const axes *rows,
                    const axes *columns)
{
    const axes plain = joined(joined(*batch, rows), columns);
    const axes turned = joined(joined(*batch, columns), rows);
    if (same(is, &plain)) return (side){ plain, 0, false, 0 };
    if (same(is, &turned)) return (side){ turned, 0, true, 0 };
    return (side){ plain, 0, false, (double)numel(s, is) };
}

/* The first operand's side, which may have leading labels of its own. */
static side first_side(const tp_einsum_spec *s, const axes *is, const axes *batch, const axes *m,
                       const axes *sum)
{
    for (int lead = 1; batch->n == 0 && lead < m->n; lead++) {
        axes head = *m, tail = { m->n - lead, { 0 } };
        head.n = lead;
        memcpy(tail.label, m->label + lead, (size_t)tail.n * sizeof *tail.label);
        const axes split = joined(joined(head, sum), &tail);
        if (same(is, &split)) return (side){ split, lead, true, 0 };
    }
    return side_of(s, is, batch, m, sum);
}

/* A product of two terms: first and second are 0 and 1, or exchanged. */
typedef struct layout {
    int first;
    side side[2];
    axes batch, m, n, sum;
    double cost;
} layout;

static layout choose(const tp_einsum_spec *s, const term t[2], const int *later, const axes *out)
{
    layout best = { .cost = INFINITY };
    groups g = { 0 };
    for (int way = 0; way < 48 && best.cost > 0; way++) {
        const int first = way / 24;
        const axes *const a = &t[first].a, *const b = &t[1 - first].a;
        if (way % 24 == 0) g = groups_of(a, b, later, out);
        const axes *const batch = &g.batch[way % 24 / 8], *const m = &g.m[way & 1],
                          *const n = &g.n[way >> 1 & 1], *const sum = &g.sum[way >> 2 & 1];
        const axes is = joined(joined(*batch, m), n);
        layout l = {
            .first = first,
            .side = { first_side(s, a, batch, m, sum), side_of(s, b, batch, sum, n) },
            .batch = *batch,
            .m = *m,
            .n = *n,
            .sum = *sum,
        };
        l.cost = l.side[0].cost + l.side[1].cost;
        if (g.ordered && !same(&is, out)) l.cost += (double)numel(s, &is);
        if (l.cost < best.cost) best = l;
    }
    return best;
}

/* x, its axes in its side's order, as [batch,lead..,rows,columns]. */
static tp_tensor flat(const tp_einsum_spec *s, const term *t, const layout *l, int which)
{
    const side *const d = &l->side[which];
    const axes *const rows = which == 0 ? &l->m : &l->sum;
    const axes *const columns = which == 0 ? &l->sum : &l->n;
    axes lead = *rows;
    lead.n = d->lead;
    const int64_t before = l->batch.n > 0 ? numel(s, &l->batch) : numel(s, &lead);
    const int64_t R = numel(s, rows) / (d->lead > 0 && before > 0 ? before : 1);
    const int64_t C = numel(s, columns);
    const tp_tensor x = moved(s->T, *t, &d->order).x;
    const int64_t p = d->transposed ? C : R, q = d->transposed ? R : C;
    return tp_reshape(s->T, x, l->batch.n + d->lead > 0 ? TP_SHAPE(before, p, q) : TP_SHAPE(p, q));
}

/* Casts bf16 to f32 next to f32 from sums. */
static void meet_types(tp_tape *T, term t[2])
{
    for (int i = 0; i < 2; i++)
        if (tp_dtype_of(t[i].x) == TP_BF16 && tp_dtype_of(t[1 - i].x) == TP_F32)
            t[i].x = tp_cast(T, t[i].x, TP_F32);
}

/* Without labels to sum: an elementwise product in the result's axis order. */
static term multiply(const tp_einsum_spec *s, term t[2], axes to)
{
    meet_types(s->T, t);
    for (int i = 0; i < 2; i++) {
        const axes own = ordered(&t[i].a, &to);
        tp_shape shape = shape_of(s, &to);
        for (int k = 0; k < to.n; k++)
            if (!has(&own, to.label[k])) shape.dim[k] = 1;
        t[i].x = tp_reshape(s->T, moved(s->T, t[i], &own).x, shape);
    }
    return (term){ tp_mul(s->T, t[0].x, t[1].x), to };
}

/* later[label] > 0: the label is needed later. out: the result's order if this is the last pair. */
static term contract(const tp_einsum_spec *s, term a, term b, const int *later, const axes *out)
{
    term t[2] = { summed(s->T, a, &b.a, later), summed(s->T, b, &a.a, later) };
    const groups g = groups_of(&t[0].a, &t[1].a, later, out);
    if (g.batch[0].n + g.m[0].n + g.n[0].n > TP_MAX_DIMS)
        return (term){ .x = tp__fail(s->T, TP_E_SHAPE,
                                     "einsum: a product within \"%.80s\" would have more than %d "
                                     "axes; contract fewer operands at a time",
                                     s->text, TP_MAX_DIMS) };
    if (g.sum[0].n == 0) {
        const axes natural = joined(joined(g.batch[0], &g.m[0]), &g.n[0]);
        return multiply(s, t, out ? *out : natural);
    }
    const layout l = choose(s, t, later, out);
    const axes is = joined(joined(l.batch, &l.m), &l.n);
    const tp_tensor y = tp_matmul_t(s->T, flat(s, &t[l.first], &l, 0), l.side[0].transposed,
                                    flat(s, &t[1 - l.first], &l, 1), l.side[1].transposed);
    return (term){ tp_reshape(s->T, y, shape_of(s, &is)), is };
}

/* ---- all operands ---- */

/* The result's labels without the dropped axes of size 1. */
static axes needed(const tp_einsum_spec *s)
{
    axes a = { 0 };
    for (int i = 0; i < s->out.n; i++)
        if (s->size[s->out.label[i]] != 1) a.label[a.n++] = s->out.label[i];
    return a;
}

/* Adds `by` for each label of an operand. */
static void count(tp_einsum_spec *s, tp_tensor x, int by, int *later)
{
    const axes a = tp__einsum_next(s, x);
    for (int i = 0; i < a.n; i++)
        if (tp_dim(x, i) != 1) later[a.label[i]] += by;
}

tp_tensor tp_einsum_n(tp_tape *T, const char *spec, int n, const tp_tensor *x)
{
    tp_einsum_spec s;
    int later[TP_EINSUM_LABELS] = { 0 }; /* operands, and the output, that still need a label */
    if (!tp_ok(T)) return TP_FAILED;
    if (n < 1) return tp__fail(T, TP_E_VALUE, "einsum: at least one tensor is needed");
    if (!spec || !x)
        return tp__fail(T, TP_E_VALUE, "einsum: NULL was given in place of the %s",
                        spec ? "tensors" : "specification");
    for (int i = 0; i < n; i++)
        if (!tp__node(T, x[i], "operand of einsum")) return TP_FAILED;
    if (!tp__einsum_read(&s, T, spec, n, x)) return TP_FAILED;
    const axes out = needed(&s);
    tp_einsum_spec all = s, gone = s;
    for (int i = 0; i < out.n; i++) later[out.label[i]]++;
    for (int i = 0; i < n; i++) count(&all, x[i], 1, later);
    count(&gone, x[0], -1, later);
    term y = operand(&s, x[0]);
    if (n == 1) y = summed(T, y, &(axes){ 0 }, later);
    for (int i = 1; i < n && tp_ok(T); i++) {
        count(&gone, x[i], -1, later);
        y = contract(&s, y, operand(&s, x[i]), later, i == n - 1 ? &out : NULL);
    }
    if (!tp_ok(T)) return TP_FAILED;
    return tp_reshape(T, moved(T, y, &out).x, shape_of(&s, &s.out));
}
