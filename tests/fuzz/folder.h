/* folder.h - the folder of a run, for fuzzers that damage its files before a program reads them. */
#ifndef FOLDER_H
#define FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FOLDER_FILES = 4 };

typedef struct folder {
    const char *path; /* below the working directory */
    struct {
        uint8_t *bytes;
        size_t size;
    } file[FOLDER_FILES];
} folder;

/* Makes a working directory, removed when the process ends. */
void folder_workplace(void);

/* Runs a program with these flags, separated by spaces; discards its output. Returns its status. */
int folder_run(int (*program)(int argc, char **argv), const char *flags);

/* Reads the files of a complete run and removes the checksums from the checkpoints, because they
 * would reject almost every input. */
void folder_read(folder *F);

/* Writes the files back, one of them damaged. The input gives the file, the kind of damage and
 * further bytes:
 *
 *     way 0   these bytes are the file
 *     way 1   edits of three bytes each: place (2) and new byte
 *     way 2   the file is cut off at a place (2)
 */
void folder_damage(const folder *F, const uint8_t *input, size_t size);

/* A hash of last.safetensors, or of all files. */
uint64_t folder_checkpoint(const folder *F);
uint64_t folder_content(const folder *F);

/* Whether a run can resume from last.safetensors. */
bool folder_is_whole(const folder *F);
#endif
