/* corpus.c - a stream of tokens: opening, its cache, parts, reading.
 *
 *     | train | valid | train | valid | ...      sixteen spans, each ending with held-out tokens
 *
 * A single held-out span at the end would be of one kind if files are sorted by kind; held-out
 * documents everywhere would differ with the length of sequences. */
#include "corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/file.h>
#include <tapegrad/random.h>

/* ---- the cache ----
 *
 *     "tapegrad tokens\n" | order, key, tokens, documents, bytes, unknown, hash, check | ids
 *
 * `order` to `check` have 8 bytes each, ids 2 or, of a vocabulary beyond 65536, 4, all in the
 * machine's byte order, which `order` reveals. The check is a hash of the header. A temporary file
 * is written first and renamed when complete. */

enum { MAGIC = 16, PATH = 4096 };
static const char magic[MAGIC + 1] = "tapegrad tokens\n";
static const uint64_t order = 0x0102030405060708u;

typedef struct header {
    char magic[MAGIC];
    uint64_t order, key;
    int64_t tokens, documents, bytes, unknown;
    uint64_t hash, check;
} header;

static uint64_t check_of(const header *h)
{
    uint64_t words[sizeof *h / 8], hash = TP_HASH;
    memcpy(words, h, sizeof *h);
    for (size_t k = 0; k < sizeof words / sizeof *words - 1; k++) hash = tp_hash(hash, words[k]);
    return hash;
}

/* ---- the key ---- */

typedef struct keying {
    tp_corpus *C;
    uint64_t key;
} keying;

static bool add_file(void *env, const tp_text_file *file)
{
    keying *k = env;
    struct stat st;
    if (stat(file->path, &st) != 0)
        return tp__fail(k->C, "corpus: %.700s cannot be opened: %s", file->path, strerror(errno));
    k->key = tp_hash_text(k->key, file->name);
    k->key = tp_hash(k->key, (uint64_t)st.st_size);
    k->key = tp_hash(k->key, (uint64_t)st.st_mtim.tv_sec);
    k->key = tp_hash(k->key, (uint64_t)st.st_mtim.tv_nsec);
    return true;
}

/* Computes the key of texts, vocabulary and options. False: C has failed. */
static bool key_of(tp_corpus *C, const char *const path[], int paths, uint64_t *key)
{
    keying k = { C, TP_HASH };
    char *vocab = tp_bpe_vocab_text(C->vocabulary), *merges = tp_bpe_merges_text(C->vocabulary);
    if (!vocab || !merges)
        tp__fail(C, "corpus: out of memory for the key of %.700s", C->o.cache);
    else
        k.key = tp_hash_text(tp_hash_text(k.key, vocab), merges);
    free(vocab);
    free(merges);
    k.key = tp_hash(tp_hash(k.key, (uint64_t)C->o.end), (uint64_t)C->o.limit);
    if (C->o.separator) k.key = tp_hash(k.key, (uint64_t)C->end);
    if (!C->why[0]) tp__corpus_files(C, path, paths, true, add_file, &k);
    *key = k.key;
    return !C->why[0];
}

/* ---- finding ---- */

/* Uses the cache if its key matches. False: write it, or C has failed. */
static bool find_cache(tp_corpus *C, uint64_t key)
{
    header h;
    int64_t bytes;
    const char *kind;
    const int fd = tp_open_regular(C->o.cache, &bytes, &kind);
    if (fd < 0) {
        if (kind || errno != ENOENT)
            tp__fail(C, "corpus: the cache %.700s %s%s", C->o.cache,
                     kind ? "is " : "cannot be opened: ", kind ? kind : strerror(errno));
        return false;
    }
    const size_t n = tp_read_bytes(fd, 0, &h, sizeof h);
    if (n < MAGIC || memcmp(h.magic, magic, MAGIC) != 0)
        tp__fail(C,
                 "corpus: %.700s is not a cache of tokens, so it is not replaced; name "
                 "another file for the cache",
                 C->o.cache);
    const bool found = !C->why[0] && n == sizeof h && h.order == order && h.key == key &&
                       h.check == check_of(&h) && h.tokens > 0 && h.documents > 0 &&
                       h.tokens < INT64_MAX / 8 && bytes == (int64_t)sizeof h + C->width * h.tokens;
    if (!found) {
        close(fd);
        return false;
    }
    C->cache = fd;
    C->ids_at = sizeof h;
    C->tokens = h.tokens;
    C->documents = h.documents;
    C->bytes = h.bytes;
    C->unknown = h.unknown;
    C->hash = h.hash;
    C->was_cached = true;
    return true;
}

