/* detector.h - a detector described by one constant, and all detectors by name (detection library).
 *
 * Each detector is described by a constant tp_detector_kind next to its code. Programs, tools and
 * benchmarks choose a detector and its backbone by one name and depend on nothing else. Adding a
 * detector: docs/adding-a-model.md. */
#ifndef TAPEGRAD_DETECTION_DETECTOR_H
#define TAPEGRAD_DETECTION_DETECTOR_H

#include <tapegrad/detection/anchors.h>
#include <tapegrad/detection/objects.h>
#include <tapegrad/detection/pyramid.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a detector ---- */

/* The members that all configurations share. The anchors and their matcher are those of RetinaNet,
 * or of Mask R-CNN's proposals. Detections with scores up to `score` are dropped, and `most` per
 * image are kept. */
typedef struct tp_detector_parts {
    tp_backbone_cfg *backbone;
    const tp_anchor_cfg *anchors;
    const tp_matcher *matcher;
    int64_t classes;
    double *score;
    int64_t *most;
} tp_detector_parts;

/* Published figures of a detector on a backbone: millions of parameters, and billions of
 * multiply-adds for one image of 800 x 1333; 0: none. */
typedef struct tp_detector_figures {
    const char *backbone; /* the last row has none */
    double params, macs;
} tp_detector_figures;

/* A detector. cfg points to its own configuration (a tp_retinanet_cfg), m to its module (a
 * tp_retinanet). */
typedef struct tp_detector_kind {
    const char *name;      /* presets begin with it and "-": "retinanet" */
    const char *title;     /* its name in lists: "RetinaNet" */
    size_t cfg_size, size; /* bytes; cfg_size is at most TP_DETECTOR_CFG_BYTES */
    bool masks;            /* predicts masks, learnt from objects' outlines */
    bool relus;            /* papers' tables count the ReLUs of its heads */
    /* of the loss, by detectron2's names; ends with NULL, after at most TP_DETECTION_LOSSES */
    const char *const *terms;
    const tp_detector_figures *figures;

    /* The published configuration. mini: the backbone is a small one, and everything is smaller,
     * for images of about 128 pixels. */
    void (*preset)(void *cfg, const tp_backbone_cfg *backbone, int64_t classes,
                   tp_detection_profile profile, bool mini);
    /* True if cfg describes a possible detector; else why receives a sentence that says what is
     * wrong. */
    bool (*check)(const void *cfg, char *why, size_t size);
    tp_detector_parts (*parts)(void *cfg);
    const tp_model_member *members; /* for tp_detector_change, besides the backbone's */
    void (*fit)(void *cfg);         /* sets what depends on them; NULL: nothing does */

    /* Declares the parameters. An impossible cfg fails P. */
    void (*init)(tp_params *P, void *m, const char *name, const void *cfg);
    tp_backbone *(*backbone)(void *m);
    /* As tp_detector_losses and tp_detector_detect. */
    tp_detection_losses (*losses)(tp_tape *T, void *m, const tp_detection_in *in);
    bool (*detect)(tp_tape *T, const void *m, const tp_detection_in *in, tp_detected *out);
    /* Runs the products of detection in images [B,H,W,3], except masks; proposals: the largest
     * possible number. */
    void (*forward)(tp_tape *T, const void *m, tp_tensor images);
} tp_detector_kind;

TP_API const tp_detector_kind *tp_detector_kind_at(int i); /* NULL past the last */
/* The detector of a preset; NULL: there is none. */
TP_API const tp_detector_kind *tp_detector_kind_of(const char *name);

/* ---- presets ---- */

/* A preset: a detector on a backbone (tp_backbone_known), with its figures. */
typedef struct tp_detector_row {
    char name[80];
    const tp_detector_kind *kind;
    double params, macs;
} tp_detector_row;
TP_API bool tp_detector_at(int i, tp_detector_row *row); /* false past the last */
/* The name of row i, until the same thread calls this again; NULL past the last. */
TP_API const char *tp_detector_known(int i);

#define TP_DETECTOR_CFG_BYTES 4096
typedef struct tp_detector_cfg {
    const tp_detector_kind *kind; /* NULL: none */
    union {
        double real; /* these three align the bytes for any configuration */
        int64_t whole;
        void *pointer;
        unsigned char bytes[TP_DETECTOR_CFG_BYTES];
    } at; /* the detector's own configuration; read as a tp_model_cfg's */
} tp_detector_cfg;

/* Sets *c to the published configuration of "DETECTOR-BACKBONE" (pyramid.h). With a backbone
 * "...-mini" everything is smaller, for images of about 128 pixels: the pyramid has 64 channels,
 * anchors have half of the published sides. False with the reason in why. */
