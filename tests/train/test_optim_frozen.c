/* test_optim_frozen.c - what is frozen when an optimiser is created has no moments; once a step
 * changes it, training has the bits of an optimiser that had them from the beginning. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/optim_world.h"
#include "support/weigh.h"
#include "tensor/backend.h"
#include "train/optim.h"

TestSuite(optim_frozen, .init = make_folder, .fini = remove_folder);

enum { THAW = 3 }; /* the step before which the parameters are thawed */

/* At both ends of the block of values, and in its middle. */
static const int late[] = { 0, 3, 6 };

static void freeze(const optim_world *w, bool frozen)
{
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        tp_freeze(w->P, optim_params[late[i]].name, frozen);
}

typedef struct run {
    optim_world w;
    tp_optim *O;
} run;

/* early: the optimiser is created before anything is frozen. */
static run run_new(const optim_form *f, bool early)
{
    run r = { .w = optim_world_new(TP_F32, 2) };
    freeze(&r.w, !early);
    r.O = optim_make(r.w.P, f);
    cr_assert(tp_optim_ok(r.O), "%s", tp_optim_why(r.O));
    freeze(&r.w, true);
    return r;
}

static void run_free(run *r)
{
    tp_optim_free(r->O);
    optim_world_free(&r->w);
}

static void step_of(const run *r, int step)
{
    freeze(&r->w, step < THAW);
    optim_run_step(&r->w, r->O, step, 0.05);
}

static void expect_same(const run *a, const run *b, const char *what)
{
    static double x[OPTIM_LARGEST], y[OPTIM_LARGEST];
    for (int i = 0; i < OPTIM_PARAMS; i++) {
        optim_get(&a->w, i, x);
        optim_get(&b->w, i, y);
        cr_expect(memcmp(x, y, (size_t)optim_params[i].numel * sizeof *x) == 0, "%s: %s differs",
                  what, optim_params[i].name);
    }
}

static const char *const forms[] = { "sgd",        "sgd momentum",    "adamw", "rmsprop all",
                                     "lamb all",   "adagrad all",     "muon",  "adafactor all",
                                     "lion decay", "schedulefree all" };

Test(optim_frozen, thawed_parameters_have_the_same_bits)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        run a = run_new(optim_form_of(forms[i]), true), b = run_new(optim_form_of(forms[i]), false);
        const size_t all = tp_optim_bytes(a.O);
        cr_expect(all == 0 || tp_optim_bytes(b.O) < all, "%s", forms[i]);
        for (int step = 0; step < OPTIM_STEPS; step++) {
            step_of(&a, step);
            step_of(&b, step);
            if (step < THAW) cr_expect(all == 0 || tp_optim_bytes(b.O) < all, "%s", forms[i]);
            for (int k = 0; k < 2 && tp_optim_has_averages(a.O); k++) { /* there and back */
                cr_expect(tp_optim_swap(a.O) && tp_optim_swap(b.O), "%s", tp_optim_why(b.O));
                expect_same(&a, &b, "averages");
            }
        }
        cr_expect_eq(tp_optim_bytes(b.O), all, "%s: %zu", forms[i], tp_optim_bytes(b.O));
        expect_same(&a, &b, forms[i]);
        if (b.O->there)
            cr_expect_geq(b.O->there->bytes, tp__step_bytes(b.O->nparts), "%s: the GPU's table",
                          forms[i]);
        run_free(&a);
        run_free(&b);
    }
}

/* ---- files ---- */

static void save(const run *r, const char *path)
{
    tp_writer *W = tp_writer_new(path);
    cr_expect(tp_params_write(r->w.P, W, "") && tp_optim_write(r->O, W, NULL));
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

static bool load(const run *r, const char *path)
{
    tp_file *F = tp_file_open(path);
    cr_assert(tp_params_read(r->w.P, F, "", NULL), "%s", tp_params_why(r->w.P));
    const bool done = tp_optim_read(r->O, F, NULL);
    tp_file_close(F);
    return done;
}

/* A run is saved before or after the thaw and resumed, frozen again. Files with moments of all, as
 * of `early` optimisers, are read, too. */
Test(optim_frozen, a_resumed_run_has_the_same_bits)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int early = 0; early < 2; early++)
            for (int stop = THAW - 1; stop <= THAW + 1; stop++) {
                const char *path = in_folder("last.safetensors");
                run a = run_new(optim_form_of(forms[i]), early);
                run b = run_new(optim_form_of(forms[i]), false);
                for (int step = 0; step < stop; step++) step_of(&a, step);
                save(&a, path);
                cr_assert(load(&b, path), "%s", tp_optim_why(b.O));
                cr_expect_eq(tp_optim_bytes(a.O), tp_optim_bytes(b.O), "%s", forms[i]);
                for (int step = stop; step < OPTIM_STEPS; step++) {
                    step_of(&a, step);
                    step_of(&b, step);
                }
                expect_same(&a, &b, forms[i]);
                run_free(&a);
                run_free(&b);
            }
}

