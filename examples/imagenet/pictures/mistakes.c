/* mistakes.c - see the header. */
#include "mistakes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>

#include "annotate.h"
#include "reports/plain_text.h"
#include "titles.h"

static bool worse(const mistake *a, const mistake *b)
{
    if (a->best[0].p != b->best[0].p) return a->best[0].p > b->best[0].p;
    if (a->right != b->right) return a->right < b->right;
    return a->image < b->image;
}

void mistakes_note(mistakes *m, int64_t image, int32_t label, const float *logits, int64_t classes)
{
    mistake x = { .image = image, .label = label };
    x.n = classes < MISTAKE_PREDICTIONS ? (int)classes : MISTAKE_PREDICTIONS;
    if (!predictions_of(logits, classes, x.n, x.best) || x.best[0].label == label) return;
    x.right = x.best[0].p * exp((double)logits[label] - (double)logits[x.best[0].label]);
    int64_t at = m->n;
    while (at > 0 && worse(&x, m->at + at - 1)) at--;
    if (at == m->most) return;
    m->n += m->n < m->most;
    memmove(m->at + at + 1, m->at + at, (size_t)(m->n - at - 1) * sizeof *m->at);
    m->at[at] = x;
}

/* ---- pictures ---- */

/* The pixels of an example [size,size,3]. */
static bool pixels(tp_image *p, const tp_augment *a, const float *x)
{
    if (!tp_image_new(p, a->size, a->size)) return false;
    for (int64_t i = 0; i < a->size * a->size * 3; i++) {
        const double v = 255 * ((double)x[i] * (double)a->std[i % 3] + (double)a->mean[i % 3]);
        p->rgb[i] = (uint8_t)lround(fmin(fmax(v, 0), 255));
    }
    return true;
}

typedef struct drawing {
    const tp_image_set *X;
    const tp_augment *a;
    const class_names *names;
    const char *note, *folder;
    uint64_t seed;
    gnuplot g;
    tp_augment_work w;
    tp_image p;
    float *x; /* [size,size,3] */
} drawing;

static bool draw(drawing *d, const mistake *m, int64_t rank, char *why, size_t size)
{
    char path[4600], right[64], wrong[64], title[1024], name[4200], file[300];
    const class_words truth = class_words_at(d->names, m->label);
    const class_words guess = class_words_at(d->names, m->best[0].label);
    snprintf(path, sizeof path, "%s/%02lld-%s-%s.png", d->folder, (long long)rank,
             plain_file_name(truth.name, right, sizeof right),
             plain_file_name(guess.name, wrong, sizeof wrong));
    snprintf(title, sizeof title, "%s, predicted as %s", truth.name, guess.name);
    const tp_example e = { .seed = d->seed, .index = (uint64_t)m->image };
    if (!tp_image_set_prepare(d->X, m->image, d->a, &d->w, e, d->x)) {
        snprintf(why, size, "%s", d->w.why);
        return false;
    }
    if (!pixels(&d->p, d->a, d->x)) {
        snprintf(why, size, "%s", d->p.why);
        return false;
    }
    const annotation a = {
        .title = title,
        .note = d->note,
        .caption =
            title_name(tp_image_set_name(d->X, m->image, name, sizeof name), file, sizeof file),
        .image = &d->p,
        .names = d->names,
        .best = m->best,
        .n = m->n,
        .truth = { m->label, m->right },
    };
    return annotate(&d->g, &a, path, why, size);
}

int64_t mistakes_draw(const mistakes *m, const tp_image_set *X, const tp_augment *a,
                      const class_names *names, const char *note, const char *folder, char *why,
                      size_t size)
{
    drawing d = { .X = X, .a = a, .names = names, .note = note, .folder = folder, .seed = m->seed };
    d.x = malloc((size_t)(a->size * a->size * 3) * sizeof *d.x);
    bool done = d.x != NULL;
    if (!done) snprintf(why, size, "out of memory");
    done = done && tp_make_folders(folder, why, size);
    int64_t drawn = 0;
    for (; drawn < m->n && done && !tp_stop_signal(); drawn += done)
        done = draw(&d, m->at + drawn, drawn + 1, why, size);
    gnuplot_end(&d.g);
    tp_augment_work_free(&d.w);
    tp_image_free(&d.p);
    free(d.x);
    return done ? drawn : -1;
}
