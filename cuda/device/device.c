/* device.c - the CUDA backend: opening with clear errors, memory, copies, asynchronous errors.
 *
 * All work of a device is on one stream, so memory may be reused as soon as the host lets go of it.
 * Uploads are staged in pinned memory and do not wait, unless the ring is full. An error that the
 * GPU reports later is found by the next call that waits; it names the last ops that were queued,
 * one of which is to blame. */
#include "cuda/device/inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/backend.h"

#define RECENT       16
#define NAME         40
#define RING_PIECES  4
#define RING_PIECE   ((size_t)2 << 20)
#define MIB          (1024.0 * 1024.0)
#define LEAST_MAJOR  8
#define LEAST_DRIVER 12000

typedef struct tp_cuda {
    int index, processors;
    bool tf32, debug_sync;
    cudaStream_t stream;
    tp_cuda_blas *blas;
    char *ring; /* pinned */
    cudaEvent_t passed[RING_PIECES];
    int piece;
    tp_cuda_marks *marks; /* NULL: no profile */
    tp_cuda_graph *graph; /* the step that is being recorded, or NULL */
    void *table;          /* of tp__cuda_table */
    size_t table_bytes;
    char recent[RECENT][NAME];
    uint64_t ops;
} tp_cuda;

static tp_cuda *cuda_of(const tp_device *D)
{
    return D->gpu;
}

/* Whoever gives a GPU work gets its stream here: a thread may use several GPUs, and kernels,
 * attributes, memory and recordings are those of the current one. */
cudaStream_t tp__cuda_stream(const tp_device *D)
{
    cudaSetDevice(cuda_of(D)->index);
    return cuda_of(D)->stream;
}
int tp__cuda_processors(const tp_device *D)
{
    return cuda_of(D)->processors;
}
const uint64_t *tp__cuda_advance(const tp_device *D)
{
    return D->capturing;
}
tp_cuda_blas *tp__cuda_blas(const tp_device *D)
{
    return cuda_of(D)->blas;
}
bool tp__cuda_tf32(const tp_device *D)
{
    return cuda_of(D)->tf32;
}

/* ---- errors ---- */

static void append_recent(const tp_cuda *g, char *text, size_t size)
{
    const uint64_t n = g->ops < RECENT ? g->ops : RECENT;
    for (uint64_t i = 0; i < n; i++)
        tp__append(text, size, "%s%s", i ? ", " : "; one of the last ops queued: ",
                   g->recent[(g->ops - 1 - i) % RECENT]);
}

/* Fails the device for good: after such an error CUDA answers nothing else. */
static void fault(tp_device *D, const char *what, cudaError_t e)
{
    char ops[RECENT * (NAME + 2) + 64] = "";
    append_recent(cuda_of(D), ops, sizeof ops);
    tp__err(&D->err, TP_E_CUDA, "device %s: %s: %s (%s)%s", D->name, what, cudaGetErrorString(e),
            cudaGetErrorName(e), ops);
}

static void check(tp_device *D, const char *what, cudaError_t e)
{
    if (e != cudaSuccess) fault(D, what, e);
}

tp_code tp__cuda_fail(const tp_call *c, tp_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (c->why) vsnprintf(c->why, TP_WHY, fmt, ap);
    va_end(ap);
    return code;
}

bool tp__cuda_failed(const tp_call *c)
{
    size_t left = 0, total = 0;
    cudaSetDevice(cuda_of(c->dev)->index);
    const cudaError_t e = cudaMemGetInfo(&left, &total);
    check(c->dev, "a kernel that was queued before", e);
    return e != cudaSuccess;
}

tp_code tp__cuda_launched(const tp_call *c)
{
    const cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return TP_OK;
    if (tp__cuda_failed(c)) return TP_E_CUDA;
    return tp__cuda_fail(c, TP_E_CUDA, "launch failed: %s (%s)", cudaGetErrorString(e),
                         cudaGetErrorName(e));
}

/* After each op: remembers its name; with debug_sync, waits for it. */
static tp_code cuda_ran(tp_device *D, const char *name, bool backward)
{
    tp_cuda *g = cuda_of(D);
    snprintf(g->recent[g->ops++ % RECENT], NAME, "%.26s%s", name, backward ? " (backward)" : "");
    if (!g->debug_sync) return TP_OK;
    D->syncs++;
    const cudaError_t e = cudaStreamSynchronize(tp__cuda_stream(D));
    if (e != cudaSuccess)
        tp__err(&D->err, TP_E_CUDA, "device %s: %s%s failed: %s (%s)", D->name, name,
                backward ? " (backward)" : "", cudaGetErrorString(e), cudaGetErrorName(e));
    return D->err.code;
}

/* ---- memory ---- */

