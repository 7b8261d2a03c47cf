/* config.c - configurations of RoBERTa: checks. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

enum { MOST = 1 << 20, MOST_WORDS = 1 << 24 }; /* products fit */

bool tp_roberta_cfg_check(const tp_roberta_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why)
            snprintf(why, size, "roberta_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    const bool windows = c->kind != TP_ROBERTA_FULL;
    why[0] = '\0';
    if (!tp__in_range(c->kind, TP_ROBERTA_FULL, TP_ROBERTA_LS) ||
        !tp__in_range(c->head, TP_ROBERTA_CLS, TP_ROBERTA_MLM))
        snprintf(why, size, "there is no such attention or head");
    else if (!tp__in_range(c->layers, 1, TP_ROBERTA_MAX_LAYERS))
        snprintf(why, size, "the model has %d layers, not 1 to %d", c->layers,
                 TP_ROBERTA_MAX_LAYERS);
    else if (!tp__in_range(c->dim, 1, MOST) || !tp__in_range(c->heads, 1, MOST) ||
             c->dim % c->heads)
        snprintf(why, size, "%d heads do not divide the width %lld", c->heads, (long long)c->dim);
    else if (!tp__in_range(c->hidden, 1, MOST))
        snprintf(why, size, "the hidden width is %lld, not 1 to %d", (long long)c->hidden, MOST);
    else if (!tp__in_range(c->vocab, 5, MOST_WORDS))
        snprintf(why, size, "the vocabulary has %lld ids, not 5 to %d", (long long)c->vocab,
                 MOST_WORDS);
    else if (!tp__in_range(c->length, 1, MOST))
        snprintf(why, size, "texts have %lld tokens, not 1 to %d", (long long)c->length, MOST);
    else if (c->head == TP_ROBERTA_CLS && !tp__in_range(c->classes, 1, MOST))
        snprintf(why, size, "there are %lld classes, not 1 to %d", (long long)c->classes, MOST);
    else if (windows && !tp__in_range(c->window, c->kind == TP_ROBERTA_LS ? 0 : 2, MOST))
        snprintf(why, size, "the window has %lld tokens", (long long)c->window);
    else if (c->kind == TP_ROBERTA_LONGFORMER && c->window % 2)
        snprintf(why, size, "Longformer's window of %lld tokens is not even", (long long)c->window);
    else if (c->kind == TP_ROBERTA_LS && !tp__in_range(c->rank, 0, MOST))
        snprintf(why, size, "there are %lld projections", (long long)c->rank);
    else if (!tp__is_rate(c->dropout) || !tp__is_rate(c->attention_dropout))
        snprintf(why, size, "dropout is not from 0 to below 1");
    return !why[0];
}

int64_t tp__roberta_rows(const tp_roberta_cfg *c, int64_t tokens)
{
    const int64_t ls = c->kind == TP_ROBERTA_LS;
    const int64_t step = ls ? c->window : c->kind == TP_ROBERTA_LONGFORMER ? c->window / 2 : 1;
    const int64_t most = ls && tokens < 2 ? 2 : tokens; /* a CLS needs a token, be it padding */
    return step > 1 ? (most - ls + step - 1) / step * step + ls : most;
}

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
