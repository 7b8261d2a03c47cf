/* test_nccl.c - gradients of several processes are summed by NCCL, which the emulation plays
 * (tests/cuda_emulation/emulated_nccl.c): with the bits of sums in the order of the ranks, whoever
 * reaches a parameter; through host memory where some process cannot; and nobody waits for one that
 * fails. nccl_program is the process. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/mpi.h"
#include "support/program.h"

#ifdef TP_EMULATION
static const bool emulated = true;
#else
static const bool emulated = false;
#endif

#define WITH    "LD_LIBRARY_PATH=" TP_BUILD_DIR "/nccl_emulation "
#define UNBOUND "OMPI_MCA_hwloc_base_binding_policy=none "

static void begin(void)
{
    program_begin("nccl_program");
    if (!emulated) cr_skip_test("needs the emulation");
    if (!has_mpi(OPEN_MPI) && !has_mpi(MPICH)) cr_skip_test("no MPI");
}

TestSuite(nccl, .init = begin, .fini = program_end, .timeout = 300);

static int launch(mpi_kind k, int ranks, const char *with, const char *args)
{
    char prefix[1000];
    snprintf(prefix, sizeof prefix, UNBOUND "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 %s %s", with,
             mpi_command(k, ranks));
    return run_under(prefix, args);
}

static mpi_kind some_mpi(void)
{
    return has_mpi(MPICH) ? MPICH : OPEN_MPI;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

static void expect_sums(mpi_kind k, int ranks, const char *with, const char *args)
{
    const int status = launch(k, ranks, with, args);
    cr_expect_eq(status, 0, "%s, %d processes, %s: status %d: %s%s", mpi_name(k), ranks, args,
                 status, out, errors);
    cr_expect_eq(count(out, "done"), ranks, "%s: %s", args, out);
    cr_expect(!strstr(out, "nothing"), "%s: %s", args, out);
}

Test(nccl, sums)
{
    for (int k = 0; k < MPI_KINDS; k++)
        for (int ranks = 2; has_mpi((mpi_kind)k) && ranks <= 3; ranks++) {
            expect_sums((mpi_kind)k, ranks, WITH, "'NCCL 2.27.3'");
            expect_sums((mpi_kind)k, ranks, WITH, "'NCCL 2.27.3' record");
            expect_sums((mpi_kind)k, ranks, WITH, "'NCCL 2.27.3' shard");
            expect_sums((mpi_kind)k, ranks, WITH, "'NCCL 2.27.3' shard record");
        }
}

/* The same program and values where sums go through host memory. */
Test(nccl, host_memory_where_it_cannot)
{
    expect_sums(some_mpi(), 2, WITH, "messages old");
    expect_sums(some_mpi(), 2, WITH, "'messages: processes share a GPU' same");
    expect_sums(some_mpi(), 2, WITH "EMULATION_NCCL_VERSION=20700",
                "'messages: NCCL 2.7.0 is too old'");
    if (!shell("ldconfig -p | grep -q 'libnccl.so.2 '"))
        expect_sums(some_mpi(), 2, "", "'messages: libnccl.so.2 was not found'");
}

static void expect_end(const char *args, const char *what)
{
    const int status = launch(some_mpi(), 3, WITH, args);
    cr_expect_neq(status, 0, "%s succeeds", args);
    cr_expect_neq(status, 124, "%s: somebody waits for ever", args);
    cr_expect(strstr(errors, what), "%s: %s", args, errors);
    cr_expect_eq(count(out, "done"), 0, "%s: %s", args, out);
}

Test(nccl, one_that_fails_ends_the_others)
{
    expect_end("NCCL start", "NCCL: start: unhandled system error");
    expect_end("NCCL breaks", "NCCL: a sum: unhandled system error");
    expect_end("NCCL hangs", "has not answered");
    cr_expect_neq(launch(some_mpi(), 3, WITH, "NCCL dies"), 0);
    cr_expect_eq(count(out, "done"), 0, "%s", out);
}
