/* decode.h - the state of incremental decoding (ls_decode.c), and its views of carried buffers. */
#ifndef TP_LS_DECODE_H
#define TP_LS_DECODE_H

#include <tapegrad/models.h>

typedef struct tp_ls_layer_state {
    tp_kv win, rows, cmp, next;
    tp_tensor x;
    tp_tensor pos_win, pos_cmp; /* projected tables [s,d], [(L+M)/l r,d] */
} tp_ls_layer_state;

struct tp_ls_lm_decoder {
    tp_tape *T;
    const tp_ls_lm *m;
    int64_t segment;
    int64_t t;      /* earlier tokens of the current segment */
    int64_t cached; /* rows of the cache                     */
    int64_t in_win; /* rows in the window buffers            */
    tp_ls_layer_state layer[];
};

/* ---- pairs of carried buffers ---- */

static inline tp_tensor tp__ls_flat(tp_tape *T, tp_tensor x) /* [..,d] -> [n,d] */
{
    return tp_reshape(T, x, TP_SHAPE(-1, tp_dim(x, -1)));
}

static inline void tp__ls_write_kv(tp_tape *T, tp_kv to, int64_t row, tp_kv x)
{
    tp_write_rows(T, to.k, row, tp__ls_flat(T, x.k));
    tp_write_rows(T, to.v, row, tp__ls_flat(T, x.v));
}

/* Views [1,count,d] of rows of a pair of buffers [n,d]. */
static inline tp_kv tp__ls_read_kv(tp_tape *T, tp_kv from, int64_t start, int64_t count)
{
    const tp_shape s = TP_SHAPE(1, count, tp_dim(from.k, 1));
    return (tp_kv){ tp_reshape(T, tp_slice(T, from.k, 0, start, count), s),
                    tp_reshape(T, tp_slice(T, from.v, 0, start, count), s) };
}

/* ---- geometry ---- */

/* The number of vectors of n rows. */
static inline int64_t tp__ls_vectors(const tp_ls_lm_decoder *d, int64_t n)
{
    const tp_ls_attn_cfg *c = &d->m->cfg.ls.attn;
    return n / c->chunk * c->rank;
}

/* The largest number of visible rows of a window. */
static inline int64_t tp__ls_span(const tp_ls_attn_cfg *c)
{
    return c->segment ? 2 * (int64_t)c->window : c->window;
}

/* Starts a call. Only the decoder uses the tape. */
static inline void tp__ls_begin(tp_ls_lm_decoder *d)
{
    tp_reset(d->T);
    tp_record(d->T, false);
    tp_train(d->T, false);
}

#endif
