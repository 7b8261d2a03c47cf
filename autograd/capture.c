/* capture.c - recorded steps: keeps the host's state consistent with a device recording.
 *
 * A recording consists of kernels with fixed arguments, so all memory must stay in place:
 * - memory used by a recorded step belongs to the recording (tp_heap.owner) until it is freed;
 * - a carried tensor that the step replaced is copied to its former address at the step's end;
 * - random ops read the random stream's advance since the recording from device memory;
 * - the recording holds the parameters' gradients and reinstates them at each launch;
 * - the host's state (backward counts, bf16 copy valid) is set as the recorded step left it;
 * - an optimiser's step has its numbers in device memory, and the host writes those of the next
 *   step there before it launches the recording (recorded.h).
 *
 * A recording is dropped when a step must run without it, because that moves its results and
 * carried tensors. If a recorded step cannot be launched, the host's state is unchanged. */
#include <stdlib.h>
#include <tapegrad/capture.h>
#include <tapegrad/file.h>

#include "autograd/nodes.h"
#include "autograd/recorded.h"
#include "autograd/tape.h"
#include "tensor/left.h"
#include "tensor/shape.h"

enum { WARM_UP = 2 };

/* The tape state for which a recording is valid. */
typedef struct mode {
    uint64_t seed, epoch;
    bool train, recording;
} mode;

/* A parameter set used by the recorded step. */
typedef struct set {
    tp_params *P;
    uint64_t id;         /* of P, which may be freed */
    tp_buf **had, **has; /* gradients before and after, by entry; NULL: none. Owned */
    bool *frozen;        /* before, by entry. Owned */
    int n;               /* entries of P */
    int64_t backwards;
    bool shadow; /* the recording refreshes the `copies` bf16 copies */
    int copies;
} set;

struct tp_capture {
    tp_tape *T;
    tp_device *dev; /* stays if T is freed first */
    int plain;      /* steps run without capture since the last recording was tried */
    bool recording; /* between begin and end */
    bool refused;   /* the device failed to make or launch a recording; not retried */
    mode mode;
    void *graph;                     /* NULL: none yet */
    int owner;                       /* of the recording's memory (tp_heap.owner) */
    tp_buf *advance;                 /* of the random stream since then: a device uint64_t */
    uint64_t offset, draws, kernels; /* offset at the recording; offsets and kernels of a step */
    int64_t launches;
    set *sets; /* [nsets] */
    int nsets;
    tp_capture *outer;  /* in `running` */
    tp_recorded **work; /* [nwork], in order */
    int nwork;
    size_t work_cap;
};

static tp_capture no_memory;

/* The captures of the steps that this thread runs, recorded or not, the innermost first. They may
 * be of several devices, and several threads may run steps on one device of the CPU. */
static _Thread_local tp_capture *running;

static tp_capture *step_in(const tp_device *D)
{
    tp_capture *C = running;
    while (C && C->dev != D) C = C->outer;
    return C;
}

tp_capture *tp_capture_new(tp_tape *T)
{
    tp_capture *C = calloc(1, sizeof *C);
    T = tp__some(T);
    if (!C) {
        tp__no_host_memory(T);
        return &no_memory;
    }
    *C = (tp_capture){ .T = T, .dev = T->dev };
    tp__device_enter(C->dev);
    return C;
}

int64_t tp_capture_launches(const tp_capture *C)
{
    return C ? C->launches : 0;
}

/* ---- parameter sets ---- */

static void drop_grads(tp_buf **list, int n)
{
    for (int i = 0; list && i < n; i++) tp__buf_unref(list[i]);
    free(list);
}

static void drop_sets(tp_capture *C)
{
    for (int i = 0; i < C->nsets; i++) {
        drop_grads(C->sets[i].had, C->sets[i].n);
        drop_grads(C->sets[i].has, C->sets[i].n);
        free(C->sets[i].frozen);
    }
    free(C->sets);
    C->sets = NULL;
    C->nsets = 0;
}

/* Returns P's gradients, for drop_grads. NULL: out of memory. */
static tp_buf **note_grads(const tp_params *P)
{
    tp_buf **list = calloc((size_t)P->n + 1, sizeof *list);
    for (int i = 0; list && i < P->n; i++) list[i] = tp__buf_ref(P->entries[i].node->grad_buf);
    return list;
}

static bool grads_unchanged(const tp_params *P, tp_buf *const *list)
{
    for (int i = 0; i < P->n; i++)
        if (list[i] != P->entries[i].node->grad_buf) return false;
    return true;
}

