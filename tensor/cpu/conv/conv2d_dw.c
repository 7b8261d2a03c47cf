/* conv2d_dw.c - the weight gradient of a convolution, dW = dY^T X' (conv2d_tiles.h), in parts, each
 * of a range of tiles, which are added in order. */
#include "tensor/cpu/conv/conv2d_tiles.h"
#include "tensor/cpu/kit/bf16_rows.h"
#include "tensor/cpu/kit/real.h"

typedef struct dw_job {
    tp__conv2d_pass p;
    tp__conv2d_cut t;
    int64_t part; /* tiles of a part */
    tp__conv2d_types types;
    const tp_device *D;
    const char *x, *dy;
    real *parts; /* [parts][co][taps][ci of a group] */
    char *scratch;
    size_t thread;
} dw_job;

/* The rows of dY of a tile, channels of a group; widened into `room`, if necessary. */
static void rows_of_dy(const dw_job *s, const tile *a, int64_t group, char *room, tp_gemm_tile *t)
{
    const tp__conv2d_pass *p = &s->p;
    const int64_t at = made_at(p, a->first[0], a->first[1], a->first[2]) + group * p->to;
    t->lda = p->groups * p->to;
    t->a = s->dy + (size_t)at * gathering_of(s->types).stored;
    if (!s->types.widens) return;
    tp__widen_rows(s->D, t->a, t->lda, (float *)(void *)room, p->to, a->positions, p->to);
    t->a = room;
    t->lda = p->to;
}

/* A task computes, for one group and one part, the columns of dW of one chunk of taps. */
static void dw_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const dw_job *s = ctx;
    const tp__conv2d_pass *p = &s->p;
    const int64_t high = p->axis[0].taps, line = p->axis[1].taps * p->from;
    const tp__conv2d_scratch room = tp__conv2d_scratch_of(s->types, p, &s->t);
    const gathering e = gathering_of(s->types);
    char *scratch = s->scratch + (size_t)thread * s->thread;
    const void **at =
        in_place(s->types, &s->t) ? (const void **)(void *)(scratch + room.rows) : NULL;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % s->t.chunks * s->t.lines, group = i / s->t.chunks % p->groups;
        const int64_t last = first + s->t.lines < high ? first + s->t.lines : high;
        const int64_t part = i / s->t.chunks / p->groups, tiles = (part + 1) * s->part;
        tp_gemm_tile t = { .ta = true, .m = p->to, .b = scratch };
        t.n = t.ldb = (last - first) * line;
        t.ldc = high * line;
        t.c = s->parts + (part * p->groups + group) * p->to * t.ldc + first * line;
        t.work = scratch + room.product;
        t.rows = at;
        for (int64_t k = part * s->part; k < s->t.count && k < tiles; k++, t.add = true) {
            const tile a = tile_of(p, &s->t, k);
            gather_tile(p, &a, first, last, e, s->x + (size_t)(group * p->from) * e.stored, scratch,
                        at);
            t.k = a.positions;
            rows_of_dy(s, &a, group, scratch + room.dy, &t);
            multiply_in(s->types, &t);
        }
    }
}

/* dw[i * step] = or += sum[i] */
static void put_dw(const tp_view *dw, int64_t at, int64_t step, bool add, const real *sum,
                   int64_t n)
{
    if (is_bf16(dw)) {
        uint16_t *to = (uint16_t *)dw->data + at;
        for (int64_t i = 0; i < n; i++) {
            const float before = add ? tp__from_bf16(to[i * step]) : 0.0f;
            to[i * step] = tp__to_bf16(before + (float)sum[i]);
        }
        return;
    }
    real *to = (real *)dw->data + at;
    if (add)
        for (int64_t i = 0; i < n; i++) to[i * step] += sum[i];
    else
        for (int64_t i = 0; i < n; i++) to[i * step] = sum[i];
}

/* dw[o][i][tap] = or += the sum of the parts [o][tap][i], for outputs o. */
static void dw_rows(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__conv2d g = tp__conv2d_call(c);
    const tp__conv2d_pass p = tp__conv2d_forward(&g);
    const tp__conv2d_cut cut = tp__conv2d_cut_of(&p);
    const tp__conv2d_room room = tp__conv2d_room_of(types_of(c), &g, true, c->dev->threads);
    const int64_t parts = tp__conv2d_parts(&p, &cut), taps = p.axis[0].taps * p.axis[1].taps;
    const int64_t n = taps * p.from;
    const bool add = c->add >> 1 & 1u;
    const size_t bytes = (size_t)n * tp_dtype_size(c->dx[1].dtype);
    real *all = (real *)((char *)c->work + room.dw);
    (void)thread;
    for (int64_t o = begin; o < end; o++) {
        real *sum = all + o * n;
        if (parts == 0 && !add) memset((char *)c->dx[1].data + (size_t)o * bytes, 0, bytes);
        for (int64_t k = 1; k < parts; k++)
            for (int64_t i = 0; i < n; i++) sum[i] += all[(k * g.co + o) * n + i];
        for (int64_t k = 0; parts > 0 && k < taps; k++, sum += p.from)
            put_dw(&c->dx[1], o * n + k, taps, add, sum, p.from);
    }
}

void TP_KERNEL_FN(conv2d_dw)(const tp_call *c, const tp__conv2d *g);
void TP_KERNEL_FN(conv2d_dw)(const tp_call *c, const tp__conv2d *g)
{
    const tp__conv2d_room room = tp__conv2d_room_of(types_of(c), g, true, c->dev->threads);
    dw_job s = { .p = tp__conv2d_forward(g),
                 .types = types_of(c),
                 .D = c->dev,
                 .x = c->x[0].data,
                 .dy = c->dy[0].data,
                 .parts = (real *)((char *)c->work + room.dw),
                 .scratch = (char *)c->work + room.threads,
                 .thread = room.thread };
    s.t = tp__conv2d_cut_of(&s.p);
    s.part = tp__conv2d_part(&s.p, &s.t);
    const int64_t tasks = tp__conv2d_parts(&s.p, &s.t) * s.p.groups * s.t.chunks;
    const double work = (double)(s.part * s.t.positions) * (double)(s.t.depth * s.p.to);
    tp__parallel(c->dev, tasks, grain_of(work), dw_tasks, &s);
    tp__for(c, g->co, 4, dw_rows);
}
