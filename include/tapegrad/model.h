/* model.h - a model described by one constant, and all models by name (models library).
 *
 * Each model is described by a constant tp_model next to its code. Programs, tools, benchmarks and
 * tests depend only on that: they choose a row of the table by name, change what all configurations
 * share (tp_common_cfg), and run the model as a tp_net:
 *
 *     tp_model_cfg c;
 *     if (!tp_model_preset(&c, "cvt-13", why, sizeof why)) ...
 *     tp_net *N = tp_net_new(P, "", &c);
 *     tp_tensor logits = tp_net_forward(T, N, NULL, images);
 *
 * Adding a model: docs/adding-a-model.md. */
#ifndef TAPEGRAD_MODEL_H
#define TAPEGRAD_MODEL_H

#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a training step recomputes in backward instead of storing. Gradients are identical. */
typedef enum tp_recompute {
    TP_RECOMPUTE_NONE,
    TP_RECOMPUTE_ATTENTION,
    TP_RECOMPUTE_BLOCK
} tp_recompute;

/* The cost of one forward pass of one sample, in training. */
typedef struct tp_cost {
    double macs; /* multiply-adds of the products and convolutions (tp_seen_macs) */
    /* further ones with keys beyond the edges of a map or text, which only official code
     * computes */
    double beyond;
    double paper;     /* multiply-adds as the model's paper counts them */
    double norm;      /* elements processed by LayerNorms */
    double batchnorm; /* elements processed by BatchNorms */
    double saved;     /* bytes kept for backward, in f32, with the new cache, without the weights */
} tp_cost;

typedef enum tp_model_input {
    TP_IMAGES, /* [B,H,W,3] -> logits [B,classes] */
    TP_TOKENS, /* ids [B,N] -> logits [B,N,V]; a state, if any, holds the caches */
    /* ids [B,n], of pairs [B,2,n] -> logits [B,classes]; 0 (RoBERTa: 1) is padding, which the model
     * masks itself */
    TP_DOCUMENTS
} tp_model_input;

/* The part that all configurations share, so that programs can change it for any model. For a
 * member that a model does not have, get returns 0 and set ignores it. */
typedef struct tp_common_cfg {
    int64_t image[2]; /* TP_IMAGES: height and width */
    int64_t cache;    /* TP_TOKENS: rows carried from one segment to the next */
    int64_t length;   /* most tokens of a document, or of a text if nothing is carried */
    int64_t vocab;    /* TP_DOCUMENTS: ids are below it */
    bool pair;        /* TP_DOCUMENTS: a sample is two documents */
    int64_t outputs;  /* number of classes, or size of the vocabulary */
    double dropout;   /* TP_IMAGES: of embeddings and branches */
    double drop_path; /* TP_IMAGES: stochastic depth of the last block */
    tp_recompute recompute;
} tp_common_cfg;

/* ---- the members of a configuration ---- */

typedef enum tp_member_kind {
    TP_MEMBER_END,    /* the last row */
    TP_MEMBER_INT64,  /* int64_t */
    TP_MEMBER_INT,    /* int */
    TP_MEMBER_REAL,   /* double; its text reads back exactly */
    TP_MEMBER_RATE,   /* double from 0 to below 1: of dropout */
    TP_MEMBER_FLAG,   /* bool as 0 or 1 */
    TP_MEMBER_NOT,    /* bool as its opposite */
    TP_MEMBER_WORD,   /* enum that counts from 0, as one of `words` */
    TP_MEMBER_CHOICE, /* bool as words[0] (false) or words[1] */
    TP_MEMBER_INTS,   /* int [count] as "1,2,3" */
    TP_MEMBER_INT64S, /* int64_t [count] */
    TP_MEMBER_REALS,  /* double [count]; at most 64 */
    TP_MEMBER_SIDES,  /* int64_t [2], height and width of an image, as "32,48" */
    TP_MEMBER_TEXT,   /* any part of the configuration: print and parse are the model's */
    TP_MEMBER_HIDDEN  /* not in metadata: the row only has the `common` member */
} tp_member_kind;

