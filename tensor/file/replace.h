/* replace.h - replacing a file atomically. */
#ifndef TP_FILE_REPLACE_H
#define TP_FILE_REPLACE_H

#include "tensor/error.h"

/* Writes all bytes, even if signals interrupt. Returns false with errno set. */
bool tp__file_put(int fd, const void *data, size_t bytes);

/* Replaces a file by what `content` writes to PATH.tmp-PID-N, which is then synced and renamed.
 * Returns false with *e set to "PATH cannot be written: ..." and the former file untouched. content
 * returns false with errno or *e set. */
bool tp__file_replace(tp_err *e, const char *path, bool (*content)(int fd, void *env), void *env);

#endif
