/* count_launches.c - counts, without a GPU, what a training step asks of one: launches by kernel
 * and by op, products, copies, allocations (scripts/count-launches.sh, --help).
 *
 * The steps are those of bench_models with clipping, in bf16 unless --dtype says otherwise; the
 * emulated GPU counts them and executes nothing (counts.h). A recorded step is one launch, between
 * the uploads of what changes from step to step.
 *
 * The test of this name compares the counts of all models with budgets.txt, and the kernels that
 * attention in bf16 falls back to with fallbacks.txt. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/options.h>

#include "bench/detector_steps.h"
#include "bench/model_steps.h"
#include "budgets.h"
#include "counts.h"
#include "emulation.h"
#include "tensor/backend.h"

/* Steps with a batch size have a budget. The others reach, with little to initialise, the attention
 * ops and sizes of the remaining models. */
static const struct {
    const char *name;
    int64_t tokens;
    int batch;
} chosen[] = {
    { "ls_lm-small", 2048, 8 },
    { "vil-tiny", 0, 64 },
    { "resnet-50", 0, 64 },
    { "roberta-base", 512, 8 },
    { "mask-rcnn-resnet50", 0, 2 },
    { .name = "ls_lm-tiny" },
    { .name = "ls_lm-mini" },
    { .name = "txl-tiny" },
    { .name = "txl-mini" },
    { .name = "roberta-mini" },
    { .name = "longformer-mini" },
    { .name = "roberta_ls-mini" },
    { .name = "lra-text-softmax" },
    { .name = "lra-text-linformer" },
    { .name = "lra-text-performer" },
    { .name = "lra-text-nystrom" },
    { .name = "lra-text-reformer" },
    { .name = "lra-text-linear" },
    { .name = "lra-text-ls" },
    { .name = "lra-retrieval-ls" },
    { .name = "lra-retrieval-dp" },
    { .name = "lra-image-ls" },
    { .name = "lra-pathfinder-ls" },
    { .name = "lra-pathfinder-softmax" },
    { .name = "vil-tiny-ape" },
    { .name = "vil-tiny-1-10-1-full" },
    { .name = "vil-tiny-1-10-1-linformer" },
    { .name = "vil-tiny-1-10-1-sra64" },
    { .name = "cvt-small" },
    { .name = "cvt-ls-small" },
    { .name = "cvt-ls-13" },
    { .name = "vit-lsla" },
    { .name = "swin-mini" },
    { .name = "cswin-mini" },
    { .name = "coat_lite-tiny" },
    { .name = "mpvit-t" },
    { .name = "pvt-mini" },
    { .name = "pvt2-b0" },
};
enum { CHOSEN = sizeof chosen / sizeof *chosen, SIDE = 320, WARM_UP = 2 };

/* ---- counting ---- */

static const tp_backend *inner;
static const count_line *lines;
static size_t n_lines;

static tp_code ran(tp_device *D, const char *op, bool backward)
{
    counts_op(op, backward);
    return inner->ran ? inner->ran(D, op, backward) : TP_OK;
}

/* Just before the step and after it. */
static void mark(void)
{
    static bool inside;
    if (inside)
        n_lines = counts_list(&lines);
    else
        counts_clear();
    inside = !inside;
}

static tp_device *open_counted(void)
{
    static tp_backend counted;
    tp_device *D = tp_device_open("cuda", NULL);
    if (!D->be) return D;
    counted = *(inner = D->be);
    counted.ran = ran;
    D->be = &counted;
    return D;
}

/* Counts one step after warm-up ones. False if it failed, with a message. */
static bool count_step(const setup *s)
{
    double seconds[MAX_STEPS];
    tp_device *D = open_counted();
    const bool done = take_steps(D, s, TP_NONE, seconds);
    tp_device_close(D);
    return done;
}

/* The same for a detector. Its predictions are zeros, so each step has the same regions. */
static bool count_detector_step(const tp_detector_cfg *c, const setup *s, char *why, size_t size)
{
    detector_rig r;
    bool done = detector_rig_new(&r, open_counted(), c, s->dtype, SIDE, s->batch);
    if (done) {
        for (int i = 0; i < WARM_UP; i++) detector_train_step(&r);
        mark();
        detector_train_step(&r);
        mark();
        done = detector_sound(&r);
    }
    snprintf(why, size, "%s", detector_why(&r));
    detector_rig_free(&r);
    return done;
}

static uint64_t calls(count_kind kind)
{
    uint64_t n = 0;
    for (size_t i = 0; i < n_lines; i++)
        if (lines[i].kind == kind) n += lines[i].calls;
    return n;
}

static double amount(count_kind kind)
{
    double sum = 0.0;
    for (size_t i = 0; i < n_lines; i++)
        if (lines[i].kind == kind) sum += (double)lines[i].amount;
    return sum;
}

/* ---- tables ---- */

static void print_head(void)
{
    printf("%-22s %-8s %8s %6s %9s %8s %6s %7s %8s %7s %6s %6s\n", "model", "batch", "kernels",
           "small", "products", "launches", "fills", "copies", "uploads", "MB", "allocs", "waits");
}

