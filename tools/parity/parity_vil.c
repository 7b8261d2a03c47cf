/* parity_vil.c - cases of Vision Longformer: attentions, patch embeddings, blocks, whole models.
 *
 * The reference's images and maps are channels-first; they are turned here. Random shifts that the
 * reference drew are set in each attention, in order of layers. */
#include "parity_vil.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- configurations from metadata ---- */

static tp_vil_kind kind_of(parity *p)
{
    const char *name = tp_file_meta(p->F, "attn_type");
    const struct {
        const char *name;
        tp_vil_kind kind;
    } kinds[] = {
        { "full", TP_VIL_FULL },
        { "linformer", TP_VIL_LINFORMER },
        { "srformer", TP_VIL_SRA },
        { "performer", TP_VIL_PERFORMER },
        { "longformerhand", TP_VIL_WINDOW },
        { "longformerauto", TP_VIL_WINDOW },
        { "ls", TP_VIL_LS },
    };
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].kind == TP_VIL_WINDOW && par_int(p, "only_glo", 0) ? TP_VIL_GLOBAL
                                                                               : kinds[i].kind;
    par_fail(p, "attn_type '%s' is unknown", name ? name : "");
    return TP_VIL_FULL;
}

/* What one attention and a whole model have in common. */
static tp_vil_cfg options(parity *p, tp_vil_kind kind)
{
    const int64_t exact = par_int(p, "exact", 0), mode = par_int(p, "module_mode", 0);
    return (tp_vil_cfg){
        .kind = kind,
        .classes = par_int(p, "num_classes", 10),
        .edge = exact > 0   ? TP_EDGE_EXACT
                : exact < 0 ? TP_EDGE_CYCLIC
                            : TP_EDGE_MASK,
        .shift = mode > 0 ? TP_VIL_SHIFT_RANDOM : (int)mode,
        .avg_pool = par_int(p, "avg_pool_flag", 0) != 0,
        .separate_global = par_int(p, "share_global_weights", 1) == 0,
        .separate_kv = par_int(p, "share_kv", 1) == 0,
        .no_norm_embed = par_int(p, "norm_embed", 1) == 0,
        .no_qkv_bias = par_int(p, "qkv_bias", 1) == 0,
    };
}

/* A model of one stage around the attention or block of the case, with patches of one pixel. */
static tp_vil_cfg part_cfg(parity *p, tp_vil_kind kind)
{
    tp_vil_cfg c = options(p, kind);
    const int64_t f = par_int(p, "num_feats", par_int(p, "R", par_int(p, "window_w", 7)));
    c.stages = 1;
    c.image[0] = par_int(p, "nx", 1);
    c.image[1] = par_int(p, "ny", 1);
    c.stage[0] = (tp_vil_stage){ .heads = (int)par_int(p, "heads", 1),
                                 .blocks = 1,
                                 .dim = par_int(p, "dim", 0),
                                 .patch = 1,
                                 .global = par_int(p, "nglo", 0),
                                 .feature = f,
                                 .rank = (int)par_int(p, "dp_rank", 0),
                                 .absolute = par_int(p, "rpb", 0) == 0 };
    return c;
}

static tp_vil_cfg model_cfg(parity *p)
{
    tp_vil_cfg c = options(p, kind_of(p));
    const char *arch = tp_file_meta(p->F, "arch");
    char why[256];
    if (!tp_vil_parse(&c, arch ? arch : "", why, sizeof why)) par_fail(p, "%s", why);
    c.image[0] = c.image[1] = par_int(p, "image_size", 224);
    return c;
}

/* ---- buffers ---- */

/* The index of a table of relative positions, as the reference stores it: for every query of a
 * window (full attention: the map) and every key around it, in the reference's order of keys. */
