/* conv2d.c - convolutions of channels-last images, and their gradients, as matrix products.
 *
 *     Y = X' W' + b     dX = dY' W''     dW = dY^T X'     db = sum of the rows of dY
 *
 * conv2d_pass.c computes Y and dX tile by tile (conv2d.h). dW is summed in parts, each over a range
 * of tiles, which are added in order. 1 x 1 convolutions are products with X itself. A transposed
 * convolution is dX of another one. With ReLU and a residual R, Y = relu(X' W' + b + R), backward
 * starts from dR = dY where Y > 0, else 0. */
#include "cpu/conv/conv2d.h"
#include "cpu/kit/real.h"
#include "cpu/kit/row_blocks.h"
#include "tensor/bf16.h"
#include "tensor/kernel.h"

void TP_KERNEL_FN(conv2d_pass)(const tp_call *c, const tp__conv2d *g, const tp__conv2d_pass *p,
                               const tp_view *from, const finish *f, const tp_view *to, bool add);

/* ---- forward ---- */

static void finish_tile(const void *ctx, void *z, int64_t ldz, int64_t i, int64_t j, int64_t m,
                        int64_t n)
{
    const finish *f = ctx;
    for (int64_t r = 0; r < m; r++)
        finish_row(f, (i + r) * f->channels + j, j, n, (real *)z + r * ldz);
}

/* For `channels` channels, with a call's bias. */
static finish with_bias(const tp_call *c, int64_t channels)
{
    return (finish){ .bias = if_given(&c->x[2]), .channels = channels };
}

/* Y = or += X' W', finished */
static void convolve(const tp_call *c, const tp__conv2d *g, const finish *f, bool add)
{
    if (c->y[0].numel == 0) return;
    if (tp__conv2d_is_product(g)) {
        tp__gemm_parallel(c->dev, &(tp_gemm){ .dtype = stored_dtype(c),
                                              .c_dtype = c->y[0].dtype,
                                              .m = c->y[0].numel / g->co,
                                              .n = g->co,
                                              .k = g->ci,
                                              .batch = 1,
                                              .a = c->x[0].data,
                                              .lda = g->ci,
                                              .b = c->x[1].data,
                                              .ldb = g->ci,
                                              .tb = true,
                                              .add = add,
                                              .c = c->y[0].data,
                                              .ldc = g->co,
                                              .work = c->work,
                                              .done = finish_tile,
                                              .ctx = f });
        return;
    }
    const tp__conv2d_pass p = tp__conv2d_forward(g);
    TP_KERNEL_FN(conv2d_pass)(c, g, &p, &c->x[0], f, &c->y[0], add);
}

static tp_code conv2d_fwd(const tp_call *c)
{
    const tp__conv2d g = tp__conv2d_call(c);
    const finish f = with_bias(c, g.co);
    convolve(c, &g, &f, false);
    return TP_OK;
}

/* ---- backward ---- */

/* Sets all positions of dX to the bias, or 0. */
static void fill(const tp_view *dx, const finish *f)
{
    const size_t size = tp_dtype_size(dx->dtype), bytes = (size_t)f->channels * size;
    char *to = dx->data;
    if (!f->bias) memset(to, 0, (size_t)dx->numel * size); /* a bias is stored like dX */
    for (int64_t i = 0; f->bias && i < dx->numel; i += f->channels, to += bytes)
        memcpy(to, f->bias->data, bytes);
}

/* dX = or += dY' W'', finished */
static void dx_passes(const tp_call *c, const tp__conv2d *g, const finish *f)
{
    const bool add = c->add & 1u;
    bool bare = false; /* some position has no tap */
    for (int64_t k = 0; k < tp__conv2d_phases(g); k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(g, k);
        bare |= tp__conv2d_weights(&p) == 0;
    }
    if (bare && !add) fill(&c->dx[0], f);
    for (int64_t k = 0; k < tp__conv2d_phases(g); k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(g, k);
        if (tp__conv2d_weights(&p) > 0)
            TP_KERNEL_FN(conv2d_pass)(c, g, &p, &c->dy[0], f, &c->dx[0], add);
    }
}