static void print_totals(const setup *s)
{
    char batch[32];
    unsigned long long few = 0;
    for (size_t i = 0; i < n_lines; i++) few += lines[i].few;
    snprintf(batch, sizeof batch, s->tokens ? "%dx%lld" : "%d", s->batch, (long long)s->tokens);
    printf("%-22s %-8s %8llu %6llu %9llu %8llu %6llu %7llu %8llu %7.2f %6llu %6llu\n", s->name,
           batch, (unsigned long long)calls(COUNT_KERNEL), few,
           (unsigned long long)calls(COUNT_PRODUCT), (unsigned long long)calls(COUNT_LAUNCH),
           (unsigned long long)calls(COUNT_FILL), (unsigned long long)calls(COUNT_COPY),
           (unsigned long long)calls(COUNT_UPLOAD), amount(COUNT_UPLOAD) * 1e-6,
           (unsigned long long)calls(COUNT_ALLOCATION), (unsigned long long)calls(COUNT_WAIT));
}

static void print_lines(void)
{
    char name[KERNEL_NAME];
    for (size_t i = 0; i < n_lines; i++) {
        const count_line *l = &lines[i];
        printf("  %5llu  %-26s %-9s %s", (unsigned long long)l->calls, *l->op ? l->op : "-",
               l->backward ? "backward" : "",
               l->kind == COUNT_KERNEL ? l->name : tally_name(l, name));
        if (l->kind == COUNT_KERNEL)
            printf(", %.0f blocks\n", (double)l->amount / (double)l->calls);
        else if (l->kind == COUNT_PRODUCT)
            printf(" %s\n", l->name);
        else
            printf(", %llu bytes\n", (unsigned long long)l->amount);
    }
}

static int by_calls(const void *a, const void *b)
{
    const count_line *x = a, *y = b;
    return x->calls < y->calls ? 1 : x->calls > y->calls ? -1 : strcmp(x->name, y->name);
}

/* The calls of each op: kernels, products, fills, copies and uploads. */
static void print_ops(void)
{
    static count_line op[MOST_KERNELS];
    int n = 0;
    for (size_t i = 0; i < n_lines; i++) {
        const count_line *l = &lines[i];
        int k = 0;
        while (k < n && (strcmp(op[k].name, l->op) != 0 || op[k].backward != l->backward)) k++;
        if (k == MOST_KERNELS || l->kind == COUNT_WAIT) continue;
        if (k == n) op[n++] = (count_line){ .name = l->op, .backward = l->backward };
        op[k].calls += l->calls;
    }
    qsort(op, (size_t)n, sizeof *op, by_calls);
    for (int k = 0; k < n; k++)
        printf("  %5llu  %s%s\n", (unsigned long long)op[k].calls, *op[k].name ? op[k].name : "-",
               op[k].backward ? ", backward" : "");
}

static void print_attention(const setup *s, const tally *t)
{
    printf("%s\n", s->name);
    for (int i = 0; i < t->n; i++)
        printf("  %5llu  %s%s\n", (unsigned long long)t->at[i].calls, t->at[i].name,
               is_fallback(t->at[i].name) ? ", a fallback" : "");
}

/* ---- steps ---- */

typedef struct arguments {
    char *model, *files;
    int64_t tokens, batch;
    int dtype, graph, kernels, ops, attention, check, write;
} arguments;

/* Counts a step of a model; false with the reason in why. tokens and batch: 0 for the defaults. */
static bool step_of(setup *s, const arguments *a, const char *name, int64_t tokens, int64_t batch,
                    char *why, size_t size)
{
    tp_detector_cfg c;
    *s = (setup){ .name = name,
                  .device = "cuda",
                  .dtype = a->dtype ? TP_BF16 : TP_F32,
                  .batch = batch ? (int)batch : 1,
                  .steps = 1,
                  .clip = true,
                  .graph = a->graph,
                  .mark = mark };
    if (tp_detector_preset(&c, name, 90, TP_DETECTRON2, why, size))
        return count_detector_step(&c, s, why, size);
    if (!tp_model_preset(&s->model, name, why, size)) return false;
    tp_common_cfg o = tp_model_get(&s->model);
    s->tokens = tokens ? tokens : is_lm(s) ? o.cache : o.length;
    o.cache = o.length = s->tokens;
    tp_model_set(&s->model, &o);
    if (!tp_model_check(&s->model, why, size)) return false;
    snprintf(why, size, "%s: the step failed", name);
    return count_step(s);
}

static void print_step(const setup *s, const arguments *a)
{
    print_totals(s);
    if (a->ops) print_ops();
    if (a->kernels) print_lines();
}

/* The kernels of attention in the last step, and its products in f32. */
static tally attention_of_step(void)
{
    static count_line some[MOST_KERNELS];
    size_t n = 0;
    for (size_t i = 0; i < n_lines && n < MOST_KERNELS; i++)
        if ((lines[i].kind == COUNT_KERNEL && strstr(lines[i].op, "attention")) ||
            (lines[i].kind == COUNT_PRODUCT && strstr(lines[i].name, " f32")))
            some[n++] = lines[i];
    return tally_of(some, n);
}

