/* loops.c - computes indices and checks failures. */
#include "support/loops.h"

#include <stdio.h>
#include <string.h>

int64_t elements(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

void index_of(tp_shape s, int64_t e, int64_t *index)
{
    for (int i = s.ndim - 1; i >= 0; i--) {
        index[i] = e % s.dim[i];
        e /= s.dim[i];
    }
}

int64_t element_at(tp_shape s, const int64_t *index)
{
    int64_t e = 0;
    for (int i = 0; i < s.ndim; i++) e = e * s.dim[i] + index[i];
    return e;
}

tp_shape common_shape(tp_shape a, tp_shape b)
{
    tp_shape y = a.ndim < b.ndim ? b : a;
    const tp_shape x = a.ndim < b.ndim ? a : b;
    for (int i = 1; i <= x.ndim; i++)
        if (y.dim[y.ndim - i] == 1) y.dim[y.ndim - i] = x.dim[x.ndim - i];
    return y;
}

int64_t element_meeting(tp_shape y, tp_shape x, int64_t e)
{
    int64_t index[TP_MAX_DIMS];
    index_of(y, e, index);
    for (int i = 0; i < x.ndim; i++) {
        const int64_t k = index[y.ndim - x.ndim + i];
        index[i] = x.dim[i] == 1 ? 0 : k; /* i is not above y.ndim - x.ndim + i */
    }
    return element_at(x, index);
}

bool failed_with(tp_tape *T, const char *text)
{
    const bool same = strncmp(tp_why(T), text, strlen(text)) == 0;
    if (!same) fprintf(stderr, "expected: %s\ngot: %s\n", text, tp_why(T));
    tp_clear(T);
    return same;
}
