/* imdb.c - the subcommands of imdb, which fine-tunes pretrained text encoders. */
#include <tapegrad/options.h>

#include "imdb.h"

static const tp_subcommand commands[] = {
    { "pretrain", "trains on masked tokens of any text, or resumes that", imdb_pretrain_main },
    { "convert", "turns a model into one with another attention or length", imdb_convert_main },
    { "train", "trains a classifier of texts, or resumes training", imdb_train_main },
    { "eval", "measures accuracy and calibration on held-out texts", imdb_eval_main },
    { "norms", "measures the norms of keys and values by layer", imdb_norms_main },
    { "predict", "predicts the classes of texts and shows why", imdb_predict_main },
    { 0 },
};

int main(int argc, char **argv)
{
    return tp_subcommands_main("imdb", "RoBERTa, Longformer and long-short RoBERTa on texts",
                               commands, argc, argv);
}
