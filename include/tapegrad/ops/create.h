/* ops/create.h - tensors made on the device: sequences, random numbers, triangles. See ops.h.
 * Constants are made by tp_full, copies of host memory by tp_from. */
#ifndef TAPEGRAD_OPS_CREATE_H
#define TAPEGRAD_OPS_CREATE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* start, start + step, ... up to but excluding end: ceil((end - start) / step) elements of dtype dt
 * (torch.arange). Computed in f64; for an integer dtype, start and step must be integers. No
 * gradient. */
TP_API tp_tensor tp_arange(tp_tape *T, tp_dtype dt, double start, double end, double step);

/* n elements of a floating dtype in equal steps from first to last, both included
 * (torch.linspace). */
TP_API tp_tensor tp_linspace(tp_tape *T, tp_dtype dt, double first, double last, int64_t n);

/* The matrices in the last two axes of x, of any dtype, with zeros above (tp_tril) or below
 * (tp_triu) the given diagonal: 0 the main one, which stays, k > 0 the k-th above it, k < 0 below
 * it. */
TP_API tp_tensor tp_tril(tp_tape *T, tp_tensor x, int64_t diagonal);
TP_API tp_tensor tp_triu(tp_tape *T, tp_tensor x, int64_t diagonal);

/* Random numbers of a floating dtype from the tape's stream (tp_tape_opts.seed): tp_rand uniform in
 * [0, 1), in multiples of 2^-24, tp_randn normal with mean 0 and deviation 1 (Box, Muller 1958).
 * Element e depends only on the seed, on the number of random ops before and on e, not on device or
 * threads; normal numbers differ between devices by rounding. bf16 rounds, up to 1. No gradient. */
TP_API tp_tensor tp_rand(tp_tape *T, tp_dtype dt, tp_shape s);
TP_API tp_tensor tp_randn(tp_tape *T, tp_dtype dt, tp_shape s);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/create.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
