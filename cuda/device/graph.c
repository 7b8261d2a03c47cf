/* graph.c - a recorded step: the stream's work between begin and end, as a CUDA graph.
 *
 * Sources of recorded uploads and tables that kernels read must exist at every launch, so the graph
 * owns memory for them, in pieces of 1 MiB. The first pieces are allocated before recording begins;
 * few steps need more. Only relaxed mode allows allocation while recording. */
#include "cuda/device/inner.h"

#include <stdlib.h>

#define PIECE ((size_t)1 << 20)
#define ALIGN ((size_t)256)

typedef struct piece {
    struct piece *next;
    char *base;
    size_t size, used;
    bool host;
} piece;

struct tp_cuda_graph {
    cudaGraphExec_t exec;
    piece *pieces;
    bool incomplete; /* allocation of its inputs failed */
};

static piece *piece_new(tp_cuda_graph *g, size_t size, bool host)
{
    piece *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    const cudaError_t e =
        host ? cudaMallocHost((void **)&p->base, size) : cudaMalloc((void **)&p->base, size);
    if (e != cudaSuccess) {
        cudaGetLastError();
        free(p);
        return NULL;
    }
    p->size = size;
    p->host = host;
    p->next = g->pieces;
    return g->pieces = p;
}

void *tp__cuda_graph_keep(tp_cuda_graph *g, size_t bytes, bool host)
{
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    piece *p = g->pieces;
    while (p && (p->host != host || p->size - p->used < bytes)) p = p->next;
    if (!p) p = piece_new(g, bytes > PIECE ? bytes : PIECE, host);
    if (!p) {
        g->incomplete = true;
        return NULL;
    }
    p->used += bytes;
    return p->base + p->used - bytes;
}

void tp__cuda_graph_free(tp_cuda_graph *g)
{
    if (!g) return;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    for (piece *p = g->pieces, *next; p; p = next) {
        next = p->next;
        if (p->host)
            cudaFreeHost(p->base);
        else
            cudaFree(p->base);
        free(p);
    }
    free(g);
}

tp_cuda_graph *tp__cuda_graph_begin(cudaStream_t s)
{
    tp_cuda_graph *g = calloc(1, sizeof *g);
    if (g && piece_new(g, PIECE, true) && piece_new(g, PIECE, false) &&
        cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed) == cudaSuccess)
        return g;
    cudaGetLastError();
    tp__cuda_graph_free(g);
    return NULL;
}

cudaError_t tp__cuda_graph_end(tp_cuda_graph *g, cudaStream_t s)
{
    cudaGraph_t recorded = NULL;
    cudaError_t e = cudaStreamEndCapture(s, &recorded);
    if (e == cudaSuccess && g->incomplete) e = cudaErrorMemoryAllocation;
    if (e == cudaSuccess) e = cudaGraphInstantiate(&g->exec, recorded, 0);
    if (recorded) cudaGraphDestroy(recorded);
    return e;
}

cudaError_t tp__cuda_graph_launch(const tp_cuda_graph *g, cudaStream_t s)
{
    return cudaGraphLaunch(g->exec, s);
}