/* ---- writing ---- */

struct tp_corpus_writer {
    tp_corpus *C;
    int fd;
    char path[PATH]; /* of the unfinished file */
};

static bool failed(tp_corpus_writer *W, const char *what)
{
    const int error = errno;
    return tp__fail(W->C, "corpus: %.600s cannot be %s: %s; %s", W->path, what, strerror(error),
                    tp_file_advice(error));
}

static bool write_all(tp_corpus_writer *W, const void *bytes, size_t n)
{
    return tp_write_bytes(W->fd, bytes, n) || failed(W, "written");
}

/* Begins a new cache beside the old one; NULL: C has failed. */
static tp_corpus_writer *begin_cache(tp_corpus *C)
{
    const header empty = { .order = 0 };
    tp_corpus_writer *W = calloc(1, sizeof *W);
    if (!W) {
        tp__fail(C, "corpus: out of memory to write %.700s", C->o.cache);
        return NULL;
    }
    W->C = C;
    W->fd = -1;
    W->fd = tp_open_temporary(C->o.cache, W->path, PATH);
    if (W->fd < 0) failed(W, "created");
    if (W->fd >= 0) write_all(W, &empty, sizeof empty);
    return W;
}

bool tp__corpus_write(tp_corpus_writer *W, const void *ids, size_t bytes)
{
    return !W->C->why[0] && write_all(W, ids, bytes);
}

static bool finish(tp_corpus_writer *W, uint64_t key)
{
    tp_corpus *C = W->C;
    header h = { .order = order,
                 .key = key,
                 .tokens = C->tokens,
                 .documents = C->documents,
                 .bytes = C->bytes,
                 .unknown = C->unknown,
                 .hash = C->hash };
    memcpy(h.magic, magic, MAGIC);
    h.check = check_of(&h);
    if (lseek(W->fd, 0, SEEK_SET) != 0) return failed(W, "written");
    return write_all(W, &h, sizeof h) && (fsync(W->fd) == 0 || failed(W, "written")) &&
           (rename(W->path, C->o.cache) == 0 || failed(W, "renamed"));
}

/* Replaces the old cache with the new one; if C has failed, removes it and returns false. */
static bool commit_cache(tp_corpus_writer *W, uint64_t key)
{
    tp_corpus *C = W->C;
    if (!C->why[0] && finish(W, key)) {
        C->cache = W->fd;
        C->ids_at = sizeof(header);
    } else if (W->fd >= 0) {
        close(W->fd);
        unlink(W->path);
    }
    free(W);
    return !C->why[0];
}

static const double held_out = 0.05;
TP_FAILS(tp_corpus, no_corpus, "corpus: out of memory",
         "corpus: NULL was given in place of a corpus")

/* ---- opening ---- */

const char *tp__corpus_lacks(const tp_corpus *C)
{
    static const tp_bpe_special needed[] = { TP_BPE_BEGIN, TP_BPE_PAD, TP_BPE_END, TP_BPE_MASK };
    for (size_t k = 0; k < sizeof needed / sizeof *needed; k++)
        if (C->special[needed[k]] < 0) return tp_bpe_special_name(needed[k]);
    return NULL;
}

/* Finds the special tokens, and the one that ends documents. */
static bool find_specials(tp_corpus *C, const tp_bpe *X)
{
    const char *end = C->o.separator;
    for (int k = 0; k < TP_BPE_SPECIALS; k++)
        C->special[k] = tp_bpe_special_id(X, (tp_bpe_special)k);
    C->end = !end ? C->special[TP_BPE_END] : end[0] ? tp_bpe_id(X, end) : -1;
    if (end && end[0] && C->end < 0)
        return tp__fail(C, "corpus: the vocabulary has no token %.200s, which would end documents",
                        end);
    const char *lacks = end ? NULL : tp__corpus_lacks(C);
    return !lacks || tp__fail(C, "corpus: the vocabulary has no token %s", lacks);
}

