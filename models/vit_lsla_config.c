/* vit_lsla_config.c - ViT-LSLA's presets, checks, configurations as checkpoint metadata, and costs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vit_lsla_inner.h"

enum { MAX_SIDE = 1 << 16, MAX_WINDOW = 128, MAX_WIDTH = TP_LM_MAX_SIZE };

tp_vit_lsla_cfg tp_vit_lsla_paper(int64_t classes)
{
    return (tp_vit_lsla_cfg){ .image = { 224, 224 },
                              .classes = classes,
                              .dim = 96,
                              .stages = 4,
                              .depths = { 2, 4, 8, 2 },
                              .heads = { 3, 6, 12, 24 },
                              .window = 7,
                              .mlp_ratio = 2.0,
                              .drop_path = 0.2 };
}

tp_vit_lsla_cfg tp_vit_lsla_tiny(int64_t classes)
{
    return (tp_vit_lsla_cfg){ .image = { 32, 32 },
                              .classes = classes,
                              .dim = 64,
                              .stages = 3,
                              .depths = { 2, 2, 1 },
                              .heads = { 2, 4, 8 },
                              .window = 4,
                              .mlp_ratio = 2.0 };
}

/* ---- checks ---- */

static bool in_range(int64_t x, int64_t lo, int64_t hi)
{
    return x >= lo && x <= hi;
}

static void check_sizes(const tp_vit_lsla_cfg *c, char *buf, size_t size)
{
    if (!in_range(c->image[0], 1, MAX_SIDE) || !in_range(c->image[1], 1, MAX_SIDE))
        snprintf(buf, size, "images of %lld x %lld: sides of 1 to %d are possible",
                 (long long)c->image[0], (long long)c->image[1], MAX_SIDE);
    else if (!in_range(c->stages, 1, TP_VIT_MAX_STAGES))
        snprintf(buf, size, "%d stages: 1 to %d are possible", c->stages, TP_VIT_MAX_STAGES);
    else if (!in_range(c->dim, 2, MAX_WIDTH >> c->stages) || c->dim % 2)
        snprintf(buf, size, "the width %lld is not even and between 2 and %d", (long long)c->dim,
                 MAX_WIDTH >> c->stages);
    else if (!in_range(c->classes, 1, MAX_WIDTH))
        snprintf(buf, size, "%lld classes", (long long)c->classes);
    else if (!in_range(c->window, 1, MAX_WINDOW))
        snprintf(buf, size, "a window of %lld: 1 to %d are possible", (long long)c->window,
                 MAX_WINDOW);
    else if (!in_range((int64_t)c->attn.variant, TP_LSLA_QXX, TP_LSLA_QXX_NP))
        snprintf(buf, size, "no variant has the number %d", (int)c->attn.variant);
    else if (!(c->drop_path >= 0.0 && c->drop_path < 1.0))
        snprintf(buf, size, "drop_path must be in [0,1), not %g", c->drop_path);
}

static void check_stage(const tp_vit_lsla_cfg *c, int i, char *buf, size_t size)
{
    const tp_lsla_stage s = tp__lsla_stage(c, i);
    const double hidden = c->mlp_ratio * (double)s.dim;
    if (!in_range(c->depths[i], 1, TP_VIT_MAX_BLOCKS) || tp__lsla_blocks(c) > TP_VIT_MAX_BLOCKS)
        snprintf(buf, size, "stage %d has %d blocks: at least 1, all stages at most %d", i,
                 c->depths[i], TP_VIT_MAX_BLOCKS);
    else if (c->heads[i] < 1 || s.dim % c->heads[i])
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads", i,
                 (long long)s.dim, c->heads[i]);
    else if (!(hidden >= 1.0 && hidden <= MAX_WIDTH) || hidden != floor(hidden))
        snprintf(buf, size, "stage %d: an MLP ratio of %g gives a hidden width of %g", i,
                 c->mlp_ratio, hidden);
    else if (s.map[0] % s.window || s.map[1] % s.window)
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into windows of %lld: choose "
                 "another image size or window",
                 i, (long long)s.map[0], (long long)s.map[1], (long long)s.window);
}

const char *tp_vit_lsla_cfg_check(const tp_vit_lsla_cfg *c, char *buf, size_t size)
{
    buf[0] = '\0';
    check_sizes(c, buf, size);
    if (buf[0]) return buf;
    for (int i = 0; i < c->stages && !buf[0]; i++) check_stage(c, i, buf, size);
    return buf[0] ? buf : NULL;
}

