/* parity_vil.c - kinds of Vision Longformer and ViL-LS: attentions, blocks, patch embeddings, whole
 * models, resizing of position tables.
 *
 * The random shifts that the reference drew are set in each attention, in order of layers. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vil.h>

#include "parity_detection.h"

enum { BY_NAME = -1 }; /* par_kind.variant: attn_type names the kind of attention */

/* ---- configurations ---- */

static const char *const kind_names[] = {
    "full", "linformer", "srformer", "performer", "longformerhand", "longformerauto", "ls", NULL
};
static const tp_vil_kind kinds[] = { TP_VIL_FULL,   TP_VIL_LINFORMER, TP_VIL_SRA, TP_VIL_PERFORMER,
                                     TP_VIL_WINDOW, TP_VIL_WINDOW,    TP_VIL_LS };

tp_vil_kind par_vil_kind(parity *p, tp_vil_kind otherwise, bool needed)
{
    const int name = par_word(p, "attn_type", needed ? PAR_NEEDED : -1, kind_names);
    const tp_vil_kind kind = name < 0 ? otherwise : kinds[name];
    const bool global = par_flag(p, "only_glo", otherwise == TP_VIL_GLOBAL);

    if (kind != TP_VIL_WINDOW && kind != TP_VIL_GLOBAL) return kind;
    return global ? TP_VIL_GLOBAL : TP_VIL_WINDOW;
}

tp_edge par_vil_edge(parity *p)
{
    const int64_t exact = par_int(p, "exact", 0, -1, 1);
    return exact > 0 ? TP_EDGE_EXACT : exact < 0 ? TP_EDGE_CYCLIC : TP_EDGE_MASK;
}

/* The kind of attention of this kind of case. */
static tp_vil_kind kind_of(parity *p)
{
    const int variant = p->kind->variant;
    if (variant == BY_NAME) return par_vil_kind(p, TP_VIL_WINDOW, true);
    const tp_vil_kind kind = par_vil_kind(p, (tp_vil_kind)variant, false);
    const bool windows = kind == TP_VIL_WINDOW || kind == TP_VIL_GLOBAL;
    if (windows ? variant != TP_VIL_WINDOW && variant != TP_VIL_GLOBAL : (int)kind != variant)
        par_fail(p, "metadata attn_type: does not fit the kind %s", p->kind->kind);
    return kind;
}

/* The options that single attentions and whole models share. */
static tp_vil_cfg options(parity *p)
{
    const tp_edge edge = par_vil_edge(p);
    const int64_t mode = par_int(p, "module_mode", 0, -1, INT32_MAX);

    if (edge == TP_EDGE_EXACT && (mode < 0 || (mode > 0 && p->train)))
        par_illegal(p, "metadata exact = 1: exact windows are only defined without shifts");
    return (tp_vil_cfg){
        .kind = kind_of(p),
        .edge = edge,
        .shift = mode < 0                            ? TP_BLOCK_OWN
                 : mode > 0 && edge != TP_EDGE_EXACT ? TP_VIL_SHIFT_RANDOM
                                                     : TP_BLOCK_ALL,
        .avg_pool = par_flag(p, "avg_pool_flag", false),
        .separate_global = !par_flag(p, "share_global_weights", true),
        .separate_kv = !par_flag(p, "share_kv", true),
        .raw_embed = !par_flag(p, "norm_embed", true),
        .linear_qkv = !par_flag(p, "qkv_bias", true),
    };
}

/* The value of the letter f in the notation of stages; the limits matter because the library checks
 * only whole models. */
static int64_t feature(parity *p, tp_vil_kind kind)
{
    const int64_t most = TP_VIL_MAX_SIZE;

    switch (kind) {
    case TP_VIL_LINFORMER:
    case TP_VIL_PERFORMER: return par_int(p, "num_feats", PAR_NEEDED, 1, most);
    case TP_VIL_SRA: return par_int(p, "R", PAR_NEEDED, 1, most);
    case TP_VIL_FULL: return 7;
    case TP_VIL_LS: return par_int(p, "window_w", PAR_NEEDED, 0, most);
    default: return par_int(p, "window_w", 7, 1, most);
    }
}

