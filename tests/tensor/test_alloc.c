/* test_alloc.c - the caching allocator: reuse, splitting, merging, limits, failure. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <tapegrad/tapegrad.h>

#include "tensor/backend.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

Test(alloc, sizes_are_rounded_and_aligned)
{
    tp_device *D = tp_device_open("cpu", NULL);
    const struct {
        size_t ask, get;
    } cases[] = { { 1, 512 },       { 512, 512 }, { 513, 1024 },
                  { MIB - 1, MIB }, { MIB, MIB }, { MIB + 1, MIB + 256 * KIB } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_buf *b = tp__buf_new(D, cases[i].ask);
        cr_assert(b);
        cr_expect_eq((uintptr_t)b->data % 64, 0);
        cr_expect_eq(tp_device_stats(D).live_bytes, cases[i].get, "%zu", cases[i].ask);
        tp__buf_unref(b);
        cr_expect_eq(tp_device_stats(D).live_bytes, 0);
    }
    tp_buf *empty = tp__buf_new(D, 0);
    cr_expect(empty && empty->data && !empty->block);
    tp__buf_unref(empty);
    tp_device_close(D);
}

Test(alloc, freed_memory_is_reused_split_and_merged)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_buf *b = tp__buf_new(D, 32 * MIB);
    void *where = b->data;
    const uint64_t before = tp_device_stats(D).allocs;
    tp__buf_unref(b);
    tp_buf *parts[4];
    for (int i = 0; i < 4; i++) parts[i] = tp__buf_new(D, 8 * MIB);
    cr_expect_eq(tp_device_stats(D).allocs, before, "four parts come from the freed 32 MiB");
    cr_expect_eq(tp_device_stats(D).cached_bytes, 0);
    const int order[4] = { 1, 3, 2, 0 };
    for (int i = 0; i < 4; i++) tp__buf_unref(parts[order[i]]);
    b = tp__buf_new(D, 32 * MIB);
    cr_expect_eq(b->data, where, "the parts merged again");
    cr_expect_eq(tp_device_stats(D).allocs, before);
    tp__buf_unref(b);
    tp_device_trim(D);
    cr_expect_eq(tp_device_stats(D).cached_bytes, 0);
    tp_device_close(D);
}

Test(alloc, blocks_of_more_than_half_a_slab_are_reused)
{
    const size_t sizes[] = { MIB, MIB + 1, 3 * MIB / 2, 7 * MIB / 4 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tp_device *D = tp_device_open("cpu", NULL);
        const uint64_t before = tp_device_stats(D).allocs;
        for (int k = 0; k < 5; k++) tp__buf_unref(tp__buf_new(D, sizes[i]));
        cr_expect_eq(tp_device_stats(D).allocs, before + 1, "%zu", sizes[i]);
        tp_device_close(D);
    }
}

Test(alloc, large_slabs_are_never_split)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp__buf_unref(tp__buf_new(D, 64 * MIB));
    tp_buf *small = tp__buf_new(D, 4 * MIB);
    cr_expect_eq(tp_device_stats(D).cached_bytes, 64 * MIB);
    tp_buf *near = tp__buf_new(D, 60 * MIB);
    cr_expect_eq(tp_device_stats(D).cached_bytes, 0, "60 of 64 MiB wastes less than an eighth");
    tp__buf_unref(near);
    tp__buf_unref(small);
    tp_device_close(D);
}

Test(alloc, cache_limit_returns_memory)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .cache_limit = 10 * MIB });
    tp_buf *a = tp__buf_new(D, 8 * MIB), *b = tp__buf_new(D, 8 * MIB);
    tp__buf_unref(a);
    cr_expect_eq(tp_device_stats(D).cached_bytes, 8 * MIB);
    tp__buf_unref(b);
    cr_expect(tp_device_stats(D).cached_bytes <= 10 * MIB);
    tp_device_close(D);
}

/* The cache gives way first; then the request is refused, and others still work. */
Test(alloc, memory_limit)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .memory_limit = 100 * MIB });
    for (int round = 0; round < 2; round++) {
        tp_buf *a = tp__buf_new(D, 64 * MIB), *b = tp__buf_new(D, 32 * MIB);
        cr_expect(a && b);
        cr_expect_null(tp__buf_new(D, 8 * MIB));
        tp__buf_unref(b);
        tp__buf_unref(a);
        tp_buf *c = tp__buf_new(D, 99 * MIB);
        cr_expect(c, "cached slabs are returned for it");
        tp__buf_unref(c);
        cr_expect_null(tp__buf_new(D, (size_t)16 << 30));
    }
    tp_tape *T = tp_tape_new(D, NULL);
    tp_full(T, TP_F32, TP_SHAPE(4, 1 << 30), 0.0);
    cr_expect_eq(tp_code_of(T), TP_E_MEMORY);
    cr_expect(strstr(tp_why(T), "requested 16.00 GiB, live 0.0 KiB, cached 0.0 KiB, peak 99.0 MiB, "
                                "memory_limit 100.0 MiB"),
              "%s", tp_why(T));
    tp_clear(T);
    tp_full(T, TP_F32, TP_SHAPE(1 << 20), 0.0);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

