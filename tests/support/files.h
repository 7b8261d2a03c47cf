/* files.h - intact and damaged safetensors files. */
#ifndef TP_SUPPORT_FILES_H
#define TP_SUPPORT_FILES_H

#include <stddef.h>
#include <stdint.h>

/* A header's entry for a tensor. */
#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

void write_bytes(const char *path, const void *bytes, size_t n);

/* Writes a file with this header and data (NULL: zeros). The length field holds `length`, or if
 * that is 0 the true length. */
void write_raw(const char *path, uint64_t length, const char *json, const void *data, size_t bytes);

/* Writes a file with metadata and tensors, and copies it to bytes; returns its size. */
size_t whole_file(const char *path, unsigned char *bytes, size_t room);

#endif
