/* planted.h - the kernels of planted.cu: correct ones, and those with mistakes. */
#ifndef PLANTED_H
#define PLANTED_H

#include <tapegrad/op.h>

typedef enum planted {
    REVERSE, /* y = x reversed in blocks of 64 */
    MISSING_BARRIER,
    BARRIER_IN_BRANCH,
    UNWRITTEN,
    WRONG_TAIL,
    PAST_THE_END,
    PAST_SHARED,
    WARP, /* y = 0 + ... + 31, for 32 elements */
    LANE_MISSING,
    COPY, /* y = x reversed, 128 elements */
    NOT_WAITED,
    MISALIGNED,
    ROUNDS, /* y = x reversed in blocks of 64, 128 elements */
    WARP_AHEAD,
    COPIED_EARLY,
    MMA,         /* y [16,8] = A B^T, x = A [16,16] and B [8,16] */
    DIVIDE,      /* y = how many of some quotients are wrong, for 32 elements */
    SHARED_FITS, /* y = 0, with 48 KiB of shared memory */
    SHARED_NOT_ASKED,
    SHARED_TOO_MUCH,
    NO_BLOCKS,
    TOO_MANY_DOWN
} planted;

#ifdef __cplusplus
extern "C"
#endif
    tp_code
    planted_run(const tp_call *c, planted mistake);

#endif
