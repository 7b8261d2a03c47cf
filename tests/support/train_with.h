/* train_with.h - runs a training program with flags in one text. */
#ifndef TP_SUPPORT_TRAIN_WITH_H
#define TP_SUPPORT_TRAIN_WITH_H

#include <stdio.h>
#include <string.h>
#include <tapegrad/train.h>

/* tp_train_main_with in this process of G (NULL: alone); flags are separated by blanks. */
static inline int train_with(const tp_training *t, tp_peers *G, const char *flags)
{
    char text[512], *word[40], *rest = NULL;
    int n = 0;
    snprintf(text, sizeof text, "%s", flags);
    for (char *w = strtok_r(text, " ", &rest); w && n < 40; w = strtok_r(NULL, " ", &rest))
        word[n++] = w;
    return tp_train_main_with(t, G, n, word);
}

#endif
