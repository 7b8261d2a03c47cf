/* generation.h - what programs that generate text share: the prompt, and choosing the next
 * token. */
#ifndef REPORTS_GENERATION_H
#define REPORTS_GENERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the prompt ---- */

typedef struct prompt_source {
    char *text, *file; /* at most one; neither: no prompt */
    bool echo;
    int64_t length; /* of what follows it, in tokens; 0: until interrupted */
} prompt_source;

/* Option rows for settings S with a prompt_source member p. */
#define OPTIONS_PROMPT(S)                                                                          \
    TP_STRING("prompt", S, p.text, "TEXT", 0, "The text to continue."),                            \
        TP_STRING("prompt-file", S, p.file, "FILE", 0,                                             \
                  "A file with the prompt; - reads standard input."),                              \
        TP_FLAG("echo", S, p.echo, 0, "Print the prompt first."),                                  \
        TP_INT("length", S, p.length, 0, TP_BIG, 0, "Tokens to generate; 0: until interrupted.")

/* The bytes of the prompt and a zero, *n without it; the caller frees them. NULL with the reason in
 * why. */
uint8_t *prompt_read(const prompt_source *p, int64_t *n, char *why, size_t size);

/* ---- choosing the next token ---- */

typedef struct sampling {
    double temperature; /* 0: always the most likely token */
    int64_t top_k;      /* sample among the k most likely; 0: all */
    double top_p;       /* sample among the most likely that reach this sum */
    int64_t seed;
} sampling;
#define SAMPLING_DEFAULT                                                                           \
    {                                                                                              \
        .temperature = 1, .top_p = 1, .seed = 1                                                    \
    }

/* Option rows for settings S with a sampling member `how`. */
#define OPTIONS_SAMPLING(S)                                                                        \
    TP_NUM("temperature", S, how.temperature, 0, 1000, 0,                                          \
           "Divisor of the logits: values below 1 favour likely tokens; 0 always picks the most "  \
           "likely one."),                                                                         \
        TP_INT("top-k", S, how.top_k, 0, TP_BIG, 0,                                                \
               "Sample among the N most likely tokens; 0: all."),                                  \
        TP_NUM("top-p", S, how.top_p, 0, 1, 0,                                                     \
               "Sample among the most likely tokens whose probabilities add up to this value."),   \
        TP_INT("seed", S, how.seed, 0, TP_BIG, 0,                                                  \
               "Seed of the random numbers; the same seed gives the same text.")

/* Samples among up to n tokens. NULL: out of memory. */
typedef struct sampler sampler;
sampler *sampler_new(const sampling *how, int64_t n);
void sampler_free(sampler *s);
/* The next token among those with allowed[id]; -1 if none has a finite logit. */
int64_t sampler_next(sampler *s, const float *logits, const bool *allowed);

#endif
