/* lm_model.c - Transformer-LS and Transformer-XL behind one face. */
#include "lm_model.h"

#include <stdio.h>
#include <string.h>

model_cfg model_cfg_from(const settings *s, int64_t vocab)
{
    return (model_cfg){
        .kind = (model_kind)s->model,
        .ls = { .vocab = vocab,
                .dim = s->dim,
                .hidden = s->hidden,
                .layers = (int)s->layers,
                .mem_len = s->mem_len,
                .ls = { .heads = (int)s->heads,
                        .chunk = (int)s->chunk,
                        .rank = (int)s->rank,
                        .window = (int)s->window,
                        .clamp = (int)s->clamp,
                        .chunk_clamp = (int)s->chunk_clamp,
                        .masked = s->masked,
                        .segment = s->segment_window,
                        .ln_local = s->ln_local,
                        .project_first = s->project_first,
                        .no_dual_ln = !s->dual_ln },
                .use_bias = s->bias,
                .pre_ln = s->pre_ln,
                .gelu = s->gelu,
                .dropout = s->dropout,
                .emb_dropout = s->emb_dropout,
                .recompute = (tp_recompute)s->train.recompute },
        .txl = { .vocab = vocab,
                 .dim = s->dim,
                 .hidden = s->hidden,
                 .d_head = s->d_head,
                 .layers = (int)s->layers,
                 .heads = (int)s->heads,
                 .mem_len = s->mem_len,
                 .clamp = s->clamp,
                 .pre_ln = s->pre_ln,
                 .same_length = s->same_length,
                 .dropout = s->dropout,
                 .att_dropout = s->att_dropout,
                 .recompute = (tp_recompute)s->train.recompute },
    };
}

static void txl_into(const tp_txl_cfg *c, settings *s)
{
    s->layers = c->layers;
    s->dim = c->dim;
    s->hidden = c->hidden;
    s->heads = c->heads;
    s->d_head = c->d_head;
    s->pre_ln = c->pre_ln;
}

void model_cfg_into(const model_cfg *c, settings *s)
{
    const tp_lm_cfg *m = &c->ls;
    s->model = (int)c->kind;
    if (c->kind == MODEL_TXL) {
        txl_into(&c->txl, s);
        return;
    }
    s->layers = m->layers;
    s->dim = m->dim;
    s->hidden = m->hidden;
    s->heads = m->ls.heads;
    s->chunk = m->ls.chunk;
    s->rank = m->ls.rank;
    s->window = m->ls.window;
    s->bias = m->use_bias;
    s->pre_ln = m->pre_ln;
    s->gelu = m->gelu;
    s->masked = m->ls.masked;
    s->segment_window = m->ls.segment;
    s->ln_local = m->ls.ln_local;
    s->project_first = m->ls.project_first;
    s->dual_ln = !m->ls.no_dual_ln;
}

bool model_cfg_check(const model_cfg *c, char *why, size_t size)
{
    return !(c->kind == MODEL_TXL ? tp_txl_cfg_check(&c->txl, why, size)
                                  : tp_lm_cfg_check(&c->ls, why, size));
}

bool model_segment_check(const model_cfg *c, const char *flag, int64_t tokens, char *why,
                         size_t size)
{
    const tp_ls_cfg *ls = &c->ls.ls;
    why[0] = '\0';
    if (c->kind == MODEL_LS && tokens % ls->chunk != 0)
        snprintf(why, size, "%s %lld is no multiple of the chunk of %d", flag, (long long)tokens,
                 ls->chunk);
    else if (c->kind == MODEL_LS && ls->window > 0 && tokens > ls->window &&
             tokens % ls->window != 0)
        snprintf(why, size, "%s %lld is longer than the window of %d and no multiple of it", flag,
                 (long long)tokens, ls->window);
    return !why[0];
}

void model_cfg_write(const model_cfg *c, tp_writer *W)
{
    if (c->kind == MODEL_TXL)
        tp_txl_cfg_write(&c->txl, W);
    else
        tp_lm_cfg_write(&c->ls, W);
}

bool model_cfg_read(model_cfg *c, tp_file *F, char *why, size_t size)
{
    const char *model = tp_file_meta(F, "model");
    char reason[512];
    *c = (model_cfg){ .kind = MODEL_LS };
    if (model && strcmp(model, "transformer-xl") == 0) c->kind = MODEL_TXL;
    if (c->kind == MODEL_TXL ? tp_txl_cfg_read(&c->txl, F, reason, sizeof reason)
                             : tp_lm_cfg_read(&c->ls, F, reason, sizeof reason))
        return true;
    if (tp_file_ok(F))
        snprintf(why, size, "%s: %s", tp_file_path(F), reason);
    else
        snprintf(why, size, "%s", tp_file_why(F));
    return false;
}

int64_t model_mem_len(const model_cfg *c)
{
    return c->kind == MODEL_TXL ? c->txl.mem_len : c->ls.mem_len;
}

void model_set_mem_len(model_cfg *c, int64_t rows)
{
    c->txl.mem_len = c->ls.mem_len = rows;
}

void model_init(tp_params *P, language_model *m, const model_cfg *c)
{
    m->kind = c->kind;
    if (m->kind == MODEL_TXL)
        tp_txl_init(P, &m->txl, "", c->txl);
    else
        tp_lm_init(P, &m->ls, "", c->ls);
}

tp_tensor model_forward(tp_tape *T, const language_model *m, model_state *s, tp_tensor tokens)
{
    return m->kind == MODEL_TXL ? tp_txl_forward(T, &m->txl, &s->txl, tokens)
                                : tp_lm_forward(T, &m->ls, &s->ls, tokens);
}

void model_state_clear(tp_tape *T, const language_model *m, model_state *s)
{
    if (m->kind == MODEL_TXL)
        tp_txl_state_clear(T, &s->txl);
    else
        tp_lm_state_clear(T, &s->ls);
}

bool model_state_write(tp_tape *T, const language_model *m, const model_state *s, tp_writer *W)
{
    return m->kind == MODEL_TXL ? tp_txl_state_write(T, &m->txl, &s->txl, W)
                                : tp_lm_state_write(T, &m->ls, &s->ls, W);
}

bool model_state_read(tp_tape *T, const language_model *m, model_state *s, tp_file *F)
{
    return m->kind == MODEL_TXL ? tp_txl_state_read(T, &m->txl, &s->txl, F)
                                : tp_lm_state_read(T, &m->ls, &s->ls, F);
}

static const char *skip_training_state(const char *name, void *env)
{
    static const char *const other[] = { "optim.", "ema.", "state." };
    (void)env;
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (strncmp(name, other[i], strlen(other[i])) == 0) return NULL;
    return name;
}

bool model_read_weights(tp_params *P, tp_file *F)
{
    return tp_params_read(P, F, "",
                          &(tp_load_opts){ .convert = true, .rename = skip_training_state });
}
