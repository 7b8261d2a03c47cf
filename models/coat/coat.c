/* coat.c - CoaT-Lite: four stages of patches, class token and blocks, classified by the last token.
 *
 *     x = [class token; norm(conv(map))]
 *     x = block(x)                           each begins with the same position encoding
 *     the next stage reads the map again, without the class token
 *
 * The encodings that blocks share are declared once, with second names (tp_tie) for files that list
 * them again. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

typedef struct stage_size {
    int64_t map[2], patch, in, dim; /* patch, in: side of the patches and channels before them */
} stage_size;

static stage_size stage_of(const tp_coat_cfg *c, int i)
{
    const stage_size s = {
        { c->image[0] / 4 >> i, c->image[1] / 4 >> i }, i ? 2 : 4, i ? c->dim[i - 1] : 3, c->dim[i]
    };
    return s;
}

/* MAX_WIDTH also limits classes, so that products fit. */
enum {
    MAX_SIDE = 1 << 16,
    MAX_WIDTH = 1 << 20,
    MAX_CLASSES = 1 << 24,
    MAX_KERNEL = 31,
    MAX_RATIO = 64
};

/* Tables 1 and 2 of the paper, Table 1 of ViT-LSLA for 102 classes, then a small one for 64 x 64
 * images (not the paper's CoaT Mini). */
/* clang-format off */
#define FOUR(a, b, c, d) { a, b, c, d }
#define CFG(side, widths, blocks) \
    .cfg = &(const tp_coat_cfg){ .image = { side, side }, .classes = 1000, .dim = widths, \
                                 .depths = blocks, .mlp_ratio = { 8, 8, 4, 4 }, .heads = 8, \
                                 .kernels = TP_COAT_PUBLISHED }
/* clang-format on */
static const tp_model_row presets[] = {
    { "coat_lite-tiny", "CoaT-Lite", .also = "coat_lite_tiny coat-lite-tiny CoaT-Lite-Tiny",
      .params = 5.7e6, .flops = 1.6e9, .norm_cost = 5,
      CFG(224, FOUR(64, 128, 256, 320), FOUR(2, 2, 2, 2)) },
    { "coat_lite-mini", "CoaT-Lite", .also = "coat_lite_mini coat-lite-mini CoaT-Lite-Mini",
      .params = 11e6, .flops = 2.0e9, .norm_cost = 5,
      CFG(224, FOUR(64, 128, 320, 512), FOUR(2, 2, 2, 2)) },
    { "coat_lite-small", "CoaT-Lite", .also = "coat_lite_small coat-lite-small CoaT-Lite-Small",
      .params = 20e6, .flops = 4.0e9, .norm_cost = 5,
      CFG(224, FOUR(64, 128, 320, 512), FOUR(3, 4, 6, 3)) },
    { "coat_lite-small-ip102", "CoaT-Lite", .params = 19.4e6, .flops = 4.0e9, .norm_cost = 5 },
    { "coat-mini", "CoaT-Lite", .norm_cost = 5, CFG(64, FOUR(32, 64, 160, 256), FOUR(2, 2, 3, 1)) },
    { 0 },
};

/* ---- members ---- */

#define AT(member) offsetof(tp_coat_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE, .least = 32,
      .most = MAX_SIDE },
    { "dims", TP_MEMBER_INT64S, .at = AT(dim), .count = TP_COAT_STAGES, .least = 1,
      .most = MAX_WIDTH },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_COAT_STAGES, .least = 1,
      .most = TP_COAT_MAX_BLOCKS },
    { "mlp_ratios", TP_MEMBER_INTS, .at = AT(mlp_ratio), .count = TP_COAT_STAGES, .least = 1,
      .most = MAX_RATIO },
    { "heads", TP_MEMBER_INT, .at = AT(heads), .least = 1, .most = MAX_WIDTH },
    { "kernels", TP_MEMBER_INTS, .at = AT(kernels.kernel), .count = TP_COAT_KERNELS,
      .length = AT(kernels.n) },
    { "kernel_heads", TP_MEMBER_INTS, .at = AT(kernels.heads), .count = TP_COAT_KERNELS,
      .length = AT(kernels.n) },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = MAX_CLASSES },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

bool tp__coat_kernels(const tp_coat_kernels *k, int heads, char *why, size_t size)
{
    int covered = 0;
    why[0] = '\0';
    if (!tp__in_range(k->n, 1, TP_COAT_KERNELS)) {
        snprintf(why, size, "there are %d kernels of relative positions, not 1 to %d", k->n,
                 TP_COAT_KERNELS);
        return false;
    }
    for (int i = 0; i < k->n && !why[0]; i++) {
        if (!tp__in_range(k->kernel[i], 1, MAX_KERNEL) || k->kernel[i] % 2 == 0)
            snprintf(why, size, "a kernel of relative positions is %d, not an odd number up to %d",
                     k->kernel[i], MAX_KERNEL);
        else if (!tp__in_range(k->heads[i], 1, MAX_WIDTH))
            snprintf(why, size, "the kernel %d is for %d heads", k->kernel[i], k->heads[i]);
        covered += k->heads[i];
    }
    if (!why[0] && covered != heads)
        snprintf(why, size, "the kernels of relative positions are for %d heads, not %d", covered,
                 heads);
    return !why[0];
}

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_coat_cfg *c = cfg;
    int blocks = 0;
    if (!tp__check_members(members, c, why, size)) return false;
    for (int s = 0; s < TP_COAT_STAGES && !why[0]; s++) {
        blocks += c->depths[s];
        if (c->dim[s] % c->heads)
            snprintf(why, size, "stage %d: the width %lld does not divide into %d heads", s,
                     (long long)c->dim[s], c->heads);
    }
    if (why[0]) return false;
    if (c->image[0] % 32 || c->image[1] % 32)
        snprintf(why, size, "images are %lld x %lld pixels: sides must be multiples of 32",
                 (long long)c->image[0], (long long)c->image[1]);
    else if (blocks > TP_COAT_MAX_BLOCKS)
        snprintf(why, size, "the model has %d blocks, not at most %d", blocks, TP_COAT_MAX_BLOCKS);
    else
        tp__coat_kernels(&c->kernels, c->heads, why, size);
    return !why[0];
}

/* ---- network ---- */

/* Declares stage s with blocks from block[first]; returns the next stage's first block. */
static int init_stage(tp_params *P, tp_coat *m, int s, int first)
{
    const tp_coat_cfg *c = &m->cfg;
    const stage_size z = stage_of(c, s);
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
    if (!model_check(c, text, sizeof text)) {
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

/* Only the class token is used, but the published code normalises all tokens. */
static void model_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const stage_size last = stage_of(cfg, TP_COAT_STAGES - 1);
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
    .presets = presets,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .paper = model_paper,
    .head = "head.weight",
    .may_lack = model_may_lack,
    .parts = parts,
};
