/* parity_pyramid.c - kinds of detection around feature maps: backbones, feature pyramids, regions
 * of maps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parity_detection.h"

/* ---- backbones ---- */

static void read_vil(parity *p, tp_backbone_cfg *b)
{
    const int64_t image = par_size(p, "img_size", 1333);
    const char *arch = par_text(p, "arch");
    char why[256] = "";
    tp_vil_cfg c = { .kind = par_vil_kind(p, TP_VIL_WINDOW, false),
                     .edge = par_vil_edge(p),
                     .separate_global = !par_flag(p, "sharew", true),
                     .raw_embed = !par_flag(p, "norm_embed", true),
                     .linear_qkv = !par_flag(p, "qkv_bias", true) };
    /* Positive modes draw shifts in training, and these cases have no draws. */
    if (par_int(p, "module_mode", 0, -1, 0) < 0) c.shift = TP_BLOCK_OWN;
    c.image[0] = c.image[1] = tp_padded_side(image, TP_SIDE_MULTIPLE);
    if (!tp_model_vil.members->parse(&c, arch ? arch : "", why, sizeof why))
        par_illegal(p, "metadata arch: %s", why);
    par_fixed(p, "layer_norm_eps", 1e-6);
    memcpy(&b->model.at, &c, sizeof c);
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
    int n = TP_BACKBONE_STAGES;
    tp_resnet_cfg c = { .image = { 1344, 1344 },
                        .groups = 1,
                        .group_width = 64,
                        .detectron = true,
                        .base = par_size(p, "stem_channels", 64),
                        .bottleneck = par_word(p, "block", PAR_NEEDED, blocks) == 1,
                        .early_stride = par_flag(p, "stride_in_1x1", false) };
    par_stage_ints(p, "stage_blocks", 1, TP_BACKBONE_STAGES, c.blocks, &n);
    read_widths(p, "stage_channels", 1, c.out);
    read_widths(p, "bottleneck_channels", 0, c.inner);
    if (!c.bottleneck && (c.inner[0] || c.inner[1] || c.inner[2] || c.inner[3]))
        par_illegal(p, "metadata bottleneck_channels: basic blocks have none");
    b->frozen = (int)par_int(p, "freeze_at", 2, 0, TP_BACKBONE_STAGES + 1);
    check_arch(p, &c);
    par_fixed(p, "eps_bn", 1e-5);
    par_size(p, "img_size", 1333); /* of tables of positions, which a ResNet does not have */
    memcpy(&b->model.at, &c, sizeof c);
}

/* The backbones that cases have, by the metadata backbone_type. */
static const char *const types[] = { "vil", "resnet", NULL };
static const struct {
    const tp_model *model;
    void (*read)(parity *p, tp_backbone_cfg *b);
} backbones[] = {
    { &tp_model_vil, read_vil },
    { &tp_model_resnet, read_resnet },
};

/* The names of the full-size cases are ours with other marks: vil_tiny. */
static void check_preset(parity *p, const tp_backbone_cfg *c)
{
    const char *name = par_text(p, "backbone_preset");
    char own[64] = "", why[256];
    tp_backbone_cfg preset;
    if (!name) return;
    if (strchr(name, '-'))
        par_illegal(p, "metadata backbone_preset = '%s': the marks are '_'", name);
    snprintf(own, sizeof own, "%.60s", name);
    for (char *s = own; *s; s++)
        if (*s == '_') *s = '-';
    if (!tp_backbone_preset(&preset, own, TP_DETECTRON2, why, sizeof why)) {
        par_illegal(p, "metadata backbone_preset: %s", why);
        return;
    }
    if (!tp_model_same(&preset.model, &c->model))
        par_fail(p, "metadata backbone_preset = '%s' has other stages than the rest says", name);
}

