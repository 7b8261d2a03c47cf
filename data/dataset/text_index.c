/* text_index.c - finds the rows of a text file in one pass, and reads single ones.
 *
 * A row costs 12 bytes: its place and its length. Lines are counted for every 1024th row only; the
 * line of a row, which messages need, is counted from there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "dataset/text_index.h"
#include "load.h"

enum { STRIDE = 1024 };

struct tp_text_index {
    int64_t *at;     /* [rows]: offsets */
    uint32_t *bytes; /* [rows]: without line ends */
    int64_t *line;   /* [rows / STRIDE] */
    size_t rows, at_room, bytes_room, line_room, lines;
    char *memory; /* all of the text, or NULL: it is in fd */
    size_t size, room;
    int fd; /* -1: in memory */
};

typedef enum where { START, RETURN, COMMENT, CELL, PLAIN, QUOTED, QUOTE } where;

/* The pass over the file. */
typedef struct pass {
    tp_text_index *X;
    tp_text_cut cut;
    size_t memory; /* most bytes to hold */
    bool packed;
    FILE *copy; /* of what is unpacked and too long for memory */
    where at;
    int64_t offset, begin, line, begin_line;
    char *why;
    size_t why_size;
    bool first, starved;
} pass;

/* Returns false. */
static bool fail(pass *p, const char *why)
{
    if (!*p->why) snprintf(p->why, p->why_size, "%s", why);
    return false;
}

static bool no_memory(pass *p)
{
    p->starved = true;
    snprintf(p->why, p->why_size, ": out of memory for the index of %zu rows", p->X->rows);
    return false;
}

/* ---- where rows begin and end ---- */

/* The row ends before offset `end`. */
static bool add_row(pass *p, int64_t end)
{
    tp_text_index *X = p->X;
    if (end - p->begin > TP_ROW_BYTES) {
        snprintf(p->why, p->why_size,
                 ": the row that begins on line %lld, byte %lld, has more than %d MiB; %s",
                 (long long)p->begin_line, (long long)p->begin, TP_ROW_BYTES >> 20,
                 p->cut.quote ? "is a '\"' not closed?" : "give each record a line of its own");
        return false;
    }
    if (!tp_reserve(&X->at, &X->at_room, X->rows, 1, sizeof *X->at) ||
        !tp_reserve(&X->bytes, &X->bytes_room, X->rows, 1, sizeof *X->bytes) ||
        !tp_reserve(&X->line, &X->line_room, X->lines, 1, sizeof *X->line))
        return no_memory(p);
    if (X->rows % STRIDE == 0) X->line[X->lines++] = p->begin_line;
    X->at[X->rows] = p->begin;
    X->bytes[X->rows++] = (uint32_t)(end - p->begin);
    p->at = START;
    return true;
}

static void begin_row(pass *p, int64_t at)
{
    p->begin = at;
    p->begin_line = p->line;
    p->at = CELL;
}

/* Takes a byte at the start of a line outside of rows. True: it is none of a row. */
static bool between_rows(pass *p, char c)
{
    if (p->at == COMMENT || (p->at == START && p->cut.comment && c == p->cut.comment)) {
        p->at = c == '\n' ? START : COMMENT;
        return true;
    }
    if (c == '\n') {
        p->at = START;
        return true;
    }
    if (p->cut.blank && (c == ' ' || c == '\t' || c == '\r')) return true;
    if (p->at == START && c == '\r') {
        p->at = RETURN; /* of an empty line, or the first byte of a row */
        return true;
    }
    begin_row(p, p->offset - (p->at == RETURN));
    if (p->at == RETURN) p->at = PLAIN;
    return false;
}

static bool in_row(pass *p, char c)
{
    if (c == '\n' && p->at != QUOTED) return add_row(p, p->offset);
    if (!p->cut.quote) return true;
    if (p->at == QUOTED) {
        if (c == p->cut.quote) p->at = QUOTE;
    } else if (c == p->cut.separator)
        p->at = CELL;
    else if (c == p->cut.quote && (p->at == CELL || p->at == QUOTE))
        p->at = QUOTED; /* at the beginning, or doubled */
    else
        p->at = PLAIN;
    return true;
}

static bool scan(pass *p, const char *text, size_t n)
{
    for (const char *end = text + n; text < end; text++, p->offset++) {
        if ((p->at > COMMENT || !between_rows(p, *text)) && !in_row(p, *text)) return false;
        p->line += *text == '\n';
        if (p->at > COMMENT && p->offset - p->begin > TP_ROW_BYTES) return add_row(p, p->offset);
    }
    return true;
}

/* ---- the bytes ---- */

/* Moves what is in memory to the temporary copy, or forgets it if the file can be read again. */
static bool leave_memory(pass *p)
{
    tp_text_index *X = p->X;
    if (p->packed) {
        p->copy = tmpfile();
        if (!p->copy || (X->size && fwrite(X->memory, 1, X->size, p->copy) != X->size))
            return fail(p, ": no temporary file can be written to unpack it; make room in the "
                           "folder of temporary files, or unpack it first");
    }
    free(X->memory);
    X->memory = NULL;
    return true;
}

