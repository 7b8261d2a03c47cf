/* staging.c - pinned memory for uploads: the GPU copies from it later, while the host goes on.
 *
 * A ring of pieces is filled in order. A piece is filled again once its last copy has run. While
 * the next piece waits for its copy, the ring gets a new one, so it grows to what the host uploads
 * ahead of the GPU. The host waits only while MOST pieces, or all that can be pinned, are full. */
#include "cuda/device/gpu.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 4, MOST = 128 }; /* pieces: when the device opens, and in 256 MiB */
#define PIECE ((size_t)2 << 20)
#define ALIGN ((size_t)256)

typedef struct piece {
    char *base;
    cudaEvent_t copied; /* the last copy from it */
    size_t used;        /* bytes filled since then */
} piece;

struct tp_cuda_staging {
    piece ring[MOST];
    int n, most, at; /* ring[at] is being filled, ring[at + 1] is the oldest */
};

/* Inserts an empty piece as ring[at]. */
static cudaError_t insert(tp_cuda_staging *s, int at)
{
    piece p = { 0 };
    cudaError_t e = cudaMallocHost((void **)&p.base, PIECE);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&p.copied, cudaEventDisableTiming);
    if (e != cudaSuccess) {
        if (p.base) cudaFreeHost(p.base);
        return e;
    }
    memmove(s->ring + at + 1, s->ring + at, (size_t)(s->n - at) * sizeof p);
    s->ring[at] = p;
    s->n++;
    return cudaSuccess;
}

cudaError_t tp__cuda_staging_new(tp_cuda_staging **s)
{
    *s = calloc(1, sizeof **s);
    if (!*s) return cudaErrorMemoryAllocation;
    (*s)->most = MOST;
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < FIRST && e == cudaSuccess; i++) e = insert(*s, i);
    return e;
}

void tp__cuda_staging_free(tp_cuda_staging *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        cudaEventDestroy(s->ring[i].copied);
        cudaFreeHost(s->ring[i].base);
    }
    free(s);
}

/* Goes on to an empty piece: the oldest, if its copy has run, or a new one. */
static cudaError_t advance(tp_cuda_staging *s, tp_device *D)
{
    int next = s->at + 1;
    cudaError_t e = cudaEventQuery(s->ring[next % s->n].copied);
    if (e == cudaErrorNotReady) {
        cudaGetLastError(); /* the next launch must not report it */
        e = s->n < s->most ? insert(s, next) : cudaErrorMemoryAllocation;
    }
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        s->most = s->n; /* asking again would take time */
        tp__count(D->syncs, 1);
        e = cudaEventSynchronize(s->ring[next % s->n].copied);
    }
    if (e != cudaSuccess) return e;
    s->at = next % s->n;
    s->ring[s->at].used = 0;
    return cudaSuccess;
}

cudaError_t tp__cuda_staging_upload(tp_cuda_staging *s, tp_device *D, void *to, const void *host,
                                    size_t bytes)
{
    const cudaStream_t stream = tp__cuda_stream(D);
    for (size_t done = 0, n; done < bytes; done += n) {
        cudaError_t e = cudaSuccess;
        if (s->ring[s->at].used == PIECE) e = advance(s, D);
        if (e != cudaSuccess) return e;
        piece *p = &s->ring[s->at];
        n = bytes - done < PIECE - p->used ? bytes - done : PIECE - p->used;
        memcpy(p->base + p->used, (const char *)host + done, n);
        e = cudaMemcpyAsync((char *)to + done, p->base + p->used, n, cudaMemcpyHostToDevice,
                            stream);
        if (e == cudaSuccess) e = cudaEventRecord(p->copied, stream);
        if (e != cudaSuccess) return e;
        p->used += (n + ALIGN - 1) / ALIGN * ALIGN;
    }
    return cudaSuccess;
}
