/* model_tree.h - the layers of a model as a tree, found by running it once on a dry device: modules
 * by the paths of their parameters, and the ops that multiply. */
#ifndef MODEL_TREE_H
#define MODEL_TREE_H

#include <tapegrad/tapegrad.h>

/* What a tree is built of. */
typedef struct tree_source {
    const char *name;
    void *env;                                /* passed to the functions                     */
    int runs;                                 /* the last one is seen: 2 with a cache        */
    void (*declare)(void *env, tp_params *P); /* declares the model                          */
    tp_shape (*run)(void *env, tp_tape *T);   /* computes one sample; returns its shape      */
    void (*close)(void *env, tp_tape *T);     /* frees the results of both, or NULL          */
} tree_source;

/* A module, or an op of a module that also has other parts. Missing nodes have the index -1. */
typedef struct layer {
    char name[64];   /* "proj_query"; an op's is "(ls_attention)"                              */
    const char *op;  /* the op that ran in it, else "tied" or "buffer"; NULL: it has parts     */
    bool ran;        /* an op ran in it or below it                                            */
    tp_shape output; /* if it ran: the shape of its largest op, or of the last if it has parts */
    int64_t params;  /* elements, including all nodes below it                                 */
    double macs;     /* for one sample, including all nodes below it                           */
    int parent, child, next;
    tp_shape largest; /* while the tree is built: output of the op with the most multiply-adds */
    double most;
} layer;

typedef struct model_tree {
    layer *at; /* at[0] is the model; a node comes before its next sibling */
    int n;
    size_t room;
    tp_shape input;
    int64_t buffers; /* elements */
    int64_t frozen;  /* elements of parameters that are not trained */
} model_tree;

/* Builds the tree. False with the reason in why; free in either case. */
bool model_tree_build(model_tree *t, const tree_source *s, char *why, size_t size);
void model_tree_free(model_tree *t);

/* True if the subtrees are equal apart from the names of a and b. */
bool model_tree_equal(const model_tree *t, int a, int b);

#endif
