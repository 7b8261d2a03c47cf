/* text_model.c - the model, from presets, our files, or published files with a config.json, and its
 * changes by flags. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/nearest.h>
#include <unistd.h>

#include "imdb.h"
#include "reports/configs.h"

/* ---- the config.json beside a published file ---- */

/* A number, or the first of a list by layer. */
static int64_t number(const json_t *all, const char *key)
{
    const json_t *x = json_object_get(all, key);
    if (json_is_array(x)) x = json_array_get(x, 0);
    return json_is_integer(x) ? json_integer_value(x) : 0;
}

/* All text models compute the exact GELU. */
static bool check_activation(const json_t *all, const char *path, char *why, size_t size)
{
    const char *name = json_string_value(json_object_get(all, "hidden_act"));
    if (!name || strcmp(name, "gelu") == 0) return true;
    snprintf(why, size, "%s: hidden_act '%.40s' is not supported, only 'gelu'", path, name);
    return false;
}

bool published_config(tp_roberta_cfg *c, const tp_file *F, char *why, size_t size)
{
    char path[4400];
    json_t *all = config_beside(tp_file_path(F), "--heads", path, sizeof path, why, size);
    if (!all) return !why[0];
    const int64_t heads = number(all, "num_attention_heads"), dim = number(all, "hidden_size");
    const int64_t window = number(all, "attention_window");
    const bool fits = dim != c->dim || check_activation(all, path, why, size);
    json_decref(all);
    if (!fits) return false;
    if (dim != c->dim) return true; /* another model's */
    if (heads < 0 || heads > c->dim || (heads > 0 && c->dim % heads)) {
        snprintf(why, size, "%s: %lld heads do not divide the width %lld", path, (long long)heads,
                 (long long)c->dim);
        return false;
    }
    if (heads > 0) {
        c->rank = c->rank * c->heads / heads;
        c->heads = (int)heads;
    }
    if (c->kind == TP_ROBERTA_LONGFORMER && window > 0) c->window = window;
    return true;
}

static const json_t *class_name(const json_t *names, int64_t i)
{
    char key[32];
    snprintf(key, sizeof key, "%lld", (long long)i);
    return json_object_get(names, key);
}

static bool is_placeholder(const char *name, int64_t i)
{
    char text[32];
    snprintf(text, sizeof text, "LABEL_%lld", (long long)i);
    return strcmp(name, text) == 0;
}

/* Are there distinct names for the classes "0" to "n - 1", and no others? */
static bool are_names(const json_t *names, int64_t n)
{
    json_t *seen = json_object();
    int64_t placeholders = 0;
    bool done = (int64_t)json_object_size(names) == n;
    for (int64_t i = 0; i < n && done; i++) {
        const char *name = json_string_value(class_name(names, i));
        done = name && json_object_set_new(seen, name, json_true()) == 0;
        placeholders += name && is_placeholder(name, i);
    }
    done = done && (int64_t)json_object_size(seen) == n && placeholders < n;
    json_decref(seen);
    return done;
}

static bool copy_names(class_list *l, const json_t *names, int64_t n)
{
    l->name = calloc((size_t)n, sizeof *l->name);
    bool done = l->name != NULL;
    for (int64_t i = 0; i < n && done; i++) {
        l->name[i] = strdup(json_string_value(class_name(names, i)));
        done = l->name[i] != NULL;
        l->n += done;
    }
    return done;
}

static bool published_classes(class_list *l, const tp_roberta_cfg *c, const char *file, char *why,
                              size_t size)
{
    char path[4400];
    json_t *all = config_beside(file, "--heads", path, sizeof path, why, size);
    if (!all) return !why[0];
    const json_t *names = json_object_get(all, "id2label");
    const bool wanted = number(all, "hidden_size") == c->dim && are_names(names, c->classes);
    const bool done = !wanted || copy_names(l, names, c->classes);
    json_decref(all);
    if (!done) snprintf(why, size, "%s: out of memory", path);
    return done;
}

bool model_classes(class_list *l, const tp_roberta_cfg *c, tp_file *F, char *why, size_t size)
{
    *l = (class_list){ 0 };
    if (tp_file_meta(F, "model")) return class_list_read(l, F, why, size);
    return c->head != TP_ROBERTA_CLS || published_classes(l, c, tp_file_path(F), why, size);
}

/* ---- presets ---- */

const model_choice model_as_it_is = { .rank = -1, .dropout = -1, .attention_dropout = -1 };

static const char *const kinds[] = { "roberta", "longformer", "roberta_ls" };

