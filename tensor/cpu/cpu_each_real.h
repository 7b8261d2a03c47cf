/* cpu_each_real.h - includes TP_FILE for float and for double. R(f) is f_f32 or f_f64, REAL the
 * dtype; r_exp and friends are the functions of vmath.h for the type. No include guard. */
#include "tensor/cpu/vmath.h"

#define real    float
#define REAL    TP_F32
#define R(f)    f##_f32
#define RC(x)   x##f
#define r_exp   tp__expf
#define r_log   tp__logf
#define r_tanh  tp__tanhf
#define r_gauss tp__gaussf
#define r_sqrt  sqrtf
#define r_abs   fabsf
#include TP_FILE
#undef real
#undef REAL
#undef R
#undef RC
#undef r_exp
#undef r_log
#undef r_tanh
#undef r_gauss
#undef r_sqrt
#undef r_abs

#define real    double
#define REAL    TP_F64
#define R(f)    f##_f64
#define RC(x)   x
#define r_exp   exp
#define r_log   log
#define r_tanh  tanh
#define r_gauss tp__gauss
#define r_sqrt  sqrt
#define r_abs   fabs
#include TP_FILE
#undef real
#undef REAL
#undef R
#undef RC
#undef r_exp
#undef r_log
#undef r_tanh
#undef r_gauss
#undef r_sqrt
#undef r_abs
