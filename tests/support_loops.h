/* support_loops.h - helpers for checking ops against naive loops: indices, and failure messages. */
#ifndef SUPPORT_LOOPS_H
#define SUPPORT_LOOPS_H

#include <tapegrad/tapegrad.h>

/* Elements of a shape; the index along each axis of element e, and back. */
int64_t elements(tp_shape s);
void index_of(tp_shape s, int64_t e, int64_t *index);
int64_t element_at(tp_shape s, const int64_t *index);

/* Did the mistake just made fail T with a text that begins so? Clears the error for the next one.
 */
bool failed_with(tp_tape *T, const char *text);

#endif
