/* inner.h - what CoaT and MPViT share beside coat.h, and the sizes of CoaT's stages. */
#ifndef TP_COAT_INNER_H
#define TP_COAT_INNER_H

#include <tapegrad/coat.h>

#include "parts.h"

/* True if the kernels are possible for that many heads; else why receives a sentence. */
bool tp__coat_kernels(const tp_coat_kernels *k, int heads, char *why, size_t size);

/* Declares second names of the encodings' parameters, below these; NULL: of that part none. */
void tp__coat_tie(tp_params *P, const char *cpe, const char *crpe, const tp_coat_shared *m);

typedef struct tp_coat_stage {
    int64_t map[2], patch, in, dim; /* patch, in: side of the patches and channels before them */
} tp_coat_stage;

static inline tp_coat_stage tp__coat_stage(const tp_coat_cfg *c, int i)
{
    const tp_coat_stage s = {
        { c->image[0] / 4 >> i, c->image[1] / 4 >> i }, i ? 2 : 4, i ? c->dim[i - 1] : 3, c->dim[i]
    };
    return s;
}

#endif
