/* registry.c - every model of the library by name: a family gives three functions of a variant, and
 * a line a variant says what the paper prints for it. */
#include <tapegrad/models.h>
#include <tapegrad/vision.h>

#include "registry_inner.h"

/* ---- Transformer-LS language model ---- */

enum { TINY, SMALL, LARGE };
enum { ENWIK8 = 208, TEXT8 = 32 };

/* variant: size * 1000 + vocabulary. A sample is one segment of the first training phase. */
static tp_lm_cfg lm_cfg(int variant)
{
    const int64_t vocab = variant % 1000;
    switch (variant / 1000) {
    case TINY: return tp_lm_tiny(vocab);
    case SMALL: return tp_lm_small(vocab);
    default: return tp_lm_large(vocab);
    }
}

static void lm_declare(tp_params *P, int variant)
{
    tp_lm m;
    tp_lm_init(P, &m, "", lm_cfg(variant));
}

static tp_flops lm_flops(int variant)
{
    const tp_lm_cfg c = lm_cfg(variant);
    return tp_lm_flops(&c, c.mem_len, c.mem_len);
}

static double lm_activations(int variant, bool recompute)
{
    tp_lm_cfg c = lm_cfg(variant);
    c.recompute = recompute ? TP_RECOMPUTE_BLOCK : TP_RECOMPUTE_NONE;
    return tp_lm_activations(&c, c.mem_len, c.mem_len);
}

/* ---- Transformer-XL ---- */

enum { BASE, XL_LARGE };
enum { XL_ENWIK8 = 204, XL_TEXT8 = 27 };

static tp_txl_cfg txl_cfg(int variant)
{
    return variant / 1000 == BASE ? tp_txl_base(variant % 1000) : tp_txl_large(variant % 1000);
}

static void txl_declare(tp_params *P, int variant)
{
    tp_txl m;
    tp_txl_init(P, &m, "", txl_cfg(variant));
}

static tp_flops txl_flops(int variant)
{
    const tp_txl_cfg c = txl_cfg(variant);
    return tp_txl_flops(&c, c.mem_len, c.mem_len);
}

static double txl_activations(int variant, bool recompute)
{
    tp_txl_cfg c = txl_cfg(variant);
    c.recompute = recompute ? TP_RECOMPUTE_BLOCK : TP_RECOMPUTE_NONE;
    return tp_txl_activations(&c, c.mem_len, c.mem_len);
}

/* ---- ViT-LSLA ---- */

enum { IP102 = 102, FOOD101 = 101, MINI_IMAGENET = 100 };

/* Tables 1, 4 and 5, in the order of the lines below. */
static const struct {
    int classes;
    tp_lsla_opts opts;
} lsla_rows[] = {
    { IP102, { 0 } },
    { FOOD101, { 0 } },
    { MINI_IMAGENET, { 0 } },
    { IP102, { .variant = TP_LSLA_QXX_NP } },
    { IP102, { .variant = TP_LSLA_QXV } },
    { IP102, { .variant = TP_LSLA_QKV } },
    { IP102, { .fixed_scale = true, .no_outer = true } },
    { IP102, { .fixed_scale = true, .no_inner = true } },
    { IP102, { .fixed_scale = true } },
    { IP102, { .no_outer = true } },
    { IP102, { .no_inner = true } },
};

static tp_vit_lsla_cfg lsla_cfg(int variant)
{
    tp_vit_lsla_cfg c = tp_vit_lsla_paper(lsla_rows[variant].classes);
    c.attn = lsla_rows[variant].opts;
    return c;
}

static void lsla_declare(tp_params *P, int variant)
{
    tp_vit_lsla m;
    tp_vit_lsla_init(P, &m, "", lsla_cfg(variant));
}

static tp_flops lsla_flops(int variant)
{
    const tp_vit_lsla_cfg c = lsla_cfg(variant);
    return tp_vit_lsla_flops(&c);
}

