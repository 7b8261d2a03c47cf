/* test_course.c - what the scores of validations decide: the end of a run by --patience, and the
 * drops of its learning rate by --schedule plateau. The scores are scripted; a run that is stopped
 * and resumed ends with the same bits as one that is not. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <string.h>

#include "support/program.h"
#include "support/scripted.h"

static char log_text[20000];

TestSuite(course, .init = scripted_begin, .fini = scripted_end);

#define PLATEAU "--schedule plateau --lr-patience 2 --lr-factor 0.5 "

/* ---- patience ---- */

Test(course, patience_ends_a_run)
{
    scripted_scores((double[]){ 5, 4, 4, 3, 3.5, (double)NAN, 6 }, 7);
    scripted_run("--run-dir never", 0, "Done: 24 updates; best 3.00 points: never/best.saf");
    expect_meta("never/last.safetensors", "ended", "1");
    scripted_run("--run-dir run --patience 2", 0,
                 "Done: 12 updates, ended by --patience 2; best 3.00 points: run/best.safetensors");
    cr_expect(strstr(scripted_output,
                     "\n2 validations in a row found no better points: --patience ends the run\n"),
              "%s", scripted_output);
    expect_meta("run/last.safetensors", "ended", "1");
    expect_meta("run/last.safetensors", "update", "12");
    slurp("run/log.jsonl", log_text, sizeof log_text);
    const char *ended = strstr(log_text, "\"ended\":\"patience\"");
    cr_expect(ended && !strchr(strchr(ended, '\n') + 1, '\n'), "the last line: %s", log_text);
    scripted_run("--run-dir run --resume", 0, "Done: 12 updates, ended by --patience 2; best");
    scripted_run("--run-dir run --resume --patience 3", 0,
                 "Done: 14 updates, ended by --patience 3");
    scripted_run("--run-dir run --resume --patience 0", 0, "Done: 24 updates; best 3.00");
    scripted_run("--run-dir one --patience 1", 0,
                 "Done: 6 updates, ended by --patience 1; best 4.00");
    cr_expect(
        strstr(scripted_output, "\na validation found no better points: --patience ends the run\n"),
        "%s", scripted_output);
}

Test(course, patience_where_higher_is_better)
{
    scripted.higher = true;
    scripted_scores((double[]){ 1, 3, 2, 4, 3, 4 }, 6);
    scripted_run("--run-dir run --patience 2", 0,
                 "Done: 12 updates, ended by --patience 2; best 4.00");
    scripted_scores((double[]){ (double)NAN }, 1);
    scripted_run("--run-dir none --patience 3", 0,
                 "Done: 6 updates, ended by --patience 3; no best");
}

static void signal_in_the_ninth(tp_run *R)
{
    if (R->update == 8) raise(SIGTERM);
}

/* A resumed run may find that it has waited long enough: it ends as if it had just seen that. */
Test(course, patience_of_a_resumed_run)
{
    scripted_scores((double[]){ 1 }, 1);
    scripted.next = signal_in_the_ninth;
    scripted_run("--run-dir run", 143, "SIGTERM after update 9");
    expect_meta("run/last.safetensors", "course.stale", "3");
    expect_meta("run/last.safetensors", "ended", NULL);
    scripted_run("--run-dir run --resume --patience 3", 0,
                 "Done: 9 updates, ended by --patience 3");
    expect_meta("run/last.safetensors", "ended", "1");
    scripted_run("--run-dir run --resume --patience 4", 0, "Done: 10 updates, ended by --patience");
}

/* A program sets it like its other defaults. */
Test(course, patience_of_the_program)
{
    scripted.defaults = "--threads 1 --epochs 12 --patience 3";
    scripted_scores((double[]){ 1, 2 }, 2);
    scripted_run("--run-dir run", 0, "Done: 8 updates, ended by --patience 3");
    scripted_run("--help", 0, "Default: 3.");
}