/* dX = dY W (to = 0) or dW = dY^T X (to = 1), of a 1 x 1 convolution. */
static void product(const tp_call *c, const tp__conv2d *g, int to, const finish *f)
{
    const int64_t rows = g->batch * g->axis[0].out * g->axis[1].out;
    tp__gemm_parallel(c->dev, &(tp_gemm){ .dtype = stored_dtype(c),
                                          .c_dtype = c->dx[to].dtype,
                                          .m = to ? g->co : rows,
                                          .n = g->ci,
                                          .k = to ? rows : g->co,
                                          .batch = 1,
                                          .a = c->dy[0].data,
                                          .lda = g->co,
                                          .ta = to == 1,
                                          .b = c->x[1 - to].data,
                                          .ldb = g->ci,
                                          .add = c->add >> to & 1u,
                                          .c = c->dx[to].data,
                                          .ldc = g->ci,
                                          .work = c->work,
                                          .done = f ? finish_tile : NULL,
                                          .ctx = f });
}

static void image_gradient(const tp_call *c, const tp__conv2d *g, const finish *f)
{
    if (tp__conv2d_is_product(g))
        product(c, g, 0, f->bias ? f : NULL);
    else
        dx_passes(c, g, f);
}

/* ---- dW ---- */

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

/* A group's channels of a tile's rows of dY, widened into `room` if necessary. */
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

/* A task computes the columns of dW of one chunk of taps, for one group and one part. */
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

/* dw[o][i][tap] = or += sum of the parts [o][tap][i], for outputs o. */
static void dw_rows(const tp_call *c, int64_t begin, int64_t end)
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
    for (int64_t o = begin; o < end; o++) {
        real *sum = all + o * n;
        if (parts == 0 && !add) memset((char *)c->dx[1].data + (size_t)o * bytes, 0, bytes);
        for (int64_t k = 1; k < parts; k++)
            for (int64_t i = 0; i < n; i++) sum[i] += all[(k * g.co + o) * n + i];
        for (int64_t k = 0; parts > 0 && k < taps; k++, sum += p.from)
            put_dw(&c->dx[1], o * n + k, taps, add, sum, p.from);
    }
}

static void weight_sums(const tp_call *c, const tp__conv2d *g)
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

static void weight_gradient(const tp_call *c, const tp__conv2d *g)
{
    if (tp__conv2d_is_product(g))
        product(c, g, 1, NULL);
    else
        weight_sums(c, g);
}

/* db: sums of the rows of dY by blocks of rows, in `parts`. */
typedef struct db_job {
    const tp_call *c;
    int64_t rows, co;
    real *parts;
} db_job;

static void db_blocks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const db_job *s = ctx;
    const int64_t size = tp__block_rows(s->rows);
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        real *part = s->parts + k * s->co;
        memset(part, 0, (size_t)s->co * sizeof *part);
        for (int64_t r = k * size; r < s->rows && r < (k + 1) * size; r++)
            for (int64_t j = 0; j < s->co; j += ROOM) {
                const int64_t n = s->co - j < ROOM ? s->co - j : ROOM;
                real room[ROOM];
                const real *dy = read_row(&s->c->dy[0], s->c->dy[0].data, r * s->co + j, n, room);
                for (int64_t i = 0; i < n; i++) part[j + i] += dy[i];
            }
    }
}

static void bias_gradient(const tp_call *c, size_t at)
{
    const int64_t co = c->dx[2].numel, rows = co > 0 ? c->dy[0].numel / co : 0;
    const int64_t blocks = tp__row_blocks(rows);
    const db_job s = { c, rows, co, (real *)((char *)c->work + at) };
    tp__parallel(c->dev, blocks, 1, db_blocks, &s);
    tp__add_blocks_to(&c->dx[2], c->add >> 2 & 1u, co, s.parts, blocks, co);
}

static tp_code conv2d_bwd(const tp_call *c)
{
    const tp__conv2d g = tp__conv2d_call(c);
    if (c->dx[0].data) image_gradient(c, &g, &(finish){ .channels = g.ci });
    if (c->dx[1].data) weight_gradient(c, &g);
    if (c->dx[2].data)
        bias_gradient(c, tp__conv2d_room_of(types_of(c), &g, true, c->dev->threads).db);
    return TP_OK;
}

static size_t conv2d_work(const tp_call *c)
{
    const tp__conv2d g = tp__conv2d_call(c);
    return tp__conv2d_room_of(types_of(c), &g, tp_is_backward(c), c->dev->threads).all;
}

/* ---- with ReLU and a residual ---- */

static tp_code conv2d_relu_fwd(const tp_call *c)
{
    const tp__conv2d g = tp__conv2d_call(c);
    finish f = with_bias(c, g.co);
    f.residual = if_given(&c->x[3]);
    f.relu = true;
    convolve(c, &g, &f, false);
    return TP_OK;
}

static void *dz_of(const tp_call *c)
{
    return (char *)c->work + tp__conv2d_line(conv2d_work(c));
}

