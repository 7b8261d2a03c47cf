/* loader.h - what the files of the object loader share. */
#ifndef TP_OBJECT_LOADER_H
#define TP_OBJECT_LOADER_H

#include <tapegrad/detection/loader.h>

/* The objects of one image, in memory that is reused. */
typedef struct tp_object_room {
    tp_objects objects;
    void *memory;
    size_t bytes;
} tp_object_room;

/* Can the object be learned from, apart from its place in a view? */
bool tp__object_counts(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_object *a);
/* Fills the objects of an image in a view. False: out of memory. */
bool tp__objects_fill(const tp_object_loader_opts *o, const tp_coco *X, int64_t image,
                      const tp_object_view *v, tp_object_room *room);

#endif