const char *model_preset_known(int i)
{
    static const char *const names[] = { "roberta-mini",    "roberta-base",    "roberta-large",
                                         "longformer-mini", "longformer-base", "longformer-large",
                                         "roberta_ls-mini", "roberta_ls-base", "roberta_ls-large" };
    return i >= 0 && i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

bool model_preset(tp_roberta_cfg *c, const char *name, char *why, size_t size)
{
    tp_nearest near = tp_nearest_to(name);
    for (int i = 0; model_preset_known(i); i++) {
        if (strcmp(model_preset_known(i), name) == 0)
            return tp_model_roberta.preset(c, name, why, size);
        tp_nearest_try(&near, model_preset_known(i));
    }
    snprintf(why, size, "--preset: no model of text is called '%.80s'; %s%s%s", name,
             near.name[0] ? "did you mean '" : "--help lists them", near.name,
             near.name[0] ? "'?" : "");
    return false;
}

/* ---- published files ---- */

#define WORDS     "roberta.embeddings.word_embeddings.weight"
#define POSITIONS "roberta.embeddings.position_embeddings.weight"
#define LAYER     "roberta.encoder.layer."

static const tp_file_tensor *matrix(const tp_file *F, const char *name)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    return t && t->shape.ndim == 2 ? t : NULL;
}

static bool in_layer(const tp_file *F, int layer, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, LAYER "%d.%s", layer, name);
    return tp_file_find(F, path) != NULL;
}

/* Derives c from shapes. Published models have heads 64 wide and Longformer windows of 512. */
static bool from_shapes(tp_roberta_cfg *c, const tp_file *F)
{
    const tp_file_tensor *words = matrix(F, WORDS), *positions = matrix(F, POSITIONS);
    const tp_file_tensor *fc1 = matrix(F, LAYER "0.intermediate.dense.weight");
    const tp_file_tensor *landmarks = matrix(F, LAYER "0.attention.self.dconv_fc.weight");
    const tp_file_tensor *head = matrix(F, "classifier.out_proj.weight");
    if (!words || !positions || !fc1) return false;
    *c = (tp_roberta_cfg){ .kind = landmarks ? TP_ROBERTA_LS
                                   : in_layer(F, 0, "attention.self.query_global.weight")
                                       ? TP_ROBERTA_LONGFORMER
                                       : TP_ROBERTA_FULL,
                           .head = head ? TP_ROBERTA_CLS : TP_ROBERTA_MLM,
                           .dim = words->shape.dim[1],
                           .hidden = fc1->shape.dim[0],
                           .vocab = words->shape.dim[0],
                           .length = positions->shape.dim[0] - 2,
                           .classes = head ? head->shape.dim[0] : 0,
                           .dropout = 0.1,
                           .attention_dropout = 0.1 };
    while (c->layers < TP_ROBERTA_MAX_LAYERS && in_layer(F, c->layers, "intermediate.dense.weight"))
        c->layers++;
    c->heads = c->dim > 64 ? (int)(c->dim / 64) : 1;
    c->window = c->kind == TP_ROBERTA_LONGFORMER ? 512 : c->kind == TP_ROBERTA_LS ? 256 : 0;
    c->rank = landmarks ? landmarks->shape.dim[0] / c->heads : 0;
    c->raw_kv = landmarks && !in_layer(F, 0, "attention.self.dual_ln_l.weight");
    return true;
}

/* Maps the published names to those of the file. */
static bool adopt(tp_file *F)
{
    tp_roberta_cfg c;
    char why[200], prefix[512];
    if (!tp_model_roberta.preset(&c, "roberta-base-mlm", why, sizeof why)) return false;
    tp_model_cfg m = tp_model_cfg_of(&tp_model_roberta, &c);
    return tp_model_adopt(&m, F, prefix, sizeof prefix);
}

bool model_describe(tp_roberta_cfg *c, tp_file *F, char *why, size_t size)
{
    tp_model_cfg m;
    if (tp_file_ok(F) && tp_file_meta(F, "model")) {
        if (!tp_model_read(&m, F, why, size)) return false;
        memcpy(c, &m.at, sizeof *c);
        if (m.model == &tp_model_roberta) return true;
        snprintf(why, size, "%s holds a %s, not a model of text", tp_file_path(F), m.model->name);
        return false;
    }
    if (!tp_file_ok(F) || !adopt(F))
        snprintf(why, size, "%s", tp_file_why(F));
    else if (!from_shapes(c, F))
        snprintf(why, size,
                 "%s holds no model of text: it lacks word_embeddings, position_embeddings or "
                 "layer 0",
                 tp_file_path(F));
    else
        return published_config(c, F, why, size);
    return false;
}

/* ---- choosing ---- */

