/* test_files_write.c - writing safetensors files: mistakes, full disks, killed programs. An
 * incomplete file is never visible. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tapegrad/file.h>
#include <time.h>
#include <unistd.h>

#include "support/folder.h"

TestSuite(files_write, .init = make_folder, .fini = remove_folder);

typedef void (*mistake)(tp_writer *W);

static void name_twice(tp_writer *W)
{
    tp_writer_add(W, "a", TP_U8, TP_SHAPE(1), "x", false);
    tp_writer_add(W, "a", TP_U8, TP_SHAPE(1), "x", false);
}
static void key_twice(tp_writer *W)
{
    tp_writer_meta(W, "k", "1");
    tp_writer_meta(W, "k", "1");
}
static void checksum_key(tp_writer *W)
{
    tp_writer_meta(W, "xxh3.header", "0123456789abcdef");
}
static void bad_key(tp_writer *W)
{
    tp_writer_meta(W, "k", "\xff");
}
static void bad_number(tp_writer *W)
{
    tp_writer_meta_num(W, "k", NAN);
}
static void bad_name(tp_writer *W)
{
    tp_writer_add(W, "\xff", TP_U8, TP_SHAPE(1), "x", false);
}
static void meta_name(tp_writer *W)
{
    tp_writer_add(W, "__metadata__", TP_U8, TP_SHAPE(1), "x", false);
}
static void no_data(tp_writer *W)
{
    tp_writer_add(W, "a", TP_U8, TP_SHAPE(1), NULL, false);
}
static void no_shape(tp_writer *W)
{
    tp_writer_add(W, "a", TP_U8, TP_SHAPE(-1), "x", false);
}
static void no_dtype(tp_writer *W)
{
    tp_writer_add(W, "a", TP_NDTYPES, TP_SHAPE(1), "x", false);
}
static void not_finite(tp_writer *W)
{
    static const float good[2] = { 1, 2 }, bad[3] = { 1, INFINITY, NAN };
    tp_writer_finite(W);
    tp_writer_add(W, "good", TP_F32, TP_SHAPE(2), good, false);
    tp_writer_add(W, "bad", TP_F32, TP_SHAPE(3), bad, false);
}

static const struct {
    mistake make;
    const char *why;
} mistakes[] = {
    { name_twice, "tensor 'a' is given twice" },
    { key_twice, "metadata 'k' is given twice" },
    { checksum_key, "metadata 'xxh3.header' is a checksum, which the writer itself makes" },
    { bad_key, "metadata 'k' is not UTF-8 text" },
    { bad_number, "metadata 'k' is not a finite number" },
    { bad_name, "'\\xff' cannot be the name of a tensor; use other UTF-8 text" },
    { meta_name, "'__metadata__' cannot be the name of a tensor; use other UTF-8 text" },
    { no_data, "tensor 'a' has no data" },
    { no_shape, "tensor 'a' has no valid shape" },
    { no_dtype, "tensor 'a' has no valid dtype" },
    { not_finite, "element 1 of tensor 'bad' is infinite; the former file is untouched" },
};

Test(files_write, mistakes_of_the_writer)
{
    const char *path = in_folder("mistake");
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        char why[700];
        tp_writer *W = tp_writer_new(path);
        mistakes[i].make(W);
        cr_expect(!tp_writer_commit(W), "committed: %s", mistakes[i].why);
        cr_expect(!tp_writer_ok(W));
        snprintf(why, sizeof why, "%s cannot be written: %s", path, mistakes[i].why);
        cr_expect_str_eq(tp_writer_why(W), why, "%s", tp_writer_why(W));
        tp_writer_free(W);
        cr_expect_neq(access(path, F_OK), 0, "a file was written: %s", why);
    }
}

/* Writes a file of n bytes equal to `value`, which is also in its metadata. */
static bool write_version(const char *path, int value, size_t n, char *why, size_t size)
{
    void *data = malloc(n);
    memset(data, value, n);
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta_int(W, "value", value);
    tp_writer_add(W, "data", TP_U8, TP_SHAPE((int64_t)n), data, false);
    const bool ok = tp_writer_commit(W);
    if (why) snprintf(why, size, "%s", tp_writer_why(W));
    tp_writer_free(W);
    free(data);
    return ok;
}

/* The version in the file, which must be intact. */
static int64_t read_version(const char *path)
{
    int64_t value = -1;
    tp_file *F = tp_file_open(path);
    const tp_file_tensor *t = tp_file_find(F, "data");
    cr_expect(tp_file_ok(F) && t && tp_file_int(F, "value", &value), "%s", tp_file_why(F));
    const unsigned char *p = t ? tp_file_data(F, t) : NULL;
    for (size_t i = 0; p && i < t->bytes; i++)
        if (p[i] != value) {
            cr_expect(false, "byte %zu is %d in version %d", i, p[i], (int)value);
            break;
        }
    tp_file_close(F);
    return value;
}

static void expect_failure(const char *path, const char *step, const char *rest)
{
    char why[1800], begin[1800], end[400];
    cr_expect(!write_version(path, 2, 100000, why, sizeof why), "written: %s", rest);
    const int n = snprintf(begin, sizeof begin, "%s cannot be written: %s %s.tmp-%ld-", path, step,
                           path, (long)getpid());
    snprintf(end, sizeof end, " failed (%s, the former file is untouched", rest);
    cr_expect(strncmp(why, begin, (size_t)n) == 0 &&
                  strcmp(why + n + strspn(why + n, "0123456789"), end) == 0,
              "%s", why);
}

