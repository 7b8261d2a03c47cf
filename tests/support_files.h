/* support_files.h - safetensors files, whole and damaged. */
#ifndef TP_SUPPORT_FILES_H
#define TP_SUPPORT_FILES_H

#include <stddef.h>
#include <stdint.h>

/* An entry of a header. */
#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

void write_bytes(const char *path, const void *bytes, size_t n);

/* Writes a file with this header and these data (NULL: zeros). Its length field is `length`, or if that
 * is 0 the length of the header. */
void write_raw(const char *path, uint64_t length, const char *json, const void *data, size_t bytes);

/* Writes a file with metadata and tensors, and copies it to bytes; returns its size. */
size_t whole_file(const char *path, unsigned char *bytes, size_t room);

#endif
