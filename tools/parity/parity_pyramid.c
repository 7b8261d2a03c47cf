/* parity_pyramid.c - kinds of detection around feature maps: backbones, feature pyramids, regions of maps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parity_detection.h"

/* ---- backbones ---- */

static void read_vil(parity *p, tp_backbone_cfg *b)
{
    static const char *const types[] = { "full",      "linformer",      "srformer",
                                         "performer", "longformerhand", "longformerauto",
                                         NULL };
    static const tp_vil_kind kinds[] = { TP_VIL_FULL,      TP_VIL_LINFORMER, TP_VIL_SRA,
                                         TP_VIL_PERFORMER, TP_VIL_WINDOW,    TP_VIL_WINDOW };
    const int64_t exact = par_int(p, "exact", 0, -1, 1), image = par_size(p, "img_size", 1333);
    const char *arch = par_text(p, "arch");
    char why[256] = "";
    tp_vil_cfg *c = &b->of.vil;
    b->kind = TP_BACKBONE_VIL;
    *c = (tp_vil_cfg){ .kind = kinds[par_word(p, "attn_type", 5, types)],
                       .edge = exact > 0   ? TP_EDGE_EXACT
                               : exact < 0 ? TP_EDGE_CYCLIC
                                           : TP_EDGE_MASK,
                       .separate_global = !par_flag(p, "sharew", true),
                       .raw_embed = !par_flag(p, "norm_embed", true),
                       .linear_qkv = !par_flag(p, "qkv_bias", true) };
    if (c->kind == TP_VIL_WINDOW && par_flag(p, "only_glo", false)) c->kind = TP_VIL_GLOBAL;
    par_fixed(p, "module_mode", 0);
    c->image[0] = c->image[1] = (image + 31) / 32 * 32;
    if (!tp_vil_parse(c, arch ? arch : "", why, sizeof why)) par_fail(p, "metadata arch: %s", why);
}

static void read_widths(parity *p, const char *key, int64_t least, int64_t *x)
{
    int n = TP_BACKBONE_STAGES;
    if (par_given(p, key)) par_stages(p, key, least, TP_BACKBONE_STAGES, x, &n);
}

/* In full-size cases, the name and the variant in words: "ResNet-18, stride in 3x3". */
static void check_arch(parity *p, const tp_resnet_cfg *c)
{
    char own[64];
    int layers = 2;
    if (!par_given(p, "arch") && !p->kind->large) return;
    for (int s = 0; s < TP_BACKBONE_STAGES; s++) layers += c->blocks[s] * (c->bottleneck ? 3 : 2);
    snprintf(own, sizeof own, "ResNet-%d, stride in %s", layers, c->early_stride ? "1x1" : "3x3");
    const char *arch = par_text(p, "arch");
    if (!arch || strcmp(arch, own) != 0)
        par_fail(p, "metadata arch = '%.40s', but the rest says '%s'", arch ? arch : "", own);
}

static void read_resnet(parity *p, tp_backbone_cfg *b)
{
    static const char *const blocks[] = { "basic", "bottleneck", NULL };
    tp_resnet_cfg *c = &b->of.resnet;
    int n = TP_BACKBONE_STAGES;
    b->kind = TP_BACKBONE_RESNET;
    *c = (tp_resnet_cfg){ .image = { 1344, 1344 },
                          .groups = 1,
                          .group_width = 64,
                          .detectron = true,
                          .base = par_size(p, "stem_channels", 64),
                          .bottleneck = par_word(p, "block", PAR_NEEDED, blocks) == 1,
                          .early_stride = par_flag(p, "stride_in_1x1", false) };
    par_stage_ints(p, "stage_blocks", 1, TP_BACKBONE_STAGES, c->blocks, &n);
    read_widths(p, "stage_channels", 1, c->out);
    read_widths(p, "bottleneck_channels", 0, c->inner);
    if (!c->bottleneck && (c->inner[0] || c->inner[1] || c->inner[2] || c->inner[3]))
        par_fail(p, "metadata bottleneck_channels: basic blocks have none");
    b->frozen = (int)par_int(p, "freeze_at", 2, 0, TP_BACKBONE_STAGES + 1);
    check_arch(p, c);
    par_size(p, "img_size", 1333); /* of tables of positions, which a ResNet does not have */
}

