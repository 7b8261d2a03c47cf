/* test_refusals.c - an unwritable or unreadable file, or a buffer of the wrong size, leaves
 * parameters, optimisers and averages unchanged and usable; several of them share a checkpoint. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "support/device.h"
#include "support/folder.h"

TestSuite(refusals, .init = make_folder, .fini = remove_folder);

enum { IN = 3, OUT = 2 };

typedef struct world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_ema *E;
    tp_linear_m m;
} world;

static world open_world(uint64_t seed)
{
    world w = { .D = device_open(NULL) };
    w.P = tp_params_new(w.D, &(tp_params_opts){ .seed = seed });
    w.T = tp_tape_new(w.D, NULL);
    tp_linear_init(w.P, &w.m, "layer", IN, OUT, true);
    w.O = tp_adam_new(w.P, NULL);
    w.E = tp_ema_new(w.P, 0.5);
    return w;
}

static void close_world(world *w)
{
    tp_ema_free(w->E);
    tp_optim_free(w->O);
    tp_tape_free(w->T);
    tp_params_free(w->P);
    tp_device_close(w->D);
}

static void train(world *w, const char *when)
{
    const float x[IN] = { 1, -2, 3 };
    tp_reset(w->T);
    const tp_tensor y = tp_linear_forward(w->T, &w->m, tp_from(w->T, TP_F32, TP_SHAPE(1, IN), x));
    tp_backward(w->T, tp_sum(w->T, tp_square(w->T, y), TP_ALL));
    cr_expect(tp_ok(w->T), "%s: %s", when, tp_why(w->T));
    cr_expect(tp_step(w->O, 0.01), "%s: %s", when, tp_optim_why(w->O));
    cr_expect(tp_ema_update(w->E), "%s: %s", when, tp_ema_why(w->E));
}

static void values(const world *w, float x[IN * OUT])
{
    cr_assert(tp_param_get(w->P, w->m.weight, TP_F32, x, IN * OUT * sizeof *x), "%s",
              tp_params_why(w->P));
}

static void save(world *w, const char *path)
{
    tp_writer *W = tp_writer_new(path);
    tp_params_write(w->P, W, "");
    tp_optim_write(w->O, W, NULL);
    tp_ema_write(w->E, W, "");
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

static void flip_last_byte(const char *path)
{
    FILE *f = fopen(path, "r+");
    cr_assert(f && fseek(f, -1, SEEK_END) == 0);
    const int c = getc(f);
    cr_assert(fseek(f, -1, SEEK_END) == 0 && putc(c ^ 1, f) != EOF && fclose(f) == 0);
}

/* Each call refuses; returns a part of the reason. */
static const char *refuse(int i, world *w)
{
    const float x[IN * OUT] = { 0 };
    float y[IN * OUT];
    bool done = true;
    const char *part = "";
    switch (i) {
    case 0:
        done = tp_save(w->P, in_folder("no/folder"));
        part = "create the folder first";
        break;
    case 1:
        done = tp_save(w->P, "/dev/full/w.safetensors");
        part = "cannot be written";
        break;
    case 2:
        done = tp_save(w->P, NULL);
        part = "file cannot be written: NULL was given in place of a path";
        break;
    case 3:
        done = tp_load(w->P, in_folder("none"), NULL);
        part = "No such file";
        break;
    case 4:
        done = tp_load(w->P, NULL, NULL);
        part = "file: NULL was given in place of a path";
        break;
    case 5:
        done = tp_load(w->P, "", NULL);
        part = "file: an empty text was given in place of a path";
        break;
    case 6:
        write_text("text", "this is no file of tensors");
        done = tp_load(w->P, in_folder("text"), NULL);
        part = "text: ";
        break;
    case 7:
        done = tp_load(w->P, in_folder("other"), NULL);
        part = "does not fit these parameters";
        break;
    case 8:
        done = tp_load(w->P, in_folder("damaged"), NULL);
        part = "is damaged: its checksum";
        break;
    case 9:
        done = tp_params_read(w->P, NULL, "", NULL);
        part = "file: NULL was given";
        break;
    case 10:
        done = tp_param_get(w->P, w->m.weight, TP_F32, y, 4);
        part = "4 bytes given";
        break;
    case 11:
        done = tp_param_get(w->P, w->m.weight, TP_F32, NULL, sizeof x);
        part = "NULL was given in place of a buffer";
        break;
    case 12:
        done = tp_param_get(w->P, w->m.weight, TP_I64, (int64_t[IN * OUT]){ 0 },
                            IN * OUT * sizeof(int64_t));
        part = "does not convert";
        break;
    case 13:
        done = tp_param_get(w->P, TP_NONE, TP_F32, y, sizeof y);
        part = "tp_param_get: not a parameter";
        break;
    case 14:
        done = tp_param_set(w->P, w->m.weight, TP_F32, x, 4);
        part = "4 bytes given";
        break;
    case 15:
        done = tp_param_get_grad(w->P, w->m.weight, TP_F32, y, sizeof y);
        part = "has no gradient";
        break;
    case 16:
        done = tp_param_set_grad(w->P, w->m.weight, TP_F32, x, 4);
        part = "4 bytes given";
        break;
    case 17:
        done = tp_params_refuse(w->P, TP_E_IO, "a reader's reason");
        part = "a reader's reason";
        break;
    case 18:
        cr_assert(tp_ema_swap(w->E));
        done = tp_param_set(w->P, w->m.weight, TP_F32, x, sizeof x);
        cr_assert(tp_ema_swap(w->E));
        part = "the parameters hold the averages";
        break;
    default: return NULL;
    }
    cr_expect_not(done, "refusal %d", i);
    return part;
}

