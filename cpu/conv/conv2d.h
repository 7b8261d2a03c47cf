/* conv2d.h - convolutions on the CPU as matrix products, tile by tile: tasks and their scratch,
 * gathering, and finishing a tile.
 *
 *     Y = X' W' + b     dX = dY' W''     dW = dY^T X'
 *
 * Row i of X' (im2col) holds the inputs under the taps of output i; dY' is the same for each input
 * (tensor/geometry/conv2d.h). Neither is stored in full: a task computes some columns of a tile of
 * rows. If the inputs under a row of taps are contiguous in the image, the product reads them in
 * place, and only lines that cross an edge are gathered. Otherwise all lines are gathered into L2.
 * The baseline always gathers, because OpenBLAS computes its products. */
#ifndef TP_CPU_CONV2D_H
#define TP_CPU_CONV2D_H

#include "cpu/kit/activation.h"
#include "cpu/kit/gemm.h"
#include "cpu/kit/product.h"
#include "cpu/kit/real.h"
#include "cpu/kit/row_blocks.h"
#include "cpu/kit/stored.h"
#include "tensor/geometry/conv2d.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

/* ---- tasks ----
 *
 * The split of a pass depends only on shapes. A tile is a block of positions: whole images if they
 * are small, otherwise rows of one image, otherwise part of a row. A task computes some of a tile's
 * channels, from the inputs of some rows of taps at a time. Sums for dW are formed in parts, each
 * over a range of tiles, and the parts are added in order.
 *
 * Images and weights in bf16 stay bf16 if the processor multiplies it (gemm_bf16.c); otherwise the
 * gathered inputs and the weights are widened to f32. Sums are f32 in both cases. */

enum {
    TP_CONV_TILE = 256,         /* positions of a tile, up to twice as many */
    TP_CONV_DEPTH = 256,        /* inputs of a position gathered at once */
    TP_CONV_LINE = 64,          /* fewest inputs of a line read in place */
    TP_CONV_TASKS = 8,          /* tasks of a pass, if sizes allow */
    TP_CONV_WIDTH = 64,         /* fewest channels of a task, if split */
    TP_CONV_WIDEST = 256,       /* most, if inputs are read in place */
    TP_CONV_LAID = 32,          /* input channels whose weights are laid out at once */
    TP_CONV_PARTS = 16,         /* most parts of the sums for dW */
    TP_CONV_PART_ROOM = 1 << 22 /* most elements of all parts, if more than four */
};

typedef struct tp__conv2d_types {
    tp_dtype dtype; /* of products: TP_F32, TP_F64, TP_BF16 */
    bool widens;    /* from bf16 to f32 */
    bool amx;       /* products of bf16 by its tiles */
} tp__conv2d_types;

/* Bytes of a gathered element; below, of a summed one. */
static inline size_t tp__conv2d_size(tp__conv2d_types y)
{
    return tp_dtype_size(y.dtype);
}

static inline size_t tp__conv2d_sum_size(tp__conv2d_types y)
{
    return y.dtype == TP_F64 ? sizeof(double) : sizeof(float);
}

/* Are a tile's sums formed outside the image, because it is bf16? */
static inline bool tp__conv2d_rounds(tp__conv2d_types y)
{
    return y.dtype == TP_BF16 || y.widens;
}

/* The size of a piece when n is split into equal pieces of about `size`. */
static inline int64_t tp__equal(int64_t n, int64_t size)
{
    return n > size ? tp__ceil_div(n, tp__ceil_div(n, size > 1 ? size : 1)) : n > 1 ? n : 1;
}

typedef struct tp__conv2d_cut {
    int64_t images, rows, cols, positions; /* of a tile */
    int64_t tiles[3], count;               /* tiles along these axes; total */
    int64_t width, widths;                 /* channels of a task; tasks per tile */
    int64_t lines, chunks;                 /* rows of taps per chunk; chunks */
    bool direct;                           /* a chunk is one line, contiguous in the image */
    int64_t depth;                         /* inputs of a position per chunk */
} tp__conv2d_cut;

