/* test_analyze_program.c - the files that `imagenet analyze` writes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/file.h>
#include <tapegrad/image.h>

#include "analysis/analyze.h"
#include "support/program.h"

/* Counts the lines after a file's first line, which must be the column names. */
static int lines_of(const char *name, const char *columns)
{
    char line[512] = "";
    int n = 0;
    FILE *f = fopen(name, "r");
    cr_assert(f && fgets(line, sizeof line, f), "%s", name);
    line[strcspn(line, "\n")] = '\0';
    cr_expect_str_eq(line, columns, "%s", name);
    while (fgets(line, sizeof line, f)) n++;
    fclose(f);
    return n;
}

/* A complete PNG at least this big. */
static void expect_image(const char *name, int64_t width, int64_t height)
{
    tp_image p = { 0 };
    cr_expect(tp_image_read(&p, name, &(tp_image_opts){ .strict = true }), "%s: %s", name, p.why);
    cr_expect(p.width >= width && p.height >= height, "%s: %d x %d", name, (int)p.width,
              (int)p.height);
    tp_image_free(&p);
}

/* A well-formed SVG with these texts. */
static void expect_texts(const char *name, const char *const texts[])
{
    static char svg[2000000];
    char command[300];
    slurp(name, svg, sizeof svg);
    for (int i = 0; texts[i]; i++) cr_expect(strstr(svg, texts[i]), "%s: %s", name, texts[i]);
    snprintf(command, sizeof command,
             "python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' %s", name);
    cr_expect(shell(command), "%s", name);
}

static bool gnuplot_here(void)
{
    if (shell("command -v gnuplot >/dev/null")) return true;
    cr_log_warn("skipped: gnuplot is missing");
    return false;
}

static void begin(void)
{
    program_begin("imagenet");
}

TestSuite(analyze_program, .init = begin, .fini = program_end, .timeout = 300);

#define SMALL "--threads 1 --shapes 20 --size 32 --batch 10 --epochs 1 "

/* The biases of block 0 come from the checkpoint's table. With windows of w and half = w/2 they are
 * in row (down + half + w - 1)(2 half + w) + across + half + w - 1, by the specification. */
static void expect_biases(const char *name, const char *checkpoint)
{
    enum { REACH = 5, STRIDE = 8, ROWS = 91 }; /* w = 4 */
    char line[256], kind[16];
    int n = 0, block, head, down, across;
    double value;
    float table[ROWS];
    tp_file *F = tp_file_open(checkpoint);
    const tp_file_tensor *t = tp_file_find(F, "layer1.1.attn.local_relative_position_bias_table");
    cr_assert(t && t->shape.dim[0] == ROWS && tp_file_read(F, t, TP_F32, table), "%s",
              tp_file_why(F));
    tp_file_close(F);
    FILE *f = fopen(name, "r");
    cr_assert(f, "%s", name);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%d %15s %d %d %d %lf", &block, kind, &head, &down, &across, &value) < 6 ||
            block > 0)
            continue;
        const int row = (down + REACH) * STRIDE + across + REACH;
        cr_expect(fabs(value - (double)table[row]) < 1e-8 * fabs(value), "%s", line);
        n++;
    }
    fclose(f);
    cr_expect_eq(n, (2 * REACH + 1) * (2 * REACH + 1), "%d", n);
}

Test(analyze_program, files)
{
    if (!gnuplot_here()) return;
    succeed("train " SMALL "--preset vil-ls-small --run-dir run");
    succeed("train " SMALL "--preset lsla-small --run-dir other");
    succeed("analyze other --run-dir run --images 5 --batch 2 --threads 1");
    /* maps of 8, 4, 4, 2 ... tokens per side with 1, 2 and 4 heads, and head -1; one more line for
     * the tokens in front */
    const int spans = 2 * (64 + 1) + 2 * 3 * (16 + 1) + 4 * 5 * (4 + 1);
    cr_expect_eq(lines_of("run/analysis/similarity.tsv", "block\ttokens\tcosine"), 7);
    cr_expect_eq(lines_of("run/analysis/norms.tsv",
                          "block\tdual_ln\tkeys\tprojected_keys\tkey_ratio\tvalues\t"
                          "projected_values\tvalue_ratio"),
                 6);
    cr_expect_eq(lines_of("run/analysis/span.tsv", "block\thead\trow\tcol\tdirect\tthrough\ttotal"),
                 spans);
    lines_of("run/analysis/bias.tsv", "block\ttable\thead\tdown\tacross\tbias");
    expect_biases("run/analysis/bias.tsv", "run/best.safetensors");
    expect_image("run/analysis/span.png", 8 * 120, 7 * 120);
    expect_image("run/analysis/bias.png", 5 * 150, 7 * 150);
    succeed("analyze --run-dir other --what lsla --block 2 --threads 1 --out lsla");
    cr_expect_eq(lines_of("lsla/lsla.tsv",
                          "layer\tblock\twindow\thead\tquery\tkey\tkey_row\tkey_col\tscale\t"
                          "inner_bias\tscore\tlogit\tattn_before\touter_bias\tattn_after"),
                 5 * 16);
    expect_image("lsla/lsla.png", 6 * 120, 5 * 120);
    succeed("analyze --what resolution --preset tiny,convnet --sizes 8,16 --seconds 0.01 "
            "--batch 2 --threads 1 --out sizes");
    cr_expect_eq(lines_of("sizes/resolution.tsv", "preset\tsize\tbatch\tforward_ms\tforward_mb\t"
                                                  "step_ms\tstep_mb"),
                 4);
    succeed("analyze --fresh --preset cvt-ls-small --what norms --images 4 --threads 1 --out new");
    static const char *const drawn[] = {
        "run/analysis/similarity.png",
        "run/analysis/norms.png",
        "lsla/lsla-bias.png",
        "lsla/lsla-weights.png",
        "new/norms.png",
        "sizes/resolution-forward.png",
        "sizes/resolution-step.png",
        "sizes/resolution-memory.png",
    };
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) expect_image(drawn[i], 640, 400);
}

