/* configs.c - reads the description beside a published file. */
#include "configs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20 };

/* Reads an object; NULL with the reason in why. */
static json_t *read_object(int fd, int64_t bytes, const char *path, const char *flag, char *why,
                           size_t size)
{
    json_error_t e = { 0 };
    char *text = bytes <= MOST_BYTES ? malloc((size_t)bytes + 1) : NULL, wrong[200];
    const size_t n = text ? tp_read_bytes(fd, 0, text, (size_t)bytes) : 0;
    const char *begin = text;
    size_t left = n;
    const bool whole = text && n == (size_t)bytes,
               is_text = whole && tp_skip_bom(&begin, &left, wrong, sizeof wrong);
    json_t *all = is_text ? json_loadb(begin, left, 0, &e) : NULL;
    if (bytes > MOST_BYTES)
        snprintf(why, size,
                 "%s: %lld bytes are too many for the configuration of a model; put the "
                 "publisher's file there",
                 path, (long long)bytes);
    else if (!text)
        snprintf(why, size, "%s: out of memory", path);
    else if (n < (size_t)bytes)
        snprintf(why, size, "%s cannot be read: %s", path, strerror(errno));
    else if (!is_text)
        snprintf(why, size, "%s %s", path, wrong);
    else if (!all)
        snprintf(why, size, "%s, line %d, column %d: %s; replace it%s%s", path, e.line, e.column,
                 tp_json_reason(e.text), flag ? ", or remove it and give " : "", flag ? flag : "");
    free(text);
    return all;
}

json_t *config_beside(const char *file, const char *flag, char *path, size_t path_size, char *why,
                      size_t size)
{
    return description_beside(file, "config.json", flag, path, path_size, why, size);
}

json_t *description_beside(const char *file, const char *name, const char *flag, char *path,
                           size_t path_size, char *why, size_t size)
{
    int64_t bytes;
    const char *kind, *slash = strrchr(file, '/');
    snprintf(path, path_size, "%.*s%s", slash ? (int)(slash - file) + 1 : 0, file, name);
    const int fd = tp_open_regular(path, &bytes, &kind);
    why[0] = '\0';
    if (fd < 0) {
        if (kind)
            snprintf(why, size, "%s is %s; a regular file is wanted", path, kind);
        else if (errno != ENOENT)
            snprintf(why, size, "%s cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    json_t *all = read_object(fd, bytes, path, flag, why, size);
    close(fd);
    return all;
}
