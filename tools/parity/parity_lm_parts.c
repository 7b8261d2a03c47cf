/* parity_lm_parts.c - kinds of the language models' parts: attention and block of Transformer-LS,
 * attention sub-layer of Transformer-XL. */
#include <string.h>

#include "parity_lm.h"

/* The clamped sinusoids of distances 0 .. rows-1, [rows,dim]. Compares the table if the case stores
 * it, largest distance first. */
static tp_tensor positions(parity *p, const char *stored, int64_t rows, int64_t dim, int64_t clamp)
{
    const int64_t n = dim / 2, numel = rows * 2 * n;
    double *w = par_alloc(p, n, sizeof *w), *table = par_alloc(p, numel, sizeof *w);
    double *reversed = par_alloc(p, numel, sizeof *w);
    if (!w || !table || !reversed) return tp_raise(p->T, TP_E_MEMORY, "out of memory");

    tp_frequencies(n, w);
    tp_sinusoid(rows, n, w, clamp, table);
    for (int64_t i = 0; i < rows; i++)
        memcpy(reversed + (rows - 1 - i) * 2 * n, table + i * 2 * n, (size_t)(2 * n) * sizeof *w);
    par_check(p, stored, reversed, numel, par_limit(p, PAR_OUTPUT));
    return par_matrix(p, rows, 2 * n, table);
}

/* Window and chunk tables of a segment of M rows with a cache of L rows. */
static tp_ls_context tables(parity *p, const tp_ls_attn_cfg *c, int64_t M, int64_t L, int64_t dim)
{
    const int64_t span = c->segment ? 2 * (int64_t)c->window : c->window;
    const int64_t nc = (L + M) / c->chunk * c->rank;
    return (tp_ls_context){ positions(p, "input.pos_window", span, dim, c->clamp),
                            positions(p, "input.pos_chunks", nc, dim, c->chunk_clamp),
                            par_int(p, "valid_cache", L, 0, L) };
}

/* The memory, with 0 rows if it is not stored. */
static tp_tensor memory(parity *p, const char *name, tp_tensor h)
{
    if (par_has(p, par_name(p, "input.%s", name))) return par_take(p, name);
    return tp_full(p->T, p->o->compute, TP_SHAPE(tp_dim(h, 0), 0, tp_dim(h, 2)), 0.0);
}

/* ---- Transformer-LS ---- */

/* The segment h [B,M,d] and its cache [B,L,d], whose sizes are checked against the metadata. */
static bool take_rows(parity *p, tp_tensor *h, tp_tensor *cache)
{
    *h = par_take(p, "h");
    if (!par_ok(p)) return false;
    *cache = memory(p, "h_cache", *h);
    par_same(p, "M", tp_dim(*h, 1));
    par_same(p, "L", tp_dim(*cache, 1));
    return par_ok(p);
}

void lm_declare_attention(parity *p, void *self)
{
    lm_attention *a = self;
    const bool bias = par_flag(p, "use_bias", false);

    a->cfg = lm_ls_cfg(p);
    a->dim = par_size(p, "d_model", 512);
    if (!p->failed) tp_ls_attn_init(p->P, &a->m, "", a->dim, bias, a->cfg);
}

void lm_attend(parity *p, void *self)
{
    const lm_attention *a = self;
    tp_tensor h, cache;

    if (!take_rows(p, &h, &cache)) return;
    const tp_ls_context ctx = tables(p, &a->cfg.attn, tp_dim(h, 1), tp_dim(cache, 1), a->dim);
    par_output(p, "out", tp_ls_attn_forward(p->T, &a->m, h, cache, ctx));
}

void lm_declare_block(parity *p, void *self)
{
    lm_block *b = self;

    b->cfg = lm_cfg(p);
    if (!p->failed) tp_part_init(p->P, &tp_model_ls_lm, "block", &b->m, "", &b->cfg);
}

void lm_run_block(parity *p, void *self)
{
    const lm_block *b = self;
    const tp_ls_attn_cfg *ls = &b->cfg.ls.attn;
    tp_tensor h, cache;

    if (!take_rows(p, &h, &cache)) return;
    const tp_ls_context ctx = tables(p, ls, tp_dim(h, 1), tp_dim(cache, 1), b->cfg.dim);
    tp_tensor with[] = { cache, ctx.pos_win, ctx.pos_cmp };
    par_output(p, "out", tp_part_forward(p->T, &tp_model_ls_lm, "block", &b->m, with, h));
}

/* ---- Transformer-XL ---- */

void lm_declare_txl_attention(parity *p, void *self)
{
    lm_txl_attention *a = self;

    a->cfg = lm_txl_cfg(p);
    if (!p->failed) tp_part_init(p->P, &tp_model_txl, "attn", &a->m, "", &a->cfg);
}

void lm_attend_txl(parity *p, void *self)
{
    const lm_txl_attention *a = self;
    const tp_tensor w = par_take(p, "w");

    if (!par_ok(p)) return;
    const tp_tensor mem = memory(p, "mems", w);
    if (!par_ok(p)) return;
    const int64_t rows = tp_dim(w, 1) + tp_dim(mem, 1);
    par_same(p, "T", tp_dim(w, 1));
    par_same(p, "mem_rows", tp_dim(mem, 1));
    if (tp_dim(mem, 1) > a->cfg.mem_len)
        par_fail(p, "metadata mem_len = %lld: input.mems has %lld rows", (long long)a->cfg.mem_len,
                 (long long)tp_dim(mem, 1));
    const tp_tensor pos = positions(p, "input.pos", rows, a->cfg.dim, a->cfg.clamp);
    tp_tensor with[] = { mem, pos };
    par_output(p, "out", tp_part_forward(p->T, &tp_model_txl, "attn", &a->m, with, w));
}
