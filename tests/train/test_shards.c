/* test_shards.c - processes that divide an optimiser's moments make the same steps, bit for bit, as
 * processes that each have all of them, and write the same files. Processes are threads. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/peers.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/optim_world.h"
#include "support/sanitized.h"
#include "support/thread_transport.h"
#include "support/weigh.h"
#include "tensor/backend.h"

enum { STEPS = 10, BUCKET = 40000 }; /* bytes: several buckets */

TestSuite(shards, .init = make_folder, .fini = remove_folder, .timeout = 1200);

/* ---- a process ---- */

typedef struct process {
    optim_world w;
    bool late; /* the first parameter is frozen until step 3 */
    tp_peers *G;
    tp_exchange *X;
    tp_optim *O;
} process;

static process process_late(tp_peers *G, const optim_form *f, tp_dtype dt, bool shard, bool late)
{
    process p = { .w = optim_world_new(dt, 1), .late = late, .G = G };
    if (late) tp_freeze(p.w.P, optim_params[0].name, true);
    p.X = tp_exchange_new(p.w.P, G, &(tp_exchange_opts){ .bucket = BUCKET, .shard = shard });
    p.O = optim_make(p.w.P, f);
    cr_expect(tp_exchange_ok(p.X), "%s", tp_exchange_why(p.X));
    cr_expect(tp_optim_ok(p.O), "%s", tp_optim_why(p.O));
    return p;
}

static process process_new(tp_peers *G, const optim_form *f, tp_dtype dt, bool shard)
{
    return process_late(G, f, dt, shard, false);
}

static void process_free(process *p)
{
    tp_optim_free(p->O);
    tp_exchange_free(p->X);
    optim_world_free(&p->w);
}

/* Besides optim_reached: in step 5 only rank 0 reaches the first parameter, in step 6 all but rank
 * 0 reach the second. */
static bool reaches(int step, int i, int rank)
{
    if (step == 5 && i == 0) return rank == 0;
    if (step == 6 && i == 1) return rank > 0;
    return i == 2 || optim_reached(step, i);
}

/* The gradients of this process. */
static void backward(process *p, int step)
{
    double(*g)[OPTIM_LARGEST] = malloc(OPTIM_PARAMS * sizeof *g);
    const int rank = tp_peers_rank(p->G);
    tp_tensor at[OPTIM_PARAMS];
    double *host[OPTIM_PARAMS];
    int n = 0;
    for (int i = 0; i < OPTIM_PARAMS; i++) {
        if (!reaches(step, i, rank)) continue;
        optim_gradient(step * THREAD_RANKS + rank, i, g[i]);
        at[n] = p->w.p[i];
        host[n++] = g[i];
    }
    give_grads(p->w.T, n, at, host);
    free(g);
}

/* Makes a step and returns the norm of the gradients. clip 0: only measures. */
static double step_of(process *p, int step, double clip)
{
    tp_freeze(p->w.P, "one", step == 2);
    if (p->late) tp_freeze(p->w.P, optim_params[0].name, step < 3);
    tp_exchange_begin(p->X);
    backward(p, step);
    cr_expect(tp_exchange_finish(p->X), "%s", tp_exchange_why(p->X));
    const double norm = tp_item(p->w.T, tp_clip_grad_norm(p->w.P, clip));
    cr_expect(tp_step(p->O, 0.05 / (step + 1)), "%s", tp_optim_why(p->O));
    return norm;
}

static void expect_same_values(const process *a, const process *b, const char *name)
{
    double *x = malloc(OPTIM_LARGEST * sizeof *x), *y = malloc(OPTIM_LARGEST * sizeof *y);
    for (int i = 0; i < OPTIM_PARAMS; i++) {
        optim_get(&a->w, i, x);
        optim_get(&b->w, i, y);
        cr_expect(memcmp(x, y, (size_t)optim_params[i].numel * sizeof *x) == 0,
                  "%s, rank %d of %d: %s differs", name, tp_peers_rank(a->G), tp_peers_count(a->G),
                  optim_params[i].name);
    }
    free(x);
    free(y);
}

/* ---- the same bits ---- */

