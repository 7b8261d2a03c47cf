/* parity_pvt.c - kinds of PVT and PVTv2: attention, blocks, whole models, feature maps. */
#include "parity_pvt.h"

#include "parity_baselines.h"

/* PVT or PVTv2, with or without pooling. */
static void read_kind(parity *p, tp_pvt_cfg *c)
{
    const bool second = p->kind->variant & PVT_SECOND;
    const bool linear = second && par_flag(p, "linear", false);
    c->kind = !second ? TP_PVT : linear ? TP_PVT2_LINEAR : TP_PVT2;
    if (linear)
        c->pool = par_size(p, "pool_size", 7);
    else if (second)
        par_count(p, "pool_size", 0); /* not used, like the ratios of models that pool */
}

/* ---- attention and block, as stage 0 ---- */

static tp_pvt_cfg read_stage(parity *p)
{
    tp_pvt_cfg c = { .dim = { par_size(p, "dim", PAR_NEEDED) },
                     .heads = { (int)par_size(p, "heads", PAR_NEEDED) } };
    read_kind(p, &c);
    const int64_t R = par_count(p, "sr_ratio", c.kind == TP_PVT2_LINEAR ? 0 : PAR_NEEDED);
    c.reduction[0] = c.kind == TP_PVT2_LINEAR ? 1 : R;
    if (c.reduction[0] < 1) par_illegal(p, "metadata sr_ratio: a reduction is 1 or more");
    return c;
}

void pvt_declare_attention(parity *p, void *self)
{
    tp_pvt_attn *m = self;
    const tp_pvt_cfg c = read_stage(p);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_pvt, "attn", m, "", &(tp_pvt_block_cfg){ .model = &c });
    m->norm.eps = par_num(p, "eps_attn_norm", 1e-5);
}

void pvt_attend(parity *p, void *self)
{
    par_output_tokens(
        p, "y",
        tp_part_forward(p->T, &tp_model_pvt, "attn", self, NULL, par_take_map(p, "H", "W")));
}

static void set_eps(parity *p, tp_pvt_block *m)
{
    m->norm1.eps = m->norm2.eps = par_num(p, "eps_norm", 1e-6);
    m->attn.norm.eps = par_num(p, "eps_attn_norm", 1e-5);
}

void pvt_declare_block(parity *p, void *self)
{
    tp_pvt_cfg c = read_stage(p);
    c.mlp_ratio[0] = par_size(p, "mlp_ratio", 4);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_pvt, "block", self, "", &(tp_pvt_block_cfg){ .model = &c });
    set_eps(p, self);
}

void pvt_run_block(parity *p, void *self)
{
    par_output_tokens(
        p, "y",
        tp_part_forward(p->T, &tp_model_pvt, "block", self, NULL, par_take_map(p, "H", "W")));
}

/* ---- models ---- */

/* PVTv2 has no tables, so the size of its images is that of the case. */
static void read_image(parity *p, tp_pvt_cfg *c)
{
    static const char *const modes[] = { "bilinear", NULL };
    if (c->kind != TP_PVT) {
        par_image_size(p, "x", c->image);
        return;
    }
    baseline_image(p, c->image);
    par_word(p, "interpolation", 0, modes);
}

void pvt_declare(parity *p, void *self)
{
    const bool headless = p->kind->variant & PVT_HEADLESS;
    tp_pvt *m = self;
    tp_pvt_cfg c = { 0 };
    read_kind(p, &c);
    read_image(p, &c);
    baseline_stages(p, "dims", 1, c.dim);
    baseline_ints(p, "heads", 1, c.heads);
    baseline_ints(p, "depths", 1, c.blocks);
    baseline_stages(p, "mlp_ratios", 1, c.mlp_ratio);
    if (c.kind != TP_PVT2_LINEAR || par_given(p, "sr_ratios"))
        baseline_stages(p, "sr_ratios", c.kind == TP_PVT2_LINEAR ? 0 : 1, c.reduction);
    for (int s = 0; s < TP_PVT_STAGES && c.kind == TP_PVT2_LINEAR; s++) c.reduction[s] = 1;
    if (!headless) c.classes = par_size(p, "num_classes", PAR_NEEDED);
    par_same(p, "class_token", c.kind == TP_PVT && !headless);
    if (p->failed) return;
    tp_model_pvt.init(p->P, m, "", &c);
    for (int s = 0; par_ok(p) && s < TP_PVT_STAGES; s++) {
        m->stage[s].patch_norm.eps = par_num(p, "eps_patch_norm", 1e-5);
        m->stage[s].norm.eps = par_num(p, "eps_norm", 1e-6);
        for (int b = 0; b < c.blocks[s]; b++) set_eps(p, &m->block[m->stage[s].first + b]);
    }
    m->norm.eps = par_num(p, "eps_norm", 1e-6);
}

void pvt_run(parity *p, void *self)
{
    par_output(p, "logits", tp_model_pvt.forward(p->T, self, NULL, par_images(p, "x")));
}

void pvt_run_features(parity *p, void *self)
{
    tp_tensor maps[TP_PVT_STAGES];
    tp_pvt_features(p->T, self, par_images(p, "x"), maps);
    baseline_maps(p, maps);
}
