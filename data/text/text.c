/* text.c - a text as token ids, split into training, validation and test parts.
 *
 *     | train: what remains | valid: 5 % | test: 5 % |      of 10^8 bytes: 90, 5 and 5 million
 *
 * Extra text is appended to the training part. Opening converts the whole text to ids of two bytes
 * and closes the file, so changing the file during training is harmless. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"
#include "vocab.h"
#include <tapegrad/data.h>
#include <tapegrad/file.h>

enum { SPLITS = 3, END_OF_LINE = 2, WHY = 1024 };

struct tp_text {
    tp_vocab vocab;
    int64_t bytes[SPLITS], length[SPLITS], unknown[SPLITS];
    int16_t *ids[SPLITS];
    char why[WHY];
};

static tp_text no_memory = { .why = "text: out of memory" };

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

/* Is it text? With one token for each byte any file is. Passes over a byte order mark. */
static bool check(tp_text *X, const char *name, const uint8_t **bytes, int64_t *n,
                  const tp_text_opts *o)
{
    const char *text = (const char *)*bytes;
    size_t left = (size_t)*n;
    char why[200];
    if ((o->vocab ? o->vocab->style : o->style) == TP_TEXT_BYTES) return true;
    if (!tp_file_text(&text, &left, why, sizeof why)) {
        snprintf(X->why, WHY, "text %.480s %s%s", name, why,
                 o->vocab ? "" : "; the style 'bytes' takes any file");
        return false;
    }
    *bytes = (const uint8_t *)text;
    *n = (int64_t)left;
    return true;
}

/* The training bytes, of `all` bytes of text, followed by the bytes of another file, to be freed; NULL: X has failed. */
static uint8_t *extend(tp_text *X, const uint8_t *train, int64_t all, const tp_text_opts *o)
{
    const char *path = o->extra;
    const size_t n = (size_t)X->bytes[TP_TRAIN];
    tp_blob b;
    char why[WHY / 2];
    uint8_t *both = NULL;
    const bool loaded = tp__blob_load(&b, path, 0, why, sizeof why);
    const uint8_t *more = b.bytes;
    int64_t m = (int64_t)b.size;
    if (!loaded) {
        snprintf(X->why, WHY, "text %.480s: %s", path, why);
    } else if (!check(X, path, &more, &m, o)) {
        both = NULL;
    } else if (m >= all && memcmp(more, train, (size_t)all) == 0) {
        snprintf(X->why, WHY,
                 "text %.480s: it begins with the whole text, so validation and test text would be "
                 "trained on; leave it out",
                 path);
    } else if (!(both = malloc(n + (size_t)m + 1))) {
        snprintf(X->why, WHY, "text %.480s: out of memory for %zu bytes", path, n + (size_t)m);
    } else {
        memcpy(both, train, n);
        memcpy(both + n, more, (size_t)m);
        X->bytes[TP_TRAIN] += m;
    }
    tp__blob_free(&b);
    return both;
}

/* Encodes the three parts. Unless one is given, the dictionary is built from the training part, that of
 * Transformer-XL from all of them. */
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
            snprintf(X->why, WHY, "text %s: out of memory for the token ids of %lld bytes", name,
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
        snprintf(X->why, WHY,
                 "text %s: validation and test fractions %g and %g leave no training text", name,
                 valid, test);
        return;
    }
    if (!check(X, name, &bytes, &n, o)) return;
    if (n == 0) {
        snprintf(X->why, WHY, "text %.480s: has nothing but a byte order mark", name);
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
    char why[WHY / 2];
    if (!X) return &no_memory;
    if (!o) o = &defaults;
    if (tp__blob_load(&b, path, o->limit > 0 ? (size_t)o->limit : 0, why, sizeof why))
        fill(X, path, b.bytes, (int64_t)b.size, o);
    else
        snprintf(X->why, WHY, "text %.480s: %s", path, why);
    tp__blob_free(&b);
    return X;
}

tp_text *tp_text_from(const uint8_t *bytes, int64_t n, const tp_text_opts *o)
{
    if (!bytes) n = 0;
    static const tp_text_opts defaults = { 0 };
    tp_text *X = calloc(1, sizeof *X);
    if (!X) return &no_memory;
    if (!o) o = &defaults;
    if (o->limit > 0 && n > o->limit) n = o->limit;
    if (n > 0)
        fill(X, "in memory", bytes, n, o);
    else
        snprintf(X->why, WHY, "the text in memory is empty");
    return X;
}

void tp_text_close(tp_text *X)
{
    if (!X || X == &no_memory) return;
    for (int s = 0; s < SPLITS; s++) free(X->ids[s]);
    free(X);
}

bool tp_text_ok(const tp_text *X)
{
    if (!X) return false;
    return !X->why[0];
}
const char *tp_text_why(const tp_text *X)
{
    if (!X) return "text: NULL was given in place of a text";
    return X->why;
}
const tp_vocab *tp_text_vocab(const tp_text *X)
{
    return &X->vocab;
}
int64_t tp_text_bytes(const tp_text *X, tp_part part)
{
    if (!X) return 0;
    return X->bytes[part];
}

const int16_t *tp_text_ids(const tp_text *X, tp_part part, int64_t *n)
{
    if (!X) return NULL;
    *n = X->length[part];
    return X->ids[part];
}

int64_t tp_text_unknown(const tp_text *X, tp_part part)
{
    return X->unknown[part];
}
