/* generate.c - `enwik8 generate`: continues a prompt, one token at a time.
 *
 * Transformer-LS decodes incrementally (tp_ls_lm_decoder); Transformer-XL runs segments of one
 * token. Memory is constant, so --length 0 can run until it is interrupted. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "enwik8.h"
#include "reports/plain_text.h"

/* ---- choosing the next token ---- */

typedef struct sampler {
    double temperature; /* 0: always the most likely token */
    int64_t top_k;      /* sample among the k most likely; 0: all */
    double top_p;       /* sample among the most likely that reach this sum */
    uint64_t random;    /* state; starts as the seed */
} sampler;

enum { MOST = 512 }; /* bound of a dictionary's entries */

typedef struct candidate {
    double logit, p;
    int64_t id;
} candidate;

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

/* The next token among those with allowed[id]; -1 if none has a finite logit. Applies temperature,
 * then top-k, then top-p:
 *
 *     p_i = exp((z_i - z_max) / temperature), sorted; cut after k, cut where the sum passes top_p
 *
 * The smaller id wins a tie, so that a seed always gives the same text. */
static int64_t sample(sampler *s, const float *logits, const bool *allowed, int64_t n)
{
    candidate c[MOST];
    int64_t k = 0;
    for (int64_t i = 0; i < n && k < MOST; i++)
        if (allowed[i] && isfinite(logits[i])) c[k++] = (candidate){ .logit = logits[i], .id = i };
    if (k == 0) return -1;
    qsort(c, (size_t)k, sizeof c[0], by_logit);
    if (s->temperature == 0) return c[0].id;
    if (s->top_k > 0 && s->top_k < k) k = s->top_k;
    double all = 0, kept = 0;
    for (int64_t i = 0; i < k; i++) all += c[i].p = exp((c[i].logit - c[0].logit) / s->temperature);
    int64_t last = 0;
    while (last < k && kept < s->top_p * all) kept += c[last++].p;
    double u = uniform(&s->random) * kept;
    int64_t i = 0;
    while (i + 1 < last && (u -= c[i].p) >= 0) i++;
    return c[i].id;
}

/* ---- the command ---- */

typedef struct generate_settings {
    lm_source c;
    char *prompt, *prompt_file;
    int64_t seed, length, top_k, segment, context;
    double temperature, top_p;
    bool echo;
} generate_settings;

#define S generate_settings

