/* generate.c - `enwik8 generate`: continues a prompt, one token at a time.
 *
 * Transformer-LS decodes incrementally (tp_ls_lm_decoder); Transformer-XL runs segments of one
 * token. Memory is constant, so --length 0 can run until it is interrupted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enwik8.h"
#include "reports/generation.h"

/* ---- the command ---- */

typedef struct generate_settings {
    lm_source c;
    prompt_source p;
    sampling how;
    int64_t segment, context;
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
    OPTIONS_PROMPT(S),
    TP_HEADING("SAMPLING"),
    OPTIONS_SAMPLING(S),
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

/* Skips a file's byte order mark. If bytes are the tokens, any file may be a prompt. */
static bool is_text(lm_file *f, const generate_settings *s, const uint8_t **prompt, int64_t *n)
{
    const char *text = (const char *)*prompt;
    size_t left = (size_t)*n;
    char why[200];
    if (!s->p.file || f->vocab.style == TP_TEXT_BYTES) return true;
    if (!tp_skip_bom(&text, &left, why, sizeof why)) return fail(f, s->p.file, why);
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
    sampler *random;
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

static bool print_token(lm_file *f, int64_t id)
{
    putchar(f->vocab.symbol[id] >= 0 ? f->vocab.symbol[id] : '\n');
    return tp_trained_printed(&f->t);
}

/* Feeds the prompt; its bytes without a token are passed over. */
static bool feed_prompt(decoder *d, const uint8_t *prompt, int64_t n)
{
    const tp_vocab *v = &d->f->vocab;
    int64_t unknown = 0, vanished = 0;
    for (int64_t i = 0; i < n && !tp_stop_signal(); i++) {
        unknown += !tp_vocab_knows(v, prompt[i]);
        vanished += v->id[prompt[i]] < 0;
        if (v->id[prompt[i]] >= 0 && !feed(d, v->id[prompt[i]])) return false;
    }
    if (unknown)
        fprintf(stderr, "%s: %lld bytes of the prompt are not in the model's dictionary\n",
                manual.name, (long long)unknown);
    return vanished < n || feed(d, first_token(v));
}

static bool decode(decoder *d, const generate_settings *s, const bool *allowed,
                   const uint8_t *prompt, int64_t n)
{
    if (s->p.echo) fwrite(prompt, 1, (size_t)n, stdout), fflush(stdout);
    if (!feed_prompt(d, prompt, n)) return false;
    for (int64_t i = 0; (s->p.length == 0 || i < s->p.length) && !tp_stop_signal(); i++) {
        const int64_t id = sampler_next(d->random, d->logits, allowed);
        if (id < 0) return fail(d->f, d->f->t.path, "all logits of the model are NaN or infinite");
        if (!print_token(d->f, id)) return false;
        if (i + 1 != s->p.length && !feed(d, id)) return false;
    }
    putchar('\n');
    return tp_trained_printed(&d->f->t);
}

/* Sets the cache. Shortens it and the segment to the text to come, but the cache not below that of
 * training: its empty rows take part in attention unless masked. */
static void shorten(lm_file *f, const generate_settings *s, int64_t n, int64_t *segment)
{
    const int64_t trained = tp_model_get(&f->cfg).cache, all = n + s->p.length + 1;
    int64_t context = s->context ? s->context : trained;
    if (s->p.length > 0) {
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
    d.random = sampler_new(&s->how, f->vocab.size);
    if (f->cfg.model == &tp_model_ls_lm)
        d.ls = tp_ls_lm_decoder_new(f->t.T, tp_net_module(f->m), segment);
    else
        d.state = tp_net_state_new(f->m);
    tp_catch_signals();
    const bool done = allowed && d.logits && d.random && (d.ls || d.state)
                          ? decode(&d, s, allowed, prompt, n)
                          : fail(f, "generation", "out of memory");
    tp_ls_lm_decoder_free(d.ls);
    tp_net_state_free(f->m, f->t.T, d.state);
    sampler_free(d.random);
    free(d.logits);
    free(allowed);
    return done;
}

static bool answer(lm_file *f, const generate_settings *s)
{
    int64_t n = 0;
    if (!lm_file_open(f, &s->c)) return false;
    uint8_t *prompt = prompt_read(&s->p, &n, f->t.why, sizeof f->t.why);
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
        .p = { .echo = true, .length = 500 },
        .how = SAMPLING_DEFAULT,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
