/* test_signals.c - a training program that receives a signal finishes the update and writes a
 * checkpoint, and the resumed run ends with the same files as an uninterrupted one. A signal during
 * a validation ends it, and the resumed run repeats it. Tests cover every training program
 * (support/runs.c). */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/runs.h"

TestSuite(signals, .timeout = 1800);

static void expect_end(const run_kind *k, pid_t child, int number, const char *name)
{
    int status;
    kill(child, number);
    waitpid(child, &status, 0);
    slurp("err", errors, sizeof errors);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 128 + number, "%s: %s: status %d\n%s",
              k->command, name, status, errors);
}

/* ---- at any moment ---- */

static void stop_and_resume(const run_kind *k)
{
    static const struct {
        int number;
        const char *name, *said;
    } signals[] = { { SIGTERM, "SIGTERM", "stopped by SIGTERM" },
                    { SIGINT, "SIGINT", "stopped by SIGINT" },
                    { SIGHUP, "SIGHUP", "stopped by SIGHUP" },
                    { SIGUSR1, "SIGUSR1", "stopped by SIGUSR1" } };
    char args[1024];
    snprintf(args, sizeof args, "%s %s --steps 1000000 --run-dir run", k->train, k->often);
    for (int i = 0; i < 4; i++) {
        const char *name = signals[i].name;
        cr_assert(shell("rm -rf run"));
        const pid_t child = start(args);
        await_reports("run/log.jsonl", 5);
        expect_end(k, child, signals[i].number, name);
        slurp("out", out, sizeof out);
        cr_expect(strstr(out, signals[i].said) && strstr(out, "Continue with: "), "%s: %s\n%s",
                  k->command, name, out);
        cr_expect(update_in("run/last.safetensors") >= 5, "%s: %s", k->command, name);
        expect_resumed(k, k->often, name);
        cr_expect(same_log("straight/log.jsonl", "run/log.jsonl"), "%s: %s: log", k->command, name);
    }
}

Test(signals, at_any_moment)
{
    for (int i = 0; i < run_kind_count; i++) {
        if (!run_kind_wanted(&run_kinds[i])) continue;
        run_kind_begin(&run_kinds[i]);
        stop_and_resume(&run_kinds[i]);
        program_end();
    }
}

/* ---- during a validation ---- */

/* Starts a run of 4 updates in a fresh folder and ends it some time after the report of update
 * `after`. True if it was in a validation. */
static bool stop_in_validation(const run_kind *k, int after, double seconds)
{
    char args[1024], text[64];
    int status;
    snprintf(args, sizeof args, "%s %s %s --steps 4 --run-dir run", k->train, k->often,
             k->slow_validation);
    cr_assert(shell("rm -rf run")); /* so that the awaited reports are this run's */
    const pid_t child = start(args);
    await_reports("run/log.jsonl", after);
    nap(seconds);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    slurp("out", out, sizeof out);
    snprintf(text, sizeof text, "in the validation after update %d,", after + 1);
    if (!strstr(out, text)) return false;
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM, "%s: status %d",
              k->command, status);
    return true;
}

/* Stops the validation of update after + 1, in the middle or at the end of a run. */
static void stop_validation(const run_kind *k, int after)
{
    char name[64];
    bool met = false;
    snprintf(name, sizeof name, "%s, update %d", k->command, after + 1);
    double seconds = 0.004; /* grows, as builds with sanitizers are slow */
    for (int i = 0; i < 60 && !met; i++, seconds = seconds < 4 ? 1.3 * seconds : 0.004)
        met = stop_in_validation(k, after, seconds);
    cr_assert(met, "%s: no signal came during the validation", name);
    slurp("run/log.jsonl", out, sizeof out);
    char step[32];
    snprintf(step, sizeof step, "{\"step\":%d,", after + 1);
    cr_expect(!strstr(out, step), "%s: reported without its validation: %s", name, out);
    cr_expect_eq(update_in("run/last.safetensors"), after + 1, "%s", name);
    succeed("--resume --run-dir run --steps 4");
    cr_expect(strstr(out, "Done: 4 updates") || strstr(out, "stopped by --steps after update 4"),
              "%s: %s", name, out);
    cr_expect(same_bytes("straight/last.safetensors", "run/last.safetensors"), "%s: last", name);
    cr_expect(same_bytes("straight/best.safetensors", "run/best.safetensors"), "%s: best", name);
    cr_expect(same_log("straight/log.jsonl", "run/log.jsonl"), "%s: log", name);
}

Test(signals, during_a_validation)
{
    for (int i = 0; i < run_kind_count; i++) {
        const run_kind *k = &run_kinds[i];
        if (!run_kind_wanted(k)) continue;
        run_kind_begin(k);
        k->make_long_data();
        succeed("%s %s %s --steps 4 --run-dir straight", k->train, k->often, k->slow_validation);
        stop_validation(k, 1);
        stop_validation(k, 3);
        program_end();
    }
}
