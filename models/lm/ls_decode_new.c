/* ls_decode_new.c - creates and frees incremental decoders (ls_decode.c). */
#include <stdlib.h>

#include "decode.h"
#include "inner.h"

static tp_ls_lm_decoder no_memory;

static void carry_rows(tp_tape *T, tp_tensor *slot, int64_t n, tp_tensor like)
{
    tp_carry(T, slot, tp_full(T, tp_dtype_of(like), TP_SHAPE(n, tp_dim(like, -1)), 0.0));
}

static void carry_kv(tp_tape *T, tp_kv *slot, int64_t n, tp_tensor like)
{
    carry_rows(T, &slot->k, n, like);
    carry_rows(T, &slot->v, n, like);
}

/* x [1,n,d] -> [times,n,d], repeated. */
static tp_kv repeat_kv(tp_tape *T, tp_kv x, int64_t times)
{
    const tp_shape s = TP_SHAPE(times, tp_dim(x.k, 1), tp_dim(x.k, 2));
    return (tp_kv){ tp_expand(T, x.k, s), tp_expand(T, x.v, s) };
}

/* Creates the buffers of a layer, and the phantom rows of an official empty cache. Those are all
 * equal, so one chunk is computed and repeated. */
static void start_layer(tp_ls_lm_decoder *d, int i, tp_tensor pos_win, tp_tensor pos_cmp)
{
    tp_tape *T = d->T;
    const tp_ls_block *b = &d->m->layer[i];
    const tp_ls_attn_cfg *c = &d->m->cfg.ls.attn;
    tp_ls_layer_state *s = &d->layer[i];

    tp_enter(T, b->path);
    const tp_shape chunk = TP_SHAPE(1, c->chunk, d->m->cfg.dim);
    const tp_tensor zero = tp_full(T, tp_compute_dtype(T), chunk, 0.0);
    const tp_tensor x = b->pre_ln ? tp_layernorm_forward(T, &b->norm1, zero) : zero;
    tp_kv win;
    const tp_kv rows = tp_ls_attn_rows(T, &b->attn, x, &win);

    carry_rows(T, &s->x, c->chunk, x);
    carry_kv(T, &s->rows, c->chunk, rows.k);
    if (c->window > 0) {
        const tp_kv one = { tp_slice(T, win.k, 1, 0, 1), tp_slice(T, win.v, 1, 0, 1) };
        carry_kv(T, &s->win, 2 * tp__ls_span(c), win.k);
        tp_carry(T, &s->pos_win, tp_linear_forward(T, &b->attn.r_net, pos_win));
        if (d->cached) tp__ls_write_kv(T, s->win, 0, repeat_kv(T, one, d->in_win));
    }
    if (c->rank > 0) {
        const tp_kv cmp =
            tp_ls_attn_compress(T, &b->attn, x, d->m->cfg.ls.project_first ? &rows : NULL);
        carry_kv(T, &s->cmp, tp__ls_vectors(d, d->m->cfg.mem_len + d->segment), cmp.k);
        carry_kv(T, &s->next, tp__ls_vectors(d, d->segment), cmp.k);
        tp_carry(T, &s->pos_cmp, tp_linear_forward(T, &b->attn.r_net_chunk, pos_cmp));
        if (d->cached) tp__ls_write_kv(T, s->cmp, 0, repeat_kv(T, cmp, d->cached / c->chunk));
    }
    tp_leave(T, TP_NONE);
}

static void check_segment(tp_tape *T, const tp_ls_lm *m, int64_t segment)
{
    const tp_ls_attn_cfg *c = &m->cfg.ls.attn;

    if (!tp_params_ok(m->params))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    else if (segment < 1 || segment % c->chunk ||
             (c->window > 0 && segment > c->window && segment % c->window))
        tp_raise(
            T, TP_E_VALUE,
            "decoding in segments of %lld tokens is impossible: their length must be a multiple "
            "of the chunk length %d and, if longer than the window, of its %d rows",
            (long long)segment, c->chunk, c->window);
}

tp_ls_lm_decoder *tp_ls_lm_decoder_new(tp_tape *T, const tp_ls_lm *m, int64_t segment)
{
    if (!tp_want_module(T, m, "decoder")) return &no_memory;
    const tp_ls_attn_cfg *c = &m->cfg.ls.attn;
    tp_ls_lm_decoder *d = calloc(1, sizeof *d + (size_t)m->cfg.layers * sizeof *d->layer);
    tp_tensor win = TP_NONE, cmp = TP_NONE;

    if (!d) {
        tp_raise(T, TP_E_MEMORY, "decoder: out of host memory");
        return &no_memory;
    }
    *d = (tp_ls_lm_decoder){ .T = T, .m = m, .segment = segment };
    check_segment(T, m, segment);
    if (!tp_ok(T)) return d;

    tp__ls_begin(d);
    d->cached = c->masked ? 0 : m->cfg.mem_len;
    d->in_win = d->cached < c->window ? d->cached : c->window;
    const int64_t rows = tp__ls_vectors(d, m->cfg.mem_len + segment);
    tp__lm_positions(T, &win, tp__ls_span(c), m->inv_freq, c->clamp);
    tp__lm_positions(T, &cmp, rows, m->inv_freq, c->chunk_clamp);
    for (int i = 0; i < m->cfg.layers; i++) start_layer(d, i, win, cmp);
    tp__lm_slots_clear(T, 1, &win);
    tp__lm_slots_clear(T, 1, &cmp);
    return d;
}

static void drop_kv(tp_tape *T, tp_kv *slot)
{
    tp__lm_slots_clear(T, 1, &slot->k);
    tp__lm_slots_clear(T, 1, &slot->v);
}

void tp_ls_lm_decoder_free(tp_ls_lm_decoder *d)
{
    if (!d || d == &no_memory) return;
    for (int i = 0; i < d->m->cfg.layers; i++) {
        tp_ls_layer_state *s = &d->layer[i];
        drop_kv(d->T, &s->win);
        drop_kv(d->T, &s->rows);
        drop_kv(d->T, &s->cmp);
        drop_kv(d->T, &s->next);
        tp__lm_slots_clear(d->T, 1, &s->x);
        tp__lm_slots_clear(d->T, 1, &s->pos_win);
        tp__lm_slots_clear(d->T, 1, &s->pos_cmp);
    }
    free(d);
}
