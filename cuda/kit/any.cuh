/* any.cuh - inputs of either type, chosen at run time, for kernels with several inputs of
 * independent types, which would need too many templates. The branch is uniform. */
#ifndef TP_ANY_CUH
#define TP_ANY_CUH

#include "cuda/kit/kernel.cuh"

/* Floats or bf16. */
struct tp_reader {
    const void *p;
    bool half;
    __device__ float operator[](int64_t i) const
    {
        return half ? tp_float(static_cast<const bf16 *>(p)[i]) : static_cast<const float *>(p)[i];
    }
};

struct tp_writer_of {
    void *p;
    bool half;
    __device__ void put(int64_t i, float x) const
    {
        if (half)
            tp_put(static_cast<bf16 *>(p) + i, x);
        else
            static_cast<float *>(p)[i] = x;
    }
};

/* Integers of either width. p NULL: an absent input; every element is `otherwise`. */
struct tp_ids {
    const void *p;
    bool wide;
    int64_t otherwise;
    __device__ int64_t operator[](int64_t i) const
    {
        if (!p) return otherwise;
        return wide ? static_cast<const int64_t *>(p)[i] : static_cast<const int32_t *>(p)[i];
    }
};

static inline tp_reader tp_reads(const tp_view *v)
{
    return { v->data, v->dtype == TP_BF16 };
}
static inline tp_writer_of tp_writes(const tp_view *v)
{
    return { v->data, v->dtype == TP_BF16 };
}
static inline tp_ids tp_ids_of(const tp_view *v, int64_t otherwise)
{
    return { tp_absent(v) ? nullptr : v->data, v->dtype == TP_I64, otherwise };
}

#endif