/* The member of tp_common_cfg that a member of a configuration holds. */
typedef enum tp_member_common {
    TP_COMMON_NONE, /* none: the model's own */
    TP_COMMON_IMAGE,
    TP_COMMON_CACHE,
    TP_COMMON_LENGTH,
    TP_COMMON_VOCAB,
    TP_COMMON_PAIR,
    TP_COMMON_OUTPUTS,
    TP_COMMON_DROPOUT,
    TP_COMMON_DROP_PATH,
    TP_COMMON_RECOMPUTE,
    TP_COMMON_KINDS
} tp_member_common;

/* One member: how checkpoints store it, what its values are, and whether all models share it. */
typedef struct tp_model_member {
    const char *key; /* in metadata */
    tp_member_kind kind;
    size_t at; /* offsetof the configuration */
    tp_member_common common;
    const char *const *words; /* ends with NULL */
    int count;                /* entries of a list */
    size_t length;            /* offsetof an int, the used entries of a list; 0: all */
    int64_t least, most;      /* of a whole number, of each entry of a list; both 0: any */
    const char *older;        /* a key that earlier versions wrote; may be NULL */
    int64_t otherwise;        /* the value in files without the key; 0: the key is needed */
    /* for members that were added later: a scalar or word that is written unless it is zero, which
     * is its value in files without the key */
    bool optional;
    void (*print)(const void *cfg, char *buf, size_t size);
    bool (*parse)(void *cfg, const char *text, char *why, size_t size);
} tp_model_member;

/* ---- a model as a backbone of detectors ---- */

enum { TP_BACKBONE_STAGES = 4 };

/* The rules of detectron2, which the rows for ViL in the papers' tables follow, or of mmdetection
 * 2.11. */
typedef enum tp_detection_profile { TP_DETECTRON2, TP_MMDETECTION } tp_detection_profile;

/* The source of a backbone's parameter: a tensor of a classifier's file, and a function that turns
 * its values x into the parameter's, y, of shape `here`. Without make the parameter keeps its
 * initial value. */
typedef struct tp_backbone_source {
    const tp_file_tensor *tensor; /* may be NULL without make */
    void (*make)(const struct tp_backbone_source *s, const tp_shape *here, const double *x,
                 double *y);
    int64_t first; /* for make */
} tp_backbone_source;

/* What an image classifier needs to be a backbone, which has no classes and gives the maps of four
 * stages. */
typedef struct tp_backbone_kind {
    const char *const *names; /* in lists; ends with NULL */
    /* The configuration of one of the names, or of another formed in the same way; its classes do
     * not matter. frozen, 0 on entry, receives the number of frozen stages. False: unknown name. */
    bool (*preset)(void *cfg, int *frozen, const char *name, tp_detection_profile profile);
    /* True if cfg without classes has four maps, which halve from a quarter of the image on, with
     * these channels; else why receives a sentence that says what is wrong. */
    bool (*maps)(const void *cfg, int64_t channels[TP_BACKBONE_STAGES], char *why, size_t size);
    /* images [B,H,W,3], H and W multiples of 32 -> the maps [B,h,w,C]. */
    void (*features)(tp_tape *T, const void *m, tp_tensor images,
                     tp_tensor map[TP_BACKBONE_STAGES]);
    /* Multiply-adds for an image of that height and width as the papers' tables of detectors count.
     * NULL: those of the products and convolutions. */
    double (*paper)(const void *cfg, const int64_t image[2]);
    /* Freezes the stem and stages - 1 stages after it; stages is at least 1. NULL: nothing can be
     * frozen. */
    void (*freeze)(tp_params *P, const void *m, int stages);
    /* Multiplies frozen norms into the weights of the convolutions before them, for inference:
     * forward passes with m then skip the norms. P, in which m is declared, still describes the
     * same function, within rounding, for other modules and in files: each norm becomes the
     * identity (weight 1, mean 0, variance 1 - eps) plus a shift, its bias. Not for training: the
     * weights' gradients change, norms have none. Earlier averages (tp_ema) are void. Weights that
     * are loaded or set later must come with all values of their norms and need another call;
     * otherwise a further call changes nothing. A convolution that shares its weights with another
     * (tp_tie) must not be fused, since both would be scaled. A net without frozen norms is
     * unchanged. False: see tp_params_why; P has failed and may have changed in part. Synchronises.
     * NULL: there is nothing to fuse. */
    bool (*fuse)(tp_params *P, void *m);

    /* Loading a classifier's weights; all may be NULL. classifier: changes cfg so that the
     * classifier has the names of files. source: of a parameter that has another shape in F, or is
     * missing there; name: without the backbone's path. False: there is none; s->tensor is then one
     * of another shape, or NULL. spare: ends of the names of tensors that only classifiers have;
     * ends with NULL. */
    void (*classifier)(void *cfg);
    bool (*source)(tp_backbone_source *s, const tp_param_info *it, const char *name,
                   const tp_file *F);
    const char *const *spare;
} tp_backbone_kind;

