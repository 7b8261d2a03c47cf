/* bpe_code.c - encodes texts by merging the symbols of their words, and decodes ids.
 *
 * The symbols of a word are a linked list; a heap holds the mergeable pairs of neighbours by rank,
 * then by position. As in the published algorithm, all pairs of the lowest rank are merged before
 * the new pairs enter the heap: in lists not written by a trainer, a merge may precede those that
 * make its sides. A pair that has changed since it entered is recognised by its rank and skipped.
 *
 * A hash table caches words with their ids; when full, it is emptied. */
#include <stdlib.h>
#include <string.h>

#include "bpe.h"

enum {
    SLOTS = 1 << 17, /* most slots for cached words; 3/4 are used */
    ROOM = 1 << 21,  /* most 4-byte units of their ids and bytes  */
    FIRST = 1 << 10, /* initial slots and units                   */
    LONGEST = 256,   /* bytes of a cached word                    */
    MOST_TEXT = 1 << 30
};

typedef struct word {
    uint32_t hash, at; /* at: its ids, then its bytes, in `memory`; 0: empty slot */
    uint16_t bytes, ids;
} word;

typedef struct symbol {
    int32_t id, rank; /* rank of the pair with the next symbol, -1: none */
    int32_t before, next;
} symbol;

typedef struct pair {
    int32_t rank, at;
} pair;

struct tp_bpe_coder {
    const tp_bpe *X;
    word *words;
    uint32_t *memory;
    size_t slots, units; /* capacities */
    size_t count, used;
    symbol *symbols;
    pair *pairs; /* [3 n]: the heap from the front, new pairs from the back */
    int64_t room, heap, fresh;
    int32_t *ids;
    int64_t id_count;
    size_t id_room;
    char *text;
    size_t bytes, text_room;
};

tp_bpe_coder *tp_bpe_coder_new(const tp_bpe *X)
{
    tp_bpe_coder *C = calloc(1, sizeof *C);
    if (!C) return NULL;
    C->X = X;
    C->slots = C->units = FIRST;
    C->words = calloc(FIRST, sizeof *C->words);
    C->memory = malloc(FIRST * sizeof *C->memory);
    C->used = 1;
    if (C->words && C->memory) return C;
    tp_bpe_coder_free(C);
    return NULL;
}

const tp_bpe *tp_bpe_coder_vocabulary(const tp_bpe_coder *C)
{
    return C ? C->X : NULL;
}

void tp_bpe_coder_free(tp_bpe_coder *C)
{
    if (!C) return;
    free(C->words);
    free(C->memory);
    free(C->symbols);
    free(C->pairs);
    free(C->ids);
    free(C->text);
    free(C);
}

/* ---- the heap ---- */

static bool comes_before(pair a, pair b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void push(tp_bpe_coder *C, pair x)
{
    int64_t i = C->heap++;
    for (; i > 0 && comes_before(x, C->pairs[(i - 1) / 2]); i = (i - 1) / 2)
        C->pairs[i] = C->pairs[(i - 1) / 2];
    C->pairs[i] = x;
}

static pair pop(tp_bpe_coder *C)
{
    const pair top = C->pairs[0], x = C->pairs[--C->heap];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= C->heap) break;
        if (child + 1 < C->heap && comes_before(C->pairs[child + 1], C->pairs[child])) child++;
        if (!comes_before(C->pairs[child], x)) break;
        C->pairs[i] = C->pairs[child];
        i = child;
    }
    C->pairs[i] = x;
    return top;
}

/* ---- one word ---- */

/* Finds the rank of the pair that begins at symbol i. False: it has no merge. */
static bool rank_pair(tp_bpe_coder *C, int32_t i)
{
    symbol *s = &C->symbols[i];
    s->rank = s->next < 0 ? -1 : tp__bpe_rank(C->X, s->id, C->symbols[s->next].id);
    return s->rank >= 0;
}

/* Notes a new pair. */
static void note(tp_bpe_coder *C, int64_t room, int32_t i)
{
    if (i >= 0 && rank_pair(C, i)) C->pairs[room - ++C->fresh] = (pair){ C->symbols[i].rank, i };
}

