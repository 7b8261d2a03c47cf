/* corpus.c - a stream of tokens: opening, parts, reading.
 *
 *     | train | valid | train | valid | ...      sixteen spans; each ends with its share of the held-out tokens
 *
 * One span at the end would be of one kind where files are sorted by kind; documents at every place would be
 * held out differently for different lengths of sequences. */
#include "corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/random.h>
#include <unistd.h>

static const double held_out = 0.05;
static tp_corpus no_memory = { .cache = -1, .why = "corpus: out of memory" };

/* ---- opening ---- */

static bool check(tp_corpus *C, const tp_bpe *X, int paths)
{
    static const tp_bpe_special needed[] = { TP_BPE_BEGIN, TP_BPE_PAD, TP_BPE_END, TP_BPE_MASK };
    if (!tp_bpe_ok(X)) return tp__corpus_fail(C, "%s", tp_bpe_why(X));
    if (tp_bpe_size(X) > TP_CORPUS_IDS)
        return tp__corpus_fail(C, "corpus: the vocabulary has %lld ids, more than %d",
                               (long long)tp_bpe_size(X), TP_CORPUS_IDS);
    for (int k = 0; k < 4; k++)
        if (tp_bpe_special_id(X, needed[k]) < 0)
            return tp__corpus_fail(C, "corpus: the vocabulary has no token %s",
                                   tp_bpe_special_name(needed[k]));
    if (tp_bpe_size(X) <= TP_BPE_SPECIALS)
        return tp__corpus_fail(C, "corpus: the vocabulary has special tokens only");
    if (!(C->o.held_out < 0.5))
        return tp__corpus_fail(C, "corpus: the held-out fraction %g is not below 0.5",
                               C->o.held_out);
    return paths > 0 || tp__corpus_fail(C, "corpus: there is no text; name a file or a folder");
}

/* Tokenises the texts, or finds their tokens in the cache. */
static void fill(tp_corpus *C, const char *const path[], int paths)
{
    uint64_t key = 0;
    tp_corpus_writer *W = NULL;
    if (C->o.cache) {
        if (!tp__corpus_key(C, path, paths, &key) || tp__corpus_find(C, key) || C->why[0]) return;
        W = tp__corpus_begin(C);
    }
    if (!C->why[0]) tp__corpus_tokenise(C, path, paths, W);
    if (!C->why[0] && C->tokens == 0)
        tp__corpus_fail(C, "corpus: %.700s%s no text", path[0],
                        paths > 1 ? " and the other paths contain" : " contains");
    if (W) tp__corpus_commit(W, key);
    uint16_t *exact =
        C->why[0] || !C->ids ? NULL : realloc(C->ids, (size_t)C->tokens * sizeof *exact);
    if (exact) C->ids = exact;
}

tp_corpus *tp_corpus_open(const char *const path[], int paths, const tp_bpe *X,
                          const tp_corpus_opts *o)
{
    if (!X) return NULL;
    tp_corpus *C = calloc(1, sizeof *C);
    if (!C) return &no_memory;
    if (o) C->o = *o;
    if (C->o.held_out == 0) C->o.held_out = held_out;
    if (C->o.threads < 1) C->o.threads = 1;
    C->cache = -1;
    C->hash = TP_HASH;
    C->vocabulary = X;
    if (C->o.cache) C->o.cache = C->cache_path = strdup(C->o.cache);
    if (o && o->cache && !C->cache_path)
        tp__corpus_fail(C, "corpus: out of memory");
    else if (check(C, X, paths)) {
        C->size = tp_bpe_size(X);
        for (int k = 0; k < TP_BPE_SPECIALS; k++)
            C->special[k] = tp_bpe_special_id(X, (tp_bpe_special)k);
        fill(C, path, paths);
    }
    C->vocabulary = NULL;
    return C;
}

void tp_corpus_close(tp_corpus *C)
{
    if (!C || C == &no_memory) return;
    if (C->cache >= 0) close(C->cache);
    free(C->ids);
    free(C->cache_path);
    free(C);
}

