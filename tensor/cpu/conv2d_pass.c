/* conv2d_pass.c - one pass of a convolution: Y, or the part of dX of one remainder of positions by the
 * stride (tensor/geometry/conv2d.h). The weights are laid out for its products once in each call. */
#include "tensor/cpu/kit/conv2d_tiles.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/transpose.h"

#ifndef TP_BASELINE
void TP_KERNEL_FN(gemm_pack)(const tp_gemm_tile *t, real *to);
#endif
#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
void TP_KERNEL_FN(gemm_pack_bf16)(const tp_gemm_tile *t, real *to);
#endif

static inline void pack(bool bf16, const tp_gemm_tile *t, real *to)
{
    (void)bf16;
#ifdef TP_BASELINE
    (void)t, (void)to;
#else
#if defined(__AVX512BW__) && TP_REAL == 32
    if (bf16) {
        TP_KERNEL_FN(gemm_pack_bf16)(t, to);
        return;
    }
#endif
    TP_KERNEL_FN(gemm_pack)(t, to);
#endif
}

typedef struct pass_job {
    tp__conv2d_pass p;
    tp__conv2d_cut t;
    const real *from;
    real *w;          /* [groups][taps][from][to]                                    */
    real *panels;     /* or NULL: w packed, [groups][channels of a task][chunks]     */
    const real *bias; /* or NULL */
    real *to;
    bool add;
    char *scratch; /* of all threads */
    size_t thread; /* bytes of one   */
    bool bf16;     /* products are those of gemm_bf16.c */
} pass_job;

/* Stores channels j .. j + n of the positions of a tile, which are not contiguous, from `sums`. */
static void put_tile(const pass_job *s, const tile *a, int64_t channel, int64_t n, const real *sums)
{
    for (int64_t b = 0; b < a->size[0]; b++)
        for (int64_t j = 0; j < a->size[1]; j++)
            for (int64_t i = 0; i < a->size[2]; i++, sums += n) {
                real *to = s->to + channel +
                           made_at(&s->p, a->first[0] + b, a->first[1] + j, a->first[2] + i);
                if (s->add)
                    for (int64_t k = 0; k < n; k++) to[k] += sums[k];
                else
                    memcpy(to, sums, (size_t)n * sizeof *to);
            }
}

/* Offset of the panels for channels j .. of a group and rows of taps from `first` on. */
static int64_t panel_at(const pass_job *s, int64_t group, int64_t j, int64_t first)
{
    const tp__conv2d_pass *p = &s->p;
    const int64_t task = group * s->t.widths + j / s->t.width, line = p->axis[1].taps * p->from;
    return tp__gemm_panels(REAL, (task * p->axis[0].taps + first) * line, s->t.width);
}

static void pass_task(const pass_job *s, const tile *a, int64_t group, int64_t j, int64_t n,
                      char *scratch)
{
    const tp__conv2d_pass *p = &s->p;
    const int64_t taps = p->axis[0].taps, line = p->axis[1].taps * p->from, Co = p->groups * p->to;
    const bool dense = tp__conv2d_dense(p);
    real *gathered = (real *)scratch, *sums = gathered + tp__conv2d_gathered(REAL, &s->t);
    const void **at = OWN_PRODUCT && s->t.direct ? tp__conv2d_rows(REAL, &s->t, scratch) : NULL;
    real *to = dense ? s->to + made_at(p, a->first[0], a->first[1], a->first[2]) + group * p->to + j
                     : sums;
    tp_gemm_tile t = {
        .m = a->positions, .n = n, .a = gathered, .ldb = p->to, .c = to, .rows = at
    };
    t.ldc = dense ? Co : n;
    t.add = (dense && s->add) || s->bias;
    t.work = p->back ? sums + tp__conv2d_whole(s->t.positions * s->t.width) : sums;
    for (int64_t r = 0; s->bias && r < a->positions; r++)
        memcpy(to + r * t.ldc, s->bias + group * p->to + j, (size_t)n * sizeof *to);
    for (int64_t first = 0; first < taps; first += s->t.lines, t.add = true) {
        const int64_t last = first + s->t.lines < taps ? first + s->t.lines : taps;
        gather_tile(p, a, first, last, s->from + group * p->from, gathered, at);
        t.k = t.lda = (last - first) * line;
        t.b = s->w + (group * taps + first) * line * p->to + j;
        t.panels = s->panels ? s->panels + panel_at(s, group, j, first) : NULL;
        multiply_in(s->bf16, &t);
    }
    if (!dense) put_tile(s, a, group * p->to + j, n, sums);
}

/* A task computes some channels of a group, for a tile. */
static void pass_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const pass_job *s = ctx;
    for (int64_t i = begin; i < end; i++) {
        const int64_t j = i % s->t.widths * s->t.width, left = s->p.to - j;
        const int64_t group = i / s->t.widths % s->p.groups;
        const tile a = tile_of(&s->p, &s->t, i / s->t.widths / s->p.groups);
        pass_task(s, &a, group, j, left < s->t.width ? left : s->t.width,
                  s->scratch + (size_t)thread * s->thread);
    }
}

static void run_pass(const tp_call *c, const pass_job *s)
{
    const double work = (double)s->t.positions * (double)s->t.width *
                        (double)(s->p.axis[0].taps * s->p.axis[1].taps * s->p.from);
    tp__parallel(c->dev, s->t.count * s->p.groups * s->t.widths, grain_of(work), pass_tasks, s);
}

/* ---- weights ---- */

typedef struct weight_job {
    const tp__conv2d *g;
    const pass_job *pass;
    const real *w; /* [co][ci of a group][taps] */
} weight_job;

