/* bpe.c - vocabularies of byte-pair encoding: opening, tables and writing.
 *
 * Two hash tables with open addressing, at most half full: ids by name, ranks of merges by pair. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/file.h>

#include "bpe.h"
#include "load.h"

static const char *const specials[] = { "<s>", "<pad>", "</s>", "<unk>", "<mask>" };

/* ---- bytes as characters: 33-126, 161-172, 174-255; the other 68 from U+0100 on ---- */

static bool is_printable(int c)
{
    return (c >= 33 && c <= 126) || (c >= 161 && c <= 255 && c != 173);
}

int32_t tp__bpe_character(int byte)
{
    if (is_printable(byte)) return byte;
    if (byte <= 32) return 0x100 + byte;
    return byte == 173 ? 0x143 : 0x100 + 33 + (byte - 127);
}

int tp__bpe_byte(int32_t c)
{
    if (c < 0x100) return is_printable(c) ? c : -1;
    if (c > 0x143) return -1;
    return c <= 0x120 ? c - 0x100 : c == 0x143 ? 173 : c - 0x121 + 127;
}

/* ---- building ---- */

TP_FAILS(tp_bpe, no_bpe, "vocabulary: out of memory",
         "bpe: NULL was given in place of a vocabulary")

tp_bpe *tp__bpe_new(void)
{
    tp_bpe *X = calloc(1, sizeof *X);
    if (!X) return &no_bpe;
    for (int k = 0; k < TP_BPE_SPECIALS; k++) X->special[k] = -1;
    return X;
}

static size_t slots_for(int64_t n)
{
    size_t slots = 64;
    while (slots < 2 * (size_t)n) slots *= 2;
    return slots;
}

bool tp__bpe_room(tp_bpe *X, int64_t size, int64_t merges)
{
    X->size = size;
    X->name_slots = slots_for(size);
    X->pair_slots = slots_for(merges);
    X->token = calloc((size_t)size + 1, sizeof *X->token);
    X->by_name = malloc(X->name_slots * sizeof *X->by_name);
    X->merge = malloc(((size_t)merges + 1) * sizeof *X->merge);
    X->by_pair = malloc(X->pair_slots * sizeof *X->by_pair);
    if (!X->token || !X->by_name || !X->merge || !X->by_pair) {
        tp__fail(X, "vocabulary: out of memory for %lld tokens", (long long)size);
        return false;
    }
    memset(X->by_name, -1, X->name_slots * sizeof *X->by_name);
    memset(X->by_pair, -1, X->pair_slots * sizeof *X->by_pair);
    return true;
}

static size_t name_slot(const tp_bpe *X, const char *name)
{
    uint64_t hash = 0;
    for (const char *c = name; *c; c++) hash = tp__bpe_mix(hash + (uint8_t)*c + 1);
    size_t i = (size_t)hash & (X->name_slots - 1);
    while (X->by_name[i] >= 0 && strcmp(X->token[X->by_name[i]], name) != 0)
        i = (i + 1) & (X->name_slots - 1);
    return i;
}

bool tp__bpe_name(tp_bpe *X, int64_t id, const char *name)
{
    if (id < 0 || id >= X->size || X->token[id]) return false;
    const size_t slot = name_slot(X, name);
    if (X->by_name[slot] >= 0) return false;
    X->token[id] = strdup(name);
    if (X->token[id]) X->by_name[slot] = (int32_t)id;
    return X->token[id];
}

bool tp__bpe_index(tp_bpe *X, const char *file)
{
    int64_t id = 0;
    while (id < X->size && X->token[id]) id++;
    if (id < X->size) {
        tp__fail(X, "%.500s: no token has the id %lld; the %lld tokens must have the ids 0 to %lld",
                 file, (long long)id, (long long)X->size, (long long)X->size - 1);
        return false;
    }
    for (int k = 0; k < TP_BPE_SPECIALS; k++) X->special[k] = tp_bpe_id(X, specials[k]);
    for (int b = 0; b < 256; b++) {
        char name[8];
        name[tp__utf8_write(tp__bpe_character(b), name)] = '\0';
        X->byte[b] = tp_bpe_id(X, name);
        if (X->byte[b] < 0) X->byte[b] = X->special[TP_BPE_UNKNOWN];
        if (X->byte[b] >= 0) continue;
        tp__fail(X, "%.500s: no token stands for the byte %d ('%s'), and there is no <unk>", file,
                 b, name);
        return false;
    }
    return true;
}

