/* text.c - a text as token ids, in training, validation and test parts; batches of its streams. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/data.h>
#include <tapegrad/file.h>

#include "kit.h"
#include "load.h"

/* ---- a text ----
 *
 *     | train: the rest | valid: 5 % | test: 5 % |      of 10^8 bytes: 90, 5 and 5 million
 *
 * Extra text is appended to the training part. Opening converts the whole text to ids of two bytes
 * and closes the file, so changing the file during training is harmless. */

enum { SPLITS = 3, END_OF_LINE = 2 };

struct tp_text {
    tp_vocab vocab;
    int64_t bytes[SPLITS], length[SPLITS], unknown[SPLITS];
    int16_t *ids[SPLITS];
    char why[TP_WHY];
};

TP_FAILS(tp_text, no_text, "text: out of memory", "text: NULL was given in place of a text")

static bool encode(tp_text *X, tp_part s, const uint8_t *text)
{
    const tp_vocab *v = &X->vocab;
    int64_t n = X->bytes[s];
    if (v->style == TP_TEXT_TEXT8) tp__strip_blanks(&text, &n);
    int16_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
    if (!ids) return false;
    int64_t length = 0;
    for (int64_t i = 0; i < n; i++) {
        const int16_t id = v->id[text[i]];
        X->unknown[s] += !tp_vocab_knows(v, text[i]);
        if (id >= 0) ids[length++] = id;
    }
    if (v->id['\n'] == END_OF_LINE && v->style != TP_TEXT_BYTES && n > 0 && text[n - 1] != '\n')
        ids[length++] = END_OF_LINE;
    X->ids[s] = ids;
    X->length[s] = length;
    return true;
}

/* Is it text? Any file is, if each byte has a token. Skips a byte order mark. */
static bool check(tp_text *X, const char *name, const uint8_t **bytes, int64_t *n,
                  const tp_text_opts *o)
{
    const char *text = (const char *)*bytes;
    size_t left = (size_t)*n;
    char why[200];
    if ((o->vocab ? o->vocab->style : o->style) == TP_TEXT_BYTES) return true;
    if (!tp_skip_bom(&text, &left, why, sizeof why)) {
        tp__fail(X, "text %.480s %s%s", name, why,
                 o->vocab ? "" : "; the style 'bytes' takes any file");
        return false;
    }
    *bytes = (const uint8_t *)text;
    *n = (int64_t)left;
    return true;
}

/* Appends another file to the training bytes, of `all` bytes of text; free the result. NULL: X has
 * failed. */
static uint8_t *extend(tp_text *X, const uint8_t *train, int64_t all, const tp_text_opts *o)
{
    const char *path = o->extra;
    const size_t n = (size_t)X->bytes[TP_TRAIN];
    tp_blob b;
    char why[TP_WHY / 2];
    uint8_t *both = NULL;
    const bool loaded = tp__blob_load(&b, path, 0, why, sizeof why);
    const uint8_t *more = b.bytes;
    int64_t m = (int64_t)b.size;
    if (!loaded) {
        tp__fail(X, "text %.480s: %s", path, why);
    } else if (!check(X, path, &more, &m, o)) {
        both = NULL;
    } else if (m >= all && memcmp(more, train, (size_t)all) == 0) {
        tp__fail(X,
                 "text %.480s: it begins with the whole text, so validation and test text would be "
                 "trained on; leave it out",
                 path);
    } else if (!(both = malloc(n + (size_t)m + 1))) {
        tp__fail(X, "text %.480s: out of memory for %zu bytes", path, n + (size_t)m);
    } else {
        memcpy(both, train, n);
        memcpy(both + n, more, (size_t)m);
        X->bytes[TP_TRAIN] += m;
    }
    tp__blob_free(&b);
    return both;
}

/* Encodes the three parts. Unless a dictionary is given, builds it from the training part; that of
 * Transformer-XL from all parts. */
static void encode_all(tp_text *X, const char *name, const uint8_t *const part[SPLITS],
                       const tp_text_opts *o)
{
    if (o->vocab)
        X->vocab = *o->vocab;
    else if (o->style == TP_TEXT_TXL && !o->extra)
        tp_vocab_build(&X->vocab, o->style, part[TP_TRAIN],
                       X->bytes[TP_TRAIN] + X->bytes[TP_VALID] + X->bytes[TP_TEST]);
    else
        tp_vocab_build(&X->vocab, o->style, part[TP_TRAIN], X->bytes[TP_TRAIN]);
    for (int s = 0; s < SPLITS; s++)
        if (!encode(X, (tp_part)s, part[s])) {
            tp__fail(X, "text %s: out of memory for the token ids of %lld bytes", name,
                     (long long)X->bytes[s]);
            return;
        }
}

