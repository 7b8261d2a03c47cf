/* imagenet.c - trains, evaluates and runs image classifiers: the program's subcommands. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "image_commands.h"

static const struct command {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "train", "trains a model on labelled pictures, or goes on training it", image_train_main },
    { "eval", "measures loss and accuracy on held-out pictures", image_eval_main },
    { "predict", "names what is on pictures", predict_main },
    { "throughput", "measures how many pictures a second a model takes", throughput_main },
    { "analyze", "draws what goes on inside a model, as the papers do", analyze_main },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void usage(FILE *out)
{
    fprintf(out, "imagenet - image classifiers\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "    imagenet %-10s %s\n", commands[i].name, commands[i].what);
    fprintf(out, "\n'imagenet COMMAND --help' is the manual of a command.\n");
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
        printf("imagenet (tapegrad %s)\n", tp_version());
        return 0;
    }
    if (argc > 1) fprintf(stderr, "imagenet: '%s' is no command\n\n", name);
    usage(stderr);
    return 2;
}
