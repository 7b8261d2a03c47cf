/* generation.c - reads a prompt; samples the next token by temperature, top-k and top-p. */
#include "generation.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "plain_text.h"

/* ---- the prompt ---- */

static void complain(char *why, size_t size, const char *what, const char *reason)
{
    snprintf(why, size, "%.2000s: %.2000s", what, reason);
}

/* Regular files only: reading a pipe or a device could block. */
static uint8_t *read_file(const char *path, int64_t *n, char *why, size_t size)
{
    const char *kind;
    char reason[200];
    const int fd = tp_open_regular(path, n, &kind);
    if (fd < 0 && kind)
        snprintf(reason, sizeof reason, "is %s; give a regular file, or - for standard input",
                 kind);
    if (fd < 0) {
        complain(why, size, path, kind ? reason : strerror(errno));
        return NULL;
    }
    uint8_t *text = malloc((size_t)*n + 1);
    const size_t got = text ? tp_read_bytes(fd, 0, text, (size_t)*n) : 0;
    if (text && got < (size_t)*n) {
        complain(why, size, path, errno ? strerror(errno) : "became shorter while being read");
        free(text);
        text = NULL;
    }
    close(fd);
    if (text) text[*n] = 0;
    return text;
}

static uint8_t *read_stream(int64_t *n, char *why, size_t size)
{
    size_t bytes = 0;
    uint8_t *text = (uint8_t *)plain_read(stdin, &bytes);
    *n = (int64_t)bytes;
    if (!text || !ferror(stdin)) return text;
    complain(why, size, "standard input", strerror(errno));
    free(text);
    return NULL;
}

uint8_t *prompt_read(const prompt_source *p, int64_t *n, char *why, size_t size)
{
    uint8_t *text = NULL;
    why[0] = '\0';
    if (p->text && p->file)
        complain(why, size, "--prompt", "cannot be combined with --prompt-file");
    else if (p->file && strcmp(p->file, "-") != 0)
        text = read_file(p->file, n, why, size);
    else if (p->file)
        text = read_stream(n, why, size);
    else {
        *n = p->text ? (int64_t)strlen(p->text) : 0;
        text = (uint8_t *)strdup(p->text ? p->text : "");
    }
    if (!text && !why[0]) complain(why, size, "prompt", "out of memory");
    return text;
}

/* ---- choosing the next token ---- */

typedef struct candidate {
    double logit, p;
    int64_t id;
} candidate;

struct sampler {
    sampling how;
    uint64_t random; /* state; starts as the seed */
    int64_t n;
    candidate c[];
};

sampler *sampler_new(const sampling *how, int64_t n)
{
    sampler *s = calloc(1, sizeof *s + (size_t)n * sizeof s->c[0]);
    if (!s) return NULL;
    s->how = *how;
    s->random = (uint64_t)how->seed;
    s->n = n;
    return s;
}

void sampler_free(sampler *s)
{
    free(s);
}

static int by_logit(const void *pa, const void *pb)
{
    const candidate *a = pa, *b = pb;
    if (a->logit != b->logit) return a->logit < b->logit ? 1 : -1;
    return a->id < b->id ? -1 : 1;
}

/* SplitMix64, the upper 53 bits as a number in [0,1). */
static double uniform(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* Applies temperature, then top-k, then top-p:
 *
 *     p_i = exp((z_i - z_max) / temperature), sorted; cut after k, cut where the sum passes top_p
 *
 * The smaller id wins a tie, so that a seed always gives the same text. */
int64_t sampler_next(sampler *s, const float *logits, const bool *allowed)
{
    candidate *c = s->c;
    int64_t k = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (allowed[i] && isfinite(logits[i])) c[k++] = (candidate){ .logit = logits[i], .id = i };
    if (k == 0) return -1;
    qsort(c, (size_t)k, sizeof c[0], by_logit);
    if (s->how.temperature == 0) return c[0].id;
    if (s->how.top_k > 0 && s->how.top_k < k) k = s->how.top_k;
    double all = 0, kept = 0;
    for (int64_t i = 0; i < k; i++)
        all += c[i].p = exp((c[i].logit - c[0].logit) / s->how.temperature);
    int64_t last = 0;
    while (last < k && kept < s->how.top_p * all) kept += c[last++].p;
    double u = uniform(&s->random) * kept;
    int64_t i = 0;
    while (i + 1 < last && (u -= c[i].p) >= 0) i++;
    return c[i].id;
}