static inline tp__conv2d_cut tp__conv2d_cut_of(const tp__conv2d_pass *p)
{
    const int64_t h = p->axis[0].count, w = p->axis[1].count, line = p->axis[1].taps * p->from;
    tp__conv2d_cut t;
    t.cols = w > 2 * TP_CONV_TILE ? tp__equal(w, TP_CONV_TILE) : w;
    t.rows = t.cols < w || w == 0 ? 1 : tp__equal(h, TP_CONV_TILE / w);
    t.images = t.rows < h || h * w == 0 ? 1 : tp__equal(p->batch, TP_CONV_TILE / (h * w));
    t.positions = t.images * t.rows * t.cols;
    t.tiles[0] = tp__ceil_div(p->batch, t.images);
    t.tiles[1] = tp__ceil_div(h, t.rows);
    t.tiles[2] = tp__ceil_div(w, t.cols);
    t.count = t.tiles[0] * t.tiles[1] * t.tiles[2];
    const int64_t tasks = t.count * p->groups;
    t.width = tasks > 0 ? tp__ceil_div(p->to, tp__ceil_div(TP_CONV_TASKS, tasks)) : p->to;
    if (t.width < TP_CONV_WIDTH) t.width = TP_CONV_WIDTH;
    t.direct =
        p->groups == 1 && (p->axis[1].hop == 1 || p->axis[1].taps == 1) && line >= TP_CONV_LINE;
    if (t.direct && t.width > TP_CONV_WIDEST) t.width = TP_CONV_WIDEST;
    t.widths = tp__ceil_div(p->to, t.width);
    t.lines = t.direct ? 1 : line > 0 ? TP_CONV_DEPTH / line : 0;
    if (t.lines > p->axis[0].taps) t.lines = p->axis[0].taps;
    if (t.lines < 1) t.lines = 1;
    t.chunks = tp__ceil_div(p->axis[0].taps, t.lines);
    t.depth = t.lines * line;
    return t;
}

/* Tiles in a part of the sums for dW; the number of parts. */
static inline int64_t tp__conv2d_part(const tp__conv2d_pass *p, const tp__conv2d_cut *t)
{
    const int64_t n = tp__conv2d_weights(p), room = n > 0 ? TP_CONV_PART_ROOM / n : TP_CONV_PARTS;
    const int64_t parts = room < 4 ? 4 : room < TP_CONV_PARTS ? room : TP_CONV_PARTS;
    return t->count > parts ? tp__ceil_div(t->count, parts) : 1;
}

static inline int64_t tp__conv2d_parts(const tp__conv2d_pass *p, const tp__conv2d_cut *t)
{
    return tp__ceil_div(t->count, tp__conv2d_part(p, t));
}

static inline size_t tp__conv2d_line(size_t bytes) /* rounds up to whole cache lines */
{
    return (bytes + 63) / 64 * 64;
}

/* Layout of a thread's scratch, in bytes: a tile's gathered inputs; addresses of inputs read in
 * place; a tile of dY, widened; a tile of results; the product's own scratch. */
typedef struct tp__conv2d_scratch {
    size_t rows, dy, sums, product, all;
} tp__conv2d_scratch;

static inline tp__conv2d_scratch tp__conv2d_scratch_of(tp__conv2d_types y, const tp__conv2d_pass *p,
                                                       const tp__conv2d_cut *t)
{
    const size_t positions = (size_t)t->positions, sum = tp__conv2d_sum_size(y);
    const bool sums = p->back || tp__conv2d_rounds(y);
    int64_t size = t->width > t->depth ? t->width : t->depth;
    if (t->positions > size) size = t->positions;
    tp__conv2d_scratch s;
    s.rows = tp__conv2d_line(positions * (size_t)t->depth * tp__conv2d_size(y));
    s.dy = s.rows + (t->direct ? tp__conv2d_line(positions * sizeof(void *)) : 0);
    s.sums = s.dy + (y.widens ? tp__conv2d_line(positions * (size_t)p->to * sum) : 0);
    s.product = s.sums + (sums ? tp__conv2d_line(positions * (size_t)t->width * sum) : 0);
    s.all = s.product + tp__gemm_scratch(y.dtype == TP_F64 ? TP_F64 : TP_F32, size);
    return s;
}