/* An optimiser with moments of all finds some missing; it is as it was. */
Test(optim_frozen, moments_that_a_file_lacks)
{
    const char *path = in_folder("last.safetensors");
    const optim_form *f = optim_form_of("adamw");
    run a = run_new(f, false), b = run_new(f, true), c = run_new(f, true);
    step_of(&a, 0);
    save(&a, path);
    cr_expect_not(load(&b, path));
    cr_expect(strstr(tp_optim_why(b.O), "does not fit these moments: 6 missing"), "%s",
              tp_optim_why(b.O));
    tp_file *F = tp_file_open(path);
    cr_expect(tp_params_read(c.w.P, F, "", NULL));
    tp_file_close(F);
    for (int step = 1; step < OPTIM_STEPS; step++) {
        step_of(&b, step);
        step_of(&c, step);
    }
    expect_same(&b, &c, "after the refusal");
    run_free(&a);
    run_free(&b);
    run_free(&c);
}

static void damage_last_byte(const char *path)
{
    FILE *f = fopen(path, "r+b");
    cr_assert(f && fseek(f, -1, SEEK_END) == 0);
    const int byte = fgetc(f);
    cr_assert(byte != EOF && fseek(f, -1, SEEK_END) == 0);
    cr_assert(fputc(byte ^ 64, f) != EOF && fclose(f) == 0);
}

/* A refused file with moments of all leaves none of them behind: one without still fits. */
Test(optim_frozen, a_refused_file_changes_nothing)
{
    const char *path = in_folder("last.safetensors");
    const optim_form *f = optim_form_of("adamw");
    run early = run_new(f, true), a = run_new(f, false), b = run_new(f, false);
    const size_t bytes = tp_optim_bytes(b.O);
    save(&early, path);
    damage_last_byte(path);
    cr_expect_not(load(&b, path));
    cr_expect(tp_optim_ok(b.O) || strstr(tp_optim_why(b.O), path), "%s", tp_optim_why(b.O));
    cr_expect_eq(tp_optim_bytes(b.O), bytes);
    step_of(&a, 0);
    save(&a, path);
    cr_expect(load(&b, path), "%s", tp_optim_why(b.O));
    for (int step = 1; step < OPTIM_STEPS; step++) {
        step_of(&a, step);
        step_of(&b, step);
    }
    expect_same(&a, &b, "after a refused file");
    run_free(&early);
    run_free(&a);
    run_free(&b);
}

/* ---- memory ---- */

static void lack_memory(tp_device *D, bool lacks)
{
    D->heap.fail_at = lacks ? 1 : 0;
    D->heap.fail_count = UINT64_MAX;
    D->heap.exact = lacks; /* no free memory is reused */
}

/* A step without memory for the new moments changes nothing, and the next one continues. */
Test(optim_frozen, no_memory_for_what_is_thawed)
{
    static double g[OPTIM_LARGEST];
    double *at[] = { g };
    const optim_form *f = optim_form_of("adamw");
    run a = run_new(f, true), b = run_new(f, false);
    optim_gradient(0, 0, g);
    for (int k = 0; k < 2; k++) {
        run *r = k ? &b : &a;
        step_of(r, 0);
        freeze(&r->w, false);
        give_grads(r->w.T, 1, r->w.p, at);
    }
    const size_t before = tp_optim_bytes(b.O);
    lack_memory(b.w.D, true);
    cr_expect_not(tp_step(b.O, 0.1));
    cr_expect(strstr(tp_optim_why(b.O), "adamw: out of memory on"), "%s", tp_optim_why(b.O));
    lack_memory(b.w.D, false);
    cr_expect_eq(tp_optim_bytes(b.O), before);
    cr_expect(tp_step(b.O, 0.1), "%s", tp_optim_why(b.O));
    cr_expect(tp_step(a.O, 0.1), "%s", tp_optim_why(a.O));
    expect_same(&a, &b, "after a step without memory");
    run_free(&a);
    run_free(&b);
}