/* Joins symbol i with the next one. */
static void join(tp_bpe_coder *C, int64_t room, int32_t i)
{
    symbol *s = &C->symbols[i], *gone = &C->symbols[s->next];
    s->id = C->X->merge[s->rank].made;
    s->next = gone->next;
    gone->rank = -1;
    if (s->next >= 0) C->symbols[s->next].before = i;
    note(C, room, s->before);
    note(C, room, i);
}

/* Joins all pairs of the lowest rank, from left to right. */
static void join_lowest(tp_bpe_coder *C, int64_t room)
{
    const int32_t rank = C->pairs[0].rank;
    while (C->heap > 0 && C->pairs[0].rank == rank) {
        const pair p = pop(C);
        if (C->symbols[p.at].rank == rank) join(C, room, p.at);
    }
    for (; C->fresh > 0; C->fresh--) push(C, C->pairs[room - C->fresh]);
}

/* Appends the ids of a word to C->ids, which has room for them. False: out of memory. */
static bool merge(tp_bpe_coder *C, const uint8_t *at, size_t length)
{
    const int64_t n = (int64_t)length, room = 3 * n;
    if (n > C->room || !C->symbols) {
        free(C->symbols);
        free(C->pairs);
        C->room = 2 * n + 64;
        C->symbols = malloc((size_t)C->room * sizeof *C->symbols);
        C->pairs = malloc(3 * (size_t)C->room * sizeof *C->pairs);
        if (!C->symbols || !C->pairs) return C->room = 0, false;
    }
    for (int32_t i = 0; i < n; i++)
        C->symbols[i] =
            (symbol){ .id = C->X->byte[at[i]], .before = i - 1, .next = i + 1 < n ? i + 1 : -1 };
    C->heap = C->fresh = 0;
    for (int32_t i = 0; i < n; i++)
        if (rank_pair(C, i)) push(C, (pair){ C->symbols[i].rank, i });
    while (C->heap > 0) join_lowest(C, room);
    for (int32_t i = 0; i >= 0; i = C->symbols[i].next) C->ids[C->id_count++] = C->symbols[i].id;
    return true;
}

/* ---- the cache of words ---- */

/* Returns the slot of a word, or the empty one for it. */
static word *find(const tp_bpe_coder *C, const uint8_t *at, size_t n, uint32_t hash)
{
    for (uint32_t i = hash;; i++) {
        word *w = &C->words[i & (C->slots - 1)];
        if (!w->at ||
            (w->hash == hash && w->bytes == n && memcmp(C->memory + w->at + w->ids, at, n) == 0))
            return w;
    }
}

static void forget(tp_bpe_coder *C)
{
    memset(C->words, 0, C->slots * sizeof *C->words);
    C->count = 0;
    C->used = 1;
}

/* Doubles the slots. False: out of memory. */
static bool grow_slots(tp_bpe_coder *C)
{
    const word *old = C->words;
    word *more = calloc(2 * C->slots, sizeof *more);
    if (!more) return false;
    C->words = more;
    C->slots *= 2;
    for (size_t i = 0; i < C->slots / 2; i++) {
        size_t k = old[i].hash & (C->slots - 1);
        if (!old[i].at) continue;
        while (more[k].at) k = (k + 1) & (C->slots - 1);
        more[k] = old[i];
    }
    free((void *)old);
    return true;
}

static bool grow_memory(tp_bpe_coder *C)
{
    uint32_t *more = realloc(C->memory, 2 * C->units * sizeof *more);
    if (!more) return false;
    C->memory = more;
    C->units *= 2;
    return true;
}

/* Caches the word whose ids begin at C->ids[first]. */
static void remember(tp_bpe_coder *C, const uint8_t *at, size_t n, uint32_t hash, int64_t first)
{
    const size_t ids = (size_t)(C->id_count - first), units = ids + (n + 3) / 4;
    if (C->count >= C->slots / 4 * 3 && (C->slots == SLOTS || !grow_slots(C))) forget(C);
    while (C->used + units > C->units)
        if (C->units >= ROOM || !grow_memory(C)) {
            forget(C);
            if (units >= C->units) return;
        }
    *find(C, at, n, hash) = (word){ hash, (uint32_t)C->used, (uint16_t)n, (uint16_t)ids };
    memcpy(C->memory + C->used, C->ids + first, ids * sizeof *C->ids);
    memcpy(C->memory + C->used + ids, at, n);
    C->used += units;
    C->count++;
}

