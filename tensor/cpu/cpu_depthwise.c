/* cpu_depthwise.c - depthwise convolution of channels-last images, direct.
 *
 *     y[o,c] = b[c] + sum over taps k of x[i,c] w[k,c]      i the input that tap k joins with o
 *     dx[i,c] = sum dy[o,c] w[k,c]     dw[k,c] = sum dy[o,c] x[i,c]     db[c] = sum dy[o,c]
 *
 * Vectorised over channels, a block of which stays in registers while its sum is formed. Work is
 * cut into pieces of rows, of outputs for y and dw, of inputs for dx, so that each result has one
 * writer; dw and db are summed in fixed blocks of pieces. Weights are transposed to [taps,C] first.
 */
#ifndef real

#include "tensor/depthwise.h"
#include "tensor/kernel.h"

/* What tap k joins with position `at`: an input if `at` is an output, and the other way round where
 * `back`; -1 if nothing. */
static inline int64_t partner(const tp__conv_axis *a, bool back, int64_t at, int64_t k)
{
    if (!back) {
        const int64_t i = at * a->stride - a->pad + k * a->dilation;
        return i < a->in ? i : -1;
    }
    const int64_t t = at + a->pad - k * a->dilation;
    if (a->stride == 1 || t < 0) return t < a->out ? t : -1;
    return t % a->stride == 0 && t / a->stride < a->out ? t / a->stride : -1;
}

/* Positions [from, to) of a row of an image. */
typedef struct piece {
    int64_t image, row, from, to;
} piece;

/* Piece number t of images of rows x width positions. */
static piece piece_of(const tp__conv *g, int64_t t, int64_t rows, int64_t width)
{
    const int64_t n = tp__conv_segment(g), segments = (width + n - 1) / n;
    const int64_t from = t % segments * n, to = from + n < width ? from + n : width;
    return (piece){ t / segments / rows, t / segments % rows, from, to };
}

/* Channels of a block: four AVX-512 registers of floats; HALF serves 32, 96, ... channels. */
#define WIDE 64
#define HALF 32

#define TP_FILE "tensor/cpu/cpu_depthwise.c"
#include "tensor/cpu/cpu_each_real.h"
TP_CPU_KERNEL(depthwise_fwd)
TP_CPU_KERNEL(depthwise_bwd)

#else

#include "tensor/row_blocks.h"

static tp__conv R(conv_of)(const tp_call *c)
{
    return tp__conv_of(c->attr, &c->x[0], &c->x[1]);
}

/* [C,taps] to [taps,C]. */
static void R(transpose)(int64_t C, int64_t taps, const real *from, real *to)
{
    for (int64_t c = 0; c < C; c++)
        for (int64_t k = 0; k < taps; k++) to[k * C + c] = from[c * taps + k];
}

/* to[i] += sum over taps of from[partner][i] w[tap][i] for n <= WIDE channels of one position. The
 * newest data are fetched two positions ahead: loads this far apart hide little latency themselves
 * (512 channels: three times faster). */
TP_INLINE void R(gather)(const tp__conv *g, bool back, int64_t row, int64_t col, int64_t n,
                         const real *from, const real *w, real *to)
{
    const int64_t C = g->channels, width = back ? g->w.out : g->w.in;
    const int64_t newest = back ? 0 : g->w.taps - 1; /* the tap that reads what none has read */
    real sum[WIDE];
    for (int64_t i = 0; i < n; i++) sum[i] = to[i];
    for (int64_t kh = 0; kh < g->h.taps; kh++) {
        const int64_t h = partner(&g->h, back, row, kh);
        if (h < 0) continue;
        for (int64_t kw = 0; kw < g->w.taps; kw++) {
            const int64_t p = partner(&g->w, back, col, kw);
            if (p < 0) continue;
            const real *x = from + (h * width + p) * C, *v = w + (kh * g->w.taps + kw) * C;
            if (kw == newest)
                for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(x + 2 * C + i);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) sum[i] += x[i] * v[i];
        }
    }
    for (int64_t i = 0; i < n; i++) to[i] = sum[i];
}

/* The same for all channels of the positions of a piece; to and from are images. */
static void R(gather_piece)(const tp__conv *g, bool back, const piece *p, const real *from,
                            const real *w, real *to)
{
    const int64_t C = g->channels, width = back ? g->w.in : g->w.out;
    for (int64_t col = p->from; col < p->to; col++) {
        real *at = to + (p->row * width + col) * C;
        int64_t i = 0;
        for (; i + WIDE <= C; i += WIDE)
            R(gather)(g, back, p->row, col, WIDE, from + i, w + i, at + i);
        for (; i + HALF <= C; i += HALF)
            R(gather)(g, back, p->row, col, HALF, from + i, w + i, at + i);
        if (i < C) R(gather)(g, back, p->row, col, C - i, from + i, w + i, at + i);
    }
}

static void R(forward_pieces)(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__conv g = R(conv_of)(c);
    const int64_t C = g.channels;
    const real *bias = c->x[2].data;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const piece p = piece_of(&g, t, g.h.out, g.w.out);
        const real *x = (const real *)c->x[0].data + p.image * g.h.in * g.w.in * C;
        real *y = (real *)c->y[0].data + p.image * g.h.out * g.w.out * C;
        for (int64_t o = p.row * g.w.out + p.from; o < p.row * g.w.out + p.to; o++) {
            if (bias)
                memcpy(y + o * C, bias, (size_t)C * sizeof *y);
            else
                memset(y + o * C, 0, (size_t)C * sizeof *y);
        }
        R(gather_piece)(&g, false, &p, x, c->work, y);
    }
}