static double lsla_activations(int variant, bool recompute)
{
    tp_vit_lsla_cfg c = lsla_cfg(variant);
    c.recompute = recompute ? TP_RECOMPUTE_BLOCK : TP_RECOMPUTE_NONE;
    return tp_vit_lsla_activations(&c);
}

/* ---- CvT, CvT*, CvT*-LS ---- */

/* variant: size * 100 + model. */
static tp_cvt_cfg cvt_cfg(int variant)
{
    return tp_cvt_preset((tp_cvt_name)(variant % 100), variant / 100);
}

static void cvt_declare(tp_params *P, int variant)
{
    tp_cvt m;
    tp_cvt_init(P, &m, "", cvt_cfg(variant));
}

static tp_flops cvt_flops(int variant)
{
    const tp_cvt_cfg c = cvt_cfg(variant);
    return tp_cvt_flops(&c, variant / 100, variant / 100);
}

static double cvt_activations(int variant, bool recompute)
{
    tp_cvt_cfg c = cvt_cfg(variant);
    c.recompute = recompute ? TP_RECOMPUTE_BLOCK : TP_RECOMPUTE_NONE;
    return tp_cvt_activations(&c, variant / 100, variant / 100);
}

/* ---- the table ---- */

#define LM(size, vocab)  size * 1000 + vocab, lm_declare, lm_flops, lm_activations
#define TXL(size, vocab) size * 1000 + vocab, txl_declare, txl_flops, txl_activations
#define LSLA(row)        row, lsla_declare, lsla_flops, lsla_activations
#define CVT(name, size)  size * 100 + name, cvt_declare, cvt_flops, cvt_activations