/* Elements of a chunk of taps in a panel; pairs of them in bf16. */
static inline int64_t tp__conv2d_deep(tp__conv2d_types y, const tp__conv2d_cut *t)
{
    return y.dtype == TP_BF16 ? (t->depth + 1) / 2 : t->depth;
}

/* Bytes of a pass's weights, packed for its products. */
static inline size_t tp__conv2d_panels(tp__conv2d_types y, const tp__conv2d_pass *p,
                                       const tp__conv2d_cut *t)
{
    const int64_t rows = p->groups * t->widths * t->chunks * tp__conv2d_deep(y, t);
    const tp_dtype unit = y.dtype == TP_F64 ? TP_F64 : TP_F32; /* a pair is as large as a float */
    return (size_t)tp__gemm_panels(unit, rows, t->width) * tp_dtype_size(unit);
}

/* Scratch of one thread for all passes of forward or backward. */
static inline size_t tp__conv2d_thread_work(tp__conv2d_types y, const tp__conv2d *g, bool backward)
{
    const tp__conv2d_pass f = tp__conv2d_forward(g);
    tp__conv2d_cut t = tp__conv2d_cut_of(&f);
    const int64_t laid = TP_CONV_LAID * TP_CONV_WIDTH * g->axis[0].taps * g->axis[1].taps;
    const size_t weights = (size_t)laid * tp__conv2d_sum_size(y);
    size_t most = tp__conv2d_scratch_of(y, &f, &t).all;
    if (weights > most) most = weights;
    for (int64_t k = 0; backward && k < tp__conv2d_phases(g); k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(g, k);
        t = tp__conv2d_cut_of(&p);
        const size_t bytes = tp__conv2d_scratch_of(y, &p, &t).all;
        if (bytes > most) most = bytes;
    }
    return tp__conv2d_line(most);
}

/* Bytes of the packed weights of the convolution, or of its gradient's largest pass. */
static inline size_t tp__conv2d_panel_work(tp__conv2d_types y, const tp__conv2d *g, bool backward)
{
    size_t most = 0;
    for (int64_t k = 0; k < (backward ? tp__conv2d_phases(g) : 1); k++) {
        const tp__conv2d_pass p = backward ? tp__conv2d_backward(g, k) : tp__conv2d_forward(g);
        const tp__conv2d_cut t = tp__conv2d_cut_of(&p);
        const size_t bytes = tp__conv2d_panels(y, &p, &t);
        if (bytes > most) most = bytes;
    }
    return tp__conv2d_line(most);
}

/* Scratch of one thread if the convolution is a matrix product with `rows` rows. */
static inline size_t tp__conv2d_product_work(tp__conv2d_types y, const tp__conv2d *g, int64_t rows)
{
    int64_t size = g->ci > g->co ? g->ci : g->co;
    if (rows > size) size = rows;
    return tp__gemm_scratch(tp__conv2d_rounds(y) ? TP_BF16 : y.dtype, size);
}

/* Layout of c->work: the weights of a pass, laid out and packed, and all weights widened, unless
 * the convolution is a matrix product; then the scratch of each thread. In backward, the parts of
 * dW and the partial sums of db for blocks of rows follow. */
typedef struct tp__conv2d_room {
    size_t thread;                             /* bytes of a thread's scratch */
    size_t panels, wide, threads, dw, db, all; /* offsets of these; total bytes */
} tp__conv2d_room;

