/* bpe_train.c - learns merges from the words of texts.
 *
 *     repeat: the most frequent pair of neighbours in all words becomes a token, in all words
 *
 * Words are counted first and stored once, as lists of ids. Each pair has its count and a list of
 * the words in which it has occurred; a merge visits only those words and corrects the counts of
 * adjacent pairs. A heap orders pairs by their count on entry; a pair whose count has fallen since
 * enters again with its current count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "load.h"

enum { PLAIN = TP_BPE_SPECIALS - 1 + 256, ROBERTA = 50265, MOST_WORDS = 1 << 28 };

/* A counted word: bytes in one block, found by hash. */
typedef struct counted {
    int64_t count;
    size_t at;
    uint32_t bytes, hash;
} counted;

/* A word as symbols: ids[at ... at + length). */
typedef struct sequence {
    int64_t count;
    size_t at;
    uint32_t length;
} sequence;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    int32_t *where; /* words, each perhaps several times */
    uint32_t places, room;
    bool risen; /* is in R->more: enters the heap after this merge */
} pair;

typedef struct entry {
    int64_t count;
    int32_t pair;
} entry;

struct tp_bpe_trainer {
    int64_t size, least;
    char *bytes;
    size_t used, room;
    counted *words;
    int64_t count;
    size_t words_room;
    int32_t *by_word; /* hash table of words, -1: empty */
    size_t word_slots;

    tp_bpe *X; /* the new vocabulary; belongs to the caller */
    bool ended;
    int32_t *ids;
    sequence *sequences;
    pair *pairs;
    int64_t pair_count;
    size_t pair_room;
    int32_t *by_pair;
    size_t pair_slots;
    entry *heap;
    int64_t entries;
    size_t heap_room;
    int32_t *more; /* pairs whose counts have risen */
    int64_t more_count;
    size_t more_room;
    int64_t next; /* the id of the next token */
    const char *why;
};

tp_bpe_trainer *tp_bpe_trainer_new(const tp_bpe_trainer_opts *o)
{
    tp_bpe_trainer *R = calloc(1, sizeof *R);
    if (!R) return NULL;
    R->size = o && o->size ? o->size : ROBERTA;
    R->least = o && o->least ? o->least : 2;
    R->why = "";
    if (R->size <= PLAIN || R->size > TP__BPE_MOST)
        R->why = "a vocabulary has 261 to 4194304 ids: 256 bytes, 5 special tokens, and merges";
    else if (R->least < 1)
        R->why = "the least number of occurrences is at least 1";
    return R;
}

void tp_bpe_trainer_free(tp_bpe_trainer *R)
{
    if (!R) return;
    for (int64_t i = 0; i < R->pair_count; i++) free(R->pairs[i].where);
    free(R->bytes);
    free(R->words);
    free(R->by_word);
    free(R->ids);
    free(R->sequences);
    free(R->pairs);
    free(R->by_pair);
    free(R->heap);
    free(R->more);
    free(R);
}

const char *tp_bpe_trainer_why(const tp_bpe_trainer *R)
{
    if (!R) return "bpe_trainer: NULL was given in place of a trainer";
    return R->why;
}

static bool out_of_memory(tp_bpe_trainer *R)
{
    if (!*R->why) R->why = "training a vocabulary: out of memory";
    return false;
}

/* Makes room for one more element of an array; `array` is the address of its pointer. */
static bool reserve(tp_bpe_trainer *R, void *array, size_t *room, int64_t used, size_t size)
{
    return tp_reserve(array, room, (size_t)used, 1, size) || out_of_memory(R);
}

/* Doubles a hash table of the elements 0 to count - 1. */
static bool grow(tp_bpe_trainer *R, int32_t **table, size_t *slots, int64_t count,
                 size_t (*hash)(const tp_bpe_trainer *R, int64_t k))
{
    const size_t n = *slots ? 2 * *slots : 1 << 16;
    int32_t *larger = malloc(n * sizeof *larger);
    if (!larger) return out_of_memory(R);
    memset(larger, -1, n * sizeof *larger);
    for (int64_t k = 0; k < count; k++) {
        size_t i = hash(R, k) & (n - 1);
        while (larger[i] >= 0) i = (i + 1) & (n - 1);
        larger[i] = (int32_t)k;
    }
    free(*table);
    *table = larger;
    *slots = n;
    return true;
}