/* The file of budgets or of fallbacks. */
typedef struct list {
    char path[PATH_MAX];
    FILE *file; /* NULL: it is not written */
} list;

static list list_of(const arguments *a, const char *name, const char *head)
{
    list l = { .file = NULL };
    snprintf(l.path, sizeof l.path, "%s/%s", a->files, name);
    if (a->write) l.file = fopen(l.path, "w");
    if (l.file) fputs(head, l.file);
    return l;
}

static bool list_done(const list *l, const arguments *a)
{
    return a->write ? l->file && fclose(l->file) == 0 : true;
}

/* Counts the chosen steps, prints them, and compares them with the files, or writes these. */
static bool count_chosen(const arguments *a, char *why, size_t size)
{
    const list budgets = list_of(a, "budgets.txt",
                                 "# The calls of a GPU in one training step: forward, backward, "
                                 "clipping, AdamW.\n"
                                 "# Written by scripts/count-launches.sh --write yes.\n");
    const list fallbacks = list_of(a, "fallbacks.txt",
                                   "# Kernels without tensor cores that attention falls back to in "
                                   "training.\n# Delete the lines of what is mended: "
                                   "scripts/count-launches.sh --check yes names them.\n");
    bool kept = true;
    if (!a->attention) print_head();
    for (int i = 0; i < CHOSEN; i++) {
        setup s;
        const int batch = chosen[i].batch;
        if (!batch && !a->attention && !a->check && !a->write) continue;
        if (!step_of(&s, a, chosen[i].name, chosen[i].tokens, batch, why, size)) return false;
        const tally all = tally_of(lines, n_lines), attention = attention_of_step();
        if (a->attention)
            print_attention(&s, &attention);
        else if (batch)
            print_step(&s, a);
        if (budgets.file && batch) budget_write(budgets.file, s.name, &all);
        if (fallbacks.file) fallbacks_write(fallbacks.file, s.name, &attention);
        if (a->check && batch) kept &= budget_keeps(budgets.path, s.name, &all);
        if (a->check) kept &= fallbacks_known(fallbacks.path, s.name, &attention);
    }
    snprintf(why, size,
             "A step makes more calls than %s allows, or falls back to kernels that are not in "
             "%s. If that is worth it, accept it by scripts/count-launches.sh --write yes.",
             budgets.path, fallbacks.path);
    kept &= list_done(&budgets, a);
    kept &= list_done(&fallbacks, a);
    return kept;
}

/* ---- arguments ---- */

#define S   arguments
#define YES "no|yes"

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_STRING("model", S, model, "NAME", 0,
              "Any model or detector that tp-models lists; default: those that have a budget."),
    TP_INT("tokens", S, tokens, 0, 1 << 24, 0, "Tokens of a segment or document; 0: the model's."),
    TP_INT("batch", S, batch, 0, 65536, 0, "Batch size; 0: 1."),
    TP_CHOICE("dtype", S, dtype, "f32|bf16", 0, "Element type of matrix products."),
    TP_CHOICE("graph", S, graph, YES, 0, "Count the launch of a recorded step (--model)."),
    TP_CHOICE("kernels", S, kernels, YES, 0, "List the kernels, products and copies of each op."),
    TP_CHOICE("ops", S, ops, YES, 0, "List the ops with the number of their calls."),
    TP_CHOICE("attention", S, attention, YES, 0,
              "List the attention kernels of each family of models instead."),
    TP_CHOICE("check", S, check, YES, 0, "Fail if a budget or the list of fallbacks is broken."),
    TP_CHOICE("write", S, write, YES, 0, "Write budgets and fallbacks as they are now."),
    TP_STRING("files", S, files, "FOLDER", 0, "Where budgets.txt and fallbacks.txt are."),
    { 0 },
};

static const tp_command manual = {
    .name = "count_launches",
    .summary = "counts the calls of a GPU in a training step",
    .about = "Needs no GPU: the emulation of CUDA counts calls and executes nothing, so steps may "
             "have any size. \"small\" are kernels with fewer blocks than an H100 has "
             "multiprocessors; \"launches\" are of recorded steps; \"MB\" is uploaded.",
    .table = table,
};

static bool start(void *options, char *why, size_t size)
{
    const arguments *a = options;
    setup s;
    emulation.counting = 1;
    emulation.memory = (size_t)1 << 40;
    if (*a->model) {
        if (!step_of(&s, a, a->model, a->tokens, a->batch, why, size)) return false;
        print_head();
        print_step(&s, a);
        return true;
    }
    return count_chosen(a, why, size);
}

int main(int argc, char **argv)
{
    arguments a = { .model = strdup(""),
                    .files = strdup(TP_SOURCE_DIR "/tests/cuda_emulation"),
                    .dtype = 1 };
    return tp_command_main(&manual, argc - 1, argv + 1, &a, start);
}
