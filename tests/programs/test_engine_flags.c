/* test_engine_flags.c - what the engine gives every training program: starting again from
 * config.json, a rate that drops at plateaus and kept checkpoints in a resumed run, and a test of
 * learning rates. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "support/runs.h"

/* Calls a function with each program, in a folder with its data. */
static void with_each(void (*f)(const run_kind *k))
{
    for (int i = 0; i < run_kind_count; i++) {
        if (!run_kind_wanted(&run_kinds[i])) continue;
        run_kind_begin(&run_kinds[i]);
        f(&run_kinds[i]);
        program_end();
    }
}

TestSuite(engine_flags, .timeout = 900);

static void start_again(const run_kind *k)
{
    succeed("%s %s --steps 4 --run-dir a", k->train, k->often);
    succeed("--config a/config.json --run-dir b");
    cr_expect(same_bytes("a/last.safetensors", "b/last.safetensors"), "%s: last", k->command);
    cr_expect(same_log("a/log.jsonl", "b/log.jsonl"), "%s: log", k->command);
    cr_assert(shell("sed 's/\"program\": \".*\"/\"program\": \"other\"/' a/config.json >c.json"));
    expect_refusal("--config c.json --run-dir c", 1, "c.json: the settings are of other, not of ");
}

Test(engine_flags, config_starts_the_same_run)
{
    with_each(start_again);
}

static void resume(const run_kind *k)
{
    char flags[600];
    snprintf(flags, sizeof flags,
             "%s --schedule plateau --lr-patience 1 --lr-factor 0.5 --patience 50 --keep-last 2 "
             "--keep-best 2",
             k->often);
    succeed("%s %s --steps 4 --run-dir run", k->train, flags);
    expect_resumed(k, flags, "plateau");
    cr_expect(same_log("straight/log.jsonl", "run/log.jsonl"), "%s: log", k->command);
    cr_expect(shell("for f in straight/*-*.safetensors; do cmp $f run/${f##*/} || exit 1; done; "
                    "[ $(ls straight | wc -l) = $(ls run | wc -l) ]"),
              "%s: kept", k->command);
}

Test(engine_flags, plateau_and_kept_checkpoints_of_a_resumed_run)
{
    with_each(resume);
}

static void test_rates(const run_kind *k)
{
    succeed("%s --steps 9 --lr-range 1e-6:1e-3:5 --run-dir run", k->train);
    cr_expect(shell("[ $(wc -l <run/lr-range.jsonl) = 5 ] && test -s run/lr-range.svg && "
                    "! ls run/*.safetensors run/log.jsonl run/config.json 2>/dev/null"),
              "%s: %s", k->command, out);
    expect_refusal("--resume --run-dir run", 1, "cannot resume: ");
}

Test(engine_flags, range_of_rates)
{
    with_each(test_rates);
}
