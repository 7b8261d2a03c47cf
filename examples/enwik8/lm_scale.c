/* lm_scale.c - `enwik8 scale`: time and memory of a training step by model, batch and length of the
 * segment (Zhu et al. 2021, Figure 3). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "costs/costs.h"
#include "enwik8.h"
#include "reports/lists.h"

enum { BATCHES = 8, AS_SEGMENT = -1 };

/* ---- a step on noise ---- */

typedef struct world {
    const lm_kind *kind;
    tp_model_cfg cfg;
    int64_t batch, tokens;
    tp_net *m;
    void *cache;
    int32_t *x; /* [B,M] */
} world;

static bool build(void *of, cost_world *w, char *why, size_t size)
{
    world *a = of;
    const int64_t n = a->batch * a->tokens, vocab = tp_model_get(&a->cfg).outputs;
    tp_train_settings train = tp_train_defaults(NULL);
    tp_random r = tp_random_stream(1, "scale", 0, 0);
    a->m = tp_net_new(w->P, "", &a->cfg);
    tp_train_choose(&train, a->kind->optimizer);
    w->O = tp_train_optimizer(w->P, &train, a->kind->raw_eps, NULL, NULL);
    if (!tp_params_ok(w->P) || !tp_optim_ok(w->O)) return false;
    a->cache = tp_net_state_new(a->m);
    a->x = malloc((size_t)n * sizeof *a->x);
    if (!a->cache || !a->x) {
        snprintf(why, size, "out of memory");
        return false;
    }
    for (int64_t i = 0; i < n; i++) a->x[i] = (int32_t)tp_random_below(&r, vocab);
    return true;
}

static tp_tensor take(void *of, cost_world *w)
{
    const world *a = of;
    const tp_tensor x = tp_from(w->T, TP_I32, TP_SHAPE(a->batch, a->tokens), a->x);
    const tp_tensor logits = tp_net_forward(w->T, a->m, a->cache, x);
    return tp_cross_entropy(w->T, logits, x, TP_MEAN_ALL);
}

static void drop(void *of, cost_world *w)
{
    world *a = of;
    tp_net_state_free(a->m, w->T, a->cache);
    tp_net_free(a->m);
    free(a->x);
    a->cache = NULL, a->m = NULL, a->x = NULL;
}

/* ---- the command ---- */

typedef struct scale_settings {
    tp_machine_settings machine;
    cost_settings cost;
    int preset, recompute;
    char *models, *lengths, *batches;
    int64_t mem_len;
} scale_settings;

#define S scale_settings

static const tp_option options[] = {
    TP_HEADING("MODELS"),
    TP_CHOICE("preset", S, preset, PRESET_NAMES, 0,
              "The size of both models. small: the paper's 44M model and the Transformer-XL beside "
              "it."),
    TP_STRING("models", S, models, "LIST", 0,
              "Of ls, Transformer-LS, and txl, Transformer-XL, whose attention is full."),
    TP_STRING("lengths", S, lengths, "LIST", 0, "Tokens of a segment, separated by commas."),
    TP_STRING("batches", S, batches, "LIST", 0, "Streams of a batch, separated by commas."),
    TP_INT("mem-len", S, mem_len, AS_SEGMENT, 16777216, 0,
           "Tokens in the cache before a segment; -1: as many as in the segment."),
    TP_CHOICE("recompute", S, recompute, "none|attention|block", 0,
              "What backward recomputes instead of storing it."),
    OPTIONS_COSTS(S, cost),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "enwik8 scale",
    .summary = "measures time and memory by the length of a segment",
    .synopsis = "[--preset NAME] [--models LIST] [--lengths LIST] [--batches LIST] [flag ...]",
    .about =
        "Takes training steps (forward, backward, update) or forward passes of untrained models on "
        "noise, with a full cache, and prints the median time of a step and its peak memory: "
        "Figure 3 of the Transformer-LS paper. The memory is counted on a device that does not "
        "compute, exactly and also where a step would take too long.",
    .table = options,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    enwik8 scale --preset tiny --lengths 256,512,1024,2048 --picture scale.png\n"
            "    enwik8 scale --dry --lengths 16384,65536,131072 --batches 1\n",
};