static void fill(tp_text *X, const char *name, const uint8_t *bytes, int64_t n,
                 const tp_text_opts *o)
{
    double valid = o->valid, test = o->test;
    if (valid == 0 && test == 0) valid = test = 0.05;
    if (!(valid >= 0 && test >= 0 && valid + test < 1)) {
        tp__fail(X, "text %s: validation and test fractions %g and %g leave no training text", name,
                 valid, test);
        return;
    }
    if (!check(X, name, &bytes, &n, o)) return;
    if (n == 0) {
        tp__fail(X, "text %.480s: has nothing but a byte order mark", name);
        return;
    }
    X->bytes[TP_VALID] = llround(valid * (double)n);
    X->bytes[TP_TEST] = llround(test * (double)n);
    X->bytes[TP_TRAIN] = n - X->bytes[TP_VALID] - X->bytes[TP_TEST];
    const uint8_t *valid_bytes = bytes + X->bytes[TP_TRAIN];
    const uint8_t *part[SPLITS] = { bytes, valid_bytes, valid_bytes + X->bytes[TP_VALID] };
    uint8_t *both = o->extra ? extend(X, bytes, n, o) : NULL;
    if (both) part[TP_TRAIN] = both;
    if (!X->why[0]) encode_all(X, name, part, o);
    free(both);
}

tp_text *tp_text_open(const char *path, const tp_text_opts *o)
{
    static const tp_text_opts defaults = { 0 };
    tp_text *X = calloc(1, sizeof *X);
    tp_blob b;
    char why[TP_WHY / 2];
    if (!X) return &no_text;
    if (!o) o = &defaults;
    if (tp__blob_load(&b, path, o->limit > 0 ? (size_t)o->limit : 0, why, sizeof why))
        fill(X, path, b.bytes, (int64_t)b.size, o);
    else
        tp__fail(X, "text %.480s: %s", path, why);
    tp__blob_free(&b);
    return X;
}

tp_text *tp_text_from(const uint8_t *bytes, int64_t n, const tp_text_opts *o)
{
    if (!bytes) n = 0;
    static const tp_text_opts defaults = { 0 };
    tp_text *X = calloc(1, sizeof *X);
    if (!X) return &no_text;
    if (!o) o = &defaults;
    if (o->limit > 0 && n > o->limit) n = o->limit;
    if (n > 0)
        fill(X, "in memory", bytes, n, o);
    else
        tp__fail(X, "the text in memory is empty");
    return X;
}

void tp_text_close(tp_text *X)
{
    if (!X || X == &no_text) return;
    for (int s = 0; s < SPLITS; s++) free(X->ids[s]);
    free(X);
}

const tp_vocab *tp_text_vocab(const tp_text *X)
{
    return &X->vocab;
}
int64_t tp_text_bytes(const tp_text *X, tp_part part)
{
    return X ? X->bytes[part] : 0;
}

const int16_t *tp_text_ids(const tp_text *X, tp_part part, int64_t *n)
{
    if (!X) return NULL;
    *n = X->length[part];
    return X->ids[part];
}

int64_t tp_text_unknown(const tp_text *X, tp_part part)
{
    return X ? X->unknown[part] : 0;
}

/* ---- batches of contiguous streams from one long sequence of token ids ----
 *
 *     ids        | block 0 | block 1 | ... | block nb-1 |    blocks of M tokens, the last shorter
 *     stream b   blocks b*k .. b*k + k-1, k = nb / S         the remainder is dropped
 *     step s     block s mod k of every stream, [B,M]
 *
 * There are S = B streams, or B for each process that shares the batches.
 *
 * The target of a token is the next token. In the official code the last token of a block has none;
 * with all_targets it is the first token of the next block. The last block is padded with <pad>,
 * which is never a target. */

enum { PAD = 1, NOT_COUNTED = -1 };

struct tp_streams {
    const int16_t *ids;
    int64_t length, batch, tokens, blocks; /* blocks: of each stream */
    int64_t streams, first;                /* of all processes; the first of this one */
    int64_t position;
    int32_t pad; /* follows the last token; txl has no <pad>, and perhaps only one symbol */
    bool all_targets;
    int32_t *x, *y; /* [B,M], for tp_streams_next */
    char why[TP_WHY];
};

