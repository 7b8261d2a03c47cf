/* conv2d_dw.c - the weight gradient of a convolution, dW = dY^T X' (kit/conv2d_tiles.h), in parts, each
 * of a range of tiles, which are added in order. */
#include "tensor/cpu/kit/conv2d_tiles.h"
#include "tensor/cpu/kit/real.h"

typedef struct dw_job {
    tp__conv2d_pass p;
    tp__conv2d_cut t;
    int64_t part; /* tiles of a part */
    const real *x, *dy;
    real *parts; /* [parts][co][taps][ci of a group] */
    char *scratch;
    size_t thread;
    bool bf16; /* products are those of gemm_bf16.c */
} dw_job;

/* A task computes, for one group and one part, the columns of dW of one chunk of taps. */
static void dw_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const dw_job *s = ctx;
    const tp__conv2d_pass *p = &s->p;
    const int64_t high = p->axis[0].taps, line = p->axis[1].taps * p->from, Co = p->groups * p->to;
    char *scratch = s->scratch + (size_t)thread * s->thread;
    real *gathered = (real *)scratch;
    const void **at = OWN_PRODUCT && s->t.direct ? tp__conv2d_rows(REAL, &s->t, scratch) : NULL;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % s->t.chunks * s->t.lines, group = i / s->t.chunks % p->groups;
        const int64_t last = first + s->t.lines < high ? first + s->t.lines : high;
        const int64_t part = i / s->t.chunks / p->groups, tiles = (part + 1) * s->part;
        tp_gemm_tile t = { .ta = true, .m = p->to, .lda = Co, .b = gathered };
        t.n = t.ldb = (last - first) * line;
        t.ldc = high * line;
        t.c = s->parts + (part * Co + group * p->to) * t.ldc + first * line;
        t.work = gathered + tp__conv2d_gathered(REAL, &s->t);
        t.rows = at;
        for (int64_t k = part * s->part; k < s->t.count && k < tiles; k++, t.add = true) {
            const tile a = tile_of(p, &s->t, k);
            gather_tile(p, &a, first, last, s->x + group * p->from, gathered, at);
            t.k = a.positions;
            t.a = s->dy + made_at(p, a.first[0], a.first[1], a.first[2]) + group * p->to;
            multiply_in(s->bf16, &t);
        }
    }
}

/* dw[o][i][tap] = or += the sum of the parts [o][tap][i], for outputs o. */
static void dw_rows(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__conv2d g = tp__conv2d_call(c);
    const tp__conv2d_pass p = tp__conv2d_forward(&g);
    const tp__conv2d_cut cut = tp__conv2d_cut_of(&p);
    const tp__conv2d_room room = tp__conv2d_room_of(REAL, &g, true, c->dev->threads);
    const int64_t parts = tp__conv2d_parts(&p, &cut), taps = p.axis[0].taps * p.axis[1].taps;
    const int64_t n = taps * p.from;
    real *all = (real *)((char *)c->work + room.dw);
    (void)thread;
    for (int64_t o = begin; o < end; o++) {
        real *sum = all + o * n, *dw = (real *)c->dx[1].data + o * n;
        if (parts == 0 && !(c->add >> 1 & 1u)) memset(dw, 0, (size_t)n * sizeof *dw);
        for (int64_t k = 1; k < parts; k++)
            for (int64_t i = 0; i < n; i++) sum[i] += all[(k * g.co + o) * n + i];
        for (int64_t k = 0; parts > 0 && k < taps; k++, sum += p.from)
            if (c->add >> 1 & 1u)
                for (int64_t i = 0; i < p.from; i++) dw[i * taps + k] += sum[i];
            else
                for (int64_t i = 0; i < p.from; i++) dw[i * taps + k] = sum[i];
    }
}

void TP_KERNEL_FN(conv2d_dw)(const tp_call *c, const tp__conv2d *g);
void TP_KERNEL_FN(conv2d_dw)(const tp_call *c, const tp__conv2d *g)
{
    const tp__conv2d_room room = tp__conv2d_room_of(REAL, g, true, c->dev->threads);
    dw_job s = { .p = tp__conv2d_forward(g),
                 .x = c->x[0].data,
                 .dy = c->dy[0].data,
                 .parts = (real *)((char *)c->work + room.dw),
                 .scratch = (char *)c->work + room.threads,
                 .thread = room.thread };
    s.t = tp__conv2d_cut_of(&s.p);
    s.bf16 = in_bf16(c, &s.p, &s.t);
    s.part = tp__conv2d_part(&s.p, &s.t);
    const int64_t tasks = tp__conv2d_parts(&s.p, &s.t) * s.p.groups * s.t.chunks;
    const double work = (double)(s.part * s.t.positions) * (double)(s.t.depth * s.p.to);
    tp__parallel(c->dev, tasks, grain_of(work), dw_tasks, &s);
    tp__for(c, g->co, 4, dw_rows);
}
