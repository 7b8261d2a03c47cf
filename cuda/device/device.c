/* device.c - the CUDA backend: opening a GPU with clear errors, recorded steps, closing.
 *
 * All work of a device is on one stream, so memory can be reused once the host releases it. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/device/gpu.h"

#define MIB          (1024.0 * 1024.0)
#define LEAST_MAJOR  8
#define LEAST_DRIVER 12000

/* ---- profile ---- */

static void cuda_mark(tp_device *D, int line, int slice)
{
    tp__gpu_check(D, "profile", tp__cuda_marks_add(tp__gpu(D)->marks, D, line, slice));
}

static void cuda_read_marks(tp_device *D)
{
    tp__gpu_check(D, "profile", tp__cuda_marks_read(tp__gpu(D)->marks, D));
}

/* ---- recorded steps ---- */

static bool cuda_capture_begin(tp_device *D)
{
    tp_cuda *g = tp__gpu(D);
    if (!g->debug_sync) g->graph = tp__cuda_graph_begin(tp__cuda_stream(D));
    return g->graph != NULL;
}

static void *cuda_capture_end(tp_device *D, char *why)
{
    tp_cuda *g = tp__gpu(D);
    tp_cuda_graph *graph = g->graph;
    const cudaError_t e = tp__cuda_graph_end(graph, tp__cuda_stream(D));
    g->graph = NULL;
    if (e == cudaSuccess) return graph;
    tp__cuda_graph_free(graph);
    tp__gpu_refused(D, e, why);
    return NULL;
}

static bool cuda_graph_launch(tp_device *D, void *graph, char *why)
{
    const cudaError_t e = tp__cuda_graph_launch(graph, tp__cuda_stream(D));
    if (e != cudaSuccess) tp__gpu_refused(D, e, why);
    return e == cudaSuccess;
}

/* Waits first: the GPU may still be running the graph. */
static void cuda_graph_free(tp_device *D, void *graph)
{
    tp__count(D->syncs, 1);
    tp__gpu_check(D, "waiting", cudaStreamSynchronize(tp__cuda_stream(D)));
    tp__cuda_graph_free(graph);
}

/* ---- opening and closing ---- */

static void cuda_close(tp_device *D)
{
    tp_cuda *g = tp__gpu(D);
    if (!g) return;
    cudaSetDevice(g->index);
    if (g->stream) cudaStreamSynchronize(g->stream);
    if (g->table) cudaFree(g->table);
    tp__cuda_marks_free(g->marks);
    tp__cuda_blas_close(g->blas);
    tp__cuda_staging_free(g->staging);
    if (g->stream) cudaStreamDestroy(g->stream);
    g->stream = NULL;
}

/* Called after the heap is freed, which needs this object. */
static void cuda_forget(tp_device *D)
{
    free(D->gpu);
    D->gpu = NULL;
}

static const tp_backend backend = {
    .kind = TP_CUDA,
    .alloc = tp__gpu_alloc,
    .free = tp__gpu_free,
    .upload = tp__gpu_upload,
    .download = tp__gpu_download,
    .copy = tp__gpu_copy,
    .zero = tp__gpu_zero,
    .fill = tp__gpu_fill,
    .sync = tp__gpu_sync,
    .ran = tp__gpu_ran,
    .mark = cuda_mark,
    .read_marks = cuda_read_marks,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
    .close = cuda_close,
    .forget = cuda_forget,
};

