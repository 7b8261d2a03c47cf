/* coat.c - CoaT-Lite: four stages of patches, a class token and blocks; the last class token decides.
 *
 *     x = [class token; norm(conv(map))]
 *     x = block(x)                           each begins with the same position encoding
 *     the next stage reads the map again, without the class token */
#include <stdio.h>
#include <string.h>

#include "inner.h"

/* Declares stage s, whose blocks begin at block[first]; returns the first of the next stage. */
static int init_stage(tp_params *P, tp_coat *m, int s, int first)
{
    const tp_coat_cfg *c = &m->cfg;
    const tp_coat_stage z = tp__coat_stage(c, s);
    const tp_coat_block_cfg b = { .dim = z.dim,
                                  .heads = c->heads,
                                  .mlp_ratio = c->mlp_ratio[s],
                                  .drop_path = c->drop_path,
                                  .recompute = c->recompute,
                                  .shared = &m->shared[s] };
    char name[48], crpe[16];
    const tp_coat_shared_cfg encodings = {
        .cpe = name, .crpe = crpe, .dim = z.dim, .kernels = c->kernels
    };
    snprintf(name, sizeof name, "cls_token%d", s + 1);
    m->cls_token[s] =
        tp_param(P, name, TP_SHAPE(1, 1, z.dim), (tp_init){ TP_INIT_NORMAL, 0.02, 0 }, 0);
    snprintf(name, sizeof name, "patch_embed%d", s + 1);
    tp_conv_norm_init(
        P, &m->embed[s], name,
        (tp_conv_norm_cfg){ .in = z.in, .out = z.dim, .kernel = z.patch, .stride = z.patch });
    snprintf(name, sizeof name, "cpe%d", s + 1);
    snprintf(crpe, sizeof crpe, "crpe%d", s + 1);
    tp__coat_shared_init(P, &m->shared[s], "", &encodings);
    for (int j = 0; j < c->depths[s]; j++) {
        snprintf(name, sizeof name, "serial_blocks%d.%d", s + 1, j);
        tp__coat_block_init(P, &m->block[first + j], name, &b);
        tp_push(P, name);
        tp__coat_tie(P, "cpe", "factoratt_crpe.crpe", &m->shared[s]);
        tp_pop(P);
    }
    return first + c->depths[s];
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_coat *m = module;
    const tp_coat_cfg *c = cfg;
    char text[256];
    bool convolution = false;
    *m = (tp_coat){ .params = P, .cfg = *c };
    if (!tp__coat_check(c, text, sizeof text)) {
        tp_params_raise(P, TP_E_VALUE, "CoaT: %s", text);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, tp__usual_init, &convolution);
    for (int s = 0, first = 0; s < TP_COAT_STAGES; s++) first = init_stage(P, m, s, first);
    for (int s = 0; s < TP_COAT_STAGES; s++) {
        snprintf(text, sizeof text, "norm%d", s + 1);
        tp_layernorm_init(P, &m->norm[s], text, c->dim[s], 1e-6);
        if (s < TP_COAT_STAGES - 1) tp_freeze(P, m->norm[s].path, true);
    }
    tp_linear_init(P, &m->head, "head", c->dim[TP_COAT_STAGES - 1], c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* map [B,H,W,C] -> tokens [B,1+N,D]; *grid is [H',W',0], the map without channels. */
static tp_tensor run_stage(tp_tape *T, const tp_coat *m, int s, const tp_coat_block *block,
                           tp_tensor map, tp_tensor *grid)
{
    map = tp_conv_norm_forward(T, &m->embed[s], map);
    *grid = tp_full(T, TP_F32, TP_SHAPE(tp_dim(map, 1), tp_dim(map, 2), 0), 0.0);
    tp_tensor x = tp__prepend(T, m->cls_token[s], tp__tokens(T, map));
    for (int j = 0; j < m->cfg.depths[s] && tp_ok(T); j++)
        x = tp__coat_block(T, &block[j], grid, x);
    return x;
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_coat *m = module;
    (void)state;
    const tp_coat_block *block = m->block;
    tp_tensor x = images, grid = TP_NONE;
    tp_enter(T, m->path);
    if (tp__check_images(T, m->params, images) && (tp_dim(x, 1) % 32 || tp_dim(x, 2) % 32))
        tp_raise(T, TP_E_SHAPE, "the sides of images must be multiples of 32, not %lld x %lld",
                 (long long)tp_dim(x, 1), (long long)tp_dim(x, 2));
    for (int s = 0; s < TP_COAT_STAGES && tp_ok(T); s++) {
        x = run_stage(T, m, s, block, x, &grid);
        block += m->cfg.depths[s];
        const int64_t H = tp_dim(grid, 0), W = tp_dim(grid, 1);
        if (s < TP_COAT_STAGES - 1)
            x = tp_reshape(T, tp_slice(T, x, 1, 1, H * W),
                           TP_SHAPE(tp_dim(x, 0), H, W, m->cfg.dim[s]));
    }
    x = tp_reshape(T, tp_slice(T, x, 1, 0, 1), TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2)));
    x = tp_layernorm_forward(T, &m->norm[TP_COAT_STAGES - 1], x);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}

/* norm1 to norm3 are in the official files but never run, and timm leaves them out. */
static bool model_may_lack(const char *name)
{
    return strncmp(name, "norm", 4) == 0 && name[4] >= '1' && name[4] < '4' && name[5] == '.';
}

/* The class token decides, but the published code applies the last norm to all tokens. */
static void model_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const tp_coat_stage last = tp__coat_stage(cfg, TP_COAT_STAGES - 1);
    (void)tokens;
    cost->norm += (double)(last.map[0] * last.map[1] * last.dim);
}

static const tp_model_part parts[] = {
    { "shared", sizeof(tp_coat_shared), tp__coat_shared_init, tp__coat_cpe },
    { "attn", sizeof(tp_coat_attn), tp__coat_attn_init, tp__coat_attn },
    { "block", sizeof(tp_coat_block), tp__coat_block_init, tp__coat_block },
    { 0 },
};

const tp_model tp_model_coat = {
    .name = "coat",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_coat_cfg),
    .size = sizeof(tp_coat),
    .presets = tp__coat_presets,
    .check = tp__coat_check,
    .members = tp__coat_members,
    .init = model_init,
    .forward = model_forward,
    .paper = model_paper,
    .head = "head.weight",
    .may_lack = model_may_lack,
    .parts = parts,
};
