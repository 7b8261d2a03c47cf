/* lm_config.c - the language models' presets, checks, and configurations as checkpoint metadata.
 *
 * One table a model says which member has which key; writing and reading walk it. The keys are
 * those of the specification. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/models.h>

/* ---- presets ---- */

tp_lm_cfg tp_lm_tiny(int64_t vocab)
{
    return (tp_lm_cfg){
        .vocab = vocab,
        .dim = 128,
        .hidden = 512,
        .layers = 4,
        .mem_len = 256,
        .ls = { .heads = 4, .chunk = 16, .rank = 1, .window = 64 },
        .pre_ln = true,
        .gelu = true,
    };
}

tp_lm_cfg tp_lm_small(int64_t vocab)
{
    return (tp_lm_cfg){
        .vocab = vocab,
        .dim = 512,
        .hidden = 2048,
        .layers = 12,
        .mem_len = 2048,
        .ls = { .heads = 8, .chunk = 16, .rank = 1, .window = 512 },
        .pre_ln = true,
        .gelu = true,
        .dropout = 0.2,
        .emb_dropout = 0.2,
    };
}

tp_lm_cfg tp_lm_large(int64_t vocab)
{
    tp_lm_cfg c = tp_lm_small(vocab);
    c.layers = 30;
    c.dropout = c.emb_dropout = 0.4;
    return c;
}

tp_txl_cfg tp_txl_base(int64_t vocab)
{
    return (tp_txl_cfg){ .vocab = vocab,
                         .dim = 512,
                         .hidden = 2048,
                         .d_head = 64,
                         .layers = 12,
                         .heads = 8,
                         .mem_len = 512,
                         .dropout = 0.1 };
}

tp_txl_cfg tp_txl_large(int64_t vocab)
{
    return (tp_txl_cfg){ .vocab = vocab,
                         .dim = 1024,
                         .hidden = 3072,
                         .d_head = 128,
                         .layers = 24,
                         .heads = 8,
                         .mem_len = 768,
                         .dropout = 0.15,
                         .att_dropout = 0.15 };
}

/* ---- checks ---- */

static bool is_rate(double p)
{
    return p >= 0.0 && p < 1.0;
}

/* Sizes come from files: products of three and sums of products must not overflow. */
static bool is_size(int64_t n)
{
    return n >= 1 && n <= TP_LM_MAX_SIZE;
}

/* What both models need; buf stays empty if all is well. */
static void check_common(int64_t vocab, int64_t dim, int64_t hidden, int layers, int64_t mem_len,
                         char *buf, size_t size)
{
    if (!is_size(vocab))
        snprintf(buf, size, "the vocabulary has %lld entries", (long long)vocab);
    else if (!is_size(dim))
        snprintf(buf, size, "the width is %lld", (long long)dim);
    else if (!is_size(hidden))
        snprintf(buf, size, "the feed-forward width is %lld", (long long)hidden);
    else if (mem_len > TP_LM_MAX_SIZE)
        snprintf(buf, size, "a memory of %lld rows: at most %d are possible", (long long)mem_len,
                 TP_LM_MAX_SIZE);
    else if (layers < 1 || layers > TP_LM_MAX_LAYERS)
        snprintf(buf, size, "%d layers: 1 to %d are possible", layers, TP_LM_MAX_LAYERS);
}

const char *tp_lm_cfg_check(const tp_lm_cfg *c, char *buf, size_t size)
{
    const tp_ls_cfg *ls = &c->ls;
    const long long L = (long long)c->mem_len;

    if (tp_ls_cfg_check(ls, c->dim, buf, size)) return buf;
    check_common(c->vocab, c->dim, c->hidden, c->layers, c->mem_len, buf, size);
    if (buf[0]) return buf;
    if (ls->window > TP_LM_MAX_SIZE || ls->chunk > TP_LM_MAX_SIZE ||
        (int64_t)ls->heads * ls->rank > TP_LM_MAX_SIZE)
        snprintf(buf, size, "a window of %d, chunks of %d and %d heads of rank %d: at most %d",
                 ls->window, ls->chunk, ls->heads, ls->rank, TP_LM_MAX_SIZE);
    else if (c->mem_len < (ls->masked ? 0 : 1))
        snprintf(buf, size, "a cache of %lld rows: the model needs one%s", L,
                 c->mem_len == 0 ? " unless empty caches are masked" : "");
    else if (c->mem_len % ls->chunk)
        snprintf(buf, size, "the chunk length %d does not divide the cache of %lld rows", ls->chunk,
                 L);
    else if (c->mem_len < ls->window && !ls->masked)
        snprintf(buf, size,
                 "the cache of %lld rows is shorter than the window of %d: lengthen it, or set "
                 "the option masked",
                 L, ls->window);
    else if (!is_rate(c->dropout) || !is_rate(c->emb_dropout))
        snprintf(buf, size, "dropout must be in [0,1), not %g and %g", c->dropout, c->emb_dropout);
    return buf[0] ? buf : NULL;
}

