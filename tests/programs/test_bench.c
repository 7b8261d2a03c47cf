/* test_bench.c - bench_ops continues after a case that fails: in the same process if memory ran
 * out, in another one if a kernel failed, after which a process cannot use the GPU. */
#include <criterion/criterion.h>

#ifdef TP_BENCH /* the program is built with the emulation */
#include <string.h>

#include "support/program.h"

#define ARGS "--device cuda --smoke yes --dtype bf16 --seconds 0.001 --filter 65"
#define LOST                                                                                       \
    "{\"op\": \"cross_entropy\", \"shape\": \"8192x50265\", \"dtype\": \"bf16\", \"error\": \""

static void begin(void)
{
    program_begin("bench_ops");
}

TestSuite(bench, .init = begin, .fini = program_end, .timeout = 900);

/* Counts the lines with this text. */
static int lines(const char *text)
{
    int n = 0;
    for (const char *s = out; (s = strstr(s, text)); s++) n++;
    return n;
}

/* The largest case fails; all cases before and after it are measured once. */
static void expect_one_loss(const char *setting, const char *why)
{
    cr_expect_eq(run_under(setting, ARGS), 1, "%s", setting);
    const char *lost = strstr(out, LOST);
    cr_assert(lost, "%s: %s", setting, out);
    cr_expect(strstr(lost, why), "%s: %s", setting, out);
    cr_expect_eq(lines("\"error\""), 1, "%s: %s", setting, out);
    cr_expect(strstr(lost, "{\"op\": \"embedding\", \"direction\": \"backward\""), "%s: %s",
              setting, out);
    cr_expect_eq(lines("\"op\": \"matmul\", \"direction\": \"forward\""), 1, "%s", out);
    cr_expect_eq(lines("\"op\": \"gelu\", \"direction\": \"forward\""), 1, "%s", out);
}

Test(bench, goes_on_after_a_case)
{
    cr_expect_eq(run(ARGS), 0, "%s", errors);
    cr_expect_eq(lines("\"error\""), 0, "%s", out);
    expect_one_loss("EMULATION_MEMORY=80000000", "memory");
    expect_one_loss("EMULATION_FAULT_BYTES=80000000", "unspecified launch failure");
}
#else
Test(bench, absent)
{
    cr_skip_test("needs the preset emulate, and -DTAPEGRAD_BENCH=ON");
}
#endif