static void *cuda_alloc(tp_device *D, size_t bytes)
{
    void *p = NULL;
    D->syncs++; /* the driver may wait for the GPU */
    cudaError_t e = cudaSetDevice(cuda_of(D)->index);
    if (e == cudaSuccess) e = cudaMalloc(&p, bytes);
    if (e == cudaSuccess) return p;
    cudaGetLastError(); /* a lack of memory is not an error of the next launch */
    if (e != cudaErrorMemoryAllocation) fault(D, "asking for memory", e);
    return NULL;
}

static void cuda_free(tp_device *D, void *p, size_t bytes)
{
    (void)bytes;
    D->syncs++;
    cudaSetDevice(cuda_of(D)->index);
    check(D, "returning memory", cudaFree(p));
}

/* ---- profile ---- */

static void cuda_mark(tp_device *D, int line)
{
    check(D, "profile", tp__cuda_marks_add(cuda_of(D)->marks, D, line));
}

static void cuda_read_marks(tp_device *D)
{
    check(D, "profile", tp__cuda_marks_read(cuda_of(D)->marks, D));
}

/* ---- copies ---- */

static cudaError_t upload_piece(tp_device *D, char *to, const char *host, size_t bytes)
{
    tp_cuda *g = cuda_of(D);
    cudaStream_t stream = tp__cuda_stream(D);
    const int i = g->piece;
    char *staged = g->ring + (size_t)i * RING_PIECE;
    g->piece = (i + 1) % RING_PIECES;
    cudaError_t e = cudaEventSynchronize(g->passed[i]);
    if (e != cudaSuccess) return e;
    memcpy(staged, host, bytes);
    e = cudaMemcpyAsync(to, staged, bytes, cudaMemcpyHostToDevice, stream);
    return e == cudaSuccess ? cudaEventRecord(g->passed[i], stream) : e;
}

static void cuda_upload(tp_device *D, void *to, const void *host, size_t bytes)
{
    tp_cuda *g = cuda_of(D);
    if (g->graph) { /* the copy is made when the recording runs */
        void *kept = tp__cuda_graph_keep(g->graph, bytes, true);
        if (kept && bytes) memcpy(kept, host, bytes);
        check(D, "upload",
              kept ? cudaMemcpyAsync(to, kept, bytes, cudaMemcpyHostToDevice, tp__cuda_stream(D))
                   : cudaErrorMemoryAllocation);
        return;
    }
    for (size_t at = 0; at < bytes; at += RING_PIECE) {
        const size_t n = bytes - at < RING_PIECE ? bytes - at : RING_PIECE;
        check(D, "upload", upload_piece(D, (char *)to + at, (const char *)host + at, n));
    }
}

static void cuda_download(tp_device *D, void *host, const void *from, size_t bytes)
{
    cudaStream_t s = tp__cuda_stream(D);
    if (bytes) check(D, "download", cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, s));
    check(D, "waiting", cudaStreamSynchronize(s));
}

static void cuda_copy(tp_device *D, void *to, const void *from, size_t bytes)
{
    if (bytes)
        check(D, "copy",
              cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, tp__cuda_stream(D)));
}

static void cuda_zero(tp_device *D, void *to, size_t bytes)
{
    if (bytes) check(D, "clearing", cudaMemsetAsync(to, 0, bytes, tp__cuda_stream(D)));
}

static void cuda_fill(tp_device *D, void *to, size_t bytes, const void *value)
{
    char why[TP_WHY] = "";
    const tp_call c = { .dev = D, .why = why };
    if (tp__cuda_fill(&c, to, bytes, value) != TP_OK)
        tp__err(&D->err, TP_E_CUDA, "device %s: filling: %s", D->name, why);
}

static void cuda_sync(tp_device *D)
{
    check(D, "waiting", cudaStreamSynchronize(tp__cuda_stream(D)));
}

tp_code tp__cuda_copy(const tp_call *c, void *to, const void *from, size_t bytes)
{
    cuda_copy(c->dev, to, from, bytes);
    return c->dev->err.code;
}

tp_code tp__cuda_zero(const tp_call *c, void *to, size_t bytes)
{
    cuda_zero(c->dev, to, bytes);
    return c->dev->err.code;
}

void *tp__cuda_table(const tp_call *c, const void *host, size_t bytes)
{
    tp_cuda *g = cuda_of(c->dev);
    if (g->graph) {
        void *kept = tp__cuda_graph_keep(g->graph, bytes, false);
        if (kept)
            cuda_upload(c->dev, kept, host, bytes);
        else
            tp__cuda_fail(c, TP_E_MEMORY, "no memory for a table of %zu bytes", bytes);
        return kept;
    }
    if (g->table_bytes < bytes) {
        if (g->table) cuda_free(c->dev, g->table, g->table_bytes);
        g->table_bytes = 2 * bytes;
        g->table = cuda_alloc(c->dev, g->table_bytes);
    }
    if (!g->table) {
        g->table_bytes = 0;
        tp__cuda_fail(c, TP_E_MEMORY, "no memory for a table of %zu bytes", bytes);
        return NULL;
    }
    cuda_upload(c->dev, g->table, host, bytes);
    return g->table;
}