static inline tp__conv2d_room tp__conv2d_room_of(tp__conv2d_types y, const tp__conv2d *g,
                                                 bool backward, int threads)
{
    const size_t sum = tp__conv2d_sum_size(y);
    const tp__conv2d_pass f = tp__conv2d_forward(g);
    const tp__conv2d_cut t = tp__conv2d_cut_of(&f);
    const int64_t n = tp__conv2d_weights(&f), rows = g->batch * g->axis[0].out * g->axis[1].out;
    const bool product = tp__conv2d_is_product(g);
    tp__conv2d_room r;
    r.thread =
        product ? tp__conv2d_product_work(y, g, rows) : tp__conv2d_thread_work(y, g, backward);
    r.panels = product ? 0 : tp__conv2d_line((size_t)n * tp__conv2d_size(y));
    r.wide = product ? 0 : r.panels + tp__conv2d_panel_work(y, g, backward);
    r.threads = r.wide + (product || !y.widens ? 0 : tp__conv2d_line((size_t)n * sum));
    r.dw = r.db = r.all = r.threads + (size_t)threads * r.thread;
    if (!backward) return r;
    if (!product) r.db += (size_t)(tp__conv2d_parts(&f, &t) * n) * sum;
    r.all = r.db + (size_t)(tp__row_blocks(rows) * g->co) * sum;
    return r;
}

/* ---- positions of a tile ---- */

/* A tile's positions: images, rows and columns from `first` on. */
typedef struct tile {
    int64_t first[3], size[3], positions;
} tile;

static inline tile tile_of(const tp__conv2d_pass *p, const tp__conv2d_cut *t, int64_t i)
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

/* Offset in the result of the position (image, row, column) of a pass. */
static inline int64_t made_at(const tp__conv2d_pass *p, int64_t image, int64_t row, int64_t col)
{
    const tp__conv2d_span *h = &p->axis[0], *w = &p->axis[1];
    const int64_t at = (image * h->to + h->at + row * h->step) * w->to + w->at + col * w->step;
    return at * p->groups * p->to;
}

/* Fewest multiply-adds that a task should have. */
#define MIN_WORK 1.0e6

static inline int64_t grain_of(double work)
{
    return work < MIN_WORK ? (int64_t)(MIN_WORK / (work + 1.0)) : 1;
}

/* ---- types ---- */

static inline tp__conv2d_types types_of(const tp_call *c)
{
    const bool bf16 = stored_dtype(c) == TP_BF16, has = bf16 && tp__gemm_has_bf16(c->dev);
    return (tp__conv2d_types){ has ? TP_BF16 : REAL, bf16 && !has, has && c->dev->amx };
}

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
void TP_KERNEL_FN(gemm_tile_bf16)(const tp_gemm_tile *t);
#endif

/* Multiplies operands of y.dtype. */
static inline void multiply_in(tp__conv2d_types y, tp_gemm_tile *t)
{
    (void)y;
#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
    if (y.dtype == TP_BF16) {
        t->a_bf16 = t->b_bf16 = true;
        t->amx = y.amx;
        TP_KERNEL_FN(gemm_tile_bf16)(t);
        return;
    }
#endif
    multiply(t);
}

/* Are inputs that are contiguous in the image read in place? */
static inline bool in_place(tp__conv2d_types y, const tp__conv2d_cut *t)
{
    return OWN_PRODUCT && t->direct && !y.widens;
}

/* ---- gathering ---- */

/* Elements of `stored` bytes in the image are gathered as elements of `size` bytes; they differ if
 * bf16 is widened. */
typedef struct gathering {
    size_t stored, size;
} gathering;

static inline gathering gathering_of(tp__conv2d_types y)
{
    return (gathering){ y.widens ? sizeof(uint16_t) : tp__conv2d_size(y), tp__conv2d_size(y) };
}

static inline void copy_inputs(gathering e, const char *from, int64_t n, char *to)
{
    if (e.stored == e.size) {
        memcpy(to, from, (size_t)n * e.size);
        return;
    }
    const uint16_t *x = (const uint16_t *)(const void *)from;
    real *y = (real *)(void *)to;
    for (int64_t i = 0; i < n; i++) y[i] = (real)tp__from_bf16(x[i]);
}

