/* ls_decode.c - incremental decoding with the Transformer-LS model: each token is processed once.
 *
 * A query needs the last rows of the window and the vectors of all earlier chunks. Each layer
 * carries for its one stream
 *
 *     win [2s,d]           keys and values of the window, of which at most s rows are visible;
 *                          the last rows of a full buffer move to its front
 *     x, rows [l,d]        the current chunk: normalised input, keys and values to compress
 *     cmp [(L+M)/l r,d]    vectors of the cache, then of the complete chunks of the segment
 *     next [M/l r,d]       vectors of the same chunks by the rule of the cache
 *
 * (win is absent without a window, cmp and next with rank 0). A complete chunk adds vectors of both
 * kinds. At the end of a segment `next` replaces the segment's vectors, and the oldest ones are
 * dropped; the rows of the cache are needed only through their vectors. The op gets one query in
 * token mode with exactly the rows visible to it, so neither window rule and neither treatment of
 * empty caches needs a special case. */
#include <math.h>

#include "decode.h"
#include "inner.h"

static tp_kv concat_kv(tp_tape *T, tp_kv a, tp_kv b)
{
    return (tp_kv){ tp_concat(T, 1, a.k, b.k), tp_concat(T, 1, a.v, b.v) };
}

/* Number of visible rows in the current token's window, including itself; 0 without a window. */
static int64_t visible(const tp_ls_lm_decoder *d)
{
    const int64_t w = d->m->cfg.ls.attn.window;
    if (w == 0) return 0;
    const int64_t own = d->m->cfg.ls.attn.segment ? d->t % w + 1 : 1;
    const int64_t before = d->cached + d->t + 1 - own;
    const int64_t most = d->m->cfg.ls.attn.segment ? w : w - 1;
    return (before < most ? before : most) + own;
}

/* Adds the vectors of the completed chunk, by both rules. */
static void complete_chunk(tp_ls_lm_decoder *d, const tp_ls_attn_m *m, const tp_ls_layer_state *s)
{
    tp_tape *T = d->T;
    const int64_t l = m->cfg.attn.chunk, at = tp__ls_vectors(d, d->t);
    const tp_tensor x = tp_reshape(T, s->x, TP_SHAPE(1, l, tp_dim(s->x, 1)));
    const tp_kv rows = tp__ls_read_kv(T, s->rows, 0, l);
    const tp_kv now = tp_ls_attn_compress(T, m, x, &rows);

    tp__ls_write_kv(T, s->cmp, tp__ls_vectors(d, d->cached) + at, now);
    tp__ls_write_kv(T, s->next, at,
                    m->cfg.project_first ? now : tp_ls_attn_compress(T, m, x, NULL));
}

/* x [1,1,d], normalised -> output of the attention [1,1,d]. */
static tp_tensor attend(tp_ls_lm_decoder *d, const tp_ls_attn_m *m, const tp_ls_layer_state *s,
                        tp_tensor x)
{
    tp_tape *T = d->T;
    const int64_t l = m->cfg.attn.chunk, shown = visible(d);
    tp_kv win;
    const tp_kv rows = tp_ls_attn_rows(T, m, x, &win);

    if (m->cfg.attn.window > 0) tp__ls_write_kv(T, s->win, d->in_win, win);
    tp__ls_write_kv(T, s->rows, d->t % l, rows);
    tp_write_rows(T, s->x, d->t % l, tp__ls_flat(T, x));
    if (m->cfg.attn.rank > 0 && (d->t + 1) % l == 0) complete_chunk(d, m, s);

    /* A chunk of one token completes with its own query: the op then expects its vectors, though
     * they are not visible to the query. */
    const int64_t nc =
        tp__ls_vectors(d, d->cached) + tp__ls_vectors(d, d->t) + tp__ls_vectors(d, 1);
    const tp_kv none = { TP_NONE, TP_NONE };
    const tp_kv near = shown ? tp__ls_read_kv(T, s->win, d->in_win + 1 - shown, shown) : none;
    const tp_kv far = nc ? tp__ls_read_kv(T, s->cmp, 0, nc) : none;
    const tp_ls_attn_cfg op = { .heads = m->cfg.attn.heads,
                                .chunk = m->cfg.attn.chunk,
                                .rank = m->cfg.attn.rank,
                                .window = (int)tp__ls_span(&m->cfg.attn),
                                .masked = true };
    const tp_ls_in in = {
        .q = tp_linear_forward(T, &m->proj_query, x),
        .k_win = near.k,
        .v_win = near.v,
        .k_cmp = far.k,
        .v_cmp = far.v,
        .pos_win = s->pos_win,
        .pos_cmp = nc ? s->pos_cmp : TP_NONE,
        .r_w = m->r_w_bias,
        .r_r = m->r_r_bias,
        .cache = d->cached + d->t,
        .valid = d->cached + d->t,
    };
    return tp_linear_forward(T, &m->proj_out, tp_ls_attention(T, in, op));
}

