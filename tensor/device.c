/* device.c - opens and closes devices; the CPU backend. */
#define _DEFAULT_SOURCE /* madvise */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tensor/left.h"

#define HUGE_PAGE ((size_t)1 << 21)

#ifdef MADV_HUGEPAGE
/* The number of bytes to put in huge pages: not the last 2 MiB of a larger slab, which buffers
 * often use only in part. */
static size_t huge_bytes(size_t bytes)
{
    return bytes <= HUGE_PAGE ? bytes : (bytes - 1) / HUGE_PAGE * HUGE_PAGE;
}
#endif

/* Kernels touch more 4 KiB pages than the TLB holds, so slabs use huge pages where available. The
 * advice may be refused. */
static void *cpu_alloc(tp_device *D, size_t bytes)
{
    (void)D;
    void *p = NULL;
    const bool huge = bytes >= HUGE_PAGE;
    if (posix_memalign(&p, huge ? HUGE_PAGE : 64, bytes)) return NULL;
#ifdef MADV_HUGEPAGE
    if (huge) madvise(p, huge_bytes(bytes), MADV_HUGEPAGE);
#endif
    return p;
}

/* Returns the pages to the system; malloc might keep freed memory for later requests. */
static void cpu_free(tp_device *D, void *p, size_t bytes)
{
    (void)D;
    if (bytes >= HUGE_PAGE) madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_DONTNEED);
    free(p);
}

static void cpu_upload(tp_device *D, void *dst, const void *host, size_t bytes)
{
    (void)D;
    if (bytes) memcpy(dst, host, bytes);
}

static void cpu_copy(tp_device *D, void *dst, const void *src, size_t bytes)
{
    (void)D;
    if (bytes) memcpy(dst, src, bytes);
}

static void cpu_zero(tp_device *D, void *dst, size_t bytes)
{
    (void)D;
    if (bytes) memset(dst, 0, bytes);
}

static void cpu_fill(tp_device *D, void *dst, size_t bytes, const void *value)
{
    char *to = dst;
    (void)D;
    for (; bytes >= 16; bytes -= 16, to += 16) memcpy(to, value, 16);
    if (bytes) memcpy(to, value, bytes);
}

static void cpu_sync(tp_device *D)
{
    (void)D;
}

const tp_backend tp__cpu_backend = {
    .kind = TP_CPU,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_upload,
    .download = cpu_upload,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .fill = cpu_fill,
    .sync = cpu_sync,
};

static bool processor_runs(tp_isa isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == TP_ISA_AVX2) return avx2;
    if (isa == TP_ISA_AMX) return processor_runs(TP_ISA_AVX512) && tp__amx_runs(NULL);
    if (isa == TP_ISA_AVX512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return isa == TP_ISA_BASE;
}

static tp_isa best_isa(void)
{
    for (int isa = TP_ISA_AMX; isa > TP_ISA_BASE; isa--)
        if (TP_HAS_ISA((tp_isa)isa) && processor_runs((tp_isa)isa)) return (tp_isa)isa;
    return TP_HAS_ISA(TP_ISA_BASE) ? TP_ISA_BASE : TP_ISA_ALONE;
}

bool tp_isa_runs(tp_isa isa)
{
    if (isa == TP_ISA_AUTO) isa = best_isa();
    return TP_HAS_ISA(isa) && processor_runs(isa);
}

static const char *isa_name(tp_isa isa)
{
    return isa == TP_ISA_AMX      ? "amx"
           : isa == TP_ISA_AVX512 ? "avx512"
           : isa == TP_ISA_AVX2   ? "avx2"
                                  : "base";
}

static void open_cpu(tp_device *D, const tp_device_opts *o)
{
    snprintf(D->name, sizeof D->name, o->dry ? "cpu (dry)" : "cpu");
    if (o->threads < 0 || o->threads > 1024) {
        tp__err(&D->err, TP_E_VALUE, "device cpu: threads must be 0 (automatic) to 1024, not %d",
                o->threads);
        return;
    }
    const tp_isa isa = o->isa == TP_ISA_AUTO ? best_isa() : o->isa;
    D->isa = tp__kernels_of(isa);
    D->amx = isa == TP_ISA_AMX;
    if (!tp_isa_runs(isa)) {
        tp__err(&D->err, TP_E_DEVICE,
                processor_runs(isa)
                    ? "device cpu: this library is built without %s kernels; use TAPEGRAD_ISA=all"
                    : "device cpu: this processor does not run %s kernels",
                isa_name(isa));
        return;
    }
    D->threads = o->threads ? o->threads : tp__max_threads();
    if (!o->dry && D->threads > 1) D->pool = tp__pool_new(D);
    tp__heap_init(&D->heap, o);
    D->dry = o->dry;
    D->be = o->dry ? &tp__dry_backend[TP_CPU] : &tp__cpu_backend;
}

/* Returned by tp_device_open if the object cannot be allocated. */
static tp_device no_memory = {
    .name = "none",
    .err = { TP_E_MEMORY, "device: out of memory for the device object itself", NULL },
};

