/* ref_norms.h - fused ops written out in plain ops, at many times the memory. */
#ifndef REF_NORMS_H
#define REF_NORMS_H

#include <tapegrad/tapegrad.h>

/* Arguments as for tp_layernorm etc.; x [...,C]. */
tp_tensor ref_layernorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps);
tp_tensor ref_rmsnorm(tp_tape *T, tp_tensor x, tp_tensor w, double eps);
tp_tensor ref_softmax(tp_tape *T, tp_tensor x);
tp_tensor ref_log_softmax(tp_tape *T, tp_tensor x);

/* Batch statistics, as in training; x [R,C]. */
tp_tensor ref_batchnorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps);

/* x [B,positions,C]. */
tp_tensor ref_instancenorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps);

/* w [Co,n]. */
tp_tensor ref_groupnorm(tp_tape *T, tp_tensor x, int64_t groups, tp_tensor w, tp_tensor b,
                        double eps);
tp_tensor ref_weight_standardize(tp_tape *T, tp_tensor w, double eps, bool biased);

/* x [R,K]; all products x[r,k] w[n,k] are stored. */
tp_tensor ref_linear(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_act act);

#endif
