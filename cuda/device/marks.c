/* marks.c - profiles ops on the GPU with a pair of events around each. Events are read when all
 * pairs are in use or the profile is requested, so the host waits once per PAIRS ops. One more
 * event marks the beginning of a trace. */
#include "cuda/device/inner.h"

#include <stdlib.h>

#include "tensor/backend.h"

enum { PAIRS = 1024 };

struct tp_cuda_marks {
    cudaEvent_t begin[PAIRS], end[PAIRS], trace;
    int line[PAIRS], slice[PAIRS]; /* of the profile and of a trace, for each pair */
    int n; /* complete pairs; the next op reuses the begin event of a failed one */
};

cudaError_t tp__cuda_marks_new(tp_cuda_marks **m)
{
    *m = calloc(1, sizeof **m);
    if (!*m) return cudaErrorMemoryAllocation;
    cudaError_t e = cudaEventCreateWithFlags(&(*m)->trace, cudaEventDefault);
    for (int i = 0; i < PAIRS && e == cudaSuccess; i++) {
        e = cudaEventCreateWithFlags(&(*m)->begin[i], cudaEventDefault);
        if (e == cudaSuccess) e = cudaEventCreateWithFlags(&(*m)->end[i], cudaEventDefault);
    }
    return e;
}

void tp__cuda_marks_free(tp_cuda_marks *m)
{
    for (int i = 0; m && i < PAIRS; i++) {
        if (m->begin[i]) cudaEventDestroy(m->begin[i]);
        if (m->end[i]) cudaEventDestroy(m->end[i]);
    }
    if (m && m->trace) cudaEventDestroy(m->trace);
    free(m);
}

static cudaError_t read_slice(const tp_cuda_marks *m, tp_device *D, int i, float ms)
{
    float at = 0.0f;
    const cudaError_t e = cudaEventElapsedTime(&at, m->trace, m->begin[i]);
    if (e == cudaSuccess) tp__trace_device(D, m->slice[i], 1e-3 * (double)at, 1e-3 * (double)ms);
    return e;
}

cudaError_t tp__cuda_marks_read(tp_cuda_marks *m, tp_device *D)
{
    cudaError_t e = m->n ? cudaEventSynchronize(m->end[m->n - 1]) : cudaSuccess;
    for (int i = 0; i < m->n && e == cudaSuccess; i++) {
        float ms = 0.0f;
        e = cudaEventElapsedTime(&ms, m->begin[i], m->end[i]);
        tp__profile_add(D, m->line[i], 1e-3 * (double)ms);
        if (e == cudaSuccess && m->slice[i] >= 0) e = read_slice(m, D, i, ms);
    }
    m->n = 0;
    return e;
}

cudaError_t tp__cuda_marks_add(tp_cuda_marks *m, tp_device *D, int line, int slice)
{
    if (line == TP_TRACE_BEGINS) return cudaEventRecord(m->trace, tp__cuda_stream(D));
    if (line == TP_OP_BEGINS) {
        const cudaError_t e = m->n == PAIRS ? tp__cuda_marks_read(m, D) : cudaSuccess;
        return e == cudaSuccess ? cudaEventRecord(m->begin[m->n], tp__cuda_stream(D)) : e;
    }
    m->line[m->n] = line;
    m->slice[m->n] = slice;
    return cudaEventRecord(m->end[m->n++], tp__cuda_stream(D));
}
