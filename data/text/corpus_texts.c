/* corpus_texts.c - finds the texts of a corpus, divides them into documents and tokenises these.
 *
 *     file -> 256 KiB of bytes at a time -> documents, or pieces to 1 MiB -> jobs of 1 MiB -> ids
 *
 * Jobs are filled one after another and tokenised together, each by a thread; their ids are
 * appended in order, so they do not depend on the number of threads. Pieces are cut before a space
 * or line end between two ASCII letters or digits, which no token of the word pattern can span. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>
#include <tapegrad/random.h>

#include "corpus.h"
#include "files.h"
#include "load.h"
#include "tree.h"

enum { PIECE = 1 << 20, TEXT = PIECE + 1, MOST_THREADS = 64 };
static const size_t largest = (size_t)1 << 30;

/* ---- files ---- */

typedef struct visitor {
    tp_corpus *C;
    const char *path;
    bool (*f)(void *env, const tp_text_file *file);
    void *env;
    tp_file_set *seen;
} visitor;

/* A file read twice would be in both the training part and the held-out part. */
static bool is_new(const visitor *v, const char *path)
{
    bool fits;
    if (tp__file_set_add(v->seen, path, &fits)) return true;
    return tp__fail(v->C,
                    fits ? "corpus: %.700s is among the texts twice, by two paths, a folder "
                           "or a link: name it once"
                         : "corpus: %.700s: out of memory",
                    path);
}

static bool wants(void *env, const char *name)
{
    (void)env;
    return tp__is_named(name, ".txt");
}

static bool open_file(void *env, const char *name, const char *path)
{
    const visitor *v = env;
    return is_new(v, path) && v->f(v->env, &(tp_text_file){ .path = path, .name = name });
}

/* Takes a file of an archive. */
static bool take(void *env, const char *name, const uint8_t *bytes, size_t n)
{
    const visitor *v = env;
    return v->f(v->env, &(tp_text_file){ v->path, name, bytes, n });
}

static bool is_archive(const char *path)
{
    return tp__is_named(path, ".tar") || tp_ends_in(path, ".tgz") || tp_ends_in(path, ".txz");
}

bool tp__corpus_files(tp_corpus *C, const char *const path[], int paths, bool names_only,
                      bool (*f)(void *env, const tp_text_file *file), void *env)
{
    tp_file_set seen = { 0 };
    for (int k = 0; k < paths && !C->why[0]; k++) {
        struct stat st;
        visitor v = { C, path[k], f, env, &seen };
        const tp_tree tree = { .wants = wants,
                               .take = take,
                               .open = open_file,
                               .env = &v,
                               .most = largest,
                               .why = C->why,
                               .size = sizeof C->why };
        const bool found = stat(path[k], &st) == 0;
        const bool folder = found && S_ISDIR(st.st_mode);
        if (found && !folder && !is_new(&v, path[k])) break;
        if (folder || (found && is_archive(path[k]) && !names_only))
            tp__tree_visit(path[k], &tree);
        else if (!f(env, &(tp_text_file){ .path = path[k], .name = path[k] }))
            break;
    }
    free(seen.slot);
    return !C->why[0];
}

/* ---- documents ---- */

/* A part of a document; it ends at `end` in the text of its job. */
typedef struct piece {
    size_t end;
    bool last; /* of its document */
} piece;

/* The work of one thread at a time. */
typedef struct job {
    tp_bpe_coder *coder;
    char *text; /* [TEXT] */
    size_t n;
    piece *piece;
    size_t pieces, piece_room;
    int32_t *ids;
    size_t count, room;
    bool failed;
    int32_t end; /* the id that ends a document, or -1 */
    pthread_t thread;
    bool started;
} job;

typedef struct reader {
    tp_corpus *C;
    tp_corpus_writer *W;
    job *job; /* [threads] */
    int jobs, filled;
    char *text; /* the rest of the document: n bytes, or 0 if only white space */
    size_t n, room;
    const tp_text_file *file;
    bool begun;    /* a piece of the document has been passed on  */
    bool has_text; /* the line has more than white space          */
    int64_t taken; /* bytes of the file so far                    */
} reader;

static bool no_memory(reader *r)
{
    return tp__fail(r->C, "corpus: out of memory after %lld tokens", (long long)r->C->tokens);
}

/* ---- tokenising ---- */

