/* blas.c - OpenBLAS's matrix products; the only file that includes cblas.h.
 *
 * OpenBLAS runs single-threaded: its own pool was slower than our split (gemm_tiles.c) on every
 * shape measured, and it competes with OpenMP for cores. It is not linked but loaded when a device
 * opens, since loading it starts a pool unless OPENBLAS_NUM_THREADS is 1. Where a limit leaves no
 * room, that pool ends the process or hangs. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, the lock preference */
#include <cblas.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tensor/kernel.h"

#ifndef TP_OPENBLAS
#define TP_OPENBLAS "libopenblas.so.0"
#endif

/* ---- the library ---- */

/* In no header, and missing from some builds. */
void *blas_memory_alloc(int where);
void blas_memory_free(void *buffer);

#define FUNCTIONS(X)                                                                               \
    X(cblas_sgemm)                                                                                 \
    X(cblas_dgemm)                                                                                 \
    X(cblas_sgemv)                                                                                 \
    X(cblas_dgemv)                                                                                 \
    X(openblas_set_num_threads)                                                                    \
    X(openblas_get_num_procs)
#define INNER_FUNCTIONS(X) X(blas_memory_alloc) X(blas_memory_free)

#define POINTER(name) __typeof__(name) *name;
static struct {
    FUNCTIONS(POINTER)
} blas;
static struct {
    INNER_FUNCTIONS(POINTER)
} inner; /* NULL if missing */
#undef POINTER
static bool loaded;

/* Loads the library; falls back to the folder where the build found it. */
static void *load(void)
{
    void *library = dlopen(TP_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
#ifdef TP_OPENBLAS_BUILD
    if (!library) library = dlopen(TP_OPENBLAS_BUILD, RTLD_NOW | RTLD_LOCAL);
#endif
    return library;
}

/* Loads it with one thread: the library reads the variable at load time. */
static void *load_with_one_thread(void)
{
    static const char variable[] = "OPENBLAS_NUM_THREADS";
    const char *given = getenv(variable);
    char *former = given ? strdup(given) : NULL;
    if ((given && !former) || setenv(variable, "1", 1) != 0) {
        free(former);
        return NULL;
    }
    void *library = load();
    if (former)
        setenv(variable, former, 1);
    else
        unsetenv(variable);
    free(former);
    return library;
}

static bool find(void *library, const char *const *names, void *functions)
{
    for (size_t i = 0; names[i]; i++) {
        void *symbol = dlsym(library, names[i]);
        if (!symbol) return false;
        memcpy((char *)functions + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return true;
}

static void open_blas(tp_device *D)
{
#define NAME(name) #name,
    static const char *const names[] = { FUNCTIONS(NAME) NULL };
    static const char *const inner_names[] = { INNER_FUNCTIONS(NAME) NULL };
#undef NAME
    (void)dlerror();
    void *library = load_with_one_thread();
    if (!library || !find(library, names, &blas)) {
        const char *why = dlerror();
        tp__err(&D->err, TP_E_DEVICE,
                "device %s: OpenBLAS cannot be loaded: %.300s; install libopenblas, or raise the "
                "limit on memory (ulimit -v)",
                D->name, why ? why : "out of memory");
        return;
    }
    if (!find(library, inner_names, &inner)) inner.blas_memory_alloc = NULL;
    blas.openblas_set_num_threads(1); /* if the program itself loaded it */
    loaded = true;
}

/* ---- memory ---- */

/* OpenBLAS maps a buffer for each concurrent product and keeps it. It retries forever if there is
 * no memory for one. */
#define BUFFER  ((size_t)128 << 20)
#define BUFFERS 64 /* most buffers mapped in advance */

/* Is there memory for n buffers? */
static bool room(int n)
{
    void *p[BUFFERS];
    int got = 0;
    while (got < n) {
        p[got] = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p[got] == MAP_FAILED) break;
        got++;
    }
    for (int i = 0; i < got; i++) munmap(p[i], BUFFER);
    return got == n;
}

static void map_buffers(int n)
{
    void *p[BUFFERS];
    for (int i = 0; i < n; i++) p[i] = inner.blas_memory_alloc(0);
    for (int i = 0; i < n; i++) inner.blas_memory_free(p[i]);
}

/* OpenBLAS has a table of two buffers per processor it was built for, at least 50 in total. */
static int buffers_for(int threads)
{
    int most = 24;
    if (blas.openblas_get_num_procs() > most) most = blas.openblas_get_num_procs();
    if (most > BUFFERS) most = BUFFERS;
    return threads < most ? threads : most;
}

static void prepare(tp_device *D, int threads)
{
    static int mapped;
    if (!loaded) open_blas(D);
    const int n = loaded ? buffers_for(threads) : 0;
    if (n <= mapped || !inner.blas_memory_alloc) return;
    if (!room(n - mapped)) {
        tp__err(
            &D->err, TP_E_MEMORY,
            "device %s: out of memory for OpenBLAS: 128 MiB of address space for each thread (%d); "
            "raise the limit (ulimit -v), or lower the threads",
            D->name, threads);
        return;
    }
    map_buffers(n);
    mapped = n;
}

static tp_lock one; /* to load the library or map its memory */

static void make_lock(void)
{
    tp__lock_init(&one);
}

void tp__blas_prepare(tp_device *D, int threads)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_lock);
    tp__lock(&one);
    prepare(D, threads);
    tp__unlock(&one);
}

