/* model_tree.h - the layers of a model as a tree, found by running it once on a device that
 * computes nothing: modules by the paths of their parameters, and the ops that multiply. */
#ifndef MODEL_TREE_H
#define MODEL_TREE_H

#include <tapegrad/model.h>

/* A module, or an op of one that has other parts as well. Indices are -1 where there is none. */
typedef struct layer {
    char name[64];   /* "proj_query"; an op's own: "(ls_attention)"                            */
    const char *op;  /* that has run in it, or "tied", "buffer" where none has; NULL: see parts */
    bool ran;        /* in it or below                                                          */
    tp_shape output; /* if it ran: of its largest op, or where it has parts of the last one     */
    int64_t params;  /* elements, with all below it                                             */
    double macs;     /* of one sample, with all below it                                        */
    int parent, child, next;
    tp_shape largest; /* while the tree is built: of the op with the most multiply-adds */
    double most;
} layer;

typedef struct model_tree {
    layer *at; /* at[0] is the model; of a node's children each comes before its next */
    int n, room;
    tp_shape input;
    int64_t buffers; /* elements */
} model_tree;

/* The whole tree of one sample: an image, or a segment as long as the cache, after a full one.
 * False with the reason in why; free in either case. */
bool model_tree_build(model_tree *t, const tp_model_cfg *c, const char *name, char *why,
                      size_t size);
void model_tree_free(model_tree *t);

/* Are both alike but for their own names? */
bool model_tree_equal(const model_tree *t, int a, int b);

#endif
