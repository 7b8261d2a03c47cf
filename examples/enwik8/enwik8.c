/* enwik8.c - trains, evaluates and samples from byte-level language models: the program's
 * subcommands. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "commands.h"

static const struct command {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "train", "trains a model on bytes of text, or resumes training", train_main },
    { "eval", "measures bits per character of held-out text", eval_main },
    { "generate", "generates text from a prompt", generate_main },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void usage(FILE *out)
{
    fprintf(out, "enwik8 - byte-level language models: Transformer-LS and Transformer-XL\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "    enwik8 %-9s %s\n", commands[i].name, commands[i].what);
    fprintf(out, "\n'enwik8 COMMAND --help' is the manual of a command.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        usage(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        printf("enwik8 (tapegrad %s)\n", tp_version());
        return 0;
    }
    if (argc > 1) fprintf(stderr, "enwik8: '%s' is no command\n\n", name);
    usage(stderr);
    return 2;
}
