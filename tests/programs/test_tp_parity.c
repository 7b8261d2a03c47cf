/* test_tp_parity.c - tp-parity's output for cases that agree, that differ, and that are skipped. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/program.h"

#define CASES TP_SOURCE_DIR "/tests/fixtures/lra/"

static void begin(void)
{
    program_begin("tp-parity");
}

TestSuite(tp_parity, .init = begin, .fini = program_end);

static void expect(const char *text)
{
    cr_expect(strstr(out, text), "no '%s' in %s", text, out);
}

/* Differences of two documents cancel in bf16, so pairs have no limits there. */
Test(tp_parity, skipped_cases_are_counted_apart)
{
    const char *files = CASES "attn_none.safetensors " CASES "retr_ls_clslast.safetensors";
    succeed("--bf16 %s", files);
    expect("ok   attn_none.safetensors");
    expect("skip retr_ls_clslast.safetensors");
    expect("bf16 skipped");
    expect("1 of 2 files were skipped: they have no limits for bf16");
    succeed("--bf16 --f32 %s", files);
    expect("ok   retr_ls_clslast.safetensors");
    expect("bf16 skipped");
    cr_expect(!strstr(out, "were skipped"), "%s", out);
    succeed("%s", files);
    cr_expect(!strstr(out, "skip"), "%s", out);
}

Test(tp_parity, files_that_disagree)
{
    cr_assert(shell("head -c 300 " CASES "attn_none.safetensors > cut.safetensors"));
    cr_expect_eq(run("--bf16 cut.safetensors " CASES "retr_ls_clslast.safetensors"), 1);
    expect("FAIL cut.safetensors");
    expect("1 of 2 files disagree\n1 of 2 files were skipped");
}
