/* enwik8.c - the subcommands of enwik8, which trains, evaluates and samples from byte-level
 * models. */
#include <tapegrad/options.h>

#include "enwik8.h"

static const tp_subcommand commands[] = {
    { "train", "trains a model on bytes of text, or resumes training", train_main },
    { "eval", "measures bits per character of held-out text", eval_main },
    { "scale", "measures time and memory by the length of a segment", scale_main },
    { "norms", "measures the norms of keys and values by layer", norms_main },
    { "generate", "generates text from a prompt", generate_main },
    { 0 },
};

int main(int argc, char **argv)
{
    return tp_subcommands_main("enwik8",
                               "byte-level language models: Transformer-LS and Transformer-XL",
                               commands, argc, argv);
}