typedef struct trial {
    const optim_form *form;
    tp_dtype dt;
    double clip;
    bool late;
} trial;

static void compare(void *env, tp_peers *G)
{
    const trial *t = env;
    process whole = process_late(G, t->form, t->dt, false, t->late);
    process part = process_late(G, t->form, t->dt, true, t->late);
    for (int step = 0; step < STEPS; step++) {
        const double a = step_of(&whole, step, t->clip), b = step_of(&part, step, t->clip);
        cr_expect(a == b && a > 0, "%s, step %d: norms %.17g and %.17g", t->form->name, step, a, b);
    }
    expect_same_values(&whole, &part, t->form->name);
    for (int i = 0; i < 2 && tp_optim_has_averages(whole.O); i++) { /* there and back */
        cr_expect(tp_optim_swap(whole.O) && tp_optim_swap(part.O), "%s", tp_optim_why(part.O));
        expect_same_values(&whole, &part, "averages");
    }
    cr_expect_eq(tp_optim_updates(part.O), STEPS);
    process_free(&part);
    process_free(&whole);
}

Test(shards, same_steps_as_with_all_moments)
{
    for (const optim_form *f = optim_forms; f->name; f++) {
        if (device_is_emulated() && strchr(f->name, ' ')) continue;
        for (int f64 = 0; f64 <= !device_is_cuda(); f64++)
            run_ranks(3, compare, &(trial){ f, f64 ? TP_F64 : TP_F32, f64 ? 0 : 1.0, f64 });
    }
}

Test(shards, any_number_of_processes)
{
    static const char *const forms[] = { "sgd",           "adamw factors", "lamb all",
                                         "adafactor all", "muon",          "schedulefree all" };
    for (int ranks = 1; ranks <= 4; ranks++)
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            const bool odd = ranks % 2;
            if (device_is_emulated() && (ranks + (int)f) % (sanitized() ? 4 : 2)) continue;
            run_ranks(ranks, compare,
                      &(trial){ optim_form_of(forms[f]), TP_F32, odd ? 0.3 : 0.0, odd });
        }
}

/* ---- memory ---- */

typedef struct sizes {
    const optim_form *form;
    size_t whole[THREAD_RANKS], part[THREAD_RANKS];
} sizes;

static void measure(void *env, tp_peers *G)
{
    sizes *s = env;
    const int rank = tp_peers_rank(G);
    process whole = process_new(G, s->form, TP_F32, false);
    const size_t before = tp_device_stats(whole.w.D).live_bytes;
    process part = process_new(G, s->form, TP_F32, true);
    s->whole[rank] = tp_optim_bytes(whole.O);
    s->part[rank] = tp_optim_bytes(part.O);
    const size_t less = before - tp_device_stats(part.w.D).live_bytes;
    cr_expect(llabs((long long)(s->whole[rank] - s->part[rank] - less)) < 2048,
              "%s: the device has %zu bytes less, the moments %zu", s->form->name, less,
              s->whole[rank] - s->part[rank]);
    process_free(&part);
    process_free(&whole);
}

Test(shards, moments_take_a_share_of_the_memory)
{
    static const char *const forms[] = { "adamw", "lamb", "adafactor" };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        sizes s = { .form = optim_form_of(forms[f]) };
        size_t sum = 0, most = 0;
        run_ranks(4, measure, &s);
        for (int k = 0; k < 4; k++) {
            sum += s.part[k];
            if (s.part[k] > most) most = s.part[k];
        }
        cr_expect(sum <= s.whole[0] + 8192 && sum + 8192 >= s.whole[0], "%s: %zu, in parts %zu",
                  forms[f], s.whole[0], sum);
        /* Lamb's and Adafactor's owners have whole parameters. */
        const double share = f == 0 ? 0.31 : 0.7;
        cr_expect((double)most <= share * (double)s.whole[0], "%s: %zu of %zu", forms[f], most,
                  s.whole[0]);
    }
}

/* ---- files ---- */

typedef struct stage { /* some steps, from one file to another */
    const optim_form *form;
    tp_dtype dt;
    bool shard, late;
    int begin, end;
    const char *from, *to; /* from NULL: the beginning */
} stage;