/* ---- metadata ---- */

static const char *const variants[] = { "qxx", "qxv", "qkv", "qxx_np" };

static void write_list(tp_writer *W, const char *key, int n, const int64_t *x)
{
    char text[256] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? "," : "",
                                 (long long)x[i]);
    tp_writer_meta(W, key, text);
}

void tp_vit_lsla_cfg_write(const tp_vit_lsla_cfg *c, tp_writer *W)
{
    int64_t depths[TP_VIT_MAX_STAGES], heads[TP_VIT_MAX_STAGES];
    for (int i = 0; i < TP_VIT_MAX_STAGES; i++) {
        depths[i] = c->depths[i];
        heads[i] = c->heads[i];
    }
    tp_writer_meta(W, "model", "vit-lsla");
    write_list(W, "image", 2, c->image);
    write_list(W, "depths", c->stages, depths);
    write_list(W, "heads", c->stages, heads);
    tp_writer_meta_int(W, "classes", c->classes);
    tp_writer_meta_int(W, "dim", c->dim);
    tp_writer_meta_int(W, "window", c->window);
    tp_writer_meta_num(W, "mlp_ratio", c->mlp_ratio);
    tp_writer_meta_num(W, "drop_path", c->drop_path);
    tp_writer_meta(W, "variant", variants[c->attn.variant]);
    tp_writer_meta(W, "scale", c->attn.fixed_scale ? "fixed" : "dynamic");
    tp_writer_meta_int(W, "inner", !c->attn.no_inner);
    tp_writer_meta_int(W, "outer", !c->attn.no_outer);
    tp_writer_meta_int(W, "mask_outer", c->attn.mask_outer);
}

/* Numbers separated by commas; how many, or 0 with why filled. */
static int read_list(tp_file *F, const char *key, int max, int64_t *x, char *why, size_t size)
{
    const char *text = tp_file_meta(F, key), *s = text ? text : "";
    int n = 0;
    for (char *end; *s; s = *end ? end + 1 : end) {
        const long long value = strtoll(s, &end, 10);
        if (end == s || (*end && *end != ',') || n == max || value < 0 || value > MAX_SIDE) {
            n = 0;
            break;
        }
        x[n++] = value;
    }
    if (n == 0)
        snprintf(why, size, "%s = '%.40s' is no list of at most %d sizes", key, text ? text : "",
                 max);
    return n;
}

static bool read_int(tp_file *F, const char *key, int64_t *x, char *why, size_t size)
{
    if (tp_file_int(F, key, x)) return true;
    snprintf(why, size, "%s", tp_file_why(F));
    return false;
}

/* Which of n words the value is; -1 with why filled if none. */
static int read_word(tp_file *F, const char *key, int n, const char *const *word, char *why,
                     size_t size)
{
    const char *text = tp_file_meta(F, key);
    for (int i = 0; text && i < n; i++)
        if (strcmp(text, word[i]) == 0) return i;
    snprintf(why, size, "%s = '%.40s' is not known", key, text ? text : "");
    return -1;
}

static bool read_attention(tp_lsla_opts *o, tp_file *F, char *why, size_t size)
{
    static const char *const scales[] = { "dynamic", "fixed" };
    const int variant = read_word(F, "variant", 4, variants, why, size);
    const int scale = variant < 0 ? -1 : read_word(F, "scale", 2, scales, why, size);
    int64_t inner, outer, mask;
    if (scale < 0 || !read_int(F, "inner", &inner, why, size) ||
        !read_int(F, "outer", &outer, why, size) || !read_int(F, "mask_outer", &mask, why, size))
        return false;
    *o = (tp_lsla_opts){ .variant = (tp_lsla_variant)variant,
                         .fixed_scale = scale == 1,
                         .no_inner = inner == 0,
                         .no_outer = outer == 0,
                         .mask_outer = mask != 0 };
    return true;
}

static bool read_stages(tp_vit_lsla_cfg *c, tp_file *F, char *why, size_t size)
{
    int64_t depths[TP_VIT_MAX_STAGES] = { 0 }, heads[TP_VIT_MAX_STAGES] = { 0 };
    c->stages = read_list(F, "depths", TP_VIT_MAX_STAGES, depths, why, size);
    const int n = c->stages ? read_list(F, "heads", TP_VIT_MAX_STAGES, heads, why, size) : 0;
    if (n && n != c->stages) snprintf(why, size, "%d numbers of heads for %d stages", n, c->stages);
    for (int i = 0; i < n; i++) {
        c->depths[i] = (int)depths[i];
        c->heads[i] = (int)heads[i];
    }
    return n && n == c->stages;
}

