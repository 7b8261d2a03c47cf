/* name_lists.h - the classes of published image sets as words, in the order of published heads. */
#ifndef NAME_LISTS_H
#define NAME_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WNID_SIZE = 10 }; /* "n03888257" and its end */

typedef struct name_list {
    const char *id; /* as in --names */
    int64_t count;
    const char *const *names; /* NULL: WordNet wnids */
} name_list;

/* The published lists; the last row has no id. */
extern const name_list name_lists[];
const name_list *name_list_find(const char *id); /* NULL if unknown */

/* Class i of the list, 0 <= i < count. wnid: "" if it has none. */
const char *name_list_at(const name_list *l, int64_t i, char wnid[WNID_SIZE]);

/* The words for a wnid ("n03888257") of ImageNet, or NULL. */
const char *wnid_words(const char *wnid);

/* The words for the folder of a class of Food-101 ("apple_pie"), or NULL. */
const char *food_words(const char *folder);

#endif