/* The preset with this segment and cache. False with a sentence in why if they do not fit it. */
static bool prepare(world *a, const scale_settings *s, int model, int64_t tokens, int64_t batch,
                    char *why, size_t size)
{
    char reason[512];
    *a = (world){ .kind = lm_kind_at(model), .batch = batch, .tokens = tokens };
    if (!lm_preset(&a->cfg, model, s->preset, why, size)) return false;
    tp_common_cfg c = tp_model_get(&a->cfg);
    c.cache = s->mem_len == AS_SEGMENT ? tokens : s->mem_len;
    c.recompute = (tp_recompute)s->recompute;
    tp_model_set(&a->cfg, &c);
    if (tp_model_check(&a->cfg, reason, sizeof reason) &&
        lm_segment_check(&a->cfg, "--lengths", tokens, reason, sizeof reason))
        return true;
    snprintf(why, size, "%s, segments of %lld tokens: %s", a->kind->name, (long long)tokens,
             reason);
    return false;
}

/* Segments until a cache that grows is full, and the optimiser has its moments. */
static int warm_steps(const world *a)
{
    return 1 + (int)(tp_model_get(&a->cfg).cache / a->tokens);
}

static bool print(const scale_settings *s, const world *a, const cost_series *y, char *why,
                  size_t size)
{
    const int64_t cache = tp_model_get(&a->cfg).cache;
    char left[120];
    snprintf(left, sizeof left, "%-15s %6lld %9lld", a->kind->name, (long long)a->batch,
             (long long)a->tokens);
    return cost_print(y, &s->cost, left,
                      json_pack("{s:s,s:I,s:I,s:I}", "model", a->kind->name, "batch",
                                (json_int_t)a->batch, "tokens", (json_int_t)a->tokens, "cache",
                                (json_int_t)cache),
                      why, size);
}

/* Measures one model and batch at all lengths. */
static bool measure(const scale_settings *s, cost_series *y, int model, int64_t batch,
                    const number_list *length, char *why, size_t size)
{
    static world a;
    for (int k = 0; k < length->n && !tp_stop_signal(); k++) {
        if (!prepare(&a, s, model, length->at[k], batch, why, size)) return false;
        const cost_step step = { &a, build, take, drop, warm_steps(&a) };
        if (!cost_measure(y, (double)length->at[k], &step, &s->machine, &s->cost, why, size))
            return false;
        if (!tp_stop_signal() && !print(s, &a, y, why, size)) return false;
    }
    return true;
}

static bool draw(const scale_settings *s, const cost_series *y, int n, char *why, size_t size)
{
    char note[300], cache[60] = "as many cached";
    if (s->mem_len != AS_SEGMENT)
        snprintf(cache, sizeof cache, "%lld cached", (long long)s->mem_len);
    snprintf(note, sizeof note,
             "Untrained models, preset %s, on noise, %s; %s tokens before a segment.",
             lm_preset_name(s->preset), s->machine.device, cache);
    return cost_draw(y, n, &s->cost,
                     (cost_picture){ "the length of a segment", note, "tokens of a segment" }, why,
                     size);
}

static bool run(void *options_of_run, char *why, size_t size)
{
    enum { MODELS = 2, DASHED = 9 /* the line of the same colour */ };
    const scale_settings *s = options_of_run;
    static cost_series y[MODELS * BATCHES];
    choice_list model = { .words = "ls|txl" };
    number_list length = { 1, 16777216, .room = COST_SIZES }, batch = { 1, 65536, .room = BATCHES };
    if (!list_choices(&model, "models", s->models, why, size) ||
        !list_numbers(&length, "lengths", s->lengths, why, size) ||
        !list_numbers(&batch, "batches", s->batches, why, size))
        return false;
    tp_catch_signals();
    cost_print_heading(&s->cost, "model            batch    tokens");
    for (int i = 0; i < model.n; i++)
        for (int b = 0; b < batch.n; b++) {
            cost_series *at = &y[i * batch.n + b];
            snprintf(at->name, sizeof at->name, "%s, batch %lld", lm_kind_at(model.at[i])->name,
                     (long long)batch.at[b]);
            at->line = 1 + b + (model.at[i] == 0 ? 0 : DASHED);
            if (!measure(s, at, model.at[i], batch.at[b], &length, why, size)) return false;
        }
    return !s->cost.picture || tp_stop_signal() || draw(s, y, model.n * batch.n, why, size);
}

int scale_main(int argc, char **argv)
{
    scale_settings s = {
        .machine = { .device = strdup("cpu") },
        .cost = COST_DEFAULTS,
        .preset = PRESET_SMALL,
        .models = strdup("ls,txl"),
        .lengths = strdup("1024,2048,4096,8192,16384"),
        .batches = strdup("1,2,4"),
        .mem_len = AS_SEGMENT,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
