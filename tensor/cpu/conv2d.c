/* conv2d.c - convolutions of channels-last images, and their gradients, as matrix products.
 *
 *     Y = X' W' + b     dX = dY' W''     dW = dY^T X'     db = sum of the rows of dY
 *
 * X' has a row for each output, of what its taps read; dY' the same for each input (conv2d.h).
 * Neither exists as a whole: a task takes some columns of a tile of rows and adds their product
 * with the weights, laid out for it once in each call. What a row of taps reads often lies together
 * in the image: then the product reads it there, and only lines over an edge are gathered, else all
 * of them, into L2 (so at the baseline, where the product is OpenBLAS's). 1 x 1 convolutions are
 * products of X as it lies. */
#include "tensor/cpu/kit/add_blocks.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/transpose.h"
#include "tensor/geometry/conv2d_cut.h"
#include "tensor/geometry/row_blocks.h"
#include "tensor/kernel.h"

/* Positions of a tile: images, rows and columns from `first` on. */
typedef struct tile {
    int64_t first[3], size[3], positions;
} tile;

static tile tile_of(const tp__conv2d_pass *p, const tp__conv2d_cut *t, int64_t i)
{
    const int64_t most[3] = { p->batch, p->axis[0].count, p->axis[1].count };
    const int64_t step[3] = { t->images, t->rows, t->cols };
    tile a = { .positions = 1 };
    for (int k = 2; k >= 0; k--) {
        a.first[k] = i % t->tiles[k] * step[k];
        a.size[k] = most[k] - a.first[k] < step[k] ? most[k] - a.first[k] : step[k];
        a.positions *= a.size[k];
        i /= t->tiles[k];
    }
    return a;
}

/* Element of the image where a tile's position (image, row, column) is made. */
static int64_t made_at(const tp__conv2d_pass *p, int64_t image, int64_t row, int64_t col)
{
    const tp__conv2d_span *h = &p->axis[0], *w = &p->axis[1];
    const int64_t at = (image * h->to + h->at + row * h->step) * w->to + w->at + col * w->step;
    return at * p->groups * p->to;
}

/* Multiply-adds that a task should have. */
#define MIN_WORK 1.0e6

static int64_t grain_of(double work)
{
    return work < MIN_WORK ? (int64_t)(MIN_WORK / (work + 1.0)) : 1;
}

#ifndef TP_BASELINE
void TP_KERNEL_FN(gemm_tile)(const tp_gemm_tile *t);
void TP_KERNEL_FN(gemm_pack)(const tp_gemm_tile *t, real *to);
#define OWN_PRODUCT true
#else
#define OWN_PRODUCT false
#endif

static void multiply(const tp_gemm_tile *t)
{
#ifdef TP_BASELINE
    tp__gemm(REAL, t->ta, t->tb, t->m, t->n, t->k, 1.0, t->a, t->lda, t->b, t->ldb, t->add, t->c,
             t->ldc);
#else
    TP_KERNEL_FN(gemm_tile)(t);
#endif
}

static void pack(const tp_gemm_tile *t, real *to)
{
#ifdef TP_BASELINE
    (void)t, (void)to;
#else
    TP_KERNEL_FN(gemm_pack)(t, to);
#endif
}

/* ---- gathering ---- */

/* What the taps of a row read: `taps` pieces of n channels, `hop` positions apart, from position
 * `at` of a row of w. */
static void gather_line(const tp__conv2d_pass *p, const real *row, int64_t at, real *to)
{
    const tp__conv2d_span *w = &p->axis[1];
    const int64_t n = p->from, pitch = p->groups * n, step = w->hop * pitch;
    int64_t t = 0, end = w->taps;
    for (; t < end && at + t * w->hop < 0; t++) memset(to + t * n, 0, (size_t)n * sizeof *to);
    for (; end > t && at + (end - 1) * w->hop >= w->size; end--)
        memset(to + (end - 1) * n, 0, (size_t)n * sizeof *to);
    if (t == end) return;
    row += at * pitch + t * step;
    if (step == n)
        memcpy(to + t * n, row, (size_t)((end - t) * n) * sizeof *to);
    else
        for (; t < end; t++, row += step) memcpy(to + t * n, row, (size_t)n * sizeof *to);
}

/* What rows of taps [first, last) read for the positions of a tile: [positions][taps][channels].
 * at: one row of taps, which is read where it lies if it lies together; where, for each position.
 */
