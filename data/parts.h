/* parts.h - the words that name a part of a set in the names of files and folders. */
#ifndef TP_PARTS_H
#define TP_PARTS_H

#include <stddef.h>

enum { TP_NO_PART = -1 };

/* The tp_part that a word names, in any case: train, training; val, valid, validation, dev; test, testing, eval. */
int tp__part_of_word(const char *word, size_t n);

/* The part that the name of a file names, by the last such word in it ("set-train-000.tar"); words are runs of letters.
 * The folders in a path do not count. */
int tp__part_of_file(const char *path);

#endif
