/* parity_lm_parts.c - cases of the language models' parts: attention and block of Transformer-LS,
 * attention sub-layer of Transformer-XL. All differentiate sum(output * probe). */
#include "parity_lm.h"

#include <stdlib.h>
#include <string.h>

/* The sinusoids of distances 0 .. rows-1, clamped: [rows,dim]. A case may store the table with the
 * largest distance first; then it is compared. */
static tp_tensor positions(parity *p, tp_tape *T, const char *stored, int64_t rows, int64_t dim,
                           int64_t clamp)
{
    const int64_t n = dim / 2, numel = rows * 2 * n;
    double *w = malloc((size_t)(n + 2 * numel + 1) * sizeof *w);
    if (!w) return tp_raise(T, TP_E_MEMORY, "out of memory");
    double *table = w + n, *turned = table + numel;

    tp_frequencies(n, w);
    tp_sinusoid(rows, n, w, clamp, table);
    for (int64_t i = 0; i < rows; i++)
        memcpy(turned + (rows - 1 - i) * 2 * n, table + i * 2 * n, (size_t)(2 * n) * sizeof *w);
    if (par_has(p, stored)) par_check(p, stored, turned, numel, par_limit(p, PAR_OUTPUT));
    const tp_tensor x = par_matrix(p, T, rows, 2 * n, table);
    free(w);
    return x;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Window and chunk tables of a segment of M rows after a cache of L. */
static tp_ls_context tables(parity *p, tp_tape *T, const tp_ls_cfg *c, int64_t M, int64_t L,
                            int64_t dim)
{
    const int64_t span = c->segment ? 2 * (int64_t)c->window : c->window;
    const int64_t nc = c->chunk > 0 ? (L + M) / c->chunk * c->rank : 0;
    return (tp_ls_context){ positions(p, T, "input.pos_window", span, dim, c->clamp),
                            positions(p, T, "input.pos_chunks", nc, dim, c->chunk_clamp),
                            least(par_int(p, "valid_cache", L), L) };
}

/* A memory that is not stored has no rows. */
static tp_tensor memory(parity *p, tp_tape *T, const char *name, tp_tensor h)
{
    if (par_has(p, name)) return par_input(p, T, name);
    return tp_full(T, p->compute, TP_SHAPE(tp_dim(h, 0), 0, tp_dim(h, 2)), 0.0);
}

/* Compares y, differentiates, compares all gradients. */
static void finish(parity *p, tp_tape *T, tp_params *P, tp_tensor y, const char *h_name,
                   tp_tensor h, const char *mem_name, tp_tensor mem)
{
    par_check_tensor(p, T, "output.out", y);
    tp_backward(T, par_probe(p, T, y));
    if (!par_ok(p, T, P)) return;
    par_check_input_grad(p, T, h_name, h);
    par_check_input_grad(p, T, mem_name, mem);
    par_check_grads(p, P);
}

void lm_run_attention(parity *p)
{
    const tp_ls_cfg cfg = lm_ls_cfg(p);
    const int64_t dim = par_int(p, "d_model", 512);
    tp_params *P = par_params_new(p);
    tp_tape *T = lm_tape(p);
    tp_ls_attn_m m;

    tp_ls_attn_init(P, &m, "", dim, par_int(p, "use_bias", 0) != 0, cfg);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor h = par_input(p, T, "input.h");
        const tp_tensor cache = memory(p, T, "input.h_cache", h);
        const tp_ls_context ctx = tables(p, T, &cfg, tp_dim(h, 1), tp_dim(cache, 1), dim);
        const tp_tensor y = tp_ls_attn_forward(T, &m, h, cache, ctx);
        finish(p, T, P, y, "h", h, "h_cache", cache);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

void lm_run_block(parity *p)
{
    const tp_lm_cfg cfg = lm_cfg(p);
    tp_params *P = par_params_new(p);
    tp_tape *T = lm_tape(p);
    tp_ls_block m;

    tp_ls_block_init(P, &m, "", &cfg);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor h = par_input(p, T, "input.h");
        const tp_tensor cache = memory(p, T, "input.h_cache", h);
        const tp_ls_context ctx = tables(p, T, &cfg.ls, tp_dim(h, 1), tp_dim(cache, 1), cfg.dim);
        const tp_tensor y = tp_ls_block_forward(T, &m, h, cache, ctx.pos_win, ctx.pos_cmp);
        finish(p, T, P, y, "h", h, "h_cache", cache);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

void lm_run_txl_attention(parity *p)
{
    const tp_txl_cfg cfg = lm_txl_cfg(p);
    const tp_shape heads = TP_SHAPE(cfg.heads, cfg.d_head);
    tp_params *P = par_params_new(p);
    tp_tape *T = lm_tape(p);
    tp_txl_attn m;

    const tp_tensor r_w = tp_param(P, "r_w_bias", heads, (tp_init){ 0 }, 0);
    const tp_tensor r_r = tp_param(P, "r_r_bias", heads, (tp_init){ 0 }, 0);
    tp_txl_attn_init(P, &m, "", &cfg, r_w, r_r);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor w = par_input(p, T, "input.w");
        const tp_tensor mem = memory(p, T, "input.mems", w);
        const int64_t rows = tp_dim(w, 1) + tp_dim(mem, 1);
        const tp_tensor pos = positions(p, T, "input.pos", rows, cfg.dim, cfg.clamp);
        const tp_tensor y = tp_txl_attn_forward(T, &m, w, mem, pos);
        finish(p, T, P, y, "w", w, "mems", mem);
    }
    tp_tape_free(T);
    tp_params_free(P);
}
