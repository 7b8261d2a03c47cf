/* test_image_table.c - `imagenet table`: the rows that a paper's table becomes, and the command as
 * a user runs it, on drawn shapes. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/imagenet.h"
#include "table/table.h"

TestSuite(image_table, .init = imagenet_begin, .fini = program_end, .timeout = 600);

/* ---- rows of papers ---- */

static const image_row *row_of(const image_table *t, const char *name)
{
    int i = 0;
    while (i < t->rows && strcmp(t->row[i].name, name) != 0) i++;
    cr_assert(i < t->rows, "%s is no row", name);
    return &t->of[i];
}

Test(image_table, rows_of_papers)
{
    static const struct {
        const char *text, *name;
        int rows, left_out;
        double paper; /* of the row of that name; NaN: none */
    } cases[] = {
        { "ViL Table 13", "vil-tiny-1-2-8-1-ape", 94, 0, 75.98 },
        { "ViL Table 13", "vil-small-flat-full --set avg_pool=1", 94, 0, 80.75 },
        { "ViL Table 13", "deit-t", 94, 0, NAN },
        { "ViL Table 13 Vision Longformer", "vil-small-1-2-8-1-ape", 8, 0, 81.99 },
        { "ViL Table 4", "vil-base-rpb", 23, 0, 83.7 },
        { "ViL Table 2 E-ViT", "vil-small-flat-full", 2, 0, 80.4 },
        { "ViT-LSLA Table 1", "mpvit-s-ip102", 5, 0, 70.4 },
        { "ViT-LSLA Table 5 IP102", "vit_lsla-ip102", 6, 1, 71.6 },
        { "vit-lsla table 3", "vit-lsla", 5, 0, 87.2 },
        { "ViT-LSLA Table 4 ip102", "vit_lsla-qxx_np", 4, 1, 69.8 },
        { "ViT-LSLA Table 5 Mini-ImageNet", "vit_lsla-inner", 6, 0, 86.2 },
        { "ViL Table 11", "vil-tiny-flat-full", 10, 0, 73.21 },
        { "Transformer-LS Table 5 cvt-ls-13", "cvt-ls-13", 1, 1, 81.9 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[600] = "";
        int left_out = -1;
        image_table *t = calloc(1, sizeof *t);
        cr_assert(table_of_paper(t, cases[i].text, &left_out, why, sizeof why), "%s: %s",
                  cases[i].text, why);
        const double paper = row_of(t, cases[i].name)->paper;
        cr_expect_eq(t->rows, cases[i].rows, "%s: %d rows", cases[i].text, t->rows);
        cr_expect_eq(left_out, cases[i].left_out, "%s: %d left out", cases[i].text, left_out);
        cr_expect(isnan(cases[i].paper) ? isnan(paper) : paper == cases[i].paper, "%s: %g",
                  cases[i].text, paper);
        free(t);
    }
}

/* Other programs' rows, and those that begin from another training, are left out. */
Test(image_table, rows_left_out)
{
    char why[600] = "";
    int left_out = 0;
    image_table *t = calloc(1, sizeof *t);
    cr_assert(table_of_paper(t, "ViL Table 10", &left_out, why, sizeof why), "%s", why);
    cr_expect_eq(t->rows, 6);
    cr_expect_eq(left_out, 10, "%d", left_out);
    cr_expect_str_eq(row_of(t, "vil-base-rpb --recipe vil-21k")->flags, "--recipe vil-21k");
    cr_expect(isnan(row_of(t, "vil-tiny-rpb")->paper), "300 epochs are no accuracy");
    free(t);
}

/* ---- the command ---- */

#define TABLE                                                                                      \
    "table --preset tiny,convnet --shapes 80 --threads 1 --run-dir all "                           \
    "--flags='--size 16 --batch 8' "

Test(image_table, is_resumed)
{
    succeed(TABLE "--epochs 2 --seeds 2 --format json");
    int lines = 0;
    for (const char *s = out; (s = strstr(s, "\"seed\": ")); s++) lines++;
    cr_expect_eq(lines, 4, "%s", out);
    cr_expect_eq(number_in(out, "updates"), 20);
    cr_expect_eq(number_in(out, "top1"), number_in(out, "best_valid_top1"),
                 "the best weights, on the images of the validations: %s", out);
    slurp("all/tiny-1/test.json", out, sizeof out);
    cr_expect_eq(number_in(out, "images"), 20);
    cr_assert(shell("cp all/tiny-2/log.jsonl before; rm all/convnet-2/test.json"));
    succeed(TABLE "--epochs 2 --seeds 3");
    cr_expect(strstr(out, "model ") && strstr(out, "\ntiny ") && strstr(out, "\nconvnet "), "%s",
              out);
    cr_expect(same_bytes("before", "all/tiny-2/log.jsonl"), "not trained again");
    cr_expect(shell("test -s all/convnet-2/test.json -a -s all/tiny-3/test.json"), "tested again");
    if (shell("command -v gnuplot >/dev/null"))
        cr_expect(shell("test -s all/top1.png"), "%s", errors);
    expect_refusal(TABLE "--epochs 3", 1, "all holds a table of other settings");
    expect_refusal(TABLE "--epochs 2 --split test", 1, "all holds a table of other settings");
    cr_assert(shell("echo '{' > all/table.json"));
    expect_refusal(TABLE "--epochs 2", 1, "all/table.json: line ");
}

/* The mean and the deviation are those of the lines; a single seed has no deviation. */
Test(image_table, means)
{
    double top1[3] = { 0 }, mean, deviation, shown[2];
    succeed(TABLE "--epochs 1 --seeds 3 --format json");
    const char *at = out;
    for (int i = 0; i < 3; i++, at++) {
        at = strstr(at, "\"top1\"");
        cr_assert(at, "%s", out);
        top1[i] = strtod(at + 8, NULL);
    }
    mean = (top1[0] + top1[1] + top1[2]) / 3;
    deviation =
        sqrt((pow(top1[0] - mean, 2) + pow(top1[1] - mean, 2) + pow(top1[2] - mean, 2)) / 2);
    succeed(TABLE "--epochs 1 --seeds 3 --format markdown");
    at = strstr(out, "| `tiny` | ");
    cr_assert(at && sscanf(at, "| `tiny` | %lf ± %lf |", &shown[0], &shown[1]) == 2, "%s", out);
    cr_expect_float_eq(shown[0], mean, 0.0051);
    cr_expect_float_eq(shown[1], deviation, 0.0051);
    succeed(TABLE "--epochs 1 --seeds 1 --format markdown");
    cr_expect(strstr(out, "| `tiny` | ") && !strstr(out, "±"), "%s", out);
}

/* A row of a paper brings its flags along and stands beside the printed figure. */
Test(image_table, of_a_paper)
{
    succeed("table --paper 'ViL Table 2 E-ViT' --shapes 10 --steps 1 --threads 1 --run-dir all "
            "--flags='--size 32 --batch 2 --recipe small'");
    cr_expect(strstr(out, "\nvil-small-flat-full ") && strstr(out, " 80.70 "), "%s", out);
    slurp("all/vil-small-flat-full+--set+avg_pool=1-1/config.json", out, sizeof out);
    cr_expect(strstr(out, "\"set\": \"avg_pool=1\""), "%s", out);
}

/* A signal reaches the training. */
Test(image_table, is_stopped)
{
    int status;
    cr_assert(shell("mkdir -p all/tiny-1"));
    const pid_t child = start("table --preset tiny --shapes 80 --threads 1 --run-dir all "
                              "--epochs 100000");
    await_reports("all/tiny-1/log.jsonl", 2);
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    slurp("err", errors, sizeof errors);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM, "%d\n%s", status, errors);
    cr_expect(strstr(errors, "stopped by SIGTERM after update "), "%s", errors);
    cr_expect(shell("test ! -e all/tiny-1/test.json"));
    cr_expect(update_in("all/tiny-1/last.safetensors") >= 2);
}

