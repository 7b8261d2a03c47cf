/* cvt.c - CvT, CvT* and CvT*-LS: images to classes in three stages.
 *
 *     map    = norm(conv(map))               token embedding: smaller and wider
 *     x      = tokens(map)                   in the last stage after the class token
 *     x      = x + attn(norm1(x))            for each block; with drop path in training
 *     x      = x + mlp(norm2(x))
 *     logits = head(norm(class token))       or of the mean of all normalised tokens
 *
 * Another resolution changes the size of the map only; no weight depends on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

/* ---- token embedding ---- */

static void embed_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cvt_embed *m = module;
    const tp_cvt_embed_cfg *c = cfg;
    const tp_conv_cfg conv = { { c->stride, c->stride }, { c->pad, c->pad }, { 1, 1 }, 1 };

    m->path = tp_push(P, name);
    tp_conv2d_init(P, &m->proj, "proj", c->in, c->out, c->kernel, true, conv);
    tp_layernorm_init(P, &m->norm, "norm", c->out, 1e-5);
    tp_pop(P);
}

static tp_tensor embed_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_cvt_embed *m = module;
    (void)with;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm_forward(T, &m->norm, tp_conv2d_forward(T, &m->proj, x)));
}

/* ---- block ---- */

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cvt_block *m = module;
    const tp_cvt_block_cfg *b = cfg;
    const tp_cvt_cfg *c = b->model;
    const int64_t D = c->dim[b->stage];
    const tp_act act = c->quick_gelu ? TP_ACT_QUICK_GELU : TP_ACT_GELU;

    m->path = tp_push(P, name);
    m->drop_path = b->drop_path;
    m->recompute = c->recompute;
    tp_layernorm_init(P, &m->norm1, "norm1", D, 1e-5);
    tp__cvt_attn_init(P, &m->attn, "attn", b);
    tp_layernorm_init(P, &m->norm2, "norm2", D, 1e-5);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", D, 4 * D, act, 0.0);
    tp_pop(P);
}

/* x: tokens, grid -> x + attn(norm1(x)). */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_cvt_block *m = self;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, x[0]);
    tp_tensor grid = x[1];
    const tp_tensor y = tp__cvt_attn(T, &m->attn, &grid, u);
    (void)nx;
    return tp_add(T, x[0], tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_cvt_block *m = self;
    tp_enter(T, m->path);
    const tp_tensor a = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, x)
                            : attend(T, m, nx, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, a, m->drop_path));
}

static tp_tensor block_forward(tp_tape *T, const void *module, void *grid, tp_tensor x)
{
    const tp_cvt_block *m = module;
    const tp_tensor in[] = { x, *(tp_tensor *)grid };
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_block, m, 2, in)
                                              : run_block(T, m, 2, in);
}

/* ---- model ---- */

/* Linear weights are N(0, 0.02), biases 0 except in the head and in convolutions. */
static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    const bool bias = s.ndim == 1 && tp_ends_in(name, ".bias");
    (void)env;
    if (s.ndim == 2) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    if (!bias || tp_ends_in(name, "head.bias") || tp_ends_in(name, "conv.bias") ||
        tp_ends_in(name, "patch_embed.proj.bias"))
        return dflt;
    return (tp_init){ .kind = TP_INIT_ZERO };
}

/* The drop path rate of block b of `stage`, which is block i of the model. */
static double rate_of(const tp_cvt_cfg *c, int stage, int b, int i)
{
    int at = i, last = -1;
    if (c->drop_last_stage) {
        at = stage == TP_CVT_STAGES - 1 ? b : 0;
        last = c->blocks[TP_CVT_STAGES - 1] - 1;
    } else {
        for (int s = 0; s < TP_CVT_STAGES; s++) last += c->blocks[s];
    }
    return last > 0 ? c->drop_path * at / last : 0.0;
}

