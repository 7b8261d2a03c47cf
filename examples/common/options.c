/* options.c - the flags of the examples: parsing, help, printing, all from one table.
 *
 * Text values are owned by the settings, so that they may come from argv, a preset or a checkpoint.
 */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *member(const option *o, void *settings)
{
    return (char *)settings + o->at;
}

static const void *const_member(const option *o, const void *settings)
{
    return (const char *)settings + o->at;
}

/* ---- one value ---- */

/* The bounds as words: "1 to 128", "at least 1". */
static void print_range(const option *o, char *text, size_t size)
{
    if (o->max >= OPT_BIG)
        snprintf(text, size, "at least %.10g", o->min);
    else
        snprintf(text, size, "%.10g to %.10g", o->min, o->max);
}

static bool check_range(const option *o, double x, const char *text, char *why, size_t size)
{
    char range[80];
    if (x >= o->min && x <= o->max) return true;
    print_range(o, range, sizeof range);
    snprintf(why, size, "%s is out of range (%s)", text, range);
    return false;
}

static bool set_int(const option *o, int64_t *at, const char *text, char *why, size_t size)
{
    char *end;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text)) {
        snprintf(why, size, "'%s' is not a whole number", text);
        return false;
    }
    if (!check_range(o, errno == ERANGE ? HUGE_VAL : (double)x, text, why, size)) return false;
    *at = x;
    return true;
}

static bool set_num(const option *o, double *at, const char *text, char *why, size_t size)
{
    char *end;
    const double x = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text)) {
        snprintf(why, size, "'%s' is not a number", text);
        return false;
    }
    if (!check_range(o, x, text, why, size)) return false;
    *at = x;
    return true;
}

static bool set_choice(const option *o, int *at, const char *text, char *why, size_t size)
{
    const size_t n = strlen(text);
    int i = 0;
    for (const char *s = o->value; s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL, i++)
        if (n > 0 && strncmp(s, text, n) == 0 && (s[n] == '|' || s[n] == '\0')) {
            *at = i;
            return true;
        }
    snprintf(why, size, "'%s' is none of %s", text, o->value);
    return false;
}

static bool set_text(char **at, const char *text, char *why, size_t size)
{
    char *copy = strdup(text);
    if (!copy) {
        snprintf(why, size, "out of memory");
        return false;
    }
    free(*at);
    *at = copy;
    return true;
}

bool option_set(const option *o, void *settings, const char *text, char *why, size_t size)
{
    void *at = member(o, settings);
    switch (o->kind) {
    case OPT_BOOL:
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
            snprintf(why, size, "'%s' is neither 0 nor 1", text);
            return false;
        }
        *(bool *)at = *text == '1';
        return true;
    case OPT_INT: return set_int(o, at, text, why, size);
    case OPT_NUM: return set_num(o, at, text, why, size);
    case OPT_CHOICE: return set_choice(o, at, text, why, size);
    case OPT_TEXT: return set_text(at, text, why, size);
    case OPT_END:
    case OPT_WORDS:
    case OPT_HEADING: break;
    }
    return true;
}

void option_get(const option *o, const void *settings, char *text, size_t size)
{
    const void *at = const_member(o, settings);
    const char *s = o->value;
    text[0] = '\0';
    switch (o->kind) {
    case OPT_BOOL: snprintf(text, size, "%d", *(const bool *)at); break;
    case OPT_INT: snprintf(text, size, "%lld", (long long)*(const int64_t *)at); break;
    case OPT_NUM: /* the shortest form that reads back as the same number */
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, size, "%.*g", digits, *(const double *)at);
            if (strtod(text, NULL) == *(const double *)at) break;
        }
        break;
    case OPT_CHOICE:
        for (int i = *(const int *)at; i > 0; i--) s = strchr(s, '|') + 1;
        snprintf(text, size, "%.*s", (int)strcspn(s, "|"), s);
        break;
    case OPT_TEXT:
        s = *(char *const *)at;
        snprintf(text, size, "%s", s ? s : "");
        break;
    case OPT_WORDS:
    case OPT_END:
    case OPT_HEADING: break;
    }
}

void options_copy(const option *table, void *to, const void *from)
{
    for (const option *o = table; o->kind != OPT_END; o++)
        if (o->kind == OPT_TEXT) {
            const char *s = *(char *const *)const_member(o, from);
            *(char **)member(o, to) = s ? strdup(s) : NULL;
        }
}

void options_free(const option *table, void *settings)
{
    for (const option *o = table; o->kind != OPT_END; o++)
        if (o->kind == OPT_TEXT) {
            free(*(char **)member(o, settings));
            *(char **)member(o, settings) = NULL;
        }
}

json_t *options_json(const option *table, const void *settings)
{
    json_t *all = json_object();
    char text[64];
    for (const option *o = table; o->kind != OPT_END; o++) {
        const void *at = o->kind == OPT_HEADING ? NULL : const_member(o, settings);
        json_t *value = NULL;
        switch (o->kind) {
        case OPT_BOOL: value = json_boolean(*(const bool *)at); break;
        case OPT_INT: value = json_integer(*(const int64_t *)at); break;
        case OPT_NUM: value = json_real(*(const double *)at); break;
        case OPT_TEXT:
            value = *(char *const *)at ? json_string(*(char *const *)at) : json_null();
            break;
        case OPT_CHOICE:
            option_get(o, settings, text, sizeof text);
            value = json_string(text);
            break;
        case OPT_WORDS:
        case OPT_HEADING:
        case OPT_END: continue;
        }
        json_object_set_new(all, o->name, value);
    }
    return all;
}