static void *tokenise(void *env)
{
    job *j = env;
    size_t begin = 0;
    j->count = 0;
    for (size_t k = 0; k < j->pieces && !j->failed; k++) {
        const piece *p = &j->piece[k];
        int64_t n;
        const int32_t *ids = tp_bpe_encode(j->coder, j->text + begin, p->end - begin, &n);
        if (!ids || !tp_reserve(&j->ids, &j->room, j->count, (size_t)n + 1, sizeof *j->ids)) {
            j->failed = true;
            break;
        }
        memcpy(j->ids + j->count, ids, (size_t)n * sizeof *ids);
        j->count += (size_t)n;
        if (p->last && j->end >= 0) j->ids[j->count++] = j->end;
        begin = p->end;
    }
    return NULL;
}

/* Stores the ids of a job with the corpus's width, in place. */
static void narrow(job *j, int width)
{
    unsigned char *to = (unsigned char *)j->ids;
    for (size_t i = 0; i < j->count && width == 2; i++) {
        const uint16_t id = (uint16_t)j->ids[i];
        memcpy(to + 2 * i, &id, sizeof id);
    }
}

static bool append(reader *r, job *j)
{
    tp_corpus *C = r->C;
    uint64_t hash = C->hash;
    if (j->failed) return no_memory(r);
    if (j->count == 0) return true;
    for (size_t i = 0; i < j->count; i++) {
        hash = tp_hash(hash, (uint64_t)j->ids[i]);
        C->unknown += j->ids[i] == C->special[TP_BPE_UNKNOWN];
    }
    C->hash = hash;
    narrow(j, C->width);
    const size_t bytes = j->count * (size_t)C->width, before = (size_t)(C->tokens * C->width);
    if (r->W) {
        if (!tp__corpus_write(r->W, j->ids, bytes)) return false;
    } else {
        if (!tp_reserve(&C->ids, &C->room, before, bytes, 1)) return no_memory(r);
        memcpy(C->ids + before, j->ids, bytes);
    }
    C->tokens += (int64_t)j->count;
    return true;
}

/* Tokenises the filled jobs, the last in this thread, which also replaces threads that fail to
 * start. */
static bool run(reader *r)
{
    const int jobs = r->filled < r->jobs ? r->filled + 1 : r->jobs;
    for (int k = 0; k < jobs - 1; k++)
        r->job[k].started = pthread_create(&r->job[k].thread, NULL, tokenise, &r->job[k]) == 0;
    for (int k = 0; k < jobs; k++)
        if (!r->job[k].started) tokenise(&r->job[k]);
    for (int k = 0; k < jobs; k++) {
        if (r->job[k].started) pthread_join(r->job[k].thread, NULL);
        r->job[k].started = false;
    }
    bool done = true;
    for (int k = 0; k < jobs; k++) {
        done = done && append(r, &r->job[k]);
        r->job[k].n = r->job[k].pieces = 0;
    }
    r->filled = 0;
    return done;
}

/* Passes n bytes, at most TEXT, to a job. */
static bool give(reader *r, const char *text, size_t n, bool last)
{
    job *j = &r->job[r->filled];
    if (j->n + n > TEXT) {
        if (++r->filled == r->jobs && !run(r)) return false;
        j = &r->job[r->filled];
    }
    if (!tp_reserve(&j->piece, &j->piece_room, j->pieces, 1, sizeof *j->piece)) return no_memory(r);
    if (n) memcpy(j->text + j->n, text, n);
    j->n += n;
    j->piece[j->pieces++] = (piece){ .end = j->n, .last = last };
    r->begun = !last;
    r->C->documents += last;
    return true;
}

/* ---- dividing ---- */

