/* depthwise.c - depthwise convolution of channels-last images, direct.
 *
 *     y[o,c] = b[c] + sum over taps k of x[i,c] w[k,c]      i the input under tap k of output o
 *     dx[i,c] = sum dy[o,c] w[k,c]     dw[k,c] = sum dy[o,c] x[i,c]     db[c] = sum dy[o,c]
 *
 * dx is a convolution of dy for each remainder of a position by the stride (conv2d.h). Registers
 * hold a few columns and a few vectors of channels at a time: sums over all taps for y and dx, dy
 * for dw. The last channels take half a vector, then one number each. Only edge columns check which
 * taps are inside.
 *
 * Work is cut into pieces of rows (of outputs for y and dw, of inputs for dx), so that each result
 * has one writer; dw and db are summed in fixed blocks of pieces. Weights are first transposed to
 * [taps,C]. */
#include "cpu/kit/real.h"
#include "cpu/kit/row_blocks.h"
#include "cpu/kit/vector.h"
#include "tensor/geometry/conv2d.h"
#include "tensor/kernel.h"

/* A piece of work: positions of a row, about 16 K elements; no more: dw adds them singly. */
static int64_t segment_of(const tp__conv *g)
{
    const int64_t n = g->channels > 0 ? 16384 / g->channels : 1;
    return n < 1 ? 1 : n < 512 ? n : 512;
}

/* Pieces of all rows of a batch of images of h x w positions. */
static int64_t pieces_of(const tp__conv *g, int64_t h, int64_t w)
{
    const int64_t n = segment_of(g);
    return g->batch * h * ((w + n - 1) / n);
}

/* Pieces per block: dw and db are summed in at most 128 blocks, of at least 64 outputs if pieces
 * are whole, and the blocks added in order. */
static int64_t block_of(const tp__conv *g)
{
    const int64_t n = segment_of(g), outputs = n < g->w.out ? n : g->w.out;
    const int64_t least = outputs > 0 ? (63 + outputs) / outputs : 1;
    int64_t size = (pieces_of(g, g->h.out, g->w.out) + 127) / 128;
    if (size < least) size = least;
    return size > 1 ? size : 1;
}

static int64_t blocks_of(const tp__conv *g)
{
    const int64_t n = block_of(g);
    return (pieces_of(g, g->h.out, g->w.out) + n - 1) / n;
}

#define VECTORS  4                /* of channels, in registers */
#define COLS     (TP_VECTOR / 16) /* columns */
#define CHANNELS 256              /* whose taps stay in L1 along a row */

/* Positions [from, to) of a row of an image. */
typedef struct piece {
    int64_t image, row, from, to;
} piece;

/* Piece number t of images of rows x width positions. */
static piece piece_of(const tp__conv *g, int64_t t, int64_t rows, int64_t width)
{
    const int64_t n = segment_of(g), segments = (width + n - 1) / n;
    const int64_t from = t % segments * n, to = from + n < width ? from + n : width;
    return (piece){ t / segments / rows, t / segments % rows, from, to };
}

typedef struct range {
    int64_t first, end;
} range;

/* The i of [0, n) for which at + i step is in [0, size). */
static range inside(int64_t at, int64_t step, int64_t size, int64_t n)
{
    range r = { at < 0 ? (step - 1 - at) / step : 0, at < size ? (size - 1 - at) / step + 1 : 0 };
    if (r.end > n) r.end = n;
    if (r.first > r.end) r.first = r.end;
    return r;
}

/* The positions of a span in [from, to) of the image. */
static range made_in(const tp__conv2d_span *s, int64_t from, int64_t to)
{
    const int64_t first = from > s->at ? (from - s->at + s->step - 1) / s->step : 0;
    const int64_t end = to > s->at ? (to - s->at + s->step - 1) / s->step : 0;
    return (range){ first, end < s->count ? end : s->count };
}

