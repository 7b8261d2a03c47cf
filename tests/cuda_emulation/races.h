/* races.h - a race detector for emulated kernels: finds accesses that nothing orders.
 *
 * Kernels are compiled with the calls of gcc's thread sanitizer, which races.cpp answers. The
 * emulation reports what it does on behalf of a thread (copies, fragments, atomics). Without
 * TAPEGRAD_CUDA_RACES all this is empty. */
#ifndef RACES_H
#define RACES_H

#include <cstddef>
#include <cstdint>

enum race_access { RACE_READ, RACE_WRITE, RACE_ATOMIC };

extern int race_thread; /* of the block, -1: no kernel runs */

#ifdef TP_RACES
void race_launch();
void race_block();
void race_barrier();
void race_warp(); /* this lane passed __syncwarp */
void race_touch(const void *at, size_t bytes, race_access how, const void *from);
/* Since the launch began: were there accesses without an order? One that is not aligned? */
bool race_found();
bool race_misaligned();
/* Watched memory: of a device, NULL if there is none; of the block, until the next block. */
void *race_memory(size_t bytes);
void race_release(void *p, size_t bytes);
void *race_shared(size_t bytes);
#else
inline void race_launch() {}
inline void race_block() {}
inline void race_barrier() {}
inline void race_warp() {}
inline void race_touch(const void *, size_t, race_access, const void *) {}
inline bool race_found()
{
    return false;
}
inline bool race_misaligned()
{
    return false;
}
#endif

#endif