Test(files_write, former_file_survives_errors)
{
    const char *path = in_folder("kept");
    cr_assert(write_version(path, 1, 50, NULL, 0));

    struct rlimit old, small;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 65536;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    expect_failure(path, "writing", "File too large); raise the limit on file sizes (ulimit -f)");
    setrlimit(RLIMIT_FSIZE, &old);
    cr_expect_eq(read_version(path), 1);
    cr_expect_eq(files_in_folder(), 1, "a temporary file is left");

    const char *gone = in_folder("gone/file"), *below = in_folder("kept/file");
    const char *taken = in_folder("taken");
    cr_assert_eq(mkdir(taken, 0700), 0);
    expect_failure(gone, "creating", "No such file or directory); create the folder first");
    expect_failure(below, "creating",
                   "Not a directory); choose a path without a file in place of a folder");
    expect_failure(taken, "renaming", "Is a directory); choose a path that is no folder");
    char name[256] = "";
    memset(name, 'n', 250); /* the longest file name leaves no room for the temporary suffix */
    expect_failure(in_folder(name), "creating", "File name too long); choose a shorter name");
    cr_expect_eq(files_in_folder(), 2, "a temporary file is left");
}

/* A user who may write in /dev must not turn /dev/null into a file. */
Test(files_write, pipe_in_place_of_the_file)
{
    struct stat s;
    char why[2000] = "";
    const char *pipe = in_folder("pipe"), *link = in_folder("link");
    cr_assert(mkfifo(pipe, 0600) == 0 && symlink("pipe", link) == 0);
    cr_expect(!write_version(pipe, 1, 10, why, sizeof why));
    cr_expect(strstr(why, "pipe cannot be written: it is a device, a pipe or a socket"), "%s", why);
    cr_expect(!write_version(link, 1, 10, why, sizeof why));
    cr_expect(stat(link, &s) == 0 && S_ISFIFO(s.st_mode), "it was replaced");
    cr_expect_eq(files_in_folder(), 2, "a temporary file is left");
}

Test(files_write, read_only_folder)
{
    const char *path = in_folder("kept");
    cr_assert(write_version(path, 1, 50, NULL, 0));
    cr_assert_eq(chmod(folder, 0555), 0);
    if (geteuid() == 0) cr_assert_eq(seteuid(65534), 0, "cannot become nobody");
    expect_failure(path, "creating",
                   "Permission denied); make the folder writable or choose another");
    cr_expect_eq(seteuid(getuid()), 0);
    cr_expect_eq(read_version(path), 1);
    cr_assert_eq(chmod(folder, 0755), 0);
}

/* The file of a process with the same number on another machine or in another container is not
 * touched. */
Test(files_write, temporary_file_of_the_same_process_number)
{
    const char *path = in_folder("again");
    for (int i = 0; i < 8; i++) {
        char temporary[900];
        snprintf(temporary, sizeof temporary, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        FILE *f = fopen(temporary, "wb");
        cr_assert(f && fputs("half", f) >= 0 && fclose(f) == 0);
    }
    cr_expect(write_version(path, 3, 10, NULL, 0));
    cr_expect_eq(read_version(path), 3);
    cr_expect_eq(files_in_folder(), 1 + 8);
}

typedef struct writing {
    const char *path;
    int version, failed;
} writing;

static void *write_often(void *at)
{
    writing *w = at;
    char why[1800];
    for (int i = 0; i < 30; i++)
        w->failed += !write_version(w->path, w->version, 20000, why, sizeof why);
    return NULL;
}

Test(files_write, threads_that_write_one_file)
{
    writing w[3];
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) {
        w[i] = (writing){ in_folder("shared"), i, 0 };
        cr_assert_eq(pthread_create(&thread[i], NULL, write_often, &w[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        cr_expect_eq(w[i].failed, 0, "%d of 30 failed", w[i].failed);
    }
    cr_expect(read_version(in_folder("shared")) < 3);
    cr_expect_eq(files_in_folder(), 1, "a temporary file is left");
}

/* A program killed at any moment leaves an intact file, its last or previous version. */
Test(files_write, killed_while_writing)
{
    const char *path = in_folder("killed");
    cr_assert(write_version(path, 0, 200000, NULL, 0));
    int64_t most = 0;
    for (int round = 0; round < 20 || (most == 0 && round < 200); round++) {
        const pid_t child = fork();
        cr_assert(child >= 0);
        if (child == 0)
            for (int v = 0;; v++) write_version(path, v % 200, 200000, NULL, 0);
        nanosleep(&(struct timespec){ 0, 1000000 + 1700000 * round }, NULL);
        kill(child, SIGKILL);
        cr_expect_eq(waitpid(child, NULL, 0), child);
        const int64_t v = read_version(path);
        most = v > most ? v : most;
    }
    cr_expect(most > 0, "no version was ever replaced");
}

/* A reader keeps the file that it opened when another one replaces it. */
Test(files_write, open_file_outlives_its_replacement)
{
    const char *path = in_folder("old");
    cr_assert(write_version(path, 1, 5000, NULL, 0));
    tp_file *F = tp_file_open(path);
    cr_assert(write_version(path, 2, 10, NULL, 0));
    const unsigned char *p = tp_file_data(F, tp_file_find(F, "data"));
    cr_expect(p[0] == 1 && p[4999] == 1);
    tp_file_close(F);
}
