/* real.h - the element type of a kernel file. Files that include this are compiled for float and
 * for double (TP_REAL is 32 or 64). REAL is the dtype, RC(0.5) a constant of the type; r_exp and
 * the others are the type's functions, from vmath.h for float. */
#ifndef TP_REAL_H
#define TP_REAL_H

#include "cpu/kit/vmath.h"

#if TP_REAL == 64
typedef double real;
#define REAL           TP_F64
#define RC(x)          x
#define r_exp          exp
#define r_exp_low      exp
#define r_expm1        expm1
#define r_log          log
#define r_log1p        log1p
#define r_log1p_finite log1p
#define r_tanh         tanh
#define r_gauss        tp__gauss
#define r_sqrt         sqrt
#define r_abs          fabs
#define r_floor        floor
#define r_pow          pow
#define r_sin          sin
#define r_cos          cos
#define r_large(x)     0    /* r_sin and r_cos take any x */
#define r_round        rint /* halves to even */
#else
typedef float real;
#define REAL           TP_F32
#define RC(x)          x##f
#define r_exp          tp__expf
#define r_exp_low      tp__exp_lowf
#define r_expm1        tp__expm1f
#define r_log          tp__logf
#define r_log1p        tp__log1pf
#define r_log1p_finite tp__log1p_finitef
#define r_tanh         tp__tanhf
#define r_gauss        tp__gaussf
#define r_sqrt         sqrtf
#define r_abs          fabsf
#define r_floor        floorf
#define r_pow          tp__powf
#define r_sin(x)       _Generic((x), float : tp__sinf, double : sin)(x)
#define r_cos(x)       _Generic((x), float : tp__cosf, double : cos)(x)
#define r_large(x)     (fabsf(x) > TP_TURNS) /* r_sin and r_cos do not take such a float x */
#define r_round        rintf
#endif

#endif
