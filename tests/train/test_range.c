/* test_range.c - the test of learning rates (--lr-range): its rates and losses, where it stops, the
 * picture, and that it leaves nothing that could be taken for a run. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/program.h"
#include "support/scripted.h"

static void begin(void)
{
    scripted_begin();
    scripted_scores((double[]){ 1 }, 1);
}

TestSuite(range, .init = begin, .fini = scripted_end);

static char text[20000];

/* The lines of the log. */
static int read_lines(const char *path, char *line[200])
{
    char *rest = NULL;
    int n = 0;
    slurp(path, text, sizeof text);
    for (char *s = strtok_r(text, "\n", &rest); s && n < 200; s = strtok_r(NULL, "\n", &rest))
        line[n++] = s;
    return n;
}

static void expect_near(double x, double y, const char *what)
{
    cr_expect(fabs(x - y) <= 1e-7 * fabs(y), "%s: %.9g, not %.9g", what, x, y);
}

Test(range, rates_and_losses)
{
    char *line[200];
    double sum = 0;
    scripted_run(
        "--run-dir run --optimizer sgd --lr-range 1e-4:1e-1:31 --schedule cosine --warmup 9", 0,
        "run/lr-range.jsonl and run/lr-range.svg have the losses; no model was kept");
    cr_expect(strstr(scripted_output, "the loss is lowest at a learning rate of ") ||
                  strstr(scripted_output, "the loss falls fastest at a learning rate of "),
              "%s", scripted_output);
    const int n = read_lines("run/lr-range.jsonl", line);
    cr_assert_eq(n, 31);
    for (int i = 0; i < n; i++) {
        sum = 0.9 * sum + 0.1 * number_in(line[i], "loss");
        expect_near(number_in(line[i], "step"), i + 1, "step");
        expect_near(number_in(line[i], "lr"), 1e-4 * pow(10, i / 10.0), "rate");
        expect_near(number_in(line[i], "smooth"), sum / (1 - pow(0.9, i + 1)), "smooth");
    }
}

/* The first update is that of a usual run with the first rate, and threads change nothing. */
Test(range, losses_are_those_of_training)
{
    char *line[200];
    scripted_run("--run-dir a --lr-range 0.1:0.2:20", 0, "no model was kept");
    scripted_run("--run-dir b --lr-range 0.1:0.2:20 --threads 3", 0, "no model was kept");
    scripted_run("--run-dir run --lr 0.1 --steps 2", 0, "Continue");
    cr_expect(same_bytes("a/lr-range.jsonl", "b/lr-range.jsonl"));
    cr_expect(same_bytes("a/lr-range.svg", "b/lr-range.svg"));
    read_lines("a/lr-range.jsonl", line);
    const double first = number_in(line[0], "loss"), second = number_in(line[1], "loss");
    read_lines("run/log.jsonl", line);
    expect_near(first, number_in(line[0], "loss"), "first loss");
    expect_near(second, number_in(line[1], "loss"), "second loss");
}

Test(range, stops_where_it_diverges)
{
    char *line[200];
    scripted_run("--run-dir a --optimizer sgd --clip 0 --lr-range 1:1e9:100", 0, "; at ");
    cr_expect(strstr(scripted_output, " it diverges\n"), "%s", scripted_output);
    int n = read_lines("a/lr-range.jsonl", line);
    cr_expect(n > 4 && n < 60, "%d", n);
    cr_expect(number_in(line[n - 1], "smooth") > 4 * number_in(line[n / 2], "smooth"));
    scripted_run("--run-dir b --optimizer sgd --clip 0 --lr-range 1e25:1e30:50", 0, " it diverges");
    n = read_lines("b/lr-range.jsonl", line);
    cr_expect(n >= 2 && strstr(line[n - 1], "\"loss\":null"), "%s", line[n - 1]);
    slurp("b/lr-range.svg", text, sizeof text);
    cr_expect(!strstr(text, "nan") && !strstr(text, "inf"), "%s", text);
}

static tp_tensor (*usual_loss)(tp_run *R);

/* The first loss is high by chance: the fall after it says nothing about its rate. */
static tp_tensor loss_with_a_high_first(tp_run *R)
{
    return tp_scale(R->T, usual_loss(R), R->update == 0 ? 3 : 1);
}

Test(range, the_first_losses_recommend_nothing)
{
    static const char said[] = "the loss falls fastest at a learning rate of ";
    usual_loss = scripted.loss;
    scripted.loss = loss_with_a_high_first;
    scripted_run("--run-dir run --optimizer sgd --clip 0 --lr-range 1e-4:10:60", 0, said);
    const char *at = strstr(scripted_output, said);
    cr_assert(at);
    const double rate = strtod(at + sizeof said - 1, NULL);
    cr_expect(rate > 0.1, "%g", rate);
}