static bool check(tp_corpus *C, const tp_bpe *X, int paths)
{
    if (!tp_bpe_ok(X)) return tp__fail(C, "%s", tp_bpe_why(X));
    if (!find_specials(C, X)) return false;
    C->size = tp_bpe_size(X);
    C->width = C->size > TP_CORPUS_NARROW ? 4 : 2;
    if (C->size <= TP_BPE_SPECIALS)
        return tp__fail(C, "corpus: the vocabulary has special tokens only");
    if (!(C->o.held_out < 0.5))
        return tp__fail(C, "corpus: the held-out fraction %g is not below 0.5", C->o.held_out);
    return paths > 0 || tp__fail(C, "corpus: there is no text; name a file or a folder");
}

/* Tokenises the texts, or finds their tokens in the cache. */
static void fill(tp_corpus *C, const char *const path[], int paths)
{
    uint64_t key = 0;
    tp_corpus_writer *W = NULL;
    if (C->o.cache) {
        if (!key_of(C, path, paths, &key) || find_cache(C, key) || C->why[0]) return;
        W = begin_cache(C);
    }
    if (!C->why[0]) tp__corpus_tokenise(C, path, paths, W);
    if (!C->why[0] && C->tokens == 0)
        tp__fail(C, "corpus: %.700s%s no text", path[0],
                 paths > 1 ? " and the other paths contain" : " contains");
    if (W) commit_cache(W, key);
    unsigned char *exact =
        C->why[0] || !C->ids ? NULL : realloc(C->ids, (size_t)(C->tokens * C->width));
    if (exact) C->ids = exact;
}

tp_corpus *tp_corpus_open(const char *const path[], int paths, const tp_bpe *X,
                          const tp_corpus_opts *o)
{
    if (!X) return NULL;
    tp_corpus *C = calloc(1, sizeof *C);
    if (!C) return &no_corpus;
    if (o) C->o = *o;
    if (C->o.held_out == 0) C->o.held_out = held_out;
    if (C->o.threads < 1) C->o.threads = 1;
    C->cache = -1;
    C->hash = TP_HASH;
    C->vocabulary = X;
    if (C->o.cache) C->o.cache = C->cache_path = strdup(C->o.cache);
    if (o && o->cache && !C->cache_path)
        tp__fail(C, "corpus: out of memory");
    else if (check(C, X, paths))
        fill(C, path, paths);
    C->vocabulary = NULL;
    C->o.separator = NULL;
    return C;
}

void tp_corpus_close(tp_corpus *C)
{
    if (!C || C == &no_corpus) return;
    if (C->cache >= 0) close(C->cache);
    free(C->ids);
    free(C->cache_path);
    free(C);
}

/* ---- parts ---- */

/* Finds span k, from *begin: first *train tokens for training, then *valid held out. */
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

/* Copies n tokens from a position in the stream. */
static bool copy(const tp_corpus *C, int64_t at, int64_t n, int32_t *to, char *why, size_t size)
{
    const size_t bytes = (size_t)(n * C->width);
    unsigned char *stored =
        (unsigned char *)to + (size_t)n * sizeof *to - bytes; /* the last part */
    if (C->ids)
        memcpy(stored, C->ids + at * C->width, bytes);
    else if (tp_read_bytes(C->cache, C->ids_at + at * C->width, stored, bytes) < bytes) {
        snprintf(why, size, "corpus: %.700s cannot be read or has become shorter; remove it",
                 C->o.cache);
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t narrow;
        int32_t id;
        if (C->width == 2) {
            memcpy(&narrow, stored + 2 * i, sizeof narrow);
            id = narrow;
        } else {
            memcpy(&id, stored + 4 * i, sizeof id);
        }
        if (!C->ids && (id < 0 || id >= C->size)) {
            snprintf(why, size, "corpus: %.700s is damaged: it has the id %d; remove it",
                     C->o.cache, id);
            return false;
        }
        to[i] = id; /* before the next stored one */
    }
    return true;
}

bool tp_corpus_read(const tp_corpus *C, tp_part part, int64_t first, int64_t n, int32_t *ids,
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

int64_t tp_corpus_documents(const tp_corpus *C)
{
    return C ? C->documents : 0;
}
int64_t tp_corpus_bytes(const tp_corpus *C)
{
    return C ? C->bytes : 0;
}
uint64_t tp_corpus_hash(const tp_corpus *C)
{
    return C ? C->hash : 0;
}
int64_t tp_corpus_unknown(const tp_corpus *C)
{
    return C ? C->unknown : 0;
}
bool tp_corpus_was_cached(const tp_corpus *C)
{
    return C ? C->was_cached : false;
}