/* Columns of a row, and their taps; strides in elements. */
typedef struct task {
    int64_t channels;
    int64_t lines, line, w_line; /* rows of taps; their strides in input and w */
    int64_t taps, hop, w_hop;    /* taps of a row; their strides */
    int64_t move, step, begin;   /* from column to column in `from`, `to`, `start` */
    const real *from, *start;    /* start: initial sums, or NULL for 0 */
    real *w, *to;                /* sums: writes to. dw: writes w, and to holds dy */
    real *db;                    /* NULL: sums */
} task;

/* ---- a few columns ---- */

/* Whole vectors of channels, and half vectors for those left. */
#define LENGTH  TP_VECTOR
#define NAME(f) f
#include "cpu/conv/depthwise_columns.h"
#define LENGTH  (TP_VECTOR / 2)
#define NAME(f) f##_half
#include "cpu/conv/depthwise_columns.h"

/* Channels from c on of one column, too few for a vector. */
static void rest(const task *t, int64_t c)
{
    for (; c < t->channels; c++) {
        real sum = t->start ? t->start[c] : 0;
        if (t->db) t->db[c] += t->to[c];
        for (int64_t l = 0; l < t->lines; l++)
            for (int64_t k = 0; k < t->taps; k++) {
                const real x = t->from[c + l * t->line + k * t->hop];
                real *w = &t->w[c + l * t->w_line + k * t->w_hop];
                if (t->db)
                    *w += t->to[c] * x;
                else
                    sum += *w * x;
            }
        if (!t->db) t->to[c] = sum;
    }
}

/* ---- a row ---- */

static inline void advance(task *t, int64_t cols)
{
    t->from += cols * t->move;
    t->to += cols * t->step;
    if (t->start) t->start += cols * t->begin;
}

/* Handles channels from c on, too few for VECTORS vectors, as far as whole and half vectors go;
 * returns the next channel. */
TP_INLINE int64_t few(task *t, int64_t c, int cols)
{
    const int64_t n = (t->channels - c) / LANES, left = t->channels - c - n * LANES;
    if (n == 3)
        t->db ? correlate(t, c, cols, 3) : sum(t, c, cols, 3);
    else if (n == 2)
        t->db ? correlate(t, c, cols, 2) : sum(t, c, cols, 2);
    else if (n == 1)
        t->db ? correlate(t, c, cols, 1) : sum(t, c, cols, 1);
    c += n * LANES;
    if (left < LANES / 2) return c;
    t->db ? correlate_half(t, c, cols, 1) : sum_half(t, c, cols, 1);
    return c + LANES / 2;
}

/* Handles all channels of the next `cols` columns; `cols` is a constant. */
TP_INLINE void columns(task *t, int cols)
{
    const int64_t C = t->channels, wide = C / (VECTORS * LANES) * (VECTORS * LANES);
    int64_t c = 0;
    for (; t->db && c < wide; c += VECTORS * LANES) correlate(t, c, cols, VECTORS);
    for (; c < wide; c += VECTORS * LANES) sum(t, c, cols, VECTORS);
    c = few(t, c, cols);
    for (int y = 0; y < cols; y++, advance(t, 1))
        if (c < C) rest(t, c);
}

/* t, for the next CHANNELS channels from c on. */
static task channels_from(task t, int64_t c)
{
    t.channels = t.channels - c < CHANNELS ? t.channels - c : CHANNELS;
    t.from += c;
    t.to += c;
    t.w += c;
    if (t.start) t.start += c;
    if (t.db) t.db += c;
    return t;
}