/* A model of one stage around the attention or block of the case, with patches of one pixel. */
static tp_vil_cfg part_cfg(parity *p)
{
    tp_vil_cfg c = options(p);
    tp_vil_stage *s = &c.stage[0];

    c.stages = 1;
    if (p->kind->variant == TP_VIL_PERFORMER) { /* a sequence of tokens, without a map */
        const tp_shape x = par_shape(p, "input.x");
        c.image[0] = 1;
        c.image[1] = x.ndim == 3 ? x.dim[1] - par_count(p, "nglo", 0) : 1;
        par_same(p, "tokens", c.image[1]);
    } else {
        c.image[0] = par_size(p, "nx", PAR_NEEDED);
        c.image[1] = par_size(p, "ny", PAR_NEEDED);
    }
    *s = (tp_vil_stage){ .heads = (int)par_size(p, "heads", PAR_NEEDED),
                         .blocks = 1,
                         .dim = par_size(p, "dim", PAR_NEEDED),
                         .patch = 1,
                         .global = par_count(p, "nglo", 0),
                         .feature = feature(p, c.kind),
                         .rank = (int)par_count(p, "dp_rank", 0),
                         .absolute = !par_flag(p, "rpb", false) };
    if (s->dim % s->heads)
        par_illegal(p, "metadata dim: %lld channels do not divide into %d heads", (long long)s->dim,
                    s->heads);
    if (c.kind == TP_VIL_GLOBAL && s->global == 0)
        par_illegal(p, "metadata nglo = 0: attention to global tokens needs at least one");
    if (c.kind == TP_VIL_LS) par_same(p, "side", s->feature == 1 ? 1 : s->feature / 2);
    return c;
}

/* ---- modules ---- */

/* Sets the shifts that the reference drew in training, one for each of n window attentions. */
static void set_shifts(parity *p, tp_vil_attn *const *attn, int n)
{
    int64_t given, next = 0;
    const int64_t *drawn = par_sizes(p, "drawn_modes", 1, &given);

    for (int i = 0; i < n; i++) {
        if (attn[i]->kind != TP_VIL_WINDOW || attn[i]->shift != TP_VIL_SHIFT_RANDOM) continue;
        if (next < given && drawn[next] > 8)
            par_illegal(p, "metadata drawn_modes: shifts are 1 to 8, not %lld",
                        (long long)drawn[next]);
        if (next < given) attn[i]->shift = (int)drawn[next];
        next++;
    }
    if (given != next && (given || p->train))
        par_fail(p, "metadata drawn_modes: %lld shifts for %lld attentions with a random shift",
                 (long long)given, (long long)next);
}

/* ---- the index of relative positions ---- */

/* Compares the index of the reference: the table's row for every query of a window (full attention:
 * of the map) and every key around it, in the reference's order of keys. */
static void check_index(parity *p, const char *name, const tp_vil_attn *m)
{
    const int64_t w = m->stage.feature, half = w / 2, nx = m->map[0], ny = m->map[1];
    const bool full = m->kind == TP_VIL_FULL, ls = m->kind == TP_VIL_LS;
    const int64_t rows = full ? nx : w, cols = full ? ny : w;
    const int64_t side = w + 2 * half, keys = full ? nx * ny : ls ? side * side : 9 * w * w;
    const int64_t reach = ls ? w + half - 1 : 2 * w - 1;
    const int64_t stride = full ? 2 * ny - 1 : ls ? side : 4 * w - 1;
    int64_t *index = par_alloc(p, rows * cols * keys, sizeof *index);

    for (int64_t e = 0; index && e < rows * cols * keys; e++) {
        const int64_t i = e / keys, j = e % keys, b = j / (w * w), t = j % (w * w);
        const int64_t x = full ? j / ny : ls ? j / side - half : (b / 3 - 1) * w + t / w;
        const int64_t y = full ? j % ny : ls ? j % side - half : (b % 3 - 1) * w + t % w;
        index[e] = (i / cols - x + (full ? nx - 1 : reach)) * stride + i % cols - y +
                   (full ? ny - 1 : reach);
    }
    if (index) par_check_integers(p, name, index, rows * cols * keys);
}

