/* open.c - opening a file of tensors, whatever its format, and closing it.
 *
 * The file stays open and its data are read on demand. A writer that renames a new file over the
 * path (as ours does) leaves the open file intact; reading fails if the file was truncated
 * meanwhile. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/file/open.h"

#define bad(F, ...) tp__file_fail(F, TP_E_IO, __VA_ARGS__)

static tp_file no_memory = {
    .err = { TP_E_MEMORY, "file: out of memory for the file object itself", NULL },
};

static void open_file(tp_file *F)
{
    const char *kind;
    int64_t bytes;
    F->fd = tp_file_regular(F->path, &bytes, &kind);
    F->size = (size_t)bytes;
    if (F->fd < 0 && kind)
        bad(F, "is %s; give the path of a file with weights", kind);
    else if (F->fd < 0)
        bad(F, "cannot be opened (%s); check the path and its permissions", strerror(errno));
    else if (bytes < 8)
        bad(F, "has %lld bytes, too few for the 8 of the header length" TP_FILE_AGAIN,
            (long long)bytes);
}

/* With or without a byte order mark; an index in UTF-16 is named as such by its reader. */
static bool begins_json(const unsigned char *first)
{
    const bool wide = memcmp(first, "\xff\xfe", 2) == 0 || memcmp(first, "\xfe\xff", 2) == 0;
    return first[0] == '{' || wide || memcmp(first, "\xef\xbb\xbf{", 4) == 0 ||
           memcmp(first, "\0{\0", 3) == 0;
}

/* Detects the format from the first bytes. An unknown format is read as safetensors, whose reader
 * reports what is wrong. */
static void read_format(tp_file *F, bool may_index)
{
    unsigned char first[9] = { 0 };
    uint64_t header;
    if (!tp__file_at(F, 0, first, F->size < 9 ? 8 : 9)) return;
    memcpy(&header, first, sizeof header);
    const bool other = first[8] != '{' || header > F->size - 8;
    if (other && memcmp(first, "PK\3\4", 4) == 0)
        tp__file_torch_zip(F);
    else if (other && first[0] == 0x80 && first[1] >= 2 && first[1] <= 5)
        tp__file_torch_legacy(F);
    else if (other && may_index && begins_json(first))
        tp__file_shards(F);
    else
        tp__file_header(F);
}

tp_file *tp__file_open(const char *path, bool may_index)
{
    tp_file *F = calloc(1, sizeof *F);
    char *copy = F ? strdup(path && *path ? path : "file") : NULL;
    if (!copy) {
        free(F);
        return &no_memory;
    }
    F->path = copy;
    F->fd = -1;
    if (path && *path)
        open_file(F);
    else
        bad(F, "%s was given in place of a path", path ? "an empty text" : "NULL");
    if (tp_file_ok(F)) read_format(F, may_index);
    if (tp_file_ok(F)) tp__file_index(F);
    if (!tp_file_ok(F)) { /* none of its content may be used */
        for (int i = 0; i < F->n; i++) tp__file_drop(&F->at[i]);
        F->n = 0;
        F->meta = NULL;
    }
    return F;
}

tp_file *tp_file_open(const char *path)
{
    return tp__file_open(path, true);
}

void tp_file_close(tp_file *F)
{
    if (!F || F == &no_memory) return;
    for (int i = 0; i < F->n; i++) tp__file_drop(&F->at[i]);
    for (int i = 0; i < F->nshards; i++) tp_file_close(F->shards[i]);
    for (int i = 0; i < F->nunpacked; i++) close(F->unpacked[i]);
    if (F->fd >= 0) close(F->fd);
    json_decref(F->root);
    free(F->at);
    free(F->by_name);
    free(F->shards);
    tp__sum_free(F->sum);
    free(F->path);
    free(F);
}
