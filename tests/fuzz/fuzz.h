/* fuzz.h - what the fuzzers share. Each fuzz_NAME.c defines LLVMFuzzerTestOneInput; the replay test
 * links all of them under the names of their files. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int fuzz_safetensors(const uint8_t *input, size_t size);
int fuzz_torch(const uint8_t *input, size_t size);
int fuzz_data(const uint8_t *input, size_t size);
int fuzz_config(const uint8_t *input, size_t size);
int fuzz_image(const uint8_t *input, size_t size);
int fuzz_table(const uint8_t *input, size_t size);
int fuzz_runs(const uint8_t *input, size_t size);
int fuzz_programs(const uint8_t *input, size_t size);
int fuzz_image_set(const uint8_t *input, size_t size);
int fuzz_ops(const uint8_t *input, size_t size);

/* The functions of ops.h that fuzz_ops calls, without tp_; NULL after the last one. */
const char *fuzz_ops_name(int i);

/* A path under which these bytes can be opened, until the next call: a file in memory. */
const char *fuzz_path(const void *bytes, size_t size);

/* Makes the checksums of a safetensors file in memory right where it has any: without that, hardly
 * an input of a fuzzer comes past them. False: it has none, or is no such file. Uses fuzz_path. */
bool fuzz_mend(uint8_t *bytes, size_t size);

/* Takes the checksums out of a safetensors file in memory that tp_writer wrote; its new size. */
size_t fuzz_without_checksums(uint8_t *bytes, size_t size);

/* Ends the process with the text if what must hold does not: for a fuzzer that is a crash. */
void fuzz_demand(bool holds, const char *text);

/* The common ways of an error object: it is good and says nothing, or it is bad and says why. */
void fuzz_demand_reason(bool ok, const char *why);

#endif
