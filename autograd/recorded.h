/* recorded.h - work of the host that belongs to a recorded step: what an optimiser has to write to
 * the device, and to count, before each launch (autograd/capture.c). */
#ifndef TP_RECORDED_H
#define TP_RECORDED_H

#include "autograd/params.h"

typedef struct tp_recorded tp_recorded;
struct tp_recorded {
    /* Does the object still have the memory and options that the recorded kernels use? Without them
     * neither the step that records them nor a launch can run. */
    bool (*holds)(const tp_recorded *r);
    /* False: the recording must not be launched. The step then runs normally, and the calls of the
     * program say what is wrong. */
    bool (*ready)(const tp_recorded *r);
    /* Queues the uploads for a launch and moves the host's state over the step. Cannot fail. */
    void (*begin)(tp_recorded *r);
    void (*undo)(tp_recorded *r); /* restores the state before the last begin */
    void (*drop)(tp_recorded *r); /* frees r */
};

/* Is this thread between tp_capture_begin and tp_capture_end on D, recorded or not? */
bool tp__in_step(const tp_device *D);
/* Adds r to the step that D records, which takes it over; the host's state must be as begin leaves
 * it. False, with r as before: out of memory. */
bool tp__record_with(tp_device *D, tp_recorded *r);
/* Fails the tape of the step that D records, some of whose work could not be recorded: it must not
 * run. */
void tp__record_failed(tp_device *D, tp_code code, const char *why);
/* If D records a step: it runs, and its recording is dropped, because a call in it was refused that
 * need not be refused the next time. */
void tp__record_once(tp_device *D);
/* May what is recorded on D change P? Only a set that the step before has read. */
bool tp__records_set(const tp_device *D, const tp_params *P);

#endif