/* Columns `made` of span w. t: column 0, as if all taps of its row were inside. */
static void run(task t, const tp__conv2d_span *w, range made)
{
    const int64_t last = w->from + (w->taps - 1) * w->hop;
    const range low = inside(w->from, w->move, w->size, w->count);
    const range high = inside(last, w->move, w->size, w->count);
    advance(&t, made.first);
    for (int64_t o = made.first; o < made.end;) {
        const int64_t whole = (high.end < made.end ? high.end : made.end) - o;
        if (o >= low.first && whole >= COLS) {
            columns(&t, COLS);
            o += COLS;
        } else if (o >= low.first && whole >= 1) {
            columns(&t, 1);
            o++;
        } else {
            const range k = inside(w->from + o * w->move, w->hop, w->size, w->taps);
            task edge = t;
            edge.from += k.first * t.hop;
            edge.w += k.first * t.w_hop;
            edge.taps = k.end - k.first;
            columns(&edge, 1);
            advance(&t, 1);
            o++;
        }
    }
}

/* Computes columns of span w in row j of span h, in [from, to). t has the images to read, write and
 * start from, and w; the rest of it is set here. */
static void run_row(const tp__conv *g, const tp__conv2d_span *h, const tp__conv2d_span *w,
                    int64_t j, range made, task t)
{
    const int64_t C = g->channels, at = h->from + j * h->move;
    const range lines = inside(at, h->hop, h->size, h->taps);
    const int64_t to = ((h->at + j * h->step) * w->to + w->at) * C;
    t.channels = C;
    t.lines = lines.end - lines.first;
    t.line = h->hop * w->size * C;
    t.w_line = h->next * g->w.taps * C;
    t.taps = w->taps;
    t.hop = w->hop * C;
    t.w_hop = w->next * C;
    t.move = w->move * C;
    t.step = w->step * C;
    t.from += ((at + lines.first * h->hop) * w->size + w->from) * C;
    t.w += ((h->tap + lines.first * h->next) * g->w.taps + w->tap) * C;
    t.to += to;
    if (t.start && t.begin) t.start += to;
    for (int64_t c = 0; c < C; c += CHANNELS) run(channels_from(t, c), w, made);
}

/* ---- forward ---- */

static tp__conv conv_of(const tp_call *c)
{
    return tp__conv_of(c->attr, &c->x[0], &c->x[1]);
}

/* [C,taps] to [taps,C]. */
static void transpose(int64_t C, int64_t taps, const real *from, real *to)
{
    for (int64_t c = 0; c < C; c++)
        for (int64_t k = 0; k < taps; k++) to[k * C + c] = from[c * taps + k];
}

static void forward_pieces(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__conv g = conv_of(c);
    const tp__conv2d_span h = tp__conv2d_straight(&g.h), w = tp__conv2d_straight(&g.w);
    for (int64_t t = begin; t < end; t++) {
        const piece p = piece_of(&g, t, h.to, w.to);
        const task s = { .from =
                             (const real *)c->x[0].data + p.image * h.size * w.size * g.channels,
                         .start = c->x[2].data,
                         .w = c->work,
                         .to = (real *)c->y[0].data + p.image * h.to * w.to * g.channels };
        run_row(&g, &h, &w, p.row, (range){ p.from, p.to }, s);
    }
}

static tp_code depthwise_fwd(const tp_call *c)
{
    const tp__conv g = conv_of(c);
    if (g.channels == 0) return TP_OK;
    transpose(g.channels, g.h.taps * g.w.taps, c->x[1].data, c->work);
    tp__for(c, pieces_of(&g, g.h.out, g.w.out), 1, forward_pieces);
    return TP_OK;
}

/* ---- backward ---- */

static void dx_pieces(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__conv g = conv_of(c);
    for (int64_t t = begin; t < end; t++) {
        const piece p = piece_of(&g, t, g.h.in, g.w.in);
        const tp__conv2d_span h = tp__conv2d_phase(&g.h, p.row % g.h.stride);
        real *dx = (real *)c->dx[0].data + p.image * g.h.in * g.w.in * g.channels;
        for (int64_t f = 0; f < g.w.stride && f < g.w.in; f++) {
            const tp__conv2d_span w = tp__conv2d_phase(&g.w, f);
            const task s = { .from = (const real *)c->dy[0].data +
                                     p.image * g.h.out * g.w.out * g.channels,
                             .start = c->add & 1u ? dx : NULL,
                             .begin = w.step * g.channels,
                             .w = c->work,
                             .to = dx };
            run_row(&g, &h, &w, p.row / g.h.stride, made_in(&w, p.from, p.to), s);
        }
    }
}