static void check_attention_index(parity *p, const tp_vil_attn *m)
{
    const char *dot = *m->path ? "." : "";
    const char *name = par_name(p, "buffer.%s%srelative_position_index", m->path, dot);
    if (par_has(p, name) && m->stage.feature > 0) check_index(p, name, m);
}

/* ---- attentions, blocks and patch embeddings ---- */

static void check_part(parity *p, void *cfg)
{
    tp_vil_cfg *model = par_alloc(p, 1, sizeof *model);
    if (model) *model = part_cfg(p);
    ((tp_vil_part_cfg *)cfg)->model = model;
}

static void finish_attention(parity *p, void *self)
{
    tp_vil_attn *attn = self;
    set_shifts(p, &attn, 1);
}

static void finish_block(parity *p, void *self)
{
    finish_attention(p, &((tp_vil_block *)self)->attn);
}

/* Runs the attention, or the block around it. */
static void run_around(parity *p, const void *m, const tp_vil_attn *attn)
{
    const tp_tensor x = par_take(p, "x");
    int64_t map[] = { attn->map[0], attn->map[1] };

    check_attention_index(p, attn);
    par_output(p, "y", tp_part_forward(p->T, &tp_model_vil, p->kind->part, m, map, x));
}

static void attend(parity *p, void *self)
{
    run_around(p, self, self);
}

static void run_block(parity *p, void *self)
{
    run_around(p, self, &((const tp_vil_block *)self)->attn);
}

static void check_patches(parity *p, void *cfg)
{
    tp_vil_cfg *c = par_alloc(p, 1, sizeof *c);
    if (!c) return;
    *c = (tp_vil_cfg){ .stages = 1, .raw_embed = !par_flag(p, "norm_embed", true) };
    par_image_size(p, "x", c->image);
    c->stage[0] = (tp_vil_stage){ .dim = par_size(p, "dim", PAR_NEEDED),
                                  .patch = par_size(p, "patch", PAR_NEEDED),
                                  .global = par_count(p, "nglo", 1),
                                  .absolute = par_flag(p, "ape", true) };
    if (c->stage[0].patch > c->image[0] || c->stage[0].patch > c->image[1])
        par_illegal(p, "metadata patch: is larger than the image");
    ((tp_vil_part_cfg *)cfg)->model = c;
}

static void embed(parity *p, void *self)
{
    const tp_tensor x = par_images(p, "x");
    int64_t size[2];

    par_output(p, "y", tp_part_forward(p->T, &tp_model_vil, "embed", self, size, x));
}

/* ---- models ---- */

/* The configuration from the notation of its stages. */
static void check_model(parity *p, void *cfg)
{
    tp_vil_cfg *c = cfg;
    const char *arch = par_text(p, "arch");
    char why[256];

    *c = options(p);
    if (!tp_model_vil.members->parse(c, arch ? arch : "", why, sizeof why))
        par_illegal(p, "metadata arch: %s", why);
    c->classes = par_size(p, "num_classes", 1000);
    par_image_size(p, "image", c->image);
}

static void finish_model(parity *p, void *self)
{
    tp_vil *m = self;
    tp_vil_attn *attn[TP_VIL_MAX_BLOCKS];
    for (int i = 0; i < m->blocks; i++) attn[i] = &m->block[i].attn;
    set_shifts(p, attn, m->blocks);
}

