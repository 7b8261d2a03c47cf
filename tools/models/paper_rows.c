/* paper_rows.c - prints the rows of the papers' tables and figures with their commands. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/options.h>

#include "model_views.h"

/* One command a line; those that stand or fall together are continued. */
static void print_commands(text_part c)
{
    const char *end = c.at + c.n;
    for (const char *at = c.at; at < end;) {
        int n = 0;
        while (at + n < end && strncmp(at + n, "; ", 2) != 0 && strncmp(at + n, " && ", 4) != 0)
            n++;
        const bool more = at + n < end && at[n] == ' ';
        printf("    %.*s%s\n", n, at, more ? " && \\" : "");
        at += n + (more ? 4 : 2);
    }
}

static void print_row(const paper_row *r)
{
    const text_part *column = r->column;
    static const char quoted[] = "quoted from elsewhere, not built";
    const text_part state = column[PAPER_STATE];
    printf("%s, %.*s: %.*s\n", r->paper, column[PAPER_PLACE].n, column[PAPER_PLACE].at,
           column[PAPER_ROW].n, column[PAPER_ROW].at);
    if (column[PAPER_COMMAND].n > 0)
        print_commands(column[PAPER_COMMAND]);
    else if (strncmp(quoted, state.at, (size_t)state.n) == 0)
        printf("    %s\n", quoted);
    else
        printf("    %.*s\n", state.n, state.at);
    if (column[PAPER_PRINTED].n > 0)
        printf("    printed: %.*s\n", column[PAPER_PRINTED].n, column[PAPER_PRINTED].at);
    if (column[PAPER_REMARK].n > 0)
        printf("    %.*s\n", column[PAPER_REMARK].n, column[PAPER_REMARK].at);
}

static json_t *row_json(const paper_row *r)
{
    static const char *const names[] = { "place", "row", "state", "command", "printed", "remark" };
    json_t *row = json_pack("{s:s}", "paper", r->paper);
    for (int c = 0; c < PAPER_COLUMNS; c++)
        json_object_set_new(row, names[c], json_stringn(r->column[c].at, (size_t)r->column[c].n));
    return row;
}

/* Prints a row, or adds it to a list of JSON objects. */
static void show(void *list, const paper_row *r)
{
    if (list)
        json_array_append_new(list, row_json(r));
    else
        print_row(r);
}

int paper_rows(const char *text, bool json)
{
    char why[600];
    json_t *all = json ? json_array() : NULL;
    const int n = papers_each(text, show, all);
    if (n > 0 && json) return print_json(all);
    json_decref(all);
    if (n > 0) return 0;
    papers_complain(text, why, sizeof why);
    tp_command_complain("tp-models", why);
    return 1;
}
