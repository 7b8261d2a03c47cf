/* conv2d_room.cuh - scratch memory of convolutions: a pass (tensor/geometry/conv2d.h) runs in
 * chunks of positions, whose inputs are gathered into rows of a matrix. */
#ifndef TP_CONV2D_ROOM_CUH
#define TP_CONV2D_ROOM_CUH

#include "tensor/geometry/conv2d.h"

#define CONV_CHUNK_BYTES ((size_t)64 << 20) /* of a chunk's matrix, unless one row has more */

/* Offsets in c->work, in bytes: the weights of a pass, at 0; the matrix of a chunk; sums in floats,
 * of dW or of a chunk that is stored position by position. */
struct conv_room {
    size_t matrix, sums, all;
};

static inline int64_t conv_positions(const tp__conv2d_pass *p)
{
    return p->batch * p->axis[0].count * p->axis[1].count;
}

/* Elements of a row of the matrix, of all groups. */
static inline int64_t conv_row(const tp__conv2d_pass *p)
{
    return p->groups * p->axis[0].taps * p->axis[1].taps * p->from;
}

/* Positions of a chunk. */
static inline int64_t conv_chunk(const tp__conv2d_pass *p, size_t size)
{
    const int64_t row = conv_row(p), n = conv_positions(p);
    const int64_t fit = row > 0 ? (int64_t)(CONV_CHUNK_BYTES / size) / row : n;
    return fit < 1 ? 1 : fit < n ? fit : n > 1 ? n : 1;
}

static inline size_t conv_round(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* size: bytes of an element of x. */
static inline conv_room conv_room_of(const tp__conv2d *g, size_t size, bool backward)
{
    tp__conv2d_pass p = tp__conv2d_forward(g);
    const size_t weights = (size_t)tp__conv2d_weights(&p);
    size_t matrix = (size_t)(conv_chunk(&p, size) * conv_row(&p)) * size;
    size_t sums = backward ? weights * sizeof(float) : 0;
    conv_room r;
    r.matrix = r.sums = r.all = 0;
    if (tp__conv2d_is_product(g)) return r;
    for (int64_t k = 0; backward && k < tp__conv2d_phases(g); k++) {
        p = tp__conv2d_backward(g, k);
        const int64_t chunk = conv_chunk(&p, size);
        const size_t rows = (size_t)(chunk * conv_row(&p)) * size;
        const size_t made = (size_t)(chunk * p.groups * p.to) * sizeof(float);
        if (rows > matrix) matrix = rows;
        if (!tp__conv2d_dense(&p) && made > sums) sums = made;
    }
    r.matrix = conv_round(weights * size);
    r.sums = r.matrix + conv_round(matrix);
    r.all = r.sums + conv_round(sums);
    return r;
}

#endif
