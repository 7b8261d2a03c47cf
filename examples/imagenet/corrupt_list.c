/* corrupt_list.c - parses --corrupt. */
#include "corrupt_list.h"

#include <stdio.h>
#include <string.h>

#include <tapegrad/nearest.h>

static void add(corrupt_list *l, int c, int severity)
{
    for (int s = 1; s <= TP_CORRUPT_SEVERITIES; s++)
        if ((severity == 0 || severity == s) && !l->at[c][s - 1]) {
            l->at[c][s - 1] = true;
            l->cells++;
        }
}

static bool unknown(const char *name, char *why, size_t size)
{
    tp_nearest near = tp_nearest_to(name);
    size_t n = (size_t)snprintf(why, size, "--corrupt: '%s' is not one of all", name);
    for (int c = 1; c < TP_NCORRUPT && n < size; c++) {
        const char *known = tp_corrupt_name((tp_corrupt)c);
        tp_nearest_try(&near, known);
        n += (size_t)snprintf(why + n, size - n, ", %s", known);
    }
    if (near.name[0] && n < size) snprintf(why + n, size - n, "; did you mean %s?", near.name);
    return false;
}

/* NAME or NAME:SEVERITY; changes word. */
static bool read_word(corrupt_list *l, char *word, char *why, size_t size)
{
    char *colon = strchr(word, ':');
    int severity = 0;
    tp_corrupt c;
    if (colon) {
        *colon = '\0';
        severity = colon[1] >= '1' && colon[1] <= '5' && !colon[2] ? colon[1] - '0' : -1;
    }
    if (severity < 0) {
        snprintf(why, size, "--corrupt: '%s:%s': a severity is a number from 1 to 5", word,
                 colon + 1);
        return false;
    }
    if (strcmp(word, "all") == 0) {
        for (int i = 1; i < TP_NCORRUPT; i++) add(l, i, severity);
        return true;
    }
    if (!tp_corrupt_find(word, &c) || c == TP_CORRUPT_NONE) return unknown(word, why, size);
    add(l, (int)c, severity);
    return true;
}

bool corrupt_list_read(corrupt_list *l, const char *text, char *why, size_t size)
{
    *l = (corrupt_list){ 0 };
    bool done = true;
    for (const char *at = text; done && at;) {
        char word[64];
        const size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), at);
        done = read_word(l, word, why, size);
        at = at[n] ? at + n + 1 : NULL;
    }
    return done;
}

const char *corrupt_list_word(int i)
{
    return i == 0 ? "all" : i < TP_NCORRUPT ? tp_corrupt_name((tp_corrupt)i) : NULL;
}
