/* eval.c - `enwik8 eval`: bits per character of held-out text. Protocols: streaming, the official
 * script's variant of it, and the paper's windows.
 *
 *     stream    |--segment--|--segment--|--seg..    the cache slides along, starting with zero rows
 *     windows   |------context------|step|          for each end e = step, 2 step, ...: tokens
 *                    |------context------|step|     e-context .. e-1 run with an empty cache, and
 *                                                   the last `step` predictions count
 *
 * Windows cost context / step times the work of a stream. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "enwik8.h"
#include "reports/models.h"

typedef enum protocol_kind {
    PROTOCOL_STREAM,   /* one pass in segments; scores every token */
    PROTOCOL_OFFICIAL, /* the same, without each segment's first token */
    PROTOCOL_WINDOWS   /* the last `step` tokens of windows that start with an empty cache */
} protocol_kind;

typedef struct protocol {
    protocol_kind kind;
    int64_t segment;       /* tokens per forward pass */
    int64_t context, step; /* PROTOCOL_WINDOWS: tokens of a window, and its advance */
    unknown_bytes unknown; /* of the text */
} protocol;

typedef struct score {
    double nll;      /* nats, the sum over tokens */
    int64_t tokens;  /* tokens scored */
    int64_t unknown; /* ... that are <unk> */
} score;

/* Called after each segment; false stops the evaluation. */
typedef bool (*score_fn)(void *env, const score *s);

typedef struct evaluation {
    const protocol *p;
    tp_tape *T;
    const tp_net *m;
    void *state;
    const int16_t *ids;
    int64_t n;
    int32_t *x, *y; /* a segment */
    score sum;
    score_fn seen;
    void *env;
} evaluation;

/* Includes the cost of unknown bytes; NaN without a score. */
static double score_bpc(const score *s, const unknown_bytes *u)
{
    return s->tokens ? unknown_bpc(u, s->nll, s->tokens, s->unknown) : (double)NAN;
}

/* Runs the segment that begins at `at` and scores its targets first .. end-1. Pads the segment past
 * the end of the text; causal attention hides padding from scored tokens. */
static bool run_segment(evaluation *e, int64_t at, int64_t first, int64_t end)
{
    tp_tape *T = e->T;
    const int64_t M = e->p->segment;
    int64_t counted = 0;
    for (int64_t t = 0; t < M; t++) {
        const int64_t i = at + t;
        const bool scored = i + 1 >= first && i + 1 < end;
        e->x[t] = i < e->n ? e->ids[i] : 0;
        e->y[t] = scored ? e->ids[i + 1] : -1;
        counted += scored;
    }
    tp_reset(T);
    const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(1, M), e->x);
    const tp_tensor logits = tp_net_forward(T, e->m, e->state, x);
    if (counted > 0) {
        const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(1, M), e->y);
        e->sum.nll += tp_item(T, tp_cross_entropy(T, logits, y, TP_SUM));
        e->sum.tokens += counted;
        e->sum.unknown += unknown_in(&e->p->unknown, e->y, M);
    }
    return tp_ok(T) && (!e->seen || e->seen(e->env, &e->sum));
}

static void run_stream(evaluation *e)
{
    const int64_t M = e->p->segment;
    const bool official = e->p->kind == PROTOCOL_OFFICIAL;
    for (int64_t at = 0; at + 1 < e->n; at += M) {
        int64_t end = at + M + (official ? 0 : 1);
        if (end > e->n) end = e->n;
        if (!run_segment(e, at, at + 1, end)) break;
    }
}

static bool run_window(evaluation *e, int64_t begin, int64_t end)
{
    const int64_t M = e->p->segment, first = end - e->p->step + 1;
    tp_net_cfg(e->m)->model->state_clear(e->T, e->state);
    for (int64_t at = begin; at < end; at += M)
        if (!run_segment(e, at, first, end + 1)) return false;
    return true;
}

static void run_windows(evaluation *e)
{
    const int64_t C = e->p->context, S = e->p->step;
    for (int64_t end = S; end < e->n; end += S)
        if (!run_window(e, end > C ? end - C : 0, end)) break;
}

/* Scores ids[0..n-1] with m, whose cache bounds how far it looks back. Puts T in evaluation mode
 * and resets it. Returns the score at the end, a stop or an error on T. */