TP_FAILS(tp_streams, no_streams, "batches: out of memory",
         "streams: NULL was given in place of a reader")

static void check_size(tp_streams *S, const tp_text *X, tp_part part, tp_share share)
{
    static const char *const split[] = { "training", "validation", "test" };
    const long long n = S->length, B = S->batch, M = S->tokens, all = S->streams;
    if (!tp_text_ok(X))
        tp__fail(S, "%s", tp_text_why(X));
    else if (!tp__share_ok(share))
        tp__fail(S, "batches: " TP_NO_SHARE, share.rank, share.ranks);
    else if (all < 1 || M < 1 || B > INT32_MAX / M)
        tp__fail(S, "batches: %lld streams of %lld tokens are out of range", B, M);
    else if (n < 2 || (n - 1) / M + 1 < all)
        tp__fail(S,
                 "batches: the %s text has %lld tokens, too few for %lld streams of %lld: give a "
                 "longer text, fewer streams or shorter segments",
                 split[part], n, all, M);
}

tp_streams *tp_streams_new(const tp_text *X, tp_part part, const tp_streams_opts *o)
{
    if (!X) return NULL;
    tp_streams *S = calloc(1, sizeof *S);
    if (!S) return &no_streams;
    S->ids = tp_text_ids(X, part, &S->length);
    S->batch = o->batch;
    S->tokens = o->tokens;
    S->all_targets = o->all_targets;
    if (S->batch > 0 && S->batch <= INT32_MAX) {
        S->streams = S->batch * tp_share_parts(o->share);
        S->first = S->batch * o->share.rank;
    }
    check_size(S, X, part, o->share);
    S->pad = tp_text_ok(X) && tp_text_vocab(X)->size > PAD ? PAD : 0;
    if (S->why[0]) return S;
    S->blocks = ((S->length - 1) / S->tokens + 1) / S->streams;
    const size_t cells = (size_t)(S->batch * S->tokens);
    S->x = malloc(cells * sizeof *S->x);
    S->y = malloc(cells * sizeof *S->y);
    if (!S->x || !S->y)
        tp__fail(S, "batches: out of memory for %lld streams of %lld tokens", (long long)S->batch,
                 (long long)S->tokens);
    return S;
}

void tp_streams_free(tp_streams *S)
{
    if (!S || S == &no_streams) return;
    free(S->x);
    free(S->y);
    free(S);
}

int64_t tp_streams_steps(const tp_streams *S)
{
    if (!S) return 0;
    return S->blocks;
}
int64_t tp_streams_position(const tp_streams *S)
{
    if (!S) return 0;
    return S->position;
}

void tp_streams_seek(tp_streams *S, int64_t position)
{
    if (!S) return;
    const int64_t most = INT64_C(1) << 60; /* positions must not overflow 64 bits */
    if (S == &no_streams) return;
    S->position = position < 0 ? 0 : position > most ? most : position;
}

bool tp_streams_next_host(tp_streams *S, int32_t *x, int32_t *y)
{
    if (!S) return false;
    if (!tp_streams_ok(S)) return false;
    const int64_t M = S->tokens, step = S->position++ % S->blocks;
    for (int64_t b = 0; b < S->batch; b++) {
        const int64_t first = ((S->first + b) * S->blocks + step) * M;
        for (int64_t t = 0; t < M; t++, x++, y++) {
            const int64_t at = first + t;
            const bool target = at + 1 < S->length && (S->all_targets || t + 1 < M);
            *x = at < S->length ? S->ids[at] : S->pad;
            *y = target ? S->ids[at + 1] : NOT_COUNTED;
        }
    }
    return true;
}

void tp_streams_next(tp_streams *S, tp_tape *T, tp_tensor *x, tp_tensor *y)
{
    if (!S) {
        tp_raise_here(T, TP_E_STATE, "streams_next: NULL was given in place of a text");
        return;
    }
    if (!tp_streams_ok(S)) {
        *x = *y = tp_raise(T, TP_E_VALUE, "%s", S->why);
        return;
    }
    tp_streams_next_host(S, S->x, S->y);
    *x = tp_from(T, TP_I32, TP_SHAPE(S->batch, S->tokens), S->x);
    *y = tp_from(T, TP_I32, TP_SHAPE(S->batch, S->tokens), S->y);
}
