/* op.h - for writing ops. Not part of tapegrad.h; unstable until 1.0.
 *
 * An op is one constant tp_op: a shape rule, kernels for each backend, the list of what backward
 * reads, and inputs for the gradient test. The tape calls it directly; there is no registry. */
#ifndef TAPEGRAD_OP_H
#define TAPEGRAD_OP_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Inputs and outputs that masks can name (TP_SAVE_X, tp_op.optional, ...). An op whose nx or ny is
 * -1 may have more: bit 15 then covers the sixteenth and all after it. */
#define TP_MAX_INPUTS  16
#define TP_MAX_OUTPUTS 16

enum { TP_CPU, TP_CUDA, TP_NBACKENDS };

/* Sets of dtypes for tp_op.takes. */
enum {
    TP_FLOATS = 1 << TP_F32 | 1 << TP_F64 | 1 << TP_BF16,
    TP_INDICES = 1 << TP_I32 | 1 << TP_I64,
    TP_MASKS = 1 << TP_U8,
    TP_ANY = TP_FLOATS | TP_INDICES | TP_MASKS
};

/* Dense row-major data, as a kernel sees it. */
typedef struct tp_view {
    void *data;
    tp_dtype dtype;
    int ndim; /* -1: an absent optional input */
    int64_t dim[TP_MAX_DIMS], numel;
} tp_view;

static inline bool tp_absent(const tp_view *v)
{
    return v->ndim < 0;
}

/* The random numbers of one op: word e mod 4 of philox(key = seed, counter = (offset, e/4)). */
typedef struct tp_rng {
    uint64_t seed, offset;
} tp_rng;

/* The arguments of a kernel, forward and backward. A NULL data pointer means not saved (x, y) or
 * not needed (dx). Gradients dy of visible outputs always have data, those of hidden outputs
 * never. */
typedef struct tp_call {
    tp_device *dev;
    const void *attr;
    tp_rng rng;
    bool train;
    int nx, ny;
    /* of all floating data: TP_F32, TP_F64, TP_BF16 (on the CPU f32 that was bf16, or bf16 itself
     * if the op is TP_TAKES_BF16) */
    tp_dtype real;
    const tp_view *x;  /* inputs */
    tp_view *y;        /* outputs; visible ones first, then hidden ones */
    const tp_view *dy; /* backward: gradients of the outputs, [ny] */
    tp_view *dx;       /* backward: to be written, [nx] */
    /* backward: bit i = add to dx[i] (TP_ACCUMULATES only); never to dx[15] and later ones if nx >
     * 16 */
    uint32_t add;
    void *work;  /* scratch of the size that work() returned, 64-byte aligned */
    bool replay; /* recomputed by tp_checkpoint: no side effects (batch statistics) */
    char *why;   /* room for TP_WHY bytes: a failing kernel may give its reason */
} tp_call;

#define TP_WHY 256

typedef tp_code (*tp_kernel)(const tp_call *c);

/* Forward calls have neither dy nor dx. */
static inline bool tp_is_backward(const tp_call *c)
{
    return c->dx != NULL;
}

/* Returns the bytes of c->work that the kernel needs for this call. They depend on shapes,
 * attributes and c->real, not on which gradients are needed. On the CPU the tape widens bf16 data
 * later and c->real says TP_F32, but these views have the dtype bf16. */
typedef size_t (*tp_work)(const tp_call *c);

/* The arguments of a shape rule: inputs (shapes and checked dtypes, no data) and the outputs to
 * describe. */
typedef struct tp_infer {
    tp_tape *T;
    const void *attr;
    int nx, ny;
    const tp_view *x;
    tp_view *y;
    bool train;
    /* a value >= 0 makes y[0] a view of x[0] from that element on; no kernel runs forward, nor
     * backward if the view has all elements. -1, the initial value: a result with its own memory */
    int64_t view_at;
    /* bit i = the gradient of x[i] equals that of y[0], in shape and dtype too: the tape passes it
     * on and does not ask backward for it */
    uint32_t passes;
    /* the call uses one offset of the random stream; initially: TP_RANDOM. An op that is not
     * TP_RANDOM sets it where it draws */
    bool draws;
} tp_infer;

/* One set of inputs for the gradient test (f64, finite differences). An input with ndim 0 is
 * absent. Floating inputs are filled with values of both signs and magnitudes in [0.05, 1.05). */
typedef struct tp_gradcase {
    const char *name; /* NULL ends the table */
    tp_shape in[TP_MAX_INPUTS];
    const void *attr;
    int64_t below[TP_MAX_INPUTS]; /* > 0: input i is TP_I64, in [0, below) */
    uint32_t masks;               /* bit i: input i is TP_U8, 0 or 1 */
    /* ops with nx -1: number of inputs; those beyond `in` are like its last. 0: as many as `in`
     * has */
    int nx;
    int ny;                          /* visible outputs; 0: one */
    void (*fill)(int i, tp_view *x); /* may replace the values from the rules above */
} tp_gradcase;