bool par_backbone(parity *p, tp_backbone_cfg *c)
{
    const int type = par_word(p, "backbone_type", 0, types);
    char why[300];
    *c = (tp_backbone_cfg){ .model.model = backbones[type].model };
    backbones[type].read(p, c);
    if (p->failed) return false;
    if (tp_backbone_check(c, why, sizeof why))
        check_preset(p, c);
    else
        par_illegal(p, "metadata of the backbone: %s", why);
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

void par_finish_backbone(parity *p, const tp_backbone *m, const char *name)
{
    int64_t channels[TP_BACKBONE_STAGES];
    if (!par_ok(p)) return;
    tp_backbone_channels(&m->cfg, channels);
    declare_unused(p, name, channels[TP_BACKBONE_STAGES - 1]);
}

static void declare_backbone(parity *p, void *self)
{
    tp_backbone_cfg c;
    if (!par_backbone(p, &c)) return;
    tp_backbone_init(p->P, self, "", &c);
    par_finish_backbone(p, self, "");
}

static void run_backbone(parity *p, void *self)
{
    tp_tensor map[TP_BACKBONE_STAGES];
    tp_backbone_forward(p->T, self, par_images(p, "x"), map);
    for (int k = 0; k < TP_BACKBONE_STAGES && par_ok(p); k++)
        par_output(p, par_nth(p, "layer", k + 1), par_channels_first(p->T, map[k]));
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

static void declare_fpn(parity *p, void *self)
{
    int64_t n, strides;
    char why[200];
    const int64_t *channels = par_sizes(p, "in_channels", 1, &n),
                  *stride = par_sizes(p, "strides", 1, &strides);
    tp_fpn_cfg c = { .first = 1,
                     .dim = par_size(p, "out_channels", PAR_NEEDED),
                     .top = par_fpn_top(p),
                     .average = par_fpn_average(p) };
    if (n < 1 || n > TP_FPN_MAPS || strides != n) {
        par_fail(p, "metadata in_channels, strides: %lld and %lld numbers for 1 to %d maps",
                 (long long)n, (long long)strides, TP_FPN_MAPS);
        return;
    }
    c.maps = (int)n;
    while (INT64_C(1) << c.first < stride[0]) c.first++;
    for (int i = 0; i < n; i++) {
        c.channels[i] = channels[i];
        if (stride[i] != INT64_C(1) << (c.first + i))
            par_fail(p, "metadata strides: %lld instead of %lld", (long long)stride[i],
                     (long long)(INT64_C(1) << (c.first + i)));
    }
    if (!tp_fpn_check(&c, why, sizeof why)) par_illegal(p, "metadata: %s", why);
    if (!p->failed) tp_fpn_init(p->P, self, "", c);
}

static void run_fpn(parity *p, void *self)
{
    const tp_fpn *m = self;
    tp_tensor map[TP_FPN_MAPS] = { TP_NONE };
    for (int i = 0; i < m->cfg.maps; i++)
        map[i] = par_channels_last(p->T, par_take(p, par_nth(p, "s", m->cfg.first + i)));
    if (!par_ok(p)) return;
    const tp_pyramid y = tp_fpn_forward(p->T, m, map);
    for (int i = 0; i < y.levels && par_ok(p); i++)
        par_output(p, par_nth(p, "p", m->cfg.first + i), par_channels_first(p->T, y.map[i]));
}

/* ---- regions of maps ---- */

/* Regions of maps as the library takes them: boxes, and the image and map of each. */
typedef struct regions {
    int64_t n;
    float *box;     /* [n,4] */
    int32_t *place; /* [n,2] */
    tp_roi_align_cfg cfg;
    int maps;
} regions;

static bool begin_regions(parity *p, regions *r, int64_t n)
{
    r->n = n;
    r->box = par_alloc(p, 4 * n, sizeof *r->box);
    r->place = par_alloc(p, 2 * n, sizeof *r->place);
    return !p->failed;
}

static void set_region(regions *r, int64_t i, const double box[4], int64_t image, int64_t map)
{
    for (int k = 0; k < 4; k++) r->box[4 * i + k] = (float)box[k];
    r->place[2 * i] = (int32_t)image;
    r->place[2 * i + 1] = (int32_t)map;
}

/* Pools the regions and compares; map[l]: [B,C,H,W]. */
static void pool(parity *p, const regions *r, const tp_tensor *map)
{
    tp_tensor last[TP_ROI_LEVELS];
    for (int l = 0; l < r->maps; l++) /* the library reads 0 as 1 */
        if (!(r->cfg.scale[l] > 0.0))
            par_illegal(p, "metadata: the scale of map %d is not positive", l);
    if (!par_ok(p)) return;
    for (int l = 0; l < r->maps; l++) last[l] = par_channels_last(p->T, map[l]);
    const tp_tensor boxes = tp_from(p->T, TP_F32, TP_SHAPE(r->n, 4), r->box),
                    places = tp_from(p->T, TP_I32, TP_SHAPE(r->n, 2), r->place);
    const tp_tensor y = tp_roi_align(p->T, r->maps, last, boxes, places, r->cfg);
    par_output(p, "y", par_channels_first(p->T, y));
}

/* input.rois: image, then the box. */
static void run_align(parity *p, void *self)
{
    tp_shape s = { 0 }, x = par_shape(p, "input.x");
    const double *roi = par_values(p, "input.rois", &s);
    regions r = { .maps = 1 };
    (void)self;
    par_square(p, "output_size", r.cfg.size);
    r.cfg.scale[0] = par_num(p, "spatial_scale", PAR_NEEDED);
    r.cfg.samples = par_samples(p, "sampling_ratio");
    r.cfg.aligned = par_flag(p, "aligned", true);
    if (!roi) return;
    if (s.ndim != 2 || s.dim[1] != 5 || x.ndim != 4) {
        par_fail(p, "input.rois must be [regions,5], input.x a map");
        return;
    }
    if (!begin_regions(p, &r, s.dim[0])) return;
    for (int64_t i = 0; i < r.n; i++) set_region(&r, i, roi + 5 * i + 1, (int64_t)roi[5 * i], 0);
    const tp_tensor map = par_take(p, "x");
    pool(p, &r, &map);
}

/* Regions of all images, and the level of each. */
static bool read_pooled(parity *p, regions *r)
{
    const int64_t images = par_series(p, "input.boxes");
    const double canonical = par_num(p, "canonical_box_size", 224.0);
    const int level = (int)par_count(p, "canonical_level", 4);
    const int first = (int)par_count(p, "min_level", 2), last = (int)par_count(p, "max_level", 5);
    int64_t n = 0, at = 0;
    if (last - first + 1 != r->maps || !(canonical > 0.0)) {
        par_fail(p, "metadata min_level, max_level: %d to %d for %d maps", first, last, r->maps);
        return false;
    }
    for (int64_t b = 0; b < images; b++) n += par_shape(p, par_nth(p, "input.boxes", b)).dim[0];
    int *map = par_alloc(p, n, sizeof *map);
    if (!begin_regions(p, r, n)) return false;
    for (int64_t b = 0; !p->failed && b < images; b++) {
        int64_t of_image;
        const tp_corners *box = par_corners(p, par_nth(p, "input.boxes", b), &of_image);
        for (int64_t i = 0; box && i < of_image; i++, at++) {
            map[at] = tp_region_level(box[i], canonical, level, first, last, TP_DETECTRON2) - first;
            set_region(r, at, (const double *)&box[i], b, map[at]);
        }
    }
    if (!p->failed) par_check_ints(p, "output.levels", map, n);
    return !p->failed;
}

static void run_pooler(parity *p, void *self)
{
    int64_t scales;
    const double *scale = par_list(p, "scales", &scales);
    regions r = { .maps = (int)par_series(p, "input.f") };
    tp_tensor map[TP_ROI_LEVELS];
    (void)self;
    r.cfg = (tp_roi_align_cfg){ .samples = par_samples(p, "sampling_ratio"),
                                .aligned = par_flag(p, "aligned", true) };
    par_square(p, "output_size", r.cfg.size);
    if (r.maps < 1 || r.maps > TP_ROI_LEVELS || scales != r.maps) {
        par_fail(p, "metadata scales: %lld numbers for %d maps", (long long)scales, r.maps);
        return;
    }
    for (int l = 0; l < r.maps; l++) {
        r.cfg.scale[l] = scale[l];
        map[l] = par_take(p, par_nth(p, "f", l));
    }
    if (read_pooled(p, &r)) pool(p, &r, map);
}

const par_kind par_pyramid_kinds[] = {
    { PAR_MODULE("detection.vil_backbone", tp_backbone, declare_backbone, run_backbone),
      .no_bf16 = true },
    { PAR_MODULE("detection.fpn", tp_fpn, declare_fpn, run_fpn), .no_bf16 = true },
    { PAR_MODULE("detection.mm_fpn", tp_fpn, declare_fpn, run_fpn), .no_bf16 = true },
    { PAR_MODULE("detection.roi_align", int, NULL, run_align) },
    { PAR_MODULE("detection.roi_pooler", int, NULL, run_pooler) },
    { .kind = NULL },
};
