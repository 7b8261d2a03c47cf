/* blas_lt.c - matrix products with an epilogue, by cuBLASLt, which adds a bias or sums the left
 * operand.
 *
 * cuBLASLt is queried once per problem for its best algorithm; descriptors and algorithm are kept
 * in a table of fixed size, so a call sets one pointer and launches. The query runs only on the
 * host, so it may run while a step is recorded. A product split over k keeps its partial sums in
 * f32 and adds them in a separate step: deterministic, and rounded once. */
#include "cuda/device/blas_library.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/error.h"

#define PLANS      256
#define NEIGHBOURS 8 /* candidate entries of a plan */
#define KEY        13
#define ALIGNED    16 /* bytes: the kernels' required alignment of the vector */

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescInit_internal) X(cublasLtMatmulDescSetAttribute)                           \
    X(cublasLtMatrixLayoutInit_internal)                                                           \
    X(cublasLtMatmulPreferenceInit_internal) X(cublasLtMatmulPreferenceSetAttribute)
/* clang-format on */

/* A problem's algorithm. Names are cuBLASLt's: its A is our B. */
typedef struct plan {
    int64_t key[KEY]; /* all zero: free */
    bool usable;      /* else there is no algorithm */
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
} plan;

struct tp_cuda_lt {
    struct {
#define POINTER(name) __typeof__(name) *name;
        FUNCTIONS(POINTER)
#undef POINTER
    } f;
    void *library, *workspace;
    size_t workspace_size;
    cublasLtHandle_t handle;
    plan plans[PLANS];
};

tp_cuda_lt *tp__cuda_lt_open(void *workspace, size_t bytes, char *text, size_t size)
{
#define NAME(name) #name,
    static const char *const names[] = { FUNCTIONS(NAME) NULL };
#undef NAME
    tp_cuda_lt *t = calloc(1, sizeof *t);
    if (!t) {
        tp__append(text, size, "out of host memory");
        return NULL;
    }
    t->workspace = workspace;
    t->workspace_size = bytes;
    t->library = tp__cuda_library("cuBLASLt", "libcublasLt", names, &t->f, text, size);
    if (t->library && t->f.cublasLtCreate(&t->handle) == CUBLAS_STATUS_SUCCESS) return t;
    if (t->library) tp__append(text, size, "cuBLASLt did not start: is the GPU's memory full?");
    tp__cuda_lt_close(t);
    return NULL;
}

void tp__cuda_lt_close(tp_cuda_lt *t)
{
    if (!t) return;
    if (t->handle) t->f.cublasLtDestroy(t->handle);
    if (t->library) dlclose(t->library);
    free(t);
}

static int64_t alignment(const void *p)
{
    const uintptr_t bits = (uintptr_t)p | 256;
    return (int64_t)(bits & (~bits + 1));
}

/* The bias, or the destination of the sums. */
static const void *vector_of(const tp_cuda_gemm *g)
{
    return g->bias ? g->bias : g->sums;
}

