/* tape.h - internals of the tape: records (applied ops) and their arena, scopes, errors. */
#ifndef TP_TAPE_H
#define TP_TAPE_H

#include <tapegrad/observe.h>
#include <tapegrad/tape.h>

#include "autograd/nodes.h"

struct tp_rec;

/* The function that tp_checkpoint reruns, with the tape's state at its first run. */
typedef struct tp_replay {
    tp_fn f;
    tp_fn_n fn;
    const void *self;
    uint64_t offset, seed;
    bool train;
    tp_dtype compute;
    int nparams;
    tp_node **params;                               /* read by the first run */
    bool *wanted;                                   /* did they want a gradient then? */
    bool (*backward)(tp_tape *T, struct tp_rec *r); /* of record r, its owner */
} tp_replay;

/* One applied op. Arrays have nx and ny elements and live in the tape's arena. */
typedef struct tp_rec {
    const tp_op *op; /* NULL: a checkpoint */
    const void *attr;
    tp_rng rng;
    tp_dtype real;
    bool train, done, view; /* view: y[0] is a piece of x[0] */
    uint32_t wants;         /* bit i: x[i] wanted a gradient when the op was applied */
    uint32_t passes;        /* bit i: the gradient of x[i] equals that of y[0] */
    uint32_t recompute;     /* bit i: x[i] is recomputed where it is needed */
    void **rerun;           /* data of inputs held only to rerun the op; or NULL */
    int uses;               /* during a restore: inputs still waiting for y[0] */
    tp_buf *made;           /* the recomputed y[0], until the last of them has it */
    void *made_data;
    int nx, ny, visible;
    tp_node **x, **y; /* x: NULL if absent; y: visible outputs */
    tp_view *xv, *yv; /* data NULL if not saved */
    tp_buf **xbuf, **ybuf;
    uint64_t *version; /* tp__version of each parameter in x, or in replay->params */
    tp_replay *replay;
    const char *path, *file;
    int line;
} tp_rec;

typedef struct tp_arena_chunk {
    struct tp_arena_chunk *next;
    size_t size, used;
    /* data follows, 64-byte aligned */
} tp_arena_chunk;

typedef struct tp_arena_mark {
    tp_arena_chunk *chunk;
    size_t used;
} tp_arena_mark;

typedef struct tp_scope {
    const char *path;
    size_t first; /* index into open[] of the first tensor created inside */
    double began; /* of a trace: when; 0: none was being made */
} tp_scope;

/* Bookkeeping of a checkpointed function during its first run. */
typedef struct tp_watch {
    struct tp_watch *outer;
    tp_nodes params;
    uint64_t born; /* tensors with a smaller gen came from outside */
} tp_watch;

/* A carried tensor that a recorded step replaced (capture.c); `now` is copied back to buf. */
typedef struct tp_move {
    tp_buf *buf;
    tp_view view;
    tp_node *now;
    tp_buf *taken;
} tp_move;

struct tp_tape {
    uint64_t id; /* unique on the device; upper bits of its nodes' gens (TP_TAPE_GENS) */
    tp_device *dev;
    tp_err err;
    tp_err rule; /* tp_fail's message on the current op, without name and inputs */
    bool born_failed, freed, train, recording, check_finite, replaying;
    bool saves_all; /* records hold all inputs and outputs (gradcheck.c) */
    tp_dtype compute;
    uint64_t seed, offset, next_gen;
    int64_t ops; /* since reset */
    const char *file;
    int line;
    tp_scope *scopes;
    size_t nscopes, scopes_cap;
    tp_nodes open;    /* live tensors by age; scopes are ranges */
    tp_nodes used;    /* handed out since reset (not carried) */
    tp_nodes spare;   /* recycled nodes                                    */
    tp_nodes carried; /* live carried nodes                                */
    tp_nodes retired; /* replaced carried nodes, valid until reset         */
    tp_nodes chunks;  /* node memory, in arrays                            */
    tp_rec **recs;
    int64_t nrecs;
    size_t recs_cap;
    tp_arena_chunk *arena, *arena_first;
    tp_tensor *reads; /* first parameters of the sets read since reset (tp__set_read) */
    int nreads;
    size_t reads_cap;
    tp_watch *watch;
    bool hashes_feeds;
    uint64_t feeds_hash;
    const char *path;     /* of the record that backward runs; NULL: the innermost scope's */
    tp_observer observer; /* NULL: none */
    void *observer_env;
    bool moving, unsteady; /* a step is recorded; a slot was filled or emptied */
    uint64_t epoch;        /* grows at resets, and when a slot moves outside a recording */
    tp_move *moves;
    int nmoves;
    size_t moves_cap;
};

/* True if all results are empty: then no kernel runs, whatever positions their shapes name, and
 * gradients are zeros. */
static inline bool tp__all_empty(const tp_view *y, int n)
{
    int i = 0;
    while (i < n && y[i].numel == 0) i++;
    return i == n;
}

