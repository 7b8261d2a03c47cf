/* inner.h - internals of the CUDA backend: access to the device, launches, tables, products. */
#ifndef TP_CUDA_INNER_H
#define TP_CUDA_INNER_H

#include <cuda_runtime_api.h>
#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaStream_t tp__cuda_stream(const tp_device *D); /* also selects the device's GPU */
int tp__cuda_processors(const tp_device *D);      /* multiprocessors of the GPU */
/* Do other processes share the batch (tensor/together.h)? */
bool tp__cuda_joins(const tp_call *c);
/* Replaces the number of rows and the GPU's vectors a and b [C] by those of all processes. moments:
 * they are means and sums of squared deviations, else sums. Waits for the GPU. */
tp_code tp__cuda_join(const tp_call *c, int64_t C, double *rows, float *a, float *b, bool moments);

const uint64_t *tp__cuda_advance(const tp_device *D); /* see tp_random */

/* Checks cudaGetLastError after a launch: TP_OK, or TP_E_CUDA with c->why set. If an earlier kernel
 * caused the error, the device fails instead. */
tp_code tp__cuda_launched(const tp_call *c);
/* Returns whether an earlier kernel caused an error, in which case every driver call returns it,
 * and fails the device. Does not wait; allowed while a step is recorded. */
bool tp__cuda_failed(const tp_call *c);

/* limits.c. Allows a kernel this much dynamic shared memory, now and in recordings. */
tp_code tp__cuda_allow_shared(const tp_call *c, const void *kernel, size_t bytes);

/* Queue after the kernels launched so far. */
tp_code tp__cuda_copy(const tp_call *c, void *to, const void *from, size_t bytes);
tp_code tp__cuda_zero(const tp_call *c, void *to, size_t bytes);
/* Fills `to`, aligned to 16 bytes, with copies of the 16 bytes at `value` on the host. */
tp_code tp__cuda_fill(const tp_call *c, void *to, size_t bytes, const void *value);

/* Copies a table from host to device memory, for the kernels launched next; the copy is valid for
 * the work queued until the next call. Returns NULL, with c->why set, if there is no memory. */
void *tp__cuda_table(const tp_call *c, const void *host, size_t bytes);

/* Reports the failure of a call: writes c->why, returns the code. */
tp_code tp__cuda_fail(const tp_call *c, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);

/* C = or += op(A) op(B), `batch` times, row-major: op(A) m x k, op(B) k x n. a and b have one
 * dtype, f32 or bf16, c the same or f32; sums are in f32. step_x is the number of elements from one
 * matrix to the next; 0 shares one matrix over the batch. C cannot be shared: sum over the batch by
 * a longer k instead.
 *
 * A product with batch 1 may have one epilogue: a bias added to every row, or the sums over k of
 * op(A), which are written, never added. If it cannot be fused, only the product is computed,
 * `fused` is false, and the caller must apply the epilogue. */
typedef struct tp_cuda_gemm {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    tp_dtype type, type_c;
    bool ta, tb, add;
    int64_t lda, ldb, ldc;
    int64_t batch, step_a, step_b, step_c;
    const void *bias; /* [n] of type_c, or NULL */
    void *sums;       /* [m] of type_c, or NULL */
    bool fused;       /* set on return: bias or sums are done */
} tp_cuda_gemm;

tp_code tp__cuda_gemm(const tp_call *c, tp_cuda_gemm *g);

/* marks.c: pairs of events around ops, for the profile. */
typedef struct tp_cuda_marks tp_cuda_marks;
cudaError_t tp__cuda_marks_new(tp_cuda_marks **m);
void tp__cuda_marks_free(tp_cuda_marks *m); /* NULL: nothing */
cudaError_t tp__cuda_marks_add(tp_cuda_marks *m, tp_device *D, int line, int slice);
cudaError_t tp__cuda_marks_read(tp_cuda_marks *m, tp_device *D);

/* graph.c: a recorded step, and the memory that its launches read. */
typedef struct tp_cuda_graph tp_cuda_graph;
tp_cuda_graph *tp__cuda_graph_begin(cudaStream_t s); /* NULL: the stream cannot be recorded */
cudaError_t tp__cuda_graph_end(tp_cuda_graph *g, cudaStream_t s);
cudaError_t tp__cuda_graph_launch(const tp_cuda_graph *g, cudaStream_t s);
void tp__cuda_graph_free(tp_cuda_graph *g);
/* Allocates pinned host or device memory that lives as long as g. NULL: out of memory, which
 * tp__cuda_graph_end then returns. */
void *tp__cuda_graph_keep(tp_cuda_graph *g, size_t bytes, bool host);

/* blas.c: cuBLAS and cuBLASLt, loaded when a device opens. */
typedef struct tp_cuda_blas tp_cuda_blas;
/* NULL and the reason in text. */
tp_cuda_blas *tp__cuda_blas_open(cudaStream_t s, char *text, size_t size);
void tp__cuda_blas_close(tp_cuda_blas *b);
tp_cuda_blas *tp__cuda_blas(const tp_device *D);
bool tp__cuda_tf32(const tp_device *D);

#ifdef __cplusplus
}
#endif
#endif