/* name, family, input, the paper's parameters and FLOPs, FLOPs a LayerNorm element, variant. */
/* clang-format off */
static const tp_model_info models[] = {
    { "ls_lm-tiny-enwik8",  "Transformer-LS LM", "256 tokens, cache 256",   0,     0, 5, LM(TINY, ENWIK8) },
    { "ls_lm-tiny-text8",   "Transformer-LS LM", "256 tokens, cache 256",   0,     0, 5, LM(TINY, TEXT8) },
    { "ls_lm-small-enwik8", "Transformer-LS LM", "2048 tokens, cache 2048", 44e6,  0, 5, LM(SMALL, ENWIK8) },
    { "ls_lm-small-text8",  "Transformer-LS LM", "2048 tokens, cache 2048", 44e6,  0, 5, LM(SMALL, TEXT8) },
    { "ls_lm-large-enwik8", "Transformer-LS LM", "2048 tokens, cache 2048", 110e6, 0, 5, LM(LARGE, ENWIK8) },
    { "ls_lm-large-text8",  "Transformer-LS LM", "2048 tokens, cache 2048", 0,     0, 5, LM(LARGE, TEXT8) },
    { "txl-base-enwik8",    "Transformer-XL",    "512 tokens, memory 512",  41e6,  0, 5, TXL(BASE, XL_ENWIK8) },
    { "txl-base-text8",     "Transformer-XL",    "512 tokens, memory 512",  0,     0, 5, TXL(BASE, XL_TEXT8) },
    { "txl-large-enwik8",   "Transformer-XL",    "768 tokens, memory 768",  277e6, 0, 5, TXL(XL_LARGE, XL_ENWIK8) },
    { "vit_lsla-ip102",       "ViT-LSLA", "224 x 224", 18.9e6, 3.5e9, 5, LSLA(0) },
    { "vit_lsla-food101",     "ViT-LSLA", "224 x 224", 18.9e6, 3.5e9, 5, LSLA(1) },
    { "vit_lsla-mini",        "ViT-LSLA", "224 x 224", 18.9e6, 3.5e9, 5, LSLA(2) },
    { "vit_lsla-qxx_np",      "ViT-LSLA", "224 x 224", 16.4e6, 3.1e9, 5, LSLA(3) },
    { "vit_lsla-qxv",         "ViT-LSLA", "224 x 224", 18.9e6, 3.5e9, 5, LSLA(4) },
    { "vit_lsla-qkv",         "ViT-LSLA", "224 x 224", 24.0e6, 4.4e9, 5, LSLA(5) },
    { "vit_lsla-fixed_inner", "ViT-LSLA", "224 x 224", 0,      0,     5, LSLA(6) },
    { "vit_lsla-fixed_outer", "ViT-LSLA", "224 x 224", 0,      0,     5, LSLA(7) },
    { "vit_lsla-fixed",       "ViT-LSLA", "224 x 224", 0,      0,     5, LSLA(8) },
    { "vit_lsla-inner",       "ViT-LSLA", "224 x 224", 0,      0,     5, LSLA(9) },
    { "vit_lsla-outer",       "ViT-LSLA", "224 x 224", 0,      0,     5, LSLA(10) },
    { "cvt-13-224",       "CvT",     "224 x 224", 20e6,   4.5e9,  0, CVT(TP_CVT_13, 224) },
    { "cvt-13-384",       "CvT",     "384 x 384", 20e6,   16.3e9, 0, CVT(TP_CVT_13, 384) },
    { "cvt-21-224",       "CvT",     "224 x 224", 32e6,   7.1e9,  0, CVT(TP_CVT_21, 224) },
    { "cvt-21-384",       "CvT",     "384 x 384", 32e6,   24.9e9, 0, CVT(TP_CVT_21, 384) },
    { "cvt-w24-384",      "CvT",     "384 x 384", 277e6,  193.2e9, 0, CVT(TP_CVT_W24, 384) },
    { "cvt_star-13-224",  "CvT*",    "224 x 224", 0,      6.7e9,  5, CVT(TP_CVT_STAR_13, 224) },
    { "cvt_star-13-384",  "CvT*",    "384 x 384", 0,      31.9e9, 5, CVT(TP_CVT_STAR_13, 384) },
    { "cvt_star-21-224",  "CvT*",    "224 x 224", 0,      10.1e9, 5, CVT(TP_CVT_STAR_21, 224) },
    { "cvt_star-21-384",  "CvT*",    "384 x 384", 0,      45.0e9, 5, CVT(TP_CVT_STAR_21, 384) },
    { "cvt_ls-13-224",    "CvT*-LS", "224 x 224", 20.3e6, 4.9e9,  5, CVT(TP_CVT_LS_13, 224) },
    { "cvt_ls-13-384",    "CvT*-LS", "384 x 384", 20.3e6, 0,      5, CVT(TP_CVT_LS_13, 384) },
    { "cvt_ls-17-224",    "CvT*-LS", "224 x 224", 23.7e6, 9.8e9,  5, CVT(TP_CVT_LS_17, 224) },
    { "cvt_ls-21-224",    "CvT*-LS", "224 x 224", 32.1e6, 7.9e9,  5, CVT(TP_CVT_LS_21, 224) },
    { "cvt_ls-21s-224",   "CvT*-LS", "224 x 224", 30.1e6, 11.3e9, 5, CVT(TP_CVT_LS_21S, 224) },
    { "cvt_ls-21-384",    "CvT*-LS", "384 x 384", 32.1e6, 23.9e9, 5, CVT(TP_CVT_LS_21, 384) },
    { "cvt_ls-21-448",    "CvT*-LS", "448 x 448", 32.1e6, 34.2e9, 5, CVT(TP_CVT_LS_21, 448) },
};
/* clang-format on */

const tp_model_info *tp_model_at(int i)
{
    const int n = sizeof models / sizeof models[0];
    if (i >= n && i - n < tp__vil_model_count) return &tp__vil_models[i - n];
    return i >= 0 && i < n ? &models[i] : NULL;
}
