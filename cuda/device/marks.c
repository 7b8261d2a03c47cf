/* marks.c - profiles ops on the GPU with a pair of events around each. Events are read when all
 * pairs are in use or the profile is requested, so the host waits once per PAIRS ops. */
#include "cuda/device/inner.h"

#include <stdlib.h>

#include "tensor/backend.h"

enum { PAIRS = 1024 };

struct tp_cuda_marks {
    cudaEvent_t begin[PAIRS], end[PAIRS];
    int line[PAIRS]; /* of the profile, for each pair */
    int n;           /* complete pairs; the next op reuses the begin event of a failed one */
};

cudaError_t tp__cuda_marks_new(tp_cuda_marks **m)
{
    cudaError_t e = cudaSuccess;
    *m = calloc(1, sizeof **m);
    if (!*m) return cudaErrorMemoryAllocation;
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
    free(m);
}

cudaError_t tp__cuda_marks_read(tp_cuda_marks *m, tp_device *D)
{
    cudaError_t e = m->n ? cudaEventSynchronize(m->end[m->n - 1]) : cudaSuccess;
    for (int i = 0; i < m->n && e == cudaSuccess; i++) {
        float ms = 0.0f;
        e = cudaEventElapsedTime(&ms, m->begin[i], m->end[i]);
        tp__profile_add(D, m->line[i], 1e-3 * (double)ms);
    }
    m->n = 0;
    return e;
}

/* line -1 marks the beginning of an op; others the end of the op of that line. */
cudaError_t tp__cuda_marks_add(tp_cuda_marks *m, tp_device *D, int line)
{
    if (line < 0) {
        const cudaError_t e = m->n == PAIRS ? tp__cuda_marks_read(m, D) : cudaSuccess;
        return e == cudaSuccess ? cudaEventRecord(m->begin[m->n], tp__cuda_stream(D)) : e;
    }
    m->line[m->n] = line;
    return cudaEventRecord(m->end[m->n++], tp__cuda_stream(D));
}