static void gather_tile(const tp__conv2d_pass *p, const tile *a, int64_t first, int64_t last,
                        const real *from, real *to, const void **at)
{
    const tp__conv2d_span *h = &p->axis[0], *w = &p->axis[1];
    const int64_t line = w->taps * p->from, step = p->groups * p->from, pitch = w->size * step;
    if (line == 0) return; /* without channels there may be no map either */
    for (int64_t b = a->first[0]; b < a->first[0] + a->size[0]; b++)
        for (int64_t j = a->first[1]; j < a->first[1] + a->size[1]; j++)
            for (int64_t i = a->first[2]; i < a->first[2] + a->size[2]; i++)
                for (int64_t t = first; t < last; t++, to += line) {
                    const int64_t row = h->from + j * h->move + t * h->hop;
                    const int64_t col = w->from + i * w->move;
                    if (at) *at++ = to;
                    if (row < 0 || row >= h->size) {
                        memset(to, 0, (size_t)line * sizeof *to);
                        continue;
                    }
                    const real *lies = from + (b * h->size + row) * pitch;
                    if (at && col >= 0 && col + w->taps <= w->size)
                        at[-1] = lies + col * step;
                    else
                        gather_line(p, lies, col, to);
                }
}

/* ---- a pass ---- */

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
} pass_job;

/* Channels j .. j + n of the positions of a tile, by way of `sums` where they do not lie together.
 */
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

/* Where the panels begin that meet channels j.. of a group and rows of taps from `first` on. */
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
        memcpy(to + r * Co, s->bias + group * p->to + j, (size_t)n * sizeof *to);
    for (int64_t first = 0; first < taps; first += s->t.lines, t.add = true) {
        const int64_t last = first + s->t.lines < taps ? first + s->t.lines : taps;
        gather_tile(p, a, first, last, s->from + group * p->from, gathered, at);
        t.k = t.lda = (last - first) * line;
        t.b = s->w + (group * taps + first) * line * p->to + j;
        t.panels = s->panels ? s->panels + panel_at(s, group, j, first) : NULL;
        multiply(&t);
    }
    if (!dense) put_tile(s, a, group * p->to + j, n, sums);
}

/* A task is some channels of a group, of a tile. */
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

/* Which of the kernel's taps is tap t of the pass? */
static int64_t tap_of(const weight_job *s, int64_t t)
{
    const tp__conv2d_span *h = &s->pass->p.axis[0], *w = &s->pass->p.axis[1];
    return (h->tap + t / w->taps * h->next) * s->g->axis[1].taps + w->tap + t % w->taps * w->next;
}

/* Input channels [a, end) of a group of the convolution, all of whose taps lie in the same sets of
 * the cache: hence pieces of many outputs, by way of scratch memory. */
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

/* What a pass of dX reads, channels [a, end) of dY: of each the weights lie together. */
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

/* A task is what one chunk of taps gives to the channels of a task of the pass. */
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
        pack(&t, s->panels + panel_at(s, group, at, first));
    }
}

/* The weights of a pass, as its products take them. */
static void prepare(const tp_call *c, const tp__conv2d *g, pass_job *s, real *panels)
{
    lay_weights(c, g, s);
    if (!OWN_PRODUCT) return;
    s->panels = panels;
    tp__parallel(c->dev, s->p.groups * s->t.widths * s->t.chunks, 1, pack_tasks, s);
}

/* ---- forward ---- */

static tp__conv2d conv_of(const tp_call *c)
{
    return tp__conv2d_of(c->attr, &c->x[0], &c->x[1]);
}

static void add_bias(const void *ctx, int64_t i, int64_t j, int64_t m, int64_t n)
{
    const tp_call *c = ctx;
    const int64_t Co = c->x[1].dim[0];
    const real *b = c->x[2].data;
    for (int64_t r = i; b && r < i + m; r++) {
        real *y = (real *)c->y[0].data + r * Co;
        for (int64_t k = j; k < j + n; k++) y[k] += b[k];
    }
}

static tp_code conv2d_fwd(const tp_call *c)
{
    const tp__conv2d g = conv_of(c);
    const tp__conv2d_room room = tp__conv2d_room_of(REAL, &g, false, c->dev->threads);
    if (c->y[0].numel == 0) return TP_OK;
    if (tp__conv2d_is_product(&g)) {
        /* clang-format off */
        tp__gemm_parallel(c->dev, &(tp_gemm){
            .dtype = REAL, .m = c->y[0].numel / g.co, .n = g.co, .k = g.ci, .batch = 1,
            .a = c->x[0].data, .lda = g.ci, .b = c->x[1].data, .ldb = g.ci, .tb = true,
            .c = c->y[0].data, .ldc = g.co, .work = c->work, .done = add_bias, .ctx = c });
        /* clang-format on */
        return TP_OK;
    }
    pass_job s = { .p = tp__conv2d_forward(&g),
                   .from = c->x[0].data,
                   .w = c->work,
                   .bias = c->x[2].data,
                   .to = c->y[0].data,
                   .scratch = (char *)c->work + room.threads,
                   .thread = room.thread };
    s.t = tp__conv2d_cut_of(&s.p);
    prepare(c, &g, &s, (real *)((char *)c->work + room.panels));
    run_pass(c, &s);
    return TP_OK;
}

/* ---- backward ---- */

