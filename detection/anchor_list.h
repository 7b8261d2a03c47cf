/* anchor_list.h - the anchors of all levels of a pyramid, one after another. */
#ifndef TP_ANCHOR_LIST_H
#define TP_ANCHOR_LIST_H

#include <stdlib.h>
#include <tapegrad/detection/anchors.h>

typedef struct tp_anchor_list {
    int levels;
    int64_t n;
    int64_t first[TP_ANCHOR_LEVELS + 1]; /* level k has first[k] ... first[k + 1] - 1 */
    tp_corners *box;                     /* [n] */
} tp_anchor_list;

/* For maps of the heights and widths size [levels]. False: out of memory. The caller frees box. */
static inline bool tp__anchor_list(tp_anchor_list *a, const tp_anchor_cfg *c, int levels,
                                   const int64_t (*size)[2])
{
    *a = (tp_anchor_list){ .levels = levels };
    for (int k = 0; k < levels; k++)
        a->first[k + 1] = a->first[k] + size[k][0] * size[k][1] * c->sizes * c->ratios;
    a->n = a->first[levels];
    a->box = malloc((size_t)(a->n + 1) * sizeof *a->box);
    for (int k = 0; a->box && k < levels; k++)
        tp_anchors(c, k, size[k][0], size[k][1], a->box + a->first[k]);
    return a->box != NULL;
}

#endif