const char *tp__bpe_merge(tp_bpe *X, int32_t left, int32_t right, int32_t made)
{
    if (tp__bpe_is_special(X, left) || tp__bpe_is_special(X, right) || tp__bpe_is_special(X, made))
        return "a special token takes no part in merges";
    if (tp__bpe_rank(X, left, right) >= 0) return "the pair has a merge already";
    size_t i = tp__bpe_hash_pair(left, right);
    for (i &= X->pair_slots - 1; X->by_pair[i] >= 0;) i = (i + 1) & (X->pair_slots - 1);
    X->by_pair[i] = (int32_t)X->merges;
    X->merge[X->merges++] = (tp_bpe_merge){ left, right, made };
    return NULL;
}

/* ---- opening ---- */

/* Loads a text file into *b; NULL: X has failed. */
static const char *load(tp_bpe *X, const char *path, tp_blob *b)
{
    char reason[512], *text = NULL;
    size_t n;
    if (!tp__blob_text(b, path, TP__BPE_FILE, &text, &n, reason, sizeof reason))
        tp__fail(X, "vocabulary %.600s%s", path, reason);
    return text;
}

/* Opens files in a folder, whose path ends with a slash; dict may be NULL. */
static void open_parts(tp_bpe *X, const char *base, const char *vocab, const char *merges,
                       const char *dict)
{
    char path[3][4200];
    const char *const name[3] = { vocab, merges, dict };
    const char *text[3] = { NULL };
    tp_blob b[3] = { { 0 } };
    for (int k = 0; k < 3 && name[k] && !X->why[0]; k++) {
        snprintf(path[k], sizeof path[k], "%s%s", base, name[k]);
        text[k] = load(X, path[k], &b[k]);
    }
    if (!X->why[0])
        tp__bpe_read(X, (tp_bpe_source){ path[0], text[0] }, (tp_bpe_source){ path[1], text[1] },
                     (tp_bpe_source){ path[2], text[2] });
    for (int k = 0; k < 3; k++) tp__blob_free(&b[k]);
}

static void open_json(tp_bpe *X, const char *path)
{
    tp_blob b = { 0 };
    const char *text = load(X, path, &b);
    if (text) tp__bpe_read_json(X, (tp_bpe_source){ path, text });
    tp__blob_free(&b);
}

static bool exists(const char *base, const char *name)
{
    char path[4200];
    struct stat s;
    snprintf(path, sizeof path, "%s%s", base, name);
    return stat(path, &s) == 0;
}

/* Opens the vocabulary `name` in a folder; if it is empty, any that exists. */
static void open_in(tp_bpe *X, const char *base, const char *name)
{
    char path[4200];
    const bool any = !*name;
    snprintf(path, sizeof path, "%s%s", base, any ? "tokenizer.json" : name);
    if (strcmp(name, "tokenizer.json") == 0 || (any && exists(base, "tokenizer.json")))
        open_json(X, path);
    else if (strcmp(name, "encoder.json") == 0 || (any && exists(base, "encoder.json")))
        open_parts(X, base, "encoder.json", "vocab.bpe",
                   exists(base, "dict.txt") ? "dict.txt" : NULL);
    else if (!any || exists(base, "vocab.json"))
        open_parts(X, base, any ? "vocab.json" : name, "merges.txt", NULL);
    else
        tp__fail(X,
                 "vocabulary %.600s: the folder has no tokenizer.json, encoder.json or vocab.json",
                 base);
}