/* Saving less often, a signal in a validation, an end by --steps: none changes what is counted. */
Test(course, patience_survives_resuming)
{
    scripted_scores((double[]){ 5, 4, 4.5, 3, 3.5, 3.2, 3.1 }, 7);
    scripted_run("--run-dir whole --patience 3 --steps 40", 0, "Done: 14 updates, ended by");
    scripted_run("--run-dir parts --patience 3 --steps 3", 0, "stopped by --steps after update 3");
    scripted_signal = 10;
    scripted_run("--run-dir parts --resume --steps 40", 143,
                 "SIGTERM in the validation after update 10");
    expect_meta("parts/last.safetensors", "ended", NULL);
    scripted_signal = 0;
    scripted_run("--run-dir parts --resume", 0, "Done: 14 updates, ended by --patience 3");
    cr_expect(same_bytes("whole/last.safetensors", "parts/last.safetensors"));
}

static void fail_after_four(tp_run *R)
{
    if (R->update == 4) tp_run_fail(R, "no room for a picture");
}

/* A validation that fails after its score is repeated, and counts once. */
Test(course, patience_after_a_failed_validation)
{
    scripted_scores((double[]){ 5, 4, 4.5, 4.2, 3, 3, 3 }, 7);
    scripted_run("--run-dir whole --patience 2 " PLATEAU, 0, "Done: 8 updates, ended by");
    scripted.best = fail_after_four;
    scripted_run("--run-dir failed --patience 2 " PLATEAU, 1, "scripted: no room for a picture");
    scripted.best = NULL;
    scripted_run("--run-dir failed --resume", 0, "Done: 8 updates, ended by");
    cr_expect(same_bytes("whole/last.safetensors", "failed/last.safetensors"));
    cr_expect(same_bytes("whole/best.safetensors", "failed/best.safetensors"));
}

/* best.safetensors of a killed run may be of a later update than the one that it resumes from. */
Test(course, patience_after_a_kill)
{
    scripted_scores((double[]){ 5, 4, 4.5, 3, 3.5, 3.2, 3.1 }, 7);
    scripted_run("--run-dir whole --patience 2 --steps 40", 0, "Done: 12 updates, ended by");
    scripted_run("--run-dir killed --patience 2 --steps 4", 0, "Continue");
    cr_assert(shell("cp killed/last.safetensors before"));
    scripted_run("--run-dir killed --resume --steps 8", 0, "Continue");
    cr_assert(shell("mv before killed/last.safetensors"));
    scripted_run("--run-dir killed --resume --steps 40", 0,
                 "Done: 12 updates, ended by --patience 2");
    cr_expect(same_bytes("whole/last.safetensors", "killed/last.safetensors"));
    cr_expect(same_bytes("whole/best.safetensors", "killed/best.safetensors"));
}

Test(course, damaged_state)
{
    scripted_scores((double[]){ 1 }, 1);
    scripted_run("--run-dir run --steps 4", 0, "Continue");
    cr_assert(shell("sed 's/\"course.stale\":\"1\"/\"course.stale\":\"x\"/; "
                    "s/\"xxh3.header\":\"/\"xxh3.absent\":\"/; "
                    "s/\"xxh3.tensors\":\"/\"xxh3.nothing\":\"/' run/last.safetensors >to && "
                    "mv to run/last.safetensors"));
    scripted_run("--run-dir run --resume", 1, "'course.stale'");
}

/* ---- the rate ---- */

