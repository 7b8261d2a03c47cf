/* cvt_config.c - presets of CvT, CvT* and CvT*-LS, checks, and configurations as metadata. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/cvt.h>

#define STAGES   TP_CVT_STAGES
#define MAX_SIZE (1 << 20) /* of widths, ranks, windows, classes: products fit */

/* ---- presets ---- */

/* Widths, heads and blocks of the published models. */
static const struct size {
    int64_t dim[STAGES];
    int heads[STAGES], blocks[STAGES];
} sizes[] = {
    [TP_CVT_13] = { { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [TP_CVT_21] = { { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [TP_CVT_W24] = { { 192, 768, 1024 }, { 3, 12, 16 }, { 2, 2, 20 } },
    [TP_CVT_STAR_13] = { { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [TP_CVT_STAR_21] = { { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [TP_CVT_LS_13] = { { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [TP_CVT_LS_17] = { { 128, 256, 384 }, { 2, 4, 6 }, { 3, 4, 10 } },
    [TP_CVT_LS_21] = { { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [TP_CVT_LS_21S] = { { 128, 256, 384 }, { 2, 4, 6 }, { 3, 4, 14 } },
};

static void set_long_short(tp_cvt_cfg *c, int64_t size)
{
    for (int s = 0; s < STAGES; s++) {
        c->rank[s] = (size < 448 ? 64 : 128) >> 2 * s;
        c->window[s] = (size < 384 ? 8 : size < 448 ? 12 : 16) >> s;
    }
    c->long_short = true;
}

tp_cvt_cfg tp_cvt_preset(tp_cvt_name name, int64_t size)
{
    const struct size *z = &sizes[name];
    tp_cvt_cfg c = { .classes = 1000, .kv_stride = 1, .class_std = 0.02, .drop_path = 0.1 };

    memcpy(c.dim, z->dim, sizeof c.dim);
    memcpy(c.heads, z->heads, sizeof c.heads);
    memcpy(c.blocks, z->blocks, sizeof c.blocks);
    if (name <= TP_CVT_W24) {
        c.kv_stride = 2;
        c.wide_scale = c.quick_gelu = c.single_proj = c.drop_last_stage = true;
        if (name == TP_CVT_W24) c.drop_path = 0.3;
        return c;
    }
    c.conv_bias = true;
    if (name >= TP_CVT_LS_13) {
        set_long_short(&c, size);
    } else {
        c.raw_class = true;
        c.class_std = 1.0;
        c.drop_path = 0.0;
    }
    return c;
}

/* ---- checks ---- */

static bool is_size(int64_t n)
{
    return n >= 1 && n <= MAX_SIZE;
}

static void check_stage(const tp_cvt_cfg *c, int s, char *buf, size_t size)
{
    const long long D = (long long)c->dim[s], r = (long long)c->rank[s],
                    w = (long long)c->window[s];

    if (!is_size(c->dim[s]))
        snprintf(buf, size, "the width of stage %d is %lld", s, D);
    else if (c->heads[s] < 1 || D % c->heads[s])
        snprintf(buf, size, "the width %lld of stage %d does not divide into %d heads", D, s,
                 c->heads[s]);
    else if (c->blocks[s] < 0 || c->blocks[s] > TP_CVT_MAX_BLOCKS)
        snprintf(buf, size, "stage %d has %d blocks", s, c->blocks[s]);
    else if (c->long_short && (!is_size(r) || !is_size(w) || !is_size(r * c->heads[s])))
        snprintf(buf, size, "stage %d: a window of %lld and %d heads of rank %lld", s, w,
                 c->heads[s], r);
}

const char *tp_cvt_cfg_check(const tp_cvt_cfg *c, char *buf, size_t size)
{
    int blocks = 0;

    buf[0] = '\0';
    for (int s = 0; s < STAGES && !buf[0]; s++) {
        check_stage(c, s, buf, size);
        blocks += buf[0] ? 0 : c->blocks[s];
    }
    if (buf[0]) return buf;
    if (blocks > TP_CVT_MAX_BLOCKS)
        snprintf(buf, size, "%d blocks: at most %d are possible", blocks, TP_CVT_MAX_BLOCKS);
    else if (!is_size(c->classes))
        snprintf(buf, size, "%lld classes", (long long)c->classes);
    else if (c->kv_stride < 1 || c->kv_stride > MAX_SIZE || (c->long_short && c->kv_stride > 1))
        snprintf(buf, size, "a stride of %lld in front of keys and values%s",
                 (long long)c->kv_stride,
                 c->long_short ? ": the long-short attention wants all of them" : "");
    else if (!(c->drop_path >= 0.0 && c->drop_path < 1.0))
        snprintf(buf, size, "drop path must be in [0,1), not %g", c->drop_path);
    else if (!(c->class_std >= 0.0 && c->class_std <= MAX_SIZE))
        snprintf(buf, size, "a class token of deviation %g", c->class_std);
    return buf[0] ? buf : NULL;
}

/* ---- metadata: the keys of the reference cases, a list one value a stage ---- */

typedef enum kind { LONG, LONGS, INTS, FLAG, REAL } kind;

typedef struct member {
    const char *key;
    size_t at;
    kind kind;
} member;

#define MEMBER(key, m, kind)                                                                       \
    {                                                                                              \
        key, offsetof(tp_cvt_cfg, m), kind                                                         \
    }

static const member members[] = {
    MEMBER("num_classes", classes, LONG),
    MEMBER("stride_kv", kv_stride, LONG),
    MEMBER("dims", dim, LONGS),
    MEMBER("heads", heads, INTS),
    MEMBER("depth", blocks, INTS),
    MEMBER("long_short", long_short, FLAG),
    MEMBER("r", rank, LONGS),
    MEMBER("w", window, LONGS),
    MEMBER("conv_bias", conv_bias, FLAG),
    MEMBER("wide_scale", wide_scale, FLAG),
    MEMBER("quick_gelu", quick_gelu, FLAG),
    MEMBER("raw_class", raw_class, FLAG),
    MEMBER("single_proj", single_proj, FLAG),
    MEMBER("no_dual_ln", no_dual_ln, FLAG),
    MEMBER("biased_ws", biased_ws, FLAG),
    MEMBER("mean_pool", mean_pool, FLAG),
    MEMBER("class_std", class_std, REAL),
    MEMBER("drop_path", drop_path, REAL),
    MEMBER("drop_last_stage", drop_last_stage, FLAG),
};
enum { MEMBERS = sizeof members / sizeof members[0] };

static void write_list(const member *m, const void *p, tp_writer *W)
{
    const int64_t *x = p;
    const int *n = p;
    char text[96];
    size_t used = 0;
    for (int s = 0; s < STAGES; s++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", s ? "," : "",
                                 (long long)(m->kind == LONGS ? x[s] : n[s]));
    tp_writer_meta(W, m->key, text);
}

void tp_cvt_cfg_write(const tp_cvt_cfg *cfg, tp_writer *W)
{
    tp_writer_meta(W, "model", "cvt");
    for (const member *m = members; m < members + MEMBERS; m++) {
        const void *p = (const char *)cfg + m->at;
        switch (m->kind) {
        case LONG: tp_writer_meta_int(W, m->key, *(const int64_t *)p); break;
        case FLAG: tp_writer_meta_int(W, m->key, *(const bool *)p); break;
        case REAL: tp_writer_meta_num(W, m->key, *(const double *)p); break;
        default: write_list(m, p, W);
        }
    }
}

/* Numbers of a list in [0, MAX_SIZE]: false if `text` is none of STAGES of them. */
static bool read_list(const char *text, int64_t *x)
{
    for (int s = 0; s < STAGES; s++) {
        char *end;
        x[s] = strtoll(text, &end, 10);
        if (end == text || x[s] < 0 || x[s] > MAX_SIZE || *end != (s < STAGES - 1 ? ',' : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}

/* True with *p set, or false. */
static bool read_member(const member *m, void *p, tp_file *F)
{
    const char *text = tp_file_meta(F, m->key);
    int64_t x[STAGES] = { 0 };

    if (!text) return false;
    if (m->kind == REAL) return tp_file_num(F, m->key, p);
    if (m->kind == LONG) return tp_file_int(F, m->key, p);
    if (m->kind == FLAG) {
        if (!tp_file_int(F, m->key, x) || x[0] < 0 || x[0] > 1) return false;
        *(bool *)p = x[0] != 0;
        return true;
    }
    if (!read_list(text, x)) return false;
    for (int s = 0; s < STAGES; s++) {
        if (m->kind == LONGS)
            ((int64_t *)p)[s] = x[s];
        else
            ((int *)p)[s] = (int)x[s];
    }
    return true;
}

bool tp_cvt_cfg_read(tp_cvt_cfg *cfg, tp_file *F, char *why, size_t size)
{
    const char *model = tp_file_meta(F, "model");

    *cfg = (tp_cvt_cfg){ 0 };
    if (!tp_file_ok(F)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    if (!model || strcmp(model, "cvt") != 0) {
        snprintf(why, size, "the file holds %s",
                 model ? "another model's configuration" : "no model configuration");
        return false;
    }
    for (const member *m = members; m < members + MEMBERS; m++)
        if (!read_member(m, (char *)cfg + m->at, F)) {
            const char *text = tp_file_meta(F, m->key);
            snprintf(why, size, text ? "%s = '%.60s' is out of range" : "it lacks '%s'", m->key,
                     text);
            return false;
        }
    return !tp_cvt_cfg_check(cfg, why, size);
}