/* ---- counting words ---- */

static size_t hash_word(const tp_bpe_trainer *R, int64_t k)
{
    return R->words[k].hash;
}

static size_t word_slot(const tp_bpe_trainer *R, const char *at, size_t n, uint32_t hash)
{
    for (size_t i = hash;; i++) {
        const int32_t k = R->by_word[i &= R->word_slots - 1];
        if (k < 0 || (R->words[k].hash == hash && R->words[k].bytes == n &&
                      memcmp(R->bytes + R->words[k].at, at, n) == 0))
            return i;
    }
}

static bool keep_bytes(tp_bpe_trainer *R, const char *at, size_t n)
{
    if (!tp_reserve(&R->bytes, &R->room, R->used, n, 1)) return out_of_memory(R);
    memcpy(R->bytes + R->used, at, n);
    R->used += n;
    return true;
}

static bool count_word(void *env, const char *at, size_t n)
{
    tp_bpe_trainer *R = env;
    const uint32_t hash = tp__bpe_hash(at, n);
    if (2 * (size_t)R->count >= R->word_slots &&
        !grow(R, &R->by_word, &R->word_slots, R->count, hash_word))
        return false;
    const size_t slot = word_slot(R, at, n, hash);
    if (R->by_word[slot] >= 0) {
        R->words[R->by_word[slot]].count++;
        return true;
    }
    if (R->count >= MOST_WORDS || n > INT32_MAX) {
        R->why =
            "training a vocabulary: there are more than 2^28 different words, or one of 2^31 bytes";
        return false;
    }
    if (!reserve(R, &R->words, &R->words_room, R->count, sizeof *R->words)) return false;
    R->words[R->count] = (counted){ 1, R->used, (uint32_t)n, hash };
    if (!keep_bytes(R, at, n)) return false;
    R->by_word[slot] = (int32_t)R->count++;
    return true;
}

bool tp_bpe_trainer_add(tp_bpe_trainer *R, const char *text, size_t n)
{
    if (!R) return false;
    if (R->ended && !*R->why) R->why = "training a vocabulary: it has ended";
    return !*R->why && tp_bpe_words(text, n, count_word, R);
}

bool tp_bpe_trainer_add_file(tp_bpe_trainer *R, const char *path, char *why, size_t size)
{
    if (!R) {
        if (why) snprintf(why, size, "bpe_trainer_add_file: NULL was given in place of a trainer");
        return false;
    }
    char reason[512], *text;
    tp_blob b = { 0 };
    size_t n;
    const bool loaded = tp__blob_text(&b, path, 0, &text, &n, reason, sizeof reason);
    const bool added = loaded && tp_bpe_trainer_add(R, text, n);
    if (!loaded)
        snprintf(why, size, "text %.480s%s", path, reason);
    else if (!added)
        snprintf(why, size, "%s", R->why);
    tp__blob_free(&b);
    return added;
}

/* ---- pairs ---- */

static bool is_lower(const tp_bpe_trainer *R, entry a, entry b)
{
    const pair *x = &R->pairs[a.pair], *y = &R->pairs[b.pair];
    if (a.count != b.count) return a.count < b.count;
    return x->left != y->left ? x->left > y->left : x->right > y->right;
}

static bool push(tp_bpe_trainer *R, int32_t p)
{
    const entry x = { R->pairs[p].count, p };
    if (!reserve(R, &R->heap, &R->heap_room, R->entries, sizeof *R->heap)) return false;
    int64_t i = R->entries++;
    for (; i > 0 && is_lower(R, R->heap[(i - 1) / 2], x); i = (i - 1) / 2)
        R->heap[i] = R->heap[(i - 1) / 2];
    R->heap[i] = x;
    return true;
}

static entry pop(tp_bpe_trainer *R)
{
    const entry top = R->heap[0], x = R->heap[--R->entries];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= R->entries) break;
        if (child + 1 < R->entries && is_lower(R, R->heap[child], R->heap[child + 1])) child++;
        if (!is_lower(R, x, R->heap[child])) break;
        R->heap[i] = R->heap[child];
        i = child;
    }
    R->heap[i] = x;
    return top;
}

