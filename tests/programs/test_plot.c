/* test_plot.c - the learning curves that scripts/plot.sh draws from logs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <tapegrad/image.h>

#include "support/folder.h"
#include "support/program.h"

/* Makes two runs: a language model and a classifier. */
static void begin(void)
{
    program_begin("enwik8");
    cr_assert(shell("mkdir lm cnn && "
                    "echo '{\"step\":10,\"bpc\":3.5}' >lm/log.jsonl && "
                    "echo '{\"step\":20,\"bpc\":2.5,\"valid_bpc\":2.25}' >>lm/log.jsonl && "
                    "echo '{\"step\":9,\"seconds\":4.5,\"test_loss\":1.5,\"top1\":40}' "
                    ">cnn/log.jsonl"));
}

TestSuite(plot, .init = begin, .fini = program_end, .timeout = 300);

/* Runs plot.sh with these arguments; its output goes to out and errors. */
static bool plot(const char *args)
{
    char command[2048];
    snprintf(command, sizeof command, "%s/scripts/plot.sh %s >out 2>err", TP_SOURCE_DIR, args);
    const bool done = shell(command);
    slurp("out", out, sizeof out);
    slurp("err", errors, sizeof errors);
    return done;
}

static bool gnuplot_here(void)
{
    if (shell("command -v gnuplot >/dev/null")) return true;
    cr_log_warn("skipped: gnuplot is missing");
    return false;
}

static void expect_texts(const char *name, const char *const texts[])
{
    static char svg[400000];
    slurp(name, svg, sizeof svg);
    for (int i = 0; texts[i]; i++) cr_expect(strstr(svg, texts[i]), "%s: %s", name, texts[i]);
    cr_expect(shell("python3 -c 'import glob, xml.dom.minidom as m\n"
                    "for name in glob.glob(\"*.svg\"): m.parse(name)'"));
}

Test(plot, png_and_svg)
{
    tp_image p = { 0 };
    if (!gnuplot_here()) return;
    cr_assert(plot("lm"), "%s", errors);
    cr_expect_str_eq(out, "lm/curve.png\n");
    cr_expect(tp_image_read(&p, "lm/curve.png", NULL) && p.width == 900 && p.height == 500, "%s",
              p.why);
    tp_image_free(&p);
    cr_assert(plot("-o a.svg lm/"), "%s", errors);
    expect_texts("a.svg", (const char *const[]){ ">Bits per character by updates: lm<",
                                                 ">lm, training<", ">lm, validation<", ">updates<",
                                                 ">bits per character<", NULL });
    cr_assert(shell("mkdir lra && echo '{\"step\":9,\"accuracy\":37.5}' >lra/log.jsonl"));
    cr_assert(plot("-o c.svg lra"), "%s", errors);
    expect_texts("c.svg", (const char *const[]){ ">Validation accuracy by updates: lra<",
                                                 ">accuracy of the validation, %<", NULL });
    cr_assert(plot("-o b.svg --y test_loss --x seconds first=cnn second=cnn"), "%s", errors);
    expect_texts("b.svg",
                 (const char *const[]){ ">Test loss by training time<", ">first<", ">second<",
                                        ">training time, s<", ">test loss, nats<", NULL });
}

/* Large numbers are shown in millions, whichever run has the most. */
Test(plot, millions)
{
    if (!gnuplot_here()) return;
    cr_assert(shell("mkdir few many && "
                    "echo '{\"step\":9,\"tokens\":400000,\"accuracy\":55}' >few/log.jsonl && "
                    "echo '{\"step\":9,\"tokens\":2500000,\"accuracy\":60}' >many/log.jsonl"));
    cr_assert(plot("-o few.svg --x tokens few"), "%s", errors);
    expect_texts("few.svg", (const char *const[]){ ">tokens seen<", NULL });
    cr_assert(plot("-o many.svg --x tokens few many"), "%s", errors);
    expect_texts("many.svg", (const char *const[]){ ">tokens seen, millions<", ">2.5<", NULL });
    cr_expect(shell("! grep -q 'e+0' many.svg"));
}

/* Run and file names are neither commands nor markup. */
Test(plot, names)
{
    if (!gnuplot_here()) return;
    cr_assert(plot("-o '|touch pwned;.svg' \"it's \\`touch pwned\\` \\\"q\\\" a_{b}^c 5%<&=cnn\""),
              "%s", errors);
    expect_texts(
        "|touch pwned;.svg",
        (const char *const[]){
            ">Validation top-1 by updates: it's `touch pwned` \"q\" a_{b}^c 5%&lt;&amp;<", NULL });
    cr_expect(shell("test ! -e pwned && cp -r cnn lr=3"));
    cr_assert(plot("-o equals.svg lr=3"), "%s", errors);
    expect_texts("equals.svg",
                 (const char *const[]){ ">Validation top-1 by updates: lr=3<", NULL });
}

Test(plot, refusals)
{
    static const struct {
        const char *args, *message;
    } cases[] = {
        { "", "no run was given" },
        { "lm --x miles", "--x must be steps, tokens, epochs or seconds, not 'miles'" },
        { "lm --y height", "--y must be " },
        { "gone", "gone/log.jsonl cannot be read" },
        { "lm --x tokens", "lm/log.jsonl has no report with bpc and tokens yet" },
        { "-o curve.gif lm", "curve.gif: end the name in .png or .svg" },
        { "-o no/curve.svg lm", "no/curve.svg cannot be written" },
        { "-o folder.png lm", "folder.png cannot be written" },
    };
    if (!gnuplot_here()) return;
    cr_assert(shell("mkdir folder.png"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect(!plot(cases[i].args), "%s", cases[i].args);
        cr_expect(strstr(errors, cases[i].message), "%s: %s", cases[i].args, errors);
    }
    cr_expect(shell("test -z \"$(find . -name '*.[ps]?g.*' -o -name '*.svg')\""));
}
