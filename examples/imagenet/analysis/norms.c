/* norms.c - the ratio of mean l2 norms of the window's keys and values to those of the dynamic
 * projection, by block (inside/norms.h). */
#include <string.h>

#include "analyze.h"

typedef struct watch {
    analysis *a;
    norms s;
} watch;

static void see(void *env, tp_tape *T, const tp_seen *seen)
{
    watch *w = env;
    w->s.layer = w->a->at;
    norms_see(&w->s, T, seen);
}

bool norms_measure(analysis *a, norm_ratios *r)
{
    static watch w;
    memset(r, 0, sizeof *r);
    w = (watch){ .a = a, .s = { .r = r } };
    if (!analysis_run(a, see, &w)) return false;
    return norms_end(&w.s) || analysis_none(a, "norms", "long-short attention");
}

bool norms_draw(analysis *a)
{
    static norm_ratios r;
    static norm_curves c;
    tsv t;
    if (!norms_measure(a, &r)) return false;
    if (r.layers == 0) return true;
    if (!tsv_begin(&t, a, "block\t" NORMS_COLUMNS)) return false;
    norms_table(&r, t.f);
    if (!tsv_end(&t, a, "norms.tsv")) return false;
    const panel p = { .kind = PANEL_CURVES,
                      .across = "block",
                      .up = NORMS_UP,
                      .curves = { .n = norms_curves(&r, &c), .at = c.at, .whole = true } };
    analysis_draw(a, (picture){ NORMS_TITLE, NORMS_NOTE, 1, 1, &p }, OF_ALL_IMAGES, "norms");
    return true;
}
