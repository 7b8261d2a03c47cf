/* test_files_join.c - one file of several processes, simulated by threads: rows and stretches are
 * joined, whoever fails makes all fail, and rows are read back by another number of processes. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/file.h>
#include <tapegrad/peers.h>

#include "support/folder.h"
#include "support/thread_transport.h"
#include "tensor/backend.h"
#include "tensor/file/inner.h"

TestSuite(files_join, .init = make_folder, .fini = remove_folder, .timeout = 60);

enum { WIDE = 1 << 18, MOST = 4 }; /* 2 MiB of f64: several messages */

/* What goes wrong, and where. */
typedef enum trouble {
    NONE,
    NAN_ROW,
    FAILED_WRITER,
    OTHER_ROWS,
    OTHER_NAME,
    NO_AXIS,
    LONE_OWNER,
    TWICE
} trouble;

typedef struct job {
    const char *path;
    trouble kind;
    int at; /* the rank in trouble */
    bool done[THREAD_RANKS];
    tp_code code[THREAD_RANKS];
    char why[THREAD_RANKS][TP_TEXT];
} job;

static double value(int rank, int64_t i)
{
    return rank * 1000.0 + (double)i / 16;
}

/* [2,WIDE/2] of each rank. */
static double *rows_of(int rank)
{
    double *x = malloc(WIDE * sizeof *x);
    for (int64_t i = 0; i < WIDE; i++) x[i] = value(rank, i);
    return x;
}

/* The elements of a tensor of 2 * WIDE + 5 elements up to the stretch of `rank`, which is empty for
 * rank 1 and ends the tensor for the last. */
static int64_t cut(int rank, int ranks)
{
    static const int64_t first[MOST] = { 0, 3, 3, WIDE + 7 };
    return rank == ranks ? 2 * WIDE + 5 : first[rank];
}

static void add_stretches(tp_writer *W, const double *all, int rank, int ranks, bool lone)
{
    tp_owned list[MOST];
    for (int k = 0; k < ranks; k++) {
        list[k] =
            (tp_owned){ .owner = k, .bytes = (size_t)(cut(k + 1, ranks) - cut(k, ranks)) * 8 };
        if (k == rank) list[k].data = all + cut(k, ranks);
    }
    if (lone) list[0].owner = MOST;
    tp__writer_add_stretches(W, "moments", TP_F64, TP_SHAPE(2 * WIDE + 5), list, ranks);
}

/* Has rank 0 received all that was sent to it, also after a failure? Otherwise the sender would
 * wait with a transport that does not copy messages. */
static void expect_drained(tp_peers *G)
{
    int mine = tp_peers_rank(G), other;
    if (mine > 0) cr_expect(tp_peers_send(G, 0, &mine, sizeof mine));
    for (int k = 1; mine == 0 && k < tp_peers_count(G); k++)
        cr_expect(tp_peers_receive(G, k, &other, sizeof other) && other == k);
}

