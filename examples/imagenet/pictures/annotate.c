/* annotate.c - draws images with a model's predictions. */
#include "annotate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>

#include "reports/plain_text.h"

/* ---- titles ---- */

const char *title_name(const char *path, char *buf, size_t size)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t from = end;
    while (from > 0 && path[from - 1] != '/') from--;
    if (from == end) from = 0; /* the root */
    snprintf(buf, size, "%.*s", (int)(end - from), path + from);
    return buf;
}

/* Names a run by its folder, any other file by its name. */
static void name_file(const char *path, char *buf, size_t size)
{
    static const char *const of_runs[] = { "best.safetensors", "last.safetensors" };
    char file[300];
    title_name(path, file, sizeof file);
    for (int i = 0; i < 2; i++)
        if (strcmp(file, of_runs[i]) == 0 && strlen(path) > strlen(file)) {
            char folder[4200];
            snprintf(folder, sizeof folder, "%.*s", (int)(strlen(path) - strlen(file)), path);
            title_name(folder, buf, size);
            return;
        }
    snprintf(buf, size, "%s", file);
}

const char *title_model(const image_file *f, const char *preset, char *buf, size_t size)
{
    char name[300];
    if (!f->t.path[0]) {
        snprintf(buf, size, "%.200s, initial weights",
                 preset ? preset : classifier_family(&f->cfg));
        return buf;
    }
    name_file(f->t.path, name, sizeof name);
    if (f->update >= 0)
        snprintf(buf, size, "%s, update %lld", name, (long long)f->update);
    else if (preset)
        snprintf(buf, size, "%.200s, weights of %s", preset, name);
    else
        snprintf(buf, size, "%s", name);
    return buf;
}

const char *title_images(const char *data, tp_part part, char *buf, size_t size)
{
    static const char *const parts[] = {
        [TP_TRAIN] = "train", [TP_VALID] = "valid", [TP_TEST] = "test"
    };
    char name[300];
    snprintf(buf, size, "%s (%s)", data ? title_name(data, name, sizeof name) : "drawn shapes",
             parts[part]);
    return buf;
}

/* ---- an image and its classes ---- */

/* In pixels: an image's longer side and the bar of probability 1; the least height of all bars. */
enum { SIDE = 400, LEAST_BARS = 200 };

/* A bar's texts. */
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

/* The display size of a w x h image; gnuplot enlarges small ones. */
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

/* ---- mistakes ---- */

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