static bool is_letter(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Returns where to cut a text of more than TEXT bytes. */
static size_t cut(const char *text)
{
    size_t k = PIECE;
    for (; k > PIECE / 2; k--)
        if ((text[k] == ' ' || text[k] == '\n') && is_letter(text[k - 1]) && is_letter(text[k + 1]))
            return k;
    for (k = PIECE; k > PIECE - 4 && ((unsigned char)text[k] & 0xc0) == 0x80;) k--;
    return k;
}

static bool end_document(reader *r)
{
    size_t n = r->n;
    r->n = 0;
    r->has_text = false;
    while (n > 0 && tp__is_white(r->text[n - 1])) n--;
    return (n == 0 && !r->begun) || give(r, r->text, n, true);
}

/* Adds bytes to the document. */
static bool extend(reader *r, const char *bytes, size_t n)
{
    if (r->n == 0 && !r->begun)
        for (; n > 0 && tp__is_white(*bytes); n--) bytes++;
    if (n == 0) return true;
    if (!tp_reserve(&r->text, &r->room, r->n, n, 1)) return no_memory(r);
    memcpy(r->text + r->n, bytes, n);
    r->n += n;
    size_t at = 0;
    while (r->n - at > TEXT) {
        const size_t k = cut(r->text + at);
        if (!give(r, r->text + at, k, false)) return false;
        at += k;
    }
    r->n -= at;
    if (at) memmove(r->text, r->text + at, r->n);
    return true;
}

/* Adds bytes line by line; every line, or every blank one, ends a document. */
static bool divide(reader *r, const char *bytes, size_t n)
{
    for (const char *at = bytes, *end = bytes + n; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *to = stop ? stop + 1 : end;
        for (const char *p = at; p < to && !r->has_text; p++) r->has_text = !tp__is_white(*p);
        const bool ends = stop && (r->C->o.end == TP_DOCUMENT_LINE || !r->has_text);
        if (!extend(r, at, (size_t)(to - at)) || (ends && !end_document(r))) return false;
        if (stop) r->has_text = false;
        at = to;
    }
    return true;
}

/* Skips an initial byte order mark and refuses anything but text: images, weights, UTF-16. */
static bool is_text(reader *r, const char **bytes, size_t *n)
{
    const tp_text_file *f = r->file;
    const char *begin = *bytes, *zero = r->taken && *n ? memchr(begin, 0, *n) : NULL;
    char why[200];
    bool done = !zero;
    if (zero)
        snprintf(why, sizeof why, "has a zero byte at offset %lld: it is not text in UTF-8",
                 (long long)(r->taken + (zero - begin)));
    else if (!r->taken)
        done = tp_skip_bom(bytes, n, why, sizeof why);
    r->C->bytes += *bytes - begin;
    r->taken += *bytes - begin + (int64_t)*n;
    return done || tp__fail(r->C, "corpus: %.700s%s%.300s %s", f->path, f->bytes ? ": " : "",
                            f->bytes ? f->name : "", why);
}

static bool add(void *env, const char *bytes, size_t n)
{
    reader *r = env;
    tp_corpus *C = r->C;
    if (!is_text(r, &bytes, &n)) return false;
    if (C->o.limit > 0 && (int64_t)n > C->o.limit - C->bytes)
        n = (size_t)(C->o.limit > C->bytes ? C->o.limit - C->bytes : 0);
    C->bytes += (int64_t)n;
    const bool done = C->o.end == TP_DOCUMENT_FILE ? extend(r, bytes, n) : divide(r, bytes, n);
    return done && (C->o.limit <= 0 || C->bytes < C->o.limit);
}

static bool read_file(void *env, const tp_text_file *file)
{
    reader *r = env;
    tp_corpus *C = r->C;
    char why[256];
    r->taken = 0;
    r->file = file;
    if (file->bytes)
        add(r, (const char *)file->bytes, file->n);
    else if (!tp__load_pieces(file->path, add, r, why, sizeof why))
        tp__fail(C, "corpus: %.700s %s", file->path, why);
    return !C->why[0] && end_document(r) && (C->o.limit <= 0 || C->bytes < C->o.limit);
}

/* ---- the corpus ---- */

static bool begin(reader *r)
{
    bool fits = r->job;
    for (int k = 0; fits && k < r->jobs; k++) {
        r->job[k].coder = tp_bpe_coder_new(r->C->vocabulary);
        r->job[k].text = malloc(TEXT);
        r->job[k].end = r->C->end;
        fits = r->job[k].coder && r->job[k].text;
    }
    return fits || no_memory(r);
}

bool tp__corpus_tokenise(tp_corpus *C, const char *const path[], int paths, tp_corpus_writer *W)
{
    reader r = { .C = C,
                 .W = W,
                 .jobs = C->o.threads < MOST_THREADS ? C->o.threads : MOST_THREADS };
    r.job = calloc((size_t)r.jobs, sizeof *r.job);
    if (begin(&r) && tp__corpus_files(C, path, paths, false, read_file, &r)) run(&r);
    for (int k = 0; r.job && k < r.jobs; k++) {
        tp_bpe_coder_free(r.job[k].coder);
        free(r.job[k].text);
        free(r.job[k].piece);
        free(r.job[k].ids);
    }
    free(r.job);
    free(r.text);
    return !C->why[0];
}
