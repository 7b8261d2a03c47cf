/* ls_plan.h - attributes and inputs of long-short attention, and what a call comes to on a device:
 * sizes, and places in scratch memory. Scratch is floats in proportion to the tokens; nothing has
 * the size of queries times keys.
 *
 * Tables are shared by all batch rows, so their gradients are sums over all queries. These are cut
 * into `splits` runs of query tiles, by shapes alone, each with a sum of its own. */
#ifndef TP_LS_PLAN_H
#define TP_LS_PLAN_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_TILE 64 /* queries a tile */

typedef struct tp__ls_attr {
    int64_t heads, chunk, rank, window, clamp, chunk_clamp, cache, valid;
    bool masked, segment;
} tp__ls_attr;

enum {
    LS_Q,
    LS_K_WIN,
    LS_V_WIN,
    LS_K_CMP,
    LS_V_CMP,
    LS_POS_WIN,
    LS_POS_CMP,
    LS_R_W,
    LS_R_R,
    LS_NX
};

enum { LS_WINDOW_PART, LS_VECTOR_PART, LS_PARTS };

typedef struct tp__ls_plan {
    int B, N, H, D, width;   /* q [B,N,width], width = H D                             */
    int w, l, r, Wc, Cc;     /* window, chunk, rank; window rows and chunks before     */
    int first[LS_PARTS];     /* the first visible window row and vector                */
    int clamp[LS_PARTS];     /* of distances                                           */
    int keys[LS_PARTS];      /* Wc + N or 0, vectors                                   */
    int distances[LS_PARTS]; /* rows of the table that are used                        */
    int splits[LS_PARTS];
    int sum_rows; /* added before a sum is put down: gradients of biases    */
    bool segment;
    /* Places in scratch memory, in floats. Backward only: from delta. */
    int64_t a, b;            /* bias logits: r_w K [B,H,Wc+N], r_r Rw [H,distances]    */
    int64_t delta;           /* sum of dy y [B,H,N]                                    */
    int64_t c, e;            /* sums of dS over queries [B,H,Wc+N] and over queries of
                                a split [splits,H,distances]                           */
    int64_t table[LS_PARTS]; /* gradients of the tables [splits,distances,width]       */
    int64_t sums;            /* [blocks of sum_rows,width]                             */
    int64_t total;
} tp__ls_plan;

tp__ls_attr tp__ls_attr_of(tp_ls_in in, tp_ls_attn_cfg cfg);
tp__ls_plan tp__ls_plan_of(const tp_view *x, const tp__ls_attr *a, bool backward);

#ifdef __cplusplus
}
#endif
#endif
