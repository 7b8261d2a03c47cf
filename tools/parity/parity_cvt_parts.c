/* parity_cvt_parts.c - kinds of CvT's parts: token embedding, projections, attentions, block. */
#include "parity_cvt.h"

/* [B,H,W,C] -> [B,H*W,C] */
static tp_tensor tokens(tp_tape *T, tp_tensor map)
{
    return tp_reshape(T, map, TP_SHAPE(tp_dim(map, 0), -1, tp_dim(map, 3)));
}

/* ---- convolutions ---- */

void cvt_declare_embed(parity *p, void *self)
{
    tp_cvt_embed *m = self;
    const tp_cvt_embed_cfg c = { .in = par_size(p, "in_channels", PAR_NEEDED),
                                 .out = par_size(p, "out_channels", PAR_NEEDED),
                                 .kernel = par_size(p, "kernel", PAR_NEEDED),
                                 .stride = par_size(p, "stride", PAR_NEEDED),
                                 .pad = par_count(p, "padding", PAR_NEEDED) };
    tp_part_init(p->P, &tp_model_cvt, "embed", m, "", &c);
    m->norm.eps = par_num(p, "ln_eps", 1e-5);
}

void cvt_embed(parity *p, void *self)
{
    const tp_tensor y =
        tp_part_forward(p->T, &tp_model_cvt, "embed", self, NULL, par_images(p, "x"));
    par_output(p, "y", par_channels_first(p->T, y));
}

void cvt_declare_projection(parity *p, void *self)
{
    const int64_t C = par_size(p, "channels", PAR_NEEDED), stride = par_size(p, "stride", 1);
    const int64_t pad = par_count(p, "padding", 1);
    const tp_conv_cfg cfg = { { stride, stride }, { pad, pad }, { 1, 1 }, C };
    cvt_projection *m = self;

    tp_conv2d_init(p->P, &m->conv, "conv", C, C, par_size(p, "kernel", 3), false, cfg);
    tp_batchnorm_init(p->P, &m->bn, "bn", C, par_num(p, "bn_eps", 1e-5));
}

/* Depthwise convolution and batch norm of x, x2 and further inputs. In training mode each is
 * normalised on its own; the running statistics are compared after the last. */
void cvt_project(parity *p, void *self)
{
    const cvt_projection *m = self;
    const char *input = "x", *output = "y";

    for (int k = 2; !p->failed && (k == 2 || par_has(p, par_name(p, "input.%s", input))); k++) {
        const tp_tensor f = tp_conv2d_forward(p->T, &m->conv, par_images(p, input));
        par_output(p, output, tokens(p->T, tp_batchnorm_forward(p->T, &m->bn, f)));
        input = par_name(p, "x%d", k);
        output = par_name(p, "y%d", k);
    }
}

void cvt_declare_sepconv(parity *p, void *self)
{
    const int64_t C = par_size(p, "channels", PAR_NEEDED);
    const tp_conv_cfg cfg = { { 1, 1 }, { 1, 1 }, { 1, 1 }, C };
    cvt_sepconv *m = self;

    tp_conv2d_init(p->P, &m->conv, "conv_proj_p.conv", C, C, 3, true, cfg);
    tp_linear_init(p->P, &m->linear, "proj_p", C, par_size(p, "out", PAR_NEEDED), true);
}

/* The scores of the dynamic projection. */
void cvt_separate(parity *p, void *self)
{
    const cvt_sepconv *m = self;
    const tp_tensor x = par_images(p, "x");
    const double eps = par_num(p, "eps", 1e-5);
    const tp_tensor w = tp_weight_standardize(p->T, m->conv.weight, eps, false);
    const tp_tensor y = tp_conv2d(p->T, x, w, m->conv.bias, m->conv.cfg);
    par_output(p, "y", tp_linear_forward(p->T, &m->linear, tokens(p->T, y)));
}

/* ---- attentions, block ---- */

tp_cvt_cfg cvt_one_stage(parity *p)
{
    tp_cvt_cfg c = cvt_like(p->kind->variant);

    cvt_options(p, &c);
    c.kv_stride = par_size(p, "stride_kv", c.kv_stride);
    par_fixed(p, "stride_q", 1.0);
    c.dim[0] = par_size(p, "dim", PAR_NEEDED);
    c.heads[0] = (int)par_size(p, "heads", PAR_NEEDED);
    if (c.dim[0] % c.heads[0])
        par_illegal(p, "metadata dim: %lld channels do not divide into %d heads",
                    (long long)c.dim[0], c.heads[0]);
    if (!c.long_short) return c;
    c.rank[0] = par_size(p, "r", PAR_NEEDED);
    c.window[0] = par_size(p, "w", PAR_NEEDED);
    par_same(p, "window_side", c.window[0] > 1 ? c.window[0] / 2 : 1);
    return c;
}

/* x [B,cls+H*W,D], and the grid [H,W,0] of its map. */
static tp_tensor take_tokens(parity *p, tp_tensor *grid)
{
    const int64_t H = par_size(p, "H", PAR_NEEDED), W = par_size(p, "W", PAR_NEEDED);
    const tp_tensor x = par_take(p, "x");

    if (par_ok(p)) par_same(p, "cls", tp_dim(x, 1) - H * W);
    *grid = tp_full(p->T, TP_F32, TP_SHAPE(H, W, 0), 0.0);
    return x;
}

void cvt_declare_attention(parity *p, void *self)
{
    const tp_cvt_cfg c = cvt_one_stage(p);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_cvt, "attn", self, "", &(tp_cvt_block_cfg){ .model = &c });
    cvt_adjust(p, self);
}

void cvt_attend(parity *p, void *self)
{
    tp_tensor grid;
    const tp_tensor x = take_tokens(p, &grid);
    par_output(p, "y", tp_part_forward(p->T, &tp_model_cvt, "attn", self, &grid, x));
}

void cvt_declare_block(parity *p, void *self)
{
    const tp_cvt_cfg c = cvt_one_stage(p);
    tp_cvt_block *m = self;

    par_fixed(p, "mlp_ratio", 4.0);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_cvt, "block", m, "", &(tp_cvt_block_cfg){ .model = &c });
    m->norm1.eps = m->norm2.eps = par_num(p, "ln_eps", 1e-5);
    cvt_adjust(p, &m->attn);
}

void cvt_block(parity *p, void *self)
{
    tp_tensor grid;
    const tp_tensor x = take_tokens(p, &grid);
    par_output(p, "y", tp_part_forward(p->T, &tp_model_cvt, "block", self, &grid, x));
}