static bool keep(pass *p, const char *bytes, size_t n)
{
    tp_text_index *X = p->X;
    const bool held = X->memory || X->size == 0;
    if (held && X->size + n <= p->memory) {
        if (!tp_reserve(&X->memory, &X->room, X->size, n + 1, 1)) return no_memory(p);
        memcpy(X->memory + X->size, bytes, n);
    } else {
        if (held && !leave_memory(p)) return false;
        if (p->packed && fwrite(bytes, 1, n, p->copy) != n)
            return fail(p, ": the temporary file to unpack it cannot be written; make room in the "
                           "folder of temporary files, or unpack it first");
    }
    X->size += n;
    return true;
}

static bool take_piece(void *env, const char *bytes, size_t n)
{
    pass *p = env;
    const char *text = bytes;
    size_t left = n;
    char reason[200];
    if (!p->first && !tp_skip_bom(&text, &left, reason, sizeof reason)) {
        snprintf(p->why, p->why_size, " %s", reason);
        return false;
    }
    if (!p->first) p->offset = text - bytes; /* a byte order mark */
    p->first = true;
    return keep(p, bytes, n) && scan(p, text, left);
}

/* ---- opening ---- */

/* Opens the file, or the copy of it, for reading rows. */
static bool open_again(pass *p, int fd)
{
    tp_text_index *X = p->X;
    if (X->memory || X->size == 0) return true;
    if (p->copy && fflush(p->copy) != 0)
        return fail(p, ": the temporary file to unpack it cannot be written; make room in the "
                       "folder of temporary files, or unpack it first");
    X->fd = dup(p->copy ? fileno(p->copy) : fd);
    return X->fd >= 0 || fail(p, ": too many files are open; close some (ulimit -n)");
}

static bool finish(pass *p, int fd)
{
    if (p->at == QUOTED) {
        snprintf(p->why, p->why_size,
                 ": a '\"' of the row that begins on line %lld, byte %lld, is not closed; close "
                 "it, or read the file without quotes",
                 (long long)p->begin_line, (long long)p->begin);
        return false;
    }
    if (p->at > COMMENT && !add_row(p, p->offset)) return false;
    return open_again(p, fd);
}

static bool read_all(pass *p, const char *path)
{
    char reason[512] = "";
    int64_t bytes;
    const int fd = tp__open_file(path, &bytes, reason, sizeof reason);
    bool done = fd >= 0;
    if (done) {
        p->packed = tp__begins_packed(fd);
        done = tp__load_pieces(path, take_piece, p, reason, sizeof reason);
    }
    if (!done) snprintf(p->why, p->why_size, ": %s", reason);
    done = done && !*p->why && finish(p, fd);
    if (fd >= 0) close(fd);
    if (p->copy) fclose(p->copy);
    return done;
}

tp_text_index *tp__text_index_open(const char *path, const tp_text_cut *cut, size_t memory,
                                   char *why, size_t size, bool *starved)
{
    pass p = { .X = calloc(1, sizeof(tp_text_index)),
               .cut = *cut,
               .memory = memory ? memory : (size_t)64 << 20,
               .line = 1,
               .why = why,
               .why_size = size };
    *why = '\0';
    *starved = !p.X;
    if (!p.X) {
        snprintf(why, size, ": out of memory");
        return NULL;
    }
    p.X->fd = -1;
    const bool done = read_all(&p, path);
    *starved = p.starved;
    if (done) return p.X;
    tp__text_index_free(p.X);
    return NULL;
}

void tp__text_index_free(tp_text_index *X)
{
    if (!X) return;
    if (X->fd >= 0) close(X->fd);
    free(X->memory);
    free(X->at);
    free(X->bytes);
    free(X->line);
    free(X);
}

/* ---- rows ---- */

int64_t tp__text_index_rows(const tp_text_index *X)
{
    return X ? (int64_t)X->rows : 0;
}

static bool copy_bytes(const tp_text_index *X, int64_t from, char *to, size_t n)
{
    errno = 0;
    if (X->fd >= 0) return tp_read_bytes(X->fd, from, to, n) == n;
    memcpy(to, X->memory + from, n);
    return true;
}

int64_t tp__text_index_row(const tp_text_index *X, int64_t row, char **buffer, size_t *room)
{
    const size_t n = X->bytes[row];
    errno = ENOMEM;
    if (!tp_reserve(buffer, room, 0, n + 1, 1)) return -1;
    if (!copy_bytes(X, X->at[row], *buffer, n)) return -1;
    const size_t text = n > 0 && (*buffer)[n - 1] == '\r' ? n - 1 : n;
    (*buffer)[text] = '\0';
    return (int64_t)text;
}

/* Between the first row of a group and the given one. */
int64_t tp__text_index_line(const tp_text_index *X, int64_t row)
{
    char piece[1 << 12];
    int64_t line = X->line[row / STRIDE];
    for (int64_t at = X->at[row - row % STRIDE]; at < X->at[row];) {
        const int64_t left = X->at[row] - at;
        const size_t n = left < (int64_t)sizeof piece ? (size_t)left : sizeof piece;
        if (!copy_bytes(X, at, piece, n)) break;
        for (size_t i = 0; i < n; i++) line += piece[i] == '\n';
        at += (int64_t)n;
    }
    return line;
}
