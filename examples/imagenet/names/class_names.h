/* class_names.h - what a model's classes are called: in its checkpoint (metadata "class_names", one name
 * per line: the folders of the training images), and as words where people read them. */
#ifndef CLASS_NAMES_H
#define CLASS_NAMES_H

#include <tapegrad/image_set.h>
#include <tapegrad/options.h>

#include "name_lists.h"

/* The names of the folders, for the caller to free; NULL if out of memory. */
char *class_names_of(const tp_image_set *X);
void class_names_write(tp_writer *W, const tp_image_set *X);

/* Copies the name of class i from that text to buf, truncated to its size; "class i" if the text is
 * NULL or too short. Returns buf. */
const char *class_name(const char *text, int64_t i, char *buf, size_t size);

/* True if the text names the classes of X in order; else why names the first that differs. */
bool class_names_agree(const char *text, const tp_image_set *X, char *why, size_t size);

/* ---- as words ---- */

/* Names as words, from a text or from a published list. */
typedef struct class_names {
    char *text;            /* one name per line, in place of a list; NULL: none */
    const name_list *list; /* NULL: none                                        */
} class_names;

/* A class as it is shown. A name of a checkpoint need not be UTF-8: print it through plain_text.h. */
typedef struct class_words {
    char name[256], wnid[WNID_SIZE]; /* wnid: "" if the class has none */
} class_words;

/* The names of a model with `classes` classes: those that `given` asks for (--names: the id of a published
 * list, or a file with a name or wnid per line), or else those in `stored` (of its checkpoint; may be
 * NULL), or else the only published list of that length. False with the reason in why; free in either
 * case. */
bool class_names_find(class_names *n, const char *given, const char *stored, int64_t classes,
                      char *why, size_t size);
void class_names_free(class_names *n);

/* Class i: wnids and folders of Food-101 become words, other names stay as they are; "class i" if there
 * are no names. */
class_words class_words_at(const class_names *n, int64_t i);

/* Finds the classes of X among the `classes` of the model, by wnid or name, or if all are numbers ("7", "class 7"), by
 * these: label[k], of room for as many as X has, is the model's class for class k of X. If none is found, but X has as
 * many as the model, they are taken in their order, which `warning` says; NULL: that is a failure. False with the reason
 * in why if one is not found, or without memory. */
bool class_labels(const class_names *n, int64_t classes, const tp_image_set *X, int32_t *label,
                  char *warning, size_t warning_size, char *why, size_t size);

/* The flag that chooses them; names is a member of the settings type S. */
/* clang-format off */
#define OPTION_NAMES(S) \
    TP_STRING("names", S, names, "LIST", 0, \
              "What the classes are called: imagenet, imagenet21k, cifar10, cifar100, food101, " \
              "ip102, or a file with a name or wnid per line. If not given: the names in the " \
              "checkpoint; without any, 1000 classes are ImageNet's and 21841 ImageNet-21K's.")
/* clang-format on */

#endif