static tp_tensor run_layer(tp_ls_lm_decoder *d, int i, tp_tensor h)
{
    tp_tape *T = d->T;
    const tp_ls_block *b = &d->m->layer[i];
    tp_enter(T, b->path);
    const tp_tensor a = b->pre_ln ? tp_layernorm_forward(T, &b->norm1, h) : h;
    const tp_tensor y = attend(d, &b->attn, &d->layer[i], a);
    return tp_leave(T, tp__ls_block_finish(T, b, tp_add(T, y, a)));
}

/* Moves the rows that the next window needs to the front of the full buffers. */
static void slide_windows(tp_ls_lm_decoder *d)
{
    const int64_t s = tp__ls_span(&d->m->cfg.ls.attn), kept = s - 1;
    if (s == 0 || d->in_win < 2 * s) return;
    for (int i = 0; i < d->m->cfg.layers; i++) {
        const tp_kv win = d->layer[i].win;
        tp__ls_write_kv(d->T, win, 0, tp__ls_read_kv(d->T, win, d->in_win - kept, kept));
    }
    d->in_win = kept;
}

/* Moves the completed segment into the cache, as vectors by the rule of the cache. */
static void complete_segment(tp_ls_lm_decoder *d)
{
    const int64_t mem = d->m->cfg.mem_len, all = d->cached + d->segment;
    const int64_t fresh = d->segment < mem ? d->segment : mem;
    const int64_t cached = all < mem ? all : mem, kept = cached - fresh;

    for (int i = 0; d->m->cfg.ls.attn.rank > 0 && i < d->m->cfg.layers; i++) {
        const tp_ls_layer_state *s = &d->layer[i];
        const tp_kv old = tp__ls_read_kv(d->T, s->cmp, tp__ls_vectors(d, d->cached - kept),
                                         tp__ls_vectors(d, kept));
        const tp_kv next = tp__ls_read_kv(d->T, s->next, tp__ls_vectors(d, d->segment - fresh),
                                          tp__ls_vectors(d, fresh));
        tp__ls_write_kv(d->T, s->cmp, 0, concat_kv(d->T, old, next));
    }
    d->cached = cached;
    d->t = 0;
}

bool tp_ls_lm_decode(tp_ls_lm_decoder *d, int64_t token, float *logits)
{
    tp_tape *T = d ? d->T : NULL;
    if (!T || !tp_ok(T)) return false;
    if (token < 0 || token >= d->m->cfg.vocab) { /* the embedding would return NaN on a GPU */
        tp_raise(T, TP_E_VALUE, "token %lld is not in the vocabulary of %lld", (long long)token,
                 (long long)d->m->cfg.vocab);
        return false;
    }
    tp__ls_begin(d);
    slide_windows(d);
    tp_enter(T, d->m->path);
    const tp_tensor id = tp_from(T, TP_I64, TP_SHAPE(1, 1), &token);
    tp_tensor h = tp_embedding(T, d->m->in_emb, id, sqrt((double)d->m->cfg.dim));
    h = tp_cast(T, h, tp_compute_dtype(T));
    for (int i = 0; i < d->m->cfg.layers; i++) h = run_layer(d, i, h);
    if (logits) {
        const tp_tensor y = tp_linear(T, h, d->m->in_emb, d->m->out_bias, TP_ACT_NONE);
        tp_read(T, tp_cast(T, y, TP_F32), logits, (size_t)tp_numel(y) * sizeof *logits);
    }
    d->in_win++;
    if (++d->t == d->segment) complete_segment(d);
    tp_leave(T, TP_NONE);
    return tp_ok(T);
}
