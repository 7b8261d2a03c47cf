/* options_help.c - prints a command's manual, for --help and as a man page. */
#include <ctype.h>
#include <string.h>

#include "options_inner.h"
#include "terminal.h"

/* ---- rows ---- */

static const tp_option help_rows[] = {
    TP_HEADING("HELP"),
    { .name = "help", .kind = TP_OPTION_HELP, .help = "Print this manual." },
    { .name = "version", .kind = TP_OPTION_HELP, .help = "Print the version." },
    { .name = "man", .kind = TP_OPTION_HELP, .help = "Print this manual as a man page." },
    { .name = "completion",
      .kind = TP_OPTION_HELP,
      .value = "bash|zsh",
      .help = "Print a shell completion script." },
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

/* Bold on a terminal. */
static void heading(FILE *out, const char *text, int length)
{
    const bool bold = tp__has_colours(out);
    fprintf(out, "%s%.*s%s", bold ? "\033[1m" : "", length, text, bold ? "\033[0m" : "");
}

/* Prints sections unchanged; an unindented line is a heading. */
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

/* ---- text of the man page ---- */

static void print_char(char c, FILE *out)
{
    switch (c) {
    case '\\': fputs("\\e", out); break;
    case '-': fputs("\\-", out); break;
    case '\'': fputs("\\(aq", out); break;
    case '`': fputs("\\(ga", out); break;
    case '^': fputs("\\(ha", out); break;
    case '~': fputs("\\(ti", out); break;
    default: fputc(c, out);
    }
}

static void print_n(const char *text, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) print_char(text[i], out);
}

static void print(const char *text, FILE *out)
{
    print_n(text, strlen(text), out);
}

/* Prints a line of text; a leading dot is no request. */
static void print_line(const char *text, size_t n, FILE *out)
{
    if (n > 0 && *text == '.') fputs("\\&", out);
    print_n(text, n, out);
    fputc('\n', out);
}

/* Paragraphs, one line per sentence; "\n\n" ends a paragraph, '\n' a line. */
static void paragraphs(const char *text, FILE *out)
{
    while (*text) {
        size_t n = strcspn(text, "\n"), end = 0;
        for (size_t i = 0; i + 1 < n && !end; i++)
            if (text[i] == '.' && text[i + 1] == ' ') end = i + 1;
        print_line(text, end ? end : n, out);
        text += end ? end : n;
        if (*text == '\n') fputs(text[1] == '\n' ? ".PP\n" : text[1] ? ".br\n" : "", out);
        text += strspn(text, " \n");
    }
}

/* Keeps line breaks and, except for the help's indent, blanks. */
static void verbatim(const char *text, size_t n, FILE *out)
{
    fputs(".nf\n", out);
    for (const char *end = text + n; text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end;
        if (stop - text >= 4 && strncmp(text, "    ", 4) == 0) text += 4;
        print_line(text, (size_t)(stop - text), out);
        text = newline ? newline + 1 : end;
    }
    fputs(".fi\n", out);
}

/* The length up to the next heading, without trailing empty lines. */
static size_t section_length(const char *text)
{
    size_t n = 0;
    while (text[n] == ' ' || text[n] == '\n') {
        n += strcspn(text + n, "\n");
        n += text[n] == '\n';
    }
    while (n > 0 && text[n - 1] == '\n') n--;
    return n;
}

static void man_sections(const char *text, FILE *out)
{
    while (*text) {
        const size_t heading = strcspn(text, "\n");
        fputs(".SH ", out);
        print_line(text, heading, out);
        text += heading + (text[heading] == '\n');
        const size_t n = section_length(text);
        if (n > 0) verbatim(text, n, out);
        text += n + strspn(text + n, "\n");
    }
}

/* ---- pages ---- */

/* "enwik8 train" is the page enwik8-train. */
static void print_page_name(const char *command, bool capitals, FILE *out)
{
    for (const char *s = command; *s; s++)
        print_char(*s == ' ' ? '-' : capitals ? (char)toupper((unsigned char)*s) : *s, out);
}

static void begin(const char *command, const char *summary, FILE *out)
{
    fputs(".TH ", out);
    print_page_name(command, true, out);
    fprintf(out, " 1 \"\" \"tapegrad %s\" \"User Commands\"\n.SH NAME\n", tp_version());
    print_page_name(command, false, out);
    fputs(" \\- ", out);
    print(summary, out);
    fputs("\n.SH SYNOPSIS\n", out);
}

static void refer(const char *page, const char *after, FILE *out)
{
    fputs(".BR ", out);
    print_page_name(page, false, out);
    fprintf(out, " (1)%s\n", after);
}

static void print_row(const tp_option *o, const void *defaults, FILE *out)
{
    char text[2000];
    fputs(".TP\n", out);
    if (o->kind != TP_OPTION_WORDS) {
        fputs("\\fB\\-\\-", out);
        print(o->name, out);
        fputs("\\fR", out);
    }
    if (o->kind == TP_OPTION_BOOL) {
        fputs(", \\fB\\-\\-no\\-", out);
        print(o->name, out);
        fputs("\\fR", out);
    } else if (o->value) {
        fputs(o->kind == TP_OPTION_WORDS ? "\\fI" : " \\fI", out);
        print(o->value, out);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    tp__option_help(o, defaults, text, sizeof text);
    paragraphs(text, out);
}

void tp__man_of_command(const tp_command *c, const void *defaults, FILE *out)
{
    const tp_option *row[TP_MAX_ROWS];
    const int n = tp__options_all(c->table, row);
    const char *blank = strchr(c->name, ' ');
    char synopsis[2000], program[128];
    begin(c->name, c->summary, out);
    snprintf(synopsis, sizeof synopsis, "%s %s", c->name, c->synopsis ? c->synopsis : "[flag ...]");
    verbatim(synopsis, strlen(synopsis), out);
    fputs(".SH DESCRIPTION\n", out);
    paragraphs(c->about, out);
    for (int i = 0; i < n; i++)
        if (row[i]->kind == TP_OPTION_HEADING)
            man_sections(row[i]->name, out);
        else
            print_row(row[i], defaults, out);
    if (c->more) man_sections(c->more, out);
    if (!blank) return;
    snprintf(program, sizeof program, "%.*s", (int)(blank - c->name), c->name);
    fputs(".SH SEE ALSO\n", out);
    refer(program, "", out);
}

void tp__man_of_program(const char *program, const char *about, const tp_subcommand *rows,
                        FILE *out)
{
    char page[256];
    begin(program, about, out);
    snprintf(page, sizeof page, "%s COMMAND [flag ...]", program);
    verbatim(page, strlen(page), out);
    fputs(".SH COMMANDS\n", out);
    for (const tp_subcommand *c = rows; c->name; c++) {
        fputs(".TP\n.B ", out);
        print(c->name, out);
        fputc('\n', out);
        paragraphs(c->what, out);
    }
    fputs(".SH SEE ALSO\n", out);
    for (const tp_subcommand *c = rows; c->name; c++) {
        snprintf(page, sizeof page, "%s %s", program, c->name);
        refer(page, c[1].name ? "," : "", out);
    }
}
