/* table_rows.c - what `imagenet table` trains: presets by name, or the rows of a paper's table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "image_settings.h"
#include "reports/papers.h"
#include "table/table.h"

/* Is it an image model? */
static bool is_preset(const char *name, char *why, size_t size)
{
    image_settings s = { .train = tp_train_defaults(NULL) };
    const bool done = image_preset(&s, name, -1, why, size);
    free(s.preset);
    return done;
}

/* The row of that name, or NULL. */
static const image_row *find(const image_table *t, const char *name)
{
    for (int i = 0; i < t->rows; i++)
        if (strcmp(t->row[i].name, name) == 0) return &t->of[i];
    return NULL;
}

/* "PRESET" or "PRESET --flag ...". False if that is too long. */
static bool name_of(const image_row *r, char name[TRAININGS_NAME])
{
    const int n =
        snprintf(name, TRAININGS_NAME, "%s%s%s", r->preset, *r->flags ? " " : "", r->flags);
    return n < TRAININGS_NAME;
}

/* False with the reason in why. */
static bool add(image_table *t, const image_row *r, char *why, size_t size)
{
    if (!is_preset(r->preset, why, size)) return false;
    if (t->rows == TABLE_ROWS) {
        snprintf(why, size, "a table has at most %d rows: name fewer", TABLE_ROWS);
        return false;
    }
    if (!name_of(r, t->row[t->rows].name)) {
        snprintf(why, size, "%s with %s: the flags are too long for a row", r->preset, r->flags);
        return false;
    }
    t->of[t->rows++] = *r;
    return true;
}

bool table_of_presets(image_table *t, const char *list, char *why, size_t size)
{
    for (const char *at = list; *at;) {
        image_row r = { .paper = NAN };
        const size_t n = strcspn(at, ",");
        snprintf(r.preset, sizeof r.preset, "%.*s", (int)(n < 63 ? n : 63), at);
        if (n == 0 || find(t, r.preset)) {
            snprintf(why, size, "--preset: '%s' %s", n ? r.preset : list,
                     n ? "is there twice" : "is not a list like vil-tiny-rpb,vit-lsla");
            return false;
        }
        if (!add(t, &r, why, size)) return false;
        at += n + (at[n] == ',');
    }
    if (t->rows == 0) snprintf(why, size, "--preset: the list is empty");
    return t->rows > 0;
}

/* ---- rows of papers ---- */

typedef struct paper_reader {
    image_table *t;
    const char *text;
    bool look, named; /* look: only find out whether the text names the data of a row */
    int left_out;
    char *why;
    size_t size;
    bool failed;
} paper_reader;

/* Cuts the next part of a text off: up to ", " or "; " (commands: "; " alone), or to its end. */
static bool next_part(text_part *text, bool commands, text_part *part)
{
    if (text->n <= 0) return false;
    int n = 0;
    while (n + 1 < text->n &&
           ((text->at[n] != ';' && (commands || text->at[n] != ',')) || text->at[n + 1] != ' '))
        n++;
    if (n + 1 >= text->n) n = text->n;
    *part = (text_part){ text->at, n };
    *text = (text_part){ text->at + n + 2, text->n - n - 2 };
    return true;
}

/* Figure i of n in "75.86, 75.79; 82.1", which lists one for each command; a single command has the
 * first one. NaN: none. */
static double figure(text_part printed, int i, int n)
{
    text_part part;
    double found = NAN;
    int figures = 0;
    for (; next_part(&printed, false, &part); figures++) {
        char word[32], *end;
        snprintf(word, sizeof word, "%.*s", part.n, part.at);
        const double x = strtod(word, &end);
        const bool pure = part.n > 0 && part.n < (int)sizeof word && *end == '\0';
        if (n == 1) return pure ? x : NAN;
        if (!pure) return NAN;
        if (figures == i) found = x;
    }
    return figures == n ? found : NAN;
}

/* Reads "imagenet train --data D --preset P [flag ...]"; false for other commands and for those
 * that need the result of another one. */
static bool read_command(text_part command, image_row *r)
{
    static const char begins[] = "imagenet train ";
    char text[2000];
    snprintf(text, sizeof text, "%.*s", command.n, command.at);
    if (command.n >= (int)sizeof text || strncmp(text, begins, strlen(begins)) != 0 ||
        strstr(text, " && ") || strstr(text, "--init ") || strstr(text, "--teacher ") ||
        strstr(text, "--plan"))
        return false;
    const char *take = NULL; /* what the next word is the value of; "": of no flag that counts */
    for (char *word = strtok(text + strlen(begins), " "); word; word = strtok(NULL, " ")) {
        const bool data = take && strcmp(take, "data") == 0;
        const bool preset = take && strcmp(take, "preset") == 0;
        const size_t n = strlen(r->flags);
        if (data || preset)
            snprintf(data ? r->data : r->preset, 64, "%.63s", word);
        else if (!take && strcmp(word, "--data") == 0)
            take = "data";
        else if (!take && strcmp(word, "--preset") == 0)
            take = "preset";
        else if (!take && strcmp(word, "--run-dir") == 0)
            take = "";
        else if (!take)
            snprintf(r->flags + n, sizeof r->flags - n, "%s%s", n ? " " : "", word);
        if (word[0] != '-') take = NULL;
    }
    return *r->preset != '\0';
}

/* Adds a row unless an equal one is there. False with the reason in why. */
static bool add_once(paper_reader *p, const image_row *r)
{
    char name[TRAININGS_NAME];
    const image_row *there = name_of(r, name) ? find(p->t, name) : NULL;
    if (!there) return add(p->t, r, p->why, p->size);
    if (strcmp(there->data, r->data) == 0) return true;
    snprintf(p->why, p->size,
             "--paper means '%s' with %s and with %s: add one of these words to it", r->preset,
             there->data, r->data);
    return false;
}

/* Is the row's data a word of the text? */
static bool names_data(const char *text, const char *data)
{
    const size_t n = strlen(data);
    for (const char *at = text; n > 0 && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strncasecmp(at, data, n) == 0 && strchr(" ", at[n])) return true;
    return false;
}

static void take_row(void *env, const paper_row *row)
{
    paper_reader *p = env;
    text_part commands = row->column[PAPER_COMMAND], command, all = commands;
    int n = 0, i = 0, found = 0;
    while (next_part(&all, true, &command)) n++;
    for (; next_part(&commands, true, &command); i++) {
        image_row r = { .paper = figure(row->column[PAPER_PRINTED], i, n) };
        if (!read_command(command, &r)) continue;
        const bool named = names_data(p->text, r.data);
        p->named |= named;
        if (p->look || named != p->named) continue;
        if (!p->failed) p->failed = !add_once(p, &r);
        found++;
    }
    if (!p->look && found == 0) p->left_out++;
}

bool table_of_paper(image_table *t, const char *text, int *left_out, char *why, size_t size)
{
    paper_reader p = { .t = t, .text = text, .look = true, .why = why, .size = size };
    papers_each(text, take_row, &p);
    p.look = false;
    const int n = papers_each(text, take_row, &p);
    *left_out = p.left_out;
    if (p.failed) return false;
    if (n == 0) {
        const size_t at = (size_t)snprintf(why, size, "--paper: ");
        papers_complain(text, why + at, size - at);
    } else if (t->rows == 0) {
        snprintf(why, size,
                 "--paper: no row of '%.200s' is a training of an image model that needs no other "
                 "one; tp-models --paper shows the rows",
                 text);
    }
    return n > 0 && t->rows > 0;
}
