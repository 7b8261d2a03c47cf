/* options_parse.c - parses a command line by its option table. */
#include "options_inner.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tapegrad/nearest.h>

/* ---- messages ---- */

/* Reports a usage error and points to the manual. Returns the exit status. */
static int bad(const char *command, const char *fmt, ...) TP_PRINTF(2, 3);
static int bad(const char *command, const char *fmt, ...)
{
    char why[5000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    tp_command_complain(command, why);
    return tp__bad_usage(command);
}

int tp__bad_usage(const char *command)
{
    fprintf(stderr, "Try '%s --help'.\n", command);
    return 2;
}

void tp__print_version(const char *command)
{
    printf("%s (tapegrad %s)\n", command, tp_version());
}

int tp__printed(const char *command)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0; /* ferror: earlier */
    fprintf(stderr, "%s: standard output: %s\n", command,
            errno ? strerror(errno) : "cannot be written");
    return 1;
}

/* Does a flag's help begin with the words of name: "Learning rate." with "learning-rate"? */
static bool is_about(const char *help, const char *name)
{
    for (; *name; name++, help++)
        if (tolower((unsigned char)*help) != *name && !(*help == ' ' && *name == '-')) return false;
    return !isalnum((unsigned char)*help);
}

/* The flag that name describes, with the shortest matching help; NULL: none. */
static const char *described(const tp_option *const *row, int n, const char *name)
{
    const char *best = NULL;
    size_t shortest = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        if (!tp__option_is_flag(row[i]) || !is_about(row[i]->help, name)) continue;
        const size_t length = strcspn(row[i]->help, ".;:");
        if (length >= shortest) continue;
        shortest = length;
        best = row[i]->name;
    }
    return best;
}

/* The flag probably meant by name, in near or the table; NULL: none. A synonym for a flag's subject
 * is tried after misspelled names. */
static const char *meant(const tp_command *c, const char *name, tp_nearest *near)
{
    const tp_option *row[TP_MAX_ROWS];
    const int n = tp__options_all(c->table, row);
    *near = tp_nearest_to(name);
    for (int i = 0; i < n; i++) {
        char opposite[64];
        if (row[i]->kind == TP_OPTION_HEADING) continue;
        tp_nearest_try(near, row[i]->name);
        snprintf(opposite, sizeof opposite, "no-%s", row[i]->name);
        if (row[i]->kind == TP_OPTION_BOOL) tp_nearest_try(near, opposite);
    }
    return near->name[0] ? near->name : described(row, n, name);
}

static int unknown(const tp_command *c, const char *name)
{
    tp_nearest near;
    const char *flag = meant(c, name, &near);
    return bad(c->name, "--%s: unknown flag%s%s%s", name, flag ? "; did you mean --" : "",
               flag ? flag : "", flag ? "?" : "");
}

static int refuse(const tp_command *c, const char *name, const char *why)
{
    return bad(c->name, "--%s: %s", name, why);
}

/* ---- parsing ---- */

/* The row of a flag; the prefix "no-" of a boolean clears *on. */
static const tp_option *find(const tp_option *table, const char *name, bool *on)
{
    const tp_option *o = tp_option_find(table, name);
    *on = true;
    if (o || strncmp(name, "no-", 3) != 0) return o;
    o = tp_option_find(table, name + 3);
    *on = false;
    return o && o->kind == TP_OPTION_BOOL ? o : NULL;
}

/* Stores an argument that is not a flag at the front of argv, over arguments already parsed. */
static bool take_word(const tp_command *c, char **argv, char *word, void *settings)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(c->table, row);
    for (int i = 0; i < n; i++)
        if (row[i]->kind == TP_OPTION_WORDS) {
            tp_words *all = tp__option_member(row[i], settings);
            all->at = argv;
            argv[all->n++] = word;
            return true;
        }
    return false;
}

static int not_a_flag(const tp_command *c, const char *arg)
{
    tp_nearest near;
    const char *flag = *arg == '-' && arg[1] ? meant(c, arg + 1, &near) : NULL;
    if (flag) return bad(c->name, "'%s' is not a flag; did you mean --%s?", arg, flag);
    return bad(c->name, "'%s' is not a flag; flags begin with --", arg);
}

/* Parses the flag at argv[*i] and its value, which may be argv[*i + 1]. */
static int parse_flag(const tp_command *c, int argc, char **argv, int *i, void *settings,
                      tp_given_flags *given)
{
    const char *arg = argv[*i] + 2, *equals = strchr(arg, '=');
    char name[64], why[512];
    bool on;
    snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - arg : (ptrdiff_t)strlen(arg)), arg);
    const tp_option *o = find(c->table, name, &on);
    if (!o) return unknown(c, name);
    if (o->kind == TP_OPTION_BOOL) {
        if (equals) return refuse(c, name, "takes no value");
        *(bool *)tp__option_member(o, settings) = on;
    } else {
        const char *value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        if (!value || (!equals && strncmp(value, "--", 2) == 0))
            return refuse(c, name, "a value is missing");
        if (!tp_option_set(o, settings, value, why, sizeof why)) return refuse(c, name, why);
    }
    if (given && !tp_was_given(given, o->name)) given->name[given->n++] = o->name;
    return TP_PARSED;
}

int tp__shell_of(const char *command, int argc, char **argv, int i, tp_shell *shell)
{
    static const char flag[] = "--completion";
    static const tp_option row = { .kind = TP_OPTION_CHOICE, .value = "bash|zsh" };
    const size_t n = strlen(flag);
    char why[256] = "a value is missing";
    int found;
    if (strncmp(argv[i], flag, n) != 0 || (argv[i][n] != '=' && argv[i][n])) return TP_PARSED;
    const char *value = argv[i][n] ? argv[i] + n + 1 : i + 1 < argc ? argv[i + 1] : NULL;
    if (value && tp_option_set(&row, &found, value, why, sizeof why)) {
        *shell = (tp_shell)found;
        return 0;
    }
    return bad(command, "%s: %s", flag, why);
}

/* Answers one of the flags that every command has. */
static int answer(const tp_command *c, int argc, char **argv, int i, const void *settings)
{
    tp_shell shell = TP_BASH;
    const int status = tp__shell_of(c->name, argc, argv, i, &shell);
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
        tp_options_help(c, settings, stdout);
    else if (strcmp(argv[i], "--version") == 0)
        tp__print_version(c->name);
    else if (strcmp(argv[i], "--man") == 0)
        tp__man_of_command(c, settings, stdout);
    else if (status == 0)
        tp__complete_command(c, shell, stdout);
    else
        return status;
    return tp__printed(c->name);
}

int tp_options_parse(const tp_command *c, int argc, char **argv, void *settings,
                     tp_given_flags *given)
{
    if (!c) return 0;
    if (given) given->n = 0;
    /* First, since flags change the defaults that --help shows. */
    for (int i = 0; i < argc; i++) {
        const int status = answer(c, argc, argv, i, settings);
        if (status != TP_PARSED) return status;
    }
    for (int i = 0; i < argc; i++) {
        const bool dashes = strncmp(argv[i], "--", 2) == 0;
        if (!dashes && take_word(c, argv, argv[i], settings)) continue;
        if (!dashes || !argv[i][2]) return not_a_flag(c, argv[i]);
        const int status = parse_flag(c, argc, argv, &i, settings, given);
        if (status != TP_PARSED) return status;
    }
    return TP_PARSED;
}