/* The names of the full-size cases are ours with other marks: vil_tiny. */
static void check_preset(parity *p, const tp_backbone_cfg *c)
{
    const char *name = par_text(p, "backbone_preset");
    char own[64] = "", why[256];
    int64_t here[TP_BACKBONE_STAGES], there[TP_BACKBONE_STAGES];
    tp_backbone_cfg preset;
    if (!name) return;
    snprintf(own, sizeof own, "%.60s", name);
    for (char *s = own; *s; s++)
        if (*s == '_') *s = '-';
    if (!tp_backbone_preset(&preset, own, TP_DETECTRON2, why, sizeof why)) {
        par_fail(p, "metadata backbone_preset: %s", why);
        return;
    }
    tp_backbone_channels(c, here);
    tp_backbone_channels(&preset, there);
    if (preset.kind != c->kind || memcmp(here, there, sizeof here) != 0)
        par_fail(p, "metadata backbone_preset = '%s' has other maps than the rest says", name);
}

bool par_backbone(parity *p, tp_backbone_cfg *c)
{
    static const char *const types[] = { "vil", "resnet", NULL };
    char why[300];
    *c = (tp_backbone_cfg){ 0 };
    if (par_word(p, "backbone_type", 0, types) == 0)
        read_vil(p, c);
    else
        read_resnet(p, c);
    if (p->failed) return false;
    if (tp_backbone_check(c, why, sizeof why))
        check_preset(p, c);
    else
        par_fail(p, "metadata of the backbone: %s", why);
    return !p->failed;
}

/* The final norm and the head of classifiers, which the references declare and do not use. */
static void declare_unused(parity *p, const char *prefix, int64_t dim)
{
    static const char *const leaves[] = { "norm.weight", "norm.bias", "head.weight", "head.bias" };
    const tp_init zero = { .kind = TP_INIT_ZERO };
    for (int i = 0; i < 4; i++) {
        const char *name = par_name(p, "%s%s%s", prefix, *prefix ? "." : "", leaves[i]);
        if (par_names(p, "unused_params", name))
            tp_param(p->P, name,
                     i < 2    ? TP_SHAPE(dim)
                     : i == 2 ? TP_SHAPE(1000, dim)
                              : TP_SHAPE(1000),
                     zero, 0);
    }
}

void par_declare_backbone(parity *p, tp_backbone *m, const char *name, const tp_backbone_cfg *c)
{
    if (p->failed) return;
    tp_backbone_init(p->P, m, name, c);
    par_finish_backbone(p, m, name);
}

void par_finish_backbone(parity *p, tp_backbone *m, const char *name)
{
    const tp_backbone_cfg *c = &m->cfg;
    int64_t channels[TP_BACKBONE_STAGES];
    if (!par_ok(p)) return;
    if (c->kind == TP_BACKBONE_VIL) {
        const double eps = par_num(p, "layer_norm_eps", 1e-6);
        for (int k = 0; k < TP_BACKBONE_STAGES; k++) m->of.vil.embed[k].norm.eps = eps;
        for (int i = 0; i < m->of.vil.blocks; i++)
            m->of.vil.block[i].norm1.eps = m->of.vil.block[i].norm2.eps = eps;
    } else {
        const double eps = par_num(p, "eps_bn", 1e-5);
        m->of.resnet.bn1.eps = eps;
        for (int i = 0; i < TP_RESNET_MAX_BLOCKS; i++) {
            tp_resnet_block *b = &m->of.resnet.block[i];
            for (int k = 0; k < b->convs; k++) b->bn[k].eps = eps;
            b->down_bn.eps = eps;
        }
    }
    tp_backbone_channels(c, channels);
    declare_unused(p, name, channels[TP_BACKBONE_STAGES - 1]);
}

static void declare_backbone(parity *p, void *self)
{
    tp_backbone_cfg c;
    if (par_backbone(p, &c)) par_declare_backbone(p, self, "", &c);
}

static void run_backbone(parity *p, void *self)
{
    tp_tensor map[TP_BACKBONE_STAGES];
    tp_backbone_forward(p->T, self, par_images(p, "x"), map);
    for (int k = 0; k < TP_BACKBONE_STAGES && par_ok(p); k++)
        par_output(p, par_name(p, "layer%d", k + 1), par_channels_first(p->T, map[k]));
}

/* ---- feature pyramids ---- */