/* ---- a model ---- */

/* A published model or one of the library's small ones. */
typedef struct tp_model_row {
    const char *name;     /* "cvt-13-224" */
    const char *family;   /* its name in lists: "CvT*-LS" */
    const char *also;     /* other names, separated by blanks: "cvt-13 CvT-13"; may be NULL */
    double params, flops; /* as printed in the paper; 0: not given */
    double norm_cost;     /* FLOPs per LayerNorm element, as counted in the paper */
    const void *cfg;      /* the model's own configuration; NULL: tp_model.preset knows it */
} tp_model_row;

/* A part of a model, for separate checks (tp_part_init). The model's header documents, beside the
 * part's module, cfg, its configuration, and `with`, what a forward pass takes or gives besides
 * x. */
typedef struct tp_model_part {
    const char *name; /* "attn"; the last row has none */
    size_t size;      /* of its module, in bytes */
    void (*init)(tp_params *P, void *m, const char *name, const void *cfg);
    tp_tensor (*forward)(tp_tape *T, const void *m, void *with, tp_tensor x);
} tp_model_part;

/* A part of the names in a publisher's files and its counterpart in ours. NULL: drops the tensors
 * whose last part it is. */
typedef struct tp_spelling {
    const char *theirs, *ours;
} tp_spelling;

/* The names of a publisher that uses our names for other weights. Its spellings apply only to files
 * that have a tensor called `sign`, and before the other spellings. */
typedef struct tp_dialect {
    const char *sign;
    const tp_spelling *spellings;
} tp_dialect;

/* A model. cfg points to its own configuration (a tp_cvt_cfg), m to its module (a tp_cvt), and
 * state to what it carries between calls (a tp_ls_lm_state). Members marked "may be NULL" are
 * optional. */