const char *tp_txl_cfg_check(const tp_txl_cfg *c, char *buf, size_t size)
{
    buf[0] = '\0';
    check_common(c->vocab, c->dim, c->hidden, c->layers, c->mem_len, buf, size);
    if (buf[0]) return buf;
    if (c->dim < 2 || c->dim % 2)
        snprintf(buf, size, "the width %lld is not even: sinusoidal positions come in pairs",
                 (long long)c->dim);
    else if (c->heads < 1 || !is_size(c->d_head) || !is_size(c->heads * c->d_head))
        snprintf(buf, size, "%d heads of width %lld", c->heads, (long long)c->d_head);
    else if (c->mem_len < 0 || (c->same_length && c->mem_len == 0))
        snprintf(buf, size, "a memory of %lld rows%s", (long long)c->mem_len,
                 c->same_length ? " with same_length" : "");
    else if (!is_rate(c->dropout) || !is_rate(c->att_dropout))
        snprintf(buf, size, "dropout must be in [0,1), not %g and %g", c->dropout, c->att_dropout);
    return buf[0] ? buf : NULL;
}

/* ---- metadata ---- */

typedef enum kind { LONG, INT, RATE, FLAG, WORD } kind;

/* A member of a configuration; a WORD is a flag spelt `no` or `yes`. */
typedef struct member {
    const char *key;
    size_t at;
    kind kind;
    const char *no, *yes;
} member;

/* clang-format off */
#define LS(key, m, kind)         { key, offsetof(tp_lm_cfg, m), kind, NULL, NULL }
#define LS_WORD(key, m, no, yes) { key, offsetof(tp_lm_cfg, m), WORD, no, yes }
#define TXL(key, m, kind)        { key, offsetof(tp_txl_cfg, m), kind, NULL, NULL }
/* clang-format on */

static const member ls_members[] = {
    LS("vocab_size", vocab, LONG),
    LS("d_model", dim, LONG),
    LS("d_inner", hidden, LONG),
    LS("n_layer", layers, INT),
    LS("n_head", ls.heads, INT),
    LS("mem_len", mem_len, LONG),
    LS("chunk_size", ls.chunk, INT),
    LS("chunk_rank", ls.rank, INT),
    LS("window_len", ls.window, INT),
    LS("clamp_len", ls.clamp, INT),
    LS("cpos_clamp_len", ls.chunk_clamp, INT),
    LS("use_bias", use_bias, FLAG),
    LS("pre_ln", pre_ln, FLAG),
    LS("use_gelu", gelu, FLAG),
    LS("dropout", dropout, RATE),
    LS("emb_dropout", emb_dropout, RATE),
    LS_WORD("empty_cache", ls.masked, "phantom", "masked"),
    LS_WORD("window", ls.segment, "token", "segment"),
    LS_WORD("dproj_input", ls.ln_local, "raw", "ln_local"),
    LS_WORD("cache_dproj", ls.project_first, "compress_first", "project_first"),
    LS_WORD("dual_ln", ls.no_dual_ln, "on", "off"),
    { 0 },
};

static const member txl_members[] = {
    TXL("vocab_size", vocab, LONG),
    TXL("d_model", dim, LONG),
    TXL("d_inner", hidden, LONG),
    TXL("d_head", d_head, LONG),
    TXL("n_layer", layers, INT),
    TXL("n_head", heads, INT),
    TXL("mem_len", mem_len, LONG),
    TXL("clamp_len", clamp, LONG),
    TXL("pre_lnorm", pre_ln, FLAG),
    TXL("same_length", same_length, FLAG),
    TXL("dropout", dropout, RATE),
    TXL("dropatt", att_dropout, RATE),
    { 0 },
};

