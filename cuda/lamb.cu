/* lamb.cu - LAMB's update over the flat blocks of a parameter set; the formula is in
 * tensor/geometry/segments.h.
 *
 * Three kernels: moments and two sums of squares per block (24 bytes per element), each parameter's
 * factor from its sums, added in order, and the update, which recomputes the step from the moments
 * (16 bytes). Bound by memory. Sums are in double. */
#include "cuda/kit/segments.cuh"

struct lamb {
    const tp_optim_attr *a; /* on the device, as for all optimisers */
    float *p, *m, *v;
    double *part, *factor; /* [blocks][2] and [segments] */
};

static __device__ inline float step_of(const tp_segment &s, float eps, float p, float m, float v)
{
    return (float)s.before * m / ((float)s.root * sqrtf(v) + eps) + (float)s.after * p;
}

__global__ void __launch_bounds__(TP_THREADS) moments_kernel(tp_segments s, lamb f)
{
    const float scale = (float)f.a->scale, eps = (float)f.a->k[TP_LAMB_EPS];
    const float beta1 = (float)f.a->k[TP_LAMB_BETA1], beta2 = (float)f.a->k[TP_LAMB_BETA2];
    const float rest1 = (float)(1.0 - f.a->k[TP_LAMB_BETA1]);
    const float rest2 = (float)(1.0 - f.a->k[TP_LAMB_BETA2]);
    TP_EACH_BLOCK (b, s.blocks) {
        const tp_stretch t = tp_stretch_of(s, b);
        double pp = 0.0, rr = 0.0;
        for (int64_t j = threadIdx.x; j < t.n; j += blockDim.x) {
            const int64_t i = t.own + j;
            const float p = f.p[t.at + j], d = scale * t.g[j];
            const float m = beta1 * f.m[i] + rest1 * d, v = beta2 * f.v[i] + rest2 * d * d;
            f.m[i] = m;
            f.v[i] = v;
            const double r = (double)step_of(*t.s, eps, p, m, v);
            pp += (double)p * (double)p;
            rr += r * r;
        }
        pp = tp_block<tp_sum_of>(pp);
        rr = tp_block<tp_sum_of>(rr);
        if (threadIdx.x == 0) {
            f.part[2 * b] = pp;
            f.part[2 * b + 1] = rr;
        }
    }
}

/* One block of threads per segment. */
__global__ void __launch_bounds__(TP_THREADS)
    factor_kernel(tp_segments s, const double *part, double *factor)
{
    TP_EACH_BLOCK (i, s.n) {
        const tp_block_sums sum = tp_sums_of_blocks(s, part, i);
        if (threadIdx.x == 0) factor[i] = sum.a > 0.0 && sum.b > 0.0 ? sqrt(sum.a / sum.b) : 1.0;
    }
}

__global__ void __launch_bounds__(TP_THREADS) lamb_kernel(tp_segments s, lamb f)
{
    const float eps = (float)f.a->k[TP_LAMB_EPS];
    TP_EACH_BLOCK (b, s.blocks) {
        const tp_stretch t = tp_stretch_of(s, b);
        const float rate = (float)(t.s->rate * f.factor[t.s - s.at]);
        for (int64_t j = threadIdx.x; j < t.n; j += blockDim.x) {
            const int64_t i = t.at + j, own = t.own + j;
            f.p[i] -= rate * step_of(*t.s, eps, f.p[i], f.m[own], f.v[own]);
        }
    }
}

static tp_code lamb_step(const tp_call *c)
{
    const tp_optim_attr *a = tp_options(c);
    const tp_segments s = tp_table_of(a);
    double *part = static_cast<double *>(c->work);
    const lamb f = {
        a->there, tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]), tp_out<float>(&c->y[2]),
        part,     part + 2 * s.blocks
    };
    tp_code code = tp_launch(c, moments_kernel, tp_grid(c, s.blocks, 1), TP_THREADS, 0, s, f);
    if (code == TP_OK)
        code = tp_launch(c, factor_kernel, tp_grid(c, s.n, 1), TP_THREADS, 0, s, f.part, f.factor);
    if (code == TP_OK)
        code = tp_launch(c, lamb_kernel, tp_grid(c, s.blocks, 1), TP_THREADS, 0, s, f);
    return code;
}

TP_CUDA_KERNEL_UNTYPED(lamb_step)