typedef struct tp_model {
    const char *name; /* in checkpoints, metadata "model" */
    tp_model_input input;
    /* bytes; cfg_size is at most TP_MODEL_CFG_BYTES, and state_size is 0 if nothing is carried */
    size_t cfg_size, size, state_size;
    /* TP_TOKENS: the paper's word for the carried rows, "cache"; may be NULL */
    const char *carried;

    const tp_model_row *presets; /* the last row is { 0 } */
    bool sided; /* names of rows with a configuration may end in the side of images: "deit-b-384" */
    /* The configuration of a name that follows a rule: of rows without a configuration and of
     * others formed in the same way. False with the reason in why. NULL: all rows have one. */
    bool (*preset)(void *cfg, const char *name, char *why, size_t size);
    /* Everything that a checkpoint stores, in its order, and the members that all models share. */
    const tp_model_member *members;
    /* True if cfg describes a possible model: each member is in its range, and they fit together.
     * Else why receives a sentence that says what is wrong. */
    bool (*check)(const void *cfg, char *why, size_t size);

    /* Declares the parameters. An impossible cfg fails P. m is zeroed memory. */
    void (*init)(tp_params *P, void *m, const char *name, const void *cfg);
    tp_tensor (*forward)(tp_tape *T, const void *m, void *state, tp_tensor x);
    /* For models with a second head that learns from a teacher, else NULL: returns the logits of
     * the class head, *dist receives those of the second one. forward gives their mean, in training
     * too. */
    tp_tensor (*heads)(tp_tape *T, const void *m, tp_tensor x, tp_tensor *dist);
    /* Clear, save and load the state; a zeroed state starts new streams. All three may be NULL. */
    void (*state_clear)(tp_tape *T, void *state);
    bool (*state_write)(tp_tape *T, const void *m, const void *state, tp_writer *W);
    bool (*state_read)(tp_tape *T, const void *m, void *state, tp_file *F);

    /* True if both configurations use the same weights, regardless of input size and number of
     * outputs. NULL: compares the parameters that they declare. */
    bool (*same)(const void *a, const void *b);
    /* Loads weights of the same model for another input size. NULL: the weights do not depend on
     * it. resizes: what is resized, in words. all_resized: false if some weights keep their initial
     * values instead; NULL: none do. */
    bool (*load)(tp_params *P, const void *m, tp_file *F);
    const char *resizes;
    bool (*all_resized)(const void *cfg);
    /* True if load accepts a tensor of the shape `there` for that parameter. NULL: load is NULL. */
    bool (*resizes_to)(const char *name, const tp_shape *here, const tp_shape *there);

    /* Publishers' files. head: the weight with a row for each output. adapt: divides or transposes
     * tensors of their layout (tp_file_split), before the spellings; false: F has failed.
     * spellings: applied in order, each once to a name; the last row is { 0 }. All three may be
     * NULL. may_lack: true for a parameter that files may lack, because no forward pass reads it or
     * fill sets it; files may have it where this model does not. NULL: none. fill: gives what F
     * lacks its value, after everything else has been read. NULL: initial values stay. */
    const char *head;
    bool (*adapt)(tp_file *F);
    const tp_spelling *spellings;
    tp_dialect dialect; /* { 0 }: none */
    bool (*may_lack)(const char *name);
    bool (*fill)(tp_params *P, const void *m, const tp_file *F);

    /* Where the paper counts differently: changes cost->paper, initially cost->macs, and
     * cost->norm. tokens: as for tp_model_cost, not 0 for TP_TOKENS. NULL: it does not. */
    void (*paper)(const void *cfg, int64_t tokens, tp_cost *cost);

    void (*set_shift)(void *m, int shift); /* may be NULL */
    /* Redraws random features; draw: the number of the drawing. False: see tp_params_why. May be
     * NULL. */
    bool (*redraw)(tp_params *P, const void *m, uint64_t seed, uint64_t draw);

    const tp_backbone_kind *backbone; /* NULL: detectors cannot use the model */
    const tp_model_part *parts;       /* the last row is { 0 }; may be NULL */
} tp_model;

/* ---- the table ---- */

/* The rows of all models, one model after the other. */
TP_API const tp_model_row *tp_model_at(int i);               /* NULL past the last */
TP_API const tp_model_row *tp_model_find(const char *name);  /* by any of the names; NULL: none */
TP_API const char *tp_model_name(int i);                     /* of a row; NULL past the last */
TP_API const tp_model *tp_model_of(const tp_model_row *row); /* that owns the row */
TP_API const tp_model *tp_model_backbone(int i); /* usable by detectors; NULL past the last */

/* ---- a configuration of any model, as a value ---- */

/* Read the model's own configuration as (const tp_cvt_cfg *)&c.at. To change it, use
 * tp_model_change, or change a tp_cvt_cfg and pass it to tp_model_cfg_of: after a write through
 * such a pointer, a compiler may copy the struct without what was written, since the types
 * differ. */
