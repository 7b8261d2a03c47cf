/* limits.c - limits of the dynamic shared memory of each kernel.
 *
 * The driver keeps this limit per kernel and GPU, and a recorded launch needs it whenever its graph
 * runs. So limits only grow. They are per process, because several devices may share a GPU. */
#include "cuda/device/gpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <tapegrad/file.h>

typedef struct limit {
    const void *kernel;
    int gpu;
    size_t bytes;
} limit;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static limit *limits;
static size_t nlimits, cap;

/* A kernel's entry, added with 0 bytes if missing; NULL: out of memory. */
static limit *limit_of(const void *kernel, int gpu)
{
    for (size_t i = 0; i < nlimits; i++)
        if (limits[i].kernel == kernel && limits[i].gpu == gpu) return &limits[i];
    if (!tp_reserve(&limits, &cap, nlimits, 1, sizeof *limits)) return NULL;
    limits[nlimits] = (limit){ kernel, gpu, 0 };
    return &limits[nlimits++];
}

tp_code tp__cuda_allow_shared(const tp_call *c, const void *kernel, size_t bytes)
{
    cudaError_t e = cudaSuccess;
    tp__cuda_stream(c->dev); /* selects the GPU that owns the attribute */
    pthread_mutex_lock(&lock);
    limit *l = limit_of(kernel, tp__gpu(c->dev)->index);
    if (l && l->bytes < bytes) {
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (e == cudaSuccess) l->bytes = bytes;
    }
    pthread_mutex_unlock(&lock);
    if (!l) return tp__cuda_fail(c, TP_E_MEMORY, "out of host memory for a table of kernels");
    return e == cudaSuccess ? TP_OK : tp__cuda_launched(c);
}
