/* gpu.c - access to a device's GPU for the backend, and errors.
 *
 * The GPU works asynchronously, so an error may surface in a later wait, launch or product. The
 * message names the last ops queued, one of which caused it. */
#include "cuda/device/gpu.h"

#include <stdio.h>

/* All queued work gets its stream here. Also selects the GPU: a thread may use several, and
 * kernels, attributes, memory and recordings belong to the current one. */
cudaStream_t tp__cuda_stream(const tp_device *D)
{
    cudaSetDevice(tp__gpu(D)->index);
    return tp__gpu(D)->stream;
}
int tp__cuda_processors(const tp_device *D)
{
    return tp__gpu(D)->processors;
}
const uint64_t *tp__cuda_advance(const tp_device *D)
{
    return D->capturing;
}
tp_cuda_blas *tp__cuda_blas(const tp_device *D)
{
    return tp__gpu(D)->blas;
}
bool tp__cuda_tf32(const tp_device *D)
{
    return tp__gpu(D)->tf32;
}

/* ---- errors ---- */

static void append_recent(const tp_cuda *g, char *text, size_t size)
{
    const uint64_t n = g->ops < TP_CUDA_RECENT ? g->ops : TP_CUDA_RECENT;
    for (uint64_t i = 0; i < n; i++)
        tp__append(text, size, "%s%s", i ? ", " : "; one of the last ops queued: ",
                   g->recent[(g->ops - 1 - i) % TP_CUDA_RECENT]);
}

void tp__gpu_fault(tp_device *D, const char *what, cudaError_t e)
{
    char ops[TP_CUDA_RECENT * (TP_CUDA_NAME + 2) + 64] = "";
    append_recent(tp__gpu(D), ops, sizeof ops);
    tp__err(&D->err, TP_E_CUDA, "device %s: %s: %s (%s)%s", D->name, what, cudaGetErrorString(e),
            cudaGetErrorName(e), ops);
}

tp_code tp__cuda_fail(const tp_call *c, tp_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (c->why) vsnprintf(c->why, TP_WHY, fmt, ap);
    va_end(ap);
    return code;
}

/* After a kernel's error, every call returns it. */
static bool faulted(tp_device *D)
{
    size_t left = 0, total = 0;
    cudaSetDevice(tp__gpu(D)->index);
    const cudaError_t e = cudaMemGetInfo(&left, &total);
    tp__gpu_check(D, "a kernel that was queued before", e);
    return e != cudaSuccess;
}

bool tp__cuda_failed(const tp_call *c)
{
    return faulted(c->dev);
}

void tp__gpu_refused(tp_device *D, cudaError_t e, char *why)
{
    cudaGetLastError(); /* the next launch must not report it */
    if (!faulted(D)) snprintf(why, TP_WHY, "%s (%s)", cudaGetErrorString(e), cudaGetErrorName(e));
}

tp_code tp__cuda_launched(const tp_call *c)
{
    const cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return TP_OK;
    if (tp__cuda_failed(c)) return TP_E_CUDA;
    return tp__cuda_fail(c, TP_E_CUDA, "launch failed: %s (%s)", cudaGetErrorString(e),
                         cudaGetErrorName(e));
}

tp_code tp__gpu_ran(tp_device *D, const char *name, bool backward)
{
    tp_cuda *g = tp__gpu(D);
    snprintf(g->recent[g->ops++ % TP_CUDA_RECENT], TP_CUDA_NAME, "%.26s%s", name,
             backward ? " (backward)" : "");
    if (!g->debug_sync) return TP_OK;
    tp__count(D->syncs, 1);
    const cudaError_t e = cudaStreamSynchronize(tp__cuda_stream(D));
    if (e != cudaSuccess)
        tp__err(&D->err, TP_E_CUDA, "device %s: %s%s failed: %s (%s)", D->name, name,
                backward ? " (backward)" : "", cudaGetErrorString(e), cudaGetErrorName(e));
    return D->err.code;
}
