/* row_blocks.h - sums over the rows of a matrix, in blocks set by its shape.
 *
 * Each block of rows adds into its own row of partial sums, on any thread. The partial sums are
 * then added in order, so results do not depend on the number of threads. There are at most 128
 * blocks of at least 32 rows: enough for any number of cores, with little memory and short chains
 * of additions. */
#ifndef TP_ROW_BLOCKS_H
#define TP_ROW_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cpu/kit/real.h"
#include "cpu/kit/stored.h"

static inline int64_t tp__block_rows(int64_t rows)
{
    const int64_t n = (rows + 127) / 128;
    return n < 32 ? 32 : n;
}

static inline int64_t tp__row_blocks(int64_t rows)
{
    const int64_t n = tp__block_rows(rows);
    return (rows + n - 1) / n;
}

/* out[i] = or += sum over blocks of part[block][i], i < n, ld the row length. */
static inline void tp__add_blocks(real *out, bool add, int64_t n, const real *part, int64_t blocks,
                                  int64_t ld)
{
    if (!add) memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t k = 0; k < blocks; k++)
        for (int64_t i = 0; i < n; i++) out[i] += part[k * ld + i];
}

/* The same for a view that may be bf16. */
static inline void tp__add_blocks_to(const tp_view *out, bool add, int64_t n, const real *part,
                                     int64_t blocks, int64_t ld)
{
    real room[ROOM];
    if (!is_bf16(out)) {
        tp__add_blocks(out->data, add, n, part, blocks, ld);
        return;
    }
    for (int64_t at = 0; at < n; at += ROOM) {
        const int64_t size = n - at < ROOM ? n - at : ROOM;
        if (add) read_row(out, out->data, at, size, room);
        tp__add_blocks(room, add, size, part + at, blocks, ld);
        put_row(out, out->data, at, size, room);
    }
}

#endif