/* ---- forks ---- */

/* OpenBLAS locks each product; after a fork, the child would find that lock held by a thread that
 * does not exist there. Products therefore read-lock this lock; a fork write-locks it. */
/* a fork does not wait for later products */
#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#define NEW_LOCK PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#else
#define NEW_LOCK PTHREAD_RWLOCK_INITIALIZER
#endif
static pthread_rwlock_t inside = NEW_LOCK;

void tp__blas_hold(void)
{
    pthread_rwlock_wrlock(&inside);
}

void tp__blas_release(bool in_child)
{
    static const pthread_rwlock_t fresh = NEW_LOCK;
    if (in_child)
        inside = fresh; /* it counts waiting threads, which do not exist here */
    else
        pthread_rwlock_unlock(&inside);
}

/* ---- products ---- */

/* Multiplies one row by a matrix, without packing: 4 to 9 times faster than the general product. */
static void gemv(tp_dtype dtype, bool tb, int64_t n, int64_t k, double alpha, const void *a,
                 const void *b, int64_t ldb, double beta, void *c)
{
    const CBLAS_TRANSPOSE op = tb ? CblasNoTrans : CblasTrans;
    const blasint rows = (blasint)(tb ? n : k), cols = (blasint)(tb ? k : n);
    if (dtype == TP_F64)
        blas.cblas_dgemv(CblasRowMajor, op, rows, cols, alpha, b, (blasint)ldb, a, 1, beta, c, 1);
    else
        blas.cblas_sgemv(CblasRowMajor, op, rows, cols, (float)alpha, b, (blasint)ldb, a, 1,
                         (float)beta, c, 1);
}

static void gemm(tp_dtype dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
                 const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c,
                 int64_t ldc)
{
    const CBLAS_TRANSPOSE opa = ta ? CblasTrans : CblasNoTrans,
                          opb = tb ? CblasTrans : CblasNoTrans;
    const blasint ild = (blasint)(lda > 0 ? lda : 1), jld = (blasint)(ldb > 0 ? ldb : 1);
    if (dtype == TP_F64)
        blas.cblas_dgemm(CblasRowMajor, opa, opb, (blasint)m, (blasint)n, (blasint)k, alpha, a, ild,
                         b, jld, beta, c, (blasint)ldc);
    else
        blas.cblas_sgemm(CblasRowMajor, opa, opb, (blasint)m, (blasint)n, (blasint)k, (float)alpha,
                         a, ild, b, jld, (float)beta, c, (blasint)ldc);
}

void tp__gemm(tp_dtype dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
              const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c,
              int64_t ldc)
{
    if (m == 0 || n == 0) return;
    pthread_rwlock_rdlock(&inside);
    if (m == 1 && !ta && k > 0)
        gemv(dtype, tb, n, k, alpha, a, b, ldb, beta, c);
    else
        gemm(dtype, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    pthread_rwlock_unlock(&inside);
}
