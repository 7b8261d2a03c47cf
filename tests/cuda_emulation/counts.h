/* counts.h - counts what a program asks of the emulated GPU, which then executes nothing.
 *
 * With emulation.counting set before the first call, kernels, products, copies and fills are noted
 * and dropped. Device memory cannot be accessed and costs nothing, so steps may have any size;
 * downloads give zeros. The GPU has as many multiprocessors as an H100. What is recorded into a
 * graph is counted while it is recorded, not when the graph is launched. */
#ifndef COUNTS_H
#define COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COUNTED_PROCESSORS = 132 };

typedef enum count_kind {
    COUNT_KERNEL,  /* amount: blocks */
    COUNT_PRODUCT, /* of cuBLAS or cuBLASLt; amount: multiply-adds */
    COUNT_UPLOAD,  /* amount: bytes, here and below */
    COUNT_DOWNLOAD,
    COUNT_COPY, /* within the GPU */
    COUNT_FILL,
    COUNT_ALLOCATION,
    COUNT_RELEASE,
    COUNT_WAIT,   /* the host waits for the GPU: each synchronisation, even if nothing is queued */
    COUNT_LAUNCH, /* of a graph */
    COUNT_KINDS
} count_kind;

typedef struct count_line {
    count_kind kind;
    const char *name; /* of a kernel, with its template arguments, or the sizes of a product; "" */
    const char *op;   /* "": not in an op */
    int backward;
    uint64_t calls, amount;
    uint64_t few; /* of the calls: kernels with fewer blocks than multiprocessors */
} count_line;

/* Forgets what was counted. */
void counts_clear(void);
/* What was counted since the last call belongs to this op. */
void counts_op(const char *op, int backward);
/* All counts, by kind and then by calls, most first. Valid until the next of these functions. */
size_t counts_list(const count_line **lines);

/* For the emulation: notes a call. False if nothing is counted, and the call must be executed. */
int counts_note(count_kind kind, const char *name, uint64_t amount);
void counts_launch(const void *kernel, uint64_t blocks);
/* args: an emulated_gemm. */
int counts_product(const void *args);
/* Writes zeros to the host if that is the target. */
int counts_copy(void *to, size_t bytes, enum cudaMemcpyKind kind);
/* Addresses that nothing may access. */
void *counts_memory(size_t bytes);
void counts_free(void *p, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
