/* test_confusion.c - the picture of a classifier's confusions
 * (examples/imagenet/pictures/confusion.h). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pictures/confusion.h"
#include "support/program.h"

static void begin(void)
{
    program_begin("imagenet");
}

TestSuite(confusion, .init = begin, .fini = program_end, .timeout = 300);

static bool gnuplot_here(void)
{
    if (shell("command -v gnuplot >/dev/null")) return true;
    cr_log_warn("skipped: gnuplot is missing");
    return false;
}

/* Draws a matrix of n classes called c0, c1 ... and returns the SVG. */
static const char *draw(int n, int64_t *counts)
{
    static char svg[2000000];
    static char text[10000];
    char why[2000] = "", *at = text;
    class_names names = { .text = text };
    score v = { .count = 200, .top1 = 150, .top5 = 190, .confusion = counts };
    for (int i = 0; i < n; i++) at += sprintf(at, "c%d\n", i);
    cr_assert(confusion_draw(&v, n, &names, "a model, some images", "c.svg", why, sizeof why), "%s",
              why);
    slurp("c.svg", svg, sizeof svg);
    cr_expect(strstr(svg, ">a model, some images: 200 images, top-1 75.0 %, top-5 95.0 %<"));
    return svg;
}

/* Expects the texts, each after the previous one. */
static void expect_in_order(const char *svg, const char *const texts[])
{
    for (int i = 0; texts[i]; i++) {
        svg = strstr(svg, texts[i]);
        cr_assert(svg, "%s", texts[i]);
        svg++;
    }
}

Test(confusion, matrix)
{
    int64_t counts[9] = { 40, 7, 0, 0, 123, 0, 2, 0, 28 };
    if (!gnuplot_here()) return;
    const char *svg = draw(3, counts);
    static const char *const texts[] = {
        ">Confusion matrix<", ">c0<", ">c2<", ">40<", ">7<", ">123<", ">28<", ">of the images"
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cr_expect(strstr(svg, texts[i]), "%s", texts[i]);
    cr_expect(strstr(svg, ">Numbers: images. "));
}

/* 30 classes still form a matrix; counts that do not fit become percentages. */
Test(confusion, large_counts)
{
    int64_t counts[900] = { [0] = 3000, [1] = 1000, [31] = 7 };
    if (!gnuplot_here()) return;
    const char *svg = draw(30, counts);
    static const char *const texts[] = { ">Numbers: percent of ", ">75<", ">25<", ">100<",
                                         ">c29<" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cr_expect(strstr(svg, texts[i]), "%s", texts[i]);
    cr_expect(!strstr(svg, ">3000<"));
}

/* The most frequent mistakes come first, ties by class; right answers do not count. */
Test(confusion, pairs)
{
    int64_t *counts = calloc(40 * 40, sizeof *counts);
    if (!gnuplot_here() || !counts) return;
    for (int i = 0; i < 40; i++) counts[i * 41] = 50;
    for (int i = 0; i < 30; i++) counts[i * 40 + 39] = 2;
    counts[5 * 40 + 7] = 13;
    counts[6 * 40 + 1] = 5;
    const char *svg = draw(40, counts);
    expect_in_order(svg,
                    (const char *const[]){ ">c5 \u2192 c7<", ">c6 \u2192 c1<", ">c0 \u2192 c39<",
                                           ">c1 \u2192 c39<", ">c22 \u2192 c39<", NULL });
    cr_expect(strstr(svg, ">13 of 65, 20 %<") && strstr(svg, ">5 of 57, 9 %<"));
    cr_expect(!strstr(svg, ">c23 \u2192 c39<"), "more than %d pairs", CONFUSION_PAIRS);
    free(counts);
}

Test(confusion, no_mistakes)
{
    int64_t *counts = calloc(31 * 31, sizeof *counts);
    if (!gnuplot_here() || !counts) return;
    counts[0] = 9;
    cr_expect(strstr(draw(31, counts), ">No image was taken for another class.<"));
    free(counts);
}
