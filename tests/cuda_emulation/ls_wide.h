/* ls_wide.h - long-short attention forward with D = 64 by the kernel for many queries. */
#ifndef LS_WIDE_H
#define LS_WIDE_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C"
#endif
    tp_code
    ls_wide_forward(const tp_call *c);

#endif