static score protocol_run(const protocol *p, tp_tape *T, const tp_net *m, const int16_t *ids,
                          int64_t n, score_fn seen, void *env)
{
    evaluation e = { .p = p, .T = T, .m = m, .ids = ids, .n = n };
    e.state = tp_net_state_new(m);
    e.x = malloc((size_t)p->segment * sizeof *e.x);
    e.y = malloc((size_t)p->segment * sizeof *e.y);
    e.seen = seen;
    e.env = env;
    tp_train(T, false);
    tp_record(T, false);
    if (!e.state || !e.x || !e.y)
        tp_raise(T, TP_E_MEMORY, "evaluation: out of memory for segments of %lld tokens",
                 (long long)p->segment);
    else if (p->kind == PROTOCOL_WINDOWS)
        run_windows(&e);
    else
        run_stream(&e);
    tp_net_state_free(m, T, e.state);
    free(e.x);
    free(e.y);
    return e.sum;
}

/* ---- the command ---- */

typedef struct eval_settings {
    lm_source c;
    int protocol, split;
    int64_t segment, context, step, limit, clamp, chunk_clamp;
    bool same_length;
} eval_settings;

enum { STREAM, OFFICIAL, WINDOWS, FAST };

#define S eval_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND TEXT"),
    TP_ROWS(tp_trained_options),
    TP_STRING("data", S, c.data, "FILE", 0, TEXT_FILE),
    OPTIONS_PUBLISHED(S),
    TP_CHOICE("split", S, split, "train|valid|test", 0, "The part of the text that is scored."),
    TP_INT("limit", S, limit, 0, TP_BIG, 0, "Score only the first N tokens; 0: all."),
    TP_HEADING("PROTOCOL"),
    TP_CHOICE("protocol", S, protocol, "stream|official|windows|fast", 0,
              "stream: one pass in short segments with a long cache. official: the same, but the "
              "first token of each segment is not scored, as in the official script. windows: the "
              "protocol of the paper, overlapping windows of --context tokens that advance by "
              "--step; context / step times the work. fast: one pass with the segments and the "
              "cache of training."),
    TP_INT("segment", S, segment, 0, 16777216, 0,
           "Tokens per forward pass; 0: 256 (stream, official) or as in training (windows, fast)."),
    TP_INT("context", S, context, 0, 16777216, 0,
           "Tokens in the cache and in a window; 0: 32768, or as in training (fast)."),
    TP_INT("step", S, step, 1, 16777216, 0, "Tokens scored in each window."),
    TP_INT("clamp", S, clamp, -1, 16777216, 0,
           "Larger distances share one position embedding; 0: no limit; -1: as in training."),
    TP_INT("chunk-clamp", S, chunk_clamp, -1, 16777216, 0,
           "The same for distances between chunks (ls)."),
    TP_FLAG("same-length", S, same_length, 0, "Every query sees exactly --context tokens (txl)."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "enwik8 eval",
    .summary = "measures bits per character of a trained model",
    .synopsis = "--data FILE [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    enwik8 eval --data FILE --preset NAME --weights FILE [flag ...]",
    .about =
        "Runs the model of a checkpoint over one part of the text and prints bits per character "
        "and tokens per second. The model's dictionary comes from the checkpoint, that of "
        "published weights from --vocab or --data. The text is split as in training: 90 % "
        "training, 5 % validation, 5 % test.\n\n"
        "Bytes that the dictionary lacks are reported and never make the score better: each also "
        "counts log2 of how many bytes it could be; what Transformer-XL's dictionary drops counts "
        "8 bits.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    enwik8 eval --data enwik8.zip --run-dir runs/phase3\n"
            "    enwik8 eval --data enwik8.zip --run-dir runs/phase3 --protocol windows\n"
            "    enwik8 eval --data text8.zip --run-dir runs/xl --context 2100 --segment 80 \\\n"
            "        --clamp 820 --same-length                (Transformer-XL's protocol)\n"
            "    enwik8 eval --data enwik8.zip --preset ls_lm-small --weights checkpoint_best.pt\n",
};

enum { CACHE = 32768 };

/* The protocol's geometry; the protocol or training supplies values not given. */
static protocol choose(const eval_settings *s, lm_file *f)
{
    const bool fast = s->protocol == FAST;
    const bool trained = fast || s->protocol == WINDOWS;
    const protocol p = {
        .kind = s->protocol == WINDOWS    ? PROTOCOL_WINDOWS
                : s->protocol == OFFICIAL ? PROTOCOL_OFFICIAL
                                          : PROTOCOL_STREAM,
        .segment = s->segment ? s->segment
                   : trained  ? f->segment
                              : 256,
        .context = s->context ? s->context
                   : fast     ? tp_model_get(&f->cfg).cache
                              : CACHE,
        .step = s->step,
    };
    lm_set_cache(&f->cfg, p.context);
    lm_kind_of(f->cfg.model)->limit(&f->cfg.at, s->clamp, s->chunk_clamp, s->same_length);
    return p;
}

typedef struct watch {
    tp_ticker line;
    const unknown_bytes *unknown;
} watch;