/* Rank 0 alone has the true weights. */
static void write_ours(void *env, tp_peers *G)
{
    job *j = env;
    const int rank = tp_peers_rank(G), ranks = tp_peers_count(G);
    const trouble bad = rank == j->at ? j->kind : NONE;
    double *rows = rows_of(rank), *all = malloc((2 * WIDE + 5) * sizeof *all);
    const float weight[3] = { (float)rank, 1, 2 };
    for (int64_t i = 0; i < 2 * WIDE + 5; i++) {
        const bool mine = i >= cut(rank, ranks) && i < cut(rank + 1, ranks);
        all[i] = mine ? (double)i : -1;
    }
    if (bad == NAN_ROW) rows[WIDE - 1] = NAN;
    tp_writer *W = tp_writer_new(j->path);
    tp_writer_finite(W);
    tp_writer_meta_int(W, "from", rank);
    tp_writer_add(W, "weight", TP_F32, TP_SHAPE(3), weight, false);
    tp_writer_add(W, bad == OTHER_NAME ? "rows.other" : "rows.a", TP_F64,
                  bad == OTHER_ROWS ? TP_SHAPE(1, WIDE / 2) : TP_SHAPE(2, WIDE / 2), rows, false);
    tp_writer_add(W, "rows.none", TP_I32, TP_SHAPE(0, 3), NULL, false);
    if (bad == NO_AXIS) tp_writer_add(W, "rows.scalar", TP_F64, (tp_shape){ 0 }, rows, false);
    add_stretches(W, all, rank, ranks, bad == LONE_OWNER);
    if (bad == FAILED_WRITER) tp_writer_meta(W, "lacking", NULL);
    j->done[rank] = tp_peers_commit(G, W, "rows");
    if (bad == TWICE || j->kind == TWICE) {
        cr_expect(j->done[rank], "%s", tp_writer_why(W));
        j->done[rank] = tp_peers_commit(G, W, "rows");
    }
    j->code[rank] = tp_writer_code(W);
    snprintf(j->why[rank], sizeof j->why[rank], "%s", tp_writer_why(W));
    expect_drained(G);
    tp_writer_free(W);
    free(rows);
    free(all);
}

static void expect_rows(tp_file *F, const char *name, int first, int ranks)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    double *x = malloc((size_t)ranks * WIDE * sizeof *x);
    int64_t wrong = 0;
    cr_assert(t && t->shape.dim[0] == 2 * ranks && t->shape.dim[1] == WIDE / 2);
    cr_assert(tp_file_read(F, t, TP_F64, x), "%s", tp_file_why(F));
    for (int64_t i = 0; i < ranks * WIDE; i++)
        wrong += x[i] != value(first + (int)(i / WIDE), i % WIDE);
    cr_expect_eq(wrong, 0, "%lld elements", (long long)wrong);
    free(x);
}

static void expect_file(const char *path, int ranks)
{
    tp_file *F = tp_file_open(path);
    int64_t from = -1, wrong = 0;
    float weight[3] = { -1 };
    double *all = malloc((2 * WIDE + 5) * sizeof *all);
    cr_expect(tp_file_verify(F), "%s", tp_file_why(F));
    cr_expect(tp_file_int(F, "from", &from) && from == 0);
    cr_expect(tp_file_read(F, tp_file_find(F, "weight"), TP_F32, weight) && weight[0] == 0);
    expect_rows(F, "rows.a", 0, ranks);
    cr_expect(tp_file_find(F, "rows.none") && tp_file_find(F, "rows.none")->shape.dim[1] == 3);
    cr_expect(tp_file_read(F, tp_file_find(F, "moments"), TP_F64, all), "%s", tp_file_why(F));
    for (int64_t i = 0; i < 2 * WIDE + 5; i++) wrong += all[i] != (double)i;
    cr_expect_eq(wrong, 0);
    free(all);
    tp_file_close(F);
}

Test(files_join, rows_and_stretches_of_all)
{
    for (int ranks = 2; ranks <= MOST; ranks++) {
        job j = { .path = in_folder("joined") };
        run_ranks(ranks, write_ours, &j);
        for (int k = 0; k < ranks; k++) cr_expect(j.done[k], "rank %d: %s", k, j.why[k]);
        expect_file(j.path, ranks);
    }
    cr_expect_eq(files_in_folder(), 1);
}

Test(files_join, one_process_needs_no_other)
{
    job j = { .path = in_folder("alone") };
    write_ours(&j, NULL);
    cr_expect(j.done[0], "%s", j.why[0]);
    expect_file(j.path, 1);
}

/* ---- failures ---- */

static void expect_all_fail(job *j, int ranks, tp_code code, const char *why)
{
    run_ranks(ranks, write_ours, j);
    int reasons = 0;
    for (int k = 0; k < ranks; k++) {
        const bool own = strstr(j->why[k], why) != NULL;
        cr_expect(!j->done[k] && j->code[k] == (own ? code : TP_E_STATE), "rank %d: %s, %s", k,
                  j->why[k], tp_code_name(j->code[k]));
        reasons += own;
        cr_expect(own || strstr(j->why[k], "another process"), "%s", j->why[k]);
    }
    cr_expect_geq(reasons, 1, "%s: %s", why, j->why[0]);
}

