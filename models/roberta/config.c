/* config.c - RoBERTa's presets, members and checks, published weight names, and loading for another
 * attention, length or head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

/* ---- presets: NAME-SIZE, NAME-SIZE-mlm ---- */

static const struct {
    const char *name;
    tp_roberta_kind kind;
    int64_t length, window, rank;
} kinds[] = {
    { "roberta", TP_ROBERTA_FULL, 512, 0, 0 },
    { "longformer", TP_ROBERTA_LONGFORMER, 4096, 512, 0 },
    { "roberta_ls", TP_ROBERTA_LS, 4096, 256, 64 },
};

static const struct {
    const char *name;
    int layers, heads;
    int64_t dim, vocab;
} sizes[] = { { "base", 12, 12, 768, 50265 },
              { "large", 24, 16, 1024, 50265 },
              { "mini", 4, 4, 256, 8000 } };

bool tp__roberta_preset(void *cfg, const char *name, char *why, size_t size)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            char whole[64];
            snprintf(whole, sizeof whole, "%s-%s", kinds[k].name, sizes[s].name);
            const size_t n = strlen(whole);
            const bool mlm = strncmp(name, whole, n) == 0 && strcmp(name + n, "-mlm") == 0;
            if (strcmp(name, whole) != 0 && !mlm) continue;
            *(tp_roberta_cfg *)cfg =
                (tp_roberta_cfg){ .kind = kinds[k].kind,
                                  .head = mlm ? TP_ROBERTA_MLM : TP_ROBERTA_CLS,
                                  .layers = sizes[s].layers,
                                  .heads = sizes[s].heads,
                                  .dim = sizes[s].dim,
                                  .hidden = 4 * sizes[s].dim,
                                  .vocab = sizes[s].vocab,
                                  .length = kinds[k].length,
                                  .classes = 2,
                                  .window = kinds[k].window,
                                  .rank = kinds[k].rank,
                                  .dropout = 0.1,
                                  .attention_dropout = 0.1 };
            return true;
        }
    snprintf(why, size, "no model of text is called '%.80s'", name);
    return false;
}

/* RoBERTa, Longformer and long-short RoBERTa, as classifiers. */
const tp_model_row tp__roberta_presets[] = {
    { "roberta-base", "RoBERTa", .also = "roberta RoBERTa-base" },
    { "roberta-large", "RoBERTa", .also = "RoBERTa-large" },
    { "longformer-base", "Longformer", .also = "longformer Longformer-base" },
    { "longformer-large", "Longformer", .also = "Longformer-large" },
    { "roberta_ls-base", "long-short RoBERTa", .also = "roberta_ls roberta-ls-base" },
    { "roberta_ls-large", "long-short RoBERTa", .also = "roberta-ls-large" },
    { "roberta-mini", "RoBERTa", .also = NULL },
    { "longformer-mini", "Longformer", .also = NULL },
    { "roberta_ls-mini", "long-short RoBERTa", .also = NULL },
    { 0 },
};

/* ---- members and the check ---- */

enum { MOST = 1 << 20, MOST_WORDS = 1 << 24 }; /* no overflow */

static const char *const attentions[] = { "full", "longformer", "ls", NULL };
static const char *const heads[] = { "cls", "mlm", NULL };

