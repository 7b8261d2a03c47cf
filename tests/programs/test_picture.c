/* test_picture.c - the pictures that programs draw with gnuplot
 * (examples/shared/pictures/picture.h). */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pictures/picture.h"
#include "support/folder.h"
#include "support/program.h"

/* Only a test folder; no program runs. */
static void begin(void)
{
    program_begin("imagenet");
}

TestSuite(picture, .init = begin, .fini = program_end, .timeout = 300);

static bool gnuplot_here(void)
{
    if (shell("command -v gnuplot >/dev/null")) return true;
    cr_log_warn("skipped: gnuplot is missing");
    return false;
}

/* Draws a picture with every kind of panel and all texts that tests look for. */
typedef struct sample {
    tp_image photo;
    double v[12], x[3], y[3];
    const char *names[4], *texts[12];
    curve curves[2];
    panel_bar bars[3];
    panel_mark mark;
    panel at[4];
    picture p;
} sample;

static void sample_begin(sample *s, const char *text)
{
    *s = (sample){ .x = { 1, 2, 3 },
                   .y = { 1, NAN, 3 },
                   .names = { text, "b", "c", "d" },
                   .texts = { text, NULL, "7" },
                   .curves = { { text, 3, s->x, s->x }, { "other", 3, s->x, s->y } },
                   .bars = { { text, 70, NULL, COLOUR_RIGHT },
                             { "goose", 20, "a fifth", COLOUR_PLAIN },
                             { "swan", 10, NULL, COLOUR_WRONG } },
                   .mark = { 1, 1, 1, 1 } };
    cr_assert(tp_image_new(&s->photo, 4, 3));
    for (int i = 0; i < 36; i++) s->photo.rgb[i] = (uint8_t)(i * 7);
    for (int i = 0; i < 12; i++) s->v[i] = i == 11 ? NAN : i - 5.0;
    s->at[0] = (panel){ PANEL_IMAGE, text, .marks = &s->mark, .nmarks = 1, .image = { &s->photo } };
    s->at[1] = (panel){ PANEL_HEAT,
                        "map",
                        "keys",
                        "queries",
                        .marks = &s->mark,
                        .nmarks = 1,
                        .heat = { 3, 4, s->v, .diverging = true, .unit = text, .texts = s->texts,
                                  .row_names = s->names, .col_names = s->names } };
    s->at[2] = (panel){ PANEL_CURVES, "curves", text, "up", .curves = { .n = 2, .at = s->curves } };
    s->at[3] = (panel){ PANEL_BARS, "bars", "share, %", NULL, .bars = { 3, s->bars, 100 } };
    s->p = (picture){ text, "A note that says how to read it.", 2, 2, s->at };
}

static char *file_text(const char *name)
{
    static char text[400000];
    slurp(name, text, sizeof text);
    return text;
}

/* Every SVG of the folder. */
static void expect_well_formed(void)
{
    cr_expect(shell("python3 -c 'import glob, xml.dom.minidom as m\n"
                    "for name in glob.glob(\"*.[Ss][Vv][Gg]\"): m.parse(name)'"));
}

static void expect_undrawn(const char *name, const char *reason)
{
    sample s;
    char why[2000] = "", want[2000];
    sample_begin(&s, "duck");
    cr_expect(!picture_draw(NULL, &s.p, name, why, sizeof why), "%s", name);
    snprintf(want, sizeof want, "%s was not drawn: %s", name, reason);
    cr_expect_str_eq(why, want);
    tp_image_free(&s.photo);
}

Test(picture, png_and_svg)
{
    sample s;
    tp_image drawn = { 0 };
    char why[2000] = "";
    if (!gnuplot_here()) return;
    sample_begin(&s, "duck");
    gnuplot g = { 0 };
    cr_expect(picture_draw(&g, &s.p, "a.png", why, sizeof why), "%s", why);
    cr_expect(picture_draw(&g, &s.p, "A.SVG", why, sizeof why), "%s", why);
    cr_expect(picture_draw(&g, &s.p, "b.png", why, sizeof why), "%s", why);
    gnuplot_end(&g);
    cr_expect(same_bytes("a.png", "b.png"));
    cr_assert(tp_image_read(&drawn, "a.png", NULL), "%s", drawn.why);
    cr_expect(drawn.width > 800 && drawn.height > 600, "%d x %d", (int)drawn.width,
              (int)drawn.height);
    const char *svg = file_text("A.SVG");
    static const char *const texts[] = { ">duck<",    ">goose<",
                                         ">a fifth<", ">keys<",
                                         ">queries<", ">A note that says how to read it.<",
                                         ">other<" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cr_expect(strstr(svg, texts[i]), "%s", texts[i]);
    expect_well_formed();
    cr_expect_eq(files_in_folder(), 3);
    tp_image_free(&drawn);
    tp_image_free(&s.photo);
}

/* Texts appear literally, not as markup, format, command or second line. */
Test(picture, texts)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        { "it's \"q\"", ">it's \"q\"<" },
        { "a_{b}^c @d", ">a_{b}^c @d<" },
        { "50 % %g %d", ">50 % %g %d<" },
        { "65.0 %, a-64", ">65.0 %, a-64<" },
        { "x \\n \\", ">x \\n \\<" },
        { "`touch pwned`", ">`touch pwned`<" },
        { "'; system('touch pwned')", ">'; system('touch pwned')<" },
        { "<b>&", ">&lt;b>&amp;<" },
        { "caf\u00e9 \u9d28", ">caf\u00e9 \u9d28<" },
        { "a\tb\x01"
          "c",
          ">a b c<" },
        { "bad \xff\xed\xa0\x80\xc0\xaf\xf0\x9f", ">bad \ufffd" },
        { "", ">goose<" },
    };
    const int n = sizeof cases / sizeof cases[0];
    gnuplot g = { 0 };
    if (!gnuplot_here()) return;
    for (int i = 0; i < n; i++) {
        sample s;
        char name[16], why[2000] = "";
        snprintf(name, sizeof name, "%d.svg", i);
        sample_begin(&s, cases[i].text);
        cr_assert(picture_draw(&g, &s.p, name, why, sizeof why), "%d: %s", i, why);
        cr_expect(picture_draw(&g, &s.p, "t.png", why, sizeof why), "%d: %s", i, why);
        cr_expect(strstr(file_text(name), cases[i].shown), "%d: %s", i, cases[i].shown);
        tp_image_free(&s.photo);
    }
    gnuplot_end(&g);
    cr_expect_eq(files_in_folder(), n + 1);
    expect_well_formed();
}

