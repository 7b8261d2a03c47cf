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
