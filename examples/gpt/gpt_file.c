/* gpt_file.c - models, vocabularies and texts of files; trained models; scores. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpt.h"
#include "reports/configs.h"
#include "reports/paths.h"

/* ---- the model ---- */

static bool is_gpt(const tp_model *m)
{
    return m == &tp_model_gpt2 || m == &tp_model_llama;
}

const char *gpt_model_known(int i)
{
    const tp_model_row *row;
    for (int k = 0; (row = tp_model_at(k)); k++)
        if (is_gpt(tp_model_of(row)) && i-- == 0) return row->name;
    return NULL;
}

const tp_gpt_cfg *gpt_cfg(const tp_model_cfg *c)
{
    return (const tp_gpt_cfg *)&c->at;
}

bool gpt_model_of_name(tp_model_cfg *c, const char *name, char *why, size_t size)
{
    if (!name) name = MODEL_DEFAULT;
    if (!tp_model_preset(c, name, why, size)) return false;
    if (is_gpt(c->model)) return true;
    snprintf(why, size, "--model %s is neither a GPT-2 nor a Llama; tp-models lists them", name);
    return false;
}

/* The model of published weights, by the config.json beside them or, without one, by name. */
static bool describe(tp_model_cfg *c, const char *name, const tp_file *F, char *why, size_t size)
{
    tp_model_cfg named;
    if (!config_gpt(c, F, why, size)) return false;
    if (!c->model && !name)
        snprintf(why, size,
                 "%s does not say which model it holds, nor is a config.json beside it: name it "
                 "with --model, as gpt2",
                 tp_file_path(F));
    if (!c->model) return name && gpt_model_of_name(c, name, why, size);
    if (!name || !gpt_model_of_name(&named, name, why, size)) return !name;
    if (tp_model_same(c, &named)) return true;
    snprintf(why, size,
             "--model %s is another model than the config.json beside %s describes: leave it out",
             name, tp_file_path(F));
    return false;
}

