/* text_run.c - what both trainings share, through their settings' and states' bases. */

#include "training.h"

#define HEAD "classifier.*" /* trained whole beside adaptations */

/* ---- opening ---- */

bool text_run_open_vocab(tp_run *R, const tp_file *from)
{
    text_settings *s = R->settings;
    text_run *t = R->state;
    char why[5000];
    tp_absolute_path(&s->tokenizer);
    t->vocab = tokenizer_open(s->train.resume ? NULL : s->tokenizer, from, why, sizeof why);
    if (!t->vocab) tp_run_fail(R, "%s", why);
    return t->vocab != NULL;
}

bool text_run_choose(tp_run *R, tp_file *from, tp_roberta_head head, int64_t classes)
{
    const text_settings *s = R->settings;
    text_run *t = R->state;
    char why[5000];
    const model_wish wish = { .head = head, .vocab = tp_bpe_size(t->vocab), .classes = classes };
    const bool done = s->train.resume ? model_describe(&t->cfg, from, why, sizeof why)
                                      : model_choose(&t->cfg, &s->m, from, wish, why, sizeof why);
    if (!done) tp_run_fail(R, "%s", why);
    t->cfg.recompute = (tp_recompute)s->train.recompute;
    return done;
}

bool text_run_check_warmup(tp_run *R)
{
    const tp_train_settings *o = R->settings;
    const bool fits = text_warmup(o, o->steps) <= o->steps;
    if (!fits)
        tp_run_fail(R, "--warmup %g is longer than the run of %lld updates", o->warmup,
                    (long long)o->steps);
    return fits;
}

void text_run_share(tp_run *R, const tp_run *with)
{
    const text_settings *s = R->settings;
    const text_run *theirs = with->state;
    text_run *t = R->state;
    t->vocab = theirs->vocab;
    t->cfg = theirs->cfg;
    t->cfg.recompute = (tp_recompute)s->train.recompute;
}

/* ---- functions of the engine's table ---- */

void text_run_build(tp_run *R)
{
    const text_settings *s = R->settings;
    text_run *t = R->state;
    adaptation_begin(R->P, &s->lora, HEAD);
    model_init(R->P, &t->m, &t->cfg);
}

tp_optim *text_run_optimizer(tp_run *R)
{
    const text_settings *s = R->settings;
    return text_optimizer(R->P, &s->train, &s->r);
}

double text_run_rate(const tp_run *R, int64_t update)
{
    const text_settings *s = R->settings;
    return text_rate(&s->train, &s->r, update, s->train.steps);
}

void text_run_write_model(tp_run *R, tp_writer *W)
{
    const text_settings *s = R->settings;
    const text_run *t = R->state;
    model_write(&t->cfg, W);
    tokenizer_write(t->vocab, W);
    adaptation_write(&s->lora, HEAD, W);
}

static int64_t tokens_so_far(const tp_run *R)
{
    return ((const text_run *)R->state)->tokens + (int64_t)R->sum[TOKENS];
}

void text_run_after(tp_run *R)
{
    ((text_run *)R->state)->tokens = tokens_so_far(R);
}

void text_run_write(tp_run *R, tp_writer *W)
{
    tp_writer_meta_int(W, "tokens", tokens_so_far(R));
}

void text_run_read(tp_run *R, tp_file *F)
{
    text_run *t = R->state;
    doc_read_tokens(R, F, &t->tokens);
}

void text_run_close(tp_run *R)
{
    text_run *t = R->state;
    if (!R->trial) tp_bpe_close(t->vocab);
    model_free(&t->m);
}

/* ---- shared parts ---- */

double text_run_flops(const tp_run *R, int64_t tokens, double spared)
{
    const tp_train_settings *o = R->settings;
    const text_run *t = R->state;
    const tp_model_cfg c = tp_model_cfg_of(&tp_model_roberta, &t->cfg);
    const double macs = tp_model_cost(&c, tokens, 0).macs - spared;
    return 6.0 * macs * (double)(o->batch * o->accumulation);
}

void text_run_describe(tp_run *R, int64_t n, const char *of_what)
{
    const text_run *t = R->state;
    char model[300];
    tp_run_note_text(R, "model", model_text(&t->cfg, model, sizeof model));
    tp_run_say(R, "%s; %lld parameters, %lld %s", model, (long long)tp_params_count(R->P),
               (long long)n, of_what);
    adaptation_say(R, &((const text_settings *)R->settings)->lora);
}

double text_run_report(tp_run *R, int64_t steps)
{
    const tp_train_settings *o = R->settings;
    const double passes = (double)(R->update * o->accumulation) / (double)steps;
    tp_run_note(R, "passes", passes);
    tp_run_note_int(R, "tokens", tokens_so_far(R));
    return passes;
}
