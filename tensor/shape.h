/* shape.h - overflow-checked sizes, views and printing them. */
#ifndef TP_SHAPE_H
#define TP_SHAPE_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts the elements of s; false if s has a negative axis or too many, or on overflow. */
bool tp__numel(const tp_shape *s, int64_t *numel);

/* a * b and a + b of sizes; false on overflow. */
bool tp__size_mul(size_t a, size_t b, size_t *out);
bool tp__size_add(size_t a, size_t b, size_t *out);

/* A view of shape s (must be valid) over data. */
tp_view tp__view(tp_dtype dt, const tp_shape *s, void *data);
tp_shape tp__view_shape(const tp_view *v);
size_t tp__view_bytes(const tp_view *v);

/* The axis counted from the front; -1 if out of range. */
int tp__axis(int ndim, int axis);

bool tp__same_shape(const tp_view *a, const tp_view *b);
/* Can b broadcast into a (aligned right, each size equal or 1)? */
bool tp__broadcasts(const tp_view *a, const tp_view *b);

/* Sizes before, of, and after an axis: x[outer][dim][inner]. */
void tp__axis_split(const tp_view *v, int axis, int64_t *outer, int64_t *dim, int64_t *inner);

/* Appends "[2,3]" and "f32[2,3]". */
void tp__print_shape(char *text, size_t size, int ndim, const int64_t *dim);
void tp__print_view(char *text, size_t size, const tp_view *v);

#ifdef __cplusplus
}
#endif

#endif