/* A problem's entry if present, else a free one, else the first candidate. */
static plan *find(tp_cuda_lt *t, const int64_t key[KEY])
{
    static const int64_t none[KEY];
    uint64_t h = 0;
    for (int i = 0; i < KEY; i++) {
        h = (h ^ (uint64_t)key[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    plan *free_one = NULL;
    for (size_t i = 0; i < NEIGHBOURS; i++) {
        plan *p = &t->plans[(h + i) % PLANS];
        if (memcmp(p->key, key, sizeof p->key) == 0) return p;
        if (!free_one && memcmp(p->key, none, sizeof none) == 0) free_one = p;
    }
    return free_one ? free_one : &t->plans[h % PLANS];
}

static bool describe(const tp_cuda_lt *t, const tp_cuda_gemm *g, bool tf32, plan *p)
{
    const cudaDataType type = tp__cuda_blas_type(g->type), type_c = tp__cuda_blas_type(g->type_c);
    const cublasOperation_t op_a = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = g->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_BGRADB;
    const void *vector = vector_of(g);
    const struct {
        cublasLtMatmulDescAttributes_t what;
        const void *value;
        size_t size;
    } set[] = { { CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a },
                { CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b },
                { CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue },
                { CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector } };
    bool ok = t->f.cublasLtMatmulDescInit_internal(&p->product, sizeof p->product,
                                                   tp__cuda_blas_compute(g->type, tf32),
                                                   CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        ok = ok && t->f.cublasLtMatmulDescSetAttribute(&p->product, set[i].what, set[i].value,
                                                       set[i].size) == CUBLAS_STATUS_SUCCESS;
    const struct {
        cublasLtMatrixLayoutOpaque_t *to;
        cudaDataType type;
        int64_t rows, cols, ld;
    } layouts[] = { { &p->a, type, g->tb ? g->k : g->n, g->tb ? g->n : g->k, g->ldb },
                    { &p->b, type, g->ta ? g->m : g->k, g->ta ? g->k : g->m, g->lda },
                    { &p->c, type_c, g->n, g->m, g->ldc } };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        ok = ok &&
             t->f.cublasLtMatrixLayoutInit_internal(
                 layouts[i].to, sizeof *layouts[i].to, layouts[i].type, (uint64_t)layouts[i].rows,
                 (uint64_t)layouts[i].cols, layouts[i].ld) == CUBLAS_STATUS_SUCCESS;
    return ok;
}

static bool choose(const tp_cuda_lt *t, const tp_cuda_gemm *g, plan *p)
{
    const uint64_t bytes = t->workspace_size;
    const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = (uint32_t)alignment(g->b), b = (uint32_t)alignment(g->a);
    const uint32_t c = (uint32_t)alignment(g->c);
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t size;
    } set[] = { { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes },
                { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums },
                { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a },
                { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b },
                { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c },
                { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c } };
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int n = 0;
    bool ok = t->f.cublasLtMatmulPreferenceInit_internal(&preference, sizeof preference) ==
              CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        ok = ok && t->f.cublasLtMatmulPreferenceSetAttribute(&preference, set[i].what, set[i].value,
                                                             set[i].size) == CUBLAS_STATUS_SUCCESS;
    ok = ok &&
         t->f.cublasLtMatmulAlgoGetHeuristic(t->handle, &p->product, &p->a, &p->b, &p->c, &p->c,
                                             &preference, 1, &best, &n) == CUBLAS_STATUS_SUCCESS;
    if (!ok || n < 1 || best.state != CUBLAS_STATUS_SUCCESS) return false;
    p->algorithm = best.algo;
    return true;
}

bool tp__cuda_lt_gemm(tp_cuda_lt *t, const tp_cuda_gemm *g, bool tf32, cudaStream_t s)
{
    const float one = 1.0f, keep = g->add ? 1.0f : 0.0f;
    const void *vector = vector_of(g);
    if (!vector || g->batch != 1 || g->k == 0 || alignment(vector) < ALIGNED) return false;
    const int64_t key[KEY] = { g->m,
                               g->n,
                               g->k,
                               g->lda,
                               g->ldb,
                               g->ldc,
                               g->type,
                               g->type_c,
                               g->ta | g->tb << 1 | (g->bias != NULL) << 2,
                               alignment(g->a),
                               alignment(g->b),
                               alignment(g->c),
                               alignment(vector) };
    plan *p = find(t, key);
    if (memcmp(p->key, key, sizeof key) != 0) {
        memcpy(p->key, key, sizeof key);
        p->usable = describe(t, g, tf32, p) && choose(t, g, p);
    }
    /* `usable` records a missing algorithm; a failed call is retried next time. */
    return p->usable &&
           t->f.cublasLtMatmulDescSetAttribute(&p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &vector, sizeof vector) == CUBLAS_STATUS_SUCCESS &&
           t->f.cublasLtMatmul(t->handle, &p->product, &one, g->b, &p->a, g->a, &p->b, &keep, g->c,
                               &p->c, g->c, &p->c, &p->algorithm, t->workspace, t->workspace_size,
                               s) == CUBLAS_STATUS_SUCCESS;
}
