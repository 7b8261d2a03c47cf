/* folder.c - runs a program in a temporary folder and damages the files of its run. */
#include "folder.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <unistd.h>
#include <xxhash.h>

#include "fuzz.h"

enum { LAST, BEST, LARGEST = 1 << 25, WORDS = 64 };

static const char *const name[FOLDER_FILES] = { "last.safetensors", "best.safetensors", "log.jsonl",
                                                "config.json" };

static char workplace[64];

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

static void leave(void)
{
    if (chdir("/") == 0) nftw(workplace, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void folder_workplace(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(workplace, sizeof workplace, "%.40s/fuzz-XXXXXX", tmp ? tmp : "/tmp");
    fuzz_demand(mkdtemp(workplace) && chdir(workplace) == 0 && atexit(leave) == 0,
                "a folder is made");
}

int folder_run(int (*program)(int argc, char **argv), const char *flags)
{
    char text[1024], *argv[WORDS] = { NULL };
    int argc = 0;
    fuzz_demand(strlen(flags) < sizeof text, "the flags fit");
    memcpy(text, flags, strlen(flags) + 1);
    for (char *word = strtok(text, " "); word && argc < WORDS - 1; word = strtok(NULL, " "))
        argv[argc++] = word;
    fflush(NULL);
    const int out = dup(1), err = dup(2), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    fuzz_demand(out >= 0 && err >= 0 && dup2(nowhere, 1) == 1 && dup2(nowhere, 2) == 2,
                "the standard streams can be replaced");
    const bool had_input = fcntl(0, F_GETFD) >= 0;
    const int status = program(argc, argv);
    fflush(NULL);
    fuzz_demand(dup2(out, 1) == 1 && dup2(err, 2) == 2, "the standard streams come back");
    fuzz_demand(!had_input || fcntl(0, F_GETFD) >= 0, "the program leaves standard input open");
    close(out);
    close(err);
    close(nowhere);
    return status;
}

/* ---- files ---- */

static const char *path_of(const folder *F, int file)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", F->path, name[file]);
    return path;
}

/* The bytes of a file, valid until the next call; a missing file is empty. */
static const uint8_t *content(const folder *F, int file, size_t *size)
{
    static uint8_t bytes[LARGEST];
    FILE *f = fopen(path_of(F, file), "rb");
    *size = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    fuzz_demand(*size < sizeof bytes, "the files of the run are small");
    return bytes;
}

static void write_file(const folder *F, int file, const uint8_t *bytes, size_t size)
{
    FILE *f = fopen(path_of(F, file), "wb");
    fuzz_demand(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0, "a file is written");
}

void folder_read(folder *F)
{
    for (int i = 0; i < FOLDER_FILES; i++) {
        const uint8_t *bytes = content(F, i, &F->file[i].size);
        F->file[i].bytes = malloc(F->file[i].size);
        fuzz_demand(F->file[i].size > 0 && F->file[i].bytes, "a run has all files");
        memcpy(F->file[i].bytes, bytes, F->file[i].size);
        if (i == LAST || i == BEST)
            F->file[i].size = fuzz_without_checksums(F->file[i].bytes, F->file[i].size);
    }
}

static size_t place(const uint8_t *input, size_t size)
{
    return (size_t)(input[0] | input[1] << 8) % size;
}

void folder_damage(const folder *F, const uint8_t *input, size_t size)
{
    const int damaged = input[0] % FOLDER_FILES, way = input[1] % 3;
    input += 2;
    size -= 2;
    for (int i = 0; i < FOLDER_FILES; i++)
        if (i != damaged) write_file(F, i, F->file[i].bytes, F->file[i].size);
    const size_t n = F->file[damaged].size;
    uint8_t *copy = malloc(n);
    fuzz_demand(copy, "there is memory");
    memcpy(copy, F->file[damaged].bytes, n);
    for (size_t i = 0; way == 1 && i + 3 <= size; i += 3) copy[place(input + i, n)] = input[i + 2];
    if (way == 0)
        write_file(F, damaged, input, size);
    else
        write_file(F, damaged, copy, way == 2 && size >= 2 ? place(input, n) : n);
    free(copy);
}

static uint64_t hash(const folder *F, int file)
{
    size_t size;
    const uint8_t *bytes = content(F, file, &size);
    return XXH3_64bits(bytes, size);
}

uint64_t folder_checkpoint(const folder *F)
{
    return hash(F, LAST);
}

uint64_t folder_content(const folder *F)
{
    uint64_t sum[FOLDER_FILES];
    for (int i = 0; i < FOLDER_FILES; i++) sum[i] = hash(F, i);
    return XXH3_64bits(sum, sizeof sum);
}

bool folder_is_whole(const folder *F)
{
    int64_t update = -1;
    tp_file *file = tp_file_open(path_of(F, LAST));
    const bool whole = tp_file_verify(file) && tp_file_int(file, "update", &update) && update >= 0;
    tp_file_close(file);
    return whole;
}