/* Checks that a driver and a GPU of that index exist; the error names what is missing. */
static bool find_gpu(tp_device *D, int index)
{
    int driver = 0, n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    cudaDriverGetVersion(&driver);
    cudaGetLastError();
    if (driver == 0)
        tp__err(&D->err, TP_E_DEVICE,
                "device %s: this machine has no NVIDIA driver (libcuda.so.1); use cpu", D->name);
    else if (e == cudaErrorInsufficientDriver || driver < LEAST_DRIVER)
        tp__err(&D->err, TP_E_DEVICE,
                "device %s: the NVIDIA driver is too old: it supports CUDA %d.%d, this build needs "
                "%d.%d or later",
                D->name, driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                CUDART_VERSION % 1000 / 10);
    else if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
        tp__err(
            &D->err, TP_E_DEVICE,
            "device %s: the driver sees no NVIDIA GPU (is CUDA_VISIBLE_DEVICES empty?); use cpu",
            D->name);
    else if (e != cudaSuccess)
        tp__err(&D->err, TP_E_DEVICE, "device %s: %s (%s)", D->name, cudaGetErrorString(e),
                cudaGetErrorName(e));
    else if (index >= n)
        tp__err(&D->err, TP_E_DEVICE, "device %s: this machine has %d, cuda:0 to cuda:%d", D->name,
                n, n - 1);
    return D->err.code == TP_OK;
}

static bool check_gpu(tp_device *D, int index)
{
    struct cudaDeviceProp p;
    cudaError_t e = cudaSetDevice(index);
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&p, index);
    cudaGetLastError();
    if (e == cudaErrorDevicesUnavailable)
        tp__err(
            &D->err, TP_E_DEVICE,
            "device %s: another process holds the GPU for itself; wait for it, or use another GPU",
            D->name);
    else if (e != cudaSuccess)
        tp__err(&D->err, TP_E_DEVICE, "device %s: %s (%s)", D->name, cudaGetErrorString(e),
                cudaGetErrorName(e));
    else if (p.major < LEAST_MAJOR)
        tp__err(&D->err, TP_E_DEVICE,
                "device %s: %s has compute capability %d.%d; %d.0 (Ampere) or later is needed",
                D->name, p.name, p.major, p.minor, LEAST_MAJOR);
    if (D->err.code != TP_OK) return false;
    tp__gpu(D)->processors = p.multiProcessorCount;
    return true;
}

/* Creates the stream, the memory for uploads and the cuBLAS handles. */
static bool create_handles(tp_device *D, bool profile)
{
    tp_cuda *g = tp__gpu(D);
    char why[512] = "";
    size_t left = 0, total = 0;
    cudaError_t e = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = tp__cuda_staging_new(&g->staging);
    if (e == cudaSuccess && profile) e = tp__cuda_marks_new(&g->marks);
    if (e == cudaErrorMemoryAllocation) {
        cudaMemGetInfo(&left, &total);
        tp__err(&D->err, TP_E_MEMORY,
                "device %s: too little memory to begin with: %.0f MiB of %.0f MiB are free; end "
                "other programs on the GPU",
                D->name, (double)left / MIB, (double)total / MIB);
    } else if (e != cudaSuccess) {
        tp__gpu_fault(D, "opening", e);
    } else {
        g->blas = tp__cuda_blas_open(g->stream, why, sizeof why);
        if (!g->blas) tp__err(&D->err, TP_E_DEVICE, "device %s: %s", D->name, why);
    }
    cudaGetLastError();
    return D->err.code == TP_OK;
}

void tp__cuda_open(tp_device *D, int index, const tp_device_opts *o)
{
    snprintf(D->name, sizeof D->name, "cuda:%d%s", index, o->dry ? " (dry)" : "");
    if (o->dry) { /* needs no GPU */
        D->threads = 1;
        D->dry = true;
        tp__heap_init(&D->heap, o);
        D->be = &tp__dry_backend[TP_CUDA];
        return;
    }
    if (!find_gpu(D, index)) return;
    D->gpu = calloc(1, sizeof(tp_cuda));
    if (!D->gpu) {
        tp__err(&D->err, TP_E_MEMORY, "device %s: out of host memory", D->name);
        return;
    }
    *tp__gpu(D) = (tp_cuda){ .index = index, .tf32 = o->tf32, .debug_sync = o->debug_sync };
    if (!check_gpu(D, index) || !create_handles(D, o->profile)) {
        cuda_close(D);
        cuda_forget(D);
        return;
    }
    D->threads = 1; /* of the host, to size workspaces */
    tp__heap_init(&D->heap, o);
    D->be = &backend;
}
