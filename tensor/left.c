/* left.c - what outlives the objects on a device: memory that stale pointers may still read, and
 * texts. The next object of the same kind reuses a piece of memory, and equal texts are stored
 * once, so a program that keeps making and freeing objects does not grow. */
#include "tensor/left.h"

#include <stdlib.h>
#include <string.h>

#include <tapegrad/random.h>

/* ---- names: a hash table with open addressing ---- */

/* Returns the slot of a name, or its free slot. */
static tp_name *slot_of(const tp_names *N, uint64_t hash, const char *name)
{
    const size_t mask = (size_t)N->cap - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        tp_name *s = &N->slot[i];
        if (!s->name || (s->hash == hash && strcmp(s->name, name) == 0)) return s;
    }
}

static bool grow(tp_names *N)
{
    tp_names wide = { .n = N->n, .cap = N->cap ? 2 * N->cap : 128 };
    wide.slot = calloc((size_t)wide.cap, sizeof *wide.slot);
    if (!wide.slot) return false;
    for (int i = 0; i < N->cap; i++)
        if (N->slot[i].name) *slot_of(&wide, N->slot[i].hash, N->slot[i].name) = N->slot[i];
    free(N->slot);
    *N = wide;
    return true;
}

const tp_name *tp__names_find(const tp_names *N, const char *name)
{
    if (N->n == 0) return NULL;
    const tp_name *s = slot_of(N, tp_hash_text(TP_HASH, name), name);
    return s->name ? s : NULL;
}

bool tp__names_add(tp_names *N, const char *name, int value)
{
    if (N->n >= N->cap / 2 && !grow(N)) return false;
    const uint64_t hash = tp_hash_text(TP_HASH, name);
    *slot_of(N, hash, name) = (tp_name){ name, hash, value };
    N->n++;
    return true;
}

/* ---- pieces of memory ---- */

typedef struct tp_left_piece {
    _Alignas(16) struct tp_left_piece *next; /* the memory given to the caller follows */
    size_t bytes;
} tp_left_piece;

bool tp__left_new(tp_device *D)
{
    D->left = calloc(1, sizeof *D->left);
    if (D->left) tp__lock_init(&D->left->lock);
    return D->left;
}

void tp__left_free(tp_device *D)
{
    tp_left *l = D->left;
    if (!l) return;
    for (int i = 0; i < TP_LEFT_SIZES; i++)
        for (tp_left_piece *p = l->pieces[i].first, *next; p; p = next) {
            next = p->next;
            free(p);
        }
    for (int i = 0; i < l->texts.cap; i++) free((void *)(uintptr_t)l->texts.slot[i].name);
    free(l->texts.slot);
    tp__lock_free(&l->lock);
    free(l);
}

/* ---- the number of objects ---- */

void tp__device_enter(tp_device *D)
{
    if (D && D->left) tp__count(D->left->users, 1);
}

void tp__device_leave(tp_device *D)
{
    if (!D || !D->left) return;
    tp__lock(&D->left->lock);
    const bool last = tp__count(D->left->users, -1) == 1 && D->left->closed;
    tp__unlock(&D->left->lock);
    if (last) tp__device_free(D);
}

/* ---- memory ---- */

static tp_left_pieces *of_size(tp_left *l, size_t bytes)
{
    int i = 0;
    while (i < TP_LEFT_SIZES - 1 && l->pieces[i].bytes && l->pieces[i].bytes != bytes) i++;
    l->pieces[i].bytes = bytes;
    return &l->pieces[i];
}

void *tp__left_take(tp_device *D, size_t bytes)
{
    tp_left *l = D->left;
    tp__lock(&l->lock);
    const uint64_t gen = ++D->next_gen + 1; /* 0 and 1: TP_NONE, TP_FAILED */
    tp_left_pieces *same = of_size(l, bytes);
    tp_left_piece *p = same->first;
    if (p) same->first = p->next;
    tp__unlock(&l->lock);
    if (!p) p = malloc(sizeof *p + bytes);
    if (!p) return NULL;
    p->bytes = bytes;
    memset(p + 1, 0, bytes);
    memcpy(p + 1, &gen, sizeof gen);
    return p + 1;
}

void tp__left_give(tp_device *D, void *at)
{
    tp_left_piece *p = (tp_left_piece *)at - 1;
    tp__lock(&D->left->lock);
    tp_left_pieces *same = of_size(D->left, p->bytes);
    p->next = same->first;
    same->first = p;
    tp__unlock(&D->left->lock);
}

/* ---- texts ---- */

static const char *add(tp_names *texts, const char *s)
{
    const tp_name *known = tp__names_find(texts, s);
    if (known) return known->name;
    char *copy = malloc(strlen(s) + 1);
    if (!copy) return NULL;
    memcpy(copy, s, strlen(s) + 1);
    if (tp__names_add(texts, copy, 0)) return copy;
    free(copy);
    return NULL;
}

const char *tp__left_text(tp_device *D, const char *s)
{
    tp__lock(&D->left->lock);
    const char *text = add(&D->left->texts, s);
    tp__unlock(&D->left->lock);
    return text;
}