static size_t hash_pair(const tp_bpe_trainer *R, int64_t k)
{
    return tp__bpe_hash_pair(R->pairs[k].left, R->pairs[k].right);
}

/* Finds or makes the pair of two ids; -1: out of memory. */
static int32_t pair_of(tp_bpe_trainer *R, int32_t left, int32_t right)
{
    if (2 * (size_t)R->pair_count >= R->pair_slots &&
        !grow(R, &R->by_pair, &R->pair_slots, R->pair_count, hash_pair))
        return -1;
    size_t i = tp__bpe_hash_pair(left, right);
    for (;; i++) {
        const int32_t k = R->by_pair[i &= R->pair_slots - 1];
        if (k < 0) break;
        if (R->pairs[k].left == left && R->pairs[k].right == right) return k;
    }
    if (!reserve(R, &R->pairs, &R->pair_room, R->pair_count, sizeof *R->pairs)) return -1;
    R->pairs[R->pair_count] = (pair){ .left = left, .right = right };
    R->by_pair[i] = (int32_t)R->pair_count;
    return (int32_t)R->pair_count++;
}

/* Adds `count`, perhaps negative, to a pair's occurrences in a word. */
static bool add(tp_bpe_trainer *R, int32_t left, int32_t right, int32_t word, int64_t count)
{
    const int32_t k = pair_of(R, left, right);
    if (k < 0) return false;
    pair *p = &R->pairs[k];
    p->count += count;
    if (count < 0) return true;
    if (!p->risen) {
        if (!reserve(R, &R->more, &R->more_room, R->more_count, sizeof *R->more)) return false;
        R->more[R->more_count++] = k;
        p->risen = true;
    }
    if ((p->places && p->where[p->places - 1] == word)) return true;
    int64_t room = p->room;
    if (p->places == room) {
        room = room ? 2 * room : 4;
        int32_t *larger = realloc(p->where, (size_t)room * sizeof *larger);
        if (!larger) return out_of_memory(R);
        p->where = larger;
        p->room = (uint32_t)room;
    }
    p->where[p->places++] = word;
    return true;
}

/* ---- merges ---- */

/* Replaces the pair with `made` in a word. */
static bool replace(tp_bpe_trainer *R, int32_t word, int32_t left, int32_t right, int32_t made)
{
    sequence *s = &R->sequences[word];
    int32_t *x = R->ids + s->at;
    uint32_t n = 0;
    bool ok = true;
    for (uint32_t i = 0; i < s->length && ok; n++) {
        const bool here = i + 1 < s->length && x[i] == left && x[i + 1] == right;
        const int32_t id = here ? made : x[i];
        if (here) {
            ok = add(R, left, right, word, -s->count);
            if (ok && n > 0)
                ok = add(R, x[n - 1], left, word, -s->count) &&
                     add(R, x[n - 1], made, word, s->count);
            if (ok && i + 2 < s->length)
                ok = add(R, right, x[i + 2], word, -s->count) &&
                     add(R, made, x[i + 2], word, s->count);
        }
        i += here ? 2 : 1;
        x[n] = id;
    }
    s->length = n;
    return ok;
}

/* Returns the id of the token that a pair makes, an existing one of that name or the next; -1: it
 * must not be made, or out of memory. */
static int32_t token_of(tp_bpe_trainer *R, int32_t left, int32_t right)
{
    const char *a = R->X->token[left], *b = R->X->token[right];
    const size_t n = strlen(a) + strlen(b) + 1;
    char *name = malloc(n);
    if (!name) return out_of_memory(R), -1;
    snprintf(name, n, "%s%s", a, b);
    int32_t id = tp_bpe_id(R->X, name);
    if (id < 0 && strcmp(name, tp_bpe_special_name(TP_BPE_MASK)) != 0) {
        id = (int32_t)R->next++;
        if (!tp__bpe_name(R->X, id, name)) id = out_of_memory(R) - 1;
    } else if (id < TP__BPE_FILLED) {
        id = -1;
    }
    free(name);
    return id;
}

