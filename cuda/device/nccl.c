/* nccl.c - sums over the GPUs of several processes, by NCCL, loaded when an exchange begins.
 *
 * Sums run on a stream of their own, of high priority, which waits for the kernels queued before
 * them and which later kernels wait for, so the host waits for neither. All sums of a bucket are
 * one group, which NCCL runs as one kernel: gradients are summed where they are, without a copy. */
#include "cuda/device/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device/gpu.h"

#define LEAST 21800 /* 2.18: the first for CUDA 12.1 and capability 9.0 */

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(ncclGetVersion) X(ncclGetUniqueId) X(ncclCommInitRank) X(ncclCommDestroy) X(ncclCommAbort)   \
    X(ncclCommGetAsyncError) X(ncclGetErrorString) X(ncclAllReduce) X(ncclReduce)                  \
    X(ncclGroupStart) X(ncclGroupEnd)
/* clang-format on */

struct tp_cuda_nccl {
    struct {
#define POINTER(name) __typeof__(name) *name;
        FUNCTIONS(POINTER)
#undef POINTER
    } f;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t written, summed; /* before a bucket's sums; after those before the last follow */
};

/* ---- errors ---- */

static bool check(const tp_cuda_nccl *n, const char *what, ncclResult_t r, char *why)
{
    if (r != ncclSuccess) snprintf(why, TP_WHY, "NCCL: %s: %s", what, n->f.ncclGetErrorString(r));
    return r == ncclSuccess;
}

static bool check_cuda(tp_device *D, const char *what, cudaError_t e, char *why)
{
    if (e == cudaSuccess) return true;
    snprintf(why, TP_WHY, "%s for NCCL: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
    tp__gpu_fault(D, what, e);
    return false;
}

/* ---- the library ---- */

/* The library stays: its threads may outlive the last communicator. */
static bool load(tp_cuda_nccl *n, char *why)
{
#define NAME(name) #name,
    static const char *const names[] = { FUNCTIONS(NAME) };
#undef NAME
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, TP_WHY,
                 "libnccl.so.2 was not found: install NCCL, or put its folder into "
                 "LD_LIBRARY_PATH");
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = dlsym(library, names[i]);
        if (!symbol) {
            snprintf(why, TP_WHY, "the NCCL found here has no %s", names[i]);
            return false;
        }
        memcpy((char *)&n->f + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return true;
}

static bool is_recent(const tp_cuda_nccl *n, char name[TP_COLLECTIVE_TEXT], char *why)
{
    int v = 0;
    if (!check(n, "version", n->f.ncclGetVersion(&v), why)) return false;
    snprintf(name, TP_COLLECTIVE_TEXT, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    if (v < LEAST) snprintf(why, TP_WHY, "%s is too old; install 2.18 or later", name);
    return v >= LEAST;
}

static bool nccl_open(tp_device *D, char name[TP_COLLECTIVE_TEXT], char gpu[TP_COLLECTIVE_TEXT],
                      char *why)
{
    tp_cuda *g = tp__gpu(D);
    tp_cuda_nccl *n = g->nccl ? NULL : calloc(1, sizeof *n);
    if (!n) {
        snprintf(why, TP_WHY, g->nccl ? "another exchange of this GPU uses NCCL" : "out of memory");
        return false;
    }
    if (load(n, why) && is_recent(n, name, why) &&
        check_cuda(D, "the bus", cudaDeviceGetPCIBusId(gpu, TP_COLLECTIVE_TEXT, g->index), why)) {
        g->nccl = n;
        return true;
    }
    free(n);
    return false;
}

/* ---- communicator ---- */

static bool nccl_meet(tp_device *D, char id[TP_COLLECTIVE_ID], char *why)
{
    const tp_cuda_nccl *n = tp__gpu(D)->nccl;
    ncclUniqueId u;
    if (!check(n, "unique id", n->f.ncclGetUniqueId(&u), why)) return false;
    memcpy(id, u.internal, TP_COLLECTIVE_ID);
    return true;
}

static bool nccl_join(tp_device *D, const char id[TP_COLLECTIVE_ID], int rank, int ranks, char *why)
{
    tp_cuda_nccl *n = tp__gpu(D)->nccl;
    ncclUniqueId u;
    int least = 0, greatest = 0;
    memcpy(u.internal, id, sizeof u.internal);
    tp__cuda_stream(D); /* selects the GPU */
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithPriority(&n->stream, cudaStreamNonBlocking, greatest);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&n->written, cudaEventDisableTiming);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&n->summed, cudaEventDisableTiming);
    return check_cuda(D, "a stream", e, why) &&
           check(n, "start", n->f.ncclCommInitRank(&n->comm, ranks, u, rank), why);
}