static void check_index(parity *p, const char *name, const tp_vil_attn *m)
{
    const int64_t w = m->stage.feature, half = w / 2, nx = m->map[0], ny = m->map[1];
    const bool full = m->kind == TP_VIL_FULL, ls = m->kind == TP_VIL_LS;
    const int64_t rows = full ? nx : w, cols = full ? ny : w;
    const int64_t side = ls ? w + 2 * half : 0, keys = full ? nx * ny
                                                       : ls ? side * side
                                                            : 9 * w * w;
    const int64_t reach = ls ? w + half - 1 : 2 * w - 1;
    const int64_t stride = full ? 2 * ny - 1 : ls ? 2 * half + w : 4 * w - 1;
    int64_t *index = malloc((size_t)(rows * cols * keys + 1) * sizeof *index);

    if (!index) par_fail(p, "out of memory");
    for (int64_t i = 0; index && i < rows * cols; i++)
        for (int64_t j = 0; j < keys; j++) {
            const int64_t b = j / (w * w), t = j % (w * w);
            const int64_t x = full ? j / ny : ls ? j / side - half : (b / 3 - 1) * w + t / w;
            const int64_t y = full ? j % ny : ls ? j % side - half : (b % 3 - 1) * w + t % w;
            index[i * keys + j] = (i / cols - x + (full ? nx - 1 : reach)) * stride + i % cols - y +
                                  (full ? ny - 1 : reach);
        }
    if (index) par_check_integers(p, name, index, rows * cols * keys);
    free(index);
}

static void check_attention_index(parity *p, const char *prefix, const tp_vil_attn *m)
{
    char name[128];
    snprintf(name, sizeof name, "buffer.%s%srelative_position_index", prefix, *prefix ? "." : "");
    if (par_has(p, name)) check_index(p, name, m);
}

/* Performer's matrices of a full-size case, which are not stored. */
static void fill_features(parity *p, tp_params *P)
{
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(P, &it);) {
        const int64_t n = tp_numel(it.tensor);
        if (!strstr(it.name, "projection_matrix")) continue;
        double *x = malloc((size_t)(n + 1) * sizeof *x);
        if (!x) {
            par_fail(p, "out of memory");
            return;
        }
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)(sqrt(3.0) * (2.0 * par_uniform(par_hash(it.name), i) - 1.0));
        tp_param_set(P, it.tensor, TP_F64, x, (size_t)n * sizeof *x);
        free(x);
    }
}

/* ---- parts ---- */

tp_tape *vil_tape(parity *p)
{
    return tp_tape_new(p->D, &(tp_tape_opts){ .compute = p->compute, .train = par_train(p) });
}

/* The shifts that the reference drew, of windows in order of layers. */
static void set_shifts(parity *p, tp_vil_block *block, int n)
{
    double drawn[TP_VIL_MAX_BLOCKS];
    const int given = par_list(p, "drawn_modes", TP_VIL_MAX_BLOCKS, drawn);
    int next = 0;
    for (int i = 0; i < n && given; i++) {
        if (block[i].attn.kind != TP_VIL_WINDOW) continue;
        if (next < given) block[i].attn.shift = (int)drawn[next];
        next++;
    }
    if (given && next != given) par_fail(p, "%d shifts were drawn for %d windows", given, next);
}

/* Compares y, differentiates the probe, compares all gradients. */
static void finish(parity *p, tp_tape *T, tp_params *P, tp_tensor y, const char *input, tp_tensor x)
{
    par_check_tensor(p, T, "output.y", y);
    tp_backward(T, par_probe(p, T, y));
    if (!par_ok(p, T, P)) return;
    par_check_input_grad(p, T, input, x);
    par_check_grads(p, P);
}