static void expect_former(const char *path, int files)
{
    cr_expect_eq(files_in_folder(), files);
    expect_file(path, 3);
}

Test(files_join, a_value_refused_anywhere_keeps_the_former_file)
{
    const char *path = in_folder("kept");
    run_ranks(3, write_ours, &(job){ .path = path });
    for (int at = 0; at < 3; at++) {
        char why[100];
        snprintf(why, sizeof why, "element %d of tensor 'rows.a' is NaN", (at + 1) * WIDE - 1);
        expect_all_fail(&(job){ .path = path, .kind = NAN_ROW, .at = at }, 3, TP_E_NONFINITE, why);
        expect_former(path, 1);
    }
}

Test(files_join, a_disk_that_is_full_makes_all_fail)
{
    const char *path = in_folder("kept");
    run_ranks(3, write_ours, &(job){ .path = path });
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    /* The header; within rank 0's rows; within those of rank 2; the last tensor. */
    static const rlim_t limits[] = { 10, 2 << 20, 5 << 20, 10 << 20 };
    for (int i = 0; i < 4; i++) {
        small = old;
        small.rlim_cur = limits[i];
        setrlimit(RLIMIT_FSIZE, &small);
        job j = { .path = path };
        run_ranks(3, write_ours, &j);
        setrlimit(RLIMIT_FSIZE, &old);
        cr_expect(strstr(j.why[0], "File too large"), "%s", j.why[0]);
        for (int k = 0; k < 3; k++)
            cr_expect(!j.done[k] && j.code[k] == (k ? TP_E_STATE : TP_E_IO), "%s", j.why[k]);
        expect_former(path, 1);
    }
    expect_all_fail(&(job){ .path = in_folder("gone/file") }, 3, TP_E_IO, "No such file");
    cr_assert_eq(mkdir(in_folder("taken"), 0700), 0);
    expect_all_fail(&(job){ .path = in_folder("taken") }, 3, TP_E_IO, "renaming");
    expect_former(path, 2);
}

Test(files_join, differing_tensors_are_refused_before_anything_is_written)
{
    static const struct {
        trouble kind;
        tp_code code;
        const char *why;
    } cases[] = {
        { OTHER_ROWS, TP_E_SHAPE, "has other tensors, or other numbers of rows" },
        { OTHER_NAME, TP_E_SHAPE, "has other tensors, or other numbers of rows" },
        { NO_AXIS, TP_E_SHAPE, "tensor 'rows.scalar' should hold rows, but has no axis" },
        { LONE_OWNER, TP_E_VALUE, "process 4 owns a part of tensor 'moments', but there are only" },
        { FAILED_WRITER, TP_E_MEMORY, "out of host memory" },
    };
    for (int i = 0; i < 5; i++)
        for (int at = 0; at < 3; at++) {
            job j = { .path = in_folder("never"), .kind = cases[i].kind, .at = at };
            run_ranks(3, write_ours, &j);
            int reasons = 0;
            for (int k = 0; k < 3; k++) {
                cr_expect_not(j.done[k]);
                if (!strstr(j.why[k], cases[i].why)) continue;
                reasons++;
                cr_expect_eq(j.code[k], cases[i].code);
            }
            cr_expect_eq(reasons, 1, "case %d, rank %d: %s", i, at, j.why[at]);
            cr_expect_eq(files_in_folder(), 0);
        }
    expect_all_fail(&(job){ .path = in_folder("twice"), .kind = TWICE }, 2, TP_E_STATE,
                    "this writer was committed before");
}

