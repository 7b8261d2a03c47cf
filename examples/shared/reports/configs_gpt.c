/* configs_gpt.c - GPT-2 and Llama as transformers' config.json describes them, and adaptations as
 * peft's adapter_config.json does. What they leave out has the package's default; what is not built
 * is refused. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/gpt.h>
#include <tapegrad/lora.h>

#include "configs.h"

/* A configuration, and why it cannot be taken. */
typedef struct reading {
    const json_t *all;
    const char *path;
    char *why;
    size_t size;
} reading;

/* Keeps the first reason: the path, what is wrong, what to do. */
TP_PRINTF(3, 4)
static void refuse(const reading *r, const char *advice, const char *format, ...)
{
    va_list list;
    char text[400];
    if (r->why[0]) return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    snprintf(r->why, r->size, "%s: %s; %s", r->path, text, advice);
}

#define WRONG(r, ...) refuse(r, "correct it, or put the publisher's file there", __VA_ARGS__)

static const json_t *given(const json_t *all, const char *key)
{
    const json_t *x = json_object_get(all, key);
    return x && !json_is_null(x) ? x : NULL;
}

/* A number, or `otherwise` if there is none. */
static double number(const reading *r, const json_t *all, const char *key, double otherwise)
{
    const json_t *x = given(all, key);
    if (!x) return otherwise;
    if (!json_is_number(x)) WRONG(r, "'%s' is no number", key);
    return json_number_value(x);
}

/* The same as a whole one; otherwise 0: it has no default. */
static int64_t whole_of(const reading *r, const json_t *all, const char *key, double otherwise)
{
    const double x = number(r, all, key, otherwise);
    const bool is_given = given(all, key);
    if (is_given ? x >= 1 && x <= 1e9 && x == (double)(int64_t)x : otherwise > 0) return (int64_t)x;
    WRONG(r, "'%s' is %s", key, is_given ? "no whole number from 1 to 1e9" : "missing");
    return 1;
}

static int64_t whole(const reading *r, const char *key, double otherwise)
{
    return whole_of(r, r->all, key, otherwise);
}

static bool flag(const reading *r, const char *key, bool otherwise)
{
    const json_t *x = given(r->all, key);
    if (!x) return otherwise;
    if (!json_is_boolean(x)) WRONG(r, "'%s' is neither true nor false", key);
    return json_is_true(x);
}

#define OTHERS "choose other weights"

/* Refuses a flag that is not `built`. */
static void want_flag(const reading *r, const char *key, bool built)
{
    if (flag(r, key, built) != built)
        refuse(r, OTHERS, "%s = %s is not supported", key, built ? "false" : "true");
}

/* Refuses a word that is not among those, separated by blanks. */
static void want_word(const reading *r, const json_t *all, const char *key, const char *words)
{
    const json_t *x = given(all, key);
    const char *word = json_string_value(x);
    const size_t n = word && !strchr(word, ' ') ? strlen(word) : 0;
    if (x && !word) WRONG(r, "'%s' is no text", key);
    for (const char *at = words; at && n; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ' ' || !at[n])) return;
    if (word) refuse(r, OTHERS, "%s '%.40s' is not supported; what is: %s", key, word, words);
}

/* ---- GPT-2 ---- */

static tp_gpt_cfg gpt2(const reading *r)
{
    want_word(r, r->all, "activation_function", "gelu_new gelu_pytorch_tanh");
    want_flag(r, "scale_attn_weights", true);
    want_flag(r, "scale_attn_by_inverse_layer_idx", false);
    want_flag(r, "add_cross_attention", false);
    want_flag(r, "tie_word_embeddings", true);
    const int64_t dim = whole(r, "n_embd", 768);
    return (tp_gpt_cfg){ .vocab = whole(r, "vocab_size", 50257),
                         .dim = dim,
                         .hidden = whole(r, "n_inner", 4.0 * (double)dim),
                         .layers = (int)whole(r, "n_layer", 12),
                         .heads = (int)whole(r, "n_head", 12),
                         .positions = whole(r, "n_positions", 1024),
                         .eps = number(r, r->all, "layer_norm_epsilon", 1e-5),
                         .dropout = number(r, r->all, "resid_pdrop", 0.1),
                         .emb_dropout = number(r, r->all, "embd_pdrop", 0.1),
                         .att_dropout = number(r, r->all, "attn_pdrop", 0.1) };
}

/* ---- Llama ---- */

/* Older files have rope_theta, and rope_scaling only if positions are scaled. */
static void rotary(const reading *r, tp_gpt_cfg *c)
{
    const json_t *rope = given(r->all, "rope_parameters");
    if (!rope) rope = given(r->all, "rope_scaling");
    if (rope && !json_is_object(rope))
        WRONG(r, "'%s' is no object",
              given(r->all, "rope_parameters") ? "rope_parameters" : "rope_scaling");
    const char *key = given(rope, "rope_type") ? "rope_type" : "type";
    const char *type = json_string_value(json_object_get(rope, key));
    c->base = number(r, rope, "rope_theta", number(r, r->all, "rope_theta", 10000));
    want_word(r, rope, key, "default linear llama3");
    if (!type || strcmp(type, "default") == 0) return;
    c->rope_factor = number(r, rope, "factor", 0);
    if (!(c->rope_factor > 0)) WRONG(r, "the factor of '%.40s' is not positive", type);
    if (strcmp(type, "llama3") != 0) return;
    c->rope_low = number(r, rope, "low_freq_factor", 0);
    c->rope_high = number(r, rope, "high_freq_factor", 0);
    c->rope_original = whole_of(r, rope, "original_max_position_embeddings", 0);
}

