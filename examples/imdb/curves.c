/* curves.c - `imdb curves`: the validation scores of runs, as a table and as a picture. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/train.h>

#include "imdb_commands.h"
#include "pictures/picture.h"
#include "reports/plain_text.h"

typedef struct curves_settings {
    tp_words runs;
    char *picture, *title;
    int by, score;
} curves_settings;

#define S curves_settings

enum { MOST_RUNS = 12, MOST_LINE = 1 << 20 };

static const char *const keys[] = { "tokens", "seconds", "step" };
static const char *const axes[] = { "tokens, millions", "seconds of training", "updates" };
static const double units[] = { 1e6, 1, 1 };
static const char *const scores[] = { "accuracy", "valid_loss", "valid_bits" };
static const char *const score_axes[] = { "validation accuracy, %", "validation loss",
                                          "validation, bits per masked token" };

static const tp_option table[] = {
    TP_HEADING("RUNS"),
    TP_ARGUMENTS(S, runs, "DIR ...", "Folders of runs, at most 12."),
    TP_HEADING("RESULTS"),
    TP_CHOICE("score", S, score, "accuracy|loss|bits", 0,
              "accuracy or loss of 'imdb train', bits of 'imdb pretrain'."),
    TP_CHOICE("by", S, by, "tokens|seconds|updates", 0, "What the scores are drawn over."),
    TP_STRING("picture", S, picture, "FILE", 0, "Draw them, .png or .svg. Needs gnuplot."),
    TP_STRING("title", S, title, "TEXT", 0, "Title of the picture."),
    { 0 },
};

static const tp_command manual = {
    .name = "imdb curves",
    .summary = "compares the validation scores of runs while they trained",
    .synopsis = "DIR ... [--picture FILE] [flag ...]",
    .about =
        "Reads the logs of runs, also of those that still train, and prints their validation scores: "
        "a line for each validation, and a curve for each run.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    imdb curves runs/scratch runs/tuned --picture accuracy.png\n"
            "    imdb curves runs/pretrain --score bits --by updates\n",
};

/* The scores of a run. */
typedef struct scored {
    const char *name;
    int n, room;
    double *x, *y;
} scored;

static bool add(scored *r, double x, double y)
{
    if (r->n == r->room) {
        const int room = r->room ? 2 * r->room : 64;
        double *a = realloc(r->x, (size_t)room * sizeof *a);
        if (a) r->x = a;
        double *b = a ? realloc(r->y, (size_t)room * sizeof *b) : NULL;
        if (b) r->y = b;
        if (!a || !b) return false;
        r->room = room;
    }
    r->x[r->n] = x;
    r->y[r->n++] = y;
    return true;
}

/* A line of a log: kept if it reports a validation. False without memory, or if it is no JSON. */
static bool read_line(scored *r, const char *line, const curves_settings *s)
{
    json_t *all = json_loads(line, 0, NULL);
    const json_t *x = json_object_get(all, keys[s->by]),
                 *y = json_object_get(all, scores[s->score]);
    const bool done =
        json_is_object(all) && (!json_is_number(x) || !json_is_number(y) ||
                                add(r, json_number_value(x) / units[s->by], json_number_value(y)));
    json_decref(all);
    return done;
}

static bool read_run(scored *r, const char *folder, const curves_settings *s, char *why,
                     size_t size)
{
    char path[4400];
    char *line = malloc(MOST_LINE);
    int number = 0;
    bool done = line != NULL;
    const char *slash = strrchr(folder, '/');
    r->name = slash && slash[1] ? slash + 1 : folder;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    FILE *f = fopen(path, "r");
    if (!f) snprintf(why, size, "%s cannot be opened: %s", path, strerror(errno));
    while (done && f && fgets(line, MOST_LINE, f)) {
        number++;
        const char *end = strchr(line, '\n');
        if (!end && feof(f)) break; /* a line that is just being written */
        done = end && read_line(r, line, s);
        if (!done) snprintf(why, size, "%s:%d is no report of a run", path, number);
    }
    if (!line) snprintf(why, size, "out of memory");
    done = done && f;
    if (done && r->n == 0) {
        snprintf(why, size, "%s has no validation with '%s'", path, scores[s->score]);
        done = false;
    }
    if (f) fclose(f);
    free(line);
    return done;
}

static void print(const scored *r, int n, const curves_settings *s)
{
    char name[64];
    printf("%-24s %20s %s\n", "run", axes[s->by], score_axes[s->score]);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < r[i].n; k++)
            printf("%-24s %20.6g %.4f\n", plain_line(r[i].name, name, sizeof name), r[i].x[k],
                   r[i].y[k]);
}

static bool draw(const scored *r, int n, const curves_settings *s, char *why, size_t size)
{
    curve at[MOST_RUNS];
    for (int i = 0; i < n; i++) at[i] = (curve){ r[i].name, r[i].n, r[i].x, r[i].y };
    const panel all = { .kind = PANEL_CURVES,
                        .across = axes[s->by],
                        .up = score_axes[s->score],
                        .width = 560,
                        .height = 320,
                        .curves = { .n = n, .at = at } };
    const picture whole = { s->title, NULL, 1, 1, &all };
    return picture_draw(NULL, &whole, s->picture, why, size);
}

static bool run(void *settings, char *why, size_t size)
{
    const curves_settings *s = settings;
    scored r[MOST_RUNS] = { 0 };
    bool done = true;
    for (int i = 0; i < s->runs.n && done; i++) done = read_run(&r[i], s->runs.at[i], s, why, size);
    if (done) print(r, s->runs.n, s);
    if (done && s->picture) done = draw(r, s->runs.n, s, why, size);
    for (int i = 0; i < MOST_RUNS; i++) {
        free(r[i].x);
        free(r[i].y);
    }
    if (fflush(stdout) == 0 && !ferror(stdout)) return done;
    snprintf(why, size, "standard output: %s", strerror(errno));
    return false;
}

static bool check(const void *settings, char *why, size_t size)
{
    const curves_settings *s = settings;
    if (s->runs.n >= 1 && s->runs.n <= MOST_RUNS) return true;
    snprintf(why, size, "name 1 to %d folders of runs: imdb curves DIR ...", MOST_RUNS);
    return false;
}

int imdb_curves_main(int argc, char **argv)
{
    tp_command command = manual;
    curves_settings s = { 0 };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
