/* imagenet.c - the subcommands of imagenet, which trains and runs image classifiers. */
#include <tapegrad/options.h>

#include "image_commands.h"

static const tp_subcommand commands[] = {
    { "train", "trains a model on labelled images, or resumes training", image_train_main },
    { "eval", "measures loss and accuracy on held-out images", image_eval_main },
    { "predict", "predicts the classes of images", predict_main },
    { "throughput", "measures the speed of a model in images per second", throughput_main },
    { "table", "trains several models and compares them", image_table_main },
    { "robust", "measures trained models on corrupted images", robust_main },
    { "analyze", "draws the papers' figures of the inside of a model", analyze_main },
    { "scale", "measures time and memory of an attention by the size of its map",
      image_scale_main },
    { 0 },
};

int main(int argc, char **argv)
{
    return tp_subcommands_main("imagenet", "image classifiers", commands, argc, argv);
}
