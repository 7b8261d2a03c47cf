/* fuzz_config.c - the configuration of a run, as text. The first letter names the kind of lines:
 *
 *     a    arguments of `enwik8 train`
 *     m    "key=value" each: metadata of a checkpoint
 *
 * Arguments go through the table of options, the presets and the model's checks. Metadata go
 * through the readers of settings and model configurations (language models, and every model of the
 * table), and into loading a language model, which must refuse sizes that the file does not hold
 * before it allocates memory for them. Two more things must hold: a printed setting reads back as
 * itself, and an accepted configuration stays accepted. */
#include "fuzz.h"

#include <jansson.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enwik8.h"

enum { ARGUMENTS = 64, WHY = 4096 };

static const tp_command train = {
    .name = "train", .summary = "", .synopsis = "", .about = "", .table = train_options
};

/* Checks that every printed setting reads back. */
static void print_and_read(const settings *s)
{
    const tp_option *row[TP_MAX_OPTIONS];
    const int n = tp_options_list(train_options, row);
    settings back = { 0 };
    char text[WHY], again[WHY], why[WHY];
    for (int i = 0; i < n; i++) {
        if (row[i]->kind == TP_OPTION_HEADING) continue;
        tp_option_get(row[i], s, text, sizeof text);
        /* A text not given is not stored; unset defaults may be out of range. */
        if (!tp_option_set(row[i], &back, text, why, sizeof why)) continue;
        tp_option_get(row[i], &back, again, sizeof again);
        fuzz_demand(strcmp(text, again) == 0, "a setting reads back");
    }
    tp_options_free(train_options, &back);
}

/* Wider models only take longer, since each computes a table of frequencies. */
static bool is_quick(const tp_model_cfg *cfg)
{
    settings s = { 0 };
    if (cfg->model->input != TP_TOKENS) return true;
    lm_cfg_into(cfg, &s);
    return s.dim <= 1 << 16;
}

/* Declaring a model allocates no memory for its values. */
static void declare(tp_device *D, const tp_model_cfg *cfg)
{
    char why[WHY];
    tp_params *P = tp_params_new(D, NULL);
    if (is_quick(cfg) && tp_model_check(cfg, why, sizeof why)) {
        tp_net *m = tp_net_new(P, "", cfg);
        fuzz_demand_reason(tp_params_ok(P), tp_params_why(P));
        fuzz_demand(!tp_params_ok(P) || tp_params_count(P) > 0, "a model has parameters");
        tp_net_free(m);
    }
    tp_params_free(P);
}

/* ---- arguments ---- */

static void arguments(tp_device *D, char *text)
{
    char *argv[ARGUMENTS], why[WHY];
    int argc = 0;
    settings s = { .phase = 1 }, copy;
    tp_given_flags given;
    if (!settings_preset(&s, why, sizeof why)) return;
    for (char *word = strtok(text, "\n"); word && argc < ARGUMENTS; word = strtok(NULL, "\n"))
        argv[argc++] = word;
    const int status = tp_options_parse(&train, argc, argv, &s, &given);
    fuzz_demand(status == TP_PARSED || status == 0 || status == 2, "parsing has three ends");
    if (status == TP_PARSED) {
        print_and_read(&s);
        copy = s;
        tp_options_copy(train_options, &copy, &s);
        fuzz_demand(!tp_options_differ(train_options, &s, &copy, ~0u, NULL, why, sizeof why),
                    "a copy is equal");
        const tp_model_cfg cfg = lm_cfg_of(&s, 208);
        declare(D, &cfg);
        settings_preset(&copy, why, sizeof why);
        tp_options_differ(train_options, &s, &copy, ~0u, &given, why, sizeof why);
        tp_options_free(train_options, &copy);
    }
    tp_options_free(train_options, &s);
}

/* ---- metadata ---- */