tp_bpe *tp_bpe_open(const char *path)
{
    if (!path) path = "";
    tp_bpe *X = tp__bpe_new();
    struct stat s;
    char base[4100];
    const char *slash = strrchr(path, '/');
    if (!tp_bpe_ok(X)) return X;
    if (strlen(path) > 4000)
        tp__fail(X, "vocabulary: the path is longer than 4000 bytes");
    else if (stat(path, &s) != 0)
        tp__fail(X, "vocabulary %.600s: %s", path, strerror(errno));
    else if (S_ISDIR(s.st_mode)) {
        snprintf(base, sizeof base, "%s/", path);
        open_in(X, base, "");
    } else {
        const size_t n = slash ? (size_t)(slash + 1 - path) : 0;
        snprintf(base, sizeof base, "%.*s", (int)n, path);
        open_in(X, base, path + n);
    }
    return X;
}

tp_bpe *tp_bpe_from(const char *name, const char *vocab, const char *merges, const char *dict)
{
    tp_bpe *X = tp__bpe_new();
    char file[3][600];
    static const char *const part[3] = { "vocabulary", "merges", "dictionary" };
    if (!tp_bpe_ok(X)) return X;
    if (!name || !vocab || !merges) {
        tp__fail(X, "bpe: NULL was given in place of a %s",
                 !name    ? "name"
                 : !vocab ? "vocabulary"
                          : "list of merges");
        return X;
    }
    for (int k = 0; k < 3; k++) snprintf(file[k], sizeof file[k], "%s of %.500s", part[k], name);
    tp__bpe_read(X, (tp_bpe_source){ file[0], vocab }, (tp_bpe_source){ file[1], merges },
                 (tp_bpe_source){ file[2], dict });
    return X;
}

tp_bpe *tp_bpe_from_json(const char *name, const char *text)
{
    tp_bpe *X = tp__bpe_new();
    if (tp_bpe_ok(X) && (!name || !text))
        tp__fail(X, "bpe: NULL was given in place of a %s", name ? "text" : "name");
    if (tp_bpe_ok(X)) tp__bpe_read_json(X, (tp_bpe_source){ name, text });
    return X;
}

tp_bpe *tp_bpe_bytes(void)
{
    tp_bpe *X = tp__bpe_new();
    if (!tp_bpe_ok(X) || !tp__bpe_room(X, 257, 0)) return X;
    for (int b = 0; b < 256; b++) {
        char name[8];
        name[tp__utf8_write(tp__bpe_character(b), name)] = '\0';
        tp__bpe_name(X, b, name);
    }
    tp__bpe_name(X, 256, TP_BPE_END_OF_TEXT);
    tp__bpe_index(X, "bytes"); /* fails if a name found no memory */
    return X;
}

int tp_bpe_token_bytes(const tp_bpe *X, int64_t id)
{
    const char *name = tp_bpe_token(X, id);
    int bytes = 0, length;
    if (!name || tp__bpe_is_special(X, (int32_t)id) || strcmp(name, TP_BPE_END_OF_TEXT) == 0)
        return 0;
    for (size_t left = strlen(name); left > 0; left -= (size_t)length, name += length) {
        const int32_t c = tp__utf8((const uint8_t *)name, left, &length);
        bytes += tp__bpe_byte(c) < 0 ? length : 1; /* others are decoded as they are */
    }
    return bytes;
}

void tp_bpe_close(tp_bpe *X)
{
    if (!X || X == &no_bpe) return;
    for (int64_t i = 0; X->token && i < X->size; i++) free(X->token[i]);
    free(X->token);
    free(X->by_name);
    free(X->merge);
    free(X->by_pair);
    free(X);
}

int64_t tp_bpe_size(const tp_bpe *X)
{
    if (!X) return 0;
    return tp_bpe_ok(X) ? X->size : 0;
}
int64_t tp_bpe_merges(const tp_bpe *X)
{
    if (!X) return 0;
    return tp_bpe_ok(X) ? X->merges : 0;
}

int32_t tp_bpe_special_id(const tp_bpe *X, tp_bpe_special which)
{
    if (!X) return 0;
    return tp_bpe_ok(X) ? X->special[which] : -1;
}
const char *tp_bpe_special_name(tp_bpe_special which)
{
    return specials[which];
}

