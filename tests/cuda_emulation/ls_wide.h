/* ls_wide.h - long-short attention by chosen kernels. */
#ifndef LS_WIDE_H
#define LS_WIDE_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Forward with D = 64 by the kernel for many queries. */
tp_code ls_wide_forward(const tp_call *c);
/* They fail if the call is not one for tensor cores. */
tp_code ls_mma_only_forward(const tp_call *c);
tp_code ls_mma_only_backward(const tp_call *c);
#ifdef __cplusplus
}
#endif

#endif
