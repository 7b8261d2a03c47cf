/* gpt.c - the subcommands of gpt, which trains, evaluates and samples from GPT-2 and Llama. */
#include <tapegrad/options.h>

#include "gpt_commands.h"

static const tp_subcommand commands[] = {
    { "train", "trains a model on text, or resumes training", gpt_train_main },
    { "eval", "measures bits per byte and perplexity of text", gpt_eval_main },
    { "generate", "generates text from a prompt", gpt_generate_main },
    { "merge", "writes a model with its low-rank adaptations in the weights", gpt_merge_main },
    { 0 },
};

int main(int argc, char **argv)
{
    return tp_subcommands_main("gpt", "language models over byte pairs: GPT-2 and Llama", commands,
                               argc, argv);
}
