/* model_views.h - the views of tp-models: the list of models and detectors, the parameters of one,
 * its layers, and the rows of the papers. */
#ifndef MODEL_VIEWS_H
#define MODEL_VIEWS_H

#include <jansson.h>
#include <stdbool.h>
#include <tapegrad/detection/detector.h>

#include "model_tree.h"
#include "print_text.h"
#include "reports/papers.h"

/* The library's own counts for a model. */
typedef struct model_facts {
    tp_model_cfg cfg;
    char input[64]; /* "224 x 224" */
    int64_t params;
    double flops;                /* of one forward pass, by fvcore's rule                       */
    double beyond;               /* multiply-adds of the official code with keys beyond the edges */
    double kept, kept_by_blocks; /* bytes saved by a training step: all, and recomputing blocks */
    double kept_bf16;            /* all, in mixed precision                                     */
} model_facts;

/* The model of any of its names, with the changes of --set unless that is NULL. False with the
 * reason in why. */
bool model_chosen(tp_model_cfg *c, const char *name, const char *set, char *why, size_t size);

/* The facts of such a model. False with the reason in why. */
bool model_facts_of(model_facts *f, const char *name, const char *set, tp_device *D, char *why,
                    size_t size);

/* Each prints and returns the exit status. */
typedef struct list_opts {
    const char *prefix, *filter; /* NULL: any; filter: in the name, another name or the family */
    bool memory;                 /* of detectors */
    bool json;
} list_opts;
int model_list(const list_opts *o);

int model_params(const char *name, const char *set);
int model_members(const char *name, const char *set);

/* The rows of the papers' tables that have all words of a text, as "ViL Table 2", with their
 * commands. */
int paper_rows(const char *text, bool json);

typedef struct summary_opts {
    const char *name, *set; /* set: NULL, or changes */
    int depth;              /* levels below the model             */
    bool fold, json;        /* fold: one line for equal neighbours */
} summary_opts;
int model_summary(const summary_opts *o);

/* The same for detectors: model_params and model_summary call these where a detector is meant, and
 * model_list always. detector_list prints rows, or adds them to json if that is wanted, and returns
 * how many; it sets *status to 1 where one cannot be described. after: other lines stand above. */
bool is_detector(const char *name);
bool detector_chosen(tp_detector_cfg *c, const char *name, const char *set, char *why, size_t size);
int detector_list(const list_opts *o, bool after, json_t *json, int *status);
int detector_params(const char *name, const char *set);
int detector_summary(const summary_opts *o);

/* Should a list with those options show a model of that name, other names (or NULL) and family? */
bool is_listed(const list_opts *o, const char *name, const char *also, const char *family);
/* Prints a figure of a paper in units, or - if it is 0. */
void print_paper(double x, double unit, int digits);
json_t *real_or_null(double x); /* null where x is 0 */
/* Prints the names and shapes of parameters and buffers, and how many parameters there are. */
void print_params(tp_params *P);
/* A tree below a node to that depth. */
json_t *layer_json(const model_tree *t, int node, int depth);

/* Prints and releases json; returns the exit status. */
int print_json(json_t *json);

/* A shape as a JSON list. */
json_t *shape_json(const tp_shape *s);

/* ---- tree_page.c: a tree of layers as a table ---- */

/* Prints the title and `depth` levels below the model; fold: one line for equal neighbours. False
 * after a message if memory is out. */
bool tree_page_print(const model_tree *t, const char *title, int depth, bool fold);

/* "44,294,448" and "110.9 G", in text, which is returned. */
const char *grouped_text(int64_t n, char *text, size_t size);
const char *scaled_text(double x, char *text, size_t size);

#endif
