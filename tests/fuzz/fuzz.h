/* fuzz.h - declarations that the fuzzers share. Each fuzz_NAME.c defines LLVMFuzzerTestOneInput;
 * the replay test links all of them under the names of their files. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int fuzz_safetensors(const uint8_t *input, size_t size);
int fuzz_numpy(const uint8_t *input, size_t size);
int fuzz_torch(const uint8_t *input, size_t size);
int fuzz_data(const uint8_t *input, size_t size);
int fuzz_config(const uint8_t *input, size_t size);
int fuzz_published(const uint8_t *input, size_t size);
int fuzz_settings(const uint8_t *input, size_t size);
int fuzz_image(const uint8_t *input, size_t size);
int fuzz_bpe(const uint8_t *input, size_t size);
int fuzz_coco(const uint8_t *input, size_t size);
int fuzz_documents(const uint8_t *input, size_t size);
int fuzz_table(const uint8_t *input, size_t size);
int fuzz_dataset(const uint8_t *input, size_t size);
int fuzz_texts(const uint8_t *input, size_t size);
int fuzz_runs(const uint8_t *input, size_t size);
int fuzz_programs(const uint8_t *input, size_t size);
int fuzz_report(const uint8_t *input, size_t size);
int fuzz_image_set(const uint8_t *input, size_t size);
int fuzz_ops(const uint8_t *input, size_t size);

/* The name of a function of ops.h that fuzz_ops calls, without tp_; NULL after the last one. */
const char *fuzz_ops_name(int i);

/* A path at which these bytes can be opened until the next call. The file is in memory. */
const char *fuzz_path(const void *bytes, size_t size);

/* Makes a temporary folder, in memory if possible, and stores its path in 64 bytes. */
void fuzz_make_folder(char *path);
/* FOLDER/NAME, until the next call. */
const char *fuzz_in(const char *folder, const char *name);
void fuzz_write(const char *path, const void *bytes, size_t size);

/* Corrects the checksums of a safetensors file in memory; otherwise hardly any input would pass
 * them. False: it has none, or is no such file. Uses fuzz_path. */
bool fuzz_mend(uint8_t *bytes, size_t size);

/* Removes the checksums from a safetensors file in memory that tp_writer wrote. Returns the new
 * size. */
size_t fuzz_without_checksums(uint8_t *bytes, size_t size);

/* Aborts with the text if the condition does not hold; for a fuzzer that is a crash. */
void fuzz_demand(bool holds, const char *text);

/* Demands the rule of error objects: only a bad one gives a reason. */
void fuzz_demand_reason(bool ok, const char *why);

#endif
