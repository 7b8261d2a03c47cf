/* parity_resnet.c - kinds of ResNet and ResNeXt: blocks, whole models, feature maps. */
#include "parity_resnet.h"

#include "parity_baselines.h"

static const char *const blocks[] = { "BasicBlock", "Bottleneck", NULL };

static void set_norm(parity *p, tp_batchnorm_m *m)
{
    m->eps = par_num(p, "eps_bn", 1e-5);
    m->momentum = par_num(p, "momentum_bn", 0.1);
}

static void set_norms(parity *p, tp_resnet_block *m)
{
    for (int i = 0; i < m->convs; i++) set_norm(p, &m->bn[i]);
    set_norm(p, &m->down_bn);
}

static tp_resnet_cfg read_cfg(parity *p, bool bottleneck)
{
    const tp_resnet_cfg c = { .image = { 64, 64 },
                              .bottleneck = par_word(p, "block", bottleneck, blocks) == 1,
                              .groups = par_size(p, "groups", 1),
                              .group_width = par_size(p, "width_per_group", 64) };
    if (!c.bottleneck && (c.groups != 1 || c.group_width != 64))
        par_illegal(p, "metadata groups, width_per_group: only bottlenecks have them");
    return c;
}

/* ---- blocks ---- */

void resnet_declare_block(parity *p, void *self)
{
    tp_resnet_block *m = self;
    const tp_resnet_cfg c = read_cfg(p, p->kind->variant == 1);
    tp_resnet_block_cfg b = { .model = &c, .in = par_size(p, "in_channels", PAR_NEEDED) };
    b.planes = par_size(p, "planes", PAR_NEEDED);
    if (c.bottleneck != (p->kind->variant == 1))
        par_fail(p, "metadata block: another block than that of this kind");
    b.stride = par_size(p, "stride", 1);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_resnet, "block", m, "", &b);
    if (!par_ok(p)) return;
    set_norms(p, m);
    par_same(p, "mid_width", tp_dim(m->conv[0].weight, 0));
    par_same(p, "expansion", c.bottleneck ? 4 : 1);
    par_same(p, "downsample", tp_given(m->down.weight));
}

void resnet_run_block(parity *p, void *self)
{
    const tp_tensor y =
        tp_part_forward(p->T, &tp_model_resnet, "block", self, NULL, par_images(p, "x"));
    par_output(p, "y", par_channels_first(p->T, y));
}

/* ---- models ---- */

void resnet_declare(parity *p, void *self)
{
    tp_resnet *m = self;
    tp_resnet_cfg c = read_cfg(p, true);
    baseline_ints(p, "layers", 1, c.blocks);
    c.base = par_size(p, "base", 64);
    if (p->kind->variant == 0) c.classes = par_size(p, "num_classes", PAR_NEEDED);
    if (p->failed) return;
    tp_model_resnet.init(p->P, m, "", &c);
    set_norm(p, &m->bn1);
    for (int i = 0; par_ok(p) && i < TP_RESNET_MAX_BLOCKS; i++) set_norms(p, &m->block[i]);
}

void resnet_run(parity *p, void *self)
{
    par_output(p, "logits", tp_model_resnet.forward(p->T, self, NULL, par_images(p, "x")));
}

void resnet_run_features(parity *p, void *self)
{
    tp_tensor maps[TP_RESNET_STAGES];
    tp_resnet_features(p->T, self, par_images(p, "x"), maps);
    baseline_maps(p, maps);
}