#define TP_SAVE_X(i) (1u << (i))
#define TP_SAVE_Y(i) (1u << (16 + (i)))

enum {
    TP_RANDOM = 1,             /* every call uses one offset of the random stream */
    TP_ACCUMULATES = 2,        /* backward can add to dx (c->add) */
    TP_NOT_DIFFERENTIABLE = 4, /* results never need a gradient */
    TP_COMPUTES = 8,           /* floating inputs are cast to the compute dtype */
    /* CPU kernels read and write bf16 views themselves; for other ops the tape widens them to f32
     * and rounds the results */
    TP_TAKES_BF16 = 16,
    /* where all views have equal numbers of elements, those at index i depend only on each other: a
     * call may be split */
    TP_ELEMENTWISE = 32
};

typedef struct tp_op {
    const char *name, *doc; /* docs/ops.md is generated from these */
    int nx, ny;             /* -1: varies with the call */
    /* The names of the inputs, "x, w, b", for messages; NULL: messages use their numbers. */
    const char *inputs;
    /* The dtypes of each input; 0 is TP_FLOATS. Before the shape rule runs, the tape refuses
     * others, and inputs that take TP_ANY but are not of one dtype. Floating inputs, parameters
     * too, reach the op in one dtype, except `exact` ones: a bf16 tape and TP_COMPUTES cast, other
     * tapes refuse mixtures. If nx is -1, element 0 covers all inputs. */
    uint8_t takes[TP_MAX_INPUTS];
    size_t attr_size;  /* attributes are copied into the tape */
    uint32_t saves;    /* exactly what backward reads */
    uint32_t optional; /* bit i: input i may be TP_NONE */
    uint32_t constant; /* bit i: input i never gets a gradient (targets, statistics) */
    uint32_t exact;    /* bit i: input i may be f32 beside bf16 data that come first; no cast */
    unsigned flags;
    tp_code (*shape)(tp_infer *q); /* checks; result shapes and dtypes */
    /* Multiply-adds of one forward call, from the attributes and the shapes of inputs and visible
     * outputs. Counted are products, convolutions and, in attention, the pairs that a query sees.
     * NULL: none (elementwise ops, norms, copies). See tp_seen_macs. */
    double (*macs)(const tp_infer *q);
    /* Not called if all visible outputs are empty: then nothing is computed, and gradients are
     * zeros. */
    tp_kernel forward[TP_NBACKENDS], backward[TP_NBACKENDS];
    tp_work work[TP_NBACKENDS]; /* of both directions; NULL: none */
    const tp_gradcase *cases;
} tp_op;

/* Fails the op from its shape rule and returns code. The tape adds op name, inputs and source line
 * to the text. */
TP_API tp_code tp_fail(tp_infer *q, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);

/* Applies op to x[0..nx): checks, allocates, runs, records. The first ny outputs are visible and
 * are written to y, which may be NULL if ny is 1; the others are hidden and kept for backward only.
 * Absent optional inputs are TP_NONE. Returns the first output. */
TP_API tp_tensor tp_apply_n(tp_tape *T, const tp_op *op, const void *attr, int nx,
                            const tp_tensor *x, int ny, tp_tensor *y);

/* tp_apply(T, &op, &attr, x, w). Messages name the source line that tp_at recorded last, so give
 * the function around this call a macro that records its caller's (docs/adding-an-op.md). */
#define tp_apply(T, op, attr, ...) tp_apply_n(T, op, attr, TP_TENSORS(__VA_ARGS__), 1, NULL)

/* Reads and writes element i in any dtype, for simple kernels: slow but correct. CPU kernels see
 * bf16 only if their op is TP_TAKES_BF16; for others the tape widens it. */
TP_API double tp_ld(const tp_view *v, int64_t i);
TP_API void tp_st(const tp_view *v, int64_t i, double x);

/* Checks every case of an op on D (NULL: a temporary CPU device) in f64, in training and evaluation
 * mode. Results and gradients must be finite, and gradients must agree with central differences to
 * 1e-6 of the largest one, also if only one input needs its gradient and if a gradient is added to
 * an existing one. Random ops draw the same numbers in every evaluation. Ops without gradient are
 * only run. Reads beyond `saves` are detected first, by runs in which data that is not saved is
 * NaN. Returns true if all cases pass; otherwise text receives the first failure. */
TP_API bool tp_gradcheck(const tp_op *op, tp_device *D, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
