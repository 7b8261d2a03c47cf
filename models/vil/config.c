/* config.c - configurations of Vision Longformer: the official notation of stages, checks, members. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

void tp__vil_map(const tp_vil_cfg *cfg, int stage, int64_t size[2])
{
    for (int i = 0; i < 2; i++) {
        size[i] = cfg->image[i];
        for (int k = 0; k <= stage; k++)
            size[i] = cfg->stage[k].patch > 0 ? size[i] / cfg->stage[k].patch : 0;
    }
}

/* ---- notation ---- */

/* Sets the field of a letter; false: the letter is unknown, or its value impossible. */
static bool set_letter(tp_vil_stage *s, char letter, long value)
{
    switch (letter) {
    case 'h': s->heads = (int)value; return true;
    case 'd': s->dim = value; return true;
    case 'n': s->blocks = (int)value; return true;
    case 's': s->dense = value == 0; return value == 0 || value == 1;
    case 'g': s->global = value; return true;
    case 'p': s->patch = value; return true;
    case 'f': s->feature = value; return true;
    case 'a': s->absolute = value == 1; return value == 0 || value == 1;
    case 'r': s->rank = (int)value; return true;
    default: return false;
    }
}

/* Parses stage `number` from *at to the next '_' or the end. */
static bool parse_stage(tp_vil_stage *s, int number, const char **at)
{
    *s = (tp_vil_stage){
        .heads = 3, .blocks = 1, .dim = 192, .patch = 2, .global = 1, .feature = 7, .absolute = true
    };
    for (const char *p = *at;; p++) {
        const char letter = *p;
        char *end;
        if (!letter || p[1] < '0' || p[1] > '9') return false;
        const long value = strtol(p + 1, &end, 10);
        if (value > TP_VIL_MAX_SIZE) return false;
        if (letter == 'l' ? value != number : !set_letter(s, letter, value)) return false;
        *at = p = end;
        if (!*p || *p == '_') return true;
        if (*p != ',') return false;
    }
}

bool tp_vil_parse(tp_vil_cfg *cfg, const char *text, char *why, size_t size)
{
    if (!cfg) {
        if (why) snprintf(why, size, "vil_parse: NULL was given in place of a configuration");
        return false;
    }
    const char *at = text;
    bool dense = false;

    cfg->stages = 0;
    for (; cfg->stages < TP_VIL_MAX_STAGES; at++) {
        tp_vil_stage *s = &cfg->stage[cfg->stages++];
        if (!parse_stage(s, cfg->stages, &at)) {
            snprintf(why, size, "stage %d of '%.80s' cannot be read at '%.20s'", cfg->stages, text,
                     at);
            return false;
        }
        dense = s->dense = s->dense || dense;
        if (!*at) return true;
    }
    snprintf(why, size, "'%.80s' has more than %d stages", text, TP_VIL_MAX_STAGES);
    return false;
}

void tp_vil_notation(const tp_vil_cfg *cfg, char *buf, size_t size)
{
    if (!cfg) return;
    size_t used = 0;
    if (size) buf[0] = '\0';
    for (int k = 0; k < cfg->stages && used < size; k++) {
        const tp_vil_stage *s = &cfg->stage[k];
        const int n = snprintf(
            buf + used, size - used, "%sl%d,h%d,d%lld,n%d,s%d,g%lld,p%lld,f%lld,a%d,r%d",
            k ? "_" : "", k + 1, s->heads, (long long)s->dim, s->blocks, !s->dense,
            (long long)s->global, (long long)s->patch, (long long)s->feature, s->absolute, s->rank);
        used += n > 0 ? (size_t)n : size;
    }
}

/* ---- checks ---- */

static bool is_size(int64_t n)
{
    return tp__in_range(n, 1, TP_VIL_MAX_SIZE);
}

/* Checks the numbers of a stage; buf stays empty if they are possible. */
static void check_stage(const tp_vil_cfg *c, int k, char *buf, size_t size)
{
    const tp_vil_stage *s = &c->stage[k];
    const tp_vil_kind kind = s->dense ? TP_VIL_FULL : c->kind;
    const long long d = (long long)s->dim, f = (long long)s->feature;
    int64_t map[2];

    tp__vil_map(c, k, map);
    if (!is_size(s->dim) || s->heads < 1 || s->dim % s->heads)
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads", k + 1, d,
                 s->heads);
    else if (s->blocks < 1 || s->blocks > TP_VIL_MAX_BLOCKS)
        snprintf(buf, size, "stage %d has %d blocks, not 1 to %d", k + 1, s->blocks,
                 TP_VIL_MAX_BLOCKS);
    else if (!is_size(s->patch) || map[0] < 1 || map[1] < 1)
        snprintf(buf, size, "stage %d: patches of side %lld leave nothing of %lld x %lld pixels",
                 k + 1, (long long)s->patch, (long long)c->image[0], (long long)c->image[1]);
    else if (s->absolute && s->dim % 2)
        snprintf(
            buf, size,
            "stage %d: the width %lld is odd, but positions of rows and columns each take half",
            k + 1, d);
    else if (s->global < 0 || s->global > TP_VIL_MAX_SIZE)
        snprintf(buf, size, "stage %d has %lld global tokens, not 0 to %d", k + 1,
                 (long long)s->global, TP_VIL_MAX_SIZE);
    else if (kind == TP_VIL_GLOBAL && s->global == 0)
        snprintf(buf, size, "stage %d: attention to global tokens needs at least one", k + 1);
    else if (kind != TP_VIL_FULL && kind != TP_VIL_GLOBAL && kind != TP_VIL_LS && !is_size(f))
        snprintf(buf, size, "stage %d: the window or number of features is %lld, not 1 to %d",
                 k + 1, f, TP_VIL_MAX_SIZE);
    else if (kind == TP_VIL_SRA && (map[0] < f || map[1] < f))
        snprintf(buf, size, "stage %d: a reduction by %lld leaves nothing of %lld x %lld tokens",
                 k + 1, f, (long long)map[0], (long long)map[1]);
    else if (kind == TP_VIL_LS && (f < 0 || f > TP_VIL_MAX_SIZE || s->rank < 0 ||
                                   s->rank > TP_VIL_MAX_SIZE || (f == 0 && s->rank == 0)))
        snprintf(
            buf, size,
            "stage %d has a window of %lld and rank %d: at most one may be 0, and none above %d",
            k + 1, f, s->rank, TP_VIL_MAX_SIZE);
    else if (kind == TP_VIL_LS && f == 1 && !s->absolute)
        snprintf(
            buf, size,
            "stage %d: long-short attention with a window of 1 has no table of relative positions",
            k + 1);
}

