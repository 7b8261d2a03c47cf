/* scenes.h - drawn images with objects: simple shapes with boxes and outlines, for detectors (data
 * library). */
#ifndef TAPEGRAD_SCENES_H
#define TAPEGRAD_SCENES_H

#include <tapegrad/coco.h>
#include <tapegrad/image.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Scene i of a part depends only on seed, size, least and most. Zero means the value in
 * brackets. */
typedef struct tp_scenes_opts {
    int64_t images;      /* scenes of the part [1000] */
    int64_t size;        /* longer side in pixels, from 32 to 4096 [128] */
    int64_t least, most; /* shapes in a scene, at most 64 [1, 6]; fewer if there is no room */
    uint64_t seed;
    tp_part part;
} tp_scenes_opts;

/* Discs, squares, triangles, crosses and stars of random colours, sizes and angles on a background
 * of a random colour with noise. A third of the scenes is square, a third wide and a third tall
 * (4:3). Shapes may cover each other; at least 60% of each stays visible. Its box, outline and area
 * are those of the whole shape. Immutable, so threads may share them. Never NULL: see
 * tp_scenes_why. o may be NULL. */
typedef struct tp_scenes tp_scenes;
TP_API tp_scenes *tp_scenes_new(const tp_scenes_opts *o);
TP_API void tp_scenes_free(tp_scenes *S);
TP_API bool tp_scenes_ok(const tp_scenes *S);
TP_API const char *tp_scenes_why(const tp_scenes *S);
/* The annotations: images "scene_000000.png" ... with ids from 1, five categories. They belong to
 * S. */
TP_API const tp_coco *tp_scenes_coco(const tp_scenes *S);
/* Draws scene i. False with the reason in p->why. */
TP_API bool tp_scenes_draw(const tp_scenes *S, int64_t i, tp_image *p);

#ifdef __cplusplus
}
#endif
#endif
