/* gpu.h - the state of a GPU device, shared by the files of this folder. */
#ifndef TP_CUDA_GPU_H
#define TP_CUDA_GPU_H

#include "cuda/device/inner.h"
#include "tensor/collective.h"

enum {
    TP_CUDA_RECENT = 16, /* ops named by an error */
    TP_CUDA_NAME = 40
};

typedef struct tp_cuda_nccl tp_cuda_nccl; /* nccl.c */
typedef struct tp_cuda_staging tp_cuda_staging;

typedef struct tp_cuda {
    int index, processors;
    bool tf32, debug_sync;
    cudaStream_t stream;
    tp_cuda_blas *blas;
    tp_cuda_staging *staging;
    tp_cuda_marks *marks; /* NULL: no profile */
    tp_cuda_graph *graph; /* the step being recorded, or NULL */
    tp_cuda_nccl *nccl;   /* the sums that the device takes part in, or NULL */
    void *table;          /* device memory of tp__cuda_table */
    size_t table_bytes;
    char recent[TP_CUDA_RECENT][TP_CUDA_NAME];
    uint64_t ops;
} tp_cuda;

static inline tp_cuda *tp__gpu(const tp_device *D)
{
    return D->gpu;
}

/* gpu.c. Fails the device permanently: after such an error every CUDA call fails. */
void tp__gpu_fault(tp_device *D, const char *what, cudaError_t e);

static inline void tp__gpu_check(tp_device *D, const char *what, cudaError_t e)
{
    if (e != cudaSuccess) tp__gpu_fault(D, what, e);
}

/* Handles the error of a call that may be refused: fails the device if an earlier kernel caused it,
 * else writes it to why[TP_WHY]. */
void tp__gpu_refused(tp_device *D, cudaError_t e, char *why);

/* Records an op's name after it ran; with debug_sync, waits for it. */
tp_code tp__gpu_ran(tp_device *D, const char *name, bool backward);

/* staging.c: uploads that return before the GPU has copied them. Not while a step is recorded. */
cudaError_t tp__cuda_staging_new(tp_cuda_staging **s);
void tp__cuda_staging_free(tp_cuda_staging *s); /* NULL: nothing */
cudaError_t tp__cuda_staging_upload(tp_cuda_staging *s, tp_device *D, void *to, const void *host,
                                    size_t bytes);

/* memory.c: the backend's functions of the same names (tensor/backend.h). */
void *tp__gpu_alloc(tp_device *D, size_t bytes);
void tp__gpu_free(tp_device *D, void *p, size_t bytes);
void tp__gpu_upload(tp_device *D, void *to, const void *host, size_t bytes);
void tp__gpu_download(tp_device *D, void *host, const void *from, size_t bytes);
void tp__gpu_copy(tp_device *D, void *to, const void *from, size_t bytes);
void tp__gpu_zero(tp_device *D, void *to, size_t bytes);
void tp__gpu_fill(tp_device *D, void *to, size_t bytes, const void *value);
void tp__gpu_sync(tp_device *D);

#endif
