/* replace.h - small text files that are always whole. */
#ifndef REPLACE_H
#define REPLACE_H

#include <stdbool.h>
#include <stddef.h>

/* Puts the text in the place of the file: written to PATH.new, synced, renamed. False with errno
 * set and the former file untouched. */
bool replace_file(const char *path, const char *text, size_t bytes);

/* Writes all of it, whatever interrupts. False with errno set. */
bool write_all(int fd, const char *text, size_t bytes);

/* What the user can do about an error of a file: "make room on the disk". */
const char *remedy(int error);

#endif