const char *tp_bpe_token(const tp_bpe *X, int64_t id)
{
    if (!X) return NULL;
    return id >= 0 && id < tp_bpe_size(X) ? X->token[id] : NULL;
}

int32_t tp_bpe_id(const tp_bpe *X, const char *token)
{
    if (!X) return 0;
    return tp_bpe_ok(X) ? X->by_name[name_slot(X, token)] : -1;
}

/* ---- writing: the two texts that transformers and fairseq read ---- */

/* Writes a name as a JSON string; returns the end. Names are valid UTF-8: they come from JSON, or
 * from bytes written as characters. */
static char *put_quoted(char *to, const char *name)
{
    *to++ = '"';
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        if (c < 32) {
            to += sprintf(to, "\\u%04x", c);
            continue;
        }
        if (c == '"' || c == '\\') *to++ = '\\';
        *to++ = (char)c;
    }
    *to++ = '"';
    return to;
}

char *tp_bpe_vocab_text(const tp_bpe *X)
{
    if (!X) return NULL;
    size_t bytes = 8;
    for (int64_t i = 0; i < tp_bpe_size(X); i++) bytes += 6 * strlen(X->token[i]) + 24;
    char *text = tp_bpe_ok(X) ? malloc(bytes) : NULL, *to = text;
    if (!text) return NULL;
    *to++ = '{';
    for (int64_t i = 0; i < X->size; i++) {
        to = put_quoted(to, X->token[i]);
        to += sprintf(to, ": %lld%s", (long long)i, i < X->size - 1 ? ", " : "");
    }
    memcpy(to, "}\n", 3);
    return text;
}

char *tp_bpe_merges_text(const tp_bpe *X)
{
    if (!X) return NULL;
    static const char head[] = "#version: 0.2\n";
    size_t bytes = sizeof head;
    for (int64_t i = 0; i < tp_bpe_merges(X); i++)
        bytes += strlen(X->token[X->merge[i].left]) + strlen(X->token[X->merge[i].right]) + 2;
    char *text = tp_bpe_ok(X) ? malloc(bytes) : NULL, *to = text;
    if (!text) return NULL;
    to += sprintf(to, "%s", head);
    for (int64_t i = 0; i < X->merges; i++)
        to += sprintf(to, "%s %s\n", X->token[X->merge[i].left], X->token[X->merge[i].right]);
    return text;
}

/* Writes both files or none; removes a folder made only for them. */
static bool write_both(const char *folder, const char *vocab, const char *merges, char *why,
                       size_t size)
{
    char first[4200], second[4200];
    const bool made = mkdir(folder, 0777) == 0;
    if (!made && errno != EEXIST) {
        snprintf(why, size, "folder %.600s: cannot be made: %s", folder, strerror(errno));
        return false;
    }
    snprintf(first, sizeof first, "%s/merges.txt", folder);
    snprintf(second, sizeof second, "%s/vocab.json", folder);
    const tp_new_file both[] = { { first, merges, strlen(merges) },
                                 { second, vocab, strlen(vocab) } };
    const bool done = tp_files_replace(both, 2, why, size);
    if (!done && made) rmdir(folder);
    return done;
}

bool tp_bpe_save(const tp_bpe *X, const char *folder, char *why, size_t size)
{
    if (!X) {
        if (why) snprintf(why, size, "bpe_save: NULL was given in place of a vocabulary");
        return false;
    }
    char *vocab = tp_bpe_vocab_text(X), *merges = tp_bpe_merges_text(X);
    bool done = false;
    if (!tp_bpe_ok(X))
        snprintf(why, size, "%s", X->why);
    else if (!vocab || !merges)
        snprintf(why, size, "vocabulary %.600s: out of memory", folder);
    else if (strlen(folder) > 4000)
        snprintf(why, size, "vocabulary: the path is longer than 4000 bytes");
    else
        done = write_both(folder, vocab, merges, why, size);
    free(vocab);
    free(merges);
    return done;
}
