/* test_oom_dataset.c - memory runs out at the n-th allocation, for many n, while a data set is
 * opened, its classes are numbered and a loader makes batches of it. Each time the error says so,
 * nothing leaks, and the next try gives the batches of an undisturbed run. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/dataset.h>
#include <tapegrad/random.h>

#include "support/folder.h"
#include "support/malloc.h"
#include "support/oom.h"

enum { ROWS = 60, BATCH = 7 };

typedef tp_dataset *opener(const char *path, const tp_dataset_opts *o);

typedef struct trial {
    opener *open;
    const char *path, *number;
    size_t memory;
} trial;

static bool make(void *env, tp_row *r, const tp_loader_example *e, void *const value[])
{
    const trial *x = env;
    (void)e;
    *(int32_t *)value[1] = tp_row_label(r, x->number);
    return tp_row_read(r, x->number, 1, TP_F32, value[0]);
}

static int64_t length(void *env, tp_row *r, int column)
{
    (void)env, (void)r;
    return column == 0 ? 1 : -1;
}

/* Hashes all batches. False: L has failed. */
static bool read_batches(tp_loader *L, uint64_t *h)
{
    tp_example_batch b;
    while (tp_example_loader_next(L, &b))
        for (int64_t i = 0; i < b.n; i++) {
            uint32_t bits;
            memcpy(&bits, (const float *)b.value[0] + i, sizeof bits);
            *h = tp_hash(tp_hash(*h, bits), (uint64_t)((const int32_t *)b.value[1])[i]);
        }
    return tp_loader_ok(L);
}

static void read_set(void *env, attempt *t)
{
    const trial *x = env;
    const tp_column columns[] = { { TP_F32, TP_SHAPE(2) }, { TP_I32, TP_SCALAR } };
    const tp_row_source s = {
        .columns = 2, .column = columns, .make = make, .length = length, .env = env
    };
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        hash[k] = TP_HASH;
        if (k == 0) malloc_fail(t->n, t->count);
        tp_dataset *X = x->open(x->path, &(tp_dataset_opts){ .memory = x->memory });
        tp_dataset_classes(X, x->number);
        const tp_split_opts split = { .held_back = 0.3, .label = tp_dataset_labels(X, x->number) };
        tp_dataset *part = tp_dataset_split(X, TP_TRAIN, &split);
        tp_loader *L = tp_row_loader_new(part, &s, &(tp_loader_opts){ .batch = BATCH });
        const bool ok = read_batches(L, &hash[k]);
        if (k == 0)
            end_attempt(t, ok, tp_loader_why(L));
        else
            cr_expect(ok, "set after allocation %zu: %s", t->n, tp_loader_why(L));
        tp_loader_free(L);
        tp_dataset_free(part);
        tp_dataset_free(X);
    }
    if (t->ok) cr_expect_eq(hash[0], hash[1], "set, allocation %zu: other batches", t->n);
}

Test(oom_dataset, csv_and_json_lines, .timeout = 900)
{
    make_folder();
    char paths[3][600], command[2048];
    FILE *f = fopen(in_folder("x.csv"), "w"), *g = fopen(in_folder("x.jsonl"), "w");
    cr_assert(f && g && fputs("id,number\n", f) >= 0);
    for (int i = 0; i < ROWS; i++) {
        fprintf(f, "\"row\n%d\",%d\n", i, i % 5);
        fprintf(g, "{\"id\": \"%d\", \"number\": %d}\n", i, i % 5);
    }
    cr_assert(fclose(f) == 0 && fclose(g) == 0);
    snprintf(command, sizeof command, "gzip -k '%s'", in_folder("x.csv"));
    cr_assert_eq(system(command), 0);
    snprintf(paths[0], sizeof paths[0], "%s", in_folder("x.csv"));
    snprintf(paths[1], sizeof paths[1], "%s", in_folder("x.csv.gz"));
    snprintf(paths[2], sizeof paths[2], "%s", in_folder("x.jsonl"));
    for (size_t memory = 0; memory < 2; memory++) {
        for_every_n("CSV", read_set, &(trial){ tp_dataset_csv, paths[0], "number", memory }, 10);
        for_every_n("packed CSV", read_set, &(trial){ tp_dataset_csv, paths[1], "number", memory },
                    10);
        for_every_n("JSON lines", read_set,
                    &(trial){ tp_dataset_json_lines, paths[2], "number", memory }, 10);
    }
    remove_folder();
}

Test(oom_dataset, arrays_of_a_file, .timeout = 900)
{
    static float number[ROWS];
    make_folder();
    char path[600];
    snprintf(path, sizeof path, "%s", in_folder("x.npz"));
    for (int i = 0; i < ROWS; i++) number[i] = (float)(i % 5);
    tp_writer *W = tp_writer_numpy(path);
    tp_writer_add(W, "number", TP_F32, TP_SHAPE(ROWS), number, false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    for (size_t memory = 0; memory < 2; memory++)
        for_every_n(".npz", read_set, &(trial){ tp_dataset_file, path, "number", memory }, 10);
    remove_folder();
}
