/* test_terminal.c - the progress line and headings of manuals on terminals, dumb ones and
 * elsewhere. */
#define _XOPEN_SOURCE 700 /* pseudo-terminals */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <tapegrad/options.h>
#include <unistd.h>

#include "train/engine/progress.h"

/* ---- the line ---- */

#define GREEN(done) "\033[32m" done "\033[0m"

Test(progress, parts_by_width)
{
    static const char text[] = "loss 2.3026  top-1 12.50 %  380 images/s  12 MB";
    static const struct {
        tp_progress_text what;
        int columns;
        bool colour;
        const char *line;
    } cases[] = {
        /* elsewhere: everything */
        { { "step", text, 3, 10, 725 },
          0,
          false,
          "step 3/10  loss 2.3026  top-1 12.50 %  380 images/s  12 MB  ETA 12:05" },
        { { "step", "", 3, 10, 725 }, 0, false, "step 3/10  ETA 12:05" },
        { { "tokens", "1.2 bpc", 0, 10, (double)NAN }, 0, false, "tokens 0/10  1.2 bpc" },
        /* the widest bar, the text's share, fewer fields, no text, no bar, only a beginning */
        { { "step", text, 3, 10, 725 },
          200,
          false,
          "step 3/10 [#########---------------------]  loss 2.3026  top-1 12.50 %  380 images/s  "
          "12 MB  ETA 12:05" },
        { { "step", text, 3, 10, 725 },
          84,
          false,
          "step 3/10 [###--------]  loss 2.3026  top-1 12.50 %  380 images/s  12 MB  ETA 12:05" },
        { { "step", text, 3, 10, 725 },
          80,
          false,
          "step 3/10 [####----------]  loss 2.3026  top-1 12.50 %  380 images/s  ETA 12:05" },
        { { "step", text, 3, 10, 725 },
          47,
          false,
          "step 3/10 [###-------]  loss 2.3026  ETA 12:05" },
        { { "step", text, 3, 10, 725 },
          46,
          false,
          "step 3/10 [######----------------]  ETA 12:05" },
        { { "step", text, 3, 10, 725 }, 34, false, "step 3/10 [###-------]  ETA 12:05" },
        { { "step", text, 3, 10, 725 }, 33, false, "step 3/10  ETA 12:05" },
        { { "step", text, 3, 10, 725 }, 12, false, "step 3/10  " },
        { { "step", text, 3, 10, 725 }, 5, false, "step" },
        { { "step", text, 3, 10, 725 }, 1, false, "" },
        /* ends, and invalid values */
        { { "step", "", 0, 10, (double)NAN }, 30, false, "step 0/10 [-----------------]" },
        { { "step", "", 10, 10, 0 }, 34, false, "step 10/10 [##########]  ETA 0:00" },
        { { "step", "", 12, 10, 0 }, 34, false, "step 12/10 [##########]  ETA 0:00" },
        { { "step", "", 0, 0, 0 }, 33, false, "step 0/0 [###########]  ETA 0:00" },
        { { "step", "a b   c d  ", 1, 2, 0 }, 37, false, "step 1/2 [#####-----]  a b  ETA 0:00" },
        /* two bytes, one column */
        { { "step", "\xc3\xa9\xc3\xa9  x", 1, 2, 0 },
          36,
          false,
          "step 1/2 [#####-----]  \xc3\xa9\xc3\xa9  ETA 0:00" },
        { { "step", "", 3, 10, 725 }, 34, true, "step 3/10 [" GREEN("###") "-------]  ETA 12:05" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1024];
        tp__progress_print(line, sizeof line, &cases[i].what, cases[i].columns, cases[i].colour);
        cr_expect_str_eq(line, cases[i].line, "%zu: '%s'", i, line);
    }
}

/* The columns of a line without control sequences. */
static int columns_of(const char *line)
{
    int n = 0;
    for (; *line; line++) n += (*line & 0xc0) != 0x80;
    return n;
}

Test(progress, never_too_long)
{
    static const char *const texts[] = { "", "loss 1.0", "loss 1.0  top-1 3 %  x",
                                         "one field that is longer than most of the terminals here",
                                         "\xe2\x82\xac 3  \xe2\x82\xac 4" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int columns = 1; columns < 200; columns++) {
            char line[1024];
            tp__progress_print(line, sizeof line,
                               &(tp_progress_text){ "images", texts[i], 123456, 1281167, 4e5 },
                               columns, false);
            cr_expect_lt(columns_of(line), columns, "%d columns: '%s'", columns, line);
        }
}

/* ---- streams ---- */

typedef struct pseudo_terminal {
    int master;
    FILE *out;
} pseudo_terminal;

static pseudo_terminal terminal(unsigned short columns)
{
    pseudo_terminal t = { .master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK) };
    const struct winsize size = { .ws_row = 25, .ws_col = columns };
    cr_assert(t.master >= 0 && grantpt(t.master) == 0 && unlockpt(t.master) == 0);
    const int slave = open(ptsname(t.master), O_RDWR | O_NOCTTY);
    cr_assert(slave >= 0 && ioctl(slave, TIOCSWINSZ, &size) == 0);
    t.out = fdopen(slave, "w");
    cr_assert(t.out);
    return t;
}

/* Writes what the terminal received to text, and closes it. */
static void hang_up(pseudo_terminal *t, char *text, size_t size)
{
    fflush(t->out);
    size_t used = 0;
    ssize_t n;
    while ((n = read(t->master, text + used, size - 1 - used)) > 0) used += (size_t)n;
    text[used] = '\0';
    fclose(t->out);
    close(t->master);
}

