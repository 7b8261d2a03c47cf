/* conv2d_cut.h - how the CPU splits the passes of a convolution into tasks, by the shapes alone,
 * and the scratch memory that the tasks need.
 *
 * A tile is a block of positions: whole images if they are small, otherwise rows of one image,
 * otherwise part of a row. A task computes some of a tile's channels, from the inputs of some rows
 * of taps at a time. Sums for dW are formed in parts, each over a range of tiles, and the parts are
 * added in order. */
#ifndef TP_CONV2D_CUT_H
#define TP_CONV2D_CUT_H

#include "tensor/cpu/kit/gemm.h"
#include "tensor/cpu/kit/row_blocks.h"
#include "tensor/geometry/conv2d.h"
#include "tensor/geometry/whole.h"

enum {
    TP_CONV_TILE = 256,         /* positions of a tile, at most twice as many        */
    TP_CONV_DEPTH = 256,        /* inputs of a position that are gathered at once    */
    TP_CONV_LINE = 64,          /* fewest inputs of a line that is read in place     */
    TP_CONV_TASKS = 8,          /* tasks of a pass, where the sizes allow            */
    TP_CONV_WIDTH = 64,         /* fewest channels of a task, if split               */
    TP_CONV_LAID = 16,          /* input channels whose weights are laid out at once */
    TP_CONV_PARTS = 16,         /* most parts of the sums for dW                     */
    TP_CONV_PART_ROOM = 1 << 22 /* most elements of all parts, if more than four     */
};

/* The size of one piece when n is split into equal pieces of about `size`. */
static inline int64_t tp__equal(int64_t n, int64_t size)
{
    return n > size ? tp__ceil_div(n, tp__ceil_div(n, size > 1 ? size : 1)) : n > 1 ? n : 1;
}

typedef struct tp__conv2d_cut {
    int64_t images, rows, cols, positions; /* of a tile                                    */
    int64_t tiles[3], count;               /* tiles along these axes; in all               */
    int64_t width, widths;                 /* channels of a task; tasks per tile           */
    int64_t lines, chunks;                 /* rows of taps in a chunk; chunks              */
    bool direct;                           /* a chunk is one line, contiguous in the image */
    int64_t depth;                         /* inputs of a position in a chunk              */
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
    t.widths = tp__ceil_div(p->to, t.width);
    t.direct =
        p->groups == 1 && (p->axis[1].hop == 1 || p->axis[1].taps == 1) && line >= TP_CONV_LINE;
    t.lines = t.direct ? 1 : line > 0 ? TP_CONV_DEPTH / line : 0;
    if (t.lines > p->axis[0].taps) t.lines = p->axis[0].taps;
    if (t.lines < 1) t.lines = 1;
    t.chunks = tp__ceil_div(p->axis[0].taps, t.lines);
    t.depth = t.lines * line;
    return t;
}

/* Tiles in a part of the sums for dW, and the number of parts. */
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

static inline int64_t tp__conv2d_whole(int64_t elements) /* rounds up to whole cache lines */
{
    return (elements + 15) / 16 * 16;
}

/* Elements of the gathered inputs in a thread's scratch, and of the addresses of inputs read in
 * place. A tile of results (backward) and the product's own scratch follow. */
static inline int64_t tp__conv2d_gathered(tp_dtype dtype, const tp__conv2d_cut *t)
{
    const int64_t rows = t->direct ? t->positions * (int64_t)sizeof(void *) : 0;
    return tp__conv2d_whole(t->positions * t->depth) +
           tp__conv2d_whole(rows / (int64_t)tp_dtype_size(dtype));
}

/* The part of that scratch that holds the address of each position's inputs. */
static inline const void **tp__conv2d_rows(tp_dtype dtype, const tp__conv2d_cut *t, char *scratch)
{
    const int64_t at = tp__conv2d_whole(t->positions * t->depth) * (int64_t)tp_dtype_size(dtype);
    return (const void **)(void *)(scratch + at);
}

/* Elements of a pass's weights, packed for its products. */
static inline int64_t tp__conv2d_panels(tp_dtype dtype, const tp__conv2d_pass *p,
                                        const tp__conv2d_cut *t)
{
    const int64_t depth = p->axis[0].taps * p->axis[1].taps * p->from;
    return tp__gemm_panels(dtype, p->groups * t->widths * depth, t->width);
}

