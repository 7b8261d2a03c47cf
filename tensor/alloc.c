/* alloc.c - the caching allocator, one per device, over any backend's alloc and free.
 *
 * The backend supplies slabs of a multiple of 2 MiB, which are divided into blocks. Sizes are
 * rounded up to a multiple of 512 B below 1 MiB, of 256 KiB above. A request takes the smallest
 * free block that wastes at most 1/8. Failing that, it splits a larger block of a slab below 64
 * MiB. Failing that, it gets a new slab; small requests share slabs of 2 MiB, which serve requests
 * from 1 MiB on only while otherwise empty. Freed neighbours merge. All work of a device is on one
 * stream, so reuse needs no events. If the backend is out of memory, cached slabs are returned to
 * it and the request is repeated.
 *
 * Where sizes change from step to step, as with documents of varying length, blocks of one step do
 * not fit the next one's requests. So a new slab that would raise live and cached memory above
 * 13/12 of the peak replaces all idle slabs; if their total is larger, it has that size and may be
 * split at any size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "tensor/backend.h"

#define KIB         ((size_t)1 << 10)
#define MIB         ((size_t)1 << 20)
#define SLAB_UNIT   (2 * MIB)
#define SPLIT_BELOW (64 * MIB)

struct tp_slab {
    tp_slab *next;
    char *base;
    size_t size, held; /* pages beyond `held` were never touched: the system has not mapped them */
    tp_block *first;
    int owner;  /* 0: shared */
    bool joint; /* replaces several slabs and is larger than its request */
};

void tp__heap_init(tp_heap *h, const tp_device_opts *o)
{
    *h = (tp_heap){ .limit = o->cache_limit,
                    .most = o->memory_limit,
                    .fail_at = o->fail_at,
                    .fail_count = o->fail_count,
                    .exact = o->exact };
    tp__lock_init(&h->lock);
}