static void say(tp_progress *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tp__progress_say(p, fmt, ap);
    va_end(ap);
}

/* A run of 20 steps, resumed after step 10. Its time limit keeps the ETA at 0:00, and the future
 * time of the first line keeps steps without a report from being drawn. */
static void make_a_run(void)
{
    tp_progress p;
    tp__progress_start(&p, 10, 20, 0.1, false);
    p.line.drawn += 1000;
    tp__progress_step(&p, 11, false, "loss 3");
    tp__progress_step(&p, 12, true, "loss 2");
    say(&p, "saved %d", 12);
    tp__progress_step(&p, 20, true, "loss 1");
    tp__progress_end(&p);
}

#define CLEAR "\033[K"

/* Runs f with its standard output or error on a terminal of 42 columns. */
static void on_terminal(FILE *stream, void (*f)(void), char *text, size_t size)
{
    pseudo_terminal t = terminal(42);
    fflush(stream);
    const int number = fileno(stream), former = dup(number);
    cr_assert(former >= 0 && dup2(fileno(t.out), number) >= 0);
    f();
    fflush(stream);
    dup2(former, number);
    close(former);
    hang_up(&t, text, size);
}

Test(progress, of_runs)
{
    static const char redrawn[] =
        "\rstep 12/20 [######----]  loss 2  ETA 0:00" CLEAR "\r" CLEAR "saved 12\r\n"
        "\rstep 20/20 [##########]  loss 1  ETA 0:00" CLEAR "\r\n";
    static const char coloured[] = "\rstep 12/20 [" GREEN(
        "######") "----]  loss 2  ETA 0:00" CLEAR "\r" CLEAR "saved 12\r\n"
                  "\rstep 20/20 [" GREEN("##########") "]  loss 1  ETA 0:00" CLEAR "\r\n";
    static const char plain[] = "step 12/20  loss 2  ETA 0:00\r\nsaved 12\r\n"
                                "step 20/20  loss 1  ETA 0:00\r\n";
    static const struct {
        const char *term, *no_color, *text;
    } cases[] = {
        { "xterm", NULL, coloured }, { "xterm", "", coloured }, { "xterm", "1", redrawn },
        { "dumb", NULL, plain },     { "", NULL, plain },       { NULL, NULL, plain },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        unsetenv("TERM");
        unsetenv("NO_COLOR");
        if (cases[i].term) setenv("TERM", cases[i].term, 1);
        if (cases[i].no_color) setenv("NO_COLOR", cases[i].no_color, 1);
        on_terminal(stdout, make_a_run, text, sizeof text);
        cr_expect_str_eq(text, cases[i].text, "%zu: %s", i, text);
    }
}

static void wait_for(tp_ticker *t)
{
    t->drawn -= 1; /* a second passes */
    if (tp_ticker_due(t)) tp_ticker_draw(t, 1, "%d bpc", 5);
}

static void evaluate(void)
{
    tp_ticker t = tp_ticker_start("tokens", 4);
    t.began = t.drawn += 1000; /* the ETA is 0:00 */
    cr_expect(!tp_ticker_due(&t), "nothing is drawn at once");
    t.drawn -= 1000;
    wait_for(&t);
    tp_ticker_end(&t);
    tp_ticker_end(&t);
}

static void evaluate_for_long(void)
{
    tp_ticker t = tp_ticker_start("tokens", 4);
    t.began += 1000;
    t.drawn -= 60;
    wait_for(&t);
    tp_ticker_end(&t);
}

Test(progress, of_commands)
{
    char text[1024];
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    on_terminal(stderr, evaluate, text, sizeof text);
    cr_expect_str_eq(text, "\rtokens 1/4 [##---------]  5 bpc  ETA 0:00" CLEAR "\r" CLEAR, "%s",
                     text);
    setenv("TERM", "dumb", 1);
    on_terminal(stderr, evaluate, text, sizeof text);
    cr_expect_str_eq(text, "", "%s", text);
    on_terminal(stderr, evaluate_for_long, text, sizeof text);
    cr_expect_str_eq(text, "tokens 1/4  5 bpc  ETA 0:00\r\n", "%s", text);
}

static const tp_command manual = { .name = "name",
                                   .summary = "what it does",
                                   .about = "Text.",
                                   .table = (const tp_option[]){ TP_HEADING("PART"), { 0 } },
                                   .more = "MORE\n    an indented line\n\nLAST\n" };

static void print_manual(void)
{
    tp_options_help(&manual, NULL, stdout);
}

#define BOLD(text) "\033[1m" text "\033[0m\r\n"

Test(terminal, headings)
{
    char text[2048];
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    on_terminal(stdout, print_manual, text, sizeof text);
    static const char *const bold[] = { BOLD("NAME"),        BOLD("SYNOPSIS"),
                                        BOLD("DESCRIPTION"), BOLD("PART"),
                                        BOLD("HELP"),        BOLD("MORE"),
                                        BOLD("LAST"),        "    an indented line\r\n" };
    for (size_t i = 0; i < sizeof bold / sizeof *bold; i++)
        cr_expect(strstr(text, bold[i]), "%zu: %s", i, text);
    setenv("NO_COLOR", "1", 1);
    on_terminal(stdout, print_manual, text, sizeof text);
    cr_expect(!strchr(text, 27) && strstr(text, "\nLAST\r\n"), "%s", text);
}
