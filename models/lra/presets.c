/* presets.c - the encoders of the paper's tables by name, "lra-TASK-ATTENTION". */
#include <stdio.h>
#include <string.h>

#include "inner.h"

/* Tables 7 to 10 of Transformer-LS: the windows and ranks that were best for each task, 0, 0: not
 * published. */
static const struct {
    const char *name;
    int64_t length, classes, best_window, best_rank, dp_rank;
    double dropout;
    bool pair;
} tasks[] = {
    { "listops", 2048, 10, 16, 2, 4, 0.0, false },    { "text", 4096, 2, 1, 1, 128, 0.0, false },
    { "retrieval", 4096, 2, 1, 254, 256, 0.1, true }, { "image", 1024, 10, 0, 0, 0, 0.1, false },
    { "pathfinder", 1024, 2, 0, 0, 0, 0.1, false },
};

enum { BEST = -1, DP = -2 }; /* of a rank: the task's */

static const struct {
    const char *name;
    tp_lra_kind kind;
    int64_t rank, window, conv;
    bool fixed;
} attentions[] = {
    { "softmax", TP_LRA_SOFTMAX, 0, 0, 0, false },
    { "linformer", TP_LRA_LINFORMER, 256, 0, 0, false },
    { "performer", TP_LRA_PERFORMER, 256, 0, 0, false },
    { "nystrom", TP_LRA_NYSTROM, 128, 0, 0, false },
    { "nystrom-conv", TP_LRA_NYSTROM, 128, 0, 35, false },
    { "reformer", TP_LRA_REFORMER, 0, 0, 0, false },
    { "linear", TP_LRA_LINEAR, 0, 0, 0, false },
    { "none", TP_LRA_NONE, 0, 0, 0, false },
    { "ls", TP_LRA_LS, 32, 8, 0, false },
    { "ls-linformer", TP_LRA_LS, 32, 8, 0, true },
    { "ls-best", TP_LRA_LS, BEST, 0, 0, false },
    { "dp", TP_LRA_LS, DP, 0, 0, false },
};

enum { TASKS = sizeof tasks / sizeof *tasks, ATTENTIONS = sizeof attentions / sizeof *attentions };

/* Their numbers in the tables; false: the name is no "lra-TASK-ATTENTION". */
static bool parse(const char *name, int *task, int *attention)
{
    if (strncmp(name, "lra-", 4) != 0) return false;
    const size_t n = strcspn(name + 4, "-");
    const char *rest = name + 4 + n;
    *task = *attention = -1;
    for (int i = 0; i < TASKS; i++)
        if (strlen(tasks[i].name) == n && strncmp(tasks[i].name, name + 4, n) == 0) *task = i;
    for (int i = 0; i < ATTENTIONS; i++)
        if (*rest && strcmp(attentions[i].name, rest + 1) == 0) *attention = i;
    return *task >= 0 && *attention >= 0 &&
           (attentions[*attention].rank >= 0 || tasks[*task].dp_rank > 0);
}

bool tp__lra_preset(void *cfg, const char *name, char *why, size_t size)
{
    int t, a;
    if (!parse(name, &t, &a)) {
        snprintf(why, size, "no LRA encoder is called '%.80s'", name);
        return false;
    }
    int64_t rank = attentions[a].rank, window = attentions[a].window;
    if (rank == BEST) {
        rank = tasks[t].best_rank;
        window = tasks[t].best_window;
    }
    if (rank == DP) rank = tasks[t].dp_rank;
    *(tp_lra_cfg *)cfg =
        (tp_lra_cfg){ .attn = { .kind = attentions[a].kind,
                                .dim = 64,
                                .heads = 2,
                                .length = tasks[t].length,
                                .rank = rank,
                                .window = window,
                                .conv = attentions[a].conv,
                                .fixed = attentions[a].fixed,
                                .dropout = tasks[t].dropout },
                      .layers = 2,
                      .hidden = 128,
                      .vocab = 512,
                      .classes = tasks[t].classes,
                      .pooling = attentions[a].kind == TP_LRA_LS ? TP_LRA_CLS_LAST : TP_LRA_MEAN,
                      .dropout = tasks[t].dropout,
                      .pair = tasks[t].pair };
    return true;
}