/* NULL: out of memory. */
static bool *note_frozen(const tp_params *P)
{
    bool *list = calloc((size_t)P->n + 1, sizeof *list);
    for (int i = 0; list && i < P->n; i++) list[i] = P->entries[i].node->frozen;
    return list;
}

static bool frozen_unchanged(const tp_params *P, const bool *list)
{
    for (int i = 0; i < P->n; i++)
        if (list[i] != P->entries[i].node->frozen) return false;
    return true;
}

/* Notes the sets that the last step read. Marks their bf16 copies stale, so that the recorded step
 * refreshes them. False: out of memory, or a set has a hook, which a recording cannot call. */
static bool note_sets(tp_capture *C)
{
    drop_sets(C);
    C->sets = calloc((size_t)C->T->nreads + 1, sizeof *C->sets);
    if (!C->sets) return false;
    for (int i = 0; i < C->T->nreads; i++) {
        tp_params *P = tp__set_read(C->T, i);
        if (!P) return false;
        set *s = &C->sets[C->nsets++];
        *s = (set){
            .P = P, .id = P->id, .n = P->n, .had = note_grads(P), .backwards = P->backwards
        };
        s->frozen = note_frozen(P);
        if (!s->had || !s->frozen || P->hook) return false;
        P->shadow_version = P->version - 1;
    }
    return true;
}

/* False: out of memory. */
static bool note_results(tp_capture *C)
{
    bool ok = true;
    for (int i = 0; i < C->nsets; i++) {
        set *s = &C->sets[i];
        s->has = note_grads(s->P);
        s->backwards = s->P->backwards - s->backwards;
        s->shadow = s->P->shadow_version == s->P->version;
        s->copies = s->P->copies;
        ok = ok && s->has;
    }
    return ok;
}

static bool sets_unchanged(const tp_capture *C)
{
    for (int i = 0; i < C->nsets; i++) {
        const tp_params *P = C->sets[i].P;
        if (P->id != C->sets[i].id || P->hook || P->grad_err.code != TP_OK ||
            !grads_unchanged(P, C->sets[i].had) || !frozen_unchanged(P, C->sets[i].frozen))
            return false;
    }
    return true;
}

static void advance_sets(tp_capture *C)
{
    for (int i = 0; i < C->nsets; i++) {
        const set *s = &C->sets[i];
        for (int k = 0; k < s->n; k++) tp__set_grad(s->P->entries[k].node, tp__buf_ref(s->has[k]));
        s->P->backwards += s->backwards;
        if (s->shadow && s->copies == s->P->copies) s->P->shadow_version = s->P->version;
    }
}

/* NULL: the set was not noted. */
static const set *noted_set(const tp_capture *C, const tp_params *P)
{
    for (int i = 0; i < C->nsets; i++)
        if (C->sets[i].P == P) return &C->sets[i];
    return NULL;
}

/* Did the step read only the sets that were noted? */
static bool sets_are_all(const tp_capture *C)
{
    for (int i = 0; i < C->T->nreads; i++)
        if (!noted_set(C, tp__set_read(C->T, i))) return false;
    return true;
}

/* ---- the host's part of a step ---- */

bool tp__in_step(const tp_device *D)
{
    return step_in(D) != NULL;
}

bool tp__record_with(tp_device *D, tp_recorded *r)
{
    tp_capture *C = step_in(D);
    if (!tp_reserve(&C->work, &C->work_cap, (size_t)C->nwork, 1, sizeof(tp_recorded *)))
        return false;
    C->work[C->nwork++] = r;
    return true;
}

void tp__record_failed(tp_device *D, tp_code code, const char *why)
{
    tp__fail(step_in(D)->T, code, "%s", why);
}

void tp__record_once(tp_device *D)
{
    tp_capture *C = D && D->capturing ? step_in(D) : NULL;
    if (C) C->T->unsteady = true;
}

bool tp__records_set(const tp_device *D, const tp_params *P)
{
    return noted_set(step_in(D), P) != NULL;
}

static bool work_holds(const tp_capture *C)
{
    bool holds = true;
    for (int i = 0; holds && i < C->nwork; i++) holds = C->work[i]->holds(C->work[i]);
    return holds;
}

static bool work_ready(const tp_capture *C)
{
    bool ready = work_holds(C);
    for (int i = 0; ready && i < C->nwork; i++) ready = C->work[i]->ready(C->work[i]);
    return ready;
}

static void begin_work(tp_capture *C)
{
    for (int i = 0; i < C->nwork; i++) C->work[i]->begin(C->work[i]);
}

