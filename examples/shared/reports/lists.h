/* lists.h - values of flags that are lists, separated by commas. */
#ifndef REPORTS_LISTS_H
#define REPORTS_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LIST_ROOM = 32 };

/* Whole numbers from least to most. */
typedef struct number_list {
    int64_t least, most;
    int room; /* for how many, at most LIST_ROOM */
    int n;
    int64_t at[LIST_ROOM];
} number_list;

/* Words of "one|two|three", each at most once, by their positions. */
typedef struct choice_list {
    const char *words;
    int n;
    int at[LIST_ROOM];
} choice_list;

/* Parse a list of at least one entry; the caller sets the members before n. False with a sentence
 * in why, which begins with the flag. */
bool list_numbers(number_list *l, const char *flag, const char *list, char *why, size_t size);
bool list_choices(choice_list *l, const char *flag, const char *list, char *why, size_t size);

#endif