static void dx(const tp_call *c, const tp__conv2d *g, const tp__conv2d_room *room)
{
    const bool add = c->add & 1u;
    bool bare = false; /* does a position meet no tap? */
    for (int64_t k = 0; k < tp__conv2d_phases(g); k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(g, k);
        bare |= tp__conv2d_weights(&p) == 0;
    }
    if (bare && !add) memset(c->dx[0].data, 0, (size_t)c->dx[0].numel * sizeof(real));
    for (int64_t k = 0; k < tp__conv2d_phases(g); k++) {
        pass_job s = { .p = tp__conv2d_backward(g, k),
                       .from = c->dy[0].data,
                       .w = c->work,
                       .to = c->dx[0].data,
                       .add = add,
                       .scratch = (char *)c->work + room->threads,
                       .thread = room->thread };
        if (tp__conv2d_weights(&s.p) == 0) continue;
        s.t = tp__conv2d_cut_of(&s.p);
        prepare(c, g, &s, (real *)((char *)c->work + room->panels));
        run_pass(c, &s);
    }
}

typedef struct dw_job {
    tp__conv2d_pass p;
    tp__conv2d_cut t;
    int64_t part; /* tiles of a part */
    const real *x, *dy;
    real *parts; /* [parts][co][taps][ci of a group] */
    char *scratch;
    size_t thread;
} dw_job;

/* A task is one part of the columns of dW that one chunk of taps gives, for one group. */
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
            multiply(&t);
        }
    }
}

/* dw[o][i][tap] = or += the sum of the parts [o][tap][i], for outputs o. */
static void dw_rows(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__conv2d g = conv_of(c);
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

static void dw(const tp_call *c, const tp__conv2d *g, const tp__conv2d_room *room)
{
    dw_job s = { .p = tp__conv2d_forward(g),
                 .x = c->x[0].data,
                 .dy = c->dy[0].data,
                 .parts = (real *)((char *)c->work + room->dw),
                 .scratch = (char *)c->work + room->threads,
                 .thread = room->thread };
    s.t = tp__conv2d_cut_of(&s.p);
    s.part = tp__conv2d_part(&s.p, &s.t);
    const int64_t tasks = tp__conv2d_parts(&s.p, &s.t) * s.p.groups * s.t.chunks;
    const double work = (double)(s.part * s.t.positions) * (double)(s.t.depth * s.p.to);
    tp__parallel(c->dev, tasks, grain_of(work), dw_tasks, &s);
    tp__for(c, g->co, 4, dw_rows);
}

/* dX = dY W (to = 0) or dW = dY^T X (to = 1), of a 1 x 1 convolution. */
static void product(const tp_call *c, const tp__conv2d *g, int to)
{
    const int64_t rows = g->batch * g->axis[0].out * g->axis[1].out;
    /* clang-format off */
    tp__gemm_parallel(c->dev, &(tp_gemm){
        .dtype = REAL, .m = to ? g->co : rows, .n = g->ci, .k = to ? rows : g->co, .batch = 1,
        .a = c->dy[0].data, .lda = g->co, .ta = to == 1,
        .b = c->x[1 - to].data, .ldb = g->ci, .add = c->add >> to & 1u,
        .c = c->dx[to].data, .ldc = g->ci, .work = c->work });
    /* clang-format on */
}

static void db_blocks(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__conv2d g = conv_of(c);
    const int64_t rows = g.batch * g.axis[0].out * g.axis[1].out, size = tp__block_rows(rows);
    const tp__conv2d_room room = tp__conv2d_room_of(REAL, &g, true, c->dev->threads);
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        real *part = (real *)((char *)c->work + room.db) + k * g.co;
        memset(part, 0, (size_t)g.co * sizeof *part);
        for (int64_t r = k * size; r < rows && r < (k + 1) * size; r++) {
            const real *dy = (const real *)c->dy[0].data + r * g.co;
            for (int64_t i = 0; i < g.co; i++) part[i] += dy[i];
        }
    }
}

static tp_code conv2d_bwd(const tp_call *c)
{
    const tp__conv2d g = conv_of(c);
    const tp__conv2d_room room = tp__conv2d_room_of(REAL, &g, true, c->dev->threads);
    const int64_t blocks = tp__row_blocks(g.batch * g.axis[0].out * g.axis[1].out);
    const bool is_product = tp__conv2d_is_product(&g);
    if (c->dx[0].data && is_product) product(c, &g, 0);
    if (c->dx[0].data && !is_product) dx(c, &g, &room);
    if (c->dx[1].data && is_product) product(c, &g, 1);
    if (c->dx[1].data && !is_product) dw(c, &g, &room);
    if (!c->dx[2].data) return TP_OK;
    tp__for(c, blocks, 1, db_blocks);
    tp__add_blocks(c->dx[2].data, c->add >> 2 & 1u, g.co, (real *)((char *)c->work + room.db),
                   blocks, g.co);
    return TP_OK;
}

TP_CPU_KERNEL(conv2d_fwd)
TP_CPU_KERNEL(conv2d_bwd)