#ifdef TP_HAVE_CUDA
#define KNOWN "devices are cpu, cuda, cuda:1"
/* Opens "cuda" or "cuda:N". */
static void open_cuda(tp_device *D, const char *name, const tp_device_opts *o)
{
    const char *at = name[4] == ':' ? name + 5 : "0";
    char *end = NULL;
    const long index = strtol(at, &end, 10);
    if ((name[4] && name[4] != ':') || *at < '0' || *at > '9' || *end || index > 999)
        tp__err(&D->err, TP_E_VALUE, "device '%.32s' is unknown; " KNOWN, name);
    else
        tp__cuda_open(D, (int)index, o);
}
#else
#define KNOWN "this build has one device, cpu"
static void open_cuda(tp_device *D, const char *name, const tp_device_opts *o)
{
    (void)o;
    tp__err(&D->err, TP_E_DEVICE, "device %.32s: this build of tapegrad has no CUDA; use cpu",
            name);
}
#endif

tp_device *tp_device_open(const char *name, const tp_device_opts *o)
{
    static const tp_device_opts defaults = { 0 };
    tp_device *D = calloc(1, sizeof *D);
    if (!D || !tp__left_new(D)) {
        free(D);
        return &no_memory;
    }
    D->err.dev = D;
    if (!o) o = &defaults;
    D->keep_subnormals = o->keep_subnormals;
    if (name && strcmp(name, "cpu") == 0)
        open_cpu(D, o);
    else if (name && strncmp(name, "cuda", 4) == 0)
        open_cuda(D, name, o);
    else if (name)
        tp__err(&D->err, TP_E_VALUE, "device '%.32s' is unknown; " KNOWN, name);
    else
        tp__err(&D->err, TP_E_VALUE, "device: NULL was given in place of a name; " KNOWN);
    D->profile.on = o->profile;
    if (D->be && !o->dry) tp__blas_prepare(D, D->be->kind == TP_CPU ? D->threads : 1);
    return D;
}

void tp__device_free(tp_device *D)
{
    tp__pool_free(D->pool);
    tp__profile_free(D);
    tp__trace_free(D);
    if (D->be) {
        if (D->be->close) D->be->close(D);
        tp__heap_free(D);
        if (D->be->forget) D->be->forget(D);
    }
    tp__left_free(D);
    free(D);
}

void tp_device_close(tp_device *D)
{
    if (!D || D == &no_memory || D->left->closed) return;
    tp__lock(&D->left->lock);
    D->left->closed = true;
    const bool unused = tp__counted(D->left->users) == 0;
    if (!unused) {
        D->on_error = NULL; /* its program may be ending */
        tp__err(&D->err, TP_E_STATE,
                "device %s: tp_device_close has closed it; free the objects on a device first",
                D->name);
    }
    tp__unlock(&D->left->lock);
    if (unused) tp__device_free(D);
}

void tp_device_on_error(tp_device *D, tp_error_fn fn, void *env)
{
    if (!D) return;
    if (D != &no_memory) {
        D->on_error = fn;
        D->on_error_env = env;
    }
    if (fn && D->err.code != TP_OK) fn(env, D->err.code, D->err.text);
}

bool tp_device_sync(tp_device *D)
{
    if (!D || !D->be || D->capturing) return false;
    tp__count(D->syncs, 1);
    D->be->sync(D);
    return tp_device_ok(D);
}

void tp__fill(tp_device *D, const tp_view *v, double x)
{
    static const char zero[16];
    char value[16];
    const size_t size = tp_dtype_size(v->dtype), bytes = (size_t)v->numel * size;
    const tp_view all = { .data = value,
                          .dtype = v->dtype,
                          .numel = (int64_t)(sizeof value / size) };
    for (int64_t i = 0; i < all.numel; i++) tp_st(&all, i, x);
    if (memcmp(value, zero, sizeof zero) == 0)
        D->be->zero(D, v->data, bytes);
    else
        D->be->fill(D, v->data, bytes, value);
}

bool tp__device_read(tp_device *D, void *host, const void *from, size_t bytes)
{
    tp__count(D->syncs, 1);
    D->be->download(D, host, from, bytes);
    return tp_device_ok(D);
}

void tp_device_trim(tp_device *D)
{
    if (D && D->be) tp__heap_trim(D);
}

tp_stats tp_device_stats(const tp_device *D)
{
    if (!D) return (tp_stats){ .isa = "none" };
    const tp_heap *h = &D->heap;
    return (tp_stats){
        .live_bytes = h->live,
        .cached_bytes = h->cached,
        .peak_bytes = h->peak,
        .held_peak_bytes = h->held_peak,
        .allocs = h->allocs,
        .launches = tp__counted(D->launches),
        .syncs = tp__counted(D->syncs),
        .unfused = tp__counted(D->unfused),
        .threads = D->threads,
        .isa = D->be && D->be->kind == TP_CUDA ? "cuda" : isa_name(D->amx ? TP_ISA_AMX : D->isa),
    };
}

void tp_device_reset_peak(tp_device *D)
{
    if (!D) return;
    D->heap.peak = D->heap.live;
    D->heap.held_peak = D->heap.held;
}
const char *tp_device_why(const tp_device *D)
{
    return D ? D->err.text : "device: NULL was given in place of a device";
}
bool tp_device_ok(const tp_device *D)
{
    return D && D->err.code == TP_OK;
}
const char *tp_device_name(const tp_device *D)
{
    return D ? D->name : "none";
}
