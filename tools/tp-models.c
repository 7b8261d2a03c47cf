/* tp-models.c - the models of the library: a list beside what the papers print, the names of one
 * model's parameters, its layers as a tree. Nothing is computed and no memory taken: parameters are
 * declared on a dry device, costs are closed forms. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model_views.h"

static const char help[] =
    "NAME\n"
    "    tp-models - list the models of the library and show what they are made of\n"
    "\n"
    "SYNOPSIS\n"
    "    tp-models [--filter TEXT] [--json] [PREFIX]\n"
    "    tp-models --summary NAME [--depth N] [--fold] [--json]\n"
    "    tp-models --params NAME\n"
    "\n"
    "DESCRIPTION\n"
    "    Without options: a line for each model, or each whose name begins with PREFIX.\n"
    "\n"
    "      params       parameters; tied ones count once\n"
    "      GFLOPs       one forward pass of one sample of the given input, by fvcore's rule:\n"
    "                   multiply-adds, plus what the paper counts an element of LayerNorm (5)\n"
    "                   and of BatchNorm (2)\n"
    "      MiB          what a training step keeps for backward, one sample, f32\n"
    "      recompute    the same with blocks recomputed\n"
    "      paper        parameters and GFLOPs as the paper prints them, - where it does not\n"
    "\n"
    "    A NAME is any name of a model: the library's (cvt-13-224), a program's (cvt-13), the\n"
    "    paper's (CvT-13), or one composed in the same way (cvt-13-448).\n"
    "\n"
    "OPTIONS\n"
    "    --filter TEXT   only models whose name, family or other name contains TEXT; upper and\n"
    "                    lower case are the same\n"
    "    --summary NAME  the model's layers as a tree, each with the op it is, the shape that\n"
    "                    leaves it, and the parameters and multiply-adds of it and all below it;\n"
    "                    (op): what a module computes beside its parts\n"
    "    --depth N       levels of the tree (default 3)\n"
    "    --fold          neighbours that are equal share a line, whose numbers are those of one\n"
    "    --params NAME   the names and shapes of its parameters and buffers\n"
    "    --json          the list or the summary as JSON, sizes in elements and bytes\n"
    "    --help          this text\n"
    "\n"
    "EXIT STATUS\n"
    "    0 done; 1 there is no such model; 2 a bad flag\n"
    "\n"
    "EXAMPLES\n"
    "    tp-models --filter ls\n"
    "    tp-models --summary cvt-ls-13 --depth 5 --fold\n"
    "    tp-models --json vil- | jq '.[] | select(.parameters < 7e6) | .name'\n";

typedef struct request {
    const char *prefix, *filter, *summary, *params;
    int depth;
    bool fold, json, help;
} request;

static int refuse(const char *what, const char *word)
{
    fprintf(stderr, "tp-models: %s%s; see tp-models --help\n", what, word);
    return 2;
}

/* 0, or the exit status of a refusal. */
static int parse(request *r, int argc, char **argv)
{
    const struct {
        const char *flag;
        const char **text;
        bool *on;
    } flags[] = {
        { "--filter", &r->filter, NULL }, { "--summary", &r->summary, NULL },
        { "--params", &r->params, NULL }, { "--fold", NULL, &r->fold },
        { "--json", NULL, &r->json },     { "--help", NULL, &r->help },
    };
    const char *depth = NULL;
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        const bool is_depth = strcmp(argv[i], "--depth") == 0;
        while (k < sizeof flags / sizeof *flags && strcmp(argv[i], flags[k].flag) != 0) k++;
        if (argv[i][0] != '-') {
            if (r->prefix) return refuse("one PREFIX at most, not also ", argv[i]);
            r->prefix = argv[i];
        } else if (k == sizeof flags / sizeof *flags && !is_depth) {
            return refuse("unknown option ", argv[i]);
        } else if (!is_depth && flags[k].on) {
            *flags[k].on = true;
        } else if (i + 1 == argc) {
            return refuse("a value is missing after ", argv[i]);
        } else {
            *(is_depth ? &depth : flags[k].text) = argv[i + 1];
            i++;
        }
    }
    char *end = NULL;
    errno = 0;
    const long n = depth ? strtol(depth, &end, 10) : 3;
    if (depth && (*end || end == depth || errno || n < 0 || n > 64))
        return refuse("--depth wants a number from 0 to 64, not ", depth);
    r->depth = (int)n;
    return 0;
}

int main(int argc, char **argv)
{
    request r = { 0 };
    const int status = parse(&r, argc, argv);
    if (status) return status;
    if (r.help) {
        fputs(help, stdout);
        return 0;
    }
    if ((r.summary != NULL) + (r.params != NULL) + (r.prefix || r.filter) > 1)
        return refuse("--summary, --params and a list of models exclude each other", "");
    if (r.summary) return model_summary(&(summary_opts){ r.summary, r.depth, r.fold, r.json });
    if (r.params) return model_params(r.params);
    return model_list(&(list_opts){ r.prefix, r.filter, r.json });
}