/* Compares the norm of a stage's tokens [B,g+N,d] and the first values of the last token. */
static void check_stage(parity *p, int stage, tp_tensor tokens)
{
    const char *first = par_name(p, "stage%d_first8", stage);
    const int64_t wanted = par_numel(par_shape(p, par_name(p, "output.%s", first)));
    const int64_t n = tp_dim(tokens, 2) < 8 ? tp_dim(tokens, 2) : 8;

    par_check_tensor(p, par_name(p, "output.stage%d_norm", stage), par_norm(p->T, tokens));
    if (!par_wants(p, first)) return;
    tokens = tp_slice(p->T, tokens, 1, tp_dim(tokens, 1) - 1, 1);
    if (wanted == n) tokens = tp_slice(p->T, tokens, 0, 0, 1); /* the first image only */
    par_output(p, first, tp_slice(p->T, tokens, 2, 0, n));
}

/* Also compares the output of each stage. */
static void run_model(parity *p, void *self)
{
    const tp_vil *m = self;
    tp_vil_out out[TP_VIL_MAX_STAGES];
    const tp_tensor x = par_images(p, "image");

    for (int i = 0; i < m->blocks; i++) check_attention_index(p, &m->block[i].attn);
    const tp_tensor tokens = tp_part_forward(p->T, &tp_model_vil, "trunk", m, out, x);
    for (int k = 0; k < m->cfg.stages && par_ok(p); k++) check_stage(p, k + 1, out[k].tokens);
    const tp_tensor logits = tp_part_forward(p->T, &tp_model_vil, "head", m, NULL, tokens);
    if (p->kind->large)
        par_classify(p, logits);
    else
        par_output(p, "y", logits);
}

/* ---- positions for another resolution ---- */

/* The square root of n; 0 if n is not a square. */
static int64_t root(int64_t n)
{
    int64_t side = 1;
    while (side * side < n) side++;
    return side * side == n ? side : 0;
}

/* Rows, columns and channels of a table [side^2,heads] or positions [1,n,channels]; false if it is
 * neither. */
static bool table_size(tp_shape s, int64_t size[2], int64_t *channels)
{
    if (s.ndim != 2 && (s.ndim != 3 || s.dim[0] != 1)) return false;
    *channels = s.dim[s.ndim - 1];
    size[0] = s.ndim == 2 ? root(s.dim[0]) : s.dim[1];
    size[1] = s.ndim == 2 ? size[0] : 1;
    return size[0] > 0 && *channels > 0;
}

/* Resizes "input.NAME" to the size of "output.NAME" and compares. */
static void check_resized(parity *p, const char *name, const int64_t from[2], const int64_t to[2],
                          int64_t channels, double limit)
{
    const char *out = par_name(p, "output.%s", name);
    const int64_t n = to[0] * to[1] * channels;
    const double *x = par_values(p, par_name(p, "input.%s", name), NULL);
    double *y = par_alloc(p, n, sizeof *y);
    if (!x || !y) return;
    tp_vil_resize(x, from, y, to, channels);
    par_check(p, out, y, n, limit);
}

static void run_interpolation(parity *p)
{
    const int64_t n = par_series(p, "input.");

    for (int64_t i = 0; i < n && !p->failed; i++) {
        const tp_shape a = par_shape(p, par_nth(p, "input.", i)),
                       b = par_shape(p, par_nth(p, "output.", i));
        int64_t from[2], to[2], channels, same;
        if (table_size(a, from, &channels) && table_size(b, to, &same) && a.ndim == b.ndim &&
            channels == same)
            check_resized(p, par_nth(p, "", i), from, to, channels, par_limit(p, PAR_OUTPUT));
        else
            par_fail(p,
                     "input.%lld, output.%lld: must be tables [side*side,heads] or positions "
                     "[1,length,channels]",
                     (long long)i, (long long)i);
    }
}

