/* fuzz_support.c - files in memory, folders and demands for the fuzzers. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tapegrad/file.h>
#include <unistd.h>
#include <xxhash.h>

void fuzz_demand(bool holds, const char *text)
{
    if (holds) return;
    dprintf(STDERR_FILENO, "demand broken: %s\n", text); /* the target may have redirected stderr */
    abort();
}

void fuzz_demand_reason(bool ok, const char *why)
{
    fuzz_demand(ok == !why[0], ok ? "a good object gives no reason" : "a bad object gives one");
}

const char *fuzz_path(const void *bytes, size_t size)
{
    static int fd = -1;
    static char path[40];
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_demand(fd >= 0 && ftruncate(fd, 0) == 0, "a file in memory can be made");
    for (size_t done = 0; done < size;) {
        const ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)done);
        fuzz_demand(n > 0, "a file in memory can be written");
        done += (size_t)n;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

void fuzz_make_folder(char *path)
{
    snprintf(path, 64, "%s/tapegrad-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    fuzz_demand(mkdtemp(path), "a folder can be made");
}

const char *fuzz_in(const char *folder, const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void fuzz_write(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    fuzz_demand(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0, "a file can be written");
}

/* ---- checksums: docs/checkpoints.md ---- */

#define FIRST  "{\"__metadata__\":{"
#define HEADER "\"xxh3.header\":\""
#define SECOND "\",\"xxh3.tensors\":\""

enum {
    DIGITS = 16,
    HEADER_AT = 8 + sizeof FIRST HEADER - 1,
    TENSORS_AT = HEADER_AT + DIGITS + sizeof SECOND - 1,
};

/* Offset of the data if the file has checksums, else 0. */
static size_t data_behind_checksums(const uint8_t *bytes, size_t size)
{
    uint64_t n = 0;
    if (size < TENSORS_AT) return 0;
    memcpy(&n, bytes, sizeof n);
    const bool has = n <= size - 8 && n >= TENSORS_AT - 8 &&
                     memcmp(bytes + 8, FIRST HEADER, HEADER_AT - 8) == 0 &&
                     memcmp(bytes + HEADER_AT + DIGITS, SECOND, sizeof SECOND - 1) == 0;
    return has ? 8 + (size_t)n : 0;
}

static void put_sum(uint8_t *digits, const uint8_t *bytes, size_t n)
{
    char text[DIGITS + 1];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)XXH3_64bits(bytes, n));
    memcpy(digits, text, DIGITS);
}

static void mend_header(uint8_t *bytes, size_t data)
{
    memset(bytes + HEADER_AT, '0', DIGITS);
    put_sum(bytes + HEADER_AT, bytes, data);
}

bool fuzz_mend(uint8_t *bytes, size_t size)
{
    const size_t data = data_behind_checksums(bytes, size);
    if (data == 0) return false;
    mend_header(bytes, data);
    tp_file *F = tp_file_open(fuzz_path(bytes, size)); /* empty if something else is wrong */
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        put_sum(bytes + TENSORS_AT + DIGITS * i, bytes + data + t->offset, t->bytes);
    }
    tp_file_close(F);
    mend_header(bytes, data);
    return true;
}

size_t fuzz_without_checksums(uint8_t *bytes, size_t size)
{
    const size_t data = data_behind_checksums(bytes, size), cut = 8 + sizeof FIRST - 1;
    fuzz_demand(data > 0, "a file that was written has checksums");
    const uint8_t *rest = memchr(bytes + TENSORS_AT, '"', data - TENSORS_AT);
    fuzz_demand(rest && rest[1] == ',', "there are further metadata");
    rest += 2;
    size_t end = data;
    while (bytes[end - 1] == ' ') end--;
    const size_t kept = (size_t)(bytes + end - rest), length = cut - 8 + kept;
    const uint64_t padded = (length + 7) / 8 * 8;
    memmove(bytes + cut, rest, kept);
    memset(bytes + 8 + length, ' ', (size_t)padded - length);
    memmove(bytes + 8 + padded, bytes + data, size - data);
    memcpy(bytes, &padded, sizeof padded);
    return 8 + (size_t)padded + size - data;
}
