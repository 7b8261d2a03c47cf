/* gpt_generate.c - `gpt generate`: continues a prompt, one token at a time, with cached keys and
 * values. Once the text is as long as --context, its second half starts a new one, so --length is
 * not limited. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/options.h>

#include "gpt.h"
#include "reports/generation.h"

typedef struct generate_settings {
    gpt_source c; /* first */
    prompt_source p;
    sampling how;
    int64_t context;
    bool stop;
} generate_settings;

#define S generate_settings

static const tp_option table[] = {
    TP_HEADING("MODEL"),
    OPTIONS_TRAINED(S),
    TP_INT("context", S, context, 0, 1 << 24, 0,
           "Tokens that the model sees at most; 0: as in training, or as many as it has "
           "positions."),
    TP_HEADING("TEXT"),
    OPTIONS_PROMPT(S),
    TP_FLAG("stop", S, stop, 0, "End where the model ends the document."),
    TP_HEADING("SAMPLING"),
    OPTIONS_SAMPLING(S),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "gpt generate",
    .summary = "generates text from a prompt",
    .synopsis = "[--run-dir DIR | --checkpoint FILE] [--prompt TEXT] [flag ...]",
    .about = "Feeds the prompt to the model and prints the tokens that it predicts, one by one, to "
             "standard output. Without a prompt it begins a document.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line; 129, 130, 138, 143 stopped by\n"
            "    SIGHUP, SIGINT, SIGUSR1, SIGTERM\n\n"
            "EXAMPLES\n"
            "    gpt generate --run-dir runs/novel --prompt 'The long ' --temperature 0.8\n"
            "    gpt generate --checkpoint gpt2/model.safetensors --top-k 40\n",
};

/* ---- decoding ---- */

typedef struct decoder {
    gpt_file *f;
    tp_bpe_coder *coder;
    tp_gpt_cache cache;
    int32_t *seen; /* [cache.room]: the tokens in the cache */
    float *logits; /* [rows]: of the last token */
    int64_t rows;  /* of the model's vocabulary */
    sampler *random;
    bool *allowed; /* [vocabulary] */
} decoder;

/* Adds n tokens, which the cache has room for. */
static bool append(decoder *d, const int32_t *ids, int64_t n)
{
    tp_tape *T = d->f->t.T;
    tp_reset(T);
    memmove(d->seen + d->cache.filled, ids, (size_t)n * sizeof *ids);
    const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(1, n), ids);
    tp_tensor z = tp_gpt_decode(T, tp_net_module(d->f->m), &d->cache, x);
    z = tp_cast(T, tp_slice(T, z, 1, n - 1, 1), TP_F32);
    return tp_read(T, z, d->logits, (size_t)d->rows * sizeof *d->logits) ||
           tp_trained_fail(&d->f->t, "decoding: %s", tp_why(T));
}

/* Feeds n tokens. Where there is no room for one, the second half of the text begins again. */
static bool feed(decoder *d, const int32_t *ids, int64_t n)
{
    const int64_t room = d->cache.room, kept = room / 2;
    if (n > room) return feed(d, ids + n - room, room);
    if (d->cache.filled + n > room) {
        int64_t k = kept < room - n ? kept : room - n;
        if (k > d->cache.filled) k = d->cache.filled;
        const int32_t *tail = d->seen + d->cache.filled - k;
        d->cache.filled = 0;
        if (k > 0 && !append(d, tail, k)) return false;
    }
    return append(d, ids, n);
}

static bool print_token(decoder *d, int32_t id)
{
    size_t bytes = 0;
    const char *text = tp_bpe_decode(d->coder, &id, 1, TP_BPE_RAW, &bytes);
    if (!text) return tp_trained_fail(&d->f->t, "generation: out of memory");
    fwrite(text, 1, bytes, stdout);
    return tp_trained_printed(&d->f->t);
}

/* The token that ends documents, or -1. */
static int32_t end_of(const tp_bpe *X)
{
    const char *name = gpt_separator(X);
    return name[0] ? tp_bpe_id(X, name) : -1;
}

