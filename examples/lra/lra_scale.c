/* lra_scale.c - `lra scale`: time and memory of a training step by attention and document
 * length. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costs/costs.h"
#include "lra.h"
#include "reports/lists.h"

enum { DRAWN = 7 /* lengths */ };

/* ---- a step on noise without padding ---- */

typedef struct world {
    tp_lra_cfg cfg;
    int64_t batch;
    encoder m;
    doc_noise noise;
} world;

static bool build(void *of, cost_world *w, char *why, size_t size)
{
    world *s = of;
    const doc_noise_opts noise = { .n = s->batch,
                                   .length = s->cfg.attn.length,
                                   .first = 1,
                                   .ids = 16,
                                   .classes = 1,
                                   .documents = s->cfg.pair ? 2 : 1 };
    encoder_init(w->P, &s->m, &s->cfg, 1);
    w->O = tp_adamw_new(w->P, &(tp_adam_opts){ .eps = 1e-6 });
    if (!doc_noise_make(&s->noise, &noise)) {
        snprintf(why, size, "out of memory");
        return false;
    }
    return tp_params_ok(w->P) && tp_optim_ok(w->O);
}

static tp_tensor take(void *of, cost_world *w)
{
    const world *s = of;
    tp_tensor slot[DOC_SLOTS];
    doc_put(w->T, &s->noise.b, false, slot);
    return encoder_loss(w->T, &s->m, slot);
}

static void drop(void *of, cost_world *w)
{
    world *s = of;
    (void)w;
    encoder_free(&s->m);
    doc_noise_free(&s->noise);
}

/* What all measurements of a command share. */
typedef struct scale_opts {
    const tp_machine_settings *machine;
    const cost_settings *cost;
    int task;
    int64_t batch;
} scale_opts;

/* Measures one length, unless the attention does not fit it. False with the reason in why. */
static bool measure(cost_series *y, int64_t length, const scale_opts *o, char *why, size_t size)
{
    char name[120], unfit[512];
    tp_model_cfg m;
    world s = { .batch = o->batch };
    snprintf(name, sizeof name, "lra-%s-%.60s", tp_task_at(o->task)->name, y->name);
    if (!tp_model_preset(&m, name, why, size)) return false;
    memcpy(&s.cfg, &m.at, sizeof s.cfg);
    s.cfg.attn.length = length;
    if (!tp_model_lra.check(&s.cfg, unfit, sizeof unfit)) return true;
    return cost_measure(y, (double)length, &(cost_step){ &s, build, take, drop, .warm = 1 },
                        o->machine, o->cost, why, size);
}

/* ---- only memory ---- */

bool scale_draw_memory(int task, int n, const char *const *attention, const tp_machine_settings *m,
                       const char *path, char *why, size_t size)
{
    static cost_series y[ATTENTIONS];
    char file[4400];
    snprintf(file, sizeof file, "%s", path);
    const cost_settings cost = { .dry = true, .picture = file };
    const scale_opts o = { m, &cost, task, 1 };
    for (int i = 0; i < n; i++) {
        y[i] = (cost_series){ .n = 0 };
        snprintf(y[i].name, sizeof y[i].name, "%s", attention[i]);
        for (int k = 0; k < DRAWN; k++)
            if (!measure(&y[i], 1024 << k, &o, why, size)) return false;
    }
    return cost_draw(y, n, &cost,
                     (cost_picture){ "the length of a document",
                                     "Batch of 1, weights and moments included.", "tokens" },
                     why, size);
}

/* ---- the command ---- */

typedef struct scale_settings {
    tp_machine_settings machine;
    cost_settings cost;
    int task;
    char *attentions, *lengths;
    int64_t batch;
} scale_settings;

#define S scale_settings

static const tp_option options[] = {
    TP_HEADING("MODELS"),
    TP_CHOICE("task", S, task, TASK_NAMES, 0, "The task whose presets are measured."),
    TP_STRING("attentions", S, attentions, "LIST", 0, "Attentions, separated by commas."),
    TP_STRING("lengths", S, lengths, "LIST", 0, "Tokens of a document, separated by commas."),
    TP_INT("batch", S, batch, 1, 65536, 0, "Batch size, in examples."),
    OPTIONS_COSTS(S, cost),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "lra scale",
    .summary = "measures time and memory by the length of documents",
    .synopsis = "[--task NAME] [--attentions LIST] [--lengths LIST] [flag ...]",
    .about =
        "Takes training steps (forward, backward, update) or forward passes of untrained models on "
        "noise without padding and prints the median time of a step and its peak memory. The "
        "memory is counted on a device that does not compute, exactly and also where a step would "
        "take too long.",
    .table = options,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    lra scale --picture scale.png\n"
            "    lra scale --forward --lengths 1024,4096 --attentions softmax,ls\n"
            "    lra scale --dry --lengths 65536,1048576 --attentions softmax,ls\n",
};

static bool print(const scale_settings *s, const cost_series *y, char *why, size_t size)
{
    char left[120];
    const double tokens = y->x[y->n - 1];
    snprintf(left, sizeof left, "%-13.60s %8.0f", y->name, tokens);
    return cost_print(y, &s->cost, left,
                      json_pack("{s:s,s:s,s:f,s:I}", "task", tp_task_at(s->task)->name, "attention",
                                y->name, "tokens", tokens, "batch", (json_int_t)s->batch),
                      why, size);
}

static bool draw(const scale_settings *s, const cost_series *y, int n, char *why, size_t size)
{
    char note[300];
    snprintf(note, sizeof note, "Untrained models of %s on noise, %s, batch of %lld.",
             tp_task_at(s->task)->name, s->machine.device, (long long)s->batch);
    return cost_draw(y, n, &s->cost, (cost_picture){ "the length of documents", note, "tokens" },
                     why, size);
}

static bool run(void *settings, char *why, size_t size)
{
    const scale_settings *s = settings;
    static cost_series y[ATTENTIONS];
    choice_list attention = { .words = ATTENTION_NAMES };
    number_list length = { 1, TP_LRA_MAX_SIZE, .room = COST_SIZES };
    char left[120];
    if (!list_choices(&attention, "attentions", s->attentions, why, size) ||
        !list_numbers(&length, "lengths", s->lengths, why, size))
        return false;
    const scale_opts o = { &s->machine, &s->cost, s->task, s->batch };
    tp_catch_signals();
    snprintf(left, sizeof left, "%-13s %8s", tp_task_at(s->task)->name, "tokens");
    cost_print_heading(&s->cost, left);
    for (int i = 0; i < attention.n; i++) {
        snprintf(y[i].name, sizeof y[i].name, "%s", attention_name(attention.at[i]));
        for (int k = 0; k < length.n && !tp_stop_signal(); k++) {
            const int before = y[i].n;
            if (!measure(&y[i], length.at[k], &o, why, size)) return false;
            if (y[i].n > before && !print(s, &y[i], why, size)) return false;
        }
    }
    return !s->cost.picture || tp_stop_signal() || draw(s, y, attention.n, why, size);
}

int lra_scale_main(int argc, char **argv)
{
    scale_settings s = {
        .machine = { .device = strdup("cpu") },
        .cost = COST_DEFAULTS,
        .task = 1,
        .attentions = strdup("softmax,reformer,linformer,performer,nystrom,linear,none,ls,dp"),
        .lengths = strdup("1024,2048,4096,8192,16384,32768,65536"),
        .batch = 1,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
