/* planted.h - the kernels of planted.cu, correct and faulty. */
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
    NOT_COMMITTED,
    USED_EARLY,
    MISALIGNED,
    ROUNDS, /* y = x reversed in blocks of 64, 128 elements */
    WARP_AHEAD,
    BLOCKS_IN_TURN, /* y = x reversed in blocks of 64; each block needs the previous one */
    COPIED_EARLY,
    RACELESS,       /* y = x reversed in blocks of 64   */
    LANES_IN_ORDER, /* y = x reversed in blocks of 32   */
    LANES_UNORDERED,
    READ_AND_OVERWRITTEN, /* y = x reversed in blocks of 64   */
    TWO_BLOCKS_WRITE,
    BLOCK_READS,
    COUNTED, /* y = the integer 64 */
    COUNTED_PLAINLY,
    WORDS, /* y = x, 128 elements */
    WORDS_MISALIGNED,
    MMA,         /* y [16,8] = A B^T, x = A [16,16] and B [8,16] */
    DIVIDE,      /* y = the number of wrong quotients, for 32 elements */
    PHILOX,      /* y = the number of wrong random words, for 32 elements */
    SHARED_FITS, /* y = 0, with 48 KiB of shared memory */
    SHARED_NOT_ASKED,
    SHARED_TOO_MUCH,
    SHARED_LOWERED,          /* the limit, below 48 KiB and the launch's need */
    SHARED_LOWERED_RECORDED, /* between the recording and its launch */
    SHARED_STORED,           /* by tp_store, meant for global memory */
    NO_BLOCKS,
    TOO_MANY_DOWN,
    ANOTHER_GPU, /* is current, not the GPU of the launch */
    MEMORY_ELSEWHERE
} planted;

#ifdef __cplusplus
extern "C"
#endif
    tp_code
    planted_run(const tp_call *c, planted mistake);

#endif