/* Makes a safetensors file without tensors. The lines of the text are its metadata. */
static const char *metadata_file(char *text)
{
    json_t *meta = json_object();
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char *value = strchr(line, '=');
        if (!value) continue;
        *value++ = '\0';
        json_object_set_new(meta, line, json_string(value)); /* not UTF-8: left out */
    }
    json_t *root = json_pack("{s:o}", "__metadata__", meta);
    char *header = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!header) return NULL;
    const uint64_t length = strlen(header);
    char *file = malloc(8 + (size_t)length);
    const char *path = NULL;
    if (file) {
        memcpy(file, &length, 8);
        memcpy(file + 8, header, (size_t)length);
        path = fuzz_path(file, 8 + (size_t)length);
    }
    free(file);
    free(header);
    return path;
}

static void read_settings(const char *path)
{
    settings s = { 0 };
    char why[WHY] = "";
    tp_file *F = tp_file_open(path);
    const bool done = tp_file_ok(F) && tp_options_read(train_options, &s, F, why, sizeof why);
    fuzz_demand(done || !tp_file_ok(F) || why[0], "refused settings have a reason");
    if (done) print_and_read(&s);
    tp_options_free(train_options, &s);
    tp_file_close(F);
}

/* Configurations of any model. Document encoders are also run and declared; image models would take
 * too long. */
static void read_any(tp_device *D, const char *path)
{
    tp_model_cfg cfg;
    char why[WHY] = "";
    tp_file *F = tp_file_open(path);
    const bool done = tp_model_read(&cfg, F, why, sizeof why);
    fuzz_demand_reason(done, why);
    if (done) fuzz_demand(tp_model_check(&cfg, why, sizeof why), "what was read is possible");
    if (done && cfg.model->input == TP_DOCUMENTS) {
        const tp_cost f = tp_model_cost(&cfg, 0, 0);
        fuzz_demand(f.macs >= 0.0 && isfinite(f.macs) && isfinite(f.paper), "a cost is a number");
        fuzz_demand(isfinite(f.saved), "memory is a number");
        declare(D, &cfg);
    }
    tp_file_close(F);
}

static void read_model(tp_device *D, const char *path)
{
    tp_model_cfg cfg;
    char why[WHY] = "";
    tp_file *F = tp_file_open(path);
    const bool done = lm_cfg_read(&cfg, F, why, sizeof why);
    fuzz_demand_reason(done, why);
    if (done) {
        fuzz_demand(tp_model_check(&cfg, why, sizeof why), "what was read is possible");
        tp_model_cost(&cfg, 0, 0);
        declare(D, &cfg);
    }
    tp_file_close(F);
}

/* The file holds no tensor: loading it as any model is refused. */
static void load_model(const char *path)
{
    static char cpu[] = "cpu";
    const tp_machine_settings machine = { .device = cpu, .dtype = TP_F32, .threads = 1 };
    static lm_file f;
    if (lm_file_open(&f, &(lm_source){ .t.checkpoint = (char *)(uintptr_t)path })) {
        fuzz_demand(!is_quick(&f.cfg) || !lm_file_load(&f, &machine),
                    "missing weights are refused");
        lm_file_close(&f);
    }
    fuzz_demand(f.t.why[0] || !is_quick(&f.cfg), "a refused file has a reason");
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static tp_device *D;
    static FILE *nowhere;
    if (!D) D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    if (!nowhere) nowhere = fopen("/dev/null", "w");
    char *text = malloc(size + 1);
    if (!text || !size || !nowhere) {
        free(text);
        return 0;
    }
    memcpy(text, input, size);
    text[size] = '\0';
    if (text[0] == 'a') {
        FILE *const out = stdout, *const err = stderr;
        stdout = stderr = nowhere; /* help and refusals */
        arguments(D, text + 1);
        stdout = out;
        stderr = err;
    } else if (text[0] == 'm') {
        const char *path = metadata_file(text + 1);
        if (path) {
            read_settings(path);
            read_model(D, path);
            read_any(D, path);
            load_model(path);
        }
    }
    free(text);
    return 0;
}