/* The mask bit of input or output i; the last bit serves all further ones. */
static inline uint32_t tp__bit(int i)
{
    return 1u << (i < TP_MAX_INPUTS ? i : TP_MAX_INPUTS - 1);
}

/* fail.c */
extern tp_tape tp__no_tape_memory;   /* of tp_tape_new, if out of memory */
tp_tape *tp__some(const tp_tape *T); /* T, or a failed tape in place of NULL               */
bool tp__is_none(const tp_tape *T);  /* T is NULL, freed or one of these: read-only */
tp_tensor tp__fail(tp_tape *T, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);
void tp__no_host_memory(tp_tape *T);
tp_code tp__device_failed(tp_tape *T); /* fails the tape with its device's text */
/* Also names the op that met the failure; usually an earlier op caused it. */
tp_code tp__device_failed_at(tp_tape *T, const char *name, bool backward);

/* nodes.c */
void *tp__arena(tp_tape *T, size_t bytes); /* zeroed; NULL: tape failed */
/* Arena bytes used by a piece. */
static inline size_t tp__arena_bytes(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}
/* Arena memory taken since `mark` can be returned once no record needs it. */
tp_arena_mark tp__arena_at(const tp_tape *T);
void tp__arena_back(tp_tape *T, tp_arena_mark mark);
/* Returns room for n items: `local`, which holds TP_MAX_INPUTS, or arena memory. NULL: tape
 * failed. */
static inline void *tp__room(tp_tape *T, void *local, int n, size_t size)
{
    return n <= TP_MAX_INPUTS ? local : tp__arena(T, (size_t)n * size);
}
tp_buf *tp__alloc(tp_tape *T, size_t bytes, const char *what); /* NULL: the tape has failed */
void tp__rec_release(tp_rec *r);                               /* drops what a record saved */

/* tape.c */
void tp__recs_drop(tp_tape *T, int64_t from);     /* truncates the records to `from`      */
bool tp__note_read(tp_tape *T, tp_params *P);     /* this step reads P; false: out of memory */
tp_params *tp__set_read(const tp_tape *T, int i); /* the set of T->reads[i]; NULL: freed since */
/* False, with T failed, if parameters have changed since r read them. */
bool tp__versions_match(tp_tape *T, const tp_rec *r);

/* The innermost scope's path, or NULL. */
static inline const char *tp__scope_path(const tp_tape *T)
{
    return T->nscopes ? T->scopes[T->nscopes - 1].path : NULL;
}

/* run_kernel.c */
tp_code tp__run(tp_tape *T, const tp_call *c, tp_kernel k, bool backward, const char *name);

/* Runs a kernel of op. Bf16 views reach CPU kernels unconverted if op is TP_TAKES_BF16. */
tp_code tp__run_op(tp_tape *T, const tp_call *c, const tp_op *op, bool backward);
/* Copies to the host and waits; false, with the tape failed, on an error. */
bool tp__download(tp_tape *T, void *host, const void *from, size_t bytes);

/* finite.c: false if an element is not finite; T has failed then */
bool tp__check_results(tp_tape *T, const char *name, int nx, const tp_view *x, int ny,
                       const tp_view *y);
bool tp__check_gradients(tp_tape *T, const tp_rec *r, const tp_view *dy, const tp_view *dx);

/* capture.c: notes that a slot's tensor was replaced; NULL: an empty slot. False: out of memory. */
bool tp__carry_note(tp_tape *T, const tp_node *old, tp_node *now);

/* dtypes.c: false, with the op's rule failed, unless the op takes each input's dtype; TP_ANY inputs
 * must share one, except for floats */
bool tp__check_taken(tp_infer *q, const tp_op *op);
/* The same unless floating inputs share a dtype; parameters of TP_MIXES ops and `exact` inputs may
 * be f32 beside bf16 data that come first. x: q's inputs. *real: the dtype in which kernels
 * compute; TP_NDTYPES without floating input. */
bool tp__check_dtypes(tp_infer *q, const tp_op *op, tp_node *const *x, tp_dtype *real);

/* apply.c */
bool tp__push_rec(tp_tape *T, tp_rec *r);

/* backward.c */
bool tp__walk(tp_tape *T, int64_t from, int64_t to); /* records from-1 down to `to` */
/* Adds buffer g (of n's size and dtype) to n's gradient; takes over g's reference. The first
 * becomes the gradient; parameters copy buffers that have other owners. */
bool tp__add_grad(tp_tape *T, tp_node *n, tp_buf *g);

/* transient.c: marks a result whose record can rerun, with inputs live or saved */
void tp__mark_transient(tp_tape *T, tp_node *n);
/* Recomputes the record's transient inputs in the mask; false: T has failed. */
bool tp__restore(tp_tape *T, tp_rec *r, uint32_t inputs);

#endif
