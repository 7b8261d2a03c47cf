/* gpt.c - decoder-only transformers, GPT-2 and the form of Llama: one network whose layers have
 * either form's parts, under the names of Hugging Face's modules. */
#include <tapegrad/gpt.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt_inner.h"
#include "inner.h"
#include "model_inner.h"

typedef enum form { GPT2, LLAMA } form;

/* ---- presets ---- */

/* clang-format off */
#define GPT2_OF(n, width, h) \
    .cfg = &(const tp_gpt_cfg){ \
        .vocab = 50257, .dim = width, .hidden = 4 * (width), .layers = n, .heads = h, \
        .positions = 1024, .eps = 1e-5, \
        .dropout = 0.1, .emb_dropout = 0.1, .att_dropout = 0.1 }
#define LLAMA_OF(v, n, width, wide, h, kv, most, tie) \
    .cfg = &(const tp_gpt_cfg){ \
        .vocab = v, .dim = width, .hidden = wide, .layers = n, .heads = h, .kv_heads = kv, \
        .positions = most, .base = 10000, .eps = 1e-5, .tied = tie }
/* clang-format on */

static const tp_model_row gpt2_presets[] = {
    { "gpt2-mini", "GPT-2",
      .cfg = &(const tp_gpt_cfg){ .vocab = 257,
                                  .dim = 128,
                                  .hidden = 512,
                                  .layers = 4,
                                  .heads = 4,
                                  .positions = 256,
                                  .eps = 1e-5 } },
    { "gpt2", "GPT-2", .also = "gpt2-small", GPT2_OF(12, 768, 12) },
    { "gpt2-medium", "GPT-2", GPT2_OF(24, 1024, 16) },
    { "gpt2-large", "GPT-2", GPT2_OF(36, 1280, 20) },
    { "gpt2-xl", "GPT-2", GPT2_OF(48, 1600, 25) },
    { 0 },
};

static const tp_model_row llama_presets[] = {
    { "llama-mini", "Llama", LLAMA_OF(257, 4, 128, 352, 4, 2, 256, true) },
    { "smollm-135m", "Llama", LLAMA_OF(49152, 30, 576, 1536, 9, 3, 2048, true) },
    { "tinyllama-1.1b", "Llama", LLAMA_OF(32000, 22, 2048, 5632, 32, 4, 2048, false) },
    { "llama-2-7b", "Llama", LLAMA_OF(32000, 32, 4096, 11008, 32, 32, 4096, false) },
    { 0 },
};

/* ---- members; the keys are those of Hugging Face's config.json ---- */

#define AT(member) offsetof(tp_gpt_cfg, member)
#define SIZE(key, member)                                                                          \
    {                                                                                              \
        key, TP_MEMBER_INT64, .at = AT(member), .least = 1, .most = TP_LM_MAX_SIZE                 \
    }
#define RATE(key, member)                                                                          \
    {                                                                                              \
        key, TP_MEMBER_RATE, .at = AT(member)                                                      \
    }