/* Compares the rates of the updates in a log with these of its epochs, to the last one. */
static void expect_rates(const char *path, const double *rate, int epochs)
{
    char *rest = NULL;
    int n = 0;
    slurp(path, log_text, sizeof log_text);
    for (char *line = strtok_r(log_text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const double found = number_in(line, "lr");
        cr_assert(n / 2 < epochs, "%s: %d reports", path, n);
        cr_expect(fabs(found - rate[n / 2]) < 1e-9, "%s: update %d: %g, not %g", path, n + 1, found,
                  rate[n / 2]);
        n++;
    }
    cr_expect_eq(n, 2 * epochs, "%s: %d reports", path, n);
}

/* The drop counts from the next update on; it starts the count over. */
Test(course, plateau_drops_the_rate)
{
    scripted_scores((double[]){ 5, 4, 4.5, 4.1, 4.2, 3, 3, (double)NAN, 2, 2, 2, 2 }, 12);
    scripted_run("--run-dir run " PLATEAU, 0, "Done: 24 updates; best 2.00");
    cr_expect(
        strstr(
            scripted_output,
            "\n2 validations in a row found no better points: the learning rate drops to 0.05\n"),
        "%s", scripted_output);
    expect_rates("run/log.jsonl",
                 (double[]){ .1, .1, .1, .1, .05, .05, .05, .05, .025, .025, .025, .0125 }, 12);
    scripted_run("--run-dir low --lr-end 0.04 " PLATEAU, 0, "Done: 24 updates; best 2.00");
    expect_rates("low/log.jsonl",
                 (double[]){ .1, .1, .1, .1, .05, .05, .05, .05, .04, .04, .04, .04 }, 12);
    scripted.higher = true;
    scripted_run("--run-dir high --epochs 4 " PLATEAU, 0, "Done: 8 updates; best 5.00");
    expect_rates("high/log.jsonl", (double[]){ .1, .1, .1, .05 }, 4);
}

static double rate_by_halves(const tp_run *R, int64_t update)
{
    (void)R;
    return update < 4 ? 0.2 : 0.1;
}

Test(course, plateau_of_a_program_with_rates)
{
    scripted_scores((double[]){ 1 }, 1);
    scripted.rate = rate_by_halves;
    scripted_run("--run-dir run --epochs 4 --lr 7 " PLATEAU, 0, "Done: 8 updates");
    expect_rates("run/log.jsonl", (double[]){ .2, .2, .1, .05 }, 4);
}

/* Warm-up, averages, a stop by --steps, one in a validation, and a kill. */
Test(course, plateau_survives_resuming)
{
    scripted_scores((double[]){ 5, 4, 4.5, 4.1, 4.2, 3, 3, 3.5, 2 }, 9);
    scripted_run("--run-dir whole --warmup 5 --ema 0.5 --steps 24 " PLATEAU, 0, "Done: 24 updates");
    scripted_run("--run-dir parts --warmup 5 --ema 0.5 --steps 7 " PLATEAU, 0, "Continue");
    scripted_signal = 8;
    scripted_run("--run-dir parts --resume --steps 24", 143, "in the validation after update 8");
    scripted_signal = 0;
    scripted_run("--run-dir parts --resume --steps 12", 0, "Continue");
    cr_assert(shell("cp parts/last.safetensors before"));
    scripted_run("--run-dir parts --resume --steps 16", 0, "Continue");
    cr_assert(shell("mv before parts/last.safetensors"));
    scripted_run("--run-dir parts --resume --steps 24", 0, "Done: 24 updates");
    cr_expect(same_bytes("whole/last.safetensors", "parts/last.safetensors"));
    cr_expect(same_bytes("whole/best.safetensors", "parts/best.safetensors"));
}

Test(course, needs_validations)
{
    scripted_run("--run-dir run --eval-every 0 --patience 3", 1,
                 "--patience needs validations during the run, which --eval-every does not ask");
    scripted_run("--run-dir run --eval-every 0 --schedule plateau", 1,
                 "--schedule plateau needs validations during the run");
    cr_expect(shell("test ! -e run"));
}

Test(course, plateau_without_its_state)
{
    scripted_scores((double[]){ 1 }, 1);
    scripted_run("--run-dir run --steps 4 " PLATEAU, 0, "Continue");
    cr_assert(shell("sed 's/course.plateau.bad/course.plateau.BAD/; "
                    "s/\"xxh3.header\":\"/\"xxh3.absent\":\"/; "
                    "s/\"xxh3.tensors\":\"/\"xxh3.nothing\":\"/' run/last.safetensors >to && "
                    "mv to run/last.safetensors"));
    scripted_run("--run-dir run --resume", 1,
                 "last.safetensors: the state of --schedule plateau is missing or wrong");
}
