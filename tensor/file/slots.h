/* slots.h - reads and writes named memory (parameters, moments, averages) in safetensors files. */
#ifndef TP_SLOTS_H
#define TP_SLOTS_H

#include <tapegrad/file.h>

#include "tensor/backend.h"
#include "tensor/error.h"

typedef struct tp_slot {
    char *name;
    tp_view view;
    tp_device *dev; /* NULL: host memory */
    int same;       /* index of the slot that owns the memory: this one or its first tied one */
    /* Of several processes each has stretches of the tensor; view has no data then. NULL: this one
     * has all of it. */
    struct tp_owned *parts;
    int nparts;
    bool may_lack; /* files may lack it */
} tp_slot;

typedef struct tp_slots {
    tp_slot *at;
    int n;
    size_t cap;
    bool no_memory; /* some slot could not be added: reading and writing fail */
} tp_slots;

/* Adds `prefix` + `name`; same < 0: the slot owns its memory. */
void tp__slots_add(tp_slots *S, tp_device *dev, const char *prefix, const char *name,
                   const tp_view *v, int same);
/* Adds a slot whose tensor consists of n stretches, of which those without data are not read. Takes
 * ownership of the list; NULL: it could not be made. */
void tp__slots_add_stretches(tp_slots *S, tp_device *dev, const char *prefix, const char *name,
                             const tp_view *v, struct tp_owned *parts, int n);
void tp__slots_free(tp_slots *S);

/* Finds the tensor `prefix` + name of F for each slot that owns its memory (NULL: none), as
 * tp_params_read describes. The caller frees the list; NULL with *e set, which lists every
 * difference. Reads only shapes, so views need no memory yet. `what` names the slots
 * ("parameters"). */
const tp_file_tensor **tp__slots_match(const tp_slots *S, tp_file *F, const char *prefix,
                                       const tp_load_opts *o, const char *what, tp_err *e);

/* Loads the slots from what was found, after checking all of it: if that fails, *refusal is set and
 * no slot has changed. If reading fails later, because the file changes or its disk fails, some
 * slots have the file's values and *e is set. */
bool tp__slots_load(const tp_slots *S, tp_file *F, const tp_file_tensor *const *from,
                    tp_err *refusal, tp_err *e);

/* Adds the slots to W, tied names as metadata: "alias.SECOND" = "FIRST", both with the prefix. */
void tp__slots_write(const tp_slots *S, tp_writer *W, const char *prefix);

#endif
