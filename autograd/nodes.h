/* nodes.h - nodes: the tensors of tapes, and parameters.
 *
 * Stale handles are always recognisable: node->gen differs from the handle's, or node->live is
 * false. To that end, nodes, tapes and parameter sets live in memory that the device recycles and
 * keeps until it closes (tensor/left.h). Buffers are reference counted: a live node owns one
 * reference, a record one for each input or output that it saved. */
#ifndef TP_NODES_H
#define TP_NODES_H

#include <tapegrad/tensor.h>

#include "tensor/backend.h"

#define TP_NO_REC (-1)

/* A tape's nodes have gens from id * TP_TAPE_GENS on: enough that two tapes never share one. */
#define TP_TAPE_GENS (UINT64_C(1) << 40)

typedef struct tp_node tp_node;
struct tp_node {
    uint64_t gen;
    tp_tape *tape;     /* owner; NULL for a parameter            */
    tp_params *params; /* owner of a parameter, else NULL        */
    tp_buf *buf;       /* for a parameter, the block of values   */
    tp_view view;
    tp_buf *grad_buf; /* gradient; NULL: none yet */
    tp_view grad;
    int64_t rec; /* record that produced it, or TP_NO_REC */
    const char *died_in;
    bool live, kept, wants_grad, input, carried;
    /* Derived from a result of tp_grad, which is not differentiated: where tp_grad was called */
    const char *grad_file; /* NULL: none */
    int grad_line;
    bool transient; /* records save its op's inputs instead (transient.c) */
    bool fresh;     /* the running backward added to the gradient, not yet passed on */
    /* parameters only */
    bool frozen, buffer;
    int index, pending; /* pending: uses not yet reached by the running backward (for hooks) */
    uint32_t changes;   /* by tp_param_set, of a buffer; all others count in params->version */
};

typedef struct tp_nodes { /* a growing array of node pointers */
    tp_node **at;
    size_t n, cap;
} tp_nodes;

#define TP_FAILED ((tp_tensor){ NULL, 1 })

static inline tp_tensor tp__handle(const tp_node *n)
{
    return n ? (tp_tensor){ (tp_node *)(uintptr_t)n, n->gen } : TP_FAILED;
}

/* tape.c: a number is the node tp__number_node with the bits of a double in gen. */
extern tp_node tp__number_node;
static inline bool tp__is_number(tp_tensor x)
{
    return x.node == &tp__number_node;
}
double tp__number_of(tp_tensor x);

/* Notes that n is derived from the tp_grad result made there. */
static inline void tp__mark_gradient(tp_node *n, const char *file, int line)
{
    n->grad_file = file ? file : "an unknown place";
    n->grad_line = line;
}

/* nodes.c */
tp_node *tp__node_take(tp_tape *T); /* live, in no scope; NULL: tape failed         */
void tp__chunks_give(tp_tape *T);   /* T's node memory, when T is freed */
tp_node *tp__node_new(tp_tape *T);  /* live, in the innermost scope; NULL: tape failed */
bool tp__nodes_push(tp_nodes *a, tp_node *n);
void tp__release(tp_node *n, const char *where); /* where: the scope left, or NULL */
/* Makes g, of n's size and dtype, n's gradient; takes over g's reference. NULL: none. */
void tp__set_grad(tp_node *n, tp_buf *g);
tp_tensor tp__wrap(tp_tape *T, tp_buf *buf, const tp_view *v); /* takes over a reference of buf */

/* tape.c */
/* The node of a handle, or NULL with the tape failed; `what` names it in the message. */
tp_node *tp__node(tp_tape *T, tp_tensor x, const char *what);
/* The same for a tensor to be read; the first such call creates parameters' values. */
tp_node *tp__node_with_values(tp_tape *T, tp_tensor x, const char *what);

#endif