/* Declares stage s, whose first block is block i of the model; returns the next first block. */
static int init_stage(tp_params *P, tp_cvt *m, int s, int i)
{
    const tp_cvt_cfg *c = &m->cfg;
    const bool last = s == TP_CVT_STAGES - 1;
    char name[32];

    snprintf(name, sizeof name, "stage%d", s);
    tp_push(P, name);
    const tp_cvt_embed_cfg first = { 3, c->dim[s], 7, 4, 2 };
    const tp_cvt_embed_cfg later = { s ? c->dim[s - 1] : 0, c->dim[s], 3, 2, 1 };
    embed_init(P, &m->embed[s], "patch_embed", s ? &later : &first);
    if (last && !c->mean_pool)
        m->cls_token = tp_param(P, "cls_token", TP_SHAPE(1, 1, c->dim[s]),
                                (tp_init){ TP_INIT_NORMAL, c->class_std, 0.0 }, 0);
    for (int b = 0; b < c->blocks[s]; b++, i++) {
        snprintf(name, sizeof name, "blocks.%d", b);
        const tp_cvt_block_cfg block = { c, s, rate_of(c, s, b, i) };
        block_init(P, &m->block[i], name, &block);
    }
    tp_pop(P);
    return i;
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cvt *m = module;
    const tp_cvt_cfg *c = cfg;
    const int64_t width = c->dim[TP_CVT_STAGES - 1];
    char why[256];
    int i = 0;

    *m = (tp_cvt){ .params = P, .cfg = *c };
    if (!tp__cvt_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "CvT: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    for (int s = 0; s < TP_CVT_STAGES; s++) i = init_stage(P, m, s, i);
    tp_layernorm_init(P, &m->norm, "norm", width, 1e-5);
    tp_linear_init(P, &m->head, "head", width, c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* Stage s: map [B,H,W,C] -> tokens [B,c+H'W',D]; *grid is [H',W',0], the map without channels. */
static tp_tensor run_stage(tp_tape *T, const tp_cvt *m, int s, tp_tensor map, tp_tensor *grid)
{
    int first = 0;
    for (int i = 0; i < s; i++) first += m->cfg.blocks[i];

    map = embed_forward(T, &m->embed[s], NULL, map);
    const int64_t B = tp_dim(map, 0), H = tp_dim(map, 1), W = tp_dim(map, 2), D = tp_dim(map, 3);
    tp_tensor x = tp_reshape(T, map, TP_SHAPE(B, H * W, D));
    if (s == TP_CVT_STAGES - 1 && tp_given(m->cls_token)) x = tp__prepend(T, m->cls_token, x);
    *grid = tp_full(T, TP_F32, TP_SHAPE(H, W, 0), 0.0);
    for (int b = 0; b < m->cfg.blocks[s]; b++) x = block_forward(T, &m->block[first + b], grid, x);
    return x;
}

/* tokens [B,c+N,D] -> [B,D] */
static tp_tensor pool(tp_tape *T, const tp_cvt *m, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2));

    if (m->cfg.mean_pool) return tp_mean(T, tp_layernorm_forward(T, &m->norm, x), 1);
    return tp_layernorm_forward(T, &m->norm, tp_reshape(T, tp_slice(T, x, 1, 0, 1), s));
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_cvt *m = module;
    (void)state;
    tp_tensor x = images, grid;

    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    for (int s = 0; s < TP_CVT_STAGES; s++) {
        const int64_t B = tp_dim(x, 0);
        x = run_stage(T, m, s, x, &grid);
        if (s < TP_CVT_STAGES - 1)
            x = tp_reshape(T, x, TP_SHAPE(B, tp_dim(grid, 0), tp_dim(grid, 1), m->cfg.dim[s]));
    }
    return tp_leave(T, tp_linear_forward(T, &m->head, pool(T, m, x)));
}

/* ---- weights for another resolution, where projections have a larger rank ----
 *
 * Rows of proj_p are head * rank + i. If the rank grows k times, each row is repeated k times, which repeats each
 * projection; the initial values of P are added as noise, so that they can diverge. */

static bool resizes_to(const char *name, const tp_shape *here, const tp_shape *there)
{
    if (!tp_ends_in(name, "proj_p.weight") && !tp_ends_in(name, "proj_p.bias")) return false;
    return here->ndim == there->ndim && there->dim[0] > 0 && here->dim[0] % there->dim[0] == 0 &&
           (here->ndim == 1 || here->dim[1] == there->dim[1]);
}

/* Adds row i / k of t to row i of the parameter, k > 0. */
static bool grow(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                 int64_t k)
{
    const int64_t n = tp_numel(it->tensor), rows = it->shape.dim[0], columns = n / rows;
    const size_t bytes = (size_t)n * sizeof(double);
    double *x = malloc(bytes), *from = malloc(bytes);
    bool ok = false;

    if (!x || !from) {
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", it->name);
    } else if (!tp_file_read(F, t, TP_F64, from)) {
        tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    } else {
        ok = tp_param_get(P, it->tensor, TP_F64, x, bytes);
        for (int64_t i = 0; ok && i < n; i++) x[i] += from[i / columns / k * columns + i % columns];
        ok = ok && tp_param_set(P, it->tensor, TP_F64, x, bytes);
        if (!ok) tp_params_raise(P, TP_E_VALUE, "%s", tp_params_why(P));
    }
    free(x);
    free(from);
    return ok;
}

/* Loads the parameters of equal shape, then those that grow. */
static bool model_load(tp_params *P, const void *m, tp_file *F)
{
    (void)m;
    if (!tp_params_read(P, F, "", &(tp_load_opts){ .convert = true, .resizes = resizes_to }))
        return false;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        if (t && !tp__equal_shapes(&t->shape, &it.shape) &&
            !grow(P, F, &it, t, it.shape.dim[0] / t->shape.dim[0]))
            return false;
    }
    return true;
}

