/* tp-report.c - writes a page about training runs, which a browser opens from disk. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/options.h>
#include <tapegrad/report.h>
#include <unistd.h>

#include "print_text.h"

typedef struct request {
    tp_words runs;
    char *output;
} request;

#define S request

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(S, runs, "RUN",
                 "The folder of a run, or NAME=FOLDER to choose its name on the page."),
    TP_STRING("output", S, output, "FILE.html", 0,
              "The page; -o FILE.html is the same. If not given: report.html in the first RUN."),
    { 0 },
};

static bool check(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    if (r->runs.n > 0) return true;
    snprintf(why, size, "no RUN is given");
    return false;
}

static const tp_command manual = {
    .name = "tp-report",
    .summary = "writes a page about training runs",
    .synopsis = "RUN... [-o FILE.html]",
    .about =
        "Writes one HTML file about one or several runs: settings that differ from the preset, "
        "machine, learning curves with the values under the pointer, the history of validations, "
        "memory planned and used, time by op (of runs with --profile), and the pictures and "
        "samples "
        "that the folders of the runs hold (confusion.png, sample*.txt, and those in folders of "
        "them). Several runs share one "
        "chart, above a table of the differences between their settings.\n\n"
        "The file opens from disk, loads nothing, and can be sent to others as it is: links in the "
        "folders are not followed. Runs may "
        "still be training; `train --report` writes the same page after each validation.",
    .table = table,
    .check = check,
    .more =
        "EXIT STATUS\n"
        "    0 success; 1 a run cannot be read or the page not written; 2 a wrong command line\n\n"
        "EXAMPLES\n"
        "    tp-report runs/quickstart\n"
        "    tp-report runs/ls runs/xl -o compare.html\n"
        "    tp-report 'lr 1e-3=runs/a' 'lr 3e-4=runs/b' -o rates.html\n"
        "    enwik8 generate --run-dir runs/ls >runs/ls/samples.txt && tp-report runs/ls\n",
};

static bool run(void *options, char *why, size_t size)
{
    const request *r = options;
    char path[4200], word[4096];
    const char *const *runs = (const char *const *)r->runs.at, *first = strchr(runs[0], '=');
    snprintf(word, sizeof word, "%s", first && access(runs[0], F_OK) != 0 ? first + 1 : runs[0]);
    snprintf(path, sizeof path, "%s/report.html", word);
    if (r->output) snprintf(path, sizeof path, "%s", r->output);
    if (!tp_report_write(path, runs, r->runs.n, why, size)) return false;
    print_text(path, 0);
    printf("\n");
    return true;
}

int main(int argc, char **argv)
{
    static char output[] = "--output";
    request r = { 0 };
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-o") == 0) argv[i] = output;
    return tp_command_main(&manual, argc - 1, argv + 1, &r, run);
}
