/* races.h - a race detector for emulated kernels: finds unordered accesses.
 *
 * Kernels are compiled with gcc's thread sanitizer, whose calls races.cpp implements. The emulation
 * reports its own accesses on behalf of a thread (copies, fragments, atomics). Without
 * TAPEGRAD_CUDA_RACES these functions are empty. */
#ifndef RACES_H
#define RACES_H

#include <cstddef>
#include <cstdint>

enum race_access { RACE_READ, RACE_WRITE, RACE_ATOMIC };

extern int race_thread; /* the running thread's index in its block; -1: no kernel runs */

#ifdef TP_RACES
void race_launch();
void race_block();
void race_barrier();
void race_warp(); /* this lane has passed __syncwarp */
void race_touch(const void *at, size_t bytes, race_access how, const void *from);
/* True after a race or a misaligned access in this launch. */
bool race_found();
bool race_misaligned();
/* Return watched memory: device memory (NULL if none is left); shared memory valid until the next
 * block. */
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