/* The test alone says how many updates it makes; --time ends it earlier. */
Test(range, length)
{
    scripted.defaults = "--threads 1";
    scripted_run("--run-dir run --lr-range 1e-4:1e-2:5", 0, "no model was kept");
    scripted_run("--run-dir run --lr-range 1e-9:1e-8:1000000 --time 0.2 --log-every 1000000", 0,
                 "; --time ended the test after ");
}

static tp_tensor loss_without_a_number(tp_run *R)
{
    return tp_log(R->T, tp_scale(R->T, usual_loss(R), -1));
}

Test(range, a_model_without_a_loss)
{
    usual_loss = scripted.loss;
    scripted.loss = loss_without_a_number;
    scripted_run("--run-dir run --lr-range 1e-4:1", 1, "scripted: the loss is nan at update 1;");
    cr_expect(shell("test ! -e run/lr-range.svg"));
}

/* ---- files ---- */

Test(range, leaves_no_run)
{
    scripted_run("--run-dir run --lr-range 1e-4:1e-2:5", 0, "no model was kept");
    cr_expect(shell("[ \"$(ls run | tr '\\n' ' ')\" = 'lock lr-range.jsonl lr-range.svg ' ]"));
    scripted_run("--run-dir run --resume", 1, "cannot resume: run/last.safetensors");
    scripted_run("--run-dir run --lr-range 1e-4:1e-2:7", 0, "no model was kept");
    scripted_run("--run-dir run --steps 2", 0, "after update 2");
    cr_expect(shell("test -e run/lr-range.svg && grep -q '\"lr-range\": null' run/config.json"));
    cr_assert(shell("cp -r run before"));
    scripted_run("--run-dir run --lr-range 1e-4:1:3", 0, "no model was kept");
    cr_expect(shell("cd run && for f in *.safetensors config.json log.jsonl; do "
                    "cmp $f ../before/$f || exit 1; done"));
    scripted_run("--run-dir run --lr-range 1e-4:1 --resume", 1, "--resume continues a run: it can");
}

Test(range, picture)
{
    scripted.program = "<a & 'b'>";
    scripted_run("--run-dir run --lr-range 0.01:0.5", 0, "no model was kept");
    slurp("run/lr-range.svg", text, sizeof text);
    cr_expect(strncmp(text, "<svg ", 5) == 0 && strstr(text, "</svg>\n"));
    cr_expect(strstr(text, ">Loss by learning rate: a  b</text>"), "%s", text);
    cr_expect(strstr(text, ">0.1</text>") && strstr(text, ">learning rate</text>"), "%s", text);
    int opened = 0, closed = 0;
    for (const char *c = text; *c; c++) opened += *c == '<', closed += *c == '>';
    cr_expect_eq(opened, closed);
}

static void signal_in_the_sixth(tp_run *R)
{
    if (R->update == 5) raise(SIGTERM);
}

Test(range, a_signal_keeps_the_losses)
{
    char *line[200];
    scripted.next = signal_in_the_sixth;
    scripted_run("--run-dir run --lr-range 1e-4:1e-2", 143,
                 "; a signal ended the test after 6 of 100 updates");
    cr_expect_eq(read_lines("run/lr-range.jsonl", line), 6);
    cr_expect(shell("test -e run/lr-range.svg"));
}

/* ---- flags ---- */

Test(range, wrong_flags)
{
    static const char *const wrong[] = { "1e-4",       "1e-4:", ":1",       "0:1",       "1:1",
                                         "2:1",        "-1:1",  "1e-4:x",   "1e-4:1:",   "1e-4:1:1",
                                         "1e-4:1:3.5", "nan:1", "1e-4:inf", "1e-4:1:4x", "a:b:c" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char flags[100], why[100];
        snprintf(flags, sizeof flags, "--run-dir run --lr-range %s", wrong[i]);
        snprintf(why, sizeof why, "--lr-range: '%s' is not FROM:TO or FROM:TO:UPDATES", wrong[i]);
        scripted_run(flags, 1, why);
        cr_expect(shell("test ! -e run"), "%s", wrong[i]);
    }
    scripted_run("--run-dir run --lr-range 1:2 --plan", 1, "keep: leave out --plan");
    scripted_run("--run-dir run --lr-range 1:2 --overwrite", 1, "keep: leave out --overwrite");
    scripted_run("--run-dir run --lr-range 1:2 --keep-last 2 --tensorboard --report --profile", 1,
                 "keep: leave out --report, --tensorboard, --profile, --keep-last\n");
    cr_expect(shell("test ! -e run"));
}