/* ---- the command line ---- */

static bool is_flag(const option *o)
{
    return o->kind != OPT_HEADING && o->kind != OPT_WORDS;
}

/* Levenshtein distance, one row at a time; names are short. */
static int distance(const char *a, const char *b)
{
    int row[64];
    const int n = (int)strlen(a), m = (int)strlen(b);
    if (m >= 64 || n >= 64) return 64;
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int swap = diagonal + (a[i - 1] != b[j - 1]);
            const int shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = swap < shift ? swap : shift;
        }
    }
    return row[m];
}

static int unknown(const program *p, const char *name)
{
    const char *best = NULL;
    int least = 4; /* further away is no suggestion */
    for (const option *o = p->table; o->kind != OPT_END; o++)
        if (is_flag(o) && distance(name, o->name) < least) {
            least = distance(name, o->name);
            best = o->name;
        }
    fprintf(stderr, "%s: --%s: unknown flag", p->name, name);
    if (best) fprintf(stderr, "; did you mean --%s?", best);
    fprintf(stderr, "\nTry '%s --help'.\n", p->name);
    return 2;
}

static int refuse(const program *p, const char *name, const char *why)
{
    fprintf(stderr, "%s: --%s: %s\nTry '%s --help'.\n", p->name, name, why, p->name);
    return 2;
}

/* The row of a flag's name; "no-" before that of a boolean clears *on. */
static const option *find(const option *table, const char *name, bool *on)
{
    const char *positive = strncmp(name, "no-", 3) == 0 ? name + 3 : NULL;
    *on = true;
    for (const option *o = table; o->kind != OPT_END; o++) {
        if (!is_flag(o)) continue;
        if (strcmp(o->name, name) == 0) return o;
        if (positive && o->kind == OPT_BOOL && strcmp(o->name, positive) == 0) {
            *on = false;
            return o;
        }
    }
    return NULL;
}

/* Collects a word that is no flag at the front of argv, of which all up to it has been read. */
static bool take_word(const program *p, char **argv, char *word, void *settings)
{
    for (const option *o = p->table; o->kind != OPT_END; o++)
        if (o->kind == OPT_WORDS) {
            words *all = member(o, settings);
            all->at = argv;
            argv[all->n++] = word;
            return true;
        }
    return false;
}

int options_parse(const program *p, int argc, char **argv, void *settings, bool *given)
{
    if (given) memset(given, 0, OPT_MAX * sizeof *given);
    for (int i = 0; i < argc; i++) /* before any flag has changed the defaults that it shows */
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            options_help(p, settings, stdout);
            return 0;
        }
    for (int i = 0; i < argc; i++) {
        char name[64], why[512];
        const char *arg = argv[i], *equals = strchr(arg, '=');
        bool on;
        if (strncmp(arg, "--", 2) != 0 && take_word(p, argv, argv[i], settings)) continue;
        if (strncmp(arg, "--", 2) != 0 || !arg[2]) {
            fprintf(stderr, "%s: '%s' is not a flag; flags begin with --\nTry '%s --help'.\n",
                    p->name, arg, p->name);
            return 2;
        }
        const int length = (int)(equals ? equals - arg : (ptrdiff_t)strlen(arg)) - 2;
        snprintf(name, sizeof name, "%.*s", length, arg + 2);
        const option *o = find(p->table, name, &on);
        if (!o) return unknown(p, name);
        if (o->kind == OPT_BOOL) {
            if (equals) return refuse(p, name, "takes no value");
            *(bool *)member(o, settings) = on;
        } else {
            const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
            if (!value || (!equals && strncmp(value, "--", 2) == 0))
                return refuse(p, name, "a value is missing");
            if (!option_set(o, settings, value, why, sizeof why)) return refuse(p, name, why);
        }
        if (given) given[o - p->table] = true;
    }
    return OPTIONS_RUN;
}

/* ---- help ---- */

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

static void help_row(const option *o, const void *defaults, FILE *out)
{
    char value[256], range[80], text[1200];
    int n = snprintf(text, sizeof text, "%s", o->help);
    option_get(o, defaults, value, sizeof value);
    if (o->kind == OPT_WORDS) {
        fprintf(out, "    %s\n", o->value);
    } else if (o->kind == OPT_BOOL) {
        fprintf(out, "    --%s, --no-%s\n", o->name, o->name);
        snprintf(value, sizeof value, "%s",
                 *(const bool *)const_member(o, defaults) ? "on" : "off");
    } else {
        fprintf(out, "    --%s %s\n", o->name, o->value);
    }
    if (o->kind == OPT_INT || o->kind == OPT_NUM) {
        print_range(o, range, sizeof range);
        n += snprintf(text + n, sizeof text - (size_t)n, " Range: %s.", range);
    }
    if (value[0]) snprintf(text + n, sizeof text - (size_t)n, " Default: %s.", value);
    wrap(out, 8, text);
}

void options_help(const program *p, const void *defaults, FILE *out)
{
    fprintf(out, "NAME\n    %s - %s\n\nSYNOPSIS\n    %s %s\n\nDESCRIPTION\n", p->name, p->summary,
            p->name, p->synopsis);
    wrap(out, 4, p->about);
    for (const option *o = p->table; o->kind != OPT_END; o++)
        if (o->kind == OPT_HEADING)
            fprintf(out, "\n%s\n", o->name);
        else
            help_row(o, defaults, out);
    if (p->more) fprintf(out, "\n%s", p->more);
}
