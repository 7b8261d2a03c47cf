/* protocol_classes.c - see the header. */
#include "protocol_classes.h"

#include <stdlib.h>
#include <string.h>

#include <tapegrad/test_sets.h>

/* The class of ImageNet-1K with that wnid; the list is in ascending order. */
static int32_t find_wnid(const name_list *l, const char *wnid)
{
    char at[WNID_SIZE];
    int64_t lo = 0, hi = l->count - 1;
    while (lo <= hi) {
        const int64_t mid = (lo + hi) / 2;
        name_list_at(l, mid, at);
        const int order = strcmp(at, wnid);
        if (order == 0) return (int32_t)mid;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return -1;
}

bool protocol_classes_of(protocol_classes *c, const class_names *names, int64_t n)
{
    const name_list *l = name_list_find("imagenet");
    *c = (protocol_classes){ .n = n,
                             .words = malloc((size_t)n * sizeof *c->words),
                             .imagenet = malloc((size_t)n * sizeof *c->imagenet) };
    for (int i = 0; i < TP_IMAGENET_CLASSES; i++) c->of[i] = -1;
    for (int64_t k = 0; k < n && c->words && c->imagenet; k++) {
        c->words[k] = class_words_at(names, k);
        c->imagenet[k] = c->words[k].wnid[0] ? find_wnid(l, c->words[k].wnid) : -1;
        if (c->imagenet[k] < 0 || c->of[c->imagenet[k]] >= 0) continue;
        c->of[c->imagenet[k]] = (int32_t)k;
        c->known++;
    }
    return c->words && c->imagenet;
}

void protocol_classes_free(protocol_classes *c)
{
    free(c->words);
    free(c->imagenet);
    *c = (protocol_classes){ 0 };
}

bool protocol_classes_whole(const protocol_classes *c)
{
    return c->n == TP_IMAGENET_CLASSES && c->known == TP_IMAGENET_CLASSES;
}

int32_t protocol_class_named(const protocol_classes *c, const char *folder)
{
    for (int64_t k = 0; k < c->n; k++) {
        const class_words *w = &c->words[k];
        if (strcmp(w->wnid[0] ? w->wnid : w->name, folder) == 0) return (int32_t)k;
    }
    const char *words = food_words(folder); /* checkpoints have the folders of Food-101 */
    for (int64_t k = 0; k < c->n && words; k++)
        if (strcmp(c->words[k].name, words) == 0) return (int32_t)k;
    return -1;
}
