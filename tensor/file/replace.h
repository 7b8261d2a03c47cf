/* replace.h - files that are always whole. */
#ifndef TP_FILE_REPLACE_H
#define TP_FILE_REPLACE_H

#include "tensor/error.h"

/* Writes all of it, whatever interrupts. False with errno set. */
bool tp__file_put(int fd, const void *data, size_t bytes);

/* Puts what `content` writes in the place of a file: to PATH.tmp-PID, synced, renamed. False with
 * *e set, to "PATH cannot be written: ...", and the former file untouched. content: false with
 * errno set, or with *e set. */
bool tp__file_replace(tp_err *e, const char *path, bool (*content)(int fd, void *env), void *env);

#endif