/* After each refusal the set keeps its values, is ok, trains, and saves elsewhere. */
Test(refusals, parameters)
{
    float before[IN * OUT], after[IN * OUT];
    world other = open_world(2);
    tp_params *Q = tp_params_new(other.D, NULL);
    tp_param(Q, "layer.weight", TP_SHAPE(7), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    cr_assert(tp_save(Q, in_folder("other")), "%s", tp_params_why(Q));
    cr_assert(tp_save(other.P, in_folder("damaged")), "%s", tp_params_why(other.P));
    flip_last_byte(in_folder("damaged"));
    const char *part = "";
    for (int i = 0; part; i++) {
        char name[32];
        world w = open_world(1);
        snprintf(name, sizeof name, "refusal %d", i);
        values(&w, before);
        part = refuse(i, &w);
        if (part) {
            cr_expect(tp_params_ok(w.P), "%s: %s", name, tp_params_why(w.P));
            cr_expect(*part && strstr(tp_params_why(w.P), part), "%s: %s", name,
                      tp_params_why(w.P));
            values(&w, after);
            cr_expect_arr_eq(before, after, sizeof before, "%s: other values", name);
            cr_expect_str_eq(tp_params_why(w.P), "", "%s: dropped by the next such call", name);
            train(&w, name);
            cr_expect(tp_save(w.P, in_folder("elsewhere")), "%s: %s", name, tp_params_why(w.P));
            cr_expect(tp_load(w.P, in_folder("elsewhere"), NULL), "%s: %s", name,
                      tp_params_why(w.P));
        }
        close_world(&w);
    }
    tp_params_free(Q);
    close_world(&other);
}

/* "Load if it is there", as in params.h. */
Test(refusals, load_if_it_is_there)
{
    char text[600] = "";
    world w = open_world(1);
    for (int i = 0; i < 2; i++) {
        const char *path = in_folder("weights.safetensors");
        if (!tp_load(w.P, path, NULL)) snprintf(text, sizeof text, "%s", tp_params_why(w.P));
        train(&w, "after loading");
        cr_assert(tp_save(w.P, path), "%s", tp_params_why(w.P));
    }
    cr_expect(strstr(text, "weights.safetensors: cannot be opened"), "%s", text);
    close_world(&w);
}

Test(refusals, a_failed_set_can_be_cleared)
{
    world w = open_world(1);
    const tp_init zero = { TP_INIT_ZERO, 0, 0 };
    tp_tensor late = tp_param(w.P, "late", TP_SHAPE(1), zero, 0);
    static const char why[] = "tp_param 'late': the parameters are in use already; declare all";
    cr_expect(!tp_params_ok(w.P) && strstr(tp_params_why(w.P), why), "%s", tp_params_why(w.P));
    /* a tape that uses the late parameter reports the set's error */
    tp_square(w.T, late);
    cr_expect(strstr(tp_why(w.T), why), "%s", tp_why(w.T));
    tp_clear(w.T);
    tp_square(w.T, w.m.weight);
    cr_expect(strstr(tp_why(w.T), why), "%s", tp_why(w.T));
    cr_expect_not(tp_save(w.P, in_folder("w")));
    tp_clear(w.T);
    tp_params_clear(w.P);
    cr_expect(tp_params_ok(w.P) && !*tp_params_why(w.P), "%s", tp_params_why(w.P));
    train(&w, "after tp_params_clear");
    cr_expect(tp_save(w.P, in_folder("w")), "%s", tp_params_why(w.P));
    tp_square(w.T, late);
    cr_expect(strstr(tp_why(w.T), "square: input 0: a parameter that could not be declared"), "%s",
              tp_why(w.T));
    tp_clear(w.T);
    close_world(&w);

    tp_params *P = tp_params_new(NULL, NULL);
    tp_params_clear(P);
    cr_expect_not(tp_params_ok(P), "an error of tp_params_new stays");
    tp_params_free(P);
    tp_params_clear(NULL);
}

/* A module that fails between tp_push and tp_pop leaves no prefix. */
Test(refusals, clearing_leaves_prefixes)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    const tp_init zero = { TP_INIT_ZERO, 0, 0 };
    tp_push(P, "a");
    tp_param(P, "w", TP_SHAPE(1), zero, 0);
    tp_param(P, "w", TP_SHAPE(1), zero, 0);
    tp_pop(P);
    tp_params_clear(P);
    tp_param(P, "b", TP_SHAPE(1), zero, 0);
    cr_expect(tp_given(tp_find(P, "b")) && tp_save(P, in_folder("w")), "%s", tp_params_why(P));
    tp_params_free(P);
    tp_device_close(D);
}