tp_fpn_top par_fpn_top(parity *p)
{
    static const char *const tops[] = { "maxpool", "p6p7", NULL };
    if (par_word(p, "top_block_type", PAR_NEEDED, tops) == 0) {
        par_flag(p, "top_block_relu", false); /* there is no second convolution */
        return TP_FPN_SUBSAMPLE;
    }
    return par_flag(p, "top_block_relu", true) ? TP_FPN_RELU : TP_FPN_PLAIN;
}

bool par_fpn_average(parity *p)
{
    static const char *const ways[] = { "sum", "avg", NULL };
    return par_word(p, "fuse", 0, ways) == 1;
}

typedef struct pyramid {
    tp_fpn fpn;
    int first; /* map of the backbone */
} pyramid;

static void declare_fpn(parity *p, void *self)
{
    pyramid *m = self;
    int64_t n, strides;
    const int64_t *channels = par_sizes(p, "in_channels", 1, &n),
                  *stride = par_sizes(p, "strides", 1, &strides);
    tp_fpn_cfg c = { .dim = par_size(p, "out_channels", PAR_NEEDED),
                     .top = par_fpn_top(p),
                     .average = par_fpn_average(p) };
    m->first = c.top == TP_FPN_SUBSAMPLE ? 0 : 1;
    if (n != TP_BACKBONE_STAGES - m->first || strides != n) {
        par_fail(p, "metadata in_channels, strides: %lld and %lld numbers for %d maps",
                 (long long)n, (long long)strides, TP_BACKBONE_STAGES - m->first);
        return;
    }
    for (int i = 0; i < n; i++) {
        c.channels[m->first + i] = channels[i];
        if (stride[i] != 4 << (m->first + i))
            par_fail(p, "metadata strides: %lld instead of %d", (long long)stride[i],
                     4 << (m->first + i));
    }
    if (!p->failed) tp_fpn_init(p->P, &m->fpn, "", c);
}

static void run_fpn(parity *p, void *self)
{
    const pyramid *m = self;
    tp_tensor map[TP_BACKBONE_STAGES] = { TP_NONE };
    for (int i = m->first; i < TP_BACKBONE_STAGES; i++)
        map[i] = par_channels_last(p->T, par_take(p, par_name(p, "s%d", i + 2)));
    if (!par_ok(p)) return;
    const tp_pyramid y = tp_fpn_forward(p->T, &m->fpn, map);
    for (int i = 0; i < y.levels && par_ok(p); i++)
        par_output(p, par_name(p, "p%d", m->first + 2 + i), par_channels_first(p->T, y.map[i]));
}

/* ---- positions for other sizes ---- */

static void check_resized(parity *p, const char *name, const int64_t from[2], const int64_t to[2])
{
    const char *out = par_name(p, "output.%s", name);
    tp_shape s = { 0 }, t = par_shape(p, out);
    const double *x = par_values(p, par_name(p, "input.%s", name), &s);
    const int64_t channels = s.ndim > 0 ? s.dim[s.ndim - 1] : 0, n = to[0] * to[1] * channels;
    if (!x) return;
    if (par_numel(s) != from[0] * from[1] * channels || par_numel(t) != n) {
        par_fail(p, "input.%s and its output do not have the sizes of the metadata", name);
        return;
    }
    double *y = par_alloc(p, n, sizeof *y);
    if (!y) return;
    tp_vil_resize(x, from, y, to, channels);
    par_check(p, out, y, n, par_exact(p, out));
}

static void run_resize(parity *p)
{
    const int64_t a = par_int(p, "a", PAR_NEEDED, 1, 4096),
                  b = par_int(p, "b", PAR_NEEDED, 1, 4096);
    const int64_t old = par_size(p, "n_old", PAR_NEEDED), new = par_size(p, "n_new", PAR_NEEDED);
    if (p->failed) return;
    check_resized(p, "table", (int64_t[]){ a, a }, (int64_t[]){ b, b });
    check_resized(p, "pos", (int64_t[]){ old, 1 }, (int64_t[]){ new, 1 });
}

const par_kind par_pyramid_kinds[] = {
    { PAR_MODULE("detection.vil_backbone", tp_backbone, declare_backbone, run_backbone),
      .no_bf16 = true },
    { PAR_MODULE("detection.fpn", pyramid, declare_fpn, run_fpn), .no_bf16 = true },
    { PAR_MODULE("detection.mm_fpn", pyramid, declare_fpn, run_fpn), .no_bf16 = true },
    { .kind = "detection.resize_bias", .run = run_resize },
    { .kind = NULL },
};
