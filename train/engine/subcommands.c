/* subcommands.c - main functions of single commands and of programs with subcommands. */
#include "options_inner.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>
#include <tapegrad/nearest.h>
#include <tapegrad/peers.h>
#include <tapegrad/train.h>

static void usage(const char *program, const char *about, const tp_subcommand *rows, FILE *out)
{
    int width = 0;
    fprintf(out, "%s - %s\n\n", program, about);
    for (const tp_subcommand *c = rows; c->name; c++)
        if ((int)strlen(c->name) > width) width = (int)strlen(c->name);
    for (const tp_subcommand *c = rows; c->name; c++)
        fprintf(out, "    %s %-*s %s\n", program, width, c->name, c->what);
    fprintf(out,
            "\n'%s COMMAND --help' prints the manual of a command. Flags without a command:\n\n"
            "    --help, --version\n"
            "    --man                  print a man page; '%s COMMAND --man' prints a command's\n"
            "    --completion bash|zsh  print a shell completion script\n"
            "    --commands             print the names of the commands\n",
            program, program);
}

static void unknown(const char *program, const tp_subcommand *rows, const char *name)
{
    tp_nearest near = tp_nearest_to(name);
    for (const tp_subcommand *c = rows; c->name; c++) tp_nearest_try(&near, c->name);
    char why[600];
    snprintf(why, sizeof why, "'%.400s' is not a command%s%s%s", name,
             near.name[0] ? "; did you mean '" : "", near.name, near.name[0] ? "'?" : "");
    tp_command_complain(program, why);
    fputc('\n', stderr);
}

/* Answers a flag of the program. */
static int answer(const char *program, const char *about, const tp_subcommand *rows, int argc,
                  char **argv)
{
    tp_shell shell;
    const int status = tp__shell_of(program, argc, argv, 1, &shell);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        usage(program, about, rows, stdout);
    else if (strcmp(argv[1], "--version") == 0)
        tp__print_version(program);
    else if (strcmp(argv[1], "--man") == 0)
        tp__man_of_program(program, about, rows, stdout);
    else if (strcmp(argv[1], "--commands") == 0)
        for (const tp_subcommand *c = rows; c->name; c++) printf("%s\n", c->name);
    else if (status != 0)
        return status;
    else if (!tp__complete_program(program, rows, shell, stdout))
        return 1;
    return tp__printed(program);
}

int tp_subcommands_main(const char *program, const char *about, const tp_subcommand *rows, int argc,
                        char **argv)
{
    tp__prepare_process();
    if (!program || !rows || (argc > 0 && !argv)) {
        fprintf(stderr, "tp_subcommands_main: NULL was given in place of %s\n",
                program && rows ? "flags" : "a program");
        return 1;
    }
    for (const tp_subcommand *c = rows; c->name && argc > 1; c++)
        if (strcmp(argv[1], c->name) == 0) return c->run(argc - 2, argv + 2);
    const int status = argc > 1 ? answer(program, about, rows, argc, argv) : TP_PARSED;
    if (status != TP_PARSED) return status;
    if (argc > 1) unknown(program, rows, argv[1]);
    usage(program, about, rows, stderr);
    return 2;
}

void tp_command_complain(const char *command, const char *why)
{
    fprintf(stderr, "%s: ", command);
    tp__print_plain(stderr, why);
    fputc('\n', stderr);
}

/* Refuses to do the same work in several processes, which would print and write over each other.
 * Only the first one says so and fails, because launchers kill the others when one fails. */
static int refuse_several(const char *command, int rank)
{
    if (rank > 0) return 0;
    tp_command_complain(command, "this command runs in one process: start it without mpirun");
    return 1;
}

int tp_command_main(const tp_command *c, int argc, char **argv, void *settings,
                    bool (*run)(void *settings, char *why, size_t size))
{
    char why[6000] = "";
    int rank;
    tp__prepare_process();
    if (!c || !run || (argc > 0 && !argv)) {
        fprintf(stderr, "tp_command_main: NULL was given in place of %s\n",
                c && run ? "flags" : "a command");
        return 1;
    }
    int status = tp_peers_launched(&rank) ? refuse_several(c->name, rank)
                                          : tp_options_parse(c, argc, argv, settings, NULL);
    if (status == TP_PARSED && c->check && !c->check(settings, why, sizeof why)) {
        tp_command_complain(c->name, why);
        status = tp__bad_usage(c->name);
    }
    if (status == TP_PARSED) {
        const bool done = run(settings, why, sizeof why);
        if (!done && why[0]) tp_command_complain(c->name, why);
        status = !done ? 1 : tp_stop_signal() ? 128 + tp_stop_signal() : tp__printed(c->name);
    }
    tp_options_free(c->table, settings);
    return status;
}