#define TP_MODEL_CFG_BYTES 1024
typedef struct tp_model_cfg {
    const tp_model *model; /* NULL: none */
    union {
        double real; /* these three align the bytes for any configuration */
        int64_t whole;
        void *pointer;
        unsigned char bytes[TP_MODEL_CFG_BYTES];
    } at; /* the model's own configuration */
} tp_model_cfg;

/* A model's own configuration, such as a tp_cvt_cfg, as a value; without a model if either is
 * NULL. */
TP_API tp_model_cfg tp_model_cfg_of(const tp_model *m, const void *cfg);

/* The configuration of a row, by any of its names, or one that a model derives from its tables
 * ("cvt-13-448"). False with a full sentence in why; cfg then has no model. */
TP_API bool tp_model_preset(tp_model_cfg *cfg, const char *name, char *why, size_t size);

/* True if cfg describes a possible model; else why receives a sentence that says what is wrong. */
TP_API bool tp_model_check(const tp_model_cfg *cfg, char *why, size_t size);

/* The shape of a batch of inputs: images are f32, ids integers. tokens (TP_TOKENS, TP_DOCUMENTS):
 * how many, 0 for the configured cache, or length without one. */
TP_API tp_shape tp_model_input_shape(const tp_model_cfg *cfg, int64_t batch, int64_t tokens);

/* Get and set the common part of a configuration. The result may be impossible (tp_model_check). */
TP_API tp_common_cfg tp_model_get(const tp_model_cfg *cfg);
TP_API void tp_model_set(tp_model_cfg *cfg, const tp_common_cfg *o);

/* Changes members by the names that checkpoints use: "depths=1,2,8,1,mlp_ratio=4". A part without
 * '=' continues the value before it. A list keeps its length, unless all lists with a value for
 * each stage are given. set_by, unless NULL, gives for members that all models share what else sets
 * them, such as "--size" at TP_COMMON_IMAGE: text must not name those. False, with a sentence in
 * why, if it does, if a key or value is wrong, or if the result is impossible; cfg is then
 * unchanged. */
TP_API bool tp_model_change(tp_model_cfg *cfg, const char *text,
                            const char *const set_by[TP_COMMON_KINDS], char *why, size_t size);

/* The same for the configuration of something else that has members, such as a detector. whose: its
 * name in messages. Only the texts are checked; after a refusal cfg may have changed in part. */
TP_API bool tp_members_change(const tp_model_member *members, void *cfg, const char *whose,
                              const char *text, char *why, size_t size);

/* The value of a member as text that tp_model_change takes, and its possible values: "a whole
 * number, 1 to 64", "mask|exact". Both are truncated to size. */
TP_API void tp_model_member_get(const tp_model_member *m, const void *cfg, char *text, size_t size);
TP_API void tp_model_member_type(const tp_model_member *m, char *text, size_t size);

/* The cost of one forward pass of one sample of the configured size, counted in a pass on a dry
 * device, which takes a few milliseconds. tokens, cache (TP_TOKENS): the length of the segment and
 * the number of cached rows before it; 0 means the configured cache for either. tokens
 * (TP_DOCUMENTS): the length of each document with its padding, which the model must take as it is;
 * 0 means the configured length. All members are 0 if the configuration or the length is
 * impossible, the forward pass fails, or memory runs out. */
TP_API tp_cost tp_model_cost(const tp_model_cfg *cfg, int64_t tokens, int64_t cache);

/* The bytes that each sample of a batch adds to what is kept for backward, on a tape that computes
 * in that dtype (tp_tape_opts.compute; TP_BF16: mixed precision). In f32 about tp_cost.saved, which
 * also has what a batch shares; in bf16 that includes copies of parts of weights. 0 where
 * tp_model_cost has nothing. */
TP_API double tp_model_saved_bytes(const tp_model_cfg *cfg, int64_t tokens, int64_t cache,
                                   tp_dtype compute);

/* Writes a configuration to a checkpoint and reads it; the metadata "model" says which model it is.
 * read: false with a full sentence, including the file's name, in why; cfg then has no model. */
