/* loader.h - what the files of the object loader share. */
#ifndef TP_OBJECT_LOADER_H
#define TP_OBJECT_LOADER_H

#include <tapegrad/detection/loader.h>

/* The objects of one image, in memory that is reused. */
typedef struct tp_object_room {
    tp_objects objects;
    int64_t
        unseen; /* objects that are not in the view, or whose runs have another size than the image */
    void *memory;
    size_t bytes;
    tp_rle *mask; /* [masks] */
    int64_t masks;
} tp_object_room;
void tp__object_room_free(tp_object_room *room);

/* Why an object cannot be learned from; TP_COCO_REASONS: it can. A box outside an image of unknown size shows only in a
 * view. */
tp_coco_reason tp__object_unfit(const tp_object_loader_opts *o, const tp_coco *X,
                                const tp_coco_object *a);
/* Are some of the polygons of an object that is learned from unusable? */
bool tp__object_is_cut(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_object *a);
/* Fills the objects of an image in a view. False: out of memory. */
bool tp__objects_fill(const tp_object_loader_opts *o, const tp_coco *X, int64_t image,
                      const tp_object_view *v, tp_object_room *room);

#endif
