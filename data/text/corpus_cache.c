/* corpus_cache.c - a file that keeps the tokens of a corpus.
 *
 *     "tapegrad tokens\n" | order, key, tokens, documents, bytes, unknown, hash, check: 8 x 8 bytes | ids, 2 bytes each
 *
 * Numbers are in the order of bytes of the machine, which `order` tells. The check is a hash of the header. The file is
 * written beside its place and renamed when it is complete. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>
#include <tapegrad/random.h>
#include <unistd.h>

#include "corpus.h"

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
        return tp__corpus_fail(k->C, "corpus: %.700s cannot be opened: %s", file->path,
                               strerror(errno));
    k->key = tp_hash_text(k->key, file->name);
    k->key = tp_hash(k->key, (uint64_t)st.st_size);
    k->key = tp_hash(k->key, (uint64_t)st.st_mtim.tv_sec);
    k->key = tp_hash(k->key, (uint64_t)st.st_mtim.tv_nsec);
    return true;
}

bool tp__corpus_key(tp_corpus *C, const char *const path[], int paths, uint64_t *key)
{
    keying k = { C, TP_HASH };
    char *vocab = tp_bpe_vocab_text(C->vocabulary), *merges = tp_bpe_merges_text(C->vocabulary);
    if (!vocab || !merges)
        tp__corpus_fail(C, "corpus: out of memory for the key of %.700s", C->o.cache);
    else
        k.key = tp_hash_text(tp_hash_text(k.key, vocab), merges);
    free(vocab);
    free(merges);
    k.key = tp_hash(tp_hash(k.key, (uint64_t)C->o.end), (uint64_t)C->o.limit);
    if (!C->why[0]) tp__corpus_files(C, path, paths, true, add_file, &k);
    *key = k.key;
    return !C->why[0];
}

/* ---- finding ---- */

bool tp__corpus_find(tp_corpus *C, uint64_t key)
{
    header h;
    int64_t bytes;
    const char *kind;
    const int fd = tp_file_regular(C->o.cache, &bytes, &kind);
    if (fd < 0) {
        if (kind || errno != ENOENT)
            tp__corpus_fail(C, "corpus: the cache %.700s %s%s", C->o.cache,
                            kind ? "is " : "cannot be opened: ", kind ? kind : strerror(errno));
        return false;
    }
    const size_t n = tp_file_bytes(fd, 0, &h, sizeof h);
    if (n < MAGIC || memcmp(h.magic, magic, MAGIC) != 0)
        tp__corpus_fail(C,
                        "corpus: %.700s is not a cache of tokens, so it is not replaced; name "
                        "another file for the cache",
                        C->o.cache);
    const bool found = !C->why[0] && n == sizeof h && h.order == order && h.key == key &&
                       h.check == check_of(&h) && h.tokens > 0 && h.documents > 0 &&
                       h.tokens < INT64_MAX / 4 && bytes == (int64_t)sizeof h + 2 * h.tokens;
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
    char path[PATH]; /* of the file that is being written */
};

static bool failed(tp_corpus_writer *W, const char *what)
{
    const int error = errno;
    return tp__corpus_fail(W->C, "corpus: %.600s cannot be %s: %s; %s", W->path, what,
                           strerror(error), tp_file_advice(error));
}

static bool write_all(tp_corpus_writer *W, const void *bytes, size_t n)
{
    for (const char *at = bytes; n > 0;) {
        const ssize_t k = write(W->fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return failed(W, "written");
        at += k;
        n -= (size_t)k;
    }
    return true;
}

tp_corpus_writer *tp__corpus_begin(tp_corpus *C)
{
    const header empty = { .order = 0 };
    tp_corpus_writer *W = calloc(1, sizeof *W);
    if (!W) {
        tp__corpus_fail(C, "corpus: out of memory to write %.700s", C->o.cache);
        return NULL;
    }
    W->C = C;
    W->fd = -1;
    W->fd = tp_file_temporary(C->o.cache, W->path, PATH);
    if (W->fd < 0) failed(W, "created");
    if (W->fd >= 0) write_all(W, &empty, sizeof empty);
    return W;
}

bool tp__corpus_write(tp_corpus_writer *W, const uint16_t *ids, int64_t n)
{
    return !W->C->why[0] && write_all(W, ids, (size_t)n * sizeof *ids);
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

bool tp__corpus_commit(tp_corpus_writer *W, uint64_t key)
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
