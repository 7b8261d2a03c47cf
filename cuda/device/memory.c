/* memory.c - device memory, and copies between it and the host. */
#include "cuda/device/gpu.h"

#include <string.h>

/* ---- memory ---- */

void *tp__gpu_alloc(tp_device *D, size_t bytes)
{
    void *p = NULL;
    tp__count(D->syncs, 1); /* the driver may wait for the GPU */
    cudaError_t e = cudaSetDevice(tp__gpu(D)->index);
    if (e == cudaSuccess) e = cudaMalloc(&p, bytes);
    if (e == cudaSuccess) return p;
    cudaGetLastError(); /* the next launch must not report it */
    if (e != cudaErrorMemoryAllocation) tp__gpu_fault(D, "asking for memory", e);
    return NULL;
}

void tp__gpu_free(tp_device *D, void *p, size_t bytes)
{
    (void)bytes;
    tp__count(D->syncs, 1);
    cudaSetDevice(tp__gpu(D)->index);
    tp__gpu_check(D, "returning memory", cudaFree(p));
}

/* ---- copies ---- */

void tp__gpu_upload(tp_device *D, void *to, const void *host, size_t bytes)
{
    tp_cuda *g = tp__gpu(D);
    if (g->graph) { /* copied in each launch of the recording */
        void *kept = tp__cuda_graph_keep(g->graph, bytes, true);
        if (!kept) return; /* the recording fails when it ends */
        if (bytes) memcpy(kept, host, bytes);
        tp__gpu_check(D, "upload",
                      cudaMemcpyAsync(to, kept, bytes, cudaMemcpyHostToDevice, tp__cuda_stream(D)));
        return;
    }
    tp__gpu_check(D, "upload", tp__cuda_staging_upload(g->staging, D, to, host, bytes));
}

void tp__gpu_download(tp_device *D, void *host, const void *from, size_t bytes)
{
    cudaStream_t s = tp__cuda_stream(D);
    if (bytes)
        tp__gpu_check(D, "download", cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, s));
    tp__gpu_check(D, "waiting", cudaStreamSynchronize(s));
}

void tp__gpu_copy(tp_device *D, void *to, const void *from, size_t bytes)
{
    if (bytes)
        tp__gpu_check(
            D, "copy",
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, tp__cuda_stream(D)));
}

void tp__gpu_zero(tp_device *D, void *to, size_t bytes)
{
    if (bytes) tp__gpu_check(D, "clearing", cudaMemsetAsync(to, 0, bytes, tp__cuda_stream(D)));
}

void tp__gpu_fill(tp_device *D, void *to, size_t bytes, const void *value)
{
    char why[TP_WHY] = "";
    const tp_call c = { .dev = D, .why = why };
    if (tp__cuda_fill(&c, to, bytes, value) != TP_OK)
        tp__err(&D->err, TP_E_CUDA, "device %s: filling: %s", D->name, why);
}

void tp__gpu_sync(tp_device *D)
{
    tp__gpu_check(D, "waiting", cudaStreamSynchronize(tp__cuda_stream(D)));
}

tp_code tp__cuda_copy(const tp_call *c, void *to, const void *from, size_t bytes)
{
    tp__gpu_copy(c->dev, to, from, bytes);
    return c->dev->err.code;
}

tp_code tp__cuda_zero(const tp_call *c, void *to, size_t bytes)
{
    tp__gpu_zero(c->dev, to, bytes);
    return c->dev->err.code;
}

void *tp__cuda_table(const tp_call *c, const void *host, size_t bytes)
{
    tp_cuda *g = tp__gpu(c->dev);
    if (g->graph) {
        cudaSetDevice(g->index);
        void *kept = tp__cuda_graph_keep(g->graph, bytes, false);
        if (kept)
            tp__gpu_upload(c->dev, kept, host, bytes);
        else
            tp__cuda_fail(c, TP_E_MEMORY, "no memory for a table of %zu bytes", bytes);
        return kept;
    }
    if (g->table_bytes < bytes) {
        if (g->table) tp__gpu_free(c->dev, g->table, g->table_bytes);
        g->table_bytes = 2 * bytes;
        g->table = tp__gpu_alloc(c->dev, g->table_bytes);
    }
    if (!g->table) {
        g->table_bytes = 0;
        tp__cuda_fail(c, TP_E_MEMORY, "no memory for a table of %zu bytes", bytes);
        return NULL;
    }
    tp__gpu_upload(c->dev, g->table, host, bytes);
    return g->table;
}