static tp_code R(depthwise_fwd)(const tp_call *c)
{
    const tp__conv g = R(conv_of)(c);
    if (g.channels == 0) return TP_OK;
    R(transpose)(g.channels, g.h.taps * g.w.taps, c->x[1].data, c->work);
    tp__for(c, tp__conv_pieces(&g, g.h.out, g.w.out), 2, R(forward_pieces));
    return TP_OK;
}

static void R(dx_pieces)(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__conv g = R(conv_of)(c);
    const int64_t C = g.channels;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const piece p = piece_of(&g, t, g.h.in, g.w.in);
        const real *dy = (const real *)c->dy[0].data + p.image * g.h.out * g.w.out * C;
        real *dx = (real *)c->dx[0].data + p.image * g.h.in * g.w.in * C;
        real *first = dx + (p.row * g.w.in + p.from) * C;
        if (!(c->add & 1u)) memset(first, 0, (size_t)((p.to - p.from) * C) * sizeof *dx);
        R(gather_piece)(&g, true, &p, dy, c->work, dx);
    }
}

/* to[i] += sum over the outputs of a piece of dy[o][i] x[partner of tap (kh, kw)][i]. */
TP_INLINE void R(correlate)(const tp__conv *g, const piece *p, int64_t kh, int64_t kw, int64_t n,
                            const real *dy, const real *x, real *to)
{
    const int64_t C = g->channels, h = partner(&g->h, false, p->row, kh);
    real sum[WIDE];
    if (h < 0) return;
    for (int64_t i = 0; i < n; i++) sum[i] = to[i];
    for (int64_t col = p->from; col < p->to; col++) {
        const int64_t w = partner(&g->w, false, col, kw);
        if (w < 0) continue;
        const real *a = dy + (p->row * g->w.out + col) * C, *b = x + (h * g->w.in + w) * C;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] += a[i] * b[i];
    }
    for (int64_t i = 0; i < n; i++) to[i] = sum[i];
}

/* c->work in backward: weights [taps,C]; sums of dw and db [taps+1,C]; those of each block. */
static real *R(block_sums)(const tp_call *c, const tp__conv *g, int64_t block)
{
    const int64_t taps = g->h.taps * g->w.taps;
    return (real *)c->work + (taps + (block + 1) * (taps + 1)) * g->channels;
}

/* Adds what a piece contributes to dw and db. */
static void R(sum_piece)(const tp__conv *g, const piece *p, const real *dy, const real *x, real *dw)
{
    const int64_t C = g->channels, taps = g->h.taps * g->w.taps;
    for (int64_t o = p->row * g->w.out + p->from; o < p->row * g->w.out + p->to; o++)
        for (int64_t i = 0; i < C; i++) dw[taps * C + i] += dy[o * C + i];
    for (int64_t k = 0; k < taps; k++) {
        const int64_t kh = k / g->w.taps, kw = k % g->w.taps;
        real *to = dw + k * C;
        int64_t i = 0;
        for (; i + WIDE <= C; i += WIDE) R(correlate)(g, p, kh, kw, WIDE, dy + i, x + i, to + i);
        for (; i + HALF <= C; i += HALF) R(correlate)(g, p, kh, kw, HALF, dy + i, x + i, to + i);
        if (i < C) R(correlate)(g, p, kh, kw, C - i, dy + i, x + i, to + i);
    }
}

static void R(dw_blocks)(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__conv g = R(conv_of)(c);
    const int64_t C = g.channels, taps = g.h.taps * g.w.taps;
    const int64_t pieces = tp__conv_pieces(&g, g.h.out, g.w.out), size = tp__conv_block(pieces);
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        real *dw = R(block_sums)(c, &g, k);
        memset(dw, 0, (size_t)((taps + 1) * C) * sizeof *dw);
        for (int64_t t = k * size; t < pieces && t < (k + 1) * size; t++) {
            const piece p = piece_of(&g, t, g.h.out, g.w.out);
            R(sum_piece)
            (&g, &p, (const real *)c->dy[0].data + p.image * g.h.out * g.w.out * C,
             (const real *)c->x[0].data + p.image * g.h.in * g.w.in * C, dw);
        }
    }
}

static void R(dw_db)(const tp_call *c, const tp__conv *g)
{
    const int64_t C = g->channels, taps = g->h.taps * g->w.taps;
    const int64_t blocks = tp__conv_blocks(tp__conv_pieces(g, g->h.out, g->w.out));
    const bool add_w = c->add >> 1 & 1u, add_b = c->add >> 2 & 1u;
    real *sums = R(block_sums)(c, g, -1), *dw = c->dx[1].data, *db = c->dx[2].data;
    tp__for(c, blocks, 1, R(dw_blocks));
    R(tp__add_blocks)(sums, false, (taps + 1) * C, R(block_sums)(c, g, 0), blocks, (taps + 1) * C);
    for (int64_t i = 0; dw && i < C; i++)
        for (int64_t k = 0; k < taps; k++)
            dw[i * taps + k] = (add_w ? dw[i * taps + k] : 0) + sums[k * C + i];
    for (int64_t i = 0; db && i < C; i++) db[i] = (add_b ? db[i] : 0) + sums[taps * C + i];
}

static tp_code R(depthwise_bwd)(const tp_call *c)
{
    const tp__conv g = R(conv_of)(c);
    if (g.channels == 0) return TP_OK;
    if (c->dx[0].data) {
        R(transpose)(g.channels, g.h.taps * g.w.taps, c->x[1].data, c->work);
        tp__for(c, tp__conv_pieces(&g, g.h.in, g.w.in), 2, R(dx_pieces));
    }
    if (c->dx[1].data || c->dx[2].data) R(dw_db)(c, &g);
    return TP_OK;
}

#endif
