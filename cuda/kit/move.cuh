/* move.cuh - for kernels that only move elements: the widest possible words, and fast division by
 * divisors known at launch.
 *
 * Only the size of an element matters, so one kernel serves all dtypes: it is compiled for words of
 * 1 to 16 bytes, and the host chooses the widest that divides every size and address. */
#ifndef TP_MOVE_CUH
#define TP_MOVE_CUH

#include "cuda/kit/kernel.cuh"

/* ---- words ---- */

/* The widest word, up to 16 bytes, that divides all these byte counts and addresses. */
template <class... T> static inline int tp_widest(T... bytes)
{
    const uint64_t all = ((uint64_t)bytes | ... | 16);
    return (int)(all & (0 - all));
}

/* Call f with an element of that size, or with a word, of up to 16 bytes:
 *     return tp_with_word(bytes, [&](auto w) { using W = decltype(w); ... });
 */
template <class F> static tp_code tp_with_element(int bytes, F f)
{
    return bytes == 8   ? f(uint2())
           : bytes == 4 ? f(uint32_t())
           : bytes == 2 ? f(uint16_t())
                        : f(uint8_t());
}
template <class F> static tp_code tp_with_word(int bytes, F f)
{
    return bytes == 16 ? f(uint4()) : tp_with_element(bytes, f);
}

/* A word of copies of the value. */
static inline uint4 tp_repeated(tp_dtype dt, double value)
{
    uint4 all;
    const int64_t n = (int64_t)(sizeof all / tp_dtype_size(dt));
    const tp_view v = { &all, dt, 1, { n }, n };
    for (int64_t i = 0; i < n; i++) tp_st(&v, i, value);
    return all;
}

/* ---- division ---- */

/* i / d by multiplication and shift, many times faster. m is 2^32 (2^s / d - 1) rounded up, with
 * 2^s the smallest power of two not below d; `wide` is the same with 2^64. */
struct tp_divisor {
    int64_t d;
    uint64_t wide;
    uint32_t m, s;
};

static inline tp_divisor tp_by(int64_t d)
{
    __extension__ typedef unsigned __int128 u128;
    tp_divisor by = { d, 0, 0, 0 };
    if (d < 1) return by; /* empty size, never a divisor */
    while ((uint64_t)1 << by.s < (uint64_t)d) by.s++;
    const uint64_t rest = ((uint64_t)1 << by.s) - (uint64_t)d;
    const uint64_t q = (uint64_t)(((u128)rest << 64) / (u128)d);
    by.wide = q + 1;
    by.m = (uint32_t)(q >> 32) + 1;
    return by;
}

static __device__ inline int64_t tp_over(const tp_divisor &by, int64_t i)
{
    if ((i | by.d) >> 31)
        return (int64_t)((__umul64hi((uint64_t)i, by.wide) + (uint64_t)i) >> by.s);
    const uint32_t u = (uint32_t)i;
    return ((uint32_t)((uint64_t)u * by.m >> 32) + u) >> by.s;
}

/* ---- axes ---- */

/* tp_axes with divisors, strides counted in words. */
struct tp_places {
    int n;
    tp_divisor by[TP_MAX_DIMS];
    int64_t stride[TP_MAX_DIMS];
};

static inline tp_places tp_places_of(const tp_axes &x, int64_t elements_a_word)
{
    tp_places p = {};
    p.n = x.n;
    for (int k = 0; k < x.n; k++) {
        p.by[k] = tp_by(x.dim[k]);
        p.stride[k] = x.stride[k] / elements_a_word;
    }
    return p;
}

/* The offset of item i. */
static __device__ inline int64_t tp_place(const tp_places &x, int64_t i)
{
    int64_t at = 0;
#pragma unroll 1 /* most calls take one or two steps; unrolling doubles kernels' size */
    for (int k = x.n - 1; k > 0; k--) {
        const int64_t rest = tp_over(x.by[k], i);
        at += (i - rest * x.by[k].d) * x.stride[k];
        i = rest;
    }
    return x.n > 0 ? at + i * x.stride[0] : 0;
}

/* Indexes the smaller operand of a broadcast (broadcast.h), in elements or words: each row of n of
 * the larger one uses a row of it or, if `one`, one element. */
struct tp_broadcast {
    tp_places rows;
    tp_divisor n;
    bool one;
};

static inline tp_broadcast tp_broadcast_of(const tp_bcast &b, int64_t elements_a_word)
{
    return { tp_places_of(b.rows, elements_a_word), tp_by(b.n / elements_a_word), b.one };
}

static __device__ inline int64_t tp_broadcast_at(const tp_broadcast &p, int64_t e)
{
    const int64_t row = tp_over(p.n, e), b = tp_place(p.rows, row);
    return p.one ? b : b + e - row * p.n.d;
}

#endif
