/* parity_baselines.c - kinds of the image baselines: ViT and DeiT, ResNet and ResNeXt, PVT and
 * PVTv2, losses of distillation, tables of positions, full models of the library's table. */
#include <string.h>
#include <tapegrad/vision.h>

#include "parity_case.h"

/* Bits of a kind's variant: PVTv2, a backbone, blocks of three convolutions. */
enum { SECOND = 1, HEADLESS = 2, BOTTLENECK = 4 };

/* The four maps of a backbone, as "c2" to "c5". */
static void run_features(parity *p, void *self)
{
    tp_tensor map[TP_BACKBONE_STAGES];
    p->kind->model->backbone->features(p->T, self, par_images(p, "x"), map);
    for (int s = 0; s < TP_BACKBONE_STAGES && par_ok(p); s++)
        par_output(p, par_name(p, "c%d", s + 2), par_channels_first(p->T, map[s]));
}

/* ---- ViT ---- */

static void check_vit(parity *p, void *cfg)
{
    par_square(p, "img", ((tp_vit_cfg *)cfg)->image);
}

static void check_deit_ln(parity *p, void *cfg)
{
    check_vit(p, cfg);
    ((tp_vit_cfg *)cfg)->avg_pool = par_flag(p, "avg_pool_flag", false);
}

/* The outputs that the metadata name: of both heads, and their mean. */
static void run_vit(parity *p, void *self)
{
    const tp_vit *m = self;
    const char *at = NULL, *name;
    tp_tensor dist;
    const tp_tensor images = par_images(p, "x");
    if (!par_given(p, "outputs")) {
        par_output(p, "logits", tp_model_vit.forward(p->T, m, NULL, images));
        return;
    }
    const tp_tensor cls = tp_model_vit.heads(p->T, m, images, &dist);
    while ((name = par_next_name(p, "outputs", &at)) && par_ok(p)) {
        if (strcmp(name, "logits_cls") == 0)
            par_output(p, name, cls);
        else if (strcmp(name, "logits_dist") == 0)
            par_output(p, name, dist);
        else if (strcmp(name, "logits_eval") == 0)
            par_output(p, name, tp_model_vit.forward(p->T, m, NULL, images));
        else
            par_fail(p, "metadata outputs: a ViT has no '%.40s'", name);
    }
}

/* ---- losses of distillation ---- */

static void run_distillation(parity *p, void *self)
{
    static const char *const types[] = { "hard", "soft", NULL };
    const bool soft_targets = par_flag(p, "soft_targets", false);
    const double smoothing = par_num(p, "label_smoothing", 0.0);
    const tp_distill_cfg c = { .soft = par_word(p, "distill_type", PAR_NEEDED, types) == 1,
                               .alpha = par_num(p, "alpha", PAR_NEEDED),
                               .tau = par_num(p, "tau", 1.0) };
    const tp_tensor cls = par_take(p, "logits_cls"), dist = par_take(p, "logits_dist");
    const tp_tensor teacher = par_tensor(p, "teacher_logits");
    const tp_tensor target = par_tensor(p, soft_targets ? "targets" : "labels");
    (void)self;
    if (!par_ok(p)) return;
    const tp_tensor base =
        tp_cross_entropy_smooth(p->T, cls, target, soft_targets ? 0.0 : smoothing, TP_MEAN);
    const tp_tensor loss = tp_distill_loss(p->T, base, dist, teacher, c);
    par_output(p, "loss_value", tp_reshape(p->T, loss, TP_SHAPE(1)));
}

/* ---- tables of positions ---- */

typedef struct positions {
    tp_tensor table;
    int64_t from[2], to[2], extra;
} positions;

static void declare_positions(parity *p, void *self)
{
    positions *m = self;
    const tp_shape s = par_shape(p, "param.pos_embed");
    par_sides(p, "old_grid", m->from);
    par_sides(p, "new_grid", m->to);
    m->extra = par_count(p, "extra", 0);
    par_fixed(p, "cubic_a", -0.75);
    if (s.ndim != 3) par_fail(p, "param.pos_embed must be [1,rows,channels]");
    if (!p->failed) m->table = tp_param(p->P, "pos_embed", s, (tp_init){ .kind = TP_INIT_ZERO }, 0);
}

static void resize_positions(parity *p, void *self)
{
    static const char *const modes[] = { "bilinear", "bicubic", NULL };
    const positions *m = self;
    const tp_interpolation mode = (tp_interpolation)par_word(p, "interpolation", PAR_NEEDED, modes);
    const tp_tensor y = tp_resize_positions(p->T, m->table, m->extra, m->from, m->to, mode);
    par_output(p, "pos_embed", tp_cast(p->T, y, p->o->compute));
}

/* ---- ResNet ---- */

static void check_groups(parity *p, const tp_resnet_cfg *c)
{
    if (!c->bottleneck && (c->groups != 1 || c->group_width != 64))
        par_illegal(p, "metadata groups, width_per_group: only bottlenecks have them");
}