/* The tap of the kernel that is tap t of the pass. */
static int64_t tap_of(const weight_job *s, int64_t t)
{
    const tp__conv2d_span *h = &s->pass->p.axis[0], *w = &s->pass->p.axis[1];
    return (h->tap + t / w->taps * h->next) * s->g->axis[1].taps + w->tap + t % w->taps * w->next;
}

/* Lays out input channels [a, end) of a group for the forward pass. Their taps share cache sets, so
 * pieces of many outputs are transposed by way of scratch memory. */
static void lay_forward(const weight_job *s, const real *from, int64_t a, int64_t end,
                        real *scratch, real *to)
{
    const tp__conv2d_pass *p = &s->pass->p;
    const int64_t taps = p->axis[0].taps * p->axis[1].taps, size = p->from * taps;
    for (int64_t b = 0; b < p->to; b += TP_CONV_WIDTH) {
        const int64_t n = p->to - b < TP_CONV_WIDTH ? p->to - b : TP_CONV_WIDTH;
        transpose(from + b * size + a * taps, size, n, (end - a) * taps, scratch, n);
        for (int64_t t = 0; t < taps; t++)
            for (int64_t k = a; k < end; k++)
                memcpy(to + (t * p->from + k) * p->to + b, scratch + ((k - a) * taps + t) * n,
                       (size_t)n * sizeof *to);
    }
}

/* Lays out channels [a, end) of dY for a pass of dX; the weights of each are contiguous. */
static void lay_back(const weight_job *s, const real *from, int64_t a, int64_t end, real *to)
{
    const tp__conv2d_pass *p = &s->pass->p;
    const int64_t taps = s->g->axis[0].taps * s->g->axis[1].taps;
    for (int64_t k = a; k < end; k++)
        for (int64_t t = 0; t < p->axis[0].taps * p->axis[1].taps; t++) {
            const real *w = from + k * p->to * taps + tap_of(s, t);
            real *row = to + (t * p->from + k) * p->to;
            for (int64_t i = 0; i < p->to; i++) row[i] = w[i * taps];
        }
}

static void lay_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const weight_job *s = ctx;
    const tp__conv2d_pass *p = &s->pass->p;
    const int64_t of_group = s->g->co / p->groups * (s->g->ci / p->groups);
    const int64_t tasks = tp__ceil_div(p->from, TP_CONV_LAID), laid = tp__conv2d_weights(p);
    real *scratch = (real *)(s->pass->scratch + (size_t)thread * s->pass->thread);
    for (int64_t i = begin; i < end; i++) {
        const int64_t group = i / tasks, a = i % tasks * TP_CONV_LAID;
        const int64_t last = a + TP_CONV_LAID < p->from ? a + TP_CONV_LAID : p->from;
        const real *from = s->w + group * of_group * s->g->axis[0].taps * s->g->axis[1].taps;
        real *to = s->pass->w + group * (laid / p->groups);
        if (p->back)
            lay_back(s, from, a, last, to);
        else
            lay_forward(s, from, a, last, scratch, to);
    }
}

static void lay_weights(const tp_call *c, const tp__conv2d *g, const pass_job *pass)
{
    const weight_job s = { g, pass, c->x[1].data };
    const tp__conv2d_pass *p = &pass->p;
    const int64_t work = TP_CONV_LAID * p->to * p->axis[0].taps * p->axis[1].taps;
    tp__parallel(c->dev, p->groups * tp__ceil_div(p->from, TP_CONV_LAID), 16384 / (work + 1),
                 lay_tasks, &s);
}

/* A task packs the weights of one chunk of taps for the channels of a task of the pass. */
static void pack_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const pass_job *s = ctx;
    const tp__conv2d_pass *p = &s->p;
    const int64_t taps = p->axis[0].taps, line = p->axis[1].taps * p->from;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % s->t.chunks * s->t.lines, j = i / s->t.chunks % s->t.widths;
        const int64_t group = i / s->t.chunks / s->t.widths, at = j * s->t.width;
        tp_gemm_tile t = { .b = s->w + (group * taps + first) * line * p->to + at, .ldb = p->to };
        t.n = p->to - at < s->t.width ? p->to - at : s->t.width;
        t.k = (taps - first < s->t.lines ? taps - first : s->t.lines) * line;
        pack(s->bf16, &t, s->panels + panel_at(s, group, at, first));
    }
}

/* Lays out the weights of a pass, and packs them for its products. */
static void prepare(const tp_call *c, const tp__conv2d *g, pass_job *s, real *panels)
{
    lay_weights(c, g, s);
    if (!OWN_PRODUCT) return;
    s->panels = panels;
    tp__parallel(c->dev, s->p.groups * s->t.widths * s->t.chunks, 1, pack_tasks, s);
}

void TP_KERNEL_FN(conv2d_pass)(const tp_call *c, const tp__conv2d *g, const tp__conv2d_pass *p,
                               const real *from, const real *bias, real *to, bool add);
void TP_KERNEL_FN(conv2d_pass)(const tp_call *c, const tp__conv2d *g, const tp__conv2d_pass *p,
                               const real *from, const real *bias, real *to, bool add)
{
    const tp__conv2d_room room = tp__conv2d_room_of(REAL, g, p->back, c->dev->threads);
    pass_job s = { .p = *p,
                   .t = tp__conv2d_cut_of(p),
                   .from = from,
                   .w = c->work,
                   .bias = bias,
                   .to = to,
                   .add = add,
                   .scratch = (char *)c->work + room.threads,
                   .thread = room.thread };
    s.bf16 = in_bf16(c, p, &s.t);
    prepare(c, g, &s, (real *)((char *)c->work + room.panels));
    run_pass(c, &s);
}