static bool tick(void *env, const score *s)
{
    watch *w = env;
    if (tp_ticker_due(&w->line))
        tp_ticker_draw(&w->line, s->tokens, "%.4f bpc  %.0f tokens/s", score_bpc(s, w->unknown),
                       (double)s->tokens / (tp_seconds() - w->line.began));
    return !tp_stop_signal();
}

static void say_unknown(const protocol *p, const score *sum)
{
    const int64_t count = sum->unknown + (int64_t)llround(p->unknown.share * (double)sum->tokens);
    char line[300];
    unknown_say(&p->unknown, count, "the text", line, sizeof line);
    if (count > 0) tp_command_complain(manual.name, line);
}

static const char *const part_names[] = { "training", "validation", "test" };

static bool fits(lm_file *f, const protocol *p, const char *data, const char *part, int64_t n)
{
    const int64_t least = p->kind == PROTOCOL_WINDOWS ? p->step + 1 : 2;
    if (n < least)
        return tp_trained_fail(&f->t, "%s: the %s text has %lld tokens; at least %lld are needed",
                               data, part, (long long)n, (long long)least);
    if (p->kind == PROTOCOL_WINDOWS && p->step > p->context)
        return tp_trained_fail(&f->t, "--step %lld is longer than the windows (--context %lld)",
                               (long long)p->step, (long long)p->context);
    return lm_segment_check(&f->cfg, "--segment", p->segment, f->t.why, sizeof f->t.why);
}

/* Shortens segment and cache to the text's n tokens, but the cache not below its usual length:
 * empty rows of an unmasked cache take part in attention. */
static void shorten(protocol *p, lm_file *f, int64_t n, int64_t trained)
{
    const int64_t usual = trained > CACHE ? trained : CACHE;
    const int64_t context = lm_at_most(&f->cfg, p->context, n > usual ? n : usual);
    char line[200];
    if (context < p->context) {
        snprintf(line, sizeof line,
                 "the text has %lld tokens: a cache of %lld is used, not of %lld", (long long)n,
                 (long long)context, (long long)p->context);
        tp_command_complain(manual.name, line);
    }
    p->segment = lm_at_most(&f->cfg, p->segment, n);
    p->context = context;
    lm_set_cache(&f->cfg, context);
}

static bool evaluate(const eval_settings *s, lm_file *f, tp_text *text)
{
    const char *part = part_names[s->split];
    int64_t n;
    const int16_t *ids = tp_text_ids(text, (tp_part)s->split, &n);
    const int64_t trained = tp_model_get(&f->cfg).cache;
    protocol p = choose(s, f);
    p.unknown = unknown_of(text, (tp_part)s->split);
    if (s->limit > 0 && n > s->limit + 1) n = s->limit + 1;
    if (!fits(f, &p, s->c.data, part, n)) return false;
    shorten(&p, f, n, trained);
    if (!lm_file_load(f, &s->c.t.machine)) return false;
    tp_catch_signals();
    watch w = { tp_ticker_start("tokens", n - 1), &p.unknown };
    const score sum = protocol_run(&p, f->t.T, f->m, ids, n, tick, &w);
    const double bpc = score_bpc(&sum, &p.unknown);
    tp_ticker_end(&w.line);
    if (!tp_trained_ok(&f->t)) return false;
    if (!trained_finite(&f->t, bpc)) return false;
    say_unknown(&p, &sum);
    printf("%s text, %s%lld tokens: %.4f bpc, %.0f tokens/s\n", part,
           tp_stop_signal() ? "stopped after " : "", (long long)sum.tokens, bpc,
           (double)sum.tokens / (tp_seconds() - w.line.began));
    return true;
}

static bool measure(const eval_settings *s, lm_file *f)
{
    if (!s->c.data)
        return tp_trained_fail(&f->t,
                               "--data FILE is required: the text that the model was trained on");
    if (!lm_file_open(f, &s->c)) return false;
    tp_text *text = tp_text_open(s->c.data, &(tp_text_opts){ .vocab = &f->vocab });
    const bool done =
        tp_text_ok(text) ? evaluate(s, f, text) : tp_trained_fail(&f->t, "%s", tp_text_why(text));
    tp_text_close(text);
    return done;
}

static bool run(void *options, char *why, size_t size)
{
    lm_file f = { 0 };
    const bool done = measure(options, &f);
    snprintf(why, size, "%s", f.t.why);
    lm_file_close(&f);
    return done;
}

int eval_main(int argc, char **argv)
{
    eval_settings s = {
        .c.t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/enwik8") },
        .split = TP_TEST,
        .step = 512,
        .clamp = -1,
        .chunk_clamp = -1,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
