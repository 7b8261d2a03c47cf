/* imagenet.c - trains, evaluates and runs image classifiers: the program's subcommands. */
#include <tapegrad/options.h>

#include "image_commands.h"

static const tp_subcommand commands[] = {
    { "train", "trains a model on labelled images, or goes on training it", image_train_main },
    { "eval", "measures loss and accuracy on held-out images", image_eval_main },
    { "predict", "names what is on images", predict_main },
    { "throughput", "measures how many images a second a model takes", throughput_main },
    { "analyze", "draws what goes on inside a model, as the papers do", analyze_main },
    { 0 },
};

int main(int argc, char **argv)
{
    return tp_subcommands_main("imagenet", "image classifiers", commands, argc, argv);
}
