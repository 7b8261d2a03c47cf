/* ref_ls.h - the dynamic projection and long-short attention as plain ops, dense and slow, for
 * comparison with the fused ops. They take the arguments of tp_chunk_project and tp_ls_attention
 * but the mask. */
#ifndef REF_LS_H
#define REF_LS_H

#include <tapegrad/tapegrad.h>

tp_tensor ref_chunk_project(tp_tape *T, tp_tensor x, tp_tensor scores, int heads, int chunk,
                            int rank);
tp_tensor ref_ls_attention(tp_tape *T, tp_ls_in in, tp_ls_attn_cfg cfg);

#endif