static void change(tp_roberta_cfg *c, const model_choice *o)
{
    if (o->layers) c->layers = (int)o->layers;
    if (o->dim) c->dim = o->dim;
    if (o->heads) c->heads = (int)o->heads;
    if (o->hidden) c->hidden = o->hidden;
    if (o->length) c->length = o->length;
    if (o->window && c->kind != TP_ROBERTA_FULL) c->window = o->window;
    if (o->rank >= 0 && c->kind == TP_ROBERTA_LS) c->rank = o->rank;
    if (o->dual_ln != DUAL_LN_AS_IT_IS) c->raw_kv = o->dual_ln == DUAL_LN_OFF;
    if (o->dropout >= 0) c->dropout = o->dropout;
    if (o->attention_dropout >= 0) c->attention_dropout = o->attention_dropout;
}

/* A preset chooses attention and length; the rest is the file's. */
static void keep_sizes(tp_roberta_cfg *c, const tp_roberta_cfg *file)
{
    c->layers = file->layers;
    c->heads = file->heads;
    c->dim = file->dim;
    c->hidden = file->hidden;
    c->vocab = file->vocab;
    c->no_pooler = file->no_pooler;
    if (c->kind != file->kind) return;
    c->window = file->window;
    c->rank = file->rank;
    c->raw_kv = file->raw_kv;
}

/* Changes members by name. */
static bool set(tp_roberta_cfg *c, const model_choice *o, char *why, size_t size)
{
    static const char *const set_by[TP_COMMON_KINDS] = {
        [TP_COMMON_VOCAB] = "the vocabulary",
        [TP_COMMON_OUTPUTS] = "the classes of the texts",
    };
    const tp_roberta_head head = c->head;
    tp_roberta_cfg wanted = *c;
    if (strstr(o->set, "attention_type=")) { /* the flags may set its window and rank */
        if (o->window) wanted.window = o->window;
        if (o->rank >= 0) wanted.rank = o->rank;
    }
    tp_model_cfg m = tp_model_cfg_of(&tp_model_roberta, &wanted);
    if (!model_set(&m, o->set, set_by, why, size)) return false;
    memcpy(c, &m.at, sizeof *c);
    tp_roberta_cfg again = *c;
    change(&again, o);
    again.head = head;
    const tp_model_cfg flags = tp_model_cfg_of(&tp_model_roberta, &again);
    return model_set_agrees(&m, &flags, why, size);
}

bool model_choose(tp_roberta_cfg *c, const model_choice *o, tp_file *from, model_wish wish,
                  char *why, size_t size)
{
    tp_roberta_cfg file;
    if (from && !model_describe(&file, from, why, size)) return false;
    if (from && !o->preset)
        *c = file;
    else if (!model_preset(c, o->preset ? o->preset : MODEL_DEFAULT, why, size))
        return false;
    if (from) keep_sizes(c, &file);
    change(c, o);
    if (!from && wish.vocab) c->vocab = wish.vocab;
    c->head = wish.head;
    c->classes = wish.head == TP_ROBERTA_CLS ? wish.classes : 0;
    if (from && wish.vocab > c->vocab) {
        snprintf(why, size,
                 "the vocabulary has %lld entries, the model in %s only %lld: give the vocabulary "
                 "of that model with --tokenizer",
                 (long long)wish.vocab, tp_file_path(from), (long long)c->vocab);
        return false;
    }
    return o->set ? set(c, o, why, size) : tp_model_roberta.check(c, why, size);
}

const char *model_text(const tp_roberta_cfg *c, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s: %d layers, width %lld, %d heads, at most %lld tokens",
                     kinds[c->kind], c->layers, (long long)c->dim, c->heads, (long long)c->length);
    if (c->kind != TP_ROBERTA_FULL && n > 0 && (size_t)n < size)
        n += snprintf(buf + n, size - (size_t)n, ", window %lld", (long long)c->window);
    if (c->kind == TP_ROBERTA_LS && n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, ", rank %lld%s", (long long)c->rank,
                 c->raw_kv ? ", no DualLN" : "");
    return buf;
}

/* ---- using ---- */

void model_write(const tp_roberta_cfg *c, tp_writer *W)
{
    const tp_model_cfg m = tp_model_cfg_of(&tp_model_roberta, c);
    tp_model_write(&m, W);
}

void model_init(tp_params *P, text_model *m, const tp_roberta_cfg *c)
{
    const tp_model_cfg model = tp_model_cfg_of(&tp_model_roberta, c);
    m->cfg = *c;
    m->net = tp_net_new(P, "", &model);
}

void model_free(text_model *m)
{
    tp_net_free(m->net);
    m->net = NULL;
}

const tp_roberta *model_of(const text_model *m)
{
    return tp_net_module(m->net);
}
