/* attention.c - factorised attention with convolutional encodings, and its block (CoaT, MPViT).
 *
 *     G_h = softmax(k_h)^T v_h                      over all tokens, for each channel of k; d x d
 *     y_h = q_h G_h / sqrt(d) + q_h * conv(v_h)     conv: depthwise, per-head; class token 0
 *
 * softmax(k)^T v is a dynamic projection of the values with the keys as scores: one chunk, rank d.
 * Its row j holds row j of every G_h, so scaling it by 1/sqrt(d) is nearly free. */
#include <math.h>
#include <stdio.h>

#include "inner.h"

/* ---- parameters ---- */

static int heads_of(const tp_coat_kernels *k)
{
    int n = 0;
    for (int i = 0; i < k->n; i++) n += k->heads[i];
    return n;
}

void tp__coat_shared_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_coat_shared *m = module;
    const tp_coat_shared_cfg *c = cfg;
    const tp_coat_kernels *k = &c->kernels;
    const int64_t dim = c->dim;
    const int heads = heads_of(k);
    char why[256];
    *m = (tp_coat_shared){ .kernels = *k };
    if (dim < 1 || !tp__coat_kernels(k, heads, why, sizeof why) || dim % heads) {
        tp_params_raise(P, TP_E_VALUE, "encodings of a width of %lld in %d heads are impossible",
                        (long long)dim, heads);
        return;
    }
    tp_push(P, name);
    if (c->cpe) {
        m->cpe_path = tp_push(P, c->cpe);
        tp_conv2d_init(P, &m->cpe, "proj", dim, dim, 3, true,
                       (tp_conv_cfg){ .pad = { 1, 1 }, .groups = dim });
        tp_pop(P);
    }
    if (c->crpe) {
        m->crpe_path = tp_push(P, c->crpe);
        for (int i = 0; i < k->n; i++) {
            const int64_t channels = k->heads[i] * (dim / heads), pad = k->kernel[i] / 2;
            const tp_conv_cfg conv = { .pad = { pad, pad }, .groups = channels };
            char part[32];
            snprintf(part, sizeof part, "conv_list.%d", i);
            tp_conv2d_init(P, &m->crpe[i], part, channels, channels, k->kernel[i], true, conv);
        }
        tp_pop(P);
    }
    tp_pop(P);
}

void tp__coat_attn_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_coat_attn *m = module;
    const tp_coat_attn_cfg *c = cfg;
    const tp_coat_shared *shared = c->shared;
    const int heads = c->heads;
    int64_t dim = c->dim;
    *m = (tp_coat_attn){ .path = tp_push(P, name), .heads = heads, .shared = *shared };
    if (heads < 1 || dim < 1 || dim % heads || heads != heads_of(&shared->kernels)) {
        tp_params_raise(P, TP_E_VALUE,
                        "factorised attention %s: a width of %lld in %d heads, %d of them with "
                        "encodings, is impossible",
                        name, (long long)dim, heads, heads_of(&shared->kernels));
        dim = 1;
    }
    tp_linear_init(P, &m->qkv, "qkv", dim, 3 * dim, true);
    tp_linear_init(P, &m->proj, "proj", dim, dim, true);
    tp_pop(P);
}

void tp__coat_block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_coat_block *m = module;
    const tp_coat_block_cfg *c = cfg;
    const tp_coat_attn_cfg attn = { .dim = c->dim, .heads = c->heads, .shared = c->shared };
    *m = (tp_coat_block){ .path = tp_push(P, name),
                          .drop_path = c->drop_path,
                          .recompute = c->recompute };
    tp_layernorm_init(P, &m->norm1, "norm1", c->dim, 1e-6);
    tp__coat_attn_init(P, &m->attn, "factoratt_crpe", &attn);
    tp_layernorm_init(P, &m->norm2, "norm2", c->dim, 1e-6);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", c->dim, tp__hidden(c->mlp_ratio, c->dim),
                TP_ACT_GELU, 0.0);
    tp_pop(P);
}

static void tie(tp_params *P, const char *name, const tp_conv2d_m *same)
{
    tp_push(P, name);
    tp_tie(P, "weight", same->weight);
    tp_tie(P, "bias", same->bias);
    tp_pop(P);
}

void tp__coat_tie(tp_params *P, const char *cpe, const char *crpe, const tp_coat_shared *m)
{
    if (!tp_params_ok(P)) return;
    if (cpe) {
        tp_push(P, cpe);
        tie(P, "proj", &m->cpe);
        tp_pop(P);
    }
    if (!crpe) return;
    tp_push(P, crpe);
    for (int i = 0; i < m->kernels.n; i++) {
        char name[32];
        snprintf(name, sizeof name, "conv_list.%d", i);
        tie(P, name, &m->crpe[i]);
    }
    tp_pop(P);
}

/* ---- forward ---- */

