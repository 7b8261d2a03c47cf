/* gpt_logits.c - logits of GPT-2 or Llama with published weights, for compare_published.py.
 *
 *     gpt_logits WEIGHTS f64|f32 PRESET KEY=VALUE,... forward|decode < TEXTS
 *
 * KEY=VALUE change members of the preset (tp_model_change). PRESET config: the model is the one
 * that the config.json beside the weights describes, and KEY=VALUE is ignored. TEXTS are numbers:
 * the number of texts, their length, ids. Writes the logits of each token to the standard output as
 * doubles. decode: all but the last four tokens at once, then one at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/gpt.h>

#include "reports/configs.h"

enum { MOST = 1 << 16, SINGLY = 4 };

typedef struct texts {
    int B, n;
    int32_t ids[MOST];
} texts;

static int complain(const char *why)
{
    fprintf(stderr, "gpt_logits: %s\n", why);
    return 1;
}

static bool read_texts(texts *x)
{
    if (scanf("%d %d", &x->B, &x->n) != 2 || x->B < 1 || x->n <= SINGLY || x->B > MOST / x->n)
        return false;
    for (int i = 0; i < x->B * x->n; i++)
        if (scanf("%d", &x->ids[i]) != 1) return false;
    return true;
}

/* ids [B,n] of the tokens from `from` on. */
static tp_tensor take(tp_tape *T, const texts *x, int from, int n)
{
    static int32_t some[MOST];
    for (int b = 0; b < x->B; b++)
        memcpy(some + b * n, x->ids + b * x->n + from, (size_t)n * sizeof *some);
    return tp_from(T, TP_I32, TP_SHAPE(x->B, n), some);
}

static tp_tensor decoded(tp_tape *T, const tp_gpt *m, const texts *x)
{
    tp_gpt_cache cache = { .room = x->n };
    tp_tensor z = tp_gpt_decode(T, m, &cache, take(T, x, 0, x->n - SINGLY));
    for (int i = x->n - SINGLY; i < x->n; i++)
        z = tp_concat(T, 1, z, tp_gpt_decode(T, m, &cache, take(T, x, i, 1)));
    tp_gpt_cache_free(T, &cache);
    return z;
}

static int run(const tp_model_cfg *cfg, char **argv, const texts *x)
{
    const tp_dtype real = strcmp(argv[2], "f64") == 0 ? TP_F64 : TP_F32;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = real, .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = real });
    tp_net *net = tp_net_new(P, "", cfg);
    tp_file *F = tp_file_open(argv[1]);
    int bad = 1;
    if (!tp_net_load(P, net, F, false)) {
        complain(tp_params_why(P));
    } else {
        const tp_gpt *m = tp_net_module(net);
        tp_record(T, false);
        const tp_tensor z =
            tp_cast(T,
                    strcmp(argv[5], "decode") == 0 ? decoded(T, m, x)
                                                   : tp_gpt_forward(T, m, take(T, x, 0, x->n)),
                    TP_F64);
        const size_t n = (size_t)tp_numel(z);
        double *to = calloc(n + 1, sizeof *to);
        if (to && tp_read(T, z, to, n * sizeof *to))
            bad = fwrite(to, sizeof *to, n, stdout) != n;
        else
            complain(tp_why(T));
        free(to);
    }
    tp_file_close(F);
    tp_net_free(net);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    return bad;
}

static bool choose(tp_model_cfg *cfg, char **argv, char *why, size_t size)
{
    if (strcmp(argv[3], "config") != 0)
        return tp_model_preset(cfg, argv[3], why, size) &&
               tp_model_change(cfg, argv[4], NULL, why, size);
    tp_file *F = tp_file_open(argv[1]);
    const bool done = config_gpt(cfg, F, why, size);
    tp_file_close(F);
    if (done && !cfg->model) snprintf(why, size, "there is no config.json");
    return done && cfg->model;
}

int main(int argc, char **argv)
{
    static texts x;
    tp_model_cfg cfg;
    char why[512];
    if (argc != 6) return complain("usage: WEIGHTS f64|f32 PRESET KEY=VALUE,... forward|decode");
    if (!choose(&cfg, argv, why, sizeof why)) return complain(why);
    if (!read_texts(&x)) return complain("the texts cannot be read");
    return run(&cfg, argv, &x);
}
