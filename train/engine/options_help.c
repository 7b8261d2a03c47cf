/* options_help.c - prints the manual of a command for --help. */
#include <string.h>

#include "options_inner.h"
#include "terminal.h"

/* ---- rows ---- */

static const tp_option help_rows[] = {
    TP_HEADING("HELP"),
    { .name = "help", .kind = TP_OPTION_HELP, .help = "Print this manual." },
    { .name = "version", .kind = TP_OPTION_HELP, .help = "Print the version." },
    { .name = "man", .kind = TP_OPTION_HELP, .help = "Print this manual as a page for man." },
    { .name = "completion",
      .kind = TP_OPTION_HELP,
      .value = "bash|zsh",
      .help = "Print a script with which the shell completes command lines." },
    { 0 },
};

int tp__options_all(const tp_option *table, const tp_option *row[TP_MAX_ROWS])
{
    int n = tp_options_list(table, row);
    for (const tp_option *o = help_rows; o->kind != TP_OPTION_END; o++) row[n++] = o;
    return n;
}

void tp__option_help(const tp_option *o, const void *defaults, char *text, size_t size)
{
    char value[256] = "", range[100] = "";
    if (o->kind == TP_OPTION_BOOL)
        snprintf(value, sizeof value, "%s",
                 *(const bool *)tp__option_value(o, defaults) ? "on" : "off");
    else
        tp_option_get(o, defaults, value, sizeof value);
    if (o->kind == TP_OPTION_INT || o->kind == TP_OPTION_NUM) {
        char bounds[80];
        tp__option_range(o, bounds, sizeof bounds);
        snprintf(range, sizeof range, " Range: %s.", bounds);
    }
    snprintf(text, size, "%.1500s%s%s%s%s", o->help, range, value[0] ? " Default: " : "", value,
             value[0] ? "." : "");
}

/* ---- text ---- */

/* Prints text in lines of at most 80 columns; '\n' begins a new line, "\n\n" a paragraph. */
static void wrap(FILE *out, int indent, const char *text)
{
    int column = 0;
    while (*text) {
        const int word = (int)strcspn(text, " \n");
        if (column > 0 && column + 1 + word > 80) {
            fputc('\n', out);
            column = 0;
        }
        if (column == 0 && word > 0)
            column = fprintf(out, "%*s%.*s", indent, "", word, text);
        else if (word > 0)
            column += fprintf(out, " %.*s", word, text);
        text += word;
        if (*text == '\n') {
            fputc('\n', out);
            column = 0;
        }
        if (*text) text++;
    }
    if (column > 0) fputc('\n', out);
}

/* Headings are bold on a terminal. */
static void heading(FILE *out, const char *text, int length)
{
    const bool bold = tp__has_colours(out);
    fprintf(out, "%s%.*s%s", bold ? "\033[1m" : "", length, text, bold ? "\033[0m" : "");
}

/* Sections as they are; a line that does not begin with a blank is a heading. */
static void sections(FILE *out, const char *text)
{
    while (*text) {
        const int n = (int)strcspn(text, "\n");
        if (n > 0 && *text != ' ')
            heading(out, text, n);
        else
            fprintf(out, "%.*s", n, text);
        text += n;
        if (*text) fputc(*text++, out);
    }
}

static void help_row(const tp_option *o, const void *defaults, FILE *out)
{
    char text[2000];
    if (o->kind == TP_OPTION_WORDS)
        fprintf(out, "    %s\n", o->value);
    else if (o->kind == TP_OPTION_BOOL)
        fprintf(out, "    --%s, --no-%s\n", o->name, o->name);
    else
        fprintf(out, "    --%s%s%s\n", o->name, o->value ? " " : "", o->value ? o->value : "");
    tp__option_help(o, defaults, text, sizeof text);
    wrap(out, 8, text);
}

void tp_options_help(const tp_command *c, const void *defaults, FILE *out)
{
    if (!c) return;
    const tp_option *row[TP_MAX_ROWS];
    const int n = tp__options_all(c->table, row);
    sections(out, "NAME\n");
    fprintf(out, "    %s - %s\n\n", c->name, c->summary);
    sections(out, "SYNOPSIS\n");
    fprintf(out, "    %s %s\n\n", c->name, c->synopsis ? c->synopsis : "[flag ...]");
    sections(out, "DESCRIPTION\n");
    wrap(out, 4, c->about);
    for (int i = 0; i < n; i++)
        if (row[i]->kind == TP_OPTION_HEADING) {
            fputc('\n', out);
            sections(out, row[i]->name);
            fputc('\n', out);
        } else {
            help_row(row[i], defaults, out);
        }
    if (c->more) {
        fputc('\n', out);
        sections(out, c->more);
    }
}