static void run_stage(void *env, tp_peers *G)
{
    const stage *t = env;
    process p = process_late(G, t->form, t->dt, t->shard, t->late);
    tp_file *F = t->from ? tp_file_open(t->from) : NULL;
    cr_expect(!F || tp_params_read(p.w.P, F, "", NULL), "%s", tp_params_why(p.w.P));
    cr_expect(!F || tp_optim_read(p.O, F, NULL), "%s", tp_optim_why(p.O));
    tp_file_close(F);
    for (int step = t->begin; step < t->end; step++) step_of(&p, step, 1.0);
    tp_writer *W = tp_writer_new(t->to);
    cr_expect(tp_params_write(p.w.P, W, ""));
    cr_expect(tp_optim_write(p.O, W, NULL), "%s", tp_writer_why(W));
    cr_expect(tp_peers_commit(G, W, NULL), "%s", tp_writer_why(W));
    tp_writer_free(W);
    process_free(&p);
}

static bool same_content(const char *a, const char *b)
{
    static char x[1 << 20], y[1 << 20];
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    cr_assert(f && g);
    const size_t n = fread(x, 1, sizeof x, f), m = fread(y, 1, sizeof y, g);
    fclose(f);
    fclose(g);
    return n == m && n > 1000 && memcmp(x, y, n) == 0;
}

/* Runs of 4, 2, 3 processes and one continue each other, with whole and with divided moments. */
Test(shards, files_do_not_know_who_had_the_moments)
{
    static const char *const forms[] = { "sgd momentum", "adamw",       "rmsprop all",
                                         "adagrad all",  "lamb all",    "adafactor all",
                                         "muon",         "schedulefree" };
    static const int ranks[] = { 4, 2, 3, 1 }, begin[] = { 0, 3, 6, 8, 10 };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        char whole[5][600], part[5][600];
        for (int s = 0; s < 5; s++) {
            snprintf(whole[s], sizeof whole[s], "%s/whole%d", folder, s);
            snprintf(part[s], sizeof part[s], "%s/part%d", folder, s);
        }
        for (int s = 0; s < 4; s++) {
            stage t = { .form = optim_form_of(forms[f]),
                        .dt = device_is_cuda() || f % 2 ? TP_F32 : TP_F64,
                        .late = f % 2,
                        .begin = begin[s],
                        .end = begin[s + 1],
                        .from = s ? whole[s - 1] : NULL,
                        .to = whole[s] };
            run_ranks(ranks[s], run_stage, &t);
            t.shard = true;
            t.from = s ? part[s - 1] : NULL;
            t.to = part[s];
            run_ranks(ranks[s], run_stage, &t);
            cr_expect(same_content(whole[s], part[s]), "%s: after %d steps the files differ",
                      forms[f], begin[s + 1]);
        }
    }
}

/* ---- failures ---- */

static void create_too_early(void *env, tp_peers *G)
{
    static const char *const why = "tp_step: the moments are not divided among the processes as "
                                   "the gradients are; create the optimiser after tp_exchange_new";
    (void)env;
    process p = { .w = optim_world_new(TP_F32, 1), .G = G };
    p.O = tp_adam_new(p.w.P, NULL);
    p.X = tp_exchange_new(p.w.P, G, &(tp_exchange_opts){ .shard = true });
    tp_exchange_begin(p.X);
    backward(&p, 0);
    cr_expect(tp_exchange_finish(p.X), "%s", tp_exchange_why(p.X));
    cr_expect_not(tp_step(p.O, 0.1));
    cr_expect_eq(strncmp(tp_optim_why(p.O), why, strlen(why)), 0, "%s", tp_optim_why(p.O));
    tp_optim_free(p.O);
    p.O = tp_adam_new(p.w.P, NULL);
    cr_expect(tp_step(p.O, 0.1), "%s", tp_optim_why(p.O));
    process_free(&p);
}

Test(shards, an_optimiser_older_than_the_exchange_is_refused)
{
    run_ranks(2, create_too_early, NULL);
}

