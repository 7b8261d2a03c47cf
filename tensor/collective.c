/* collective.c - which devices sum over processes by a library of their own. */
#include "tensor/collective.h"

const tp_collective *tp__collective(const tp_device *D)
{
#ifdef TP_HAVE_CUDA
    if (D->be->kind == TP_CUDA && !D->dry) return &tp__cuda_collective;
#else
    (void)D;
#endif
    return NULL;
}
