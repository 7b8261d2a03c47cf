/* tp-models.c - prints the models of the library: a list next to the papers' figures, the
 * parameters of one model, or its layers as a tree; and the commands of the papers' rows. It
 * computes nothing and allocates no weights: models run on a dry device. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/options.h>

#include "models/model_views.h"

typedef struct request {
    tp_words prefix;
    char *filter, *summary, *params, *members, *set, *paper;
    int64_t depth;
    bool fold, json, memory;
} request;

#define S request

/* Names of models, then of detectors. */
static const char *name_at(int i)
{
    int models = 0;
    while (tp_model_name(models)) models++;
    return i < models ? tp_model_name(i) : tp_detector_known(i - models);
}

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS_OF(S, prefix, "PREFIX", name_at,
                    "List only models whose name begins with PREFIX."),
    TP_STRING("filter", S, filter, "TEXT", 0,
              "List only models whose name, family or other name contains TEXT, ignoring case."),
    TP_FLAG("memory", S, memory, 0,
            "List the memory of detectors, too, which takes a tenth of a second for each."),
    TP_STRING_OF("summary", S, summary, "NAME", name_at, 0,
                 "Print the model's layers as a tree: op, output shape, and the parameters and "
                 "multiply-adds of each layer including all layers below it. (op) is an op that a "
                 "module computes in addition to its parts."),
    TP_INT("depth", S, depth, 0, 64, 0, "Levels of the tree."),
    TP_FLAG("fold", S, fold, 0,
            "Print equal neighbours as one line, with the numbers of a single one."),
    TP_STRING_OF("params", S, params, "NAME", name_at, 0,
                 "Print the names and shapes of the model's parameters and buffers."),
    TP_STRING_OF(
        "members", S, members, "NAME", name_at, 0,
        "Print the members of the model's configuration: what --set changes, each with its "
        "value in this model and what values it takes."),
    TP_STRING("set", S, set, "KEY=VALUE,...", 0,
              "With --summary, --params or --members: change members of the model, as "
              "depths=1,2,8,1,mlp_ratio=4. An item without = continues the value before it."),
    TP_STRING_OF("paper", S, paper, "TEXT", paper_name_at, 0,
                 "Print the rows of the papers' tables and figures whose place, words or command "
                 "have all words of TEXT, with their commands, as \"ViL Table 2\". A first word "
                 "Transformer-LS, ViT-LSLA or ViL means that paper."),
    TP_FLAG("json", S, json, 0,
            "Print the list, the summary or the rows as JSON, with sizes in elements and bytes."),
    { 0 },
};

static bool check(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    const bool list = r->prefix.n > 0 || r->filter;
    if (r->prefix.n > 1)
        snprintf(why, size, "'%s': only one PREFIX is allowed", r->prefix.at[1]);
    else if ((r->summary != NULL) + (r->params != NULL) + (r->members != NULL) +
                 (r->paper != NULL) + list >
             1)
        snprintf(why, size,
                 "--summary, --params, --members, --paper and a list of models exclude each other");
    else if (r->set && !r->summary && !r->params && !r->members)
        snprintf(why, size, "--set: it changes the model of --summary, --params or --members");
    else if (r->memory && (r->summary || r->params || r->members || r->paper))
        snprintf(why, size, "--memory: only a list takes it; --summary always shows the memory");
    else
        return true;
    return false;
}

static const tp_command manual = {
    .name = "tp-models",
    .summary = "lists the models of the library and shows their layers",
    .synopsis = "[--filter TEXT] [--memory] [--json] [PREFIX]\n"
                "    tp-models --summary NAME [--set KEY=VALUE,...] [--depth N] [--fold] [--json]\n"
                "    tp-models --params NAME [--set KEY=VALUE,...]\n"
                "    tp-models --members NAME [--set KEY=VALUE,...]\n"
                "    tp-models --paper TEXT [--json]",
    .about =
        "Without --summary, --params, --members and --paper, prints one line for each model, and "
        "one for each detector. NAME is any name of a model: the library's (cvt-13-224), a "
        "program's (cvt-13), the paper's (CvT-13), or one formed in the same way (cvt-13-448); or "
        "a detector's (retinanet-vil-tiny).",
    .table = table,
    .check = check,
    .more = "COLUMNS\n"
            "    params     parameters; tied ones count once\n"
            "    GFLOPs     forward pass of one sample of the given input, by fvcore's rule:\n"
            "               multiply-adds, plus the paper's count per element of LayerNorm (5)\n"
            "               and BatchNorm (2)\n"
            "    MiB        memory that a training step saves for backward, one sample, f32\n"
            "    bf16       that each sample adds in mixed precision, with activations in bf16\n"
            "    recompute  that of f32 with --recompute block\n"
            "    paper      parameters and GFLOPs as printed in the paper; - if it has none\n\n"
            "    Detectors, with an image of 800 x 1333 pixels and 80 categories:\n\n"
            "    paper      as printed in ViL's paper, which counts an unused classifier, too\n"
            "    GFLOPs     multiply-adds by that paper's rule, which leaves out most products of\n"
            "               windows; Mask R-CNN without masks\n"
            "    GMACs      multiply-adds with all products\n"
            "    detect     MiB of memory that detection takes, and\n"
            "    train      a training step with AdamW, one image, f32; with --memory\n\n"
            "COMMANDS OF PAPERS\n"
            "    After a training, 'PROGRAM eval' with the same --data and --run-dir measures the\n"
            "    figure; lra train and lra table test by themselves. The figures of IP102 are for\n"
            "    --split test. docs/reproduce.md says where the data can be had.\n\n"
            "EXIT STATUS\n"
            "    0 success; 1 there is no such model or row; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    tp-models --filter ls\n"
            "    tp-models --summary cvt-ls-13 --depth 5 --fold\n"
            "    tp-models --summary swin-t --set depths=2,2,2,2\n"
            "    tp-models --memory mask-rcnn-vil-\n"
            "    tp-models --paper \"ViL Table 2\"\n"
            "    tp-models --json vil- | jq '.[] | select(.parameters < 7e6) | .name'\n",
};

static bool run(void *options, char *why, size_t size)
{
    const request *r = options;
    (void)why, (void)size; /* each view prints its own message */
    if (r->summary)
        return !model_summary(
            &(summary_opts){ r->summary, r->set, (int)r->depth, r->fold, r->json });
    if (r->params) return !model_params(r->params, r->set);
    if (r->members) return !model_members(r->members, r->set);
    if (r->paper) return !paper_rows(r->paper, r->json);
    return !model_list(
        &(list_opts){ r->prefix.n > 0 ? r->prefix.at[0] : NULL, r->filter, r->memory, r->json });
}

int main(int argc, char **argv)
{
    request r = { .depth = 3 };
    return tp_command_main(&manual, argc - 1, argv + 1, &r, run);
}
