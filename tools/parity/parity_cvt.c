/* parity_cvt.c - cases of CvT, CvT* and CvT*-LS: whole models, reduced and of full size. */
#include "parity_cvt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- configurations ---- */

/* A list of one value a stage; a key that is absent leaves x as it is. */
static void stages(parity *p, const char *key, double x[TP_CVT_STAGES])
{
    const int n = par_list(p, key, TP_CVT_STAGES, x);
    if (n != 0 && n != TP_CVT_STAGES)
        par_fail(p, "metadata %s wants %d values", key, TP_CVT_STAGES);
}

static void set_stages(parity *p, tp_cvt_cfg *c)
{
    double dim[TP_CVT_STAGES] = { 0 }, heads[TP_CVT_STAGES] = { 0 }, depth[TP_CVT_STAGES] = { 0 };
    double r[TP_CVT_STAGES] = { 0 }, w[TP_CVT_STAGES] = { 0 };

    stages(p, "dims", dim);
    stages(p, "heads", heads);
    stages(p, "depth", depth);
    stages(p, "r", r);
    stages(p, "w", w);
    for (int s = 0; s < TP_CVT_STAGES; s++) {
        c->dim[s] = (int64_t)dim[s];
        c->heads[s] = (int)heads[s];
        c->blocks[s] = (int)depth[s];
        c->rank[s] = (int64_t)r[s];
        c->window[s] = (int64_t)w[s];
    }
}

/* The options that attentions and models have in common. */
tp_cvt_cfg cvt_options(parity *p, cvt_family family)
{
    static const tp_cvt_name like[] = { TP_CVT_13, TP_CVT_STAR_13, TP_CVT_LS_13 };
    tp_cvt_cfg c = tp_cvt_preset(like[family], 224);

    c.classes = par_int(p, "num_classes", c.classes);
    c.drop_path = par_num(p, "drop_path", 0.0);
    c.no_dual_ln = par_int(p, "dual_ln", 1) == 0;
    if (tp_file_meta(p->F, "cls_proj")) c.raw_class = par_is(p, "cls_proj", "raw");
    if (tp_file_meta(p->F, "activation")) c.quick_gelu = par_is(p, "activation", "quick_gelu");
    if (tp_file_meta(p->F, "scale")) c.wide_scale = par_is(p, "scale", "dim**-0.5");
    return c;
}

/* ---- results ---- */

/* "output.buffer.*", and "output.buffernorm.*" of those of full-size models. */
void cvt_check_buffers(parity *p, tp_params *P)
{
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(P, &it);) {
        char whole[256], norm[256];
        const int64_t n = tp_numel(it.tensor);
        double squares = 0.0;
        snprintf(whole, sizeof whole, "output.buffer.%s", it.name);
        snprintf(norm, sizeof norm, "output.buffernorm.%s", it.name);
        if (!it.buffer || (!par_has(p, whole) && !par_has(p, norm))) continue;
        double *x = malloc((size_t)(n + 1) * sizeof *x);
        if (!x || !tp_param_get(P, it.tensor, TP_F64, x, (size_t)n * sizeof *x)) {
            par_ok(p, NULL, P);
            par_fail(p, "%s: out of memory", whole);
        } else {
            for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
            if (par_has(p, whole)) par_check(p, whole, x, n, par_limit(p, PAR_OUTPUT));
            if (par_has(p, norm)) par_check_one(p, norm, sqrt(squares), par_limit(p, PAR_OUTPUT));
        }
        free(x);
    }
}

tp_tensor cvt_channels_last(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(0, 2, 3, 1));
}

/* ---- reduced models ---- */

static void run_model(parity *p, cvt_family family)
{
    tp_cvt_cfg cfg = cvt_options(p, family);
    tp_params *P = par_params_new(p);
    tp_tape *T = cvt_tape(p);
    tp_cvt *m = malloc(sizeof *m);

    set_stages(p, &cfg);
    if (!m) par_fail(p, "out of memory");
    if (m) tp_cvt_init(P, m, "", cfg);
    if (par_ok(p, T, P)) par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.x");
        const tp_tensor logits = tp_cvt_forward(T, m, cvt_channels_last(T, x));
        par_check_tensor(p, T, "output.logits", logits);
        tp_backward(T, par_probe(p, T, logits));
        if (par_ok(p, T, P)) {
            par_check_input_grad(p, T, "x", x);
            par_check_grads(p, P);
            cvt_check_buffers(p, P);
        }
    }
    tp_tape_free(T);
    tp_params_free(P);
    free(m);
}

static void run_cvt_model(parity *p)
{
    run_model(p, CVT);
}

