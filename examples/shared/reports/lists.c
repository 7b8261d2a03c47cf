/* lists.c - parses lists, separated by commas. */
#include "lists.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/nearest.h>

/* The next part of a list. False, with a sentence in why, if it is empty or does not fit. */
static bool next_word(const char *flag, const char **list, char word[64], char *why, size_t size)
{
    const size_t n = strcspn(*list, ",");
    if (n == 0 || n > 63 || ((*list)[n] && !(*list)[n + 1])) {
        snprintf(why, size, "--%s: '%.60s' is not a list like one,two", flag, *list);
        return false;
    }
    memcpy(word, *list, n);
    word[n] = '\0';
    *list += n + ((*list)[n] == ',');
    return true;
}

bool list_numbers(number_list *l, const char *flag, const char *list, char *why, size_t size)
{
    char word[64], *end;
    l->n = 0;
    do {
        if (l->n == l->room) {
            snprintf(why, size, "--%s: the list has more than %d entries", flag, l->room);
            return false;
        }
        if (!next_word(flag, &list, word, why, size)) return false;
        errno = 0;
        const long long x = strtoll(word, &end, 10);
        if (*end || isspace((unsigned char)*word) || errno || x < l->least || x > l->most) {
            snprintf(why, size, "--%s: '%s' is not a whole number from %lld to %lld", flag, word,
                     (long long)l->least, (long long)l->most);
            return false;
        }
        l->at[l->n++] = x;
    } while (*list);
    return true;
}

/* The position of a word; -1: none. */
static int position(const char *word, const char *words)
{
    const size_t length = strlen(word);
    int i = 0;
    for (const char *s = words; s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL, i++)
        if (strncmp(s, word, length) == 0 && (s[length] == '|' || !s[length])) return i;
    return -1;
}

static bool is_in(const choice_list *l, int at)
{
    for (int i = 0; i < l->n; i++)
        if (l->at[i] == at) return true;
    return false;
}

bool list_choices(choice_list *l, const char *flag, const char *list, char *why, size_t size)
{
    char word[64];
    l->n = 0;
    do {
        if (!next_word(flag, &list, word, why, size)) return false;
        const int at = position(word, l->words);
        if (at < 0) {
            tp_nearest near = tp_nearest_to(word);
            tp_nearest_try(&near, l->words);
            snprintf(why, size, "--%s: '%s' is not one of %s%s%s%s", flag, word, l->words,
                     near.name[0] ? "; did you mean '" : "", near.name, near.name[0] ? "'?" : "");
            return false;
        }
        if (is_in(l, at)) {
            snprintf(why, size, "--%s: '%s' is there twice", flag, word);
            return false;
        }
        l->at[l->n++] = at;
    } while (*list);
    return true;
}