/* Index of the first idle block of at least `size`. */
static size_t idle_find(const tp_heap *h, size_t size)
{
    size_t lo = 0, hi = h->nidle;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (h->idle[mid]->size < size)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void idle_add(tp_heap *h, tp_block *b)
{
    const size_t i = idle_find(h, b->size);
    memmove(h->idle + i + 1, h->idle + i, (h->nidle - i) * sizeof *h->idle);
    h->idle[i] = b;
    h->nidle++;
    b->free = true;
    h->cached += b->size;
}

static void idle_remove(tp_heap *h, tp_block *b)
{
    size_t i = idle_find(h, b->size);
    while (h->idle[i] != b) i++;
    h->nidle--;
    memmove(h->idle + i, h->idle + i + 1, (h->nidle - i) * sizeof *h->idle);
    b->free = false;
    h->cached -= b->size;
}

/* Grows the idle list with each new block, since any may become idle: freeing never fails. */
static tp_block *block_new(tp_heap *h, tp_slab *s, size_t at, size_t size)
{
    if (!tp_reserve(&h->idle, &h->idle_cap, h->nblocks, 1, sizeof(tp_block *))) return NULL;
    tp_block *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    *b = (tp_block){ .slab = s, .at = at, .size = size };
    h->nblocks++;
    return b;
}

static void block_drop(tp_heap *h, tp_block *b)
{
    if (b) h->nblocks--;
    free(b);
}

/* Returns an entirely free slab to the backend. */
static void slab_drop(tp_device *D, tp_slab *s)
{
    tp_slab **at = &D->heap.slabs;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    D->heap.held -= s->held;
    idle_remove(&D->heap, s->first);
    D->be->free(D, s->base, s->size);
    block_drop(&D->heap, s->first);
    free(s);
}

static void trim_locked(tp_device *D, size_t keep)
{
    for (tp_slab *s = D->heap.slabs, *next; s; s = next) {
        next = s->next;
        if (D->heap.cached <= keep) return;
        if (s->first->free && !s->first->next && !s->owner) slab_drop(D, s);
    }
}

static size_t slab_round(size_t size)
{
    return (size + SLAB_UNIT - 1) / SLAB_UNIT * SLAB_UNIT;
}

/* The size of a new slab for a block of `size`. */
static size_t slab_size(tp_device *D, size_t size, bool *joint)
{
    tp_heap *h = &D->heap;
    const size_t cached = h->cached;
    if (size >= MIB && h->live + cached + size > h->peak + h->peak / 12) trim_locked(D, 0);
    const size_t freed = cached - h->cached;
    *joint = freed > size;
    return freed > size ? freed : slab_round(size);
}

static tp_block *slab_new(tp_device *D, size_t size, bool joint)
{
    tp_heap *h = &D->heap;
    h->allocs++;
    if (h->fail_at && h->allocs >= h->fail_at && h->allocs - h->fail_at < h->fail_count)
        return NULL;
    if (h->most && (size > h->most || h->live + h->cached > h->most - size)) return NULL;
    tp_slab *s = calloc(1, sizeof *s);
    tp_block *b = s ? block_new(h, s, 0, size) : NULL;
    void *base = b ? D->be->alloc(D, size) : NULL;
    if (!base) {
        block_drop(h, b);
        free(s);
        return NULL;
    }
    *s = (tp_slab){
        .next = h->slabs, .base = base, .size = size, .first = b, .owner = h->owner, .joint = joint
    };
    h->slabs = s;
    return b;
}

/* Cuts b (not idle) to size; the rest becomes idle. Out of host memory: b is kept. */
static void block_split(tp_heap *h, tp_block *b, size_t size)
{
    tp_block *rest = block_new(h, b->slab, b->at + size, b->size - size);
    if (!rest) return;
    b->size = size;
    rest->prev = b;
    rest->next = b->next;
    if (rest->next) rest->next->prev = rest;
    b->next = rest;
    idle_add(h, rest);
}

static tp_block *take(tp_device *D, size_t size)
{
    tp_heap *h = &D->heap;
    if (h->exact) return slab_new(D, size, false);
    for (size_t i = idle_find(h, size); i < h->nidle; i++) {
        tp_block *b = h->idle[i];
        if (b->slab->owner != h->owner) continue;
        const bool close = b->size - size <= size / 8;
        if (!close && b->slab->size >= SPLIT_BELOW && !b->slab->joint) continue;
        const bool shared = b->slab->size <= SLAB_UNIT && b->size < b->slab->size;
        if (!close && size >= MIB && shared) continue;
        idle_remove(h, b);
        if (!close) block_split(h, b, size);
        return b;
    }
    bool joint;
    const size_t slab = slab_size(D, size, &joint);
    tp_block *b = slab_new(D, slab, joint);
    if (!b) {
        trim_locked(D, 0);
        b = slab_new(D, slab_round(size), false);
    }
    if (b && b->size > size) block_split(h, b, size);
    return b;
}

/* Merges a with its right neighbour b; neither is idle. */
static void absorb(tp_heap *h, tp_block *a, tp_block *b)
{
    a->size += b->size;
    a->next = b->next;
    if (a->next) a->next->prev = a;
    block_drop(h, b);
}

static void give(tp_device *D, tp_block *b)
{
    tp_heap *h = &D->heap;
    tp_block *left = b->prev, *right = b->next;
    if (right && right->free) {
        idle_remove(h, right);
        absorb(h, b, right);
    }
    if (left && left->free) {
        idle_remove(h, left);
        absorb(h, left, b);
        b = left;
    }
    idle_add(h, b);
    if (h->exact) trim_locked(D, 0);
    if (h->limit && h->cached > h->limit) trim_locked(D, h->limit);
}

/* The address of empty buffers. Kernels read NULL as "absent", and memcpy must not get NULL. */
static _Alignas(64) char nothing[1];

static void hold(tp_heap *h, const tp_block *b, size_t bytes)
{
    const size_t end = b->at + bytes;
    if (end <= b->slab->held) return;
    h->held += end - b->slab->held;
    b->slab->held = end;
    if (h->held > h->held_peak) h->held_peak = h->held;
}

tp_buf *tp__buf_new(tp_device *D, size_t bytes)
{
    tp_buf *buf = calloc(1, sizeof *buf);
    if (!buf) return NULL;
    *buf = (tp_buf){ .dev = D, .data = nothing, .bytes = bytes, .refs = 1 };
    if (bytes == 0) return buf;
    tp_heap *h = &D->heap;
    const size_t unit = h->exact ? 1 : bytes < MIB ? 512 : 256 * KIB;
    if (bytes > SIZE_MAX / 2) {
        free(buf);
        return NULL;
    }
    const size_t size = (bytes + unit - 1) / unit * unit;
    tp__lock(&h->lock);
    tp_block *b = take(D, size);
    if (b) {
        h->live += b->size;
        if (h->live > h->peak) h->peak = h->live;
        hold(h, b, bytes);
    }
    tp__unlock(&h->lock);
    if (!b) {
        free(buf);
        return NULL;
    }
    buf->block = b;
    buf->data = b->slab->base + b->at;
    return buf;
}

tp_buf *tp__buf_of_others(tp_device *D, void *data, size_t bytes, void (*give_back)(tp_buf *b),
                          void *owner)
{
    tp_buf *buf = malloc(sizeof *buf);
    if (buf)
        *buf = (tp_buf){ .dev = D,
                         .data = data,
                         .bytes = bytes,
                         .refs = 1,
                         .give_back = give_back,
                         .owner = owner };
    return buf;
}

tp_buf *tp__buf_ref(tp_buf *b)
{
    if (b) tp__count(b->refs, 1);
    return b;
}

void tp__buf_unref(tp_buf *b)
{
    if (!b || __atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    if (b->give_back) b->give_back(b);
    if (b->block) {
        tp_heap *h = &b->dev->heap;
        tp__lock(&h->lock);
        h->live -= b->block->size;
        give(b->dev, b->block);
        tp__unlock(&h->lock);
    }
    free(b);
}

void tp__heap_trim(tp_device *D)
{
    tp__lock(&D->heap.lock);
    trim_locked(D, 0);
    tp__unlock(&D->heap.lock);
}

int tp__heap_own(tp_device *D)
{
    return D->heap.owner = ++D->heap.owners;
}

void tp__heap_own_nothing(tp_device *D)
{
    D->heap.owner = 0;
}

void tp__heap_release(tp_device *D, int owner)
{
    tp_heap *h = &D->heap;
    tp__lock(&h->lock);
    for (tp_slab *s = h->slabs; s; s = s->next)
        if (s->owner == owner) s->owner = 0;
    if (h->exact) trim_locked(D, 0);
    tp__unlock(&h->lock);
}

void tp__heap_free(tp_device *D)
{
    tp_heap *h = &D->heap;
    for (tp_slab *s = h->slabs, *next; s; s = next) {
        next = s->next;
        for (tp_block *b = s->first, *n; b; b = n) {
            n = b->next;
            free(b);
        }
        D->be->free(D, s->base, s->size);
        free(s);
    }
    free(h->idle);
    tp__lock_free(&h->lock);
}

static void print_bytes(char *text, size_t size, const char *what, size_t bytes)
{
    if (bytes >= 1024 * MIB)
        tp__append(text, size, "%s%.2f GiB", what, (double)bytes / (1024.0 * (double)MIB));
    else if (bytes >= MIB)
        tp__append(text, size, "%s%.1f MiB", what, (double)bytes / (double)MIB);
    else
        tp__append(text, size, "%s%.1f KiB", what, (double)bytes / (double)KIB);
}

void tp__heap_text(tp_device *D, size_t request, char *text, size_t size)
{
    const tp_heap *h = &D->heap;
    print_bytes(text, size, "requested ", request);
    print_bytes(text, size, ", live ", h->live);
    print_bytes(text, size, ", cached ", h->cached);
    print_bytes(text, size, ", peak ", h->peak);
    if (h->most) print_bytes(text, size, ", memory_limit ", h->most);
}
