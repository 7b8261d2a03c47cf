/* test_optim_files.c - a saved optimiser continues with the same bits; mismatched files are
 * refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/checkpoint.h"
#include "support/device.h"
#include "support/folder.h"
#include "support/optim_world.h"

TestSuite(optim_files, .init = make_folder, .fini = remove_folder);

static void save(const optim_world *w, tp_optim *O, tp_ema *E, const char *path)
{
    tp_writer *W = tp_writer_new(path);
    cr_expect(tp_params_write(w->P, W, ""));
    cr_expect(tp_optim_write(O, W, NULL), "%s", tp_optim_why(O));
    cr_expect(tp_ema_write(E, W, NULL), "%s", tp_ema_why(E));
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

Test(optim_files, stopping_and_continuing_gives_the_same_bits)
{
    static const char *const which[] = {
        "sgd",         "sgd momentum", "qhm damped",      "adamw",     "rmsprop all",
        "adagrad all", "lion decay",   "lamb all",        "adafactor", "adafactor all",
        "muon",        "muon all",     "schedulefree all"
    };
    static double a[OPTIM_LARGEST], b[OPTIM_LARGEST];
    for (size_t c = 0; c < sizeof which / sizeof *which; c++) {
        const optim_form *f = optim_form_of(which[c]);
        const char *path = in_folder("last.safetensors");
        optim_world w = optim_world_new(TP_F32, 2), again = optim_world_new(TP_F32, 2);
        tp_optim *O = optim_make(w.P, f), *O2 = optim_make(again.P, f);
        tp_ema *E = tp_ema_new(w.P, 0.9), *E2 = tp_ema_new(again.P, 0.9);
        for (int step = 0; step < OPTIM_STEPS; step++) {
            if (step == 4) {
                save(&w, O, E, path);
                tp_file *F = tp_file_open(path);
                cr_assert(tp_params_read(again.P, F, "", NULL), "%s", tp_params_why(again.P));
                cr_assert(tp_optim_read(O2, F, NULL), "%s", tp_optim_why(O2));
                cr_assert(tp_ema_read(E2, F, NULL), "%s", tp_ema_why(E2));
                cr_expect_eq(tp_optim_updates(O2), 4);
                tp_file_close(F);
            }
            optim_run_step(&w, O, step, 0.05);
            tp_ema_update(E);
            if (step < 4) continue;
            optim_run_step(&again, O2, step, 0.05);
            tp_ema_update(E2);
        }
        for (int pass = 0; pass < 2; pass++) { /* the values, then the averages */
            for (int i = 0; i < OPTIM_PARAMS; i++) {
                optim_get(&w, i, a);
                optim_get(&again, i, b);
                cr_expect_arr_eq(a, b, (size_t)optim_params[i].numel * sizeof *a, "%s: %s differs",
                                 f->name, optim_params[i].name);
            }
            tp_ema_swap(E);
            tp_ema_swap(E2);
        }
        tp_ema_free(E);
        tp_ema_free(E2);
        tp_optim_free(O);
        tp_optim_free(O2);
        optim_world_free(&w);
        optim_world_free(&again);
    }
}

/* The forged count of all updates or of one parameter's updates is out of range. */
Test(optim_files, a_count_beyond_all_training_is_refused)
{
    const int64_t most = INT64_C(1) << 60, bad[] = { most + 1, INT64_MAX, -1, INT64_MIN };
    const char *path = in_folder("last.safetensors");
    char own[64], why[1200];
    snprintf(own, sizeof own, "optim.updates.%s", optim_params[0].name);
    optim_world w = optim_world_new(TP_F32, 1);
    tp_optim *O = tp_adam_new(w.P, NULL);
    tp_ema *E = tp_ema_new(w.P, 0.9);
    for (int i = 0; i < 10; i++) {
        const char *key = i < 5 ? "optim.updates" : own;
        const int64_t n = i % 5 < 4 ? bad[i % 5] : most;
        save(&w, O, E, path);
        change_number(path, key, n);
        tp_optim *O2 = tp_adam_new(w.P, NULL);
        tp_file *F = tp_file_open(path);
        cr_expect_eq(tp_optim_read(O2, F, NULL), n == most, "%s = %lld", key, (long long)n);
        snprintf(why, sizeof why, "%s: '%s' is out of range: %lld", path, key, (long long)n);
        if (i < 5 && n < 0)
            cr_expect(strstr(tp_optim_why(O2), " holds no optimiser"), "%s", tp_optim_why(O2));
        else
            cr_expect_str_eq(tp_optim_why(O2), n == most ? "" : why, "%s", tp_optim_why(O2));
        tp_file_close(F);
        tp_optim_free(O2);
    }
    tp_ema_free(E);
    tp_optim_free(O);
    optim_world_free(&w);
}

Test(optim_files, a_file_that_does_not_fit_changes_nothing)
{
    static double a[OPTIM_LARGEST], b[OPTIM_LARGEST];
    const char *path = in_folder("last.safetensors"), *weights = in_folder("weights.safetensors");
    char why[1200];
    optim_world w = optim_world_new(TP_F32, 1);
    tp_optim *O = tp_adam_new(w.P, NULL), *other = tp_adamw_new(w.P, NULL);
    tp_ema *E = tp_ema_new(w.P, 0.9);
    optim_run_step(&w, O, 0, 0.1);
    save(&w, O, E, path);
    cr_assert(tp_save(w.P, weights));
    tp_file *F = tp_file_open(path), *plain_file = tp_file_open(weights);

    cr_expect(!tp_optim_read(other, F, NULL));
    snprintf(why, sizeof why, "%s holds state of the optimiser 'adam', this one is 'adamw'", path);
    cr_expect_str_eq(tp_optim_why(other), why);
    cr_expect(!tp_optim_read(O, plain_file, NULL));
    snprintf(why, sizeof why, "%s holds no optimiser state (metadata optim.kind, optim.updates)",
             weights);
    cr_expect_str_eq(tp_optim_why(O), why);
    tp_optim_free(other);
    tp_optim_free(O);

    tp_params *P = tp_params_new(w.D, NULL); /* another model */
    tp_param(P, "one", TP_SHAPE(2), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    tp_param(P, "two", TP_SHAPE(2), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    O = tp_adam_new(P, NULL);
    cr_expect(!tp_optim_read(O, F, NULL));
    snprintf(why, sizeof why,
             "%s does not fit these moments: 3 missing, 18 unknown, 2 of another shape", path);
    cr_expect_eq(strncmp(tp_optim_why(O), why, strlen(why)), 0, "%s", tp_optim_why(O));
    cr_expect_eq(tp_optim_updates(O), 0);

    optim_get(&w, 0, a);
    cr_expect(!tp_ema_read(E, plain_file, NULL));
    optim_get(&w, 0, b);
    cr_expect_arr_eq(a, b, sizeof a);
    tp_file_close(F);
    tp_file_close(plain_file);
    tp_ema_free(E);
    tp_optim_free(O);
    tp_params_free(P);
    optim_world_free(&w);
}