#define AT(member) offsetof(tp_roberta_cfg, member)
const tp_model_member tp__roberta_members[] = {
    { "attention_type", TP_MEMBER_WORD, .at = AT(kind), .words = attentions },
    { "head", TP_MEMBER_WORD, .at = AT(head), .words = heads },
    { "num_hidden_layers", TP_MEMBER_INT, .at = AT(layers), .least = 1,
      .most = TP_ROBERTA_MAX_LAYERS },
    { "num_attention_heads", TP_MEMBER_INT, .at = AT(heads), .least = 1, .most = MOST },
    { "hidden_size", TP_MEMBER_INT64, .at = AT(dim), .least = 1, .most = MOST },
    { "intermediate_size", TP_MEMBER_INT64, .at = AT(hidden), .least = 1, .most = MOST },
    { "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_VOCAB, .least = 5,
      .most = MOST_WORDS },
    { "max_tokens", TP_MEMBER_INT64, .at = AT(length), .common = TP_COMMON_LENGTH, .least = 1,
      .most = MOST },
    { "num_labels", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 0,
      .most = MOST },
    { "window", TP_MEMBER_INT64, .at = AT(window), .least = 0, .most = MOST },
    { "num_landmarks", TP_MEMBER_INT64, .at = AT(rank), .least = 0, .most = MOST },
    { "dual_ln", TP_MEMBER_NOT, .at = AT(raw_kv) },
    { "pooler", TP_MEMBER_NOT, .at = AT(no_pooler) },
    { "hidden_dropout_prob", TP_MEMBER_RATE, .at = AT(dropout) },
    { "attention_probs_dropout_prob", TP_MEMBER_RATE, .at = AT(attention_dropout) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

bool tp__roberta_check(const void *cfg, char *why, size_t size)
{
    const tp_roberta_cfg *c = cfg;
    if (!tp__check_members(tp__roberta_members, c, why, size)) return false;
    if (c->dim % c->heads)
        snprintf(why, size, "%d heads do not divide the width %lld", c->heads, (long long)c->dim);
    else if (c->head == TP_ROBERTA_CLS && c->classes == 0)
        snprintf(why, size, "there are no classes");
    else if (c->kind == TP_ROBERTA_LONGFORMER && (c->window < 2 || c->window % 2))
        snprintf(why, size, "Longformer's window of %lld tokens is not even and at least 2",
                 (long long)c->window);
    return !why[0];
}

/* ---- published files ---- */

/* Longformer, bare encoders ("embeddings.") and fairseq, which lacks our prefix. */
const tp_spelling tp__roberta_spellings[] = {
    { "longformer.", "roberta." },
    { "decoder.sentence_encoder.", "roberta." },
    { "encoder.sentence_encoder.", "roberta." },
    { "embed_tokens.", "embeddings.word_embeddings." },
    { "embed_positions.", "embeddings.position_embeddings." },
    { "layernorm_embedding.", "embeddings.LayerNorm." },
    { "emb_layer_norm.", "embeddings.LayerNorm." },
    { "roberta.layers.", "roberta.encoder.layer." },
    { ".self_attn.q_proj.", ".attention.self.query." },
    { ".self_attn.k_proj.", ".attention.self.key." },
    { ".self_attn.v_proj.", ".attention.self.value." },
    { ".self_attn.out_proj.", ".attention.output.dense." },
    { ".self_attn_layer_norm.", ".attention.output.LayerNorm." },
    { ".fc1.", ".intermediate.dense." },
    { ".fc2.", ".output.dense." },
    { ".final_layer_norm.", ".output.LayerNorm." },
    { "decoder.lm_head.", "lm_head." },
    { "encoder.lm_head.", "lm_head." },
    { "lm_head.weight", "lm_head.decoder.weight" },
    { "LayerNorm.gamma", "LayerNorm.weight" },
    { "LayerNorm.beta", "LayerNorm.bias" },
    { "position_ids", NULL },
    { 0 },
};

/* ---- weights ---- */

/* May a file lack the parameter or, if `shaped`, have another shape? It keeps its initial values or
 * is filled from others. */
static bool may_differ(const char *name, bool shaped)
{
    static const char *const parts[] = { "classifier.", "position_embeddings.", NULL };
    static const char *const lacking[] = { "_global.",      ".dconv_fc.",
                                           ".dual_ln_",     "lm_head.",
                                           "pooler.dense.", "token_type_embeddings.",
                                           "classifier.",   NULL };
    for (const char *const *p = shaped ? parts : lacking; *p; p++)
        if (strstr(name, *p)) return true;
    return false;
}

static const char *print_shape(const tp_shape *s, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < s->ndim && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? "," : "", (long long)s->dim[i]);
    return text;
}

static bool refuse(tp_params *P, const tp_file *F, const char *name, const tp_file_tensor *t,
                   const tp_shape *here)
{
    char there[128], wanted[128];
    if (t)
        tp_params_refuse(P, TP_E_IO,
                         "%s: %s has the shape [%s], not [%s]; is it a model of this size?",
                         tp_file_path(F), name, print_shape(&t->shape, there, sizeof there),
                         print_shape(here, wanted, sizeof wanted));
    else
        tp_params_refuse(P, TP_E_IO, "%s: %s is missing; is it a file of this kind of model?",
                         tp_file_path(F), name);
    return false;
}

/* Refuses files with more layers than m. */
static bool check_layers(tp_params *P, const tp_roberta *m, const tp_file *F)
{
    char name[256];
    snprintf(name, sizeof name, "%s", m->layer[0].attention_norm.path);
    char *number = strstr(name, "encoder.layer.0.");
    if (!number) return true;
    number += strlen("encoder.layer.");
    snprintf(number, (size_t)(name + sizeof name - number), "%d.", m->cfg.layers);
    for (int i = 0; i < tp_file_count(F); i++)
        if (strncmp(tp_file_at(F, i)->name, name, strlen(name)) == 0) {
            char shown[400];
            return tp_params_refuse(P, TP_E_IO, "%s has more than the model's %d layers: %s",
                                    tp_file_path(F), m->cfg.layers,
                                    tp_plain(tp_file_at(F, i)->name, shown, sizeof shown));
        }
    return true;
}

static bool check_file(tp_params *P, const tp_roberta *m, const tp_file *F)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        if (it.alias_of || (!t && (may_differ(it.name, false) || tp_lora_is_name(it.name))))
            continue;
        if (t && t->code != TP_OK) {
            tp_params_raise(P, t->code, "%s: tensor '%s' %s", tp_file_path(F), it.name, t->why);
            return false;
        }
        if (t && (tp__equal_shapes(&t->shape, &it.shape) || may_differ(it.name, true))) continue;
        return refuse(P, F, it.name, t, &it.shape);
    }
    return check_layers(P, m, F);
}

