/* confusion.c - draws the confusion matrix, or of many classes the most frequent mistakes. */
#include "confusion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pictures/picture.h"

typedef struct confusion {
    const score *v;
    const class_names *names;
    int64_t classes;
    char title[1200], note[1400];
} confusion;

static int64_t count_of(const confusion *c, int64_t label, int64_t predicted)
{
    return c->v->confusion[label * c->classes + predicted];
}

static int64_t images_of(const confusion *c, int64_t label)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < c->classes; k++) sum += count_of(c, label, k);
    return sum;
}

/* ---- the matrix ---- */

/* The picture's data, for n = classes. */
typedef struct matrix {
    double share[CONFUSION_CLASSES * CONFUSION_CLASSES];
    char number[CONFUSION_CLASSES * CONFUSION_CLASSES][24];
    const char *texts[CONFUSION_CLASSES * CONFUSION_CLASSES];
    class_words words[CONFUSION_CLASSES];
    const char *name[CONFUSION_CLASSES];
} matrix;

/* Five digits would not fit a cell, so larger counts become percentages. */
static bool counts_fit(const confusion *c)
{
    const int64_t most = c->classes > 15 ? 999 : 9999;
    for (int64_t i = 0; i < c->classes * c->classes; i++)
        if (c->v->confusion[i] > most) return false;
    return true;
}

static void fill(matrix *m, const confusion *c, bool counts)
{
    for (int64_t r = 0; r < c->classes; r++) {
        const int64_t sum = images_of(c, r);
        m->words[r] = class_words_at(c->names, r);
        m->name[r] = m->words[r].name;
        for (int64_t k = 0; k < c->classes; k++) {
            const int64_t i = r * c->classes + k, n = count_of(c, r, k);
            m->share[i] = sum ? 100.0 * (double)n / (double)sum : 0;
            if (counts)
                snprintf(m->number[i], sizeof m->number[i], "%lld", (long long)n);
            else
                snprintf(m->number[i], sizeof m->number[i], "%.0f", m->share[i]);
            m->texts[i] = n ? m->number[i] : NULL;
        }
    }
}

static bool draw_matrix(confusion *c, const char *path, char *why, size_t size)
{
    matrix *m = calloc(1, sizeof *m);
    if (!m) {
        snprintf(why, size, "out of memory");
        return false;
    }
    const bool counts = counts_fit(c);
    fill(m, c, counts);
    snprintf(c->note + strlen(c->note), sizeof c->note - strlen(c->note),
             "\nNumbers: %s. Right predictions are on the diagonal.",
             counts ? "images" : "percent of the images of the true class");
    const panel p = { .kind = PANEL_HEAT,
                      .across = "predicted class",
                      .up = "true class",
                      .heat = { .rows = c->classes,
                                .cols = c->classes,
                                .v = m->share,
                                .most = 100,
                                .unit = "of the images of the true class, %",
                                .texts = m->texts,
                                .row_names = m->name,
                                .col_names = m->name } };
    const picture whole = { c->title, c->note, 1, 1, &p };
    const bool done = picture_draw(NULL, &whole, path, why, size);
    free(m);
    return done;
}

/* ---- the pairs ---- */

typedef struct pair {
    int64_t label, predicted, n;
} pair;

/* Finds the most frequent mistakes, by frequency, then class. Returns their number. */
static int find_pairs(const confusion *c, pair best[CONFUSION_PAIRS])
{
    int found = 0;
    for (int64_t i = 0; i < c->classes * c->classes; i++) {
        const pair p = { i / c->classes, i % c->classes, c->v->confusion[i] };
        int at = found;
        if (p.n == 0 || p.label == p.predicted) continue;
        while (at > 0 && p.n > best[at - 1].n) at--;
        if (at == CONFUSION_PAIRS) continue;
        found += found < CONFUSION_PAIRS;
        memmove(best + at + 1, best + at, (size_t)(found - at - 1) * sizeof *best);
        best[at] = p;
    }
    return found;
}

static bool draw_pairs(confusion *c, const char *path, char *why, size_t size)
{
    pair best[CONFUSION_PAIRS];
    panel_bar bars[CONFUSION_PAIRS];
    char name[CONFUSION_PAIRS][600], text[CONFUSION_PAIRS][64];
    const int n = find_pairs(c, best);
    for (int i = 0; i < n; i++) {
        const int64_t images = images_of(c, best[i].label);
        snprintf(name[i], sizeof name[i], "%.200s \u2192 %.200s",
                 class_words_at(c->names, best[i].label).name,
                 class_words_at(c->names, best[i].predicted).name);
        snprintf(text[i], sizeof text[i], "%lld of %lld, %.0f %%", (long long)best[i].n,
                 (long long)images, 100.0 * (double)best[i].n / (double)images);
        bars[i] = (panel_bar){ name[i], (double)best[i].n, text[i], COLOUR_WRONG };
    }
    snprintf(c->note + strlen(c->note), sizeof c->note - strlen(c->note),
             "\nTrue class \u2192 predicted class: how many of the images of the true class.");
    const panel p = { .kind = PANEL_BARS,
                      .title = n ? NULL : "No image was taken for another class.",
                      .across = "images",
                      .bars = { .n = n, .at = bars } };
    const picture whole = { c->title, c->note, 1, 1, &p };
    return picture_draw(NULL, &whole, path, why, size);
}

bool confusion_draw(const score *v, int64_t classes, const class_names *names, const char *what,
                    const char *path, char *why, size_t size)
{
    confusion c = { .v = v, .names = names, .classes = classes };
    const bool few = classes <= CONFUSION_CLASSES;
    const double n = v->count ? (double)v->count : 1;
    snprintf(c.title, sizeof c.title, few ? "Confusion matrix" : "Most frequent mistakes");
    snprintf(c.note, sizeof c.note, "%.1000s: %lld images, top-1 %.1f %%, top-5 %.1f %%", what,
             (long long)v->count, 100.0 * (double)v->top1 / n, 100.0 * (double)v->top5 / n);
    return few ? draw_matrix(&c, path, why, size) : draw_pairs(&c, path, why, size);
}