static void check_resnet_block(parity *p, void *cfg)
{
    tp_resnet_cfg *model = par_alloc(p, 1, sizeof *model);
    if (!model) return;
    *model = (tp_resnet_cfg){ .image = { 64, 64 },
                              .bottleneck = p->kind->variant == BOTTLENECK,
                              .groups = par_size(p, "groups", 1),
                              .group_width = par_size(p, "width_per_group", 64) };
    check_groups(p, model);
    ((tp_resnet_block_cfg *)cfg)->model = model;
}

static void finish_resnet_block(parity *p, void *self)
{
    const tp_resnet_block *m = self;
    par_same(p, "mid_width", tp_dim(m->conv[0].weight, 0));
    par_same(p, "expansion", p->kind->variant == BOTTLENECK ? 4 : 1);
    par_same(p, "downsample", tp_given(m->down.weight));
}

static void check_resnet(parity *p, void *cfg)
{
    static const char *const blocks[] = { "BasicBlock", "Bottleneck", NULL };
    tp_resnet_cfg *c = cfg;
    c->bottleneck = par_word(p, "block", 1, blocks) == 1;
    check_groups(p, c);
    if (p->kind->variant != HEADLESS) c->classes = par_size(p, "num_classes", PAR_NEEDED);
}

/* ---- PVT ---- */

/* PVT or PVTv2, with or without pooling. */
static void read_pvt_kind(parity *p, tp_pvt_cfg *c)
{
    const bool second = p->kind->variant & SECOND;
    const bool linear = second && par_flag(p, "linear", false);
    c->kind = !second ? TP_PVT : linear ? TP_PVT2_LINEAR : TP_PVT2;
    if (linear)
        c->pool = par_size(p, "pool_size", 7);
    else if (second)
        par_count(p, "pool_size", 0); /* not used, like the ratios of models that pool */
}

static void check_pvt_stage(parity *p, void *cfg)
{
    tp_pvt_cfg *c = cfg;
    read_pvt_kind(p, c);
    const int64_t R = par_count(p, "sr_ratio", c->kind == TP_PVT2_LINEAR ? 0 : PAR_NEEDED);
    c->reduction[0] = c->kind == TP_PVT2_LINEAR ? 1 : R;
    if (c->reduction[0] < 1) par_illegal(p, "metadata sr_ratio: a reduction is 1 or more");
}

/* PVTv2 has no tables, so the size of its images is that of the case. */
static void check_pvt(parity *p, void *cfg)
{
    const bool headless = p->kind->variant & HEADLESS;
    tp_pvt_cfg *c = cfg;
    int n = TP_PVT_STAGES;
    read_pvt_kind(p, c);
    if (c->kind == TP_PVT)
        par_square(p, "img", c->image);
    else
        par_image_size(p, "x", c->image);
    const bool linear = c->kind == TP_PVT2_LINEAR;
    if (!linear || par_given(p, "sr_ratios"))
        par_stages(p, "sr_ratios", !linear, n, c->reduction, &n);
    for (int s = 0; s < TP_PVT_STAGES && linear; s++) c->reduction[s] = 1;
    if (!headless) c->classes = par_size(p, "num_classes", PAR_NEEDED);
    par_same(p, "class_token", c->kind == TP_PVT && !headless);
}

/* ---- kinds ---- */

/* no_bf16: batch statistics over few values, ReLU and losses that cancel exceed the limits in
 * bf16. */
#define NAME(name)  "image_baselines." name
#define RESNET_NORM "eps_bn=1e-5 momentum_bn=0.1"
#define PVT_NORM    "eps_norm=1e-6 eps_attn_norm=1e-5 eps_patch_norm=1e-5"
#define STAGE(type) PAR_SIZE("dim", type, dim[0]), PAR_SIZE("heads", type, heads[0])
#define RESNET_BLOCK(name, word)                                                                   \
    PAR_PART(NAME(name), tp_model_resnet, "block", tp_resnet_block_cfg,                            \
             PAR_SIZE("in_channels", tp_resnet_block_cfg, in),                                     \
             PAR_SIZE("planes", tp_resnet_block_cfg, planes),                                      \
             PAR_SIZE("stride", tp_resnet_block_cfg, stride)),                                     \
        .base = &(const tp_resnet_block_cfg){ .stride = 1 },                                       \
        .fixed = "block=" word " " RESNET_NORM, .check = check_resnet_block,                       \
        .finish = finish_resnet_block, .out = PAR_CHANNELS, .no_bf16 = true
#define RESNET(name)                                                                               \
    PAR_WHOLE(NAME(name), tp_model_resnet,                                                         \
              PAR_LIST("layers", tp_resnet_cfg, blocks, TP_RESNET_STAGES),                         \
              PAR_SIZE("base", tp_resnet_cfg, base), PAR_SIZE("groups", tp_resnet_cfg, groups),    \
              PAR_SIZE("width_per_group", tp_resnet_cfg, group_width)),                            \
        .base = &(const tp_resnet_cfg){ .image = { 64, 64 },                                       \
                                        .base = 64,                                                \
                                        .groups = 1,                                               \
                                        .group_width = 64 },                                       \
        .fixed = RESNET_NORM, .check = check_resnet, .y = "logits", .no_bf16 = true
