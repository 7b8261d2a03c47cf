/* support_loops.h - helpers for checking ops against naive loops: indices, and failure messages. */
#ifndef SUPPORT_LOOPS_H
#define SUPPORT_LOOPS_H

#include <tapegrad/tapegrad.h>

/* The number of elements; element e's index along each axis; the element at an index. */
int64_t elements(tp_shape s);
void index_of(tp_shape s, int64_t e, int64_t *index);
int64_t element_at(tp_shape s, const int64_t *index);

/* Did T fail with an error that begins with this text? Clears the error. */
bool failed_with(tp_tape *T, const char *text);

#endif