static void write_members(const member *m, const void *cfg, tp_writer *W)
{
    for (; m->key; m++) {
        const void *p = (const char *)cfg + m->at;
        switch (m->kind) {
        case LONG: tp_writer_meta_int(W, m->key, *(const int64_t *)p); break;
        case INT: tp_writer_meta_int(W, m->key, *(const int *)p); break;
        case RATE: tp_writer_meta_num(W, m->key, *(const double *)p); break;
        case FLAG: tp_writer_meta_int(W, m->key, *(const bool *)p); break;
        case WORD: tp_writer_meta(W, m->key, *(const bool *)p ? m->yes : m->no); break;
        }
    }
}

/* Reads one integer in [lo, hi]. */
static bool read_int(tp_file *F, const char *key, int64_t lo, int64_t hi, int64_t *x, char *why,
                     size_t size)
{
    if (!tp_file_int(F, key, x)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    if (*x < lo || *x > hi) {
        snprintf(why, size, "%s = %lld is out of range", key, (long long)*x);
        return false;
    }
    return true;
}

static bool read_member(const member *m, void *p, tp_file *F, char *why, size_t size)
{
    const char *text = tp_file_meta(F, m->key);
    int64_t x = 0;

    if (!text) {
        snprintf(why, size, "the configuration lacks '%s'", m->key);
        return false;
    }
    switch (m->kind) {
    case LONG:
        if (!read_int(F, m->key, INT64_MIN, INT64_MAX, &x, why, size)) return false;
        *(int64_t *)p = x;
        return true;
    case INT:
        if (!read_int(F, m->key, INT32_MIN, INT32_MAX, &x, why, size)) return false;
        *(int *)p = (int)x;
        return true;
    case FLAG:
        if (!read_int(F, m->key, 0, 1, &x, why, size)) return false;
        *(bool *)p = x != 0;
        return true;
    case RATE:
        if (tp_file_num(F, m->key, p)) return true;
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    case WORD:
        *(bool *)p = strcmp(text, m->yes) == 0;
        if (*(bool *)p || strcmp(text, m->no) == 0) return true;
        snprintf(why, size, "%s = '%.40s' is neither '%s' nor '%s'", m->key, text, m->no, m->yes);
        return false;
    }
    return false;
}

static bool read_members(const member *m, const char *model, void *cfg, tp_file *F, char *why,
                         size_t size)
{
    const char *found = tp_file_meta(F, "model");

    if (!tp_file_ok(F) || !found) {
        snprintf(why, size, "%s",
                 tp_file_ok(F) ? "the file holds no model configuration" : tp_file_why(F));
        return false;
    }
    if (strcmp(found, model) != 0) {
        snprintf(why, size, "the file holds a model of kind '%.60s', not '%s'", found, model);
        return false;
    }
    for (; m->key; m++)
        if (!read_member(m, (char *)cfg + m->at, F, why, size)) return false;
    return true;
}

void tp_lm_cfg_write(const tp_lm_cfg *cfg, tp_writer *W)
{
    tp_writer_meta(W, "model", "transformer-ls-lm");
    write_members(ls_members, cfg, W);
}

bool tp_lm_cfg_read(tp_lm_cfg *cfg, tp_file *F, char *why, size_t size)
{
    *cfg = (tp_lm_cfg){ 0 };
    return read_members(ls_members, "transformer-ls-lm", cfg, F, why, size) &&
           !tp_lm_cfg_check(cfg, why, size);
}

void tp_txl_cfg_write(const tp_txl_cfg *cfg, tp_writer *W)
{
    tp_writer_meta(W, "model", "transformer-xl");
    write_members(txl_members, cfg, W);
}

bool tp_txl_cfg_read(tp_txl_cfg *cfg, tp_file *F, char *why, size_t size)
{
    *cfg = (tp_txl_cfg){ 0 };
    return read_members(txl_members, "transformer-xl", cfg, F, why, size) &&
           !tp_txl_cfg_check(cfg, why, size);
}
