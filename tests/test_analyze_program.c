/* test_analyze_program.c - the files that `imagenet analyze` writes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/file.h>
#include <tapegrad/image.h>

#include "analysis/analyze.h"
#include "support_program.h"

/* The number of lines after a file's first line, which must be the column names. */
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

static void expect_image(const char *name, int64_t width, int64_t height)
{
    tp_image p = { 0 };
    cr_expect(tp_image_read(&p, name, &(tp_image_opts){ .strict = true }), "%s: %s", name, p.why);
    cr_expect(p.width == width && p.height == height, "%s: %d x %d", name, (int)p.width,
              (int)p.height);
    tp_image_free(&p);
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

static int64_t grid(int64_t maps)
{
    return maps * (HEAT_TILE + HEAT_GAP) + HEAT_GAP;
}

Test(analyze_program, files)
{
    const bool gnuplot = shell("command -v gnuplot >/dev/null");
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
    expect_image("run/analysis/span.png", grid(7), grid(7));
    expect_image("run/analysis/bias.png", grid(4), grid(7));
    succeed("analyze --run-dir other --what lsla --block 2 --threads 1 --out lsla");
    cr_expect_eq(lines_of("lsla/lsla.tsv",
                          "layer\tblock\twindow\thead\tquery\tkey\tkey_row\tkey_col\tscale\t"
                          "inner_bias\tscore\tlogit\tattn_before\touter_bias\tattn_after"),
                 5 * 16);
    expect_image("lsla/lsla.png", grid(5), grid(5));
    succeed("analyze --what resolution --preset tiny,convnet --sizes 8,16 --seconds 0.01 "
            "--batch 2 --threads 1 --out sizes");
    cr_expect_eq(lines_of("sizes/resolution.tsv", "preset\tsize\tbatch\tforward_ms\tforward_mb\t"
                                                  "step_ms\tstep_mb"),
                 4);
    succeed("analyze --fresh --preset cvt-ls-small --what norms --images 4 --threads 1 --out new");
    if (!gnuplot) return;
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
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++)
        expect_image(drawn[i], CURVES_WIDTH, CURVES_HEIGHT);
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
        { "--what resolution --preset none --out o", 1, "--preset: 'none' is not one of tiny," },
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