static void run_star_model(parity *p)
{
    run_model(p, CVT_STAR);
}

static void run_ls_model(parity *p)
{
    run_model(p, CVT_LS);
}

/* ---- full size ---- */

/* Images of the fill rule, which numbers them channels first: [B,H,W,3]. */
static tp_tensor filled_images(parity *p, tp_tape *T)
{
    double s[4] = { 0 };
    const char *name = tp_file_meta(p->F, "input_fill");
    const uint64_t hash = par_hash(name ? name : "input");
    if (par_list(p, "input_shape", 4, s) != 4 || !(s[0] * s[1] * s[2] * s[3] < 1e8))
        return tp_raise(T, TP_E_VALUE, "input_shape must be the four sizes of some images");
    const tp_shape shape = TP_SHAPE((int64_t)s[0], (int64_t)s[1], (int64_t)s[2], (int64_t)s[3]);
    const int64_t n = shape.dim[0] * shape.dim[1] * shape.dim[2] * shape.dim[3];
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    if (!x) return tp_raise(T, TP_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2.0 * par_uniform(hash, i) - 1.0);
    const tp_tensor images = par_matrix(p, T, n / shape.dim[3], shape.dim[3], x);
    free(x);
    return cvt_channels_last(T, tp_reshape(T, tp_cast(T, images, p->compute), shape));
}

/* Everything of a case in evaluation mode, then logits and buffers in training mode. */
static void run_filled(parity *p, tp_tape *T, tp_params *P, const tp_cvt *m)
{
    const int64_t ones[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const tp_tensor logits = tp_cvt_forward(T, m, filled_images(p, T));
    const int64_t B = tp_dim(logits, 0);
    if (B > 8) par_fail(p, "more than 8 images");
    if (!par_ok(p, T, P)) return;
    const tp_tensor y = tp_from(T, TP_I64, TP_SHAPE(B), ones);
    const tp_tensor loss = tp_cross_entropy(T, logits, y, TP_MEAN);
    par_check_tensor(p, T, "output.logits", logits);
    par_check_tensor(p, T, "output.loss", loss);
    tp_backward(T, loss);
    if (par_ok(p, T, P)) par_check_grads(p, P);

    tp_reset(T);
    tp_train(T, true);
    tp_record(T, false);
    const tp_tensor trained = tp_cvt_forward(T, m, filled_images(p, T));
    if (!p->failed) par_check_tensor(p, T, "output.logits_train", trained);
    if (par_ok(p, T, P)) cvt_check_buffers(p, P);
}

static void run_full(parity *p, tp_cvt_name name)
{
    tp_params *P = par_params_new(p);
    tp_tape *T = cvt_tape(p);
    tp_cvt_cfg cfg = tp_cvt_preset(name, 224);
    tp_cvt *m = malloc(sizeof *m);

    cfg.drop_path = 0.0;
    if (!m) par_fail(p, "out of memory");
    if (m) tp_cvt_init(P, m, "", cfg);
    if (par_ok(p, T, P)) par_load(p, P);
    const long long count = (long long)tp_params_count(P);
    if (par_int(p, "param_count", count) != count)
        par_fail(p, "the model has %lld parameters, the case %s", count,
                 tp_file_meta(p->F, "param_count"));
    if (!p->failed) run_filled(p, T, P, m);
    tp_tape_free(T);
    tp_params_free(P);
    free(m);
}

static void run_cvt13(parity *p)
{
    run_full(p, TP_CVT_13);
}

static void run_ls13(parity *p)
{
    run_full(p, TP_CVT_LS_13);
}

/* In bf16 losses that cancel and statistics of a few pixels lose more than the cases' limits. */
const parity_kind parity_cvt_kinds[] = {
    { .kind = "cvt.conv_embed", .run = cvt_run_embed },
    { .kind = "cvt.conv_projection", .run = cvt_run_projection },
    { .kind = "cvt.ws_sepconv", .run = cvt_run_sepconv },
    { .kind = "cvt.attention", .run = cvt_run_attention },
    { .kind = "cvt.ls_attention", .run = cvt_run_ls_attention, .no_bf16 = true },
    { .kind = "cvt.block", .run = cvt_run_block },
    { .kind = "cvt.model", .run = run_cvt_model, .no_bf16 = true },
    { .kind = "cvt.star_model", .run = run_star_model },
    { .kind = "cvt.ls_model", .run = run_ls_model, .no_bf16 = true },
    { .kind = "cvt.full", .run = run_cvt13, .large = true },
    { .kind = "cvt.ls_full", .run = run_ls13, .large = true },
    { .kind = NULL },
};
