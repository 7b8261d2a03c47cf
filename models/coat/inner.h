/* inner.h - what CoaT and MPViT share beside coat.h, and the sizes of CoaT's stages. */
#ifndef TP_COAT_INNER_H
#define TP_COAT_INNER_H

#include <tapegrad/coat.h>

#include "model_inner.h"
#include "parts.h"

/* True if the kernels are possible for that many heads; else why receives a sentence. */
bool tp__coat_kernels(const tp_coat_kernels *k, int heads, char *why, size_t size);

/* The parts of tp_model_coat. */
void tp__coat_shared_init(tp_params *P, void *module, const char *name, const void *cfg);
void tp__coat_attn_init(tp_params *P, void *module, const char *name, const void *cfg);
void tp__coat_block_init(tp_params *P, void *module, const char *name, const void *cfg);
tp_tensor tp__coat_cpe(tp_tape *T, const void *module, void *grid, tp_tensor x);
tp_tensor tp__coat_attn(tp_tape *T, const void *module, void *grid, tp_tensor x);
tp_tensor tp__coat_block(tp_tape *T, const void *module, void *grid, tp_tensor x);

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

extern const tp_model_row tp__coat_presets[];
extern const tp_model_member tp__coat_members[];
bool tp__coat_check(const void *cfg, char *why, size_t size);

#endif
