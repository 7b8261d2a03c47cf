/* loops.h - helpers for checking ops against naive loops: indices, and failure messages. */
#ifndef SUPPORT_LOOPS_H
#define SUPPORT_LOOPS_H

#include <tapegrad/tapegrad.h>

/* The number of elements; element e's index along each axis; the element at an index. */
int64_t elements(tp_shape s);
void index_of(tp_shape s, int64_t e, int64_t *index);
int64_t element_at(tp_shape s, const int64_t *index);

/* The shape that a and b broadcast to, and the element of x that meets element e of such a shape
 * y. */
tp_shape common_shape(tp_shape a, tp_shape b);
int64_t element_meeting(tp_shape y, tp_shape x, int64_t e);

/* True if T failed with this start of a message; clears the error. */
bool failed_with(tp_tape *T, const char *text);

#endif