static void expect_refused(bool done, bool ok, const char *why, const char *part)
{
    cr_expect(!done && ok, "%s", why);
    cr_expect(strstr(why, part), "%s lacks: %s", why, part);
}

Test(refusals, optimisers_and_averages)
{
    world w = open_world(1), v = open_world(2);
    train(&w, "first");
    save(&w, in_folder("whole"));
    cr_assert(tp_save(w.P, in_folder("plain")));
    tp_file *F[] = { tp_file_open(in_folder("plain")), tp_file_open(in_folder("none")), NULL };
    static const char *const moments[] = { "plain holds no optimiser state", "No such file",
                                           "NULL was given in place of a file" };
    static const char *const averages[] = { "does not fit these averages", "No such file",
                                            "NULL was given in place of a file" };
    for (int i = 0; i < 3; i++) {
        const bool read = tp_optim_read(v.O, F[i], NULL);
        expect_refused(read, tp_optim_ok(v.O), tp_optim_why(v.O), moments[i]);
        const bool averaged = tp_ema_read(v.E, F[i], NULL);
        expect_refused(averaged, tp_ema_ok(v.E), tp_ema_why(v.E), averages[i]);
        train(&v, "after a refused file");
    }
    /* the last tensor of each is damaged */
    tp_writer *W[] = { tp_writer_new(in_folder("moments")), tp_writer_new(in_folder("averages")) };
    tp_optim_write(w.O, W[0], NULL);
    tp_ema_write(w.E, W[1], NULL);
    tp_file *damaged[2];
    for (int i = 0; i < 2; i++) {
        cr_assert(tp_writer_commit(W[i]), "%s", tp_writer_why(W[i]));
        tp_writer_free(W[i]);
        flip_last_byte(in_folder(i ? "averages" : "moments"));
        damaged[i] = tp_file_open(in_folder(i ? "averages" : "moments"));
    }
    const bool read = tp_optim_read(v.O, damaged[0], NULL);
    expect_refused(read, tp_optim_ok(v.O), tp_optim_why(v.O), "is damaged: its checksum");
    const bool averaged = tp_ema_read(v.E, damaged[1], NULL);
    expect_refused(averaged, tp_ema_ok(v.E), tp_ema_why(v.E), "is damaged: its checksum");
    cr_expect_eq(tp_optim_updates(v.O), 3);
    train(&v, "after a damaged file");
    save(&w, in_folder("again"));
    tp_file *good = tp_file_open(in_folder("again"));
    cr_expect(tp_optim_read(v.O, good, NULL), "%s", tp_optim_why(v.O));
    cr_expect(tp_ema_read(v.E, good, NULL), "%s", tp_ema_why(v.E));
    cr_expect_str_eq(tp_optim_why(v.O), "");
    cr_expect_str_eq(tp_ema_why(v.E), "");
    /* a refused update is cleared by the next one */
    cr_assert(tp_ema_swap(v.E));
    cr_expect(!tp_ema_update(v.E) && !tp_ema_ok(v.E), "%s", tp_ema_why(v.E));
    cr_assert(tp_ema_swap(v.E));
    train(&v, "after a refused update");
    tp_file_close(F[0]);
    tp_file_close(F[1]);
    tp_file_close(damaged[0]);
    tp_file_close(damaged[1]);
    tp_file_close(good);
    close_world(&v);
    close_world(&w);
}

