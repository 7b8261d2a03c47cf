/* emulated_cublaslt.c - the emulation's libcublasLt.so, which tapegrad loads like the real one.
 *
 * An algorithm remembers its problem, including the promised alignments, and is refused for any
 * other. This exposes an algorithm cache that mixes up problems. */
#include "cublasLt.h"

#include <stdlib.h>
#include <string.h>

#include "emulated_gemm.h"

#define WORKSPACE 4096 /* bytes needed by every algorithm */
#define ALIGNED   16   /* alignment of bias and sums, in bytes */

struct cublasLtContext {
    int unused;
};

/* The contents of the opaque types. */
typedef struct product {
    cublasComputeType_t compute;
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    void *vector; /* bias or sums */
} product;
typedef struct layout {
    int64_t type, rows, cols, ld;
} layout;
typedef struct wish {
    uint64_t workspace;
    uint32_t reduction, align[4]; /* of A, B, C, D */
} wish;
typedef struct algorithm {
    uint64_t problem;
    uint32_t align[4], align_vector;
} algorithm;
_Static_assert(sizeof(product) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
_Static_assert(sizeof(wish) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits");

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = calloc(1, sizeof **h);
    return *h ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t size,
                                               cublasComputeType_t compute, cudaDataType scale)
{
    const product p = { compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL };
    if (size < sizeof *d) return CUBLAS_STATUS_ALLOC_FAILED;
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(d, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld)
{
    const layout x = { type, (int64_t)rows, (int64_t)cols, ld };
    if (size < sizeof *l) return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(l, &x, sizeof x);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p, size_t size)
{
    const wish w = { 0, 7, { 256, 256, 256, 256 } };
    if (size < sizeof *p) return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(p, &w, sizeof w);
    return CUBLAS_STATUS_SUCCESS;
}

/* Sets an attribute; the value must have its field's size. */
static cublasStatus_t set(void *object, size_t at, size_t field, const void *value, size_t size)
{
    if (size != field) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy((char *)object + at, value, size);
    return CUBLAS_STATUS_SUCCESS;
}
#define SET(type, field)                                                                           \
    set(object, offsetof(type, field), sizeof((type *)NULL)->field, value, size)

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t object,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t size)
{
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return SET(product, ta);
    case CUBLASLT_MATMUL_DESC_TRANSB: return SET(product, tb);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return SET(product, epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return SET(product, vector);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t object,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t size)
{
    switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return SET(wish, workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return SET(wish, reduction);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return SET(wish, align[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return SET(wish, align[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return SET(wish, align[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return SET(wish, align[3]);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return h;
}

static uint32_t alignment(const void *p)
{
    const uintptr_t bits = (uintptr_t)p | 256;
    return (uint32_t)(bits & (~bits + 1));
}

/* Describes the product without its data. False if sizes, types or layouts do not match. */
static int describe(emulated_gemm *g, uint64_t *problem, product p, layout a, layout b, layout c)
{
    const int ta = p.ta == CUBLAS_OP_T, tb = p.tb == CUBLAS_OP_T;
    const int64_t k = ta ? a.rows : a.cols;
    *g = (emulated_gemm){ .ta = p.ta,
                          .tb = p.tb,
                          .m = (int)c.rows,
                          .n = (int)c.cols,
                          .k = (int)k,
                          .lda = (int)a.ld,
                          .ldb = (int)b.ld,
                          .ldc = (int)c.ld,
                          .batch = 1,
                          .type = (cudaDataType)a.type,
                          .type_c = (cudaDataType)c.type,
                          .bias = p.epilogue == CUBLASLT_EPILOGUE_BIAS ? p.vector : NULL,
                          .sums = p.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.vector : NULL };
    *problem = hash(0xcbf29ce484222325u, &p, offsetof(product, vector));
    *problem = hash(hash(hash(*problem, &a, sizeof a), &b, sizeof b), &c, sizeof c);
    return (ta ? a.cols : a.rows) == c.rows && (tb ? b.cols : b.rows) == k &&
           (tb ? b.rows : b.cols) == c.cols && c.rows > 0 && c.cols > 0 && k > 0 &&
           a.type == b.type && emulated_gemm_valid(g, p.compute);
}

static int same(cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b)
{
    return memcmp(a, b, sizeof(layout)) == 0;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t to,
                                              cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t *results, int *n)
{
    algorithm found;
    emulated_gemm g;
    product what;
    layout la, lb, lc;
    wish w;
    *n = 0;
    memcpy(&what, d, sizeof what);
    memcpy(&la, a, sizeof la);
    memcpy(&lb, b, sizeof lb);
    memcpy(&lc, c, sizeof lc);
    memcpy(&w, p, sizeof w);
    if (!h || most < 1 || !same(c, to) || !describe(&g, &found.problem, what, la, lb, lc))
        return CUBLAS_STATUS_INVALID_VALUE;
    found.align_vector = alignment(what.vector);
    if (w.workspace < WORKSPACE || found.align_vector < ALIGNED) return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(found.align, w.align, sizeof found.align);
    *results = (cublasLtMatmulHeuristicResult_t){ .workspaceSize = WORKSPACE };
    memcpy(&results->algo, &found, sizeof found);
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *to, cublasLtMatrixLayout_t lto,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t bytes,
                              cudaStream_t s)
{
    const void *const pointers[4] = { a, b, c, to };
    algorithm chosen;
    emulated_gemm g;
    product what;
    layout xa, xb, xc;
    uint64_t problem;
    memcpy(&chosen, algo, sizeof chosen);
    memcpy(&what, d, sizeof what);
    memcpy(&xa, la, sizeof xa);
    memcpy(&xb, lb, sizeof xb);
    memcpy(&xc, lc, sizeof xc);
    if (!h || c != to || !same(lc, lto) || !describe(&g, &problem, what, xa, xb, xc) ||
        problem != chosen.problem || !what.vector || alignment(what.vector) < chosen.align_vector ||
        bytes < WORKSPACE || alignment(work) < 256)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; i++)
        if (alignment(pointers[i]) < chosen.align[i]) return CUBLAS_STATUS_INVALID_VALUE;
    if (s->fault() || s->refused()) return CUBLAS_STATUS_EXECUTION_FAILED;
    g.stream = s;
    g.scale = *(const float *)alpha;
    g.keep = *(const float *)beta;
    g.a = a;
    g.b = b;
    g.c = to;
    emulated_gemm_queue(&g);
    return CUBLAS_STATUS_SUCCESS;
}
