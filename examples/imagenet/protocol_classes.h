/* protocol_classes.h - the classes of ImageNet-1K that correspond to a model's classes. */
#ifndef PROTOCOL_CLASSES_H
#define PROTOCOL_CLASSES_H

#include "names/class_names.h"

typedef struct protocol_classes {
    int64_t n;          /* the model's classes                                   */
    class_words *words; /* [n]                                                   */
    int32_t *imagenet;  /* [n]: the number of class k in ImageNet-1K, or -1      */
    int32_t of[1000];   /* the model's class for each of ImageNet's, or -1       */
    int64_t known;      /* of ImageNet's classes, how many the model has         */
} protocol_classes;

/* Fills c; false: out of memory. Free in either case. */
bool protocol_classes_of(protocol_classes *c, const class_names *names, int64_t n);
void protocol_classes_free(protocol_classes *c);

/* The model has all of ImageNet's classes and no others. */
bool protocol_classes_whole(const protocol_classes *c);

/* The model's class after which a folder is named, by wnid or name; -1: none. */
int32_t protocol_class_named(const protocol_classes *c, const char *folder);

#endif
