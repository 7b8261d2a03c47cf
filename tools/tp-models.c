/* tp-models.c - the models of the library: a list beside what the papers print, the names of one
 * model's parameters, its layers as a tree. Nothing is computed and no memory taken: parameters are
 * declared on a dry device, costs are closed forms. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/options.h>

#include "models/model_views.h"

typedef struct request {
    tp_words prefix;
    char *filter, *summary, *params;
    int64_t depth;
    bool fold, json;
} request;

#define S request

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(S, prefix, "PREFIX", "Only models whose name begins so."),
    TP_STRING("filter", S, filter, "TEXT", 0,
              "Only models whose name, family or other name contains it; "
              "upper and lower case are the same."),
    TP_STRING("summary", S, summary, "NAME", 0,
              "The model's layers as a tree, each with the op it is, the shape that leaves it, and "
              "the parameters and multiply-adds of it and all below it; (op): what a module "
              "computes beside its parts."),
    TP_INT("depth", S, depth, 0, 64, 0, "Levels of the tree."),
    TP_FLAG("fold", S, fold, 0,
            "Neighbours that are equal share a line, whose numbers are those of one."),
    TP_STRING("params", S, params, "NAME", 0,
              "The names and shapes of the model's parameters and buffers."),
    TP_FLAG("json", S, json, 0, "The list or the summary as JSON, sizes in elements and bytes."),
    { 0 },
};

static bool check(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    const bool list = r->prefix.n > 0 || r->filter;
    if (r->prefix.n > 1)
        snprintf(why, size, "one PREFIX at most, not also %s", r->prefix.at[1]);
    else if ((r->summary != NULL) + (r->params != NULL) + list > 1)
        snprintf(why, size, "--summary, --params and a list of models exclude each other");
    else
        return true;
    return false;
}

static const tp_command manual = {
    .name = "tp-models",
    .summary = "lists the models of the library and shows what they are made of",
    .synopsis = "[--filter TEXT] [--json] [PREFIX]\n"
                "    tp-models --summary NAME [--depth N] [--fold] [--json]\n"
                "    tp-models --params NAME",
    .about =
        "Without options: a line for each model, or each whose name begins with PREFIX. A NAME "
        "is any name of a model: the library's (cvt-13-224), a program's (cvt-13), the paper's "
        "(CvT-13), or one composed in the same way (cvt-13-448).",
    .table = table,
    .check = check,
    .more = "COLUMNS\n"
            "    params     parameters; tied ones count once\n"
            "    GFLOPs     one forward pass of one sample of the given input, by fvcore's rule:\n"
            "               multiply-adds, plus what the paper counts an element of LayerNorm (5)\n"
            "               and of BatchNorm (2)\n"
            "    MiB        what a training step keeps for backward, one sample, f32\n"
            "    recompute  the same with blocks recomputed\n"
            "    paper      parameters and GFLOPs as the paper prints them, - where it does not\n\n"
            "EXIT STATUS\n"
            "    0 done; 1 there is no such model; 2 a bad flag\n\n"
            "EXAMPLES\n"
            "    tp-models --filter ls\n"
            "    tp-models --summary cvt-ls-13 --depth 5 --fold\n"
            "    tp-models --json vil- | jq '.[] | select(.parameters < 7e6) | .name'\n",
};

static bool run(void *options, char *why, size_t size)
{
    const request *r = options;
    (void)why, (void)size; /* each view tells its own */
    if (r->summary)
        return !model_summary(&(summary_opts){ r->summary, (int)r->depth, r->fold, r->json });
    if (r->params) return !model_params(r->params);
    return !model_list(
        &(list_opts){ r->prefix.n > 0 ? r->prefix.at[0] : NULL, r->filter, r->json });
}

int main(int argc, char **argv)
{
    request r = { .depth = 3 };
    return tp_command_main(&manual, argc - 1, argv + 1, &r, run);
}
