/* support_loops.c - see the header. */
#include "support_loops.h"

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

bool failed_with(tp_tape *T, const char *text)
{
    const bool same = strncmp(tp_why(T), text, strlen(text)) == 0;
    if (!same) fprintf(stderr, "expected: %s\ngot: %s\n", text, tp_why(T));
    tp_clear(T);
    return same;
}