TP_API void tp_model_write(const tp_model_cfg *cfg, tp_writer *W);
TP_API bool tp_model_read(tp_model_cfg *cfg, tp_file *F, char *why, size_t size);

/* The same for the configuration of a given model, such as a tp_cvt_cfg; recompute is not stored.
 * read: why does not include the file's name. */
TP_API void tp_model_write_cfg(const tp_model *m, const void *cfg, tp_writer *W);
TP_API bool tp_model_read_cfg(const tp_model *m, void *cfg, tp_file *F, char *why, size_t size);

/* True if both have the same parameters and buffers after being set to the same input size and
 * number of outputs. The weights of one can then be loaded into the other (tp_net_load). */
TP_API bool tp_model_same(const tp_model_cfg *a, const tp_model_cfg *b);

/* Prepares a publisher's file for the model of cfg: its tensors get our names, as tp_net_load
 * describes, and cfg gets as many outputs as the head in F has, if there is one. prefix receives
 * what was removed in front of the names; NULL: it is not wanted. False if F has failed. */
TP_API bool tp_model_adopt(tp_model_cfg *cfg, tp_file *F, char *prefix, size_t size);

/* ---- a model in use ---- */

/* Any model with its parameters declared in P under a name ("" for none). Never NULL; a failure is
 * P's error. Free it after the last backward, before or after P. */
typedef struct tp_net tp_net;
TP_API tp_net *tp_net_new(tp_params *P, const char *name, const tp_model_cfg *cfg);
TP_API void tp_net_free(tp_net *N);
TP_API const tp_model_cfg *tp_net_cfg(const tp_net *N);
TP_API void *tp_net_module(const tp_net *N); /* the model's own module, such as a tp_cvt * */

/* x: images, ids or documents, see tp_model_input. state: NULL for models without one. Returns the
 * logits, owned by T. */
TP_API tp_tensor tp_net_forward(tp_tape *T, const tp_net *N, void *state, tp_tensor x);

/* The two results of a model with a distillation head, which tp_net_forward averages: returns the
 * logits [B,classes] of the class head, and *dist receives those of the distillation head. For
 * other models without a state both are equal. For tp_distill_loss (vit.h). */
TP_API tp_tensor tp_net_heads(tp_tape *T, const tp_net *N, tp_tensor x, tp_tensor *dist);

/* The state of one group of streams, initially empty. NULL if memory runs out and for models that
 * carry nothing. tp_net_state_free clears it first, so T must be alive; it ignores NULL. */
TP_API void *tp_net_state_new(const tp_net *N);
TP_API void tp_net_state_free(const tp_net *N, tp_tape *T, void *state);

/* Loads the weights of a checkpoint of the same model into P, where N was declared without a
 * prefix; floating dtypes are converted. The checkpoint may be a publisher's: F then gets our names
 * (tp_file_rename). Weights under a prefix such as "state_dict.module." are found, averages
 * ("model_ema.") only if there is nothing else; parts of names are replaced by the model's
 * spellings; tensors without elements and buffers that the model computes are left out. resized:
 * the checkpoint is for another input size. False: see tp_params_why. */
TP_API TP_CHECKED bool tp_net_load(tp_params *P, const tp_net *N, tp_file *F, bool resized);

/* ---- single parts ---- */

/* Declares and runs the part of that name, as the model does within itself; m is zeroed memory of
 * at least the part's size. A part that the model does not have fails P or T. */
TP_API void tp_part_init(tp_params *P, const tp_model *model, const char *part, void *m,
                         const char *name, const void *cfg);
TP_API tp_tensor tp_part_forward(tp_tape *T, const tp_model *model, const char *part, const void *m,
                                 void *with, tp_tensor x);

#ifndef TP_NO_SITE
#define tp_part_forward(T, ...) tp_part_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_net_forward(T, ...)  tp_net_forward(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_net_heads(T, ...)    tp_net_heads(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