bool tp_vil_cfg_check(const tp_vil_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "vil_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    int blocks = 0;

    why[0] = '\0';
    if (c->stages < 1 || c->stages > TP_VIL_MAX_STAGES)
        snprintf(why, size, "the model has %d stages, not 1 to %d", c->stages, TP_VIL_MAX_STAGES);
    else if ((int)c->kind < TP_VIL_WINDOW || c->kind > TP_VIL_LS)
        snprintf(why, size, "there is no attention number %d", (int)c->kind);
    else if (!is_size(c->image[0]) || !is_size(c->image[1]))
        snprintf(why, size, "images are %lld x %lld pixels: sides must be 1 to %d",
                 (long long)c->image[0], (long long)c->image[1], TP_VIL_MAX_SIZE);
    else if (!tp__in_range(c->classes, 0, TP_VIL_MAX_SIZE))
        snprintf(why, size, "there are %lld classes, not 0 to %d", (long long)c->classes,
                 TP_VIL_MAX_SIZE);
    else if (!tp__is_rate(c->drop_path))
        snprintf(why, size, "drop path must be in [0,1), not %g", c->drop_path);
    else if (c->shift < TP_BLOCK_OWN || c->shift > TP_VIL_SHIFT_RANDOM)
        snprintf(why, size, "there is no shift %d", c->shift);
    else if (c->edge == TP_EDGE_EXACT && c->shift != TP_BLOCK_ALL)
        snprintf(why, size, "exact windows see all neighbours, so a shift is impossible");
    for (int k = 0; k < c->stages && !why[0]; k++) {
        check_stage(c, k, why, size);
        blocks += c->stage[k].blocks;
        if (!why[0] && blocks > TP_VIL_MAX_BLOCKS)
            snprintf(why, size, "the model has more than %d blocks", TP_VIL_MAX_BLOCKS);
    }
    return !why[0];
}

/* A model of the table is a classifier. */
bool tp__vil_check(const void *cfg, char *why, size_t size)
{
    const tp_vil_cfg *c = cfg;
    if (c->classes != 0) return tp_vil_cfg_check(c, why, size);
    snprintf(why, size, "there are no classes");
    return false;
}

/* ---- members, whose keys are the options of the official code ---- */

static const char *const kinds[] = { "longformer", "global",    "full", "linformer",
                                     "srformer",   "performer", "ls",   NULL };
static const char *const edges[] = { "mask", "exact", "cyclic", NULL };

/* Prints the stages in the official notation. */
static void print_stages(const void *cfg, char *buf, size_t size)
{
    tp_vil_notation(cfg, buf, size);
}

static bool parse_stages(void *cfg, const char *text, char *why, size_t size)
{
    return tp_vil_parse(cfg, text, why, size);
}

#define AT(member) offsetof(tp_vil_cfg, member)
const tp_model_member tp__vil_members[] = {
    { "arch", TP_MEMBER_TEXT, .print = print_stages, .parse = parse_stages },
    { "attn_type", TP_MEMBER_WORD, .at = AT(kind), .words = kinds },
    { "edge", TP_MEMBER_WORD, .at = AT(edge), .words = edges },
    { "mode", TP_MEMBER_INT, .at = AT(shift) },
    { "image_height", TP_MEMBER_INT64, .at = AT(image[0]), .common = TP_COMMON_IMAGE },
    { "image_width", TP_MEMBER_INT64, .at = AT(image[1]) },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS },
    { "drop_path", TP_MEMBER_REAL, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "avg_pool", TP_MEMBER_FLAG, .at = AT(avg_pool) },
    { "mask_wrapped", TP_MEMBER_FLAG, .at = AT(mask_wrapped) },
    { "share_w", TP_MEMBER_NOT, .at = AT(separate_global) },
    { "share_kv", TP_MEMBER_NOT, .at = AT(separate_kv) },
    { "norm_embed", TP_MEMBER_NOT, .at = AT(raw_embed) },
    { "qkv_bias", TP_MEMBER_NOT, .at = AT(linear_qkv) },
    { "distinct_bias", TP_MEMBER_FLAG, .at = AT(distinct_bias) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};
