/* log.c - a log of JSON lines that survives kills: it keeps only complete lines, none later than
 * the checkpoint from which a run resumes. */
#include "trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <unistd.h>

static bool fail(tp_run_log *L, const char *what)
{
    const int error = errno;
    snprintf(L->why, sizeof L->why, "log %s: %s: %s; %s, then continue with --resume", L->path,
             what, strerror(error), tp_file_advice(error));
    return false;
}

/* Is the line a report up to step `keep`? If so, it becomes L->last. */
static bool kept(tp_run_log *L, const char *line, size_t length, int64_t keep)
{
    void *locale = tp_c_locale_begin();
    json_t *object = json_loadb(line, length, 0, NULL);
    tp_c_locale_end(locale);
    const json_t *step = json_object_get(object, "step");
    const bool yes = json_is_integer(step) && json_integer_value(step) <= keep;
    L->damaged += !json_is_integer(step);
    json_decref(yes ? L->last : object);
    if (yes) L->last = object;
    return yes;
}

/* Reads the file; empty if there is none. NULL with errno set on failure; if the path is not a
 * regular file, *kind says what it is. */
static char *read_all(const char *path, size_t *bytes, const char **kind)
{
    enum { PIECE = 1 << 16 };
    size_t room = 0;
    char *text = NULL;
    bool fits = tp_reserve(&text, &room, 0, PIECE, 1);
    int64_t length;
    const int fd = tp_open_regular(path, &length, kind);
    ssize_t got = fd < 0 ? (errno == ENOENT ? 0 : -1) : 1;
    *bytes = 0;
    while (fits && got > 0) {
        got = read(fd, text + *bytes, room - *bytes);
        if (got > 0) *bytes += (size_t)got;
        fits = got <= 0 || tp_reserve(&text, &room, *bytes, 1, 1);
    }
    const int error = fits ? errno : ENOMEM;
    if (fd >= 0) close(fd);
    if (got >= 0 && fits) return text;
    free(text);
    errno = error;
    return NULL;
}

/* Moves the kept lines to the front; returns their size in bytes. */
static size_t filter(tp_run_log *L, char *text, size_t bytes, int64_t keep)
{
    size_t used = 0, left = bytes;
    const char *begin = text;
    char why[200];
    const bool is_text = tp_skip_bom(&begin, &left, why, sizeof why); /* skips a byte order mark */
    char *line = is_text ? text + (bytes - left) : text, *end = text + bytes, *next;
    for (; line < end; line = next) {
        char *newline = memchr(line, '\n', (size_t)(end - line));
        L->damaged += newline == NULL;
        if (!newline) break;
        next = newline + 1;
        const size_t length = (size_t)(next - line);
        if (!kept(L, line, length, keep)) continue;
        memmove(text + used, line, length);
        used += length;
    }
    return used;
}

bool tp__log_open(tp_run_log *L, const char *path, int64_t keep)
{
    size_t bytes = 0;
    char why[4600];
    const char *kind;
    *L = (tp_run_log){ .fd = -1 };
    snprintf(L->path, sizeof L->path, "%s", path);
    char *text = read_all(path, &bytes, &kind);
    if (!text && kind) {
        snprintf(L->why, sizeof L->why, "log %s: is %s, not a regular file; remove it", path, kind);
        return false;
    }
    if (!text) return fail(L, "cannot be read");
    const size_t kept = keep > 0 ? filter(L, text, bytes, keep) : 0;
    const bool done = tp_file_replace(path, text, kept, why, sizeof why);
    free(text);
    if (!done) {
        snprintf(L->why, sizeof L->why, "log %s; then continue with --resume", why);
        return false;
    }
    L->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    return L->fd >= 0 || fail(L, "cannot be written");
}

double tp__log_last(const tp_run_log *L, const char *key)
{
    return json_number_value(json_object_get(L->last, key));
}

bool tp__log_write(tp_run_log *L, json_t *object)
{
    void *locale = tp_c_locale_begin();
    char *line = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    tp_c_locale_end(locale);
    json_decref(object);
    if (L->why[0]) return false;
    const size_t length = line ? strlen(line) : 0;
    errno = ENOMEM;
    if (line) line[length] = '\n'; /* replaces the terminator: one write per line */
    const bool done = line && tp_write_bytes(L->fd, line, length + 1);
    const int error = errno;
    free(line);
    errno = error;
    return done || fail(L, "cannot be written");
}

void tp__log_close(tp_run_log *L)
{
    if (L->fd >= 0) close(L->fd);
    json_decref(L->last);
    L->fd = -1;
    L->last = NULL;
}

json_t *tp__log_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}