#define OUTPUTS                                                                                    \
    {                                                                                              \
        "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_OUTPUTS, .least = 1,   \
                                       .most = TP_LM_MAX_SIZE                                      \
    }
#define LAYERS(key)                                                                                \
    {                                                                                              \
        key, TP_MEMBER_INT, .at = AT(layers), .least = 1, .most = TP_LM_MAX_LAYERS                 \
    }
#define HEADS(key, member, fewest)                                                                 \
    {                                                                                              \
        key, TP_MEMBER_INT, .at = AT(member), .least = fewest, .most = 1 << 16                     \
    }
#define POSITIONS(key)                                                                             \
    {                                                                                              \
        key, TP_MEMBER_INT64, .at = AT(positions), .common = TP_COMMON_LENGTH, .least = 1,         \
                              .most = TP_LM_MAX_SIZE                                               \
    }
#define LS(key, member)                                                                            \
    {                                                                                              \
        key, TP_MEMBER_INT, .at = AT(member), .least = 0, .most = 1 << 20, .optional = true        \
    }
#define RECOMPUTE                                                                                  \
    {                                                                                              \
        .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE               \
    }

static const tp_model_member gpt2_members[] = {
    OUTPUTS,
    POSITIONS("n_positions"),
    SIZE("n_embd", dim),
    SIZE("n_inner", hidden),
    LAYERS("n_layer"),
    HEADS("n_head", heads, 1),
    { "layer_norm_epsilon", TP_MEMBER_REAL, .at = AT(eps) },
    RATE("resid_pdrop", dropout),
    RATE("embd_pdrop", emb_dropout),
    RATE("attn_pdrop", att_dropout),
    LS("ls_chunk", ls_chunk),
    LS("ls_rank", ls_rank),
    LS("ls_window", ls_window),
    RECOMPUTE,
    { .kind = TP_MEMBER_END },
};

static const tp_model_member llama_members[] = {
    OUTPUTS,
    POSITIONS("max_position_embeddings"),
    SIZE("hidden_size", dim),
    SIZE("intermediate_size", hidden),
    LAYERS("num_hidden_layers"),
    HEADS("num_attention_heads", heads, 1),
    HEADS("num_key_value_heads", kv_heads, 0),
    { "rope_theta", TP_MEMBER_REAL, .at = AT(base) },
    { "rms_norm_eps", TP_MEMBER_REAL, .at = AT(eps) },
    { "rope_factor", TP_MEMBER_REAL, .at = AT(rope_factor), .optional = true },
    { "rope_low", TP_MEMBER_REAL, .at = AT(rope_low), .optional = true },
    { "rope_high", TP_MEMBER_REAL, .at = AT(rope_high), .optional = true },
    { "rope_original", TP_MEMBER_INT64, .at = AT(rope_original), .least = 0,
      .most = INT64_C(1) << 40, .optional = true },
    { "tie_word_embeddings", TP_MEMBER_FLAG, .at = AT(tied) },
    RATE("hidden_dropout", dropout),
    RATE("embedding_dropout", emb_dropout),
    RATE("attention_dropout", att_dropout),
    LS("ls_chunk", ls_chunk),
    LS("ls_rank", ls_rank),
    LS("ls_window", ls_window),
    RECOMPUTE,
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

/* Full attention has none of the members of long-short attention. */
static void check_ls(const tp_gpt_cfg *c, char *why, size_t size)
{
    if (c->ls_chunk == 0 && (c->ls_rank || c->ls_window))
        snprintf(why, size, "long-short attention needs ls_chunk, the tokens of a chunk");
    else if (c->ls_chunk && (c->ls_chunk < 2 || c->ls_rank < 1 || c->ls_window < 1))
        snprintf(why, size,
                 "long-short attention needs chunks of at least 2 tokens, and at least 1 for "
                 "ls_rank and ls_window, not %d, %d and %d",
                 c->ls_chunk, c->ls_rank, c->ls_window);
    else if (c->ls_chunk && c->dim % 2)
        snprintf(why, size, "long-short attention needs an even width, not %lld",
                 (long long)c->dim);
    else if (c->ls_chunk && c->kv_heads > 0 && c->kv_heads != c->heads)
        snprintf(why, size,
                 "long-short attention has keys and values for each of the %d heads, not %d",
                 c->heads, c->kv_heads);
}

static bool check(const tp_model_member *members, const tp_gpt_cfg *c, form f, char *why,
                  size_t size)
{
    if (!tp__check_members(members, c, why, size)) return false;
    if (c->dim % c->heads)
        snprintf(why, size, "the width %lld does not divide into %d heads", (long long)c->dim,
                 c->heads);
    else if (!(c->eps > 0) || !isfinite(c->eps))
        snprintf(why, size, "the eps of the norms is %g, which is not positive", c->eps);
    else if (f == LLAMA && c->dim / c->heads % 2)
        snprintf(why, size, "heads of width %lld cannot be rotated, since it is odd",
                 (long long)(c->dim / c->heads));
    else if (f == LLAMA && (!(c->base > 0) || !isfinite(c->base)))
        snprintf(why, size, "theta of the rotary positions is %g, which is not positive", c->base);
    else if (!(c->rope_factor >= 0) || !isfinite(c->rope_factor) ||
             (c->rope_original > 0 &&
              !(c->rope_low >= 0 && c->rope_high > c->rope_low && isfinite(c->rope_high))))
        snprintf(why, size, "rotary positions cannot be slowed by %g between %g and %g turns",
                 c->rope_factor, c->rope_low, c->rope_high);
    else if (f == LLAMA && c->kv_heads > 0 && c->heads % c->kv_heads)
        snprintf(why, size, "%d heads cannot share %d heads of keys and values evenly", c->heads,
                 c->kv_heads);
    else
        check_ls(c, why, size);
    return !why[0];
}

static bool gpt2_check(const void *cfg, char *why, size_t size)
{
    return check(gpt2_members, cfg, GPT2, why, size);
}

static bool llama_check(const void *cfg, char *why, size_t size)
{
    return check(llama_members, cfg, LLAMA, why, size);
}

/* ---- parameters ---- */

/* Weights N(0, 0.02); GPT-2's projections back to the residual N(0, 0.02 / sqrt(2 layers)); biases
 * and norms as the modules' defaults. env: the configuration of GPT-2, NULL for Llama. */
static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    const tp_gpt_cfg *c = env;
    if (s.ndim < 2) return tp_ends_in(name, "bias") ? (tp_init){ .kind = TP_INIT_ZERO } : dflt;
    const bool back = c && tp_ends_in(name, "c_proj.weight");
    return (tp_init){ TP_INIT_NORMAL, back ? 0.02 / sqrt(2.0 * c->layers) : 0.02, 0.0 };
}

/* The names of a layer's parts. */
typedef struct layer_names {
    const char *layer, *norm1, *attn, *query, *key, *value, *out, *norm2, *mlp;
} layer_names;

static const layer_names names_of[] = {
    [GPT2] = { "h.%d", "ln_1", "attn", "q_proj", "k_proj", "v_proj", "c_proj", "ln_2", "mlp" },
    [LLAMA] = { "layers.%d", "input_layernorm", "self_attn", "q_proj", "k_proj", "v_proj", "o_proj",
                "post_attention_layernorm", "mlp" },
};

static void init_norm(tp_params *P, tp_layernorm_m *m, const char *name, const tp_gpt_cfg *c,
                      form f)
{
    tp_rmsnorm_m rms;
    if (f == GPT2) {
        tp_layernorm_init(P, m, name, c->dim, c->eps);
        return;
    }
    tp_rmsnorm_init(P, &rms, name, c->dim, c->eps);
    *m = (tp_layernorm_m){ .path = rms.path, .weight = rms.weight, .eps = rms.eps };
}

static void init_attention(tp_params *P, tp_mha_m *m, const layer_names *name, const tp_gpt_cfg *c,
                           form f)
{
    const int64_t d = c->dim, kv = c->kv_heads > 0 ? c->kv_heads * (d / c->heads) : d;
    *m = (tp_mha_m){ .path = tp_push(P, name->attn),
                     .q_norm = TP_NONE,
                     .k_norm = TP_NONE,
                     .cfg = { .attn = { .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .causal = true,
                                        .dropout = c->att_dropout },
                              .rotary = f == LLAMA,
                              .position = { .base = c->base,
                                            .factor = c->rope_factor,
                                            .low = c->rope_low,
                                            .high = c->rope_high,
                                            .original = c->rope_original } } };
    tp_linear_init(P, &m->q, name->query, d, d, f == GPT2);
    tp_linear_init(P, &m->k, name->key, d, kv, f == GPT2);
    tp_linear_init(P, &m->v, name->value, d, kv, f == GPT2);
    tp_linear_init(P, &m->out, name->out, d, d, f == GPT2);
    tp_pop(P);
}

static void init_layer(tp_params *P, tp_gpt *m, int i, form f)
{
    const layer_names *name = &names_of[f];
    const tp_gpt_cfg *c = &m->cfg;
    tp_gpt_layer *l = &m->layer[i];
    char text[32];
    snprintf(text, sizeof text, name->layer, i);
    l->path = tp_push(P, text);
    l->dropout = c->dropout;
    init_norm(P, &l->norm1, name->norm1, c, f);
    l->tables = &m->tables;
    if (c->ls_chunk)
        tp__gpt_ls_init(P, &l->ls, name->attn, c, f == GPT2);
    else
        init_attention(P, &l->attn, name, c, f);
    init_norm(P, &l->norm2, name->norm2, c, f);
    tp_push(P, name->mlp);
    if (f == GPT2)
        tp_mlp_init(P, &l->mlp, "c_fc", "c_proj", c->dim, c->hidden, TP_ACT_GELU_TANH, 0.0);
    else
        tp_glu_mlp_init(P, &l->glu, NULL, c->dim, c->hidden, false, TP_GLU_SILU, 0.0);
    tp_pop(P);
    tp_pop(P);
}

static void declare_gpt2(tp_params *P, tp_gpt *m)
{
    const tp_gpt_cfg *c = &m->cfg;
    const tp_init rule = { 0 }; /* init_rule's */
    m->tokens = tp_param(P, "wte.weight", TP_SHAPE(c->vocab, c->dim), rule, 0);
    tp_linear_tie(P, &m->head, "lm_head", m->tokens);
    m->positions = tp_param(P, "wpe.weight", TP_SHAPE(c->positions, c->dim), rule, 0);
    if (c->ls_chunk) tp__gpt_ls_tables(P, m);
    for (int i = 0; i < c->layers; i++) init_layer(P, m, i, GPT2);
    init_norm(P, &m->norm, "ln_f", c, GPT2);
}

static void declare_llama(tp_params *P, tp_gpt *m)
{
    const tp_gpt_cfg *c = &m->cfg;
    const tp_shape table = TP_SHAPE(c->vocab, c->dim);
    const tp_init rule = { 0 };
    tp_push(P, "model");
    m->tokens = tp_param(P, "embed_tokens.weight", table, rule, c->tied ? 0 : TP_TABLE);
    if (c->ls_chunk) tp__gpt_ls_tables(P, m);
    for (int i = 0; i < c->layers; i++) init_layer(P, m, i, LLAMA);
    init_norm(P, &m->norm, "norm", c, LLAMA);
    tp_pop(P);
    m->positions = TP_NONE;
    if (c->tied)
        tp_linear_tie(P, &m->head, "lm_head", m->tokens);
    else
        tp_linear_init(P, &m->head, "lm_head", c->dim, c->vocab, false);
}

static void init(tp_params *P, tp_gpt *m, const char *name, const tp_gpt_cfg *cfg, form f)
{
    char why[256];
    *m = (tp_gpt){ .params = P, .cfg = *cfg };
    if (!(f == GPT2 ? gpt2_check : llama_check)(cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "%s: %s", f == GPT2 ? "GPT-2" : "Llama", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, f == GPT2 ? &m->cfg : NULL);
    if (f == GPT2)
        declare_gpt2(P, m);
    else
        declare_llama(P, m);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

static void gpt2_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    init(P, m, name, cfg, GPT2);
}

static void llama_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    init(P, m, name, cfg, LLAMA);
}

/* ---- forward ---- */

/* The attention's result for normalised h [B,n,d]; cache: NULL, or those of layer i. */
static tp_tensor attend(tp_tape *T, const tp_gpt_layer *l, tp_gpt_cache *cache, int i, tp_tensor h)
{
    if (l->ls.path)
        return cache ? tp__gpt_ls_decode(T, &l->ls, l->tables, &cache->ls[i], cache->room,
                                         cache->filled, h)
                     : tp__gpt_ls_forward(T, &l->ls, l->tables, h);
    return cache ? tp_mha_decode(T, &l->attn, &cache->layer[i], h, TP_NONE)
                 : tp_mha_forward(T, &l->attn, h, TP_NONE);
}

static bool is_llama(const tp_gpt *m)
{
    return !tp_given(m->positions);
}

/* RMS norms have no bias. */
static tp_tensor normalise(tp_tape *T, const tp_layernorm_m *m, tp_tensor x)
{
    const tp_rmsnorm_m rms = { m->path, m->weight, m->eps };
    return tp_given(m->bias) ? tp_layernorm_forward(T, m, x) : tp_rmsnorm_forward(T, &rms, x);
}

/* Layer i on x [B,n,d]; cache: NULL, or the tokens before x. As in the official modules, the
 * hidden layer of the MLP is not dropped. */
static tp_tensor run_layer(tp_tape *T, const tp_gpt_layer *l, tp_gpt_cache *cache, int i,
                           tp_tensor x)
{
    const bool drops = l->dropout > 0; /* else the MLP adds x in its last pass */
    tp_enter(T, l->path);
    tp_tensor h = normalise(T, &l->norm1, x);
    h = attend(T, l, cache, i, h);
    x = tp_dropout_add(T, h, TP_NONE, x, l->dropout);
    h = normalise(T, &l->norm2, x);
    const tp_tensor to = drops ? TP_NONE : x;
    h = l->mlp.path ? tp_mlp_forward(T, &l->mlp, h, to) : tp_glu_mlp_forward(T, &l->glu, h, to);
    return tp_leave(T, drops ? tp_dropout_add(T, h, TP_NONE, x, l->dropout) : h);
}

static tp_tensor recomputed_layer(tp_tape *T, const void *layer, tp_tensor x)
{
    return run_layer(T, layer, NULL, 0, x);
}

/* False, with T failed, unless ids [B,n] are the tokens from `before` on of texts that the model
 * can take. */
static bool may_take(tp_tape *T, const tp_gpt *m, tp_tensor ids, int64_t before)
{
    if (!tp__lm_check_input(T, m->params, ids, TP_NONE)) return false;
    const int64_t all = before + tp_dim(ids, 1);
    if (all > m->cfg.positions)
        tp_raise_here(T, TP_E_SHAPE, "a text has %lld tokens, but the model has %lld positions",
                      (long long)all, (long long)m->cfg.positions);
    return tp_ok(T);
}

/* The layers' input [B,n,d] for tokens from `before` on. */
static tp_tensor embed(tp_tape *T, const tp_gpt *m, tp_tensor ids, int64_t before)
{
    tp_tensor x = tp_embedding(T, m->tokens, ids, 1.0);
    if (!is_llama(m)) x = tp_add(T, x, tp_slice(T, m->positions, 0, before, tp_dim(ids, 1)));
    return tp_dropout(T, tp_cast(T, x, tp_compute_dtype(T)), m->cfg.emb_dropout);
}

static tp_tensor logits(tp_tape *T, const tp_gpt *m, tp_tensor x)
{
    return tp_linear_forward(T, &m->head, normalise(T, &m->norm, x));
}

tp_tensor tp_gpt_forward(tp_tape *T, const tp_gpt *m, tp_tensor ids)
{
    if (!tp_want_module(T, m, "gpt")) return TP_NONE;
    tp_enter(T, m->path);
    if (!may_take(T, m, ids, 0)) return tp_leave(T, TP_NONE);
    tp_tensor x = embed(T, m, ids, 0);
    for (int i = 0; i < m->cfg.layers; i++)
        x = m->cfg.recompute == TP_RECOMPUTE_BLOCK
                ? tp_checkpoint(T, recomputed_layer, &m->layer[i], x)
                : run_layer(T, &m->layer[i], NULL, i, x);
    return tp_leave(T, logits(T, m, x));
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor ids)
{
    (void)state;
    return tp_gpt_forward(T, m, ids);
}

/* ---- decoding ---- */

tp_tensor tp_gpt_decode(tp_tape *T, const tp_gpt *m, tp_gpt_cache *cache, tp_tensor ids)
{
    if (!tp_want_module(T, m, "gpt") || !tp_want(T, cache, "gpt", "a cache")) return TP_NONE;
    tp_enter(T, m->path);
    if (tp_is_training(T))
        return tp_leave(T, tp_raise_here(T, TP_E_STATE,
                                         "gpt: decoding would drop; call tp_train(T, false) "
                                         "before"));
    if (!may_take(T, m, ids, cache->filled)) return tp_leave(T, TP_NONE);
    tp_tensor x = embed(T, m, ids, cache->filled);
    for (int i = 0; i < m->cfg.layers; i++) {
        cache->layer[i].room = cache->room;
        cache->layer[i].filled = cache->filled; /* also after a call that failed half way */
        x = run_layer(T, &m->layer[i], cache, i, x);
    }
    x = logits(T, m, x);
    if (tp_ok(T)) cache->filled += tp_dim(ids, 1);
    return tp_leave(T, x);
}

void tp_gpt_cache_free(tp_tape *T, tp_gpt_cache *cache)
{
    for (int i = 0; cache && i < TP_LM_MAX_LAYERS; i++) {
        tp_kv_cache_free(T, &cache->layer[i]);
        tp__gpt_ls_free(T, &cache->ls[i]);
    }
    if (cache) cache->filled = 0;
}

/* ---- Hugging Face's files ---- */

/* Writes `from` with its ending replaced. */
static void respell(char *to, size_t size, const char *from, const char *ending, const char *ours)
{
    snprintf(to, size, "%.*s%s", (int)(strlen(from) - strlen(ending)), from, ours);
}

/* Replaces c_attn by the projections of queries, keys and values, or a matrix by its transpose. */
static bool divide(tp_file *F, const tp_file_tensor *t, const char *ending, int parts, bool turn)
{
    static const char *const ours[] = { "q_proj", "k_proj", "v_proj" };
    char name[512], names[3][520], end[64];
    tp_file_part part[3];
    const int64_t rows = t->shape.ndim ? t->shape.dim[turn && t->shape.ndim == 2] : 0;
    snprintf(name, sizeof name, "%s", t->name);
    for (int i = 0; i < parts; i++) {
        snprintf(end, sizeof end, ".attn.%s.%s", ours[i], strrchr(ending, '.') + 1);
        respell(names[i], sizeof names[i], name, ending, parts == 1 ? ending : end);
        const int64_t first = rows / parts * i,
                      end_row = i + 1 < parts ? first + rows / parts : rows;
        part[i] = (tp_file_part){ names[i], first, end_row - first, turn };
    }
    return tp_file_split(F, name, part, parts);
}

/* Does F have GPT-2's layout? *turn: whether its matrices are [inputs,outputs], as those of nanoGPT
 * are not. */
static bool is_fused(const tp_file *F, bool *turn)
{
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        if (!tp_ends_in(t->name, ".attn.c_attn.weight")) continue;
        *turn = t->shape.ndim != 2 || t->shape.dim[0] != 3 * t->shape.dim[1];
        return true;
    }
    return false;
}

