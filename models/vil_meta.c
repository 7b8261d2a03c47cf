/* vil_meta.c - a Vision Longformer's configuration as checkpoint metadata, and back. Keys are those
 * of the official code's options. */
#include <stdio.h>
#include <string.h>

#include "vil_inner.h"

static const char *const kinds[] = { "longformer", "global",    "full", "linformer",
                                     "srformer",   "performer", "ls" };
static const char *const edges[] = { "mask", "exact", "cyclic" };

/* A flag of the configuration and what it is called; `no` flags are written as their opposites. */
typedef struct flag {
    const char *key;
    size_t at;
    bool no;
} flag;

#define FLAG(key, m, no)                                                                           \
    {                                                                                              \
        key, offsetof(tp_vil_cfg, m), no                                                           \
    }
static const flag flags[] = {
    FLAG("avg_pool", avg_pool, false),           FLAG("mask_wrapped", mask_wrapped, false),
    FLAG("share_w", separate_global, true),      FLAG("share_kv", separate_kv, true),
    FLAG("norm_embed", no_norm_embed, true),     FLAG("qkv_bias", no_qkv_bias, true),
    FLAG("distinct_bias", distinct_bias, false),
};
enum { FLAGS = sizeof flags / sizeof *flags };

void tp_vil_cfg_write(const tp_vil_cfg *c, tp_writer *W)
{
    char arch[512];
    tp_vil_notation(c, arch, sizeof arch);
    tp_writer_meta(W, "model", "vision-longformer");
    tp_writer_meta(W, "arch", arch);
    tp_writer_meta(W, "attn_type", kinds[c->kind]);
    tp_writer_meta(W, "edge", edges[c->edge]);
    tp_writer_meta_int(W, "mode", c->shift);
    tp_writer_meta_int(W, "image_height", c->image[0]);
    tp_writer_meta_int(W, "image_width", c->image[1]);
    tp_writer_meta_int(W, "num_classes", c->classes);
    tp_writer_meta_num(W, "drop_path", c->drop_path);
    for (int i = 0; i < FLAGS; i++)
        tp_writer_meta_int(W, flags[i].key,
                           *(const bool *)((const char *)c + flags[i].at) != flags[i].no);
}

/* Which of n words the metadata says, or -1. */
static int word(tp_file *F, const char *key, const char *const *words, int n)
{
    const char *text = tp_file_meta(F, key);
    while (n > 0 && !(text && strcmp(text, words[n - 1]) == 0)) n--;
    return n - 1;
}

/* The key that is missing or holds nonsense, or NULL. */
static const char *read_all(tp_vil_cfg *c, tp_file *F)
{
    const int kind = word(F, "attn_type", kinds, sizeof kinds / sizeof *kinds);
    const int edge = word(F, "edge", edges, sizeof edges / sizeof *edges);
    int64_t shift = 0, on = 0;

    if (kind < 0) return "attn_type";
    if (edge < 0) return "edge";
    c->kind = (tp_vil_kind)kind;
    c->edge = (tp_edge)edge;
    if (!tp_file_int(F, "mode", &shift) || shift < INT8_MIN || shift > INT8_MAX) return "mode";
    c->shift = (int)shift;
    if (!tp_file_int(F, "image_height", &c->image[0])) return "image_height";
    if (!tp_file_int(F, "image_width", &c->image[1])) return "image_width";
    if (!tp_file_int(F, "num_classes", &c->classes)) return "num_classes";
    if (!tp_file_num(F, "drop_path", &c->drop_path)) return "drop_path";
    for (int i = 0; i < FLAGS; i++) {
        if (!tp_file_int(F, flags[i].key, &on) || on < 0 || on > 1) return flags[i].key;
        *(bool *)((char *)c + flags[i].at) = (on != 0) != flags[i].no;
    }
    return NULL;
}

bool tp_vil_cfg_read(tp_vil_cfg *cfg, tp_file *F, char *why, size_t size)
{
    const char *model = tp_file_meta(F, "model"), *arch = tp_file_meta(F, "arch");
    *cfg = (tp_vil_cfg){ 0 };
    if (!tp_file_ok(F)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    if (!model || strcmp(model, "vision-longformer") != 0 || !arch) {
        snprintf(why, size, "the file holds %s, not a Vision Longformer's",
                 model ? "another model's configuration" : "no configuration");
        return false;
    }
    const char *key = read_all(cfg, F);
    if (!key) return tp_vil_parse(cfg, arch, why, size) && !tp_vil_cfg_check(cfg, why, size);
    snprintf(why, size, "metadata %s: '%.60s' is no setting of a Vision Longformer", key,
             tp_file_meta(F, key) ? tp_file_meta(F, key) : "");
    return false;
}
