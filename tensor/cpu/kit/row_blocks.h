/* row_blocks.h - sums over the rows of a matrix, in blocks that depend on its shape only.
 *
 * Each block of rows adds into its own row of partial sums, on any thread. The partial sums are
 * then added in order, so results do not depend on the number of threads. There are at most 128
 * blocks of at least 32 rows: enough for any number of cores, with little memory and short chains
 * of additions. */
#ifndef TP_ROW_BLOCKS_H
#define TP_ROW_BLOCKS_H

#include <stdint.h>

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

#endif
