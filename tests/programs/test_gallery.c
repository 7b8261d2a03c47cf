/* test_gallery.c - the programs of examples/gallery: short runs, full runs of the quick ones, the
 * check of the result, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/image.h>

#include "gallery.h"
#include "support/folder.h"
#include "support/program.h"

TestSuite(gallery, .fini = program_end, .timeout = 600);

typedef struct row {
    const char *name, *result; /* the beginning of its last line */
    int64_t width, height;     /* of its picture; 0: none */
    bool quick;                /* all of its steps take a second or two */
} row;

static const row rows[] = {
    { "adder", "right answers: ", 0, 0, false },
    { "cartpole", "mean moves before the pole falls: ", 796, 140, true },
    { "ctc_strokes", "numbers read without an error: ", 788, 140, false },
    { "diffusion", "good images: ", 1092, 276, false },
    { "finetune_lora", "letters, after: ", 0, 0, false },
    { "gan", "points in clouds, times clouds found: ", 268, 136, false },
    { "graph", "graphs recognised: ", 0, 0, true },
    { "lstm_text", "bits above the entropy: ", 0, 0, false },
    { "unet_denoiser", "less noise: ", 548, 208, false },
    { "vae", "negative evidence lower bound: ", 820, 820, true },
};
enum { ROWS = sizeof rows / sizeof *rows };

static void expect_result(const row *k)
{
    const char *at = strstr(out, k->result);
    double x = NAN;
    cr_expect(at && sscanf(at + strlen(k->result), "%lf", &x) == 1 && isfinite(x), "%s:\n%s",
              k->name, out);
    cr_expect(!errors[0], "%s: %s", k->name, errors);
}

static void expect_picture(const row *k)
{
    char path[100], said[200];
    tp_image p = { 0 };
    snprintf(path, sizeof path, "%s.png", k->name);
    snprintf(said, sizeof said, "picture: %s\n", path);
    cr_expect(strstr(out, said), "%s:\n%s", k->name, out);
    cr_expect(tp_image_read(&p, path, NULL), "%s: %s", k->name, p.why);
    cr_expect(p.width == k->width && p.height == k->height, "%s: %lld x %lld", k->name,
              (long long)p.width, (long long)p.height);
    tp_image_free(&p);
}

/* Few steps print progress and a result, which is not checked. Output and picture depend on the
 * seed, not on the number of threads. bf16 runs, too. Nothing else is written, and a file that was
 * there stays. */
static void short_run(const row *k)
{
    static char first[sizeof out];
    program_begin(k->name);
    cr_assert(shell("echo mine >finetune_lora.safetensors"));
    succeed("--steps 2 --threads 1");
    cr_expect(strstr(out, "     1  ") && strstr(out, "     2  "), "%s:\n%s", k->name, out);
    expect_result(k);
    if (k->width > 0) expect_picture(k);
    memcpy(first, out, sizeof first);
    cr_expect(k->width == 0 || shell("mv *.png first"), "%s", k->name);
    succeed("--steps 2 --threads 3");
    cr_expect(strcmp(first, out) == 0, "%s: threads change\n%s\n%s", k->name, first, out);
    cr_expect(k->width == 0 || shell("cmp *.png first && rm *.png first"), "%s", k->name);
    succeed("--steps 1 --seed 2 --dtype bf16");
    cr_expect(strcmp(first, out) != 0, "%s", k->name);
    expect_result(k);
    cr_expect(shell("grep -q mine finetune_lora.safetensors"), "%s", k->name);
    cr_expect(
        shell("rm -f out err *.png finetune_lora.safetensors && rmdir \"$PWD\" && mkdir \"$PWD\""),
        "%s", k->name);
    program_end();
}

Test(gallery, short_runs)
{
    for (int i = 0; i < ROWS; i++) short_run(&rows[i]);
}

Test(gallery, full_runs)
{
    for (int i = 0; i < ROWS; i++) {
        if (!rows[i].quick) continue;
        program_begin(rows[i].name);
        succeed("--threads 2");
        expect_result(&rows[i]);
        program_end();
    }
}

/* ---- the check of the result ---- */

static double result_of_run;
static double pretend(const gallery *g)
{
    tp_tape *T = tp_tape_new(g->D, NULL);
    if (result_of_run > 5) tp_item(T, TP_NONE); /* an error that the program does not look at */
    tp_tape_free(T);
    return result_of_run;
}

static int pretend_main(double result, bool higher, const char *steps)
{
    const gallery_program p = { .name = "pretend",
                                .summary = "s",
                                .about = "a",
                                .steps = 7,
                                .result = "score",
                                .unit = " points",
                                .goal = 3.0,
                                .higher = higher,
                                .run = pretend };
    char *argv[] = { "pretend", "--steps", (char *)steps, NULL };
    result_of_run = result;
    return gallery_main(&p, 3, argv);
}

Test(gallery, result)
{
    static const struct {
        double result;
        bool higher;
        const char *steps;
        int status;
        const char *message;
    } cases[] = {
        { 3.0, true, "7", 0, "" },
        { 2.5, true, "6", 0, "" }, /* fewer steps than usual */
        { 2.5, true, "8", 1,
          "pretend: score: 2.5 points after 8 steps, but at least 3 points was expected\n" },
        { 3.5, false, "7", 1,
          "pretend: score: 3.5 points after 7 steps, but at most 3 points was expected\n" },
        { NAN, false, "7", 1,
          "pretend: score: nan points after 7 steps, but at most 3 points was expected\n" },
        { 9.0, true, "7", 1, "pretend: tp_item: is missing (TP_NONE)" },
    };
    program_begin("pretend");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(freopen("err", "w", stderr));
        const int status = pretend_main(cases[i].result, cases[i].higher, cases[i].steps);
        fflush(stderr);
        slurp("err", errors, sizeof errors);
        const size_t n = strlen(cases[i].message);
        cr_expect(status == cases[i].status && strncmp(errors, cases[i].message, n) == 0 &&
                      (n > 0) == (errors[0] != '\0'),
                  "case %zu: status %d: %s", i, status, errors);
    }
}

/* ---- flags ---- */

Test(gallery, refusals)
{
    for (int i = 0; i < ROWS; i++) {
        program_begin(rows[i].name);
        expect_refusal("--steps 0", 2, "--steps");
        expect_refusal("--colour red", 2, "--colour");
        expect_refusal("--dtype f64", 2, "--dtype f64 is not possible: the data are f32");
        expect_refusal("--device abacus", 1, "abacus");
        if (rows[i].width > 0)
            expect_refusal("--steps 1 --picture none/a.png", 1, "none/a.png");
        else
            expect_refusal("--picture a.png", 2, "--picture");
        program_end();
    }
}

Test(gallery, manuals)
{
    for (int i = 0; i < ROWS; i++) {
        program_begin(rows[i].name);
        succeed("--help");
        cr_expect(strstr(out, "DESCRIPTION") && strstr(out, "--steps N") && strstr(out, "--seed N"),
                  "%s", rows[i].name);
        cr_expect(!strstr(out, "--picture") == (rows[i].width == 0), "%s", rows[i].name);
        program_end();
    }
}
