/* fuzz_documents.c - the input is one byte that names a kind of file, and the file: a table, an
 * archive of them, an expression, a text to damage.
 *
 * Besides memory safety the following must hold: a set that opens has examples, their labels are
 * classes and their documents not empty; an expression that has a value has a digit of it; damage
 * adds ten bytes or removes some. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/listops.h>
#include <unistd.h>

enum { LONGEST = 64, MOST = 1 << 12 };

static void check(tp_documents *X)
{
    fuzz_demand_reason(tp_documents_ok(X), tp_documents_why(X));
    fuzz_demand(tp_documents_ok(X) == (tp_documents_count(X) > 0), "a good set has examples");
    for (int64_t i = 0; i < tp_documents_count(X); i++) {
        const int32_t label = tp_documents_label(X, i);
        fuzz_demand(label >= 0 && label < tp_documents_classes(X), "labels are classes");
        for (int k = 0; k < tp_documents_per_example(X); k++) {
            int64_t n;
            const uint16_t *ids = tp_documents_ids(X, i, k, &n);
            fuzz_demand(n >= 1 && n <= tp_documents_longest(X), "documents have ids");
            fuzz_demand(ids[0] <= 256 && ids[n - 1] <= 256, "ids are of the task");
        }
    }
    tp_documents_close(X);
}

/* ---- kinds ---- */

static char folder[64] = "";

static const char *in_folder(const char *name)
{
    return fuzz_in(folder, name);
}

static void listops_table(const uint8_t *input, size_t n, int flags)
{
    const tp_documents_opts o = { .longest = flags & 1 ? LONGEST : 0,
                                  .brackets = flags & 2 ? TP_BRACKETS_KEEP : TP_BRACKETS_DROP,
                                  .unchecked = flags & 4 };
    fuzz_write(in_folder("basic_train.tsv"), input, n);
    check(tp_documents_listops(in_folder("basic_train.tsv"), TP_TRAIN, &o));
    unlink(in_folder("basic_train.tsv"));
}

static void listops_archive(const uint8_t *input, size_t n, int flags)
{
    fuzz_write(in_folder("archive"), input, n);
    check(tp_documents_listops(in_folder("archive"), (tp_part)(flags % 3), NULL));
    unlink(in_folder("archive"));
}

static void pairs_table(const uint8_t *input, size_t n, int flags)
{
    const tp_documents_opts o = { .longest = flags & 1 ? LONGEST : 0,
                                  .damage = (tp_damage)((flags >> 1) % 3),
                                  .whole = flags & 8 };
    fuzz_write(in_folder("pairs.tsv"), input, n);
    check(tp_documents_pairs(in_folder("pairs.tsv"), TP_TEST, &o));
    unlink(in_folder("pairs.tsv"));
}

/* Reviews, grey images or Pathfinder in a tar file. */
static void task_archive(const uint8_t *input, size_t n, int flags)
{
    const tp_task *task = tp_task_at(1 + flags % 4);
    fuzz_write(in_folder("archive"), input, n);
    check(task->open(in_folder("archive"), (tp_part)(flags / 4 % 3), NULL));
    unlink(in_folder("archive"));
}

/* The records are so large that one takes most of the input: its label, then repeated bytes. */
static void grey_records(const uint8_t *input, size_t n, int flags)
{
    static uint8_t bytes[4 * 3073];
    const size_t size = flags & 128 ? (size_t)(flags & 127) * 96 : (size_t)(flags & 3) * 3073;
    for (size_t i = 0; i < size; i++) bytes[i] = n ? input[i % n] : 0;
    fuzz_write(in_folder("test_batch.bin"), bytes, size);
    check(tp_documents_cifar10(folder, TP_TEST, NULL));
    unlink(in_folder("test_batch.bin"));
}

/* The list of a level with one image. */
static void pathfinder_list(const uint8_t *input, size_t n, int flags)
{
    /* One grey pixel as PNG. */
    static const uint8_t dot[] = { 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00,
                                   0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00, 0x01,
                                   0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3a,
                                   0x7e, 0x9b, 0x55, 0x00, 0x00, 0x00, 0x0a, 0x49, 0x44, 0x41,
                                   0x54, 0x78, 0x9c, 0x63, 0x50, 0x00, 0x00, 0x00, 0x22, 0x00,
                                   0x21, 0xe3, 0xef, 0x67, 0x0b, 0x00, 0x00, 0x00, 0x00, 0x49,
                                   0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82 };
    fuzz_demand(mkdir(in_folder("metadata"), 0700) == 0 && mkdir(in_folder("imgs"), 0700) == 0,
                "folders can be made");
    fuzz_write(in_folder("metadata/0.npy"), input, n);
    fuzz_write(in_folder("imgs/a.png"), dot, flags & 4 ? 0 : sizeof dot);
    check(tp_documents_pathfinder(folder, (tp_part)(flags % 3), NULL));
    unlink(in_folder("metadata/0.npy"));
    unlink(in_folder("imgs/a.png"));
    rmdir(in_folder("metadata"));
    rmdir(in_folder("imgs"));
}

static void expression(const uint8_t *input, size_t n, int flags)
{
    static uint16_t ids[MOST];
    char why[256] = "";
    tp_listops_value v;
    int64_t count = 0;
    if (n > MOST) return;
    if (flags & 1)
        for (size_t i = 0; i < n; i++) ids[count++] = input[i] % (TP_LISTOPS_IDS + 1);
    else
        count = tp_listops_read((const char *)input, n, ids, why, sizeof why);
    fuzz_demand(count <= (int64_t)n, "tokens are words");
    if (count < 0) return;
    const bool good = tp_listops_evaluate(ids, count, &v, why, sizeof why);
    fuzz_demand(good != (why[0] != '\0'), "what has no value says why");
    fuzz_demand(v.answer >= 0 && v.answer <= 9, "values are digits");
}

static void damage(const uint8_t *input, size_t n, int flags)
{
    static uint8_t out[MOST + 10];
    if (n > MOST) return;
    fuzz_demand(tp_insert_marks(input, n, flags, flags & 1, flags & 2, out) == n + 10,
                "insertion adds ten bytes");
    fuzz_demand(tp_delete_marks(out, n + 10, out) <= n, "deletion removes them");
}

static void (*const kinds[])(const uint8_t *, size_t, int) = { listops_table, listops_archive,
                                                               expression,    damage,
                                                               pairs_table,   task_archive,
                                                               grey_records,  pathfinder_list };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void remove_folder(void)
{
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < 2) return 0;
    if (!folder[0]) {
        fuzz_make_folder(folder);
        atexit(remove_folder);
    }
    kinds[input[0] % KINDS](input + 2, size - 2, input[1]);
    return 0;
}