/* Returns the file's positions; *fit: same number as here. NULL, with the refusal set, if
 * unusable. */
static const tp_file_tensor *find_positions(tp_params *P, const tp_roberta *m, const tp_file *F,
                                            bool *fit)
{
    char name[256];
    snprintf(name, sizeof name, "%s.weight", m->positions.path);
    const tp_file_tensor *t = tp_file_find(F, name);
    const int64_t rows = m->cfg.length + 2, d = m->cfg.dim;
    const bool table = t && t->shape.ndim == 2 && t->shape.dim[1] == d;
    *fit = table && t->shape.dim[0] == rows;
    if (*fit || (table && t->shape.dim[0] >= 3)) return t;
    tp_params_refuse(P, TP_E_IO, "%s: %s has no rows of %lld numbers", tp_file_path(F), name,
                     (long long)d);
    return NULL;
}

/* Keeps rows 0 and 1; row 2 + i is the file's row 2 + i mod (its rows - 2). */
static bool load_positions(tp_params *P, const tp_roberta *m, tp_file *F)
{
    bool fit;
    const tp_file_tensor *t = find_positions(P, m, F, &fit);
    const int64_t rows = m->cfg.length + 2, d = m->cfg.dim;
    if (!t || fit) return fit;
    const int64_t old = t->shape.dim[0];
    double *x = malloc((size_t)(old * d) * sizeof *x), *y = malloc((size_t)(rows * d) * sizeof *y);
    bool ok = x && y && tp_file_read(F, t, TP_F64, x);
    for (int64_t i = 0; ok && i < rows; i++) {
        const int64_t from = i < 2 ? i : 2 + (i - 2) % (old - 2);
        memcpy(y + i * d, x + from * d, (size_t)d * sizeof *y);
    }
    if (!ok)
        tp_params_raise(P, x && y ? TP_E_IO : TP_E_MEMORY, "%s",
                        x && y ? tp_file_why(F) : "positions: out of memory");
    ok = ok && tp_param_set(P, m->positions.weight, TP_F64, y, (size_t)(rows * d) * sizeof *y);
    free(x);
    free(y);
    return ok;
}

