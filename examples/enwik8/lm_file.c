/* lm_file.c - opens a trained language model from a checkpoint. */
#include "lm_file.h"

#include <stdio.h>

bool lm_vocab_read(tp_vocab *v, const tp_file *F, char *why, size_t size)
{
    const char *text = tp_file_meta(F, "vocab");
    if (text && tp_vocab_parse(v, text)) return true;
    snprintf(why, size, "%s: the dictionary ('vocab') is %s", tp_file_path(F),
             text ? "malformed" : "missing");
    return false;
}

static bool read_header(lm_file *f, tp_file *F)
{
    tp_trained *t = &f->t;
    char why[5000];
    if (!lm_cfg_read(&f->cfg, F, why, sizeof why) || !lm_vocab_read(&f->vocab, F, why, sizeof why))
        return tp_trained_fail(t, "%s", why);
    const tp_common_cfg o = tp_model_get(&f->cfg);
    if (f->vocab.size != o.outputs)
        return tp_trained_fail(t, "%s: the dictionary has %lld entries, the model %lld", t->path,
                               (long long)f->vocab.size, (long long)o.outputs);
    f->segment = o.cache;
    if (!tp_file_int(F, "segment", &f->segment)) return tp_trained_fail(t, "%s", tp_file_why(F));
    if (f->segment < 1 || f->segment > 1 << 24)
        return tp_trained_fail(t, "%s: 'segment' is out of range: %lld", t->path,
                               (long long)f->segment);
    return true;
}

bool lm_file_open(lm_file *f, const tp_trained_settings *o)
{
    *f = (lm_file){ .t = tp_trained_find(o) };
    tp_file *F = tp_file_open(f->t.path);
    const bool done = read_header(f, F);
    tp_file_close(F);
    return done;
}

bool lm_file_load(lm_file *f, const tp_machine_settings *o)
{
    tp_trained *t = &f->t;
    char why[512];
    if (!tp_model_check(&f->cfg, why, sizeof why))
        return tp_trained_fail(t, "impossible model: %s", why);
    tp_trained_open(t, o, 0, true);
    f->m = tp_net_new(t->P, "", &f->cfg);
    tp_file *F = tp_file_open(t->path);
    if (tp_file_ok(F))
        tp_net_load(t->P, f->m, F, false);
    else
        tp_trained_fail(t, "%s", tp_file_why(F));
    tp_file_close(F);
    return tp_trained_ok(t);
}

void lm_file_close(lm_file *f)
{
    tp_net_free(f->m);
    tp_trained_close(&f->t);
}