/* Two lines, and a truncated name. */
Test(picture, long_texts)
{
    sample s;
    char name[1001] = "", why[2000] = "";
    if (!gnuplot_here()) return;
    for (int i = 0; i < 1000; i++) name[i] = i % 10 ? 'w' : ' ';
    name[0] = 'w';
    sample_begin(&s, name);
    cr_assert(picture_draw(NULL, &s.p, "t.svg", why, sizeof why), "%s", why);
    cr_expect(strstr(file_text("t.svg"), "w\u2026<"));
    cr_expect(!strstr(file_text("t.svg"), name));
    tp_image_free(&s.photo);
}

/* File names never reach gnuplot, where they could be commands. */
Test(picture, names_of_files)
{
    static const char *const names[] = { "|touch pwned;.png", "'; system('touch pwned'); '.svg",
                                         "`touch pwned`.png", "two\nlines.svg", "-.png" };
    sample s;
    char why[2000] = "";
    if (!gnuplot_here()) return;
    sample_begin(&s, "duck");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cr_expect(picture_draw(NULL, &s.p, names[i], why, sizeof why), "%s", why);
        cr_expect(access(names[i], F_OK) == 0, "%s", names[i]);
    }
    cr_expect_eq(files_in_folder(), (int)(sizeof names / sizeof names[0]));
    cr_expect(!picture_draw(NULL, &s.p, "no/a.png", why, sizeof why));
    cr_expect(strstr(why, "no/a.png cannot be written: ") && strstr(why, "create the folder first"),
              "%s", why);
    expect_undrawn("picture.gif", "end the name in .png or .svg");
    expect_undrawn(".png", "end the name in .png or .svg");
    tp_image_free(&s.photo);
}

/* Replaces gnuplot with these shell commands. */
static void fake(const char *commands)
{
    FILE *f = fopen("gnuplot", "w");
    cr_assert(f);
    fprintf(f, "#!/bin/sh\n%s\n", commands);
    fclose(f);
    cr_assert(shell("chmod +x gnuplot"));
}

Test(picture, gnuplot_that_fails)
{
    static const struct {
        const char *commands, *reason;
    } cases[] = {
        { "{ echo; echo '  ^'; echo '   line 2: unknown terminal'; } >&2; exit 1",
          "gnuplot failed: line 2: unknown terminal" },
        { "exit 3", "gnuplot ended with status 3" },
        { "kill -9 $$", "gnuplot was ended by signal 9" },
        { "echo 'tapegrad: drawn'; cat >/dev/null", "the picture is cut off: make room in /tmp" },
    };
    char path[1200];
    cr_assert(shell("echo former >kept.png"));
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake(cases[i].commands);
        expect_undrawn("kept.png", cases[i].reason);
        expect_undrawn("new.svg", cases[i].reason);
    }
    cr_expect(shell("test \"$(cat kept.png)\" = former && test ! -e new.svg"));
    setenv("PATH", "", 1);
    cr_assert(remove("gnuplot") == 0);
    expect_undrawn("kept.png", "gnuplot is missing: apt-get install gnuplot-nox");
    cr_expect_eq(files_in_folder(), 1);
}

/* The same object can draw after a failure. */
Test(picture, process_that_died)
{
    sample s;
    char why[2000] = "";
    gnuplot g = { 0 };
    if (!gnuplot_here()) return;
    sample_begin(&s, "duck");
    cr_assert(picture_draw(&g, &s.p, "a.png", why, sizeof why), "%s", why);
    cr_assert(kill(g.pid, SIGKILL) == 0);
    cr_expect(!picture_draw(&g, &s.p, "b.png", why, sizeof why));
    cr_expect_str_eq(why, "b.png was not drawn: gnuplot was ended by signal 9");
    cr_expect(picture_draw(&g, &s.p, "c.png", why, sizeof why), "%s", why);
    gnuplot_end(&g);
    tp_image_free(&s.photo);
}