static tp_gpt_cfg llama(const reading *r)
{
    want_word(r, r->all, "hidden_act", "silu");
    want_flag(r, "attention_bias", false);
    want_flag(r, "mlp_bias", false);
    tp_gpt_cfg c = { .vocab = whole(r, "vocab_size", 32000),
                     .dim = whole(r, "hidden_size", 4096),
                     .hidden = whole(r, "intermediate_size", 11008),
                     .layers = (int)whole(r, "num_hidden_layers", 32),
                     .heads = (int)whole(r, "num_attention_heads", 32),
                     .positions = whole(r, "max_position_embeddings", 2048),
                     .eps = number(r, r->all, "rms_norm_eps", 1e-6),
                     .tied = flag(r, "tie_word_embeddings", false),
                     .att_dropout = number(r, r->all, "attention_dropout", 0) };
    c.kv_heads = (int)whole(r, "num_key_value_heads", c.heads);
    const int64_t size = whole(r, "head_dim", 1);
    if (given(r->all, "head_dim") && size * c.heads != c.dim)
        refuse(r, OTHERS, "%d heads of %lld are not the width %lld, which is needed", c.heads,
               (long long)size, (long long)c.dim);
    rotary(r, &c);
    return c;
}

bool config_gpt(tp_model_cfg *c, const tp_file *F, char *why, size_t size)
{
    char path[4400], reason[512];
    *c = (tp_model_cfg){ .model = NULL };
    json_t *all = config_beside(tp_file_path(F), "--model", path, sizeof path, why, size);
    if (!all) return !why[0];
    const reading r = { all, path, why, size };
    const char *type = json_string_value(json_object_get(all, "model_type"));
    const bool is_llama = type && strcmp(type, "llama") == 0;
    want_word(&r, all, "model_type", "gpt2 llama");
    if (!type) WRONG(&r, "'model_type' is missing");
    if (!why[0]) {
        const tp_gpt_cfg g = is_llama ? llama(&r) : gpt2(&r);
        *c = tp_model_cfg_of(is_llama ? &tp_model_llama : &tp_model_gpt2, &g);
    }
    json_decref(all);
    if (!why[0] && !tp_model_check(c, reason, sizeof reason)) WRONG(&r, "%s", reason);
    return !why[0];
}

/* ---- adaptations ---- */

/* Refuses a part that is neither false nor empty. */
static void want_none(const reading *r, const char *key)
{
    const json_t *x = given(r->all, key);
    const bool none = !x || json_is_false(x) || (json_is_object(x) && json_object_size(x) == 0) ||
                      (json_is_array(x) && json_array_size(x) == 0);
    if (!none) refuse(r, OTHERS, "'%s' is not supported", key);
}

/* fan_in_fan_out needs no look: the factors are stored alike with both, and weights as [out,in]. */
static double adapter_alpha(const reading *r, const tp_file *F)
{
    static const char *const no[] = { "use_dora",          "use_qalora",
                                      "lora_bias",         "rank_pattern",
                                      "alpha_pattern",     "alora_invocation_tokens",
                                      "layer_replication", "use_bdlora",
                                      "kasa_config",       "arrow_config",
                                      "monteclora_config" };
    want_word(r, r->all, "peft_type", "LORA");
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) want_none(r, no[i]);
    if (!json_is_boolean(given(r->all, "init_lora_weights"))) /* others change the weights, too */
        want_word(r, r->all, "init_lora_weights", "gaussian orthogonal eva");
    const int64_t rank = whole(r, "r", 8);
    const double alpha = number(r, r->all, "lora_alpha", 8);
    const double scaled = flag(r, "use_rslora", false) ? alpha * sqrt((double)rank) : alpha;
    if (!(alpha > 0) || !isfinite(scaled)) WRONG(r, "'lora_alpha' is not positive, or too large");
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        const char *a = strstr(t->name, ".lora_A.weight");
        if (a && t->shape.ndim > 0 && t->shape.dim[0] != rank)
            WRONG(r, "r is %lld, but %.200s in %.100s has rank %lld", (long long)rank, t->name,
                  tp_file_path(F), (long long)t->shape.dim[0]);
    }
    return scaled;
}

bool config_adapter(const tp_file *F, double *alpha, char *why, size_t size)
{
    char path[4400];
    why[0] = '\0';
    *alpha = 0;
    if (tp_file_meta(F, "lora.alpha")) return true;
    json_t *all = description_beside(tp_file_path(F), "adapter_config.json", NULL, path,
                                     sizeof path, why, size);
    const reading r = { all, path, why, size };
    if (all)
        *alpha = adapter_alpha(&r, F);
    else if (!why[0])
        snprintf(why, size,
                 "%s does not say its alpha, nor does an adapter_config.json beside it: put the "
                 "one that peft wrote there",
                 tp_file_path(F));
    json_decref(all);
    return !why[0];
}