/* The same for sizes that the metadata say. */
static void check_sizes(parity *p, const char *name, const int64_t from[2], const int64_t to[2])
{
    const char *out = par_name(p, "output.%s", name);
    const tp_shape s = par_shape(p, par_name(p, "input.%s", name)), t = par_shape(p, out);
    const int64_t channels = s.ndim > 0 ? s.dim[s.ndim - 1] : 0;
    if (par_numel(s) == from[0] * from[1] * channels && par_numel(t) == to[0] * to[1] * channels)
        check_resized(p, name, from, to, channels, par_exact(p, out));
    else
        par_fail(p, "input.%s and its output do not have the sizes of the metadata", name);
}

static void run_resize(parity *p)
{
    const int64_t a = par_int(p, "a", PAR_NEEDED, 1, 4096),
                  b = par_int(p, "b", PAR_NEEDED, 1, 4096);
    const int64_t old = par_size(p, "n_old", PAR_NEEDED), new = par_size(p, "n_new", PAR_NEEDED);
    if (p->failed) return;
    check_sizes(p, "table", (int64_t[]){ a, a }, (int64_t[]){ b, b });
    check_sizes(p, "pos", (int64_t[]){ old, 1 }, (int64_t[]){ new, 1 });
}

#define NORMS "kernel_eps=1e-4 dual_ln_eps=1e-5"
#define ATTENTION(name, which)                                                                     \
    PAR_PART("vil." name "_attention", tp_model_vil, "attn", tp_vil_part_cfg, { 0 }),              \
        .fixed = NORMS, .check = check_part, .finish = finish_attention, .forward = attend,        \
        .variant = (which), .no_bf16 = true
#define BLOCK(its, which)                                                                          \
    PAR_PART("vil." its, tp_model_vil, "block", tp_vil_part_cfg, { 0 }),                           \
        .name = "a", .base = &(const tp_vil_part_cfg){ .mlp = "m" },                               \
        .fixed = "ln_eps=1e-6 block_ln_eps=1e-6 mlp_ratio=4 " NORMS, .check = check_part,          \
        .finish = finish_block, .forward = run_block, .variant = (which), .no_bf16 = true
#define MODEL(name, which)                                                                         \
    PAR_WHOLE("vil." name, tp_model_vil, { 0 }),                                                   \
        .fixed = "ln_eps=1e-6 block_ln_eps=1e-6 mlp_ratio=4 " NORMS, .check = check_model,         \
        .finish = finish_model, .forward = run_model, .variant = (which)
const par_kind par_vil_kinds[] = {
    { ATTENTION("window", TP_VIL_WINDOW) },
    { ATTENTION("global", TP_VIL_GLOBAL) },
    { ATTENTION("full", TP_VIL_FULL) },
    { ATTENTION("linformer", TP_VIL_LINFORMER) },
    { ATTENTION("sra", TP_VIL_SRA) },
    { ATTENTION("performer", TP_VIL_PERFORMER) },
    { ATTENTION("ls", TP_VIL_LS) },
    { BLOCK("block", BY_NAME) },
    { BLOCK("ls_block", TP_VIL_LS) },
    { PAR_PART("vil.patch_embed", tp_model_vil, "embed", tp_vil_part_cfg,
               PAR_SIZE("in_channels", tp_vil_part_cfg, in)),
      .base = &(const tp_vil_part_cfg){ .in = 3 }, .fixed = "ln_eps=1e-6", .check = check_patches,
      .forward = embed, .no_bf16 = true },
    { MODEL("model", BY_NAME), .no_bf16 = true },
    { MODEL("ls_model", TP_VIL_LS), .no_bf16 = true },
    { MODEL("full", BY_NAME), .large = true },
    { MODEL("ls_full", TP_VIL_LS), .large = true },
    { .kind = "vil.position_interpolation", .run = run_interpolation, .no_bf16 = true },
    { .kind = "detection.resize_bias", .run = run_resize },
    { .kind = NULL },
};
