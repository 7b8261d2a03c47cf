/* gpt_merge.c - `gpt merge`: writes a model whose weights include its low-rank adaptations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/options.h>

#include "gpt.h"

typedef struct merge_settings {
    gpt_source c; /* first */
    char *output;
} merge_settings;

#define S merge_settings

static const tp_option table[] = {
    TP_HEADING("MODEL"),
    OPTIONS_TRAINED(S),
    TP_STRING("output", S, output, "FILE", 0, "The file to write."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "gpt merge",
    .summary = "writes a model with its low-rank adaptations in the weights",
    .synopsis = "--output FILE [--run-dir DIR | --checkpoint FILE] [--adapter FILE] [flag ...]",
    .about = "Adds the adaptations of a run of 'gpt train --lora', or those of --adapter, to the "
             "weights, and writes a checkpoint that needs neither. It has the model's description "
             "and vocabulary, and names that transformers use, but for GPT-2's c_attn.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    gpt merge --run-dir runs/tuned --output tuned.safetensors\n"
            "    gpt merge --checkpoint gpt2/model.safetensors \\\n"
            "        --adapter adapter.safetensors --output tuned.safetensors\n",
};

/* Adds copies of the weights without adaptations. */
static bool add_weights(gpt_file *f, tp_writer *W)
{
    for (tp_param_info it = { 0 }; tp_next_param(f->t.P, &it);) {
        if (it.alias_of || tp_lora_is_name(it.name)) continue;
        const size_t bytes = (size_t)tp_numel(it.tensor) * tp_dtype_size(it.dtype);
        void *values = malloc(bytes ? bytes : 1);
        if (!values) return tp_trained_fail(&f->t, "%s: out of memory", it.name);
        const bool got = tp_param_get(f->t.P, it.tensor, it.dtype, values, bytes);
        if (got) tp_writer_add(W, it.name, it.dtype, it.shape, values, true);
        free(values);
        if (!got) return tp_trained_fail(&f->t, "%s", tp_params_why(f->t.P));
    }
    return true;
}

static bool write_model(gpt_file *f, const char *output)
{
    tp_writer *W = tp_writer_new(output);
    tp_writer_finite(W);
    tp_writer_meta(W, "format", "pt");
    tp_model_write(&f->cfg, W);
    tokenizer_write(f->vocab, W);
    tp_writer_meta_int(W, "window", f->window);
    const bool done = add_weights(f, W) &&
                      (tp_writer_commit(W) || tp_trained_fail(&f->t, "%s", tp_writer_why(W)));
    tp_writer_free(W);
    return done;
}

static bool merge(gpt_file *f, const merge_settings *s)
{
    if (!s->output) return tp_trained_fail(&f->t, "--output FILE is required: the file to write");
    if (!gpt_file_open(f, &s->c) || !gpt_file_load(f, &s->c.t.machine)) return false;
    if (tp_lora_count(f->t.P) == 0 && !s->c.adapter)
        return tp_trained_fail(&f->t, "%s has no adaptations; name some with --adapter", f->t.path);
    if (tp_lora_count(f->t.P) > 0 && !tp_lora_merge(f->t.P))
        return tp_trained_fail(&f->t, "%s", tp_params_why(f->t.P));
    return write_model(f, s->output);
}

static bool run(void *options, char *why, size_t size)
{
    gpt_file f = { 0 };
    const bool done = merge(&f, options);
    snprintf(why, size, "%s", f.t.why);
    gpt_file_close(&f);
    return done;
}

int gpt_merge_main(int argc, char **argv)
{
    merge_settings s = {
        .c.t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/gpt") },
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