static void nccl_close(tp_device *D, bool failed)
{
    tp_cuda *g = tp__gpu(D);
    tp_cuda_nccl *n = g->nccl;
    if (!n) return;
    tp__cuda_stream(D);
    if (n->comm && failed)
        n->f.ncclCommAbort(n->comm);
    else if (n->comm && cudaStreamSynchronize(n->stream) == cudaSuccess)
        n->f.ncclCommDestroy(n->comm);
    if (n->written) cudaEventDestroy(n->written);
    if (n->summed) cudaEventDestroy(n->summed);
    if (n->stream) cudaStreamDestroy(n->stream);
    free(n);
    g->nccl = NULL;
}

/* ---- sums ---- */

static ncclResult_t sum_one(const tp_cuda_nccl *n, const tp_addend *s, tp_dtype dtype)
{
    const ncclDataType_t type = dtype == TP_F64 ? ncclFloat64 : ncclFloat32;
    if (s->owner < 0)
        return n->f.ncclAllReduce(s->at, s->at, s->n, type, ncclSum, n->comm, n->stream);
    return n->f.ncclReduce(s->at, s->at, s->n, type, ncclSum, s->owner, n->comm, n->stream);
}

static bool nccl_sum(tp_device *D, const tp_addend *s, int count, tp_dtype dtype, char *why)
{
    const tp_cuda_nccl *n = tp__gpu(D)->nccl;
    cudaError_t e = cudaEventRecord(n->written, tp__cuda_stream(D));
    if (e == cudaSuccess) e = cudaStreamWaitEvent(n->stream, n->written, 0);
    if (!check_cuda(D, "waiting", e, why)) return false;
    ncclResult_t r = n->f.ncclGroupStart();
    for (int i = 0; i < count && r == ncclSuccess; i++) r = sum_one(n, &s[i], dtype);
    const ncclResult_t end = n->f.ncclGroupEnd();
    return check(n, "a sum", r == ncclSuccess ? end : r, why);
}

static bool nccl_follow(tp_device *D, char *why)
{
    const tp_cuda_nccl *n = tp__gpu(D)->nccl;
    cudaStream_t stream = tp__cuda_stream(D);
    cudaError_t e = cudaEventRecord(n->summed, n->stream);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(stream, n->summed, 0);
    return check_cuda(D, "waiting", e, why);
}

static int nccl_done(tp_device *D, char *why)
{
    const tp_cuda_nccl *n = tp__gpu(D)->nccl;
    ncclResult_t later = ncclSuccess;
    ncclResult_t r = n->f.ncclCommGetAsyncError(n->comm, &later);
    if (r == ncclSuccess && later != ncclInProgress) r = later;
    if (!check(n, "sums", r, why)) return -1;
    tp__cuda_stream(D);
    const cudaError_t e = cudaEventQuery(n->summed);
    if (e != cudaErrorNotReady) return check_cuda(D, "sums", e, why) ? 1 : -1;
    cudaGetLastError(); /* the next launch must not report it */
    return 0;
}

const tp_collective tp__cuda_collective = {
    .open = nccl_open,
    .meet = nccl_meet,
    .join = nccl_join,
    .sum = nccl_sum,
    .follow = nccl_follow,
    .done = nccl_done,
    .close = nccl_close,
};
