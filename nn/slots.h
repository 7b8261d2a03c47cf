/* slots.h - named memory in and out of safetensors files, for parameters, moments and averages. */
#ifndef TP_SLOTS_H
#define TP_SLOTS_H

#include <tapegrad/file.h>
#include <tapegrad/params.h>

#include "tensor/backend.h"
#include "tensor/error.h"

typedef struct tp_slot {
    char *name;
    tp_view view;
    tp_device *dev; /* NULL: host memory                                          */
    int same;       /* index of the slot that owns the memory: this one, or for a
                       tied second name the slot of the first name                */
} tp_slot;

typedef struct tp_slots {
    tp_slot *at;
    int n, cap;
    bool no_memory; /* some slot could not be added: reading and writing fail */
} tp_slots;

/* Adds `prefix` + `name`; same < 0: the slot has memory of its own. */
void tp__slots_add(tp_slots *S, tp_device *dev, const char *prefix, const char *name,
                   const tp_view *v, int same);
void tp__slots_free(tp_slots *S);

/* Loads every slot from the tensor `prefix` + name of F, as tp_params_read describes. If the file
 * does not match, nothing is changed and *e lists every difference; if reading fails midway, some
 * slots have been changed. `what` names the slots ("parameters"). */
bool tp__slots_read(const tp_slots *S, tp_file *F, const char *prefix, const tp_load_opts *o,
                    const char *what, tp_err *e);

/* The two halves of tp__slots_read. match returns the file's tensor for each slot that has memory
 * of its own (NULL: none), to be freed, or NULL with *e set. It reads shapes only, so views need no
 * memory yet. */
const tp_file_tensor **tp__slots_match(const tp_slots *S, tp_file *F, const char *prefix,
                                       const tp_load_opts *o, const char *what, tp_err *e);
bool tp__slots_load(const tp_slots *S, tp_file *F, const tp_file_tensor *const *from, tp_err *e);

/* Adds the slots to W, tied names as metadata: "alias.SECOND" = "FIRST", both with the prefix. */
void tp__slots_write(const tp_slots *S, tp_writer *W, const char *prefix);

#endif
