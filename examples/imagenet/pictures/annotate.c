/* annotate.c - see the header. */
#include "annotate.h"

#include <stdio.h>
#include <string.h>

/* In pixels: the longer side of an image and the length of a certain class's bar; the least height of all
 * bars. */
enum { SIDE = 400, LEAST_BARS = 200 };

/* The texts of a bar. */
typedef struct bar_text {
    class_words words;
    char share[16];
} bar_text;

static panel_bar bar(const annotation *a, prediction p, bool first, bar_text *t)
{
    const bool known = a->truth.label >= 0, right = known && p.label == a->truth.label;
    t->words = class_words_at(a->names, p.label);
    snprintf(t->share, sizeof t->share, "%.1f %%", 100 * p.p);
    return (panel_bar){
        .name = t->words.name,
        .value = 100 * p.p,
        .text = t->share,
        .colour = right            ? COLOUR_RIGHT
                  : known && first ? COLOUR_WRONG
                                   : COLOUR_PLAIN,
    };
}

static int bars(const annotation *a, panel_bar b[ANNOTATED + 1], bar_text t[ANNOTATED + 1])
{
    bool listed = a->truth.label < 0;
    int n = 0;
    for (; n < a->n && n < ANNOTATED; n++) {
        b[n] = bar(a, a->best[n], n == 0, &t[n]);
        listed |= a->best[n].label == a->truth.label;
    }
    if (!listed) {
        b[n] = bar(a, a->truth, false, &t[n]);
        n++;
    }
    return n;
}

/* The size at which an image of w x h pixels is shown: gnuplot enlarges a small one. */
static void shown_size(const tp_image *p, int64_t *w, int64_t *h)
{
    const int64_t longer = p->width > p->height ? p->width : p->height;
    *w = (p->width * SIDE + longer - 1) / longer;
    *h = (p->height * SIDE + longer - 1) / longer;
}

bool annotate(gnuplot *g, const annotation *a, const char *path, char *why, size_t size)
{
    panel_bar b[ANNOTATED + 1];
    bar_text t[ANNOTATED + 1];
    tp_image small = { 0 };
    int64_t w, h;
    shown_size(a->image, &w, &h);
    const bool shrinks = w < a->image->width;
    if (shrinks && !tp_image_resize(&small, a->image, NULL, w, h, TP_BICUBIC)) {
        snprintf(why, size, "%s: %s", path, small.why);
        return false;
    }
    const panel panels[2] = {
        { .kind = PANEL_IMAGE,
          .title = a->caption,
          .width = (int)w,
          .height = (int)h,
          .image = { .rgb = shrinks ? &small : a->image } },
        { .kind = PANEL_BARS,
          .across = "probability, %",
          .width = SIDE,
          .height = (int)(h > LEAST_BARS ? h : LEAST_BARS),
          .bars = { .n = bars(a, b, t), .at = b, .most = 100 } },
    };
    const picture p = { .title = a->title, .note = a->note, .down = 1, .across = 2, .at = panels };
    const bool done = picture_draw(g, &p, path, why, size);
    tp_image_free(&small);
    return done;
}