static void undo_work(tp_capture *C)
{
    for (int i = C->nwork; i-- > 0;) C->work[i]->undo(C->work[i]);
}

static void drop_work(tp_capture *C)
{
    for (int i = 0; i < C->nwork; i++) C->work[i]->drop(C->work[i]);
    free(C->work);
    C->work = NULL;
    C->nwork = 0;
    C->work_cap = 0;
}

/* ---- carried tensors ---- */

bool tp__carry_note(tp_tape *T, const tp_node *old, tp_node *now)
{
    if (!T->moving) {
        T->epoch++;
        return true;
    }
    if (!old || !now) {
        T->unsteady = true;
        return true;
    }
    for (int i = 0; i < T->nmoves; i++)
        if (T->moves[i].now == old) {
            T->moves[i].now = now;
            return true;
        }
    if (!tp_reserve(&T->moves, &T->moves_cap, (size_t)T->nmoves, 1, sizeof *T->moves)) return false;
    T->moves[T->nmoves++] =
        (tp_move){ .buf = tp__buf_ref(old->buf), .view = old->view, .now = now };
    return true;
}

static bool same_view(const tp_view *a, const tp_view *b)
{
    bool same = a->dtype == b->dtype && a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++) same = a->dim[i] == b->dim[i];
    return same;
}

/* Restores a carried tensor's state before the step. */
static void put_back(const tp_move *m)
{
    tp__buf_unref(m->now->buf);
    m->now->buf = tp__buf_ref(m->buf);
    m->now->view = m->view;
}

/* Copies the tensors that the step carried to the addresses of those they replaced. Reads all
 * before writing any, since slots may share memory. False: a slot was filled, emptied or reshaped
 * (nothing was copied), or out of memory (the tape has failed). */
static bool move_back(tp_tape *T)
{
    const tp_backend *be = T->dev->be;
    if (T->unsteady) return false;
    for (int i = 0; i < T->nmoves; i++)
        if (!same_view(&T->moves[i].view, &T->moves[i].now->view)) return false;
    for (int i = 0; i < T->nmoves; i++) {
        tp_move *m = &T->moves[i];
        const size_t bytes = tp__view_bytes(&m->view);
        if (!m->taken) m->taken = tp__alloc(T, bytes, "tp_capture_end");
        if (!m->taken) return false;
        be->copy(T->dev, m->taken->data, m->now->view.data, bytes);
    }
    for (int i = 0; i < T->nmoves; i++) {
        tp_move *m = &T->moves[i];
        be->copy(T->dev, m->view.data, m->taken->data, tp__view_bytes(&m->view));
        put_back(m);
    }
    return true;
}

static void drop_moves(tp_tape *T)
{
    for (int i = 0; i < T->nmoves; i++) {
        tp__buf_unref(T->moves[i].buf);
        tp__buf_unref(T->moves[i].taken);
    }
    T->nmoves = 0;
}

/* ---- steps ---- */

/* Can steps of this tape be recorded? */
static bool can_record(const tp_tape *T)
{
    return T->err.code == TP_OK && T->dev->be && T->dev->be->capture_begin && !T->check_finite &&
           !T->dev->profile.on && !T->dev->capturing;
}

static void drop_recording(tp_capture *C)
{
    tp_device *D = C->dev;
    if (C->graph) D->be->graph_free(D, C->graph);
    C->graph = NULL;
    drop_work(C);
    if (C->owner) tp__heap_release(D, C->owner);
    C->owner = 0;
    tp__buf_unref(C->advance);
    C->advance = NULL;
    drop_sets(C);
    C->plain = 0;
}

static mode mode_of(const tp_tape *T)
{
    return (mode){ T->seed, T->epoch, T->train, T->recording };
}

/* Is the recording still valid for this step? */
static bool is_valid(const tp_capture *C)
{
    const mode was = C->mode, now = mode_of(C->T);
    return can_record(C->T) && sets_unchanged(C) && was.seed == now.seed &&
           was.epoch == now.epoch && was.train == now.train && was.recording == now.recording &&
           work_ready(C);
}

static bool start_recording(tp_capture *C)
{
    tp_tape *T = C->T;
    tp_device *D = T->dev;
    drop_recording(C);
    const bool noted = note_sets(C);
    tp_reset(T);
    C->advance = tp__buf_new(D, sizeof(uint64_t));
    if (!noted || !C->advance) return false;
    D->be->zero(D, C->advance->data, sizeof(uint64_t));
    tp__heap_trim(D); /* the recording gets its own slabs */
    if (!D->be->capture_begin(D)) return false;
    C->owner = tp__heap_own(D);
    D->capturing = C->advance->data;
    C->offset = T->offset;
    C->kernels = tp__counted(D->launches);
    C->mode = mode_of(T);
    C->recording = T->moving = true;
    return true;
}

