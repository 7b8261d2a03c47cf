/* files.c - writes intact and damaged safetensors files. */
#include "support/files.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert(f);
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    cr_assert_eq(fclose(f), 0);
}

void write_raw(const char *path, uint64_t length, const char *json, const void *data, size_t bytes)
{
    static unsigned char raw[1 << 16];
    const size_t n = strlen(json);
    if (length == 0) length = n;
    memcpy(raw, &length, 8);
    memcpy(raw + 8, json, n + 1);
    if (data)
        memcpy(raw + 8 + n, data, bytes);
    else
        memset(raw + 8 + n, 0, bytes);
    write_bytes(path, raw, 8 + n + bytes);
}

size_t whole_file(const char *path, unsigned char *bytes, size_t room)
{
    static const float x[6] = { 1, 2, 3, 4, 5, 6 };
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta(W, "step", "3");
    tp_writer_meta(W, "note", "backslash \\ X");
    tp_writer_add(W, "a", TP_F32, TP_SHAPE(2, 3), x, false);
    tp_writer_add(W, "none", TP_F32, TP_SHAPE(0), NULL, false);
    tp_writer_add(W, "b", TP_U8, TP_SHAPE(5), "12345", false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, room, f);
    fclose(f);
    cr_assert_lt(n, room);
    return n;
}
