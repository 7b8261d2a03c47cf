/* text_file.c - see the header. */
#include "text_file.h"

#include "published_config.h"
#include "tokenizer.h"

static bool read_header(text_file *f, tp_file *F, const char *tokenizer)
{
    char why[5000];
    if (!tp_file_ok(F)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    f->published = !tp_file_meta(F, "model");
    if (!model_describe(&f->cfg, F, why, sizeof why) ||
        !model_classes(&f->classes, &f->cfg, F, why, sizeof why))
        return tp_trained_fail(&f->t, "%s", why);
    if (f->cfg.head != TP_ROBERTA_CLS)
        return tp_trained_fail(&f->t,
                               "%s predicts masked tokens; 'imdb train --init' makes a classifier "
                               "of it",
                               f->t.path);
    if (f->classes.n > 0 && f->classes.n != f->cfg.classes)
        return tp_trained_fail(&f->t, "%s: %d names for %lld classes", f->t.path, f->classes.n,
                               (long long)f->cfg.classes);
    if (!tp_file_int(F, "text_tail", &f->tail)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    if (f->tail < 0 || f->tail > INT64_C(1) << 20)
        return tp_trained_fail(&f->t, "%s: 'text_tail' is out of range", f->t.path);
    f->vocab = tokenizer_open(tokenizer, F, why, sizeof why);
    if (!f->vocab) return tp_trained_fail(&f->t, "%s", why);
    if (tp_bpe_size(f->vocab) > f->cfg.vocab)
        return tp_trained_fail(&f->t, "the vocabulary has %lld entries, the model in %s only %lld",
                               (long long)tp_bpe_size(f->vocab), f->t.path,
                               (long long)f->cfg.vocab);
    return true;
}

bool text_file_open(text_file *f, const tp_trained_settings *o, const char *tokenizer,
                    int64_t length)
{
    f->t = tp_trained_find(o);
    tp_file *F = tp_file_open(f->t.path);
    bool done = read_header(f, F, tokenizer);
    tp_file_close(F);
    if (done && length > f->cfg.length)
        done = tp_trained_fail(&f->t,
                               "--length %lld is longer than the model's %lld tokens: "
                               "'imdb convert' extends it",
                               (long long)length, (long long)f->cfg.length);
    return done;
}

int64_t text_file_tail(const text_file *f, int64_t length)
{
    return f->tail <= length - 2 ? f->tail : 0; /* <s> and </s> remain, too */
}

bool text_file_load(text_file *f, const tp_machine_settings *o)
{
    tp_trained *t = &f->t;
    char why[512];
    if (!tp_roberta_cfg_check(&f->cfg, why, sizeof why))
        return tp_trained_fail(t, "%s: impossible model: %s", t->path, why);
    tp_trained_open(t, o, 0, true);
    model_init(t->P, &f->m, &f->cfg);
    tp_file *F = tp_file_open(t->path);
    if (!tp_file_ok(F))
        tp_trained_fail(t, "%s", tp_file_why(F));
    else if (!model_load(t->P, &f->m, F, false))
        tp_trained_fail(t, "%s", tp_params_why(t->P));
    tp_file_close(F);
    return tp_trained_ok(t);
}

void text_file_close(text_file *f)
{
    model_free(&f->m);
    class_list_free(&f->classes);
    tp_bpe_close(f->vocab);
    tp_trained_close(&f->t);
}
