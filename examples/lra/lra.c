/* lra.c - the subcommands of lra, which trains and compares encoders on the Long Range Arena. */
#include <tapegrad/options.h>

#include "lra.h"

static const tp_subcommand commands[] = {
    { "train", "trains an encoder on a task, or resumes training", lra_train_main },
    { "eval", "measures accuracy on held-out documents", lra_eval_main },
    { "perturb", "measures accuracy on damaged documents", lra_perturb_main },
    { "table", "trains the paper's attentions and compares them", lra_table_main },
    { "scale", "measures time and memory by the length of documents", lra_scale_main },
    { "norms", "measures the norms of keys and values by layer", lra_norms_main },
    { 0 },
};

int main(int argc, char **argv)
{
    return tp_subcommands_main("lra", "long documents: the attentions of the Long Range Arena",
                               commands, argc, argv);
}