static bool of_published(tp_model_cfg *c, const char *name, tp_file *F, char *why, size_t size)
{
    if (!describe(c, name, F, why, size)) return false;
    if (!tp_model_adopt(c, F, NULL, 0)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    if (tp_file_find(F, c->model->head)) return true;
    snprintf(why, size, "%s has no '%s', so it is not for this model", tp_file_path(F),
             c->model->head);
    return false;
}

bool gpt_model_of_file(tp_model_cfg *c, const char *name, tp_file *F, char *why, size_t size)
{
    if (!tp_file_ok(F)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    if (!tp_file_meta(F, "model")) return of_published(c, name, F, why, size);
    if (!tp_model_read(c, F, why, size)) return false;
    if (is_gpt(c->model)) return true;
    snprintf(why, size, "%s holds a %s, neither a GPT-2 nor a Llama", tp_file_path(F),
             c->model->name);
    return false;
}

const char *gpt_model_text(const tp_model_cfg *c, char *buf, size_t size)
{
    const tp_gpt_cfg *g = gpt_cfg(c);
    char shared[40] = "";
    if (g->kv_heads > 0 && g->kv_heads < g->heads)
        snprintf(shared, sizeof shared, " over %d of keys", g->kv_heads);
    const int n = snprintf(buf, size, "%s: %d layers, width %lld, %d heads%s, at most %lld tokens",
                           c->model->name, g->layers, (long long)g->dim, g->heads, shared,
                           (long long)g->positions);
    if (g->ls_chunk && n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, ", window %d, rank %d for chunks of %d", g->ls_window,
                 g->ls_rank, g->ls_chunk);
    return buf;
}

/* ---- the vocabulary ---- */

tp_bpe *gpt_tokenizer(const char *path, const tp_file *F, char *why, size_t size)
{
    why[0] = '\0';
    tp_bpe *X = path || F ? tokenizer_find(path, F, why, size) : tp_bpe_bytes();
    if (!X || tp_bpe_ok(X)) return X;
    snprintf(why, size, "%s", tp_bpe_why(X));
    tp_bpe_close(X);
    return NULL;
}

const char *gpt_separator(const tp_bpe *X)
{
    if (tp_bpe_id(X, TP_BPE_END_OF_TEXT) >= 0) return TP_BPE_END_OF_TEXT;
    return tp_bpe_special_id(X, TP_BPE_END) >= 0 ? tp_bpe_special_name(TP_BPE_END) : "";
}

/* ---- texts ---- */

tp_corpus *gpt_texts(const text_source *x, const tp_bpe *X, char *why, size_t size)
{
    path_list list;
    if (!path_list_of(&list, x->paths)) {
        snprintf(why, size, "--data names more than %d paths; name a folder instead", MOST_PATHS);
        return NULL;
    }
    tp_corpus *C = tp_corpus_open((const char *const *)list.at, list.n, X,
                                  &(tp_corpus_opts){ .end = (tp_document_end)x->documents,
                                                     .held_out = x->held_out,
                                                     .limit = x->limit,
                                                     .threads = x->threads,
                                                     .separator = gpt_separator(X),
                                                     .cache = x->cache });
    path_list_free(&list);
    return C;
}

/* ---- scores ---- */

void gpt_score(text_sum *sum, tp_tape *T, const tp_net *m, const tp_bpe *X, const tp_clm_batch *b)
{
    const tp_shape shape = TP_SHAPE(b->n, b->length);
    tp_reset(T);
    const tp_tensor x = tp_from(T, TP_I32, shape, b->ids), y = tp_from(T, TP_I32, shape, b->target);
    const tp_tensor z = tp_net_forward(T, m, NULL, x);
    sum->nats += tp_item(T, tp_cross_entropy(T, z, y, TP_SUM));
    sum->targets += (double)b->targets;
    for (int64_t i = 0; i < b->n * b->length; i++)
        if (b->target[i] >= 0) sum->bytes += tp_bpe_token_bytes(X, b->target[i]);
}

double gpt_bits_per_byte(const text_sum *s)
{
    return s->bytes > 0 ? s->nats / log(2) / s->bytes : NAN;
}

double gpt_perplexity(const text_sum *s)
{
    return s->targets > 0 ? exp(s->nats / s->targets) : NAN;
}

/* ---- trained models ---- */

static bool read_header(gpt_file *f, const gpt_source *c, tp_file *F)
{
    char why[5000];
    if (!gpt_model_of_file(&f->cfg, c->model, F, why, sizeof why))
        return tp_trained_fail(&f->t, "%s", why);
    const int64_t places = f->window = gpt_cfg(&f->cfg)->positions;
    if (!tp_file_int(F, "window", &f->window)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    if (f->window < 1 || f->window > places)
        return tp_trained_fail(&f->t, "%s: 'window' is out of range: %lld", f->t.path,
                               (long long)f->window);
    f->vocab = gpt_tokenizer(c->tokenizer, F, why, sizeof why);
    if (!f->vocab) return tp_trained_fail(&f->t, "%s", why);
    const int64_t ids = tp_bpe_size(f->vocab), rows = gpt_cfg(&f->cfg)->vocab;
    return ids <= rows ||
           tp_trained_fail(&f->t, "the vocabulary has %lld tokens, the model in %s only %lld",
                           (long long)ids, f->t.path, (long long)rows);
}

bool gpt_file_open(gpt_file *f, const gpt_source *c)
{
    *f = (gpt_file){ .t = tp_trained_find(&c->t), .adapter = c->adapter };
    tp_file *F = tp_file_open(f->t.path);
    const bool done = read_header(f, c, F);
    tp_file_close(F);
    return done;
}

bool gpt_file_load(gpt_file *f, const tp_machine_settings *o)
{
    if (!trained_load(&f->t, o, &f->cfg, &f->m)) return false;
    if (!f->adapter) return true;
    if (tp_lora_count(f->t.P) > 0)
        return tp_trained_fail(&f->t,
                               "%s has adaptations itself: merge them ('gpt merge') and add "
                               "--adapter to the result",
                               f->t.path);
    double alpha = 0;
    char why[5000];
    tp_file *F = tp_file_open(f->adapter);
    if (adaptation_in(F) && !config_adapter(F, &alpha, why, sizeof why))
        tp_trained_fail(&f->t, "%s", why);
    else if (!tp_lora_apply(f->t.P, F, alpha))
        tp_trained_fail(&f->t, "%s", tp_params_why(f->t.P));
    tp_file_close(F);
    return tp_trained_ok(&f->t);
}

void gpt_file_close(gpt_file *f)
{
    tp_net_free(f->m);
    tp_bpe_close(f->vocab);
    tp_trained_close(&f->t);
}