/* dR = or += n numbers from `at` on. */
static void put_residual(const tp_call *c, int64_t at, int64_t n, const real *dz)
{
    const tp_view *dr = &c->dx[3];
    real room[ROOM], *to = row_at(dr, dr->data, at, room);
    const real *before = c->add >> 3 & 1u ? read_row(dr, dr->data, at, n, room) : NULL;
    for (int64_t i = 0; i < n; i++) to[i] = before ? before[i] + dz[i] : dz[i];
    put_row(dr, dr->data, at, n, to);
}

static void dz_rows(const tp_call *c, int64_t begin, int64_t end)
{
    void *const to = dz_of(c);
    for (int64_t k = begin; k < end; k++) {
        const int64_t at = k * ROOM, n = tp__least(c->y[0].numel - at, ROOM);
        real room[ROOM], other[ROOM], *dz = row_at(&c->dy[0], to, at, room);
        const real *y = read_row(&c->y[0], c->y[0].data, at, n, other);
        const real *dy = read_row(&c->dy[0], c->dy[0].data, at, n, room);
        for (int64_t i = 0; i < n; i++) dz[i] = dy[i] * relu_slope(y[i]);
        put_row(&c->dy[0], to, at, n, dz);
        if (c->dx[3].data) put_residual(c, at, n, dz);
    }
}

static tp_code conv2d_relu_bwd(const tp_call *c)
{
    tp_view dz = c->dy[0];
    tp_call plain = *c;
    dz.data = dz_of(c);
    plain.nx = 3;
    plain.dy = &dz;
    tp__for(c, tp__ceil_div(c->y[0].numel, ROOM), 16, dz_rows);
    return conv2d_bwd(&plain);
}

/* The convolution's scratch memory, then dZ, stored like Y. */
static size_t conv2d_relu_work(const tp_call *c)
{
    const size_t dz = (size_t)c->y[0].numel * tp_dtype_size(stored_dtype(c));
    return tp_is_backward(c) ? tp__conv2d_line(conv2d_work(c)) + dz : conv2d_work(c);
}

/* ---- transposed: see tp__conv2d_turn ---- */

static tp_code conv_transpose2d_fwd(const tp_call *c)
{
    tp__conv2d_turned t;
    tp__conv2d_turn(c, &t);
    const tp__conv2d g = tp__conv2d_call(&t.c);
    const finish f = with_bias(c, g.ci);
    if (c->y[0].numel > 0) image_gradient(&t.c, &g, &f);
    return TP_OK;
}

/* Bytes of the convolution's scratch; forward sums no dW. */
static size_t turned_work(const tp_call *c)
{
    tp__conv2d_turned t;
    tp__conv2d_turn(c, &t);
    const tp__conv2d g = tp__conv2d_call(&t.c);
    const tp__conv2d_room room = tp__conv2d_room_of(types_of(c), &g, true, c->dev->threads);
    const size_t forth = tp__conv2d_room_of(types_of(c), &g, false, c->dev->threads).all;
    if (!tp_is_backward(c)) return room.dw;
    return tp__conv2d_line(room.all > forth ? room.all : forth);
}

static tp_code conv_transpose2d_bwd(const tp_call *c)
{
    tp__conv2d_turned t;
    tp__conv2d_turn(c, &t);
    const tp__conv2d g = tp__conv2d_call(&t.c);
    if (c->dx[0].data) convolve(&t.c, &g, &(finish){ .channels = g.co }, c->add & 1u);
    if (c->dx[1].data) weight_gradient(&t.c, &g);
    if (c->dx[2].data) bias_gradient(c, turned_work(c));
    return TP_OK;
}

/* Then, the sums for db. */
static size_t conv_transpose2d_work(const tp_call *c)
{
    const int64_t co = c->y[0].dim[c->y[0].ndim - 1], rows = co > 0 ? c->y[0].numel / co : 0;
    const int64_t sums = tp_is_backward(c) ? tp__row_blocks(rows) * co : 0;
    return turned_work(c) + (size_t)sums * sizeof(real);
}

TP_CPU_WORK(conv2d_work)
TP_CPU_KERNEL(conv2d_fwd)
TP_CPU_KERNEL(conv2d_bwd)
TP_CPU_WORK(conv2d_relu_work)
TP_CPU_KERNEL(conv2d_relu_fwd)
TP_CPU_KERNEL(conv2d_relu_bwd)
TP_CPU_WORK(conv_transpose2d_work)
TP_CPU_KERNEL(conv_transpose2d_fwd)
TP_CPU_KERNEL(conv_transpose2d_bwd)