static bool encode_word(void *env, const char *text, size_t n)
{
    tp_bpe_coder *C = env;
    const uint8_t *at = (const uint8_t *)text;
    const int64_t first = C->id_count;
    if (!tp_reserve(&C->ids, &C->id_room, (size_t)C->id_count, n, sizeof *C->ids)) return false;
    if (n > LONGEST) return merge(C, at, n);
    const uint32_t hash = tp__bpe_hash(at, n);
    const word *w = find(C, at, n, hash);
    if (w->at) {
        for (int i = 0; i < w->ids; i++)
            C->ids[C->id_count++] = (int32_t)C->memory[w->at + (uint32_t)i];
        return true;
    }
    if (!merge(C, at, n)) return false;
    remember(C, at, n, hash, first);
    return true;
}

const int32_t *tp_bpe_encode(tp_bpe_coder *C, const char *text, size_t n, int64_t *count)
{
    if (!C) return NULL;
    *count = C->id_count = 0;
    if (!tp_bpe_ok(C->X) || n > MOST_TEXT ||
        !tp_reserve(&C->ids, &C->id_room, 0, 1, sizeof *C->ids) ||
        !tp_bpe_words(text, n, encode_word, C))
        return NULL;
    *count = C->id_count;
    return C->ids;
}

/* ---- decoding ---- */

static bool room_for(tp_bpe_coder *C, size_t n)
{
    return tp_reserve(&C->text, &C->text_room, C->bytes, n, 1);
}

/* Appends the bytes that a name's characters represent; other characters stay unchanged. */
static bool put_token(tp_bpe_coder *C, const char *name, bool special)
{
    size_t left = strlen(name);
    if (!room_for(C, left + 1)) return false;
    while (left > 0) {
        int length;
        const int byte = tp__bpe_byte(tp__utf8((const uint8_t *)name, left, &length));
        if (byte >= 0 && !special) {
            C->text[C->bytes++] = (char)byte;
        } else {
            memcpy(C->text + C->bytes, name, (size_t)length);
            C->bytes += (size_t)length;
        }
        name += length;
        left -= (size_t)length;
    }
    return true;
}

/* Returns how many bytes at p to replace: the longest start of a character, or one byte. */
static size_t broken(const uint8_t *p, size_t n)
{
    const uint8_t second_from = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    const uint8_t second_to = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    const size_t most = p[0] < 0xc2 || p[0] > 0xf4 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    size_t k = 1;
    if (k < most && k < n && p[1] >= second_from && p[1] <= second_to)
        for (k = 2; k < most && k < n && (p[k] & 0xc0) == 0x80;) k++;
    return k;
}

/* Replaces invalid UTF-8 with U+FFFD. False: out of memory. */
static bool mend(tp_bpe_coder *C)
{
    char *raw = C->text;
    const size_t n = C->bytes;
    size_t good = 0;
    int length;
    while (good < n && tp__utf8((const uint8_t *)raw + good, n - good, &length) >= 0)
        good += (size_t)length;
    if (good == n) return true;
    C->text = malloc(3 * n + 1);
    C->text_room = C->text ? 3 * n + 1 : 0;
    C->bytes = 0;
    for (size_t i = 0; C->text && i < n;) {
        const uint8_t *p = (const uint8_t *)raw + i;
        const bool whole = tp__utf8(p, n - i, &length) >= 0;
        const size_t from = whole ? (size_t)length : broken(p, n - i), to = whole ? from : 3;
        memcpy(C->text + C->bytes, whole ? (const char *)p : "\xef\xbf\xbd", to);
        C->bytes += to;
        i += from;
    }
    free(raw);
    return C->text;
}

const char *tp_bpe_decode(tp_bpe_coder *C, const int32_t *ids, int64_t n, int flags, size_t *bytes)
{
    if (!C) return NULL;
    C->bytes = 0;
    if (!room_for(C, 1)) return NULL;
    for (int64_t i = 0; i < n; i++) {
        const char *name = tp_bpe_token(C->X, ids[i]);
        const bool special = tp__bpe_is_special(C->X, ids[i]);
        if (!name || (!(special && flags & TP_BPE_SKIP_SPECIALS) && !put_token(C, name, special)))
            return NULL;
    }
    if (!(flags & TP_BPE_RAW) && !mend(C)) return NULL;
    C->text[C->bytes] = '\0';
    if (bytes) *bytes = C->bytes;
    return C->text;
}
