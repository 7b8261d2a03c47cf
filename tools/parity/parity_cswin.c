/* parity_cswin.c - kinds of CSWin: attention in stripes, block, merging, models. */
#include <tapegrad/cswin.h>

#include "parity_window.h"

/* x [B,R*R,D] as a map; the metadata's resolution is R. */
static tp_tensor take_square(parity *p)
{
    return par_take_map(p, "resolution", "resolution");
}

/* ---- parts ---- */

typedef struct lepe {
    tp_cswin_lepe m;
    int64_t side;
} lepe;

static void declare_lepe(parity *p, void *self)
{
    static const tp_cswin_stripes stripes[] = { TP_CSWIN_WHOLE, TP_CSWIN_VERTICAL,
                                                TP_CSWIN_HORIZONTAL };
    lepe *a = self;
    tp_cswin_lepe_cfg c = { .dim = par_size(p, "dim", PAR_NEEDED) };
    const int64_t branch = par_int(p, "branch_index", PAR_NEEDED, -1, 1);
    c.heads = (int)par_size(p, "heads", PAR_NEEDED);
    const int64_t rows = par_size(p, "stripe_height", PAR_NEEDED);
    const int64_t cols = par_size(p, "stripe_width", PAR_NEEDED);
    a->side = par_size(p, "resolution", PAR_NEEDED);
    if ((branch != 1 && rows != a->side) || (branch != 0 && cols != a->side))
        par_fail(p, "branch %lld of a map of %lld x %lld has no stripes of %lld x %lld",
                 (long long)branch, (long long)a->side, (long long)a->side, (long long)rows,
                 (long long)cols);
    if (p->failed) return;
    c.stripes = stripes[branch + 1];
    c.split = branch == 1 ? rows : cols;
    tp_part_init(p->P, &tp_model_cswin, "lepe", &a->m, "", &c);
}

/* qkv [3,B,R*R,D] */
static void run_lepe(parity *p, void *self)
{
    const lepe *a = self;
    const tp_tensor x = par_take(p, "qkv");
    tp_tensor part[3];
    if (!par_ok(p)) return;
    if (tp_ndim(x) != 4 || tp_dim(x, 0) != 3) {
        par_fail(p, "input.qkv must be [3,B,tokens,width]");
        return;
    }
    const tp_shape s = TP_SHAPE(tp_dim(x, 1), tp_dim(x, 2), tp_dim(x, 3));
    for (int i = 0; i < 3; i++) part[i] = tp_reshape(p->T, tp_slice(p->T, x, 0, i, 1), s);
    tp_cswin_lepe_in in = { part[1], part[2], a->side };
    par_output(p, "y", tp_part_forward(p->T, &tp_model_cswin, "lepe", &a->m, &in, part[0]));
}

static void set_eps(parity *p, tp_cswin_block *m)
{
    m->norm1.eps = m->norm2.eps = par_num(p, "eps_norm", 1e-5);
}

static void declare_block(parity *p, void *self)
{
    tp_cswin_block *m = self;
    tp_cswin_block_cfg c = { .side = par_size(p, "resolution", PAR_NEEDED),
                             .dim = par_size(p, "dim", PAR_NEEDED),
                             .split = par_size(p, "split_size", PAR_NEEDED),
                             .heads = (int)par_size(p, "heads", PAR_NEEDED),
                             .last = par_flag(p, "last_stage", false) };
    c.mlp_ratio = window_ratio(p, c.dim);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_cswin, "block", m, "", &c);
    set_eps(p, m);
    par_same(p, "branches", m->branches);
}

static void run_block(parity *p, void *self)
{
    par_output_tokens(p, "y",
                      tp_part_forward(p->T, &tp_model_cswin, "block", self, NULL, take_square(p)));
}

static void declare_merge(parity *p, void *self)
{
    tp_conv_norm *m = self;
    const tp_conv_norm_cfg c = { .conv = "conv",
                                 .in = par_size(p, "dim_in", PAR_NEEDED),
                                 .out = par_size(p, "dim_out", PAR_NEEDED),
                                 .kernel = 3,
                                 .stride = 2,
                                 .pad = 1 };
    tp_conv_norm_init(p->P, m, "", c);
    m->norm.eps = par_num(p, "eps_norm", 1e-5);
}

static void run_merge(parity *p, void *self)
{
    par_output_tokens(p, "y", tp_conv_norm_forward(p->T, self, take_square(p)));
}

/* ---- models ---- */

static void declare_model(parity *p, void *self)
{
    static const char *const patches[] = { "7/4/2", NULL };
    tp_cswin *m = self;
    tp_cswin_cfg c = { .classes = par_size(p, "classes", PAR_NEEDED),
                       .dim = par_size(p, "dim", PAR_NEEDED),
                       .mlp_ratio = par_num(p, "mlp_ratio", 4.0) };
    int stages = TP_CSWIN_STAGES;
    par_image_size(p, "image", c.image);
    par_stage_ints(p, "depth", 1, TP_CSWIN_STAGES, c.depths, &stages);
    par_stage_ints(p, "heads", 1, TP_CSWIN_STAGES, c.heads, &stages);
    par_stages(p, "split_size", 1, TP_CSWIN_STAGES, c.split, &stages);
    par_word(p, "patch", 0, patches);
    if (p->failed) return;
    tp_model_cswin.init(p->P, m, "", &c);
    m->embed.norm.eps = m->norm.eps = par_num(p, "eps_norm", 1e-5);
    for (int i = 0, b = 0; i < TP_CSWIN_STAGES && par_ok(p); i++) {
        for (int j = 0; j < c.depths[i]; j++) set_eps(p, &m->block[b++]);
        if (i < TP_CSWIN_STAGES - 1) m->merge[i].norm.eps = m->norm.eps;
    }
}

static void run_model(parity *p, void *self)
{
    par_output(p, "y", tp_model_cswin.forward(p->T, self, NULL, par_images(p, "image")));
}

const par_kind par_cswin_kinds[] = {
    { PAR_MODULE("window_baselines.cswin_lepe_attention", lepe, declare_lepe, run_lepe) },
    { PAR_MODULE("window_baselines.cswin_block", tp_cswin_block, declare_block, run_block) },
    { PAR_MODULE("window_baselines.cswin_merge", tp_conv_norm, declare_merge, run_merge) },
    { PAR_MODULE("window_baselines.cswin_model", tp_cswin, declare_model, run_model) },
    { .kind = NULL },
};
