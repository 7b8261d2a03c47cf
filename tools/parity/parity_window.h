/* parity_window.h - what the kinds of Swin, CSWin, CoaT and MPViT share. */
#ifndef PARITY_WINDOW_H
#define PARITY_WINDOW_H

#include <tapegrad/coat.h>

#include "parity_case.h"

/* The metadata's mlp_ratio; a failure unless it gives a whole hidden width for `dim` channels. */
double window_ratio(parity *p, int64_t dim);
bool window_is_ratio(double ratio, int64_t dim);

/* The metadata's crpe_window, an object of kernels and their heads, in that order. */
tp_coat_kernels window_kernels(parity *p);

/* Takes x [B,c+H*W,D] with the metadata's height and width; the key class_token is c. *grid: [H,W,0]. */
tp_tensor window_take_tokens(parity *p, tp_tensor *grid);

/* Reads has_norm: which stages of a CoaT-Lite have the norm that all but the last do not use. */
void coat_leave_out_norms(parity *p, const tp_coat *m);

/* Factorised attention, in CoaT and MPViT the same. */
typedef struct window_attn {
    tp_coat_attn m;
} window_attn;
void window_declare_attn(parity *p, void *self);
void window_run_attn(parity *p, void *self);

#endif