static void run_attention_of(parity *p, tp_vil_kind kind)
{
    tp_params *P = par_params_new(p);
    tp_tape *T = vil_tape(p);
    tp_vil_cfg c = part_cfg(p, kind);
    tp_vil_block b = { 0 };

    if (kind == TP_VIL_PERFORMER) { /* a line of tokens, all alike */
        tp_shape s = TP_SCALAR;
        free(par_values(p, "input.x", &s));
        c.image[0] = 1;
        c.image[1] = s.ndim == 3 ? s.dim[1] : 1;
    }
    tp_vil_attn_init(P, &b.attn, "", &c, 0);
    set_shifts(p, &b, 1);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.x");
        check_attention_index(p, "", &b.attn);
        finish(p, T, P, tp_vil_attn_forward(T, &b.attn, x, c.image), "x", x);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

static void run_window(parity *p)
{
    run_attention_of(p, TP_VIL_WINDOW);
}
static void run_global(parity *p)
{
    run_attention_of(p, TP_VIL_GLOBAL);
}
static void run_full_attention(parity *p)
{
    run_attention_of(p, TP_VIL_FULL);
}
static void run_linformer(parity *p)
{
    run_attention_of(p, TP_VIL_LINFORMER);
}
static void run_sra(parity *p)
{
    run_attention_of(p, TP_VIL_SRA);
}
static void run_performer(parity *p)
{
    run_attention_of(p, TP_VIL_PERFORMER);
}
static void run_ls(parity *p)
{
    run_attention_of(p, TP_VIL_LS);
}

static void run_block_of(parity *p, tp_vil_kind kind)
{
    tp_params *P = par_params_new(p);
    tp_tape *T = vil_tape(p);
    tp_vil_cfg c = part_cfg(p, kind);
    tp_vil_block b;

    tp_vil_block_init(P, &b, "a", "m", &c, 0);
    set_shifts(p, &b, 1);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.x");
        check_attention_index(p, "a.attn", &b.attn);
        finish(p, T, P, tp_vil_block_forward(T, &b, x, c.image), "x", x);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

static void run_block(parity *p)
{
    run_block_of(p, kind_of(p));
}
static void run_ls_block(parity *p)
{
    run_block_of(p, TP_VIL_LS);
}

static tp_tensor channels_last(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(0, 2, 3, 1));
}

static void run_patches(parity *p)
{
    tp_params *P = par_params_new(p);
    tp_tape *T = vil_tape(p);
    tp_vil_cfg c = part_cfg(p, TP_VIL_FULL);
    tp_vil_embed m;
    int64_t size[2];

    c.image[0] = par_int(p, "H", 1);
    c.image[1] = par_int(p, "W", 1);
    c.stage[0].patch = par_int(p, "patch", 1);
    c.stage[0].absolute = par_int(p, "ape", 0) != 0;
    tp_vil_embed_init(P, &m, "", par_int(p, "in_channels", 3), &c, 0);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.x");
        finish(p, T, P, tp_vil_embed_forward(T, &m, channels_last(T, x), size), "x", x);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

/* ---- models ---- */

static void check_model_buffers(parity *p, const tp_vil *m)
{
    for (int i = 0; i < m->blocks; i++)
        check_attention_index(p, m->block[i].attn.path, &m->block[i].attn);
}

static void check_count(parity *p, const tp_params *P)
{
    const int64_t want = par_int(p, "param_count", par_int(p, "parameters", 0));
    if (tp_params_count(P) != want)
        par_fail(p, "the model has %lld parameters, not %lld", (long long)tp_params_count(P),
                 (long long)want);
}

static void run_model(parity *p)
{
    tp_params *P = par_params_new(p);
    tp_tape *T = vil_tape(p);
    static tp_vil m;

    tp_vil_init(P, &m, "", model_cfg(p));
    if (par_ok(p, T, P)) check_count(p, P);
    set_shifts(p, m.block, m.blocks);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.image");
        check_model_buffers(p, &m);
        finish(p, T, P, tp_vil_forward(T, &m, channels_last(T, x)), "image", x);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

/* The image of a full-size case by the fill rule, channels first. */
static tp_tensor filled_image(parity *p, tp_tape *T)
{
    const char *name = tp_file_meta(p->F, "input_fill");
    double s[4] = { 0 };
    if (!name || par_list(p, "input_shape", 4, s) != 4) {
        par_fail(p, "the case gives no shape of its image");
        return TP_NONE;
    }
    const tp_shape shape = TP_SHAPE((int64_t)s[0], (int64_t)s[1], (int64_t)s[2], (int64_t)s[3]);
    const int64_t n = shape.dim[0] * shape.dim[1] * shape.dim[2] * shape.dim[3];
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    float *f = (float *)x;
    if (!x) {
        par_fail(p, "out of memory");
        return TP_NONE;
    }
    const uint64_t hash = par_hash(name);
    for (int64_t i = 0; i < n; i++) {
        const float value = (float)(2.0 * par_uniform(hash, i) - 1.0);
        if (p->real == TP_F64)
            x[i] = value;
        else
            f[i] = value;
    }
    const tp_tensor y = tp_input(T, p->real, shape, x);
    free(x);
    return y;
}

static tp_tensor norm_of(tp_tape *T, tp_tensor x)
{
    return tp_sqrt(T, tp_sum(T, tp_square(T, x), TP_ALL));
}

/* Norm of a stage's tokens, and the first values of the last one. */
static void check_stage(parity *p, tp_tape *T, int stage, tp_tensor tokens)
{
    char name[64];
    snprintf(name, sizeof name, "output.stage%d_norm", stage);
    if (par_has(p, name)) par_check_tensor(p, T, name, norm_of(T, tokens));
    snprintf(name, sizeof name, "output.stage%d_first8", stage);
    if (!par_has(p, name)) return;
    const tp_tensor last = tp_slice(T, tokens, 1, tp_dim(tokens, 1) - 1, 1);
    par_check_tensor(p, T, name, tp_slice(T, last, 2, 0, 8));
}

/* The gradients of the one image that passes through instance norm (SRA) are not compared: PyTorch
 * (2.15) differentiates instance norm of a batch of one wrongly where the gradient comes with
 * channels last. Differences of losses agree with ours. */
static void run_full(parity *p)
{
    tp_params *P = par_params_new(p);
    tp_tape *T = vil_tape(p);
    static tp_vil m;
    tp_vil_out out[TP_VIL_MAX_STAGES];

    tp_vil_init(P, &m, "", model_cfg(p));
    if (par_ok(p, T, P)) check_count(p, P);
    par_load(p, P);
    fill_features(p, P);
    const tp_tensor x = filled_image(p, T);
    if (par_ok(p, T, P)) {
        const int64_t B = tp_dim(x, 0);
        int64_t *ones = malloc((size_t)B * sizeof *ones);
        for (int64_t i = 0; ones && i < B; i++) ones[i] = 1;
        const tp_tensor tokens = tp_vil_trunk(T, &m, channels_last(T, x), out);
        for (int k = 0; k < m.cfg.stages; k++) check_stage(p, T, k + 1, out[k].tokens);
        const tp_tensor logits = tp_vil_head(T, &m, tokens);
        const tp_tensor y = tp_from(T, TP_I64, TP_SHAPE(B), ones);
        const tp_tensor loss = tp_cross_entropy(T, logits, y, TP_MEAN);
        par_check_tensor(p, T, "output.logits", logits);
        par_check_tensor(p, T, "output.loss", loss);
        tp_backward(T, loss);
        if (m.cfg.kind == TP_VIL_SRA && B == 1) {
            par_ignore(p, "gradnorm.");
        } else if (par_ok(p, T, P)) {
            par_check_grads(p, P);
            par_check_tensor(p, T, "gradnorm.input", norm_of(T, tp_detach(T, tp_grad(T, x))));
        }
        free(ones);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

const parity_kind parity_vil_kinds[] = {
    { "vil.window_attention", run_window, false, true },
    { "vil.global_attention", run_global, false, true },
    { "vil.full_attention", run_full_attention, false, true },
    { "vil.linformer_attention", run_linformer, false, true },
    { "vil.sra_attention", run_sra, false, true },
    { "vil.performer_attention", run_performer, false, true },
    { "vil.ls_attention", run_ls, false, true },
    { "vil.block", run_block, false, true },
    { "vil.ls_block", run_ls_block, false, true },
    { "vil.patch_embed", run_patches, false, true },
    { "vil.model", run_model, false, true },
    { "vil.ls_model", run_model, false, true },
    { "vil.full", run_full, true, false },
    { "vil.ls_full", run_full, true, false },
    { NULL, NULL, false, false },
};