TP_API bool tp_detector_preset(tp_detector_cfg *c, const char *name, int64_t classes,
                               tp_detection_profile profile, char *why, size_t size);
/* True if c describes a possible detector; else why receives a sentence that says what is wrong. */
TP_API bool tp_detector_check(const tp_detector_cfg *c, char *why, size_t size);
#define TP_BACKBONE_PREFIX "backbone."
/* Changes members by name, as tp_model_change; "backbone." precedes those of the backbone's model:
 * "convs=2,backbone.layers=1,1,2,1". False, with a sentence in why, if c stays as it was. */
TP_API bool tp_detector_change(tp_detector_cfg *c, const char *text,
                               const char *const set_by[TP_COMMON_KINDS], char *why, size_t size);
TP_API tp_detector_parts tp_detector_parts_of(tp_detector_cfg *c);
TP_API bool tp_detector_has_masks(const tp_detector_cfg *c);
/* The mean number of anchors that match an object, in a batch of images padded to that size. NaN:
 * no objects, or out of memory. */
TP_API double tp_detector_matched(const tp_detector_cfg *c, int64_t height, int64_t width,
                                  const tp_objects *objects, int64_t images);
/* Drops detections with scores up to `score`, and keeps `most` of an image. */
TP_API void tp_detector_limit(tp_detector_cfg *c, double score, int64_t most);

/* ---- a detector in use ---- */

typedef struct tp_detector {
    const tp_detector_kind *kind;
    void *module; /* such as a tp_retinanet; lives as long as the parameters */
} tp_detector;

/* Declares the parameters, with detectron2's names. An impossible c fails P. */
TP_API void tp_detector_init(tp_params *P, tp_detector *m, const char *name,
                             const tp_detector_cfg *c);
/* Loads the weights of a classifier into the backbone (tp_backbone_load). False with the reason in
 * why; nothing has changed then, unless a read failed. */
TP_API TP_CHECKED bool tp_detector_load_backbone(tp_params *P, const tp_detector *m,
                                                 const char *path, char *why, size_t size);
/* Draws the random features of a Performer backbone (tp_model.redraw); other backbones have none.
 * draw: the number of the drawing. False: see tp_params_why. */
TP_API bool tp_detector_redraw(tp_params *P, const tp_detector *m, uint64_t seed, uint64_t draw);
/* Prepares the backbone for inference (tp_backbone_fuse), after its weights were loaded. False: see
 * tp_params_why. Synchronises. */
TP_API bool tp_detector_fuse(tp_params *P, tp_detector *m);
/* The losses of a batch in training. RetinaNet's moving normaliser is a buffer of P, so checkpoints
 * store it. */
TP_API tp_detection_losses tp_detector_losses(tp_tape *T, tp_detector *m,
                                              const tp_detection_in *in);
/* The detections in each image of a batch, out [B], each to be freed with tp_detected_free. Nothing
 * is recorded. False: see the tape's error; nothing has to be freed. Synchronises. */
TP_API bool tp_detector_detect(tp_tape *T, const tp_detector *m, const tp_detection_in *in,
                               tp_detected *out);

/* ---- costs ---- */

enum { TP_DETECTOR_BACKBONE, TP_DETECTOR_PYRAMID, TP_DETECTOR_HEADS, TP_DETECTOR_PARTS };

/* Assumptions of a plan. */
typedef struct tp_detector_plan_opts {
    const char *device; /* NULL: "cpu" */
    int threads;        /* 0: the device's default */
    tp_dtype dtype;     /* of computation */
    int64_t size[2];    /* height and width of the images, multiples of 32 */
    int64_t batch;      /* images of a training step; 0: no memory is planned */
} tp_detector_plan_opts;

/* The costs of a detector, from a dry device. macs: multiply-adds of the products and convolutions
 * for one image, without those of masks, which depends on the detections. paper: the same as
 * counted in the tables of ViL's paper: with biases of pyramid and heads, with the ReLUs of
 * RetinaNet's towers, and backbones by tp_backbone_kind.paper. */
typedef struct tp_detector_plan {
    double params[TP_DETECTOR_PARTS], macs[TP_DETECTOR_PARTS], paper[TP_DETECTOR_PARTS];
    int64_t detect_bytes, train_bytes; /* peaks: detection in one image, a step with AdamW */
} tp_detector_plan;
/* False with the reason in why. */
TP_API bool tp_detector_planned(tp_detector_plan *plan, const tp_detector_cfg *c,
                                const tp_detector_plan_opts *opts, char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
