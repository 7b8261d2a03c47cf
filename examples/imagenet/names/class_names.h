/* class_names.h - names of a model's classes: as stored in its checkpoint (metadata "class_names",
 * one per line: the training images' folders), and as words for people. */
#ifndef CLASS_NAMES_H
#define CLASS_NAMES_H

#include <tapegrad/image_set.h>
#include <tapegrad/options.h>

#include "name_lists.h"

/* The folders' names, which the caller frees; NULL: out of memory. */
char *class_names_of(const tp_image_set *X);
void class_names_write(tp_writer *W, const tp_image_set *X);

/* Copies name i of that text to buf, truncated to size; "class i" if the text is NULL or too short.
 * Returns buf. */
const char *class_name(const char *text, int64_t i, char *buf, size_t size);

/* True if the text names X's classes in order; otherwise why names the first difference. */
bool class_names_agree(const char *text, const tp_image_set *X, char *why, size_t size);

/* ---- as words ---- */

/* Names as words, from a text or a published list. */
typedef struct class_names {
    char *text;            /* one name per line, instead of a list; NULL: none */
    const name_list *list; /* NULL: none */
} class_names;

/* A class as shown. Names of a checkpoint need not be UTF-8: print them through plain_text.h. */
typedef struct class_words {
    char name[256], wnid[WNID_SIZE]; /* wnid: "" if the class has none */
} class_words;

/* Finds names for `classes` classes: those `given` by --names (a published list's id, or a file
 * with a name or wnid per line), or else those `stored` in the checkpoint (may be NULL), or else
 * the only published list of that length. False with the reason in why; free in either case. */
bool class_names_find(class_names *n, const char *given, const char *stored, int64_t classes,
                      char *why, size_t size);
void class_names_free(class_names *n);

/* Class i: wnids and Food-101 folders become words, other names stay; "class i" without names. */
class_words class_words_at(const class_names *n, int64_t i);

/* Matches X's classes with the model's `classes` by wnid or name or, if all are numbers ("7",
 * "class 7"), by number: label[k], with room for X's classes, is the model's class for class k of
 * X. If none matches but X has as many as the model, takes them in order and explains in `warning`;
 * if that is NULL, fails. False with the reason in why if one is not found, or out of memory. */
bool class_labels(const class_names *n, int64_t classes, const tp_image_set *X, int32_t *label,
                  char *warning, size_t warning_size, char *why, size_t size);

/* The flag for names, for settings type S with member names. */
#define OPTION_NAMES(S)                                                                            \
    TP_STRING("names", S, names, "LIST", 0,                                                        \
              "What the classes are called: imagenet, imagenet21k, cifar10, cifar100, food101, "   \
              "ip102, or a file with a name or wnid per line. If not given: the names in the "     \
              "checkpoint; without any, 1000 classes are ImageNet's and 21841 ImageNet-21K's.")

#endif