/* c: 1 if x [B,c+H*W,D] has a class token, 0 if not; else T fails. */
static int64_t class_tokens(tp_tape *T, tp_tensor x, tp_tensor grid)
{
    const int64_t H = tp_dim(grid, 0), W = tp_dim(grid, 1), rows = tp_dim(x, 1);
    if (tp_ok(T) && rows != H * W && rows != H * W + 1)
        tp_raise(T, TP_E_SHAPE,
                 "%lld tokens do not match a map of %lld x %lld, with or without a class token",
                 (long long)rows, (long long)H, (long long)W);
    return rows - H * W;
}

/* Returns the map [B,H,W,D] after c class tokens. */
static tp_tensor map_of(tp_tape *T, tp_tensor x, tp_tensor grid, int64_t c)
{
    const int64_t H = tp_dim(grid, 0), W = tp_dim(grid, 1);
    if (c > 0) x = tp_slice(T, x, 1, c, H * W);
    return tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0), H, W, tp_dim(x, 2)));
}

tp_tensor tp__coat_cpe(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_coat_shared *m = module;
    const tp_tensor grid = *(tp_tensor *)with;
    tp_enter(T, m->cpe_path);
    const int64_t c = class_tokens(T, x, grid);
    if (!tp_ok(T)) return tp_leave(T, TP_NONE);
    const tp_tensor map = map_of(T, x, grid, c);
    const tp_tensor y = tp__tokens(T, tp_add(T, map, tp_conv2d_forward(T, &m->cpe, map)));
    return tp_leave(T, c > 0 ? tp_concat(T, 1, tp_slice(T, x, 1, 0, c), y) : y);
}

/* conv(v) over the map, [B,N,D], with each head's kernel. */
static tp_tensor relative(tp_tape *T, const tp_coat_attn *m, tp_tensor v, tp_tensor grid, int64_t c)
{
    const tp_coat_shared *s = &m->shared;
    const int n = s->kernels.n;
    int64_t channels[TP_COAT_KERNELS];
    tp_tensor y[TP_COAT_KERNELS];
    tp_enter(T, s->crpe_path);
    y[0] = map_of(T, v, grid, c);
    for (int i = 0; i < n; i++) channels[i] = s->kernels.heads[i] * (tp_dim(v, 2) / m->heads);
    if (n > 1) tp_split_sizes(T, y[0], 3, n, channels, y);
    for (int i = 0; i < n; i++) y[i] = tp__tokens(T, tp_conv2d_forward(T, &s->crpe[i], y[i]));
    return tp_leave(T, n == 1 ? y[0] : tp_concat_n(T, 2, n, y));
}

/* x [B,n,H*d] -> [B,H,n,d] */
static tp_tensor by_heads(tp_tape *T, tp_tensor x, int64_t H)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 1), H, tp_dim(x, 2) / H);
    return tp_permute(T, tp_reshape(T, x, s), TP_SHAPE(0, 2, 1, 3));
}

tp_tensor tp__coat_attn(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_coat_attn *m = module;
    const tp_tensor grid = *(tp_tensor *)with;
    const int64_t H = m->heads, n = tp_dim(x, 1), d = tp_dim(x, 2) / H;
    tp_enter(T, m->path);
    const int64_t c = class_tokens(T, x, grid);
    if (!tp_ok(T)) return tp_leave(T, TP_NONE);
    const tp_tensor q = tp_linear_part(T, &m->qkv, x, 0, 3),
                    k = tp_linear_part(T, &m->qkv, x, 1, 3);
    const tp_tensor v = tp_linear_part(T, &m->qkv, x, 2, 3);
    /* [B,d,H*d]: row j has row j of G_h for each head h */
    tp_tensor g = tp_chunk_project(T, v, k, TP_NONE, (int)H, (int)n, (int)d);
    g = by_heads(T, tp_scale(T, g, 1.0 / sqrt((double)d)), H);
    tp_tensor y = tp_matmul(T, by_heads(T, q, H), g);
    y = tp_reshape(T, tp_permute(T, y, TP_SHAPE(0, 2, 1, 3)), tp_shape_of(x));

    const tp_tensor seen = c > 0 ? tp_slice(T, q, 1, c, n - c) : q;
    const tp_tensor near = tp_mul(T, seen, relative(T, m, v, grid, c));
    y = tp_add(T, y, c > 0 ? tp_pad(T, near, 1, c, 0, 0.0) : near);
    return tp_leave(T, tp_linear_forward(T, &m->proj, y));
}

/* ---- block ---- */

/* x: tokens, grid -> cpe(x) + attention(norm1(cpe(x))) */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_coat_block *m = self;
    tp_tensor grid = x[1];
    const tp_tensor u = tp__coat_cpe(T, &m->attn.shared, &grid, x[0]);
    const tp_tensor y = tp__coat_attn(T, &m->attn, &grid, tp_layernorm_forward(T, &m->norm1, u));
    (void)nx;
    return tp_add(T, u, tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_coat_block *m = self;
    tp_enter(T, m->path);
    const tp_tensor y = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, x)
                            : attend(T, m, nx, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, y, m->drop_path));
}

tp_tensor tp__coat_block(tp_tape *T, const void *module, void *grid, tp_tensor x)
{
    const tp_coat_block *m = module;
    const tp_tensor in[] = { x, *(tp_tensor *)grid };
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_block, m, 2, in)
                                              : run_block(T, m, 2, in);
}