static const tp_option table[] = {
    TP_HEADING("MODEL"),
    TP_ROWS(tp_trained_options),
    OPTIONS_PUBLISHED(S),
    TP_STRING("data", S, c.data, "FILE", 0,
              "The text that --weights were trained on, for its dictionary."),
    TP_INT("segment", S, segment, 0, 16777216, 0,
           "Tokens after which the cache advances (ls); 0: as in training."),
    TP_INT("context", S, context, 0, 16777216, 0, "Tokens in the cache; 0: as in training."),
    TP_HEADING("TEXT"),
    TP_STRING("prompt", S, prompt, "TEXT", 0, "The text to continue."),
    TP_STRING("prompt-file", S, prompt_file, "FILE", 0,
              "A file with the prompt; - reads standard input."),
    TP_FLAG("echo", S, echo, 0, "Print the prompt first."),
    TP_INT("length", S, length, 0, TP_BIG, 0, "Tokens to generate; 0: until interrupted."),
    TP_HEADING("SAMPLING"),
    TP_NUM("temperature", S, temperature, 0, 1000, 0,
           "Divisor of the logits: values below 1 favour likely tokens; 0 always picks the most "
           "likely one."),
    TP_INT("top-k", S, top_k, 0, TP_BIG, 0, "Sample among the N most likely tokens; 0: all."),
    TP_NUM("top-p", S, top_p, 0, 1, 0,
           "Sample among the most likely tokens whose probabilities add up to this value."),
    TP_INT("seed", S, seed, 0, TP_BIG, 0,
           "Seed of the random numbers; the same seed gives the same text."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "enwik8 generate",
    .summary = "generates text from a prompt",
    .synopsis = "[--run-dir DIR | --checkpoint FILE] [--prompt TEXT] [flag ...]\n"
                "    enwik8 generate --preset NAME --weights FILE --vocab FILE [flag ...]",
    .about =
        "Feeds the prompt to the model of a checkpoint and prints the tokens that it predicts, "
        "one by one, to standard output. Without a prompt it begins at the start of a line.",
    .table = table,
    .more =
        "EXIT STATUS\n"
        "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line; 129, 130,\n"
        "    138, 143 stopped by SIGHUP, SIGINT, SIGUSR1, SIGTERM\n\n"
        "EXAMPLES\n"
        "    enwik8 generate --run-dir runs/phase3 --prompt 'The long ' --temperature 0.8\n"
        "    head -c 2000 book.txt | enwik8 generate --prompt-file - --length 500 --top-p 0.9\n",
};

static bool fail(lm_file *f, const char *what, const char *why)
{
    return tp_trained_fail(&f->t, "%.2000s: %.2000s", what, why);
}

/* ---- prompt ---- */

/* Regular files only: reading a pipe or a device could block. */
static uint8_t *read_file(lm_file *f, const char *path, int64_t *n)
{
    const char *kind;
    char why[200];
    const int fd = tp_file_regular(path, n, &kind);
    const char *reason = strerror(errno);
    if (fd < 0 && kind)
        snprintf(why, sizeof why, "is %s; give a regular file, or - for standard input", kind);
    if (fd < 0) fail(f, path, kind ? why : reason);
    uint8_t *text = fd < 0 ? NULL : malloc((size_t)*n + 1);
    const size_t got = text ? tp_file_bytes(fd, 0, text, (size_t)*n) : 0;
    if (text && got < (size_t)*n) {
        fail(f, path, errno ? strerror(errno) : "became shorter while being read");
        free(text);
        text = NULL;
    }
    if (fd >= 0) close(fd);
    return text;
}

static uint8_t *read_prompt(lm_file *f, const generate_settings *s, int64_t *n)
{
    uint8_t *text = NULL;
    if (s->prompt && s->prompt_file) {
        fail(f, "--prompt", "cannot be combined with --prompt-file");
    } else if (s->prompt_file && strcmp(s->prompt_file, "-") != 0) {
        text = read_file(f, s->prompt_file, n);
    } else if (s->prompt_file) {
        size_t bytes;
        text = (uint8_t *)plain_read(stdin, &bytes);
        *n = (int64_t)bytes;
        if (text && ferror(stdin)) {
            fail(f, "standard input", strerror(errno));
            free(text);
            text = NULL;
        }
    } else {
        *n = s->prompt ? (int64_t)strlen(s->prompt) : 0;
        text = (uint8_t *)strdup(s->prompt ? s->prompt : "");
    }
    if (!text && !f->t.why[0]) fail(f, "prompt", "out of memory");
    return text;
}

/* Skips a file's byte order mark. If bytes are the tokens, any file may be a prompt. */
static bool is_text(lm_file *f, const generate_settings *s, const uint8_t **prompt, int64_t *n)
{
    const char *text = (const char *)*prompt;
    size_t left = (size_t)*n;
    char why[200];
    if (!s->prompt_file || f->vocab.style == TP_TEXT_BYTES) return true;
    if (!tp_file_text(&text, &left, why, sizeof why)) return fail(f, s->prompt_file, why);
    *prompt = (const uint8_t *)text;
    *n = (int64_t)left;
    return true;
}

/* ---- decoding ---- */

typedef struct decoder {
    lm_file *f;
    tp_ls_lm_decoder *ls; /* NULL: segments of one token, `state` is the cache */
    void *state;
    float *logits;
} decoder;

static bool feed(decoder *d, int64_t token)
{
    lm_file *f = d->f;
    if (d->ls)
        return tp_ls_lm_decode(d->ls, token, d->logits) || fail(f, "decoding", tp_why(f->t.T));
    const int32_t id = (int32_t)token;
    tp_reset(f->t.T);
    const tp_tensor x = tp_from(f->t.T, TP_I32, TP_SHAPE(1, 1), &id);
    const tp_tensor z = tp_cast(f->t.T, tp_net_forward(f->t.T, f->m, d->state, x), TP_F32);
    return tp_read(f->t.T, z, d->logits, (size_t)f->vocab.size * sizeof *d->logits) ||
           fail(f, "decoding", tp_why(f->t.T));
}

/* The end of a line; Transformer-XL's dictionary has none: its most frequent symbol. */
static int64_t first_token(const tp_vocab *v)
{
    return v->id['\n'] >= 0 ? v->id['\n'] : 0;
}

/* Allows only bytes and the end of a line, printed as a newline. */
static bool *printable(const tp_vocab *v)
{
    bool *allowed = calloc((size_t)v->size, sizeof *allowed);
    for (int64_t i = 0; allowed && i < v->size; i++)
        allowed[i] = v->symbol[i] >= 0 || i == v->id['\n'];
    return allowed;
}

static void print_token(const tp_vocab *v, int64_t id)
{
    putchar(v->symbol[id] >= 0 ? v->symbol[id] : '\n');
    fflush(stdout);
}

static bool decode(decoder *d, const generate_settings *s, const bool *allowed,
                   const uint8_t *prompt, int64_t n)
{
    const tp_vocab *v = &d->f->vocab;
    sampler random = { s->temperature, s->top_k, s->top_p, (uint64_t)s->seed };
    int64_t unknown = 0, vanished = 0;
    if (s->echo) fwrite(prompt, 1, (size_t)n, stdout), fflush(stdout);
    for (int64_t i = 0; i < n && !tp_stop_signal(); i++) {
        unknown += !tp_vocab_knows(v, prompt[i]);
        vanished += v->id[prompt[i]] < 0;
        if (v->id[prompt[i]] >= 0 && !feed(d, v->id[prompt[i]])) return false;
    }
    if (vanished == n && !feed(d, first_token(v))) return false;
    if (unknown)
        fprintf(stderr, "%s: %lld bytes of the prompt are not in the model's dictionary\n",
                manual.name, (long long)unknown);
    for (int64_t i = 0; (s->length == 0 || i < s->length) && !tp_stop_signal(); i++) {
        const int64_t id = sample(&random, d->logits, allowed, v->size);
        if (id < 0) return fail(d->f, d->f->t.path, "all logits of the model are NaN or infinite");
        print_token(v, id);
        if (ferror(stdout)) return fail(d->f, "standard output", strerror(errno));
        if (i + 1 != s->length && !feed(d, id)) return false;
    }
    putchar('\n');
    return true;
}

/* Sets the cache. Shortens it and the segment to the text to come, but the cache not below that of
 * training: its empty rows take part in attention unless masked. */
static void shorten(lm_file *f, const generate_settings *s, int64_t n, int64_t *segment)
{
    const int64_t trained = tp_model_get(&f->cfg).cache, all = n + s->length + 1;
    int64_t context = s->context ? s->context : trained;
    if (s->length > 0) {
        context = lm_at_most(&f->cfg, context, all > trained ? all : trained);
        *segment = lm_at_most(&f->cfg, *segment, all);
    }
    lm_set_cache(&f->cfg, context);
}

static bool generate(lm_file *f, const generate_settings *s, const uint8_t *prompt, int64_t n)
{
    decoder d = { .f = f };
    bool *allowed = printable(&f->vocab);
    int64_t segment = s->segment ? s->segment : f->segment;
    const bool possible =
        lm_segment_check(&f->cfg, "--segment", segment, f->t.why, sizeof f->t.why);
    if (possible) shorten(f, s, n, &segment);
    if (!possible || !lm_file_load(f, &s->c.t.machine)) {
        free(allowed);
        return false;
    }
    d.logits = malloc((size_t)f->vocab.size * sizeof *d.logits);
    if (f->cfg.model == &tp_model_ls_lm)
        d.ls = tp_ls_lm_decoder_new(f->t.T, tp_net_module(f->m), segment);
    else
        d.state = tp_net_state_new(f->m);
    tp_catch_signals();
    const bool done = allowed && d.logits && (d.ls || d.state)
                          ? decode(&d, s, allowed, prompt, n)
                          : fail(f, "generation", "out of memory");
    tp_ls_lm_decoder_free(d.ls);
    tp_net_state_free(f->m, f->t.T, d.state);
    free(d.logits);
    free(allowed);
    return done;
}

static bool answer(lm_file *f, const generate_settings *s)
{
    int64_t n = 0;
    if (!lm_file_open(f, &s->c)) return false;
    uint8_t *prompt = read_prompt(f, s, &n);
    const uint8_t *begin = prompt;
    const bool done = prompt && is_text(f, s, &begin, &n) && generate(f, s, begin, n);
    free(prompt);
    return done;
}

static bool run(void *options, char *why, size_t size)
{
    lm_file f = { 0 };
    const bool done = answer(&f, options);
    snprintf(why, size, "%s", f.t.why);
    lm_file_close(&f);
    return done;
}

int generate_main(int argc, char **argv)
{
    generate_settings s = {
        .c.t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/enwik8") },
        .seed = 1,
        .echo = true,
        .length = 500,
        .temperature = 1,
        .top_p = 1,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
