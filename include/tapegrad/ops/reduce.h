/* ops/reduce.h - reductions. See ops.h. */
#ifndef TAPEGRAD_OPS_REDUCE_H
#define TAPEGRAD_OPS_REDUCE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reductions: over one axis, which is removed, or over all (TP_ALL), to a scalar ---- */
#define TP_ALL INT32_MIN
TP_API tp_tensor tp_sum(tp_tape *T, tp_tensor x, int axis);
TP_API tp_tensor tp_mean(tp_tape *T, tp_tensor x, int axis);
TP_API tp_tensor tp_max(tp_tape *T, tp_tensor x, int axis); /* gradient to the first maximum */
TP_API tp_tensor tp_argmax(tp_tape *T, tp_tensor x,
                           int axis); /* TP_I64, first maximum; no gradient */
TP_API tp_tensor tp_logsumexp(tp_tape *T, tp_tensor x, int axis);

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_sum(T, ...)                  tp_sum(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_mean(T, ...)                 tp_mean(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_max(T, ...)                  tp_max(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_argmax(T, ...)               tp_argmax(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_logsumexp(T, ...)            tp_logsumexp(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