static bool gpt2_adapt(tp_file *F)
{
    static const struct {
        const char *ending;
        int parts;
        bool matrix;
    } kinds[] = { { ".attn.c_attn.weight", 3, true },
                  { ".attn.c_attn.bias", 3, false },
                  { ".attn.c_proj.weight", 1, true },
                  { ".mlp.c_fc.weight", 1, true },
                  { ".mlp.c_proj.weight", 1, true } };
    bool turn;
    if (!is_fused(F, &turn)) return true;
    for (int i = tp_file_count(F) - 1; i >= 0; i--) /* parts are added at the end */
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const tp_file_tensor *t = tp_file_at(F, i);
            if (!tp_ends_in(t->name, kinds[k].ending)) continue;
            if (!divide(F, t, kinds[k].ending, kinds[k].parts, turn && kinds[k].matrix))
                return false;
            break;
        }
    return tp_file_ok(F);
}

/* Masks, and a prefix that the head lacks. */
static const tp_spelling gpt2_spellings[] = {
    { "attn.bias", NULL },
    { "masked_bias", NULL },
    { "transformer.", "" },
    { 0 },
};

static const tp_spelling llama_spellings[] = {
    { "inv_freq", NULL },
    { 0 },
};

/* A head of its own, where the file is of a tied model. */
static bool llama_may_lack(const char *name)
{
    return strcmp(name, "lm_head.weight") == 0;
}