/* Gives each process gradients; `nan` has one NaN among its own. */
static void give(process *p, bool nan)
{
    tp_exchange_begin(p->X);
    backward(p, 0);
    double *g = calloc(OPTIM_LARGEST, sizeof *g);
    if (nan) g[17000] = (double)NAN;
    give_grads(p->w.T, 1, &p->w.p[5], &g);
    free(g);
    cr_expect(tp_exchange_finish(p->X), "%s", tp_exchange_why(p->X));
}

typedef struct fault {
    int rank; /* the process in which something fails */
    int step; /* 0: clipping fails, 1: the step */
    atomic_int named;
} fault;

/* No process steps, and the one that sums the element names it. */
static void bring_nan(void *env, tp_peers *G)
{
    fault *f = env;
    process p = process_new(G, optim_form_of("adamw"), TP_F32, true);
    give(&p, tp_peers_rank(G) == f->rank);
    cr_expect(isnan(tp_item(p.w.T, tp_clip_grad_norm(p.w.P, 1.0))));
    cr_expect_not(tp_step(p.O, 0.1));
    cr_expect_eq(tp_optim_code(p.O), TP_E_NONFINITE);
    if (strstr(tp_optim_why(p.O), "element 17000 of the gradient of 'stack.weight' is NaN;"))
        f->named++;
    else
        cr_expect(strstr(tp_optim_why(p.O), "nan, while all gradients that this process sums are "
                                            "finite; tp_step refuses"),
                  "%s", tp_optim_why(p.O));
    process_free(&p);
}

Test(shards, nan_stops_all)
{
    device_cpu_only(); /* a GPU does not wait for the norm */
    for (int bad = 0; bad < 3; bad++) {
        fault f = { .rank = bad };
        run_ranks(3, bring_nan, &f);
        cr_expect_eq(f.named, 1);
    }
}

static void lack_memory(tp_device *D, bool lacks)
{
    D->heap.fail_at = lacks ? 1 : 0;
    D->heap.fail_count = UINT64_MAX;
    D->heap.exact = lacks; /* no free memory is reused */
}

static void run_out(void *env, tp_peers *G)
{
    const fault *f = env;
    process p = process_new(G, optim_form_of("lamb"), TP_F32, true);
    const bool here = tp_peers_rank(G) == f->rank;
    give(&p, false);
    lack_memory(p.w.D, here && f->step == 0);
    tp_clip_grad_norm(p.w.P, 1.0);
    lack_memory(p.w.D, here && f->step == 1);
    const bool done = tp_step(p.O, 0.1);
    cr_expect_eq(done, f->step == 1 && !here, "rank %d: %s", tp_peers_rank(G), tp_optim_why(p.O));
    cr_expect(!here || strstr(tp_optim_why(p.O), "out of memory"), "%s", tp_optim_why(p.O));
    process_free(&p);
}

/* No process swaps if one has no memory for the copy. */
static void run_out_in_swap(void *env, tp_peers *G)
{
    const fault *f = env;
    process p = process_new(G, optim_form_of("schedulefree"), TP_F32, true);
    const bool here = tp_peers_rank(G) == f->rank;
    double(*x)[OPTIM_LARGEST] = malloc(2 * sizeof *x);
    step_of(&p, 0, 0);
    optim_get(&p.w, 2, x[0]);
    lack_memory(p.w.D, here);
    cr_expect_not(tp_optim_swap(p.O));
    cr_expect(strstr(tp_optim_why(p.O), here ? "out of memory" : "another process could not"),
              "rank %d: %s", tp_peers_rank(G), tp_optim_why(p.O));
    lack_memory(p.w.D, false);
    optim_get(&p.w, 2, x[1]);
    cr_expect(memcmp(x[0], x[1], (size_t)optim_params[2].numel * sizeof **x) == 0);
    cr_expect(tp_optim_swap(p.O) && tp_optim_swap(p.O), "%s", tp_optim_why(p.O));
    free(x);
    process_free(&p);
}

Test(shards, nobody_waits_for_a_process_without_memory)
{
    device_cpu_only();
    run_ranks(3, run_out_in_swap, &(fault){ .rank = 1 });
    for (int step = 0; step < 2; step++) run_ranks(3, run_out, &(fault){ .rank = 1, .step = step });
}