/* Pictures are labelled: title, model, images, panels, axes and units. */
Test(analyze_program, texts_of_pictures)
{
    if (!gnuplot_here()) return;
    succeed("analyze --fresh --preset vil-ls-small --size 32 --images 4 --threads 1 --image 2 "
            "--format svg --out vil");
    succeed("analyze --fresh --preset lsla-small --size 32 --images 4 --threads 1 --what lsla "
            "--format svg --out lsla");
    succeed("analyze --what resolution --preset tiny,convnet --sizes 8,16 --seconds 0.01 "
            "--batch 2 --threads 1 --format svg --out sizes");
    expect_texts("vil/span.svg",
                 (const char *const[]){ ">What a token attends to<",
                                        ">vil-ls-small, initial weights, image 2 of drawn shapes "
                                        "(valid)<",
                                        ">query, 8 \u00d7 8<", ">block 6<", ">window: ", ">long: ",
                                        ">both: ", ">head 3: ", ">weight, %<", NULL });
    expect_texts("vil/bias.svg",
                 (const char *const[]){ ">Relative position biases<", ">block 0, local<",
                                        ">head 3<", ">key and reach<", ">rows<", ">columns<",
                                        ">added to logits<", NULL });
    expect_texts("vil/norms.svg", (const char *const[]){
                                      ">Norms of keys and values<", ">values with DualLN<",
                                      ">block<", ">norm in window / norm of projections<", NULL });
    expect_texts("vil/similarity.svg",
                 (const char *const[]){ ">4 images of drawn shapes (valid)<",
                                        ">vil-ls-small, initial weights<",
                                        ">mean cosine of two tokens<", NULL });
    expect_texts("lsla/lsla.svg",
                 (const char *const[]){ ">Light self-limited attention in block 0, window 0<",
                                        ">query in it<", ">dynamic scale<", ">outer bias<",
                                        ">mean of heads<", ">head 0<", ">weight<", NULL });
    expect_texts("lsla/lsla-weights.svg",
                 (const char *const[]){ ">Block 0, window 0, query 7.<", ">after it<", NULL });
    expect_texts("sizes/resolution-memory.svg",
                 (const char *const[]){ ">side of the image, pixels<", ">memory, MB<", ">convnet<",
                                        ">Untrained models on noise, cpu, batch of 2<", NULL });
}

/* Weight of a key of the query, mean over heads, in a table of the analysis. */
static double weight_in(const char *name, const char *row, int column)
{
    slurp(name, out, sizeof out);
    const char *at = strstr(out, row);
    cr_assert(at, "%s: %s", row, out);
    for (int i = 0; i < column; i++) at = strchr(at, '\t') + 1;
    return strtod(at, NULL);
}

/* Figure 4b of Hechen et al.: a model with and one without the outer bias in one picture, each with
 * the weights that its own table has. */
