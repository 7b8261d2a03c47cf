/* fuzz_ops.c - the input is a program of ops on a tape: four bytes of options (ops_open), then
 * instructions. Each is one byte, followed by the bytes that its function draws.
 *
 *     0..63     one of ops_controls: tensors, scopes, backward, gradients, ...
 *     64..249   one of ops_rows: every function of ops.h
 *     250..255  the next instruction is given NULL instead of a tape
 *
 * Each instruction runs on a dry device and, if the dry run shows that it is small enough, on a
 * real one. The following must hold. Both devices accept and refuse the same, with the same code
 * and text, and results have the same dtype and shape. The real device may refuse more only because
 * of values, which a dry device lacks, and of failing allocations. A failed tape has a text and
 * returns failed tensors. Gradients have the shapes of their tensors. After tp_clear the tape
 * computes what a new one computes. No device memory leaks. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "ops_fuzzer.h"

enum { HEAD = 4, MOST = 64, CONTROLS = 64, ROWS = 250 };
enum { MOST_BYTES = 1 << 16, MOST_MACS = 1 << 20 };

int ops_count(const ops_row *rows)
{
    int n = 0;
    while (rows[n].name) n++;
    return n;
}

const char *fuzz_ops_name(int i)
{
    return ops_rows()[i].name;
}

static const ops_row *draw_row(ops_env *e)
{
    static int controls, rows;
    if (!rows) {
        controls = ops_count(ops_controls);
        rows = ops_count(ops_rows());
    }
    uint8_t b = ops_byte(e);
    e->no_tape = b >= ROWS;
    if (e->no_tape) b = ops_byte(e);
    return b < CONTROLS ? &ops_controls[b % controls] : &ops_rows()[(b - CONTROLS) % rows];
}

/* ---- comparing the worlds ---- */

typedef struct outcome {
    tp_code code;
    char text[64]; /* the beginning of its first line */
} outcome;

static outcome outcome_of(tp_tape *T)
{
    outcome o = { .code = tp_code_of(T) };
    if (o.code == TP_OK) return o;
    strncpy(o.text, tp_why(T), sizeof o.text - 1);
    o.text[strcspn(o.text, "\n")] = 0;
    ops_demand_text(T);
    return o;
}

static bool is_same(tp_tensor a, tp_tensor b)
{
    const tp_shape s = tp_shape_of(a), t = tp_shape_of(b);
    bool same = tp_dtype_of(a) == tp_dtype_of(b) && s.ndim == t.ndim;
    for (int i = 0; same && i < s.ndim; i++) same = s.dim[i] == t.dim[i];
    return same;
}

/* Whether x may look dead: where a world was refused memory for a scope, another one closes, and a
 * tensor that both pass on is dead in one. */
static bool may_be_dead(tp_tensor x)
{
    return tp_ndim(x) == 0 && tp_dtype_of(x) == TP_F32;
}

/* Whether the real device may refuse what the dry one accepts. */
static bool may_refuse(const ops_env *e, tp_code code)
{
    return code == TP_E_VALUE || (code == TP_E_NONFINITE && e->finite) ||
           (code == TP_E_MEMORY && e->no_memory) || e->apart;
}

/* Like fuzz_demand, but also prints the errors of both tapes. */
static void demand(const ops_env *e, bool holds, const char *text)
{
    if (!holds)
        fprintf(stderr, "dry: %s\nreal: %s\n", tp_why(e->w[OPS_DRY].T), tp_why(e->w[OPS_REAL].T));
    fuzz_demand(holds, text);
}

static void compare(ops_env *e, const tp_tensor t[OPS_WORLDS])
{
    const outcome dry = outcome_of(e->w[OPS_DRY].T), real = outcome_of(e->w[OPS_REAL].T);
    if (dry.code == TP_OK && real.code == TP_OK) {
        const bool none = !tp_given(t[OPS_REAL]) && e->no_memory; /* the parameters have failed */
        const bool dead = e->apart && (may_be_dead(t[OPS_DRY]) || may_be_dead(t[OPS_REAL]));
        demand(e, none || dead || is_same(t[OPS_DRY], t[OPS_REAL]), "a result is as announced");
    } else if (dry.code == TP_OK) {
        demand(e, may_refuse(e, real.code), "a dry device announces refusals");
        e->apart = true;
    } else if (real.code == TP_OK) {
        demand(e, e->apart, "a dry device refuses no more");
    } else {
        const bool same = dry.code == real.code && strcmp(dry.text, real.text) == 0;
        demand(e, same || may_refuse(e, real.code), "both refuse for one reason");
        if (!same) e->apart = true; /* one backward may have got further */
    }
}

/* ---- one instruction ---- */

/* Drops the carried tensor if only one world has it: too large or refused. */
static void forget_carried(ops_env *e)
{
    if (is_same(e->w[OPS_DRY].carried, e->w[OPS_REAL].carried)) return;
    for (int i = 0; i < OPS_WORLDS; i++) tp_carry(e->w[i].T, &e->w[i].carried, TP_NONE);
}

static void clear(ops_env *e)
{
    for (int i = 0; i < OPS_WORLDS; i++) tp_clear(e->w[i].T);
}

static tp_tensor run(ops_env *e, int world, const ops_row *r)
{
    e->world = world;
    tp_at(ops_tape(e), r->name, 1);
    return r->run(e, r);
}

/* Whether the real device can run what the dry one ran. */
static bool is_cheap(const ops_env *e, size_t before)
{
    const tp_stats s = tp_device_stats(e->w[OPS_DRY].D);
    return !e->dry_only && tp_code_of(e->w[OPS_DRY].T) != TP_E_MEMORY &&
           s.peak_bytes - before <= MOST_BYTES && e->macs <= MOST_MACS;
}

static void step(ops_env *e)
{
    tp_device *dry = e->w[OPS_DRY].D;
    tp_tensor t[OPS_WORLDS] = { TP_NONE, TP_NONE };
    const ops_row *r = draw_row(e);
    const uint8_t *begin = e->at;
    e->dry_only = false;
    e->macs = 0.0;
    tp_device_reset_peak(dry);
    const size_t before = tp_device_stats(dry).live_bytes;
    t[OPS_DRY] = run(e, OPS_DRY, r);
    const bool cheap = is_cheap(e, before);
    if (cheap) {
        const uint8_t *end = e->at;
        e->at = begin;
        t[OPS_REAL] = run(e, OPS_REAL, r);
        fuzz_demand(e->at == end, "an instruction draws the same in both worlds");
        compare(e, t);
    } else {
        outcome_of(e->w[OPS_DRY].T);
        e->apart = true;
    }
    const bool stored = tp_given(t[OPS_DRY]);
    clear(e);
    forget_carried(e);
    if (stored) ops_store(e, t, !cheap || !tp_given(t[OPS_REAL]));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < HEAD) return 0;
    ops_env e = { .at = input + HEAD, .end = input + size };
    ops_open(&e, input);
    clear(&e);
    for (int i = 0; i < MOST && e.at < e.end; i++) step(&e);
    ops_demand_life(&e);
    ops_close(&e);
    return 0;
}
