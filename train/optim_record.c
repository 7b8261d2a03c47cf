/* optim_record.c - an optimiser's step in a recording (capture.h).
 *
 * The recorded kernels read rate, counts and constants from a table in device memory. Before each
 * launch the host computes them as tp_step does, and queues the upload of the whole table, so that
 * a launch has the same bits as a step. What the kernels have as arguments, the addresses of
 * gradients and moments, must be as it was; else the recording is not ready.
 *
 * The rate is given before the step (tp_next_rate), and tp_step compares its own with it: one that
 * was only an argument there would be frozen silently. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/recorded.h"
#include "train/optim.h"

/* The optimiser's state before a step. */
typedef struct before {
    double sum[TP_OPTIM_SUMS], scale, rate;
    bool given;
} before;

typedef struct tp__step {
    tp_recorded base;
    tp_optim *O; /* NULL: freed */
    struct tp__step *next;
    tp_step_table *table; /* with the segments of the recording; uploaded to O->there */
    tp_segments s;        /* in it */
    bool *planned;        /* by weight: does the step change it? */
    const void *state[TP_OPTIM_STATES];
    double option[TP_OPTIM_OPTIONS];
    before before;
} step;

static step *step_of(const tp_recorded *r)
{
    return (step *)(uintptr_t)r;
}

static const void *state_at(const tp_optim *O, int k)
{
    return O->state[k] ? O->state[k]->data : NULL;
}

/* ---- launches ---- */

static bool holds(const tp_recorded *base)
{
    const step *r = step_of(base);
    const tp_optim *O = r->O;
    bool same = O && O->err.code == TP_OK;
    for (int k = 0; same && k < TP_OPTIM_STATES; k++) same = r->state[k] == state_at(O, k);
    for (int i = 0; same && i < TP_OPTIM_OPTIONS && O->kind->options[i].name; i++)
        same = !O->kind->options[i].on_host || r->option[i] == O->option[i];
    return same;
}

static bool ready(const tp_recorded *base)
{
    const tp_optim *O = step_of(base)->O;
    tp_err ignored = { 0 }; /* tp_step will say it */
    return tp__optim_usable(O, "tp_step", &ignored) && !O->P->exchange &&
           tp__params_hold_values(O->P, "tp_step", &ignored) && tp__optim_usable_rate(O->rate) &&
           isfinite(O->scale) && !O->scaled_late;
}

static before state_before(const tp_optim *O)
{
    before b = { .scale = O->scale, .rate = O->rate, .given = O->P->given };
    memcpy(b.sum, O->sum, sizeof b.sum);
    return b;
}

/* The numbers of the next step, in the segments of the recording. */
static void set_numbers(step *r)
{
    tp_optim *O = r->O;
    tp_segment *g = r->table->at;
    for (int i = 0; i < O->n; i++) {
        const tp_weight *w = &O->weights[i];
        O->weights[i].planned = r->planned[i];
        for (int k = 0; w->planned && k < w->parts; k++)
            if (O->parts[w->part + k].numel > 0) tp__optim_numbers(O, w, O->rate, g++);
    }
}

static void begin(tp_recorded *base)
{
    step *r = step_of(base);
    tp_optim *O = r->O;
    r->before = state_before(O);
    set_numbers(r);
    tp_optim_attr a = tp__optim_attr(O);
    a.s = r->s;
    if (O->kind->advance) O->kind->advance(O->option, O->rate, O->updates + 1, O->sum, a.k);
    tp__step_upload(O, r->table, &a);
    O->step_err = (tp_err){ .dev = O->dev };
    O->P->given = false;
    tp__optim_count(O);
}

static void undo(tp_recorded *base)
{
    const step *r = step_of(base);
    tp_optim *O = r->O;
    if (!O) return;
    for (int i = 0; i < O->n; i++) O->weights[i].updates -= r->planned[i];
    O->updates--;
    O->scale = r->before.scale;
    O->rate = r->before.rate;
    O->scaled_late = false;
    memcpy(O->sum, r->before.sum, sizeof O->sum);
    O->P->given = r->before.given;
}

static void drop(tp_recorded *base)
{
    step *r = step_of(base);
    for (step **at = r->O ? &r->O->steps : NULL; at && *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    free(r->table);
    free(r->planned);
    free(r);
}

void tp__optim_record_free(tp_optim *O)
{
    for (step *r = O->steps; r; r = r->next) r->O = NULL;
}

/* ---- recording ---- */

/* NULL: out of memory. */
static step *step_new(tp_optim *O)
{
    step *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->base = (tp_recorded){ holds, ready, begin, undo, drop };
    r->table = malloc(tp__step_bytes(O->s.n + 1));
    r->planned = calloc((size_t)O->n + 1, sizeof *r->planned);
    if (r->table && r->planned) return r;
    drop(&r->base);
    return NULL;
}

/* Notes what the step planned in O->s does. */
static void note(step *r, tp_optim *O)
{
    r->O = O;
    r->next = O->steps;
    O->steps = r;
    r->s = (tp_segments){ r->table->at, O->s.n, O->s.blocks };
    memcpy(r->table->at, O->s.at, (size_t)O->s.n * sizeof *O->s.at);
    memcpy(r->option, O->option, sizeof r->option);
    for (int k = 0; k < TP_OPTIM_STATES; k++) r->state[k] = state_at(O, k);
    for (int i = 0; i < O->n; i++) r->planned[i] = O->weights[i].planned;
    r->before = state_before(O);
}

bool tp__optim_record(tp_optim *O, const tp_block_kernel *kernel, tp_optim_attr *a)
{
    step *r = step_new(O);
    if (r && tp__optim_run(O, kernel, a)) {
        note(r, O);
        if (tp__record_with(O->dev, &r->base)) return true;
    }
    if (r) drop(&r->base);
    tp__err(&O->step_err, TP_E_MEMORY, "tp_step: out of memory for a recorded step");
    tp__record_failed(O->dev, O->step_err.code, O->step_err.text);
    return false;
}