/* Feeds the prompt, or what precedes a document. */
static bool feed_prompt(decoder *d, const char *prompt, int64_t n)
{
    int64_t count = 0;
    int32_t first = end_of(d->f->vocab);
    if (first < 0) first = 0;
    const int32_t *ids = n > 0 ? tp_bpe_encode(d->coder, prompt, (size_t)n, &count) : &first;
    if (!ids) return tp_trained_fail(&d->f->t, "prompt: out of memory");
    return feed(d, ids, n > 0 ? count : 1);
}

static bool decode(decoder *d, const generate_settings *s, const char *prompt, int64_t n)
{
    const int32_t end = end_of(d->f->vocab);
    if (s->p.echo) fwrite(prompt, 1, (size_t)n, stdout), fflush(stdout);
    if (!feed_prompt(d, prompt, n)) return false;
    for (int64_t i = 0; (s->p.length == 0 || i < s->p.length) && !tp_stop_signal(); i++) {
        const int64_t id = sampler_next(d->random, d->logits, d->allowed);
        const int32_t next = (int32_t)id;
        if (id < 0)
            return tp_trained_fail(&d->f->t, "%s: all logits of the model are NaN or infinite",
                                   d->f->t.path);
        if (next == end && s->stop) break;
        if (!print_token(d, next)) return false;
        if (i + 1 != s->p.length && !feed(d, &next, 1)) return false;
    }
    putchar('\n');
    return tp_trained_printed(&d->f->t);
}

/* ---- the command ---- */

/* Special tokens of RoBERTa's kind stand for no text; the end of a document ends it. */
static void allow(decoder *d)
{
    for (int64_t i = 0; i < tp_bpe_size(d->f->vocab); i++)
        d->allowed[i] = tp_bpe_token_bytes(d->f->vocab, i) > 0 || (int32_t)i == end_of(d->f->vocab);
}

static bool open_decoder(decoder *d, gpt_file *f, const generate_settings *s)
{
    const tp_gpt_cfg *g = gpt_cfg(&f->cfg);
    const int64_t room = s->context ? s->context : f->window;
    if (room > g->positions || room < 2)
        return tp_trained_fail(&f->t,
                               "--context %lld: the model has %lld positions, and at least "
                               "2 are needed",
                               (long long)room, (long long)g->positions);
    *d = (decoder){ .f = f, .cache.room = room, .rows = g->vocab };
    d->coder = tp_bpe_coder_new(f->vocab);
    d->seen = malloc((size_t)room * sizeof *d->seen);
    d->logits = malloc((size_t)g->vocab * sizeof *d->logits);
    d->random = sampler_new(&s->how, tp_bpe_size(f->vocab));
    d->allowed = calloc((size_t)tp_bpe_size(f->vocab), sizeof *d->allowed);
    if (!d->coder || !d->seen || !d->logits || !d->random || !d->allowed)
        return tp_trained_fail(&f->t, "generation: out of memory");
    allow(d);
    return gpt_file_load(f, &s->c.t.machine);
}

static bool answer(gpt_file *f, const generate_settings *s)
{
    int64_t n = 0;
    decoder d = { .f = f };
    if (!gpt_file_open(f, &s->c)) return false;
    char *prompt = (char *)prompt_read(&s->p, &n, f->t.why, sizeof f->t.why);
    bool done = prompt && open_decoder(&d, f, s);
    if (done) {
        tp_catch_signals();
        done = decode(&d, s, prompt, n);
    }
    if (f->t.T) tp_gpt_cache_free(f->t.T, &d.cache);
    tp_bpe_coder_free(d.coder);
    sampler_free(d.random);
    free(d.seen);
    free(d.logits);
    free(d.allowed);
    free(prompt);
    return done;
}

static bool run(void *options, char *why, size_t size)
{
    gpt_file f = { 0 };
    const bool done = answer(&f, options);
    snprintf(why, size, "%s", f.t.why);
    gpt_file_close(&f);
    return done;
}

int gpt_generate_main(int argc, char **argv)
{
    generate_settings s = {
        .c.t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/gpt") },
        .p = { .echo = true, .length = 200 },
        .how = SAMPLING_DEFAULT,
        .stop = true,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
