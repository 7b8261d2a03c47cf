/* model_decode.c - the time to generate a token with a language model, see model_steps.h. */
#include <stdio.h>
#include <tapegrad/lm.h>

#include "model_steps.h"
#include "timing.h"

enum { DECODED = 200, MOST_SYMBOLS = 1 << 16 };

/* Token t of a fixed sequence. */
static int64_t token(const setup *s, int64_t t)
{
    const int64_t vocab = tp_model_get(&s->model).outputs;
    return vocab > 4 ? 4 + t * 7 % (vocab - 4) : 0;
}

int decode(const setup *s)
{
    static const int64_t contexts[] = { 1024, 16384, 65536 };
    static double seconds[DECODED];
    static float logits[MOST_SYMBOLS];
    if (s->model.model != &tp_model_ls_lm || tp_model_get(&s->model).outputs > MOST_SYMBOLS) {
        fprintf(stderr, "bench_models: --generate needs a Transformer-LS language model\n");
        return 2;
    }
    tp_device *D = tp_device_open(s->device, &(tp_device_opts){ .threads = s->threads });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = s->dtype });
    tp_net *N = tp_net_new(P, "", &s->model);
    tp_ls_lm_decoder *d = tp_ls_lm_decoder_new(T, tp_net_module(N), s->tokens);
    int64_t t = 0;
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts && tp_ok(T); i++) {
        for (; t < contexts[i]; t++) tp_ls_lm_decode(d, token(s, t), NULL);
        for (int u = 0; u < DECODED; u++, t++) {
            const double start = now();
            tp_ls_lm_decode(d, token(s, t), logits);
            seconds[u] = now() - start;
        }
        printf("{\"model\": \"%s\", \"context\": %lld, \"threads\": %d, \"ms_a_token\": %.4f, "
               "\"process_peak_mb\": %.0f}\n",
               s->name, (long long)contexts[i], tp_device_stats(D).threads,
               1e3 * median(seconds, DECODED), process_peak_mb());
        fflush(stdout);
    }
    if (!tp_ok(T)) fprintf(stderr, "%s\n", tp_why(T));
    const int status = !tp_ok(T);
    tp_ls_lm_decoder_free(d);
    tp_tape_free(T);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return status;
}