/* ---- parts ---- */

/* Span k, from *begin: first *train tokens for training, then *valid held out. */
static void span(const tp_corpus *C, int k, int64_t *begin, int64_t *train, int64_t *valid)
{
    const int64_t each = C->tokens / TP_CORPUS_SPANS, rest = C->tokens % TP_CORPUS_SPANS;
    const int64_t n = each + (k < rest);
    *begin = k * each + (k < rest ? k : rest);
    *valid = C->o.held_out > 0 ? (int64_t)(C->o.held_out * (double)n) : 0;
    *train = n - *valid;
}

int64_t tp_corpus_tokens(const tp_corpus *C, tp_part part)
{
    if (!C) return 0;
    int64_t total = 0, begin, train, valid;
    for (int k = 0; k < TP_CORPUS_SPANS && !C->why[0]; k++) {
        span(C, k, &begin, &train, &valid);
        total += part == TP_TRAIN ? train : valid;
    }
    return total;
}

/* Copies n tokens from a place in the stream. */
static bool copy(const tp_corpus *C, int64_t at, int64_t n, uint16_t *to, char *why, size_t size)
{
    if (C->ids) {
        memcpy(to, C->ids + at, (size_t)n * sizeof *to);
        return true;
    }
    const size_t bytes = (size_t)n * sizeof *to;
    if (tp_file_bytes(C->cache, C->ids_at + at * (int64_t)sizeof *to, to, bytes) < bytes) {
        snprintf(why, size, "corpus: %.700s cannot be read or has become shorter; remove it",
                 C->o.cache);
        return false;
    }
    for (int64_t i = 0; i < n; i++)
        if (to[i] >= C->size) {
            snprintf(why, size, "corpus: %.700s is damaged: it has the id %d; remove it",
                     C->o.cache, to[i]);
            return false;
        }
    return true;
}

bool tp_corpus_read(const tp_corpus *C, tp_part part, int64_t first, int64_t n, uint16_t *ids,
                    char *why, size_t size)
{
    if (!C) {
        if (why) snprintf(why, size, "corpus_read: NULL was given in place of a corpus");
        return false;
    }
    int64_t begin, train, valid;
    if (C->why[0] || first < 0 || n < 0 || first > tp_corpus_tokens(C, part) - n) {
        snprintf(why, size, "%s",
                 C->why[0] ? C->why : "corpus: there are not that many tokens in the part");
        return false;
    }
    for (int k = 0; k < TP_CORPUS_SPANS && n > 0; k++) {
        span(C, k, &begin, &train, &valid);
        const int64_t length = part == TP_TRAIN ? train : valid;
        if (first < length) {
            const int64_t m = length - first < n ? length - first : n;
            const int64_t at = begin + (part == TP_TRAIN ? 0 : train) + first;
            if (!copy(C, at, m, ids, why, size)) return false;
            ids += m;
            n -= m;
            first += m;
        }
        first -= length;
    }
    return true;
}

/* ---- queries ---- */

bool tp_corpus_ok(const tp_corpus *C)
{
    if (!C) return false;
    return !C->why[0];
}
const char *tp_corpus_why(const tp_corpus *C)
{
    if (!C) return "corpus: NULL was given in place of a corpus";
    return C->why;
}
int64_t tp_corpus_documents(const tp_corpus *C)
{
    if (!C) return 0;
    return C->documents;
}
int64_t tp_corpus_bytes(const tp_corpus *C)
{
    if (!C) return 0;
    return C->bytes;
}
uint64_t tp_corpus_hash(const tp_corpus *C)
{
    if (!C) return 0;
    return C->hash;
}
int64_t tp_corpus_unknown(const tp_corpus *C)
{
    return C->unknown;
}
bool tp_corpus_was_cached(const tp_corpus *C)
{
    if (!C) return false;
    return C->was_cached;
}
