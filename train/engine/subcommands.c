/* subcommands.c - the main functions of single commands and of programs with subcommands. */
#include "options_inner.h"

#include <stdio.h>
#include <string.h>
#include <tapegrad/nearest.h>
#include <tapegrad/train.h>

static void usage(const char *program, const char *about, const tp_subcommand *rows, FILE *out)
{
    int width = 0;
    fprintf(out, "%s - %s\n\n", program, about);
    for (const tp_subcommand *c = rows; c->name; c++)
        if ((int)strlen(c->name) > width) width = (int)strlen(c->name);
    for (const tp_subcommand *c = rows; c->name; c++)
        fprintf(out, "    %s %-*s %s\n", program, width, c->name, c->what);
    fprintf(out, "\n'%s COMMAND --help' prints the manual of a command.\n", program);
}

static void unknown(const char *program, const tp_subcommand *rows, const char *name)
{
    tp_nearest near = tp_nearest_to(name);
    for (const tp_subcommand *c = rows; c->name; c++) tp_nearest_try(&near, c->name);
    fprintf(stderr, "%s: '%s' is not a command", program, name);
    if (near.name[0]) fprintf(stderr, "; did you mean '%s'?", near.name);
    fprintf(stderr, "\n\n");
}

int tp_subcommands_main(const char *program, const char *about, const tp_subcommand *rows, int argc,
                        char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    tp__open_streams();
    for (const tp_subcommand *c = rows; c->name; c++)
        if (strcmp(name, c->name) == 0) return c->run(argc - 2, argv + 2);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        usage(program, about, rows, stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        tp__print_version(program);
        return 0;
    }
    if (argc > 1) unknown(program, rows, name);
    usage(program, about, rows, stderr);
    return 2;
}

int tp_command_main(const tp_command *c, int argc, char **argv, void *settings,
                    bool (*run)(void *settings, char *why, size_t size))
{
    char why[6000] = "";
    tp__open_streams();
    int status = tp_options_parse(c, argc, argv, settings, NULL);
    if (status == TP_PARSED && c->check && !c->check(settings, why, sizeof why)) {
        fprintf(stderr, "%s: %s\n", c->name, why);
        status = tp__bad_usage(c->name);
    }
    if (status == TP_PARSED) {
        const bool done = run(settings, why, sizeof why);
        if (!done && why[0]) fprintf(stderr, "%s: %s\n", c->name, why);
        status = !done ? 1 : tp_stop_signal() ? 128 + tp_stop_signal() : 0;
    }
    tp_options_free(c->table, settings);
    return status;
}