/* Fails the tape if the device returned no recording or could not launch it. */
static void fail_recording(tp_capture *C, const char *why)
{
    tp_tape *T = C->T;
    C->refused = true;
    if (T->dev->err.code != TP_OK)
        tp__device_failed(T);
    else
        tp__fail(
            T, TP_E_CUDA,
            "the device cannot record this step or launch its recording: %s; nothing has run. Run "
            "without tp_capture (a program: no --graph). After tp_clear, steps run normally",
            why);
}

static bool launch(tp_capture *C)
{
    tp_tape *T = C->T;
    tp_device *D = T->dev;
    const uint64_t advance = T->offset - C->offset;
    char why[TP_WHY] = "";
    D->be->upload(D, C->advance->data, &advance, sizeof advance);
    begin_work(C);
    if (!D->be->graph_launch(D, C->graph, why) || D->err.code != TP_OK) {
        undo_work(C);
        fail_recording(C, why);
        return false;
    }
    T->offset += C->draws;
    tp__count(D->launches, C->kernels);
    C->launches++;
    return true;
}

/* Restores the host's state before the recorded step, which does not run. tp_step refuses to
 * continue without the gradients of its backwards. */
static void undo(tp_capture *C)
{
    tp_tape *T = C->T;
    for (int i = 0; i < T->nmoves; i++) put_back(&T->moves[i]);
    for (int i = 0; i < T->nreads; i++) {
        tp_params *P = tp__set_read(T, i);
        if (!P) continue;
        const set *s = noted_set(C, P); /* first read in this step */
        if (s ? s->backwards > 0 : P->backwards > 0)
            tp__err(&P->grad_err, T->err.code, "%s", T->err.text);
        for (int k = 0; s && k < s->n; k++)
            tp__set_grad(P->entries[k].node, tp__buf_ref(s->had[k]));
        P->backwards -= s ? s->backwards : 0;
        P->shadow_version = P->version - 1; /* the bf16 copies were not made */
    }
}

static void leave(const tp_capture *C)
{
    tp_capture **at = &running;
    while (*at && *at != C) at = &(*at)->outer;
    if (*at) *at = C->outer;
}

static void enter(tp_capture *C)
{
    leave(C); /* a step that did not end */
    C->outer = running;
    running = C;
}

bool tp_capture_begin(tp_capture *C)
{
    tp_tape *T = C ? C->T : NULL;
    if (!T) return true; /* the tape has failed */
    if (C->graph && !is_valid(C)) drop_recording(C);
    if (C->graph) {
        if (launch(C))
            advance_sets(C);
        else
            drop_recording(C);
        return false;
    }
    const bool plain = C->plain < WARM_UP || C->refused || !can_record(T) || !start_recording(C);
    if (plain) tp_reset(T);
    if (C->dev && !(plain && step_in(C->dev))) enter(C);
    return true;
}

void tp_capture_end(tp_capture *C)
{
    tp_tape *T = C ? C->T : NULL;
    if (!T) return;
    leave(C);
    if (!C->recording) {
        C->plain++;
        return;
    }
    tp_device *D = T->dev;
    char why[TP_WHY] = "";
    const bool fixed = T->err.code == TP_OK && sets_are_all(C) && move_back(T);
    C->recording = T->moving = T->unsteady = false;
    D->capturing = NULL;
    tp__heap_own_nothing(D);
    C->graph = D->be->capture_end(D, why);
    C->draws = T->offset - C->offset;
    C->kernels = tp__counted(D->launches) - C->kernels;
    const bool noted = note_results(C);
    T->offset = C->offset; /* launch() advances all three */
    tp__count(D->launches, -C->kernels);
    undo_work(C);
    if (!work_holds(C))
        tp__fail(T, TP_E_STATE,
                 "tp_capture_end: after its step, an optimiser or average was freed or had its "
                 "options changed; do that outside the recorded step, which has not run");
    if (T->err.code == TP_OK && !C->graph) fail_recording(C, why);
    const bool ran = T->err.code == TP_OK && launch(C); /* a failed step is not launched */
    if (!ran) undo(C);
    drop_moves(T);
    if (!ran || !fixed || !noted) drop_recording(C);
}

void tp_capture_free(tp_capture *C)
{
    if (!C || C == &no_memory) return;
    leave(C);
    drop_recording(C);
    tp__device_leave(C->dev);
    free(C);
}