/* c->work in backward: weights [taps,C]; sums of dw and db [taps+1,C]; those of each block. */
static real *block_sums(const tp_call *c, const tp__conv *g, int64_t block)
{
    const int64_t taps = g->h.taps * g->w.taps;
    return (real *)c->work + (taps + (block + 1) * (taps + 1)) * g->channels;
}

static void dw_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const tp__conv g = conv_of(c);
    const tp__conv2d_span h = tp__conv2d_straight(&g.h), w = tp__conv2d_straight(&g.w);
    const int64_t C = g.channels, taps = g.h.taps * g.w.taps, size = block_of(&g);
    const int64_t pieces = pieces_of(&g, g.h.out, g.w.out);
    for (int64_t k = begin; k < end; k++) {
        real *dw = block_sums(c, &g, k);
        memset(dw, 0, (size_t)((taps + 1) * C) * sizeof *dw);
        for (int64_t t = k * size; t < pieces && t < (k + 1) * size; t++) {
            const piece p = piece_of(&g, t, h.to, w.to);
            const task s = { .from = (const real *)c->x[0].data + p.image * h.size * w.size * C,
                             .w = dw,
                             .to = (real *)c->dy[0].data + p.image * h.to * w.to * C,
                             .db = dw + taps * C };
            run_row(&g, &h, &w, p.row, (range){ p.from, p.to }, s);
        }
    }
}

static void dw_db(const tp_call *c, const tp__conv *g)
{
    const int64_t C = g->channels, taps = g->h.taps * g->w.taps, blocks = blocks_of(g);
    const bool add_w = c->add >> 1 & 1u, add_b = c->add >> 2 & 1u;
    real *sums = block_sums(c, g, -1), *dw = c->dx[1].data, *db = c->dx[2].data;
    tp__for(c, blocks, 1, dw_blocks);
    tp__add_blocks(sums, false, (taps + 1) * C, block_sums(c, g, 0), blocks, (taps + 1) * C);
    for (int64_t i = 0; dw && i < C; i++)
        for (int64_t k = 0; k < taps; k++)
            dw[i * taps + k] = (add_w ? dw[i * taps + k] : 0) + sums[k * C + i];
    for (int64_t i = 0; db && i < C; i++) db[i] = (add_b ? db[i] : 0) + sums[taps * C + i];
}

static tp_code depthwise_bwd(const tp_call *c)
{
    const tp__conv g = conv_of(c);
    if (g.channels == 0) return TP_OK;
    if (c->dx[0].data) {
        transpose(g.channels, g.h.taps * g.w.taps, c->x[1].data, c->work);
        tp__for(c, pieces_of(&g, g.h.in, g.w.in), 1, dx_pieces);
    }
    if (c->dx[1].data || c->dx[2].data) dw_db(c, &g);
    return TP_OK;
}

#undef LANES

/* Weights [taps,C]; in backward also sums of dw and db [taps+1,C], total and per block. */
static size_t depthwise_work(const tp_call *c)
{
    const tp__conv g = conv_of(c);
    const int64_t taps = g.h.taps * g.w.taps;
    const int64_t rows = taps + (tp_is_backward(c) ? (blocks_of(&g) + 1) * (taps + 1) : 0);
    return (size_t)(rows * g.channels) * sizeof(real);
}

TP_CPU_WORK(depthwise_work)
TP_CPU_KERNEL(depthwise_fwd)
TP_CPU_KERNEL(depthwise_bwd)
