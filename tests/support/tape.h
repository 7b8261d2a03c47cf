/* tape.h - the objects of a small model, for tests of the tape. */
#ifndef SUPPORT_TAPE_H
#define SUPPORT_TAPE_H

#include <tapegrad/tapegrad.h>

typedef struct tape_world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_tensor w; /* [4,4] */
} tape_world;

tape_world tape_begin(void);
void tape_end(tape_world *s); /* expects that all memory is returned */

/* Eight numbers, [2,4], that need a gradient. */
tp_tensor tape_input(tp_tape *T);

/* tanh(x w), a layer in a scope; self: the tensor w. */
tp_tensor tape_layer(tp_tape *T, const void *self, tp_tensor x);
/* The same with dropout, so that the random offset matters. */
tp_tensor tape_noisy(tp_tape *T, const void *self, tp_tensor x);

#endif