static bool copy(tp_params *P, tp_tensor from, tp_tensor to)
{
    const size_t bytes = (size_t)tp_numel(from) * sizeof(double);
    double *x = malloc(bytes);
    if (!x) tp_params_raise(P, TP_E_MEMORY, "global projections: out of memory");
    const bool ok =
        x && tp_param_get(P, from, TP_F64, x, bytes) && tp_param_set(P, to, TP_F64, x, bytes);
    free(x);
    return ok;
}

static bool copy_linear(tp_params *P, const tp_linear_m *from, const tp_linear_m *to)
{
    return copy(P, from->weight, to->weight) && copy(P, from->bias, to->bias);
}

bool tp_roberta_copy_global(tp_params *P, const tp_roberta *m)
{
    if (!m) {
        tp_params_raise(P, TP_E_STATE, "roberta_copy_global: NULL was given in place of a module");
        return false;
    }
    bool ok = tp_params_ok(P);
    for (int i = 0; ok && m->cfg.kind == TP_ROBERTA_LONGFORMER && i < m->cfg.layers; i++) {
        const tp_longformer_m *a = &m->layer[i].window;
        ok = copy_linear(P, &a->query, &a->query_global) &&
             copy_linear(P, &a->key, &a->key_global) && copy_linear(P, &a->value, &a->value_global);
    }
    return ok;
}

/* Does the file have global projections? False, with the refusal set, if some are missing. */
static bool has_global(tp_params *P, const tp_file *F, bool *some)
{
    char lacking[256] = "";
    bool there = false;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        if (!strstr(it.name, "_global.") || tp_lora_is_name(it.name)) continue;
        if (tp_file_find(F, it.name))
            there = true;
        else if (!*lacking)
            snprintf(lacking, sizeof lacking, "%s", it.name);
    }
    *some = there;
    return !there || !*lacking ||
           tp_params_refuse(P, TP_E_IO,
                            "%s: %s is missing, though other global projections are there",
                            tp_file_path(F), lacking);
}

static bool has(const tp_file *F, const char *path)
{
    char name[256];
    snprintf(name, sizeof name, "%s.weight", path);
    return tp_file_find(F, name);
}

bool tp__roberta_may_lack(const char *name)
{
    return strstr(name, "pooler.dense.") || strstr(name, "token_type_embeddings.");
}

bool tp__roberta_fill(tp_params *P, const void *model, const tp_file *F)
{
    const tp_roberta *m = model;
    if (has(F, m->types.path)) return true;
    const size_t bytes = (size_t)m->cfg.dim * sizeof(double);
    double *zero = calloc(1, bytes);
    if (!zero) tp_params_raise(P, TP_E_MEMORY, "%s: out of memory", m->types.path);
    const bool ok = zero && tp_param_set(P, m->types.weight, TP_F64, zero, bytes);
    free(zero);
    return ok;
}

bool tp__roberta_load(tp_params *P, const void *module, tp_file *F)
{
    const tp_roberta *m = module;
    bool global, fit;
    const tp_load_opts o = { .partial = true, .convert = true };
    return tp_params_ok(P) && check_file(P, m, F) && has_global(P, F, &global) &&
           find_positions(P, m, F, &fit) && tp_params_read(P, F, "", &o) &&
           load_positions(P, m, F) && (global || tp_roberta_copy_global(P, m)) &&
           tp__roberta_fill(P, m, F);
}

bool tp__roberta_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    return strstr(name, "position_embeddings.") && here->ndim == 2 && there->ndim == 2 &&
           here->dim[1] == there->dim[1] && there->dim[0] > 2;
}