/* Gathers the inputs under a row of taps: `taps` pieces of n channels, `hop` positions apart, from
 * position `at` of an image row. */
static inline void gather_line(const tp__conv2d_pass *p, gathering e, const char *row, int64_t at,
                               char *to)
{
    const tp__conv2d_span *w = &p->axis[1];
    const int64_t n = p->from, pitch = p->groups * n, step = w->hop * pitch;
    const size_t piece = (size_t)n * e.size;
    int64_t t = 0, end = w->taps;
    for (; t < end && at + t * w->hop < 0; t++) memset(to + (size_t)t * piece, 0, piece);
    for (; end > t && at + (end - 1) * w->hop >= w->size; end--)
        memset(to + (size_t)(end - 1) * piece, 0, piece);
    if (t == end) return;
    row += (at * pitch + t * step) * (int64_t)e.stored;
    if (step == n)
        copy_inputs(e, row, (end - t) * n, to + (size_t)t * piece);
    else
        for (; t < end; t++, row += (size_t)step * e.stored)
            copy_inputs(e, row, n, to + (size_t)t * piece);
}

/* Gathers the inputs under rows of taps [first, last) for a tile's positions, from a group's first
 * channel on: [positions][taps][channels]. at: for a single row of taps, gets the address of each
 * position's inputs, which stay in the image if they are contiguous. */
static inline void gather_tile(const tp__conv2d_pass *p, const tile *a, int64_t first, int64_t last,
                               gathering e, const char *from, char *to, const void **at)
{
    const tp__conv2d_span *h = &p->axis[0], *w = &p->axis[1];
    const int64_t line = w->taps * p->from, step = p->groups * p->from, pitch = w->size * step;
    const size_t bytes = (size_t)line * e.size;
    if (line == 0) return; /* without channels the map may be missing too */
    for (int64_t b = a->first[0]; b < a->first[0] + a->size[0]; b++)
        for (int64_t j = a->first[1]; j < a->first[1] + a->size[1]; j++)
            for (int64_t i = a->first[2]; i < a->first[2] + a->size[2]; i++)
                for (int64_t t = first; t < last; t++, to += bytes) {
                    const int64_t row = h->from + j * h->move + t * h->hop;
                    const int64_t col = w->from + i * w->move;
                    if (at) *at++ = to;
                    if (row < 0 || row >= h->size) {
                        memset(to, 0, bytes);
                        continue;
                    }
                    const char *image_row = from + (b * h->size + row) * pitch * (int64_t)e.stored;
                    if (at && col >= 0 && col + w->taps <= w->size)
                        at[-1] = image_row + col * step * (int64_t)e.stored;
                    else
                        gather_line(p, e, image_row, col, to);
                }
}

/* ---- finishing: relu(sum + bias + residual), while the tile is in cache ---- */

typedef struct finish {
    const tp_view *bias, *residual; /* or NULL */
    int64_t channels;               /* per position of the result */
    bool relu;
} finish;

/* v, or NULL if absent. */
TP_INLINE const tp_view *if_given(const tp_view *v)
{
    return tp_absent(v) || !v->data ? NULL : v;
}

/* Finishes n sums for channels from `channel` on: elements of the result from `at` on. In bf16, n
 * is at most ROOM. */
TP_INLINE void finish_row(const finish *f, int64_t at, int64_t channel, int64_t n, real *sums)
{
    real room[ROOM];
    if (f->bias) {
        const real *b = read_row(f->bias, f->bias->data, channel, n, room);
        for (int64_t k = 0; k < n; k++) sums[k] += b[k];
    }
    if (f->residual) {
        const real *r = read_row(f->residual, f->residual->data, at, n, room);
        for (int64_t k = 0; k < n; k++) sums[k] += r[k];
    }
    for (int64_t k = 0; f->relu && k < n; k++) sums[k] = relu_value(sums[k]);
}

#endif