/* ---- the model ---- */

/* Ranks and windows may differ, since they follow the size of images. */
static bool model_same(const void *one, const void *other)
{
    const tp_cvt_cfg *a = one, *b = other;
    return memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 &&
           memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0 && a->long_short == b->long_short &&
           a->conv_bias == b->conv_bias;
}

/* The names of Hugging Face's transformers. */
static const tp_spelling spellings[] = {
    { "cvt.encoder.stages.", "stage" },
    { ".embedding.convolution_embeddings.projection.", ".patch_embed.proj." },
    { ".embedding.convolution_embeddings.normalization.", ".patch_embed.norm." },
    { ".layers.", ".blocks." },
    { ".attention.attention.convolution_projection_", ".attn.conv_proj_" },
    { ".attention.attention.projection_", ".attn.proj_" },
    { "proj_query.", "proj_q." },
    { "proj_key.", "proj_k." },
    { "proj_value.", "proj_v." },
    { ".convolution_projection.convolution.", ".conv." },
    { ".convolution_projection.normalization.", ".bn." },
    { ".attention.output.dense.", ".attn.proj." },
    { ".intermediate.dense.", ".mlp.fc1." },
    { ".output.dense.", ".mlp.fc2." },
    { ".layernorm_before.", ".norm1." },
    { ".layernorm_after.", ".norm2." },
    { "layernorm.", "norm." },
    { "classifier.", "head." },
    { 0 },
};

/* Like the published code, the paper counts whole windows. */
static void model_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    (void)cfg;
    (void)tokens;
    cost->paper += cost->beyond;
}

static const tp_model_part parts[] = {
    { "embed", sizeof(tp_cvt_embed), embed_init, embed_forward },
    { "attn", sizeof(tp_cvt_attn), tp__cvt_attn_init, tp__cvt_attn },
    { "block", sizeof(tp_cvt_block), block_init, block_forward },
    { 0 },
};

const tp_model tp_model_cvt = {
    .name = "cvt",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_cvt_cfg),
    .size = sizeof(tp_cvt),
    .presets = tp__cvt_presets,
    .preset = tp__cvt_preset,
    .check = tp__cvt_check,
    .members = tp__cvt_members,
    .init = model_init,
    .forward = model_forward,
    .paper = model_paper,
    .same = model_same,
    .load = model_load,
    .resizes = "projections are repeated where the rank grows with the size",
    .resizes_to = resizes_to,
    .head = "head.weight",
    .spellings = spellings,
    .parts = parts,
};