/* Training steps on documents: all buffer sizes are multiples of a step's random length. */
Test(alloc, changing_sizes_keep_little)
{
    enum { BUFFERS = 40, STEPS = 400 };
    static const size_t per_token[4] = { 8 * KIB, 16 * KIB, 4 * KIB, 512 };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_buf *held[BUFFERS];
    uint64_t allocs = 0;
    uint32_t state = 1;
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS / 2) allocs = tp_device_stats(D).allocs;
        state = state * 1664525u + 1013904223u;
        const size_t length = 500 + (state >> 8) % 1500;
        for (int i = 0; i < BUFFERS; i++)
            cr_assert(held[i] = tp__buf_new(D, length * per_token[i % 4]));
        for (int i = 0; i < BUFFERS; i++) tp__buf_unref(held[(i * 7 + step) % BUFFERS]);
    }
    const tp_stats s = tp_device_stats(D);
    cr_expect_leq(s.cached_bytes, s.peak_bytes + s.peak_bytes / 4, "%zu MiB for a peak of %zu",
                  s.cached_bytes / MIB, s.peak_bytes / MIB);
    cr_expect_leq(s.allocs - allocs, (uint64_t)STEPS, "%llu slabs in the second half of the steps",
                  (unsigned long long)(s.allocs - allocs));
    tp_device_close(D);
}

/* In a long random sequence, blocks never overlap, and all memory is returned. */
Test(alloc, random_sequence)
{
    enum { N = 64 };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_buf *held[N] = { NULL };
    uint32_t state = 1;
    for (int step = 0; step < 4000; step++) {
        state = state * 1664525u + 1013904223u;
        const int i = (int)(state >> 8) % N;
        if (held[i]) {
            unsigned char *p = held[i]->data;
            cr_assert_eq(p[0], i);
            cr_assert_eq(p[held[i]->bytes - 1], i);
            tp__buf_unref(held[i]);
            held[i] = NULL;
            continue;
        }
        const size_t bytes =
            state % 7 == 0 ? (state >> 10) % (5 * MIB) + 1 : (state >> 12) % (64 * KIB) + 1;
        held[i] = tp__buf_new(D, bytes);
        cr_assert(held[i]);
        ((unsigned char *)held[i]->data)[0] = (unsigned char)i;
        ((unsigned char *)held[i]->data)[bytes - 1] = (unsigned char)i;
    }
    for (int i = 0; i < N; i++) tp__buf_unref(held[i]);
    cr_expect_eq(tp_device_stats(D).live_bytes, 0);
    tp_device_trim(D);
    cr_expect_eq(tp_device_stats(D).cached_bytes, 0, "all blocks merged back into whole slabs");
    tp_device_close(D);
}

Test(alloc, failure_trims_and_tries_again)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .fail_at = 2, .fail_count = 1 });
    tp__buf_unref(tp__buf_new(D, 128 * MIB));
    tp_buf *b = tp__buf_new(D, 4 * MIB);
    cr_expect(b, "the second try succeeds");
    cr_expect_eq(tp_device_stats(D).cached_bytes, 0, "the cache was given back first");
    tp__buf_unref(b);
    tp_device_close(D);
}