Test(image_table, refusals)
{
    static const struct {
        const char *args;
        int status;
        const char *message;
    } bad[] = {
        { "table", 2, "give the models with --preset LIST, or a paper's with --paper TEXT" },
        { "table --preset tiny --paper ViL", 2, "--preset and --paper both name the models" },
        { "table --preset tiny,tinny", 1, "did you mean 'tiny'?" },
        { "table --preset tiny,tiny", 1, "--preset: 'tiny' is there twice" },
        { "table --preset tiny,,convnet", 1, "--preset: 'tiny,,convnet' is not a list like" },
        { "table --preset ,", 1, "--preset: ',' is not a list like" },
        { "table --preset ''", 1, "--preset: the list is empty" },
        { "table --paper 'ViL Table 22'", 1,
          "--paper: no row of a paper has all words of 'ViL "
          "Table 22'; did you mean 'ViL Table 2'?" },
        { "table --paper 'ViL Figure 9'", 1, "--paper: no row of 'ViL Figure 9' is a training" },
        { "table --paper 'ViT-LSLA Table 4'", 1,
          "--paper means 'vit_lsla-qxx_np' with ip102 and with mini-imagenet" },
        { "table --paper 'ViL imagenet'", 1, "a table has at most 128 rows: name fewer" },
        { "table --preset tiny --flags='--batch 8 --seed=4'", 2,
          "--flags: --seed is the table's own: leave it out" },
        { "table --preset tiny --seeds 101", 2, "--seeds" },
        { "table --preset tiny --epoch 3", 2, "did you mean --epochs?" },
        { "table --preset tiny --data missing", 1, "failed with status 1, see above" },
        { "table --preset tiny --flags=--bach", 1, "failed with status 2, see above" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i].args, bad[i].status, bad[i].message);
}