/* ---- several in one file ---- */

Test(refusals, two_optimisers_in_one_file)
{
    static const char *const prefix[] = { "generator.", "discriminator." };
    const char *path = in_folder("gan");
    float x[2][IN * OUT], y[IN * OUT];
    world w[2] = { open_world(1), open_world(2) };
    tp_plateau S[2] = { tp_plateau_usual(0.1), tp_plateau_usual(0.2) };
    tp_writer *W = tp_writer_new(path);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k <= i; k++) train(&w[i], prefix[i]);
        tp_params_write(w[i].P, W, prefix[i]);
        tp_optim_write(w[i].O, W, prefix[i]);
        tp_ema_write(w[i].E, W, prefix[i]);
        tp_plateau_write(&S[i], W, prefix[i]);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(path);
    for (int i = 0; i < 2; i++) {
        world v = open_world(7);
        tp_plateau s = tp_plateau_usual(1.0);
        cr_expect(tp_params_read(v.P, F, prefix[i], NULL), "%s", tp_params_why(v.P));
        cr_expect(tp_optim_read(v.O, F, prefix[i]), "%s", tp_optim_why(v.O));
        cr_expect(tp_ema_read(v.E, F, prefix[i]), "%s", tp_ema_why(v.E));
        cr_expect(tp_plateau_read(&s, F, prefix[i]) && s.lr == S[i].lr);
        cr_expect_eq(tp_optim_updates(v.O), i + 1);
        train(&w[i], prefix[i]);
        train(&v, prefix[i]);
        values(&w[i], x[i]);
        values(&v, y);
        cr_expect_arr_eq(x[i], y, sizeof y, "%s other weights", prefix[i]);
        cr_assert(tp_ema_swap(w[i].E) && tp_ema_swap(v.E));
        values(&w[i], x[i]);
        values(&v, y);
        cr_expect_arr_eq(x[i], y, sizeof y, "%s other averages", prefix[i]);
        cr_expect(!tp_optim_read(v.O, F, "critic.") &&
                      strstr(tp_optim_why(v.O), "metadata critic.optim.kind, critic.optim.updates"),
                  "%s", tp_optim_why(v.O));
        close_world(&v);
        close_world(&w[i]);
    }
    tp_file_close(F);
}

/* ---- objects that are freed in the wrong order ---- */