/* ---- recorded steps ---- */

static bool cuda_capture_begin(tp_device *D)
{
    tp_cuda *g = cuda_of(D);
    if (!g->debug_sync) g->graph = tp__cuda_graph_begin(tp__cuda_stream(D));
    return g->graph != NULL;
}

static void *cuda_capture_end(tp_device *D)
{
    tp_cuda *g = cuda_of(D);
    tp_cuda_graph *graph = g->graph;
    const cudaError_t e = tp__cuda_graph_end(graph, tp__cuda_stream(D));
    g->graph = NULL;
    if (e == cudaSuccess) return graph;
    tp__cuda_graph_free(graph);
    fault(D, "recording a step", e);
    return NULL;
}

static void cuda_graph_launch(tp_device *D, void *graph)
{
    check(D, "a recorded step", tp__cuda_graph_launch(graph, tp__cuda_stream(D)));
}

/* The GPU may still be running it. */
static void cuda_graph_free(tp_device *D, void *graph)
{
    D->syncs++;
    check(D, "waiting", cudaStreamSynchronize(tp__cuda_stream(D)));
    tp__cuda_graph_free(graph);
}

/* ---- opening and closing ---- */

static void cuda_close(tp_device *D)
{
    tp_cuda *g = cuda_of(D);
    if (!g) return;
    cudaSetDevice(g->index);
    if (g->stream) cudaStreamSynchronize(g->stream);
    if (g->table) cudaFree(g->table);
    tp__cuda_marks_free(g->marks);
    tp__cuda_blas_close(g->blas);
    for (int i = 0; i < RING_PIECES; i++)
        if (g->passed[i]) cudaEventDestroy(g->passed[i]);
    if (g->ring) cudaFreeHost(g->ring);
    if (g->stream) cudaStreamDestroy(g->stream);
    g->stream = NULL;
}

/* The object itself goes last: returning the heap's memory still needs it. */
static void cuda_forget(tp_device *D)
{
    free(D->gpu);
    D->gpu = NULL;
}

static const tp_backend backend = {
    .kind = TP_CUDA,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .fill = cuda_fill,
    .sync = cuda_sync,
    .ran = cuda_ran,
    .mark = cuda_mark,
    .read_marks = cuda_read_marks,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
    .close = cuda_close,
    .forget = cuda_forget,
};

/* Is there a driver, and a GPU of that index? Else says what is missing. */
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
                "device %s: the NVIDIA driver is too old: "
                "it serves CUDA %d.%d, this build needs %d.%d or later",
                D->name, driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                CUDART_VERSION % 1000 / 10);
    else if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
        tp__err(&D->err, TP_E_DEVICE,
                "device %s: the driver sees no NVIDIA GPU (is "
                "CUDA_VISIBLE_DEVICES empty?); use cpu",
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
        tp__err(&D->err, TP_E_DEVICE,
                "device %s: another process holds the GPU for itself; "
                "wait for it, or use another GPU",
                D->name);
    else if (e != cudaSuccess)
        tp__err(&D->err, TP_E_DEVICE, "device %s: %s (%s)", D->name, cudaGetErrorString(e),
                cudaGetErrorName(e));
    else if (p.major < LEAST_MAJOR)
        tp__err(&D->err, TP_E_DEVICE,
                "device %s: %s has compute capability %d.%d; %d.0 (Ampere) or later is needed",
                D->name, p.name, p.major, p.minor, LEAST_MAJOR);
    if (D->err.code != TP_OK) return false;
    cuda_of(D)->processors = p.multiProcessorCount;
    return true;
}

/* Streams, pinned memory, events, cuBLAS. */
static bool make_tools(tp_device *D, bool profile)
{
    tp_cuda *g = cuda_of(D);
    char why[512] = "";
    size_t left = 0, total = 0;
    cudaError_t e = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaMallocHost((void **)&g->ring, RING_PIECES * RING_PIECE);
    for (int i = 0; i < RING_PIECES && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&g->passed[i], cudaEventDisableTiming);
    if (e == cudaSuccess && profile) e = tp__cuda_marks_new(&g->marks);
    if (e == cudaErrorMemoryAllocation) {
        cudaMemGetInfo(&left, &total);
        tp__err(&D->err, TP_E_MEMORY,
                "device %s: too little memory to begin with: %.0f MiB of %.0f MiB are free; end "
                "other programs on the GPU",
                D->name, (double)left / MIB, (double)total / MIB);
    } else if (e != cudaSuccess) {
        fault(D, "opening", e);
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
    *cuda_of(D) = (tp_cuda){ .index = index, .tf32 = o->tf32, .debug_sync = o->debug_sync };
    if (!check_gpu(D, index) || !make_tools(D, o->profile)) {
        cuda_close(D);
        cuda_forget(D);
        return;
    }
    D->threads = 1; /* of the host; what work() is told */
    tp__heap_init(&D->heap, o);
    D->be = &backend;
}
