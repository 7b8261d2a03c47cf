/* text.c - texts and images as documents: a byte is an id. */
#include <stdlib.h>
#include <string.h>

#include "documents.h"

enum { MARKS = 10 };

bool tp__documents_damage(tp_documents *X, tp_part part, const tp_documents_opts *o)
{
    if (o->damage == TP_DAMAGE_NONE || part != TP_TRAIN) return !X->why[0];
    return tp__documents_fail(X, "documents: damage is for test sets, not for training");
}

bool tp__documents_text(tp_documents *X, int k, const uint8_t *text, size_t n, int64_t longest,
                        const tp_documents_opts *o)
{
    uint8_t *damaged = NULL;
    if (o->damage != TP_DAMAGE_NONE) {
        damaged = malloc(n + MARKS);
        if (!damaged)
            return tp__documents_fail(X, "documents: out of memory for a text of %zu bytes", n);
        n = o->damage == TP_DAMAGE_DELETE
                ? tp_delete_marks(text, n, damaged)
                : tp_insert_marks(text, n, X->count, k, o->whole, damaged);
        text = damaged;
    }
    if (n > (size_t)longest) n = (size_t)longest;
    uint16_t *ids = tp__documents_room(X, n ? (int64_t)n : 1);
    for (size_t i = 0; ids && i < n; i++) ids[i] = (uint16_t)(text[i] + 1);
    if (ids && n == 0) ids[0] = TP_BLANK;
    free(damaged);
    return ids && tp__documents_end(X, n ? (int64_t)n : 1);
}

bool tp__documents_pixels(tp_documents *X, const uint8_t *pixels, int64_t n, int32_t label,
                          const tp_documents_opts *o)
{
    enum { MOST = 0x8000 };
    if (o->pixel_offset < 0 || o->pixel_offset > MOST)
        return tp__documents_fail(X, "documents: the pixel offset %d is not 0 to %d",
                                  o->pixel_offset, MOST);
    if (o->longest > 0 && n > o->longest) n = o->longest;
    uint16_t *ids = tp__documents_room(X, n);
    for (int64_t i = 0; ids && i < n; i++) ids[i] = (uint16_t)(pixels[i] + o->pixel_offset);
    return ids && tp__documents_end(X, n) && tp__documents_label(X, label);
}
