/* gpt_inner.h - long-short attention in the layers of GPT-2 and Llama. */
#ifndef TP_GPT_INNER_H
#define TP_GPT_INNER_H

#include <tapegrad/gpt.h>

/* Declares the buffers of m->tables. */
void tp__gpt_ls_tables(tp_params *P, tp_gpt *m);
void tp__gpt_ls_init(tp_params *P, tp_ls_attn_m *m, const char *name, const tp_gpt_cfg *c,
                     bool bias);

/* Normalised x [B,N,d] -> the attention's result [B,N,d]. */
tp_tensor tp__gpt_ls_forward(tp_tape *T, const tp_ls_attn_m *m, const tp_gpt_tables *t,
                             tp_tensor x);
/* The same of the next n tokens x [B,n,d], `before` of which came before. */
tp_tensor tp__gpt_ls_decode(tp_tape *T, const tp_ls_attn_m *m, const tp_gpt_tables *t,
                            tp_gpt_ls_cache *c, int64_t room, int64_t before, tp_tensor x);
void tp__gpt_ls_free(tp_tape *T, tp_gpt_ls_cache *c);

#endif
