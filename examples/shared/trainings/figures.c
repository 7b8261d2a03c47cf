/* figures.c - means, JSON lines and the picture of a table of trainings. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "pictures/picture.h"
#include "trainings.h"

/* ---- numbers ---- */

static double value(const training_row *r, int i, size_t at)
{
    return *(const double *)(const void *)((const char *)&r->run[i] + at);
}

double training_mean(const training_row *r, size_t at)
{
    double sum = 0;
    for (int i = 0; i < r->runs; i++) sum += value(r, i, at);
    return sum / r->runs;
}

double training_deviation(const training_row *r, size_t at)
{
    const double mean = training_mean(r, at);
    double squares = 0;
    for (int i = 0; i < r->runs; i++)
        squares += (value(r, i, at) - mean) * (value(r, i, at) - mean);
    return r->runs > 1 ? sqrt(squares / (r->runs - 1)) : (double)NAN;
}

/* ---- JSON ---- */

/* The caller frees the text. NULL: out of memory. */
static char *lines(const trainings *t)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    bool done = f != NULL;
    for (int i = 0; i < t->rows; i++)
        for (int k = 0; k < t->row[i].runs && done; k++) {
            json_t *line = t->json(t->env, i, k);
            done =
                line && json_dumpf(line, f, JSON_REAL_PRECISION(9)) == 0 && fputc('\n', f) != EOF;
            json_decref(line);
        }
    if (f) done = fclose(f) == 0 && done;
    if (done) return text;
    free(text);
    return NULL;
}

bool trainings_write(const trainings *t, const char *run_dir, FILE *also, char *why, size_t size)
{
    char path[TRAININGS_PATH], *text = lines(t);
    if (!text) {
        snprintf(why, size, "out of memory");
        return false;
    }
    snprintf(path, sizeof path, "%.4300s/table.jsonl", run_dir);
    const bool done = tp_file_replace(path, text, strlen(text), why, size);
    if (done && also) fputs(text, also);
    free(text);
    return done;
}

/* ---- the picture ---- */

/* Averages the seeds' common first validations. NULL x: out of memory. */
static curve curve_of(const training_row *r, size_t x_at)
{
    int n = r->run[0].points;
    for (int i = 1; i < r->runs; i++)
        if (r->run[i].points < n) n = r->run[i].points;
    double *x = calloc(2 * (size_t)n + 1, sizeof *x), *y = x ? x + n : NULL;
    for (int k = 0; x && k < n; k++)
        for (int i = 0; i < r->runs; i++) {
            const training_point *p = &r->run[i].point[k];
            x[k] += *(const double *)(const void *)((const char *)p + x_at) / r->runs;
            y[k] += p->score / r->runs;
        }
    return (curve){ r->name, n, x, y };
}

bool trainings_draw(const trainings *t, const trainings_picture *p, const char *path, char *why,
                    size_t size)
{
    curve *c = calloc((size_t)t->rows + 1, sizeof *c);
    int n = 0;
    bool done = c != NULL;
    for (int i = 0; i < t->rows && done; i++) {
        if (t->row[i].runs == 0) continue;
        c[n] = curve_of(&t->row[i], p->x);
        done = c[n].x != NULL;
        if (done && c[n].n == 0)
            free((void *)(uintptr_t)c[n].x);
        else
            n++;
    }
    const panel one = { .kind = PANEL_CURVES,
                        .across = p->across,
                        .up = p->up,
                        .width = 640,
                        .height = 400,
                        .curves = { .n = n, .at = c } };
    const picture all = { p->title, p->note, 1, 1, &one };
    if (done)
        done = picture_draw(NULL, &all, path, why, size);
    else
        snprintf(why, size, "out of memory");
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)c[i].x);
    free(c);
    return done;
}
