/* fill.cu - fills a buffer with one value of any dtype. Writes each byte once. */
#include "cuda/kit/kernel.cuh"

enum { PACK = 16 };

/* `value` holds 16 bytes of copies of the element. */
__global__ void __launch_bounds__(TP_THREADS)
    fill_kernel(int64_t bytes, tp_pack<char, PACK> value, char *y)
{
    TP_EACH (i, (bytes + PACK - 1) / PACK) {
        if (PACK * (i + 1) <= bytes)
            tp_store(y + PACK * i, value);
        else
            for (int k = 0; PACK * i + k < bytes; k++) y[PACK * i + k] = value.at[k];
    }
}

tp_code tp__cuda_fill(const tp_call *c, void *to, size_t bytes, const void *value)
{
    tp_pack<char, PACK> v;
    memcpy(&v, value, sizeof v);
    const int64_t n = (int64_t)bytes;
    return tp_launch(c, fill_kernel, tp_grid(c, (n + PACK - 1) / PACK), TP_THREADS, 0, n, v,
                     static_cast<char *>(to));
}
