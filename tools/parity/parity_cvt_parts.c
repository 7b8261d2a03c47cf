/* parity_cvt_parts.c - cases of CvT's parts: token embedding, projections, attentions, block. All
 * differentiate sum(output * probe). */
#include "parity_cvt.h"

tp_tape *cvt_tape(parity *p)
{
    return tp_tape_new(p->D, &(tp_tape_opts){ .compute = p->compute, .train = par_train(p) });
}

/* Compares y, differentiates, compares all gradients and buffers. */
static void finish(parity *p, tp_tape *T, tp_params *P, tp_tensor x, tp_tensor y)
{
    par_check_tensor(p, T, "output.y", y);
    tp_backward(T, par_probe(p, T, y));
    if (par_ok(p, T, P)) {
        par_check_input_grad(p, T, "x", x);
        par_check_grads(p, P);
        cvt_check_buffers(p, P);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

/* [B,H,W,C] -> [B,H*W,C] */
static tp_tensor tokens(tp_tape *T, tp_tensor map)
{
    return tp_reshape(T, map, TP_SHAPE(tp_dim(map, 0), -1, tp_dim(map, 3)));
}

/* ---- convolutions ---- */

void cvt_run_embed(parity *p)
{
    tp_params *P = par_params_new(p);
    tp_tape *T = cvt_tape(p);
    tp_cvt_embed m;

    tp_cvt_embed_init(P, &m, "", par_int(p, "in_channels", 3), par_int(p, "out_channels", 64),
                      par_int(p, "kernel", 7), par_int(p, "stride", 4), par_int(p, "padding", 2));
    par_load(p, P);
    const tp_tensor x = par_input(p, T, "input.x");
    const tp_tensor y = tp_cvt_embed_forward(T, &m, cvt_channels_last(T, x));
    finish(p, T, P, x, tp_permute(T, y, TP_SHAPE(0, 3, 1, 2)));
}

/* Depthwise convolution and batch norm of x; in training mode of x, then of x2. */
void cvt_run_projection(parity *p)
{
    const int64_t C = par_int(p, "channels", 64), stride = par_int(p, "stride", 1);
    const tp_conv2d_opts o = { { stride, stride }, { 1, 1 }, { 1, 1 }, C };
    tp_params *P = par_params_new(p);
    tp_tape *T = cvt_tape(p);
    tp_conv2d_m conv;
    tp_batchnorm_m bn;

    tp_conv2d_init(P, &conv, "conv", C, C, par_int(p, "kernel", 3), false, &o);
    tp_batchnorm_init(P, &bn, "bn", C, 1e-5);
    par_load(p, P);
    const tp_tensor x = par_input(p, T, "input.x"), f = cvt_channels_last(T, x);
    const tp_tensor y = tokens(T, tp_batchnorm_forward(T, &bn, tp_conv2d_forward(T, &conv, f)));
    if (!par_has(p, "input.x2")) {
        finish(p, T, P, x, y);
        return;
    }
    const tp_tensor x2 = par_input(p, T, "input.x2"), f2 = cvt_channels_last(T, x2);
    const tp_tensor y2 = tokens(T, tp_batchnorm_forward(T, &bn, tp_conv2d_forward(T, &conv, f2)));
    const tp_tensor a = tp_mul(T, y, par_tensor(p, T, "input.probe.y"));
    const tp_tensor b = tp_mul(T, y2, par_tensor(p, T, "input.probe.y2"));
    const tp_tensor loss = tp_add(T, tp_sum(T, a, TP_ALL), tp_sum(T, b, TP_ALL));

    par_check_tensor(p, T, "output.y", y);
    par_check_tensor(p, T, "output.y2", y2);
    par_check_tensor(p, T, "output.loss", loss);
    tp_backward(T, loss);
    if (par_ok(p, T, P)) {
        par_check_input_grad(p, T, "x", x);
        par_check_input_grad(p, T, "x2", x2);
        par_check_grads(p, P);
        cvt_check_buffers(p, P);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

/* The scores of the dynamic projection. */
void cvt_run_sepconv(parity *p)
{
    const int64_t C = par_int(p, "channels", 64);
    const tp_conv2d_opts o = { { 1, 1 }, { 1, 1 }, { 1, 1 }, C };
    tp_params *P = par_params_new(p);
    tp_tape *T = cvt_tape(p);
    tp_conv2d_m conv;
    tp_linear_m linear;

    tp_conv2d_init(P, &conv, "conv_proj_p.conv", C, C, 3, true, &o);
    tp_linear_init(P, &linear, "proj_p", C, par_int(p, "out", 64), true);
    par_load(p, P);
    const tp_tensor x = par_input(p, T, "input.x"), f = cvt_channels_last(T, x);
    const tp_tensor w = tp_weight_standardize(T, conv.weight, par_num(p, "eps", 1e-5), false);
    const tp_tensor y = tp_linear_forward(T, &linear, tokens(T, tp_conv2d(T, f, w, conv.bias, &o)));
    finish(p, T, P, x, y);
}

/* ---- attentions, block ---- */

/* A configuration whose first stage is the case's. */
static tp_cvt_cfg one_stage(parity *p, cvt_family family)
{
    tp_cvt_cfg c = cvt_options(p, family);
    c.kv_stride = par_int(p, "stride_kv", c.kv_stride);
    c.dim[0] = par_int(p, "dim", 64);
    c.heads[0] = (int)par_int(p, "heads", 1);
    c.rank[0] = par_int(p, "r", 1);
    c.window[0] = par_int(p, "w", 1);
    c.single_proj = par_int(p, "out_proj", c.single_proj) != 0;
    return c;
}

static tp_tensor grid_of(parity *p, tp_tape *T)
{
    const tp_shape s = TP_SHAPE(par_int(p, "H", 1), par_int(p, "W", 1), 0);
    return tp_full(T, TP_F32, s, 0.0);
}

static void run_attention(parity *p, cvt_family family)
{
    const tp_cvt_cfg cfg = one_stage(p, family);
    tp_params *P = par_params_new(p);
    tp_tape *T = cvt_tape(p);
    tp_cvt_attn m;

    tp_cvt_attn_init(P, &m, "", &cfg, 0);
    par_load(p, P);
    const tp_tensor x = par_input(p, T, "input.x");
    finish(p, T, P, x, tp_cvt_attn_forward(T, &m, x, grid_of(p, T)));
}

void cvt_run_attention(parity *p)
{
    run_attention(p, CVT);
}

void cvt_run_ls_attention(parity *p)
{
    run_attention(p, CVT_LS);
}

void cvt_run_block(parity *p)
{
    const tp_cvt_cfg cfg = one_stage(p, CVT);
    tp_params *P = par_params_new(p);
    tp_tape *T = cvt_tape(p);
    tp_cvt_block m;

    tp_cvt_block_init(P, &m, "", &cfg, 0, 0.0);
    par_load(p, P);
    const tp_tensor x = par_input(p, T, "input.x");
    finish(p, T, P, x, tp_cvt_block_forward(T, &m, x, grid_of(p, T)));
}