Test(analyze_program, weights_of_two_models)
{
    succeed("train " SMALL "--preset lsla-small --run-dir lsla");
    succeed("train " SMALL "--preset lsla-inner-small --run-dir inner");
    succeed("analyze inner --run-dir lsla --what lsla --query 5 --threads 1 --out both");
    cr_expect(strstr(out, "both/lsla.tsv\n") && strstr(out, "both/lsla-runs.tsv\n"), "%s", out);
    succeed("analyze --run-dir inner --what lsla --query 5 --threads 1 --out one");
    cr_expect_eq(
        lines_of("both/lsla-runs.tsv", "model\thead\tquery\tkey\tkey_row\tkey_col\tweight"),
        2 * 3 * 16);
    const double own[] = { weight_in("both/lsla.tsv", "\n0\t0\t0\t-1\t5\t9\t", 14),
                           weight_in("one/lsla.tsv", "\n0\t0\t0\t-1\t5\t9\t", 14) };
    cr_expect_eq(weight_in("both/lsla-runs.tsv", "\nlsla, update 2\t-1\t5\t9\t", 6), own[0]);
    cr_expect_eq(weight_in("both/lsla-runs.tsv", "\ninner, update 2\t-1\t5\t9\t", 6), own[1]);
    cr_expect_neq(own[0], own[1]);
    succeed("train " SMALL "--preset swin-mini --run-dir swin");
    expect_refusal("analyze swin --run-dir lsla --what lsla --out both", 1,
                   "lsla: the model is not a ViT-LSLA: swin, update 2");
    succeed("train " SMALL "--preset lsla-full-small --run-dir full");
    expect_refusal(
        "analyze full --run-dir lsla --what lsla --out both", 1,
        "lsla: the windows of full, update 2 have 64 tokens, those of lsla, update 2 16");
    expect_refusal("analyze gone --run-dir lsla --what lsla --out both", 1, "gone");
    expect_refusal("analyze a b c d e f g h --run-dir lsla --what lsla --out both", 1,
                   "at most 7 further runs can be drawn");
    if (!gnuplot_here()) return;
    expect_image("both/lsla-runs.png", 640, 400);
    succeed("analyze inner --run-dir lsla --what lsla --format svg --threads 1 --out svg");
    expect_texts("svg/lsla-runs.svg",
                 (const char *const[]){ ">lsla, update 2<", ">inner, update 2<",
                                        ">weight, mean over heads<",
                                        ">image 0 of drawn shapes (valid)<", NULL });
}

/* Memory alone is counted without computing, for sizes that no machine could take. */
Test(analyze_program, memory_without_steps)
{
    succeed("analyze --what resolution --preset cvt-ls-small,vil-small --sizes 64,4096 --dry "
            "--batch 64 --out dry");
    slurp("dry/resolution.tsv", out, sizeof out);
    double step[2][2];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            char row[64];
            snprintf(row, sizeof row, "%s\t%d\t64\t", i ? "vil-small" : "cvt-ls-small",
                     k ? 4096 : 64);
            const char *at = strstr(out, row);
            cr_assert(at && sscanf(at + strlen(row), "nan %*g nan %lg", &step[i][k]) == 1, "%s%s",
                      row, out);
            cr_expect(k == 0 || step[i][1] > 1000 * step[i][0], "%g", step[i][1]);
        }
    succeed("analyze --what resolution --preset cvt-ls-small --sizes 64 --batch 64 --threads 1 "
            "--seconds 0.01 --out real");
    slurp("real/resolution.tsv", out, sizeof out);
    const char *last = strrchr(out, '\t');
    cr_assert(last);
    cr_expect_float_eq(strtod(last, NULL) / step[0][0], 1, 0.05, "%s", out);
    if (!gnuplot_here()) return;
    expect_image("dry/resolution-memory.png", 640, 400);
    cr_expect(shell("test ! -e dry/resolution-step.png -a ! -e dry/resolution-forward.png"));
}

/* The tables are still written. */
Test(analyze_program, without_gnuplot)
{
    const int status = run_under("PATH=", "analyze --fresh --preset cvt-ls-small --size 32 "
                                          "--images 2 --threads 1 --out o");
    cr_expect_eq(status, 1);
    cr_expect(strstr(errors, "o/norms.png was not drawn: gnuplot is missing: apt-get install "
                             "gnuplot-nox\n") &&
                  strstr(errors, "3 pictures were not drawn; the tables are complete"),
              "%s", errors);
    cr_expect(shell("ls o/*.tsv | wc -l | grep -q 3 && ! ls o/*.png 2>/dev/null"));
}

Test(analyze_program, refusals)
{
    static const struct {
        const char *args;
        int status;
        const char *message;
    } cases[] = {
        { "--run-dir gone", 1, "gone: there is no such run" },
        { "--what resolution --sizes 64,x --out o", 1,
          "--sizes: 'x' is not a size from 8 to 4096" },
        { "--what resolution --preset none --out o", 1,
          "--preset: 'none' is not one of coat-mini," },
        { "--what resolution --preset lsla-small --sizes 40 --out o", 1,
          "lsla-small at 40 pixels: " },
        { "--what bias --dry --fresh --preset vil-small", 1,
          "--dry: only --what resolution can be drawn without computing" },
        { "--what nothing", 2, "--what: " },
        { "--fresh --out o", 1, "--fresh: name the model with --preset" },
        { "--fresh --preset tiny --what lsla --out o", 1, "lsla: the model is not a ViT-LSLA" },
        { "--fresh --preset tiny --what span --out o", 1,
          "span: no block of the model has attention over windows" },
        { "--fresh --preset lsla-small --what lsla --block 9 --out o", 1,
          "lsla: there is no block 9" },
        { "--fresh --preset tiny --what bias --block 1 --out o", 1,
          "bias: block 1 of the model has no relative position bias tables" },
        { "--fresh --preset lsla-small --what lsla --window 16 --out o", 1,
          "lsla: block 0 has 16 windows of 16 tokens" },
        { "--fresh --preset tiny --image 70 --out o", 1, "--image: there are 64 images" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char args[256];
        snprintf(args, sizeof args, "analyze %s", cases[i].args);
        expect_refusal(args, cases[i].status, cases[i].message);
    }
}
