/* explain_print.c - explanations as text, JSON and pictures. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "pictures/picture.h"
#include "reports/json_lines.h"
#include "reports/plain_text.h"

/* ---- text ---- */

/* As people read it: line ends stay, everything that could command a terminal is escaped. */
static void put(FILE *out, const char *text)
{
    while (*text) {
        char shown[TP_PLAIN];
        const bool ends = *text == '\n';
        const size_t n = tp_plain_at(text, shown);
        fputs(ends ? "\n" : shown, out);
        text += n;
    }
}

/* From white to blue or red: the more, the darker. */
static void colour_of(double share, int rgb[3])
{
    static const int blue[] = { 90, 150, 230 }, red[] = { 235, 95, 85 };
    const int *end = share > 0 ? blue : red;
    for (int k = 0; k < 3; k++) rgb[k] = 255 - (int)(fabs(share) * (255 - end[k]));
}

static void print_coloured(FILE *out, const explanation *e)
{
    for (int i = 0; i < e->n; i++) {
        const double share = e->most > 0 ? e->at[i].weight / e->most : 0;
        int c[3];
        colour_of(share, c);
        const bool plain = fabs(share) < 0.05 || strchr(e->at[i].text, '\n');
        if (!plain) fprintf(out, "\033[30;48;2;%d;%d;%dm", c[0], c[1], c[2]);
        put(out, e->at[i].text);
        if (!plain) fputs("\033[0m", out);
    }
    fputc('\n', out);
}

static int by_weight(const void *a, const void *b)
{
    const explained *const *x = a, *const *y = b;
    return ((*x)->weight < (*y)->weight) - ((*x)->weight > (*y)->weight);
}

enum { STRONGEST = 8 };

static void print_list(FILE *out, const explanation *e)
{
    const explained **order = malloc(((size_t)e->n + 1) * sizeof *order);
    if (!order) return;
    for (int i = 0; i < e->n; i++) order[i] = &e->at[i];
    qsort(order, (size_t)e->n, sizeof *order, by_weight);
    for (int sign = 1; sign >= -1; sign -= 2) {
        fputs(sign > 0 ? "  for:    " : "  against:", out);
        for (int k = 0; k < STRONGEST && k < e->n; k++) {
            const explained *p = order[sign > 0 ? k : e->n - 1 - k];
            char text[80];
            if (sign * p->weight <= 0) break;
            fprintf(out, " '%s' %+.3f", plain_line(p->text, text, sizeof text), p->weight);
        }
        fputc('\n', out);
    }
    free(order);
}

void explanation_print(FILE *out, const explanation *e, bool colours)
{
    if (colours)
        print_coloured(out, e);
    else
        print_list(out, e);
}

json_t *explanation_json(const explanation *e)
{
    json_t *all = json_array();
    for (int i = 0; i < e->n; i++)
        if (json_array_append_new(all, json_pack("[o,o]", text_as_json(e->at[i].text),
                                                 number_as_json(e->at[i].weight))) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

/* ---- pictures ---- */

enum { ACROSS = 14, MOST_ROWS = 40, CELL_WIDTH = 76, CELL_HEIGHT = 24 };

bool explanation_draw(const explanation *e, const char *title, const char *class_name,
                      const char *path, char *why, size_t size)
{
    const int most = ACROSS * MOST_ROWS, n = e->n < most ? e->n : most;
    const int rows = n > 0 ? (n + ACROSS - 1) / ACROSS : 1, cells = rows * ACROSS;
    double *v = malloc((size_t)cells * sizeof *v);
    const char **text = calloc((size_t)cells, sizeof *text);
    char note[400];
    bool done = v && text;
    for (int i = 0; done && i < cells; i++) {
        v[i] = i < n ? e->at[i].weight : (double)NAN;
        text[i] = i < n ? e->at[i].text : NULL;
    }
    snprintf(note, sizeof note,
             "Share of each token in the log odds of %.100s: blue speaks for it, red against it.%s",
             class_name, e->n > n ? " The text goes on." : "");
    const panel all = { .kind = PANEL_HEAT,
                        .width = ACROSS * CELL_WIDTH,
                        .height = rows * CELL_HEIGHT,
                        .heat = { .rows = rows,
                                  .cols = ACROSS,
                                  .v = v,
                                  .diverging = true,
                                  .unit = "log odds",
                                  .texts = text } };
    const picture whole = { title, note, 1, 1, &all };
    if (done)
        done = picture_draw(NULL, &whole, path, why, size);
    else
        snprintf(why, size, "out of memory");
    free(v);
    free(text);
    return done;
}