bool tp_vit_lsla_cfg_read(tp_vit_lsla_cfg *c, tp_file *F, char *why, size_t size)
{
    static const char *const model[] = { "vit-lsla" };
    *c = (tp_vit_lsla_cfg){ 0 };
    if (!tp_file_ok(F)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    if (read_word(F, "model", 1, model, why, size) < 0 || !read_stages(c, F, why, size) ||
        !read_attention(&c->attn, F, why, size) ||
        !read_int(F, "classes", &c->classes, why, size) ||
        !read_int(F, "dim", &c->dim, why, size) || !read_int(F, "window", &c->window, why, size))
        return false;
    const int sides = read_list(F, "image", 2, c->image, why, size);
    if (sides == 1) snprintf(why, size, "image has one side");
    if (sides != 2) return false;
    if (!tp_file_num(F, "mlp_ratio", &c->mlp_ratio) ||
        !tp_file_num(F, "drop_path", &c->drop_path)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    return !tp_vit_lsla_cfg_check(c, why, size);
}

/* ---- costs: one image ---- */

/* Pixels of the image after being halved so many times. */
static double pixels(const tp_vit_lsla_cfg *c, int halvings)
{
    int64_t side[2] = { c->image[0], c->image[1] };
    for (int i = 0; i < halvings; i++)
        for (int axis = 0; axis < 2; axis++) side[axis] = (side[axis] + 1) / 2;
    return (double)side[0] * (double)side[1];
}

/* Matrices D x D of an attention. */
static double matrices(const tp_lsla_opts *o)
{
    return o->variant == TP_LSLA_QKV ? 4.0 : o->variant == TP_LSLA_QXX_NP ? 1.0 : 2.0;
}

tp_flops tp_vit_lsla_flops(const tp_vit_lsla_cfg *c)
{
    const double d = (double)c->dim, half = d / 2.0;
    tp_flops f = { .macs = pixels(c, 1) * 27.0 * half + pixels(c, 2) * 9.0 * half * d,
                   .batchnorm = pixels(c, 1) * half + pixels(c, 2) * d };
    for (int i = 0; i < c->stages; i++) {
        const tp_lsla_stage s = tp__lsla_stage(c, i);
        const double T = pixels(c, i + 2), D = (double)s.dim, n = (double)(s.window * s.window);
        const double dense = (matrices(&c->attn) + 2.0 * c->mlp_ratio) * D * D;
        f.macs += c->depths[i] * T * (dense + 2.0 * n * D);
        f.norm += c->depths[i] * 2.0 * T * D;
        if (i + 1 < c->stages) {
            f.macs += pixels(c, i + 3) * 18.0 * D * D;
            f.norm += pixels(c, i + 3) * 2.0 * D;
        } else {
            f.norm += T * D;
            f.macs += D * (double)c->classes;
        }
    }
    return f;
}

/* What a block keeps, in values: its input; the normalised input, queries, other projections and
 * the result of the attention; the sum, normalised; both sides of GELU. */
static double block_values(const tp_vit_lsla_cfg *c, double T, double D, double heads)
{
    const tp_lsla_variant v = c->attn.variant;
    const double projected = v == TP_LSLA_QKV ? 2.0 : v == TP_LSLA_QXV ? 1.0 : 0.0;
    const double result = v == TP_LSLA_QXX || v == TP_LSLA_QKV ? 1.0 : 0.0;
    const double attention = (2.0 + projected + result) * T * D + T * heads + 2.0 * T;
    const double feed_forward = (2.0 + 2.0 * c->mlp_ratio) * T * D + 2.0 * T;
    if (c->recompute == TP_RECOMPUTE_BLOCK) return T * D;
    return T * D + feed_forward + (c->recompute == TP_RECOMPUTE_NONE ? attention : 0.0);
}

double tp_vit_lsla_activations(const tp_vit_lsla_cfg *c)
{
    const double d = (double)c->dim;
    double sum = pixels(c, 0) * 3.0 + pixels(c, 1) * 1.5 * d + pixels(c, 2) * 2.0 * d;
    for (int i = 0; i < c->stages; i++) {
        const double T = pixels(c, i + 2), D = (double)(c->dim << i);
        sum += c->depths[i] * block_values(c, T, D, c->heads[i]) + T * D;
        if (i + 1 < c->stages) sum += pixels(c, i + 3) * (2.0 * D + 2.0);
    }
    return 4.0 * sum;
}
