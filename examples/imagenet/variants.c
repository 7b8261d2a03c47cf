/* variants.c - changes of a model's members, separated by slashes, and short names for them. */
#include "variants.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Length of a text's first part: up to a comma, or to the next stage of an arch, "_l2". */
static int length_of(const char *text)
{
    int n = 0;
    while (text[n] && text[n] != ',' &&
           (text[n] != '_' || text[n + 1] != 'l' || !isdigit((unsigned char)text[n + 2])))
        n++;
    return n;
}

/* Part number i of a text, of length *n; NULL past the last. */
static const char *part(const char *text, int i, int *n)
{
    for (; i > 0 && *text; i--) {
        text += length_of(text);
        text += *text != '\0';
    }
    *n = length_of(text);
    return *text ? text : NULL;
}

static bool is_common(const char *const text[], int count, int i)
{
    int n, m;
    const char *first = part(text[0], i, &n);
    for (int k = 1; k < count; k++) {
        const char *other = part(text[k], i, &m);
        if (!first || !other || n != m || memcmp(first, other, (size_t)n) != 0) return false;
    }
    return true;
}

/* Do all have as many parts as the first? */
static bool are_alike(const char *const text[], int count)
{
    int n, parts = 0;
    while (part(text[0], parts, &n)) parts++;
    for (int k = 1; k < count; k++)
        if (!part(text[k], parts - 1, &n) || part(text[k], parts, &n)) return false;
    return count > 1;
}

/* Appends a part unless it is there already: "f4" stands for all stages. */
static void append(char *name, size_t size, const char *from, int n)
{
    const size_t used = strlen(name);
    int m;
    const char *there;
    for (int i = 0; (there = part(name, i, &m)); i++)
        if (m == n && memcmp(there, from, (size_t)n) == 0) return;
    snprintf(name + used, size - used, "%s%.*s", used ? "," : "", n, from);
}

static void find_names(variant v[], const char *const text[], int count)
{
    const bool alike = are_alike(text, count);
    for (int k = 0; k < count; k++) {
        const char *from;
        int n;
        snprintf(v[k].name, sizeof v[k].name, "%s", alike ? "" : text[k]);
        for (int i = 0; alike && (from = part(text[k], i, &n)); i++)
            if (!is_common(text, count, i)) append(v[k].name, sizeof v[k].name, from, n);
    }
}

int variants_read(variant v[VARIANTS], const char *list, const char *set, char *why, size_t size)
{
    char copy[VARIANTS * 400];
    const char *text[VARIANTS] = { "" };
    int count = 1;
    snprintf(copy, sizeof copy, "%s", list ? list : "");
    if (list && (strlen(list) >= sizeof copy || !*list || strstr(list, "//") || *list == '/' ||
                 list[strlen(list) - 1] == '/')) {
        snprintf(why, size, "--vary: '%.200s' is not a list like edge=exact/edge=mask", list);
        return 0;
    }
    text[0] = copy;
    for (char *s = copy; (s = strchr(s, '/'));) {
        *s++ = '\0';
        if (count == VARIANTS) {
            snprintf(why, size, "--vary: at most %d changes can be compared", VARIANTS);
            return 0;
        }
        text[count++] = s;
    }
    find_names(v, text, count);
    for (int k = 0; k < count; k++) {
        const bool both = set && *set && *text[k];
        if (snprintf(v[k].set, sizeof v[k].set, "%s%s%s", set ? set : "", both ? "," : "",
                     text[k]) < (int)sizeof v[k].set)
            continue;
        snprintf(why, size, "--vary: a change has more than %d bytes", VARIANT_SET - 1);
        return 0;
    }
    return count;
}
