/* bpe.h - a vocabulary of byte-pair encoding: tokens by id, ids by name, merges by pair. */
#ifndef TP_BPE_INNER_H
#define TP_BPE_INNER_H

#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>

#include "kit.h"

enum {
    TP__BPE_MOST = 1 << 22,  /* ids, and merges */
    TP__BPE_FILE = 64 << 20, /* bytes of a file */
    TP__BPE_FILLED = 4 /* <s> <pad> </s> <unk>: RoBERTa's first ids, before those of dict.txt */
};

/* A merge: the ids it joins and that of the result. Its rank is its position in the list. */
typedef struct tp_bpe_merge {
    int32_t left, right, made;
} tp_bpe_merge;

struct tp_bpe {
    int64_t size;
    char **token;        /* [size], names */
    int32_t *by_name;    /* hash table of ids; -1: empty */
    size_t name_slots;   /* powers of 2 */
    tp_bpe_merge *merge; /* [merges], in order */
    int64_t merges;
    int32_t *by_pair; /* hash table of ranks; -1: empty */
    size_t pair_slots;
    int32_t byte[256]; /* the id of each byte */
    int32_t special[TP_BPE_SPECIALS];
    char why[TP_WHY];
};

static inline uint64_t tp__bpe_mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
}

static inline size_t tp__bpe_hash_pair(int32_t left, int32_t right)
{
    return (size_t)tp__bpe_mix(((uint64_t)(uint32_t)left << 32) | (uint32_t)right);
}

static inline uint32_t tp__bpe_hash(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint64_t h = n, part;
    for (; n >= 8; at += 8, n -= 8) {
        memcpy(&part, at, 8);
        h = tp__bpe_mix(h ^ part);
    }
    part = 0;
    memcpy(&part, at, n);
    return (uint32_t)tp__bpe_mix(h ^ part);
}

static inline bool tp__bpe_is_special(const tp_bpe *X, int32_t id)
{
    for (int k = 0; k < TP_BPE_SPECIALS; k++)
        if (X->special[k] == id) return true;
    return false;
}

/* The rank of the merge of two ids, or -1. */
static inline int32_t tp__bpe_rank(const tp_bpe *X, int32_t left, int32_t right)
{
    size_t i = tp__bpe_hash_pair(left, right);
    for (;; i++) {
        const int32_t rank = X->by_pair[i &= X->pair_slots - 1];
        if (rank < 0 || (X->merge[rank].left == left && X->merge[rank].right == right)) return rank;
    }
}

/* Returns the character that represents a byte, and the reverse, or -1. */
int32_t tp__bpe_character(int byte);
int tp__bpe_byte(int32_t character);

/* ---- building (bpe.c); false with the reason in X->why ---- */

/* Makes room for `size` ids and `merges` merges, each at most TP__BPE_MOST. */
bool tp__bpe_room(tp_bpe *X, int64_t size, int64_t merges);
/* Gives an id a copy of a name. False without a reason: the id is out of range or has a name,
 * another token has the name, or out of memory. */
bool tp__bpe_name(tp_bpe *X, int64_t id, const char *name);
/* After the last name: finds the ids of bytes and special tokens by name. */
bool tp__bpe_index(tp_bpe *X, const char *file);
/* Appends a merge. Returns NULL or an error. */
const char *tp__bpe_merge(tp_bpe *X, int32_t left, int32_t right, int32_t made);

/* Returns an empty vocabulary, or a failed one if out of memory; never NULL. */
tp_bpe *tp__bpe_new(void);

/* ---- reading (bpe_read.c); files are names for messages; dict may be NULL ---- */
typedef struct tp_bpe_source {
    const char *file, *text;
} tp_bpe_source;
bool tp__bpe_read(tp_bpe *X, tp_bpe_source vocab, tp_bpe_source merges, tp_bpe_source dict);
bool tp__bpe_read_json(tp_bpe *X, tp_bpe_source whole);

/* ---- words (bpe_words.c) ---- */

/* Reads the character at p, of at most n > 0 bytes, and its *length; -1 with the length 1 if the
 * bytes are not valid UTF-8. */
int32_t tp__utf8(const uint8_t *p, size_t n, int *length);
/* Writes a character; returns its length. */
int tp__utf8_write(int32_t character, char *to);

/* Returns the length of the first word of n > 0 bytes. */
size_t tp__bpe_word(const char *text, size_t n);

#endif