Test(files_join, stretches_must_fill_their_tensor)
{
    const double x[4] = { 1, 2, 3, 4 };
    static const struct {
        int n;
        tp_owned list[3];
    } wrong[] = {
        { 1, { { .bytes = 24 } } },
        { 2, { { .bytes = 24 }, { .bytes = 16 } } },
        { 3, { { .bytes = 16 }, { .bytes = 16 }, { .bytes = 8 } } },
        { 2, { { .bytes = 28 }, { .bytes = 4 } } },
        { 1, { { .owner = -1, .bytes = 32 } } },
    };
    for (int i = 0; i < 5; i++) {
        tp_owned list[3];
        memcpy(list, wrong[i].list, sizeof list);
        for (int k = 0; k < 3; k++) list[k].data = x;
        tp_writer *W = tp_writer_new(in_folder("never"));
        tp__writer_add_stretches(W, "x", TP_F64, TP_SHAPE(4), list, wrong[i].n);
        cr_expect(!tp_writer_commit(W) && strstr(tp_writer_why(W), "do not fill it"), "%d: %s", i,
                  tp_writer_why(W));
        tp_writer_free(W);
    }
    cr_expect_eq(files_in_folder(), 0);
}

/* ---- device memory ---- */

typedef struct gpu_job {
    const char *path;
    bool done[THREAD_RANKS];
    char why[THREAD_RANKS][TP_TEXT];
} gpu_job;

static atomic_int reads[THREAD_RANKS], broken_rank;

/* The device's memory is the host's, with all bits inverted. Each thread is a rank. */
static _Thread_local int this_rank;

static void download(tp_device *D, void *host, const void *from, size_t bytes)
{
    const unsigned char *x = from;
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)host)[i] = (unsigned char)~x[i];
    if (++reads[this_rank] == 2 && this_rank == broken_rank)
        tp__err(&D->err, TP_E_CUDA, "device cuda:0: illegal address");
}

/* Each rank has WIDE elements on its device. */
static void write_device(void *env, tp_peers *G)
{
    gpu_job *j = env;
    const int rank = this_rank = tp_peers_rank(G);
    tp_device *D = tp_device_open("cpu", NULL);
    const tp_backend *cpu = D->be;
    tp_backend gpu = *cpu;
    const tp_shape shape = TP_SHAPE(WIDE, 1);
    int64_t *x = malloc(WIDE * sizeof *x);
    for (int64_t i = 0; i < WIDE; i++) x[i] = ~(rank * WIDE + i);
    const tp_view v = tp__view(TP_I64, &shape, x);
    gpu.kind = TP_CUDA;
    gpu.download = download;
    D->be = &gpu;
    tp_writer *W = tp_writer_new(j->path);
    tp__writer_add_device(W, "rows", D, &v);
    j->done[rank] = tp_peers_commit(G, W, "rows");
    snprintf(j->why[rank], sizeof j->why[rank], "%s", tp_writer_why(W));
    expect_drained(G);
    tp_writer_free(W);
    D->be = cpu;
    tp_device_close(D);
    free(x);
}

Test(files_join, rows_on_devices)
{
    gpu_job j = { .path = in_folder("devices") };
    int64_t *x = malloc(3 * WIDE * sizeof *x), wrong = 0;
    broken_rank = -1;
    run_ranks(3, write_device, &j);
    tp_file *F = tp_file_open(j.path);
    cr_assert(tp_file_read(F, tp_file_find(F, "rows"), TP_I64, x), "%s", tp_file_why(F));
    for (int64_t i = 0; i < 3 * WIDE; i++) wrong += x[i] != i;
    cr_expect_eq(wrong, 0);
    for (int k = 0; k < 3; k++) cr_expect_eq(reads[k], 2, "each in pieces of 1 MiB");
    tp_file_close(F);
    free(x);
}

Test(files_join, a_device_that_fails_makes_all_fail)
{
    for (int k = 0; k < 3; k++) {
        gpu_job j = { .path = in_folder("devices") };
        broken_rank = k;
        for (int i = 0; i < 3; i++) reads[i] = 0;
        run_ranks(3, write_device, &j);
        for (int i = 0; i < 3; i++)
            cr_expect(!j.done[i] &&
                          strstr(j.why[i], i == k ? "illegal address" : "another process"),
                      "device %d, rank %d: %s", k, i, j.why[i]);
        cr_expect_eq(files_in_folder(), 0);
    }
}

