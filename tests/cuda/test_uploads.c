/* test_uploads.c - uploads to a GPU return while it is busy, reuse pinned memory, and wait only for
 * lack of it. Needs the emulation, which can keep queued work from running. */
#include <criterion/criterion.h>

#ifdef TP_EMULATION
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "cuda_emulation/emulation.h"
#include "support/device.h"
#include "tensor/backend.h"

cudaStream_t tp__cuda_stream(const tp_device *D); /* cuda/device/inner.h includes the real CUDA */

/* Uploads behind a kernel, to memory that it clears. */
typedef struct uploads {
    tp_device *D;
    tp_buf *to;
    cudaEvent_t kernel;
    size_t pinned; /* before the device opened */
    char *host;
} uploads;

static uploads uploads_to(size_t bytes)
{
    uploads u = { .pinned = emulation_pinned(), .host = malloc(bytes) };
    u.D = device_cuda();
    u.to = tp__buf_new(u.D, bytes);
    cr_assert(u.host && u.to);
    cudaEventCreateWithFlags(&u.kernel, cudaEventDisableTiming);
    return u;
}

/* Queues a kernel, then an upload of bytes that depend on the seed. */
static void upload(uploads *u, size_t bytes, unsigned seed)
{
    emulation.busy = 1;
    u->D->be->zero(u->D, u->to->data, u->to->bytes);
    cudaEventRecord(u->kernel, tp__cuda_stream(u->D));
    for (size_t i = 0; i < bytes; i++) u->host[i] = (char)((i + seed) * 2654435761u >> 13);
    u->D->be->upload(u->D, u->to->data, u->host, bytes);
}

/* Returns whether the kernel has run. */
static bool kernel_ran(const uploads *u)
{
    return cudaEventQuery(u->kernel) == cudaSuccess;
}

/* Reads back what the last upload has written. */
static void expect_uploaded(uploads *u, size_t bytes, const char *what)
{
    char *back = malloc(bytes);
    emulation.busy = 0;
    u->D->be->download(u->D, back, u->to->data, bytes);
    cr_expect(memcmp(back, u->host, bytes) == 0, "%s: other bytes", what);
    cr_expect(tp_device_ok(u->D), "%s: %s", what, tp_device_why(u->D));
    free(back);
}

static void uploads_end(uploads *u)
{
    emulation.busy = 0;
    cudaEventDestroy(u->kernel);
    tp__buf_unref(u->to);
    tp_device_close(u->D);
    free(u->host);
    cr_expect_eq(emulation_pinned(), u->pinned, "all pinned memory is returned");
}

/* A step's images are staged while the GPU is busy; the next step reuses that memory. */
Test(uploads, uploads_do_not_wait_for_kernels)
{
    const size_t bytes = ((size_t)21 << 20) + 77;
    uploads u = uploads_to(bytes);
    const uint64_t waits = tp_device_stats(u.D).syncs;
    size_t pinned = 0;
    for (unsigned step = 0; step < 4; step++) {
        upload(&u, bytes, step);
        cr_expect_not(kernel_ran(&u), "step %u", step);
        cr_expect_eq(tp_device_stats(u.D).syncs, waits, "step %u", step);
        if (step == 0) pinned = emulation_pinned();
        cr_expect(emulation_pinned() <= pinned + (2 << 20), "step %u", step);
        expect_uploaded(&u, bytes, "a step");
        cr_expect(kernel_ran(&u));
    }
    cr_expect(pinned >= bytes && pinned < bytes + (8 << 20), "%zu bytes", pinned);
    uploads_end(&u);
}

/* Small uploads share pinned memory. */
Test(uploads, small_uploads_share_pieces)
{
    uploads u = uploads_to(3000);
    const size_t pinned = emulation_pinned();
    for (unsigned k = 0; k < 600; k++) {
        upload(&u, 3000, k);
        cr_expect_not(kernel_ran(&u));
    }
    cr_expect_eq(emulation_pinned(), pinned);
    expect_uploaded(&u, 3000, "small");
    uploads_end(&u);
}

/* Without more pinned memory, uploads wait for their own earlier copies. */
Test(uploads, uploads_wait_without_pinned_memory)
{
    const size_t bytes = ((size_t)19 << 20) + 3, most = (size_t)8 << 20;
    emulation.pinned = emulation_pinned() + most;
    uploads u = uploads_to(bytes);
    for (unsigned step = 0; step < 3; step++) {
        upload(&u, bytes, step);
        cr_expect(kernel_ran(&u));
        cr_expect_eq(emulation_pinned(), emulation.pinned);
        expect_uploaded(&u, bytes, "a step");
    }
    emulation.pinned = 0;
    uploads_end(&u);
}

/* The bound of 256 MiB. */
Test(uploads, uploads_pin_only_so_much)
{
    const size_t bytes = (size_t)16 << 20, before = emulation_pinned();
    uploads u = uploads_to(bytes);
    for (unsigned k = 0; k < 18; k++) {
        upload(&u, bytes, k);
        cr_expect_eq(kernel_ran(&u), false, "upload %u", k);
    }
    cr_expect_eq(emulation_pinned() - before, (size_t)256 << 20);
    cr_expect(tp_device_stats(u.D).syncs > 0);
    expect_uploaded(&u, bytes, "the last");
    uploads_end(&u);
}

#else
Test(uploads, absent)
{
    cr_skip_test("needs the preset emulate");
}
#endif