/* Joins a pair in all words. */
static void join(tp_bpe_trainer *R, int32_t k)
{
    const int32_t left = R->pairs[k].left, right = R->pairs[k].right;
    int32_t *where = R->pairs[k].where;
    const uint32_t places = R->pairs[k].places;
    const int32_t rank = tp__bpe_rank(R->X, left, right);
    const int32_t made = rank < 0 ? token_of(R, left, right) : R->X->merge[rank].made;
    if (made < 0) return; /* the pair never re-enters the heap with this count */
    if (rank < 0) tp__bpe_merge(R->X, left, right, made);
    R->pairs[k].where = NULL;
    R->pairs[k].places = R->pairs[k].room = 0;
    R->more_count = 0;
    for (uint32_t i = 0; i < places && !*R->why; i++)
        if (!replace(R, where[i], left, right, made)) break;
    free(where);
    for (int64_t i = 0; i < R->more_count && !*R->why; i++) {
        R->pairs[R->more[i]].risen = false;
        if (R->pairs[R->more[i]].count >= R->least) push(R, R->more[i]);
    }
}

/* Learns merges. There is room for R->size; a merge may make an existing token. */
static void learn(tp_bpe_trainer *R)
{
    while (R->next < R->size - 1 && R->X->merges < R->size && R->entries > 0 && !*R->why) {
        const entry e = pop(R);
        const int64_t now = R->pairs[e.pair].count;
        if (e.count == now)
            join(R, e.pair);
        else if (e.count > now && now >= R->least)
            push(R, e.pair);
    }
}

/* ---- the vocabulary ---- */

/* Names the tokens of bytes in the order of the characters that represent them. */
static bool name_bytes(tp_bpe *X)
{
    bool ok = true;
    int64_t id = 0;
    for (int k = 0; k < TP__BPE_FILLED; k++)
        ok = ok && tp__bpe_name(X, id++, tp_bpe_special_name((tp_bpe_special)k));
    for (int32_t c = 0; c <= 0x143; c++) {
        char name[8];
        const int byte = tp__bpe_byte(c);
        if (byte < 0) continue;
        name[tp__utf8_write(c, name)] = '\0';
        X->byte[byte] = (int32_t)id;
        ok = ok && tp__bpe_name(X, id++, name);
    }
    for (int k = 0; k < TP__BPE_FILLED; k++) X->special[k] = k;
    return ok;
}

/* Turns the counted words into ids, counts pairs, and fills the heap. */
static bool begin(tp_bpe_trainer *R)
{
    R->ids = malloc((R->used + 1) * sizeof *R->ids);
    R->sequences = calloc((size_t)R->count + 1, sizeof *R->sequences);
    if (!R->ids || !R->sequences || !name_bytes(R->X)) return out_of_memory(R);
    for (size_t i = 0; i < R->used; i++) R->ids[i] = R->X->byte[(uint8_t)R->bytes[i]];
    for (int32_t k = 0; k < R->count; k++) {
        const counted *w = &R->words[k];
        R->sequences[k] = (sequence){ w->count, w->at, w->bytes };
        for (uint32_t i = 0; i + 1 < w->bytes; i++)
            if (!add(R, R->ids[w->at + i], R->ids[w->at + i + 1], k, w->count)) return false;
    }
    for (int64_t i = 0; i < R->more_count; i++) R->pairs[R->more[i]].risen = false;
    for (int32_t k = 0; k < R->pair_count; k++)
        if (R->pairs[k].count >= R->least && !push(R, k)) return false;
    return true;
}

tp_bpe *tp_bpe_trainer_finish(tp_bpe_trainer *R)
{
    if (!R) return NULL;
    tp_bpe *X = R->X = tp__bpe_new();
    if (R->ended && !*R->why) R->why = "training a vocabulary: it has ended";
    R->ended = true;
    if (X->why[0]) { /* shared by all failed calls: must not be written */
        out_of_memory(R);
        return X;
    }
    const int64_t most = (int64_t)R->used + PLAIN + 1; /* every merge shortens a word */
    if (R->size > most) R->size = most;
    if (!*R->why && !tp__bpe_room(X, R->size, R->size)) out_of_memory(R);
    R->next = PLAIN;
    if (!*R->why && begin(R)) learn(R);
    if (!*R->why) {
        X->size = R->next + 1;
        if (!tp__bpe_name(X, R->next, tp_bpe_special_name(TP_BPE_MASK))) out_of_memory(R);
    }
    if (!*R->why)
        tp__bpe_index(X, "training a vocabulary");
    else if (!X->why[0])
        tp__fail(X, "%s", R->why);
    return X;
}