/* A head that the file lacks starts as the embedding. */
static bool llama_fill(tp_params *P, const void *module, const tp_file *F)
{
    const tp_gpt *m = module;
    if (m->cfg.tied || tp_file_find(F, "lm_head.weight")) return tp_params_ok(P);
    const size_t bytes = (size_t)(m->cfg.vocab * m->cfg.dim) * sizeof(double);
    void *values = malloc(bytes);
    if (!values) tp_params_raise(P, TP_E_MEMORY, "lm_head.weight: out of host memory");
    const bool done = values && tp_param_get(P, m->tokens, TP_F64, values, bytes) &&
                      tp_param_set(P, m->head.weight, TP_F64, values, bytes);
    free(values);
    return done;
}

/* ---- the models ---- */

const tp_model tp_model_gpt2 = {
    .name = "gpt2",
    .input = TP_TOKENS,
    .cfg_size = sizeof(tp_gpt_cfg),
    .size = sizeof(tp_gpt),
    .presets = gpt2_presets,
    .check = gpt2_check,
    .members = gpt2_members,
    .init = gpt2_init,
    .forward = model_forward,
    .head = "wte.weight",
    .adapt = gpt2_adapt,
    .spellings = gpt2_spellings,
};

const tp_model tp_model_llama = {
    .name = "llama",
    .input = TP_TOKENS,
    .cfg_size = sizeof(tp_gpt_cfg),
    .size = sizeof(tp_gpt),
    .presets = llama_presets,
    .check = llama_check,
    .members = llama_members,
    .init = llama_init,
    .forward = model_forward,
    .head = "model.embed_tokens.weight",
    .spellings = llama_spellings,
    .may_lack = llama_may_lack,
    .fill = llama_fill,
};