Test(refusals, parameters_freed_first)
{
    world w = open_world(1);
    train(&w, "first");
    tp_ema_swap(w.E);
    const tp_tensor weight = w.m.weight;
    tp_params_free(w.P);
    tp_params_free(w.P); /* does nothing */
    cr_expect(!tp_params_ok(w.P) && strstr(tp_params_why(w.P), "tp_params_free has freed these"),
              "%s", tp_params_why(w.P));
    cr_expect(!tp_save(w.P, in_folder("w")) && !tp_given(tp_find(w.P, "layer.weight")));
    tp_reset(w.T);
    const tp_tensor x = tp_full(w.T, TP_F32, TP_SHAPE(1, IN), 1.0);
    tp_linear_forward(w.T, &w.m, x);
    cr_expect(strstr(tp_why(w.T), "belonged to parameters that tp_params_free has freed"), "%s",
              tp_why(w.T));
    cr_expect(strstr(tp_why(w.T), ", in layer, op"), "%s", tp_why(w.T));
    tp_clear(w.T);
    cr_expect_not(tp_step(w.O, 0.1));
    cr_expect(strstr(tp_optim_why(w.O), "tp_step: tp_params_free has freed the parameters"), "%s",
              tp_optim_why(w.O));
    cr_expect_not(tp_optim_set(w.O, "eps", 0.1));
    cr_expect(!tp_ema_update(w.E) && !tp_ema_swap(w.E));
    cr_expect(strstr(tp_ema_why(w.E), "tp_params_free has freed the parameters"), "%s",
              tp_ema_why(w.E));
    /* another set does not take their place */
    tp_params *Q = tp_params_new(w.D, NULL);
    tp_param(Q, "other", TP_SHAPE(1), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    cr_expect(!tp_step(w.O, 0.1) && !tp_ema_update(w.E));
    float y;
    cr_expect_not(tp_param_get(Q, weight, TP_F32, &y, sizeof y));
    tp_ema_free(w.E);
    tp_optim_free(w.O);
    cr_expect(tp_save(Q, in_folder("q")), "%s", tp_params_why(Q));
    tp_params_free(Q);
    tp_tape_free(w.T);
    tp_device_close(w.D);
}

Test(refusals, tape_freed_first)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL), *early = tp_tape_new(D, NULL);
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(2), 1.0);
    tp_tape_free(T);
    cr_expect_not(tp_ok(T));
    tp_square(T, x);
    cr_expect_str_eq(tp_why(T), "tape: tp_tape_free has freed this tape");
    tp_reset(T);
    tp_clear(T);
    tp_tape_free(T); /* does nothing */
    tp_tape *U = tp_tape_new(D, NULL);
    tp_tape *both[] = { early, U };
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) { /* before and after the tape has taken over the memory */
            tp_square(both[i], x);
            cr_expect(strstr(tp_why(both[i]), "belonged to another tape, which has released it"),
                      "%d %d: %s", i, k, tp_why(both[i]));
            tp_clear(both[i]);
            for (int n = 0; n < 600; n++) tp_full(both[i], TP_F32, TP_SHAPE(1), 0.0);
        }
    tp_tape_free(U);
    tp_tape_free(early);
    tp_device_close(D);
}

Test(refusals, device_closed_first)
{
    world w = open_world(1);
    const tp_tensor x = tp_full(w.T, TP_F32, TP_SHAPE(1, IN), 1.0);
    tp_device_close(w.D);
    tp_device_close(w.D); /* does nothing */
    tp_linear_forward(w.T, &w.m, x);
    cr_expect(
        strstr(tp_why(w.T), "tp_device_close has closed it; free the objects on a device first"),
        "%s", tp_why(w.T));
    tp_params *P = tp_params_new(w.D, NULL);
    cr_expect_not(tp_params_ok(P));
    tp_params_free(P);
    tp_params_free(w.P);
    tp_ema_free(w.E);
    tp_optim_free(w.O);
    tp_tape_free(w.T);
}