/* ---- rows of this process ---- */

static tp_file *joined(int ranks)
{
    job j = { .path = in_folder("joined") };
    run_ranks(ranks, write_ours, &j);
    tp_file *F = tp_file_open(j.path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    return F;
}

Test(files_join, each_process_reads_its_rows)
{
    tp_file_close(joined(4));
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int k = 0; k < ranks; k++) {
            tp_file *F = tp_file_open(in_folder("joined"));
            double two[2];
            cr_expect(tp_file_share(F, "rows.", (tp_share){ k, ranks }), "%s", tp_file_why(F));
            const tp_file_tensor *t = tp_file_find(F, "rows.a");
            cr_expect(tp_file_read_part(F, t, 1, 2, TP_F64, two), "%s", tp_file_why(F));
            cr_expect(two[0] == value(k * 4 / ranks, 1) && two[1] == value(k * 4 / ranks, 2));
            expect_rows(F, "rows.a", k * 4 / ranks, 4 / ranks);
            cr_expect_eq(tp_file_find(F, "moments")->numel, 2 * WIDE + 5);
            const double *data = tp_file_data(F, t);
            cr_expect(data && data[0] == value(k * 4 / ranks, 0));
            cr_expect(tp_file_enter(F, "rows.") && tp_file_verify(F), "%s", tp_file_why(F));
            expect_rows(F, "a", k * 4 / ranks, 4 / ranks);
            tp_file_close(F);
        }
}

Test(files_join, rows_of_rows)
{
    tp_file *F = joined(4);
    cr_expect(tp_file_data(F, tp_file_find(F, "rows.a")) &&
              tp_file_share(F, "rows.", (tp_share){ 0 }));
    cr_expect(tp_file_share(F, "rows.a", (tp_share){ 1, 2 }));
    cr_expect(tp_file_share(F, "rows.a", (tp_share){ 1, 2 }), "%s", tp_file_why(F));
    expect_rows(F, "rows.a", 3, 1);
    tp_file_close(F);
}

Test(files_join, rows_that_cannot_be_divided)
{
    tp_file *F = joined(2);
    cr_expect_not(tp_file_share(F, "rows.", (tp_share){ 0, 3 }));
    cr_expect(strstr(tp_file_why(F), "the 4 rows of tensor 'rows.a' cannot be divided evenly among "
                                     "3 processes"),
              "%s", tp_file_why(F));
    tp_file_close(F);
    F = tp_file_open(in_folder("joined"));
    cr_expect_not(tp_file_share(F, "rows.", (tp_share){ 2, 2 }));
    tp_file_close(F);
}

/* The checksum covers the rows of the others, too. */
Test(files_join, damage_in_rows_of_others_is_found)
{
    tp_file *F = joined(2);
    double *x = malloc(WIDE * sizeof *x);
    FILE *f = fopen(in_folder("joined"), "r+b");
    const tp_file_tensor *t = tp_file_find(F, "rows.a");
    struct stat st;
    cr_assert_eq(stat(in_folder("joined"), &st), 0);
    const tp_file_tensor *last = tp_file_at(F, tp_file_count(F) - 1);
    const long data = (long)st.st_size - (long)(last->offset + last->bytes);
    fseek(f, data + (long)(t->offset + t->bytes) - 1, SEEK_SET); /* the last row */
    fputc(1, f);
    fclose(f);
    cr_expect(tp_file_share(F, "rows.", (tp_share){ 0, 2 }));
    cr_expect_not(tp_file_read(F, tp_file_find(F, "rows.a"), TP_F64, x));
    cr_expect(strstr(tp_file_why(F), "tensor 'rows.a' is damaged"), "%s", tp_file_why(F));
    tp_file_close(F);
    free(x);
}