static inline size_t tp__conv2d_scratch(tp_dtype dtype, const tp__conv2d_pass *p,
                                        const tp__conv2d_cut *t)
{
    const int64_t sums = p->back ? tp__conv2d_whole(t->positions * t->width) : 0;
    int64_t size = t->width > t->depth ? t->width : t->depth;
    if (t->positions > size) size = t->positions;
    return (size_t)(tp__conv2d_gathered(dtype, t) + sums) * tp_dtype_size(dtype) +
           tp__gemm_scratch(dtype, size);
}

/* Scratch of one thread for all passes of forward or of backward. */
static inline size_t tp__conv2d_thread_work(tp_dtype dtype, const tp__conv2d *g, bool backward)
{
    const tp__conv2d_pass f = tp__conv2d_forward(g);
    tp__conv2d_cut t = tp__conv2d_cut_of(&f);
    const int64_t laid = TP_CONV_LAID * TP_CONV_WIDTH * g->axis[0].taps * g->axis[1].taps;
    const size_t weights = (size_t)laid * tp_dtype_size(dtype);
    size_t most = tp__conv2d_scratch(dtype, &f, &t);
    if (weights > most) most = weights;
    for (int64_t k = 0; backward && k < tp__conv2d_phases(g); k++) {
        const tp__conv2d_pass p = tp__conv2d_backward(g, k);
        t = tp__conv2d_cut_of(&p);
        const size_t bytes = tp__conv2d_scratch(dtype, &p, &t);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Bytes of the packed weights of the convolution, or of the largest pass of its gradient. */
static inline size_t tp__conv2d_panel_work(tp_dtype dtype, const tp__conv2d *g, bool backward)
{
    int64_t most = 0;
    for (int64_t k = 0; k < (backward ? tp__conv2d_phases(g) : 1); k++) {
        const tp__conv2d_pass p = backward ? tp__conv2d_backward(g, k) : tp__conv2d_forward(g);
        const tp__conv2d_cut t = tp__conv2d_cut_of(&p);
        const int64_t n = tp__conv2d_panels(dtype, &p, &t);
        if (n > most) most = n;
    }
    return (size_t)tp__conv2d_whole(most) * tp_dtype_size(dtype);
}

/* Scratch of one thread if the convolution is a matrix product with `rows` rows. */
static inline size_t tp__conv2d_product_work(tp_dtype dtype, const tp__conv2d *g, int64_t rows)
{
    int64_t size = g->ci > g->co ? g->ci : g->co;
    if (rows > size) size = rows;
    return tp__gemm_scratch(dtype, size);
}

/* Layout of c->work: the weights of a pass, laid out and packed, unless the convolution is a matrix
 * product; then the scratch of each thread. In backward, the parts of dW and the partial sums of db
 * for blocks of rows follow. */
typedef struct tp__conv2d_room {
    size_t thread;                       /* bytes of a thread's scratch    */
    size_t panels, threads, dw, db, all; /* offsets of these; bytes in all */
} tp__conv2d_room;

static inline tp__conv2d_room tp__conv2d_room_of(tp_dtype dtype, const tp__conv2d *g, bool backward,
                                                 int threads)
{
    const size_t size = tp_dtype_size(dtype);
    const tp__conv2d_pass f = tp__conv2d_forward(g);
    const tp__conv2d_cut t = tp__conv2d_cut_of(&f);
    const int64_t n = tp__conv2d_weights(&f), rows = g->batch * g->axis[0].out * g->axis[1].out;
    const bool product = tp__conv2d_is_product(g);
    tp__conv2d_room r;
    r.thread = product ? tp__conv2d_product_work(dtype, g, rows)
                       : tp__conv2d_thread_work(dtype, g, backward);
    r.panels = product ? 0 : (size_t)tp__conv2d_whole(n) * size;
    r.threads = product ? 0 : r.panels + tp__conv2d_panel_work(dtype, g, backward);
    r.dw = r.db = r.all = r.threads + (size_t)threads * r.thread;
    if (!backward) return r;
    if (!product) r.db += (size_t)(tp__conv2d_parts(&f, &t) * n) * size;
    r.all = r.db + (size_t)(tp__row_blocks(rows) * g->co) * size;
    return r;
}

#endif