#define PVT_BLOCK(name)                                                                            \
    PAR_PART(NAME(name), tp_model_pvt, "block", tp_pvt_block_cfg, STAGE(tp_pvt_cfg),               \
             PAR_SIZE("mlp_ratio", tp_pvt_cfg, mlp_ratio[0])),                                     \
        .of_model = true, .base = &(const tp_pvt_cfg){ .mlp_ratio = { 4 } }, .fixed = PVT_NORM,    \
        .check = check_pvt_stage, PAR_ON_MAP("H", "W")
#define PVT(name)                                                                                  \
    PAR_WHOLE(NAME(name), tp_model_pvt, PAR_LIST("dims", tp_pvt_cfg, dim, TP_PVT_STAGES),          \
              PAR_LIST("heads", tp_pvt_cfg, heads, TP_PVT_STAGES),                                 \
              PAR_LIST("depths", tp_pvt_cfg, blocks, TP_PVT_STAGES),                               \
              PAR_LIST("mlp_ratios", tp_pvt_cfg, mlp_ratio, TP_PVT_STAGES)),                       \
        .fixed = "interpolation=bilinear " PVT_NORM, .check = check_pvt, .y = "logits"

const par_kind par_baseline_kinds[] = {
    { PAR_PART(NAME("vit_attention"), tp_model_vit, "attn", tp_vit_attn_cfg,
               PAR_SIZE("dim", tp_vit_attn_cfg, dim), PAR_SIZE("heads", tp_vit_attn_cfg, heads)),
      .fixed = "scale=head_dim**-0.5", .in = PAR_SERIES },
    { PAR_PART(NAME("vit_block"), tp_model_vit, "block", tp_vit_block_cfg,
               PAR_SIZE("dim", tp_vit_cfg, dim), PAR_SIZE("heads", tp_vit_cfg, heads),
               PAR_SIZE("mlp_ratio", tp_vit_cfg, mlp_ratio)),
      .of_model = true, .base = &(const tp_vit_cfg){ .mlp_ratio = 4 }, .fixed = "eps_norm=1e-6",
      .in = PAR_SERIES },
    { .kind = NAME("vit_model"),
      .model = &tp_model_vit,
      .base = &(const tp_vit_cfg){ .mlp_ratio = 4 },
      .fixed = "eps_norm=1e-6",
      .check = check_vit,
      .forward = run_vit },
    { .kind = NAME("deit_model"),
      .model = &tp_model_vit,
      .base = &(const tp_vit_cfg){ .mlp_ratio = 4, .distilled = true },
      .fixed = "eps_norm=1e-6",
      .check = check_vit,
      .forward = run_vit },
    { .kind = "image_more.deit_ln_model",
      .model = &tp_model_vit,
      .base = &(const tp_vit_cfg){ .mlp_ratio = 4, .patch_norm = true },
      .fixed = "eps_norm=1e-6",
      .check = check_deit_ln,
      .forward = run_vit },
    { PAR_MODULE(NAME("distill_loss"), char, NULL, run_distillation), .no_bf16 = true },
    { PAR_MODULE(NAME("position_interpolation"), positions, declare_positions, resize_positions) },
    { RESNET_BLOCK("resnet_basic", "BasicBlock") },
    { RESNET_BLOCK("resnet_bottleneck", "Bottleneck"), .variant = BOTTLENECK },
    { RESNET("resnet_model") },
    { RESNET("resnet_features"), .forward = run_features, .variant = HEADLESS },
    { PAR_PART(NAME("pvt_sra"), tp_model_pvt, "attn", tp_pvt_block_cfg, STAGE(tp_pvt_cfg)),
      .of_model = true, .fixed = "eps_attn_norm=1e-5", .check = check_pvt_stage,
      PAR_ON_MAP("H", "W") },
    { PVT_BLOCK("pvt_block") },
    { PVT_BLOCK("pvt2_block"), .variant = SECOND, .no_bf16 = true },
    { PVT("pvt_model") },
    { PVT("pvt2_model"), .variant = SECOND, .no_bf16 = true },
    { PVT("pvt_features"), .forward = run_features, .variant = HEADLESS },
    { PVT("pvt2_features"), .forward = run_features, .variant = SECOND | HEADLESS },
    { PAR_MODULE(NAME("full"), par_full, par_declare_full, par_run_full), .x = "x", .large = true,
      .no_bf16 = true },
    { .kind = NAME("eval_metrics"), .run = par_run_metrics },
    { .kind = NAME("image_ops"), .run = par_run_images },
    { .kind = NAME("mixup_cutmix"), .run = par_run_mixing, .no_bf16 = true },
    { .kind = NULL },
};
