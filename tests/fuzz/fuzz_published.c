/* fuzz_published.c - the descriptions beside published weights. The first letter names the file:
 *
 *     t    config.json of RoBERTa or Longformer
 *     g    config.json of GPT-2 or Llama
 *     a    adapter_config.json of peft
 *
 * What is refused has a reason that names the file. An accepted model is possible, can be declared,
 * and reads back from a checkpoint as itself; an accepted adaptation can be applied. */
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/gpt.h>
#include <tapegrad/lora.h>
#include <unistd.h>

#include "imdb.h"
#include "reports/configs.h"

enum { WHY = 8192, WIDTH = 8, RANK = 4 };

#define WEIGHTS "adapter.safetensors"
#define MODEL   "model.safetensors"

static char folder[64] = "";
static tp_device *D;
static tp_params *base; /* what is adapted */

static void remove_folder(void)
{
    unlink(fuzz_in(folder, WEIGHTS));
    unlink(fuzz_in(folder, MODEL));
    rmdir(folder);
}

/* Adaptations of one module, as peft writes them: without alpha. */
static void write_adapter(void)
{
    static const float value[WIDTH * RANK] = { 1 };
    tp_writer *W = tp_writer_new(fuzz_in(folder, WEIGHTS));
    tp_writer_add(W, "base_model.model.fc.lora_A.weight", TP_F32, TP_SHAPE(RANK, WIDTH), value,
                  false);
    tp_writer_add(W, "base_model.model.fc.lora_B.weight", TP_F32, TP_SHAPE(WIDTH, RANK), value,
                  false);
    fuzz_demand(tp_writer_commit(W), tp_writer_why(W));
    tp_writer_free(W);
}

static void begin(void)
{
    fuzz_make_folder(folder);
    atexit(remove_folder);
    D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    base = tp_params_new(D, NULL);
    tp_param(base, "fc.weight", TP_SHAPE(WIDTH, WIDTH), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    write_adapter();
}

static void demand_reason(bool done, const char *why, const char *file)
{
    fuzz_demand_reason(done, why);
    fuzz_demand(done || strstr(why, file), "a reason names the file");
}

/* Heads divide the width, and all classes have different names or none. */
static void roberta(const tp_file *weights, size_t n)
{
    char why[WHY] = "";
    tp_roberta_cfg c = { .dim = 24,
                         .heads = 4,
                         .rank = 8,
                         .window = 16,
                         .classes = 2,
                         .head = TP_ROBERTA_CLS,
                         .kind = n % 2 ? TP_ROBERTA_LONGFORMER : TP_ROBERTA_FULL };
    class_list l = { 0 };
    demand_reason(published_config(&c, weights, why, sizeof why), why, "config.json");
    fuzz_demand(c.heads > 0 && c.dim % c.heads == 0 && c.window > 0, "heads divide the width");
    why[0] = '\0';
    tp_file *F = tp_file_open(tp_file_path(weights));
    demand_reason(model_classes(&l, &c, F, why, sizeof why), why, "config.json");
    fuzz_demand(why[0] || l.n == 0 || (l.n == 2 && strcmp(l.name[0], l.name[1]) != 0),
                "classes have names of their own");
    class_list_free(&l);
    tp_file_close(F);
}

static void read_back(const tp_model_cfg *c)
{
    char why[WHY] = "";
    tp_model_cfg again;
    tp_writer *W = tp_writer_new(fuzz_in(folder, MODEL));
    tp_model_write(c, W);
    fuzz_demand(tp_writer_commit(W), tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(fuzz_in(folder, MODEL));
    fuzz_demand(tp_model_read(&again, F, why, sizeof why), why);
    fuzz_demand(tp_model_same(c, &again), "a model reads back as itself");
    tp_file_close(F);
}

static void gpt(const tp_file *weights)
{
    char why[WHY] = "";
    tp_model_cfg c;
    const bool done = config_gpt(&c, weights, why, sizeof why);
    demand_reason(done, why, "config.json");
    if (!done || !c.model) return;
    fuzz_demand(tp_model_check(&c, why, sizeof why), why);
    const tp_cost cost = tp_model_cost(&c, 1, 0);
    fuzz_demand(isfinite(cost.macs) && cost.macs >= 0, "a cost is a number");
    tp_params *P = tp_params_new(D, NULL);
    tp_net *m = tp_net_new(P, "", &c);
    fuzz_demand_reason(tp_params_ok(P), tp_params_why(P));
    fuzz_demand(!tp_params_ok(P) || tp_params_count(P) > 0, "a model has parameters");
    tp_net_free(m);
    tp_params_free(P);
    read_back(&c);
}

static void adapter(void)
{
    char why[WHY] = "";
    double alpha;
    tp_file *F = tp_file_open(fuzz_in(folder, WEIGHTS));
    const bool done = config_adapter(F, &alpha, why, sizeof why);
    demand_reason(done, why, "adapter_config.json");
    fuzz_demand(!done || tp_lora_apply(base, F, alpha), tp_params_why(base));
    tp_file_close(F);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (!size) return 0;
    if (!folder[0]) begin();
    char path[160];
    const bool adapts = input[0] == 'a';
    snprintf(path, sizeof path, "%s",
             fuzz_in(folder, adapts ? "adapter_config.json" : "config.json"));
    fuzz_write(path, input + 1, size - 1);
    tp_file *F = tp_file_open(fuzz_in(folder, "none.safetensors"));
    if (input[0] == 't') roberta(F, size);
    if (input[0] == 'g') gpt(F);
    if (adapts) adapter();
    tp_file_close(F);
    unlink(path);
    return 0;
}
