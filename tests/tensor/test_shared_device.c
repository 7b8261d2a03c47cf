/* test_shared_device.c - threads with separate tapes share a device and a parameter set: counts
 * stay right, and any thread may be the set's first user, which completes it and makes its bf16
 * copy. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <tapegrad/tapegrad.h>

enum { THREADS = 4, OPS = 2000, ROUNDS = 20, SIDE = 8 };

typedef struct shared {
    tp_device *D;
    tp_params *P;
    tp_linear_m m;
    tp_dtype compute;
    atomic_int waiting;
    double sum[THREADS];
} shared;

typedef struct job {
    shared *s;
    int thread;
} job;

static void wait_for_all(shared *s)
{
    atomic_fetch_sub(&s->waiting, 1);
    while (atomic_load(&s->waiting) > 0)
        ;
}

static void run(shared *s, void *(*body)(void *))
{
    pthread_t thread[THREADS];
    job jobs[THREADS];
    atomic_store(&s->waiting, THREADS);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){ s, i };
        cr_assert_eq(pthread_create(&thread[i], NULL, body, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
}

static void *count(void *env)
{
    const job *j = env;
    tp_tape *T = tp_tape_new(j->s->D, NULL);
    wait_for_all(j->s);
    for (int i = 0; i < OPS; i++) {
        tp_relu(T, tp_full(T, TP_F32, TP_SHAPE(1), 1.0));
        tp_item(T, tp_full(T, TP_F32, TP_SHAPE(1), 1.0));
        if (i % 64 == 0) tp_reset(T);
    }
    tp_tape_free(T);
    return NULL;
}

Test(shared_device, every_op_and_wait_is_counted)
{
    for (int profiled = 0; profiled < 2; profiled++) {
        shared s = { .D = tp_device_open("cpu",
                                         &(tp_device_opts){ .threads = 1, .profile = profiled }) };
        tp_op_time line;
        run(&s, count);
        cr_expect_eq(tp_device_stats(s.D).launches, THREADS * OPS);
        cr_expect_eq(tp_device_stats(s.D).syncs, THREADS * OPS);
        cr_expect_eq(tp_device_profile(s.D, &line, 1), profiled);
        if (profiled) cr_expect_eq(line.calls, THREADS * OPS);
        tp_device_close(s.D);
    }
}

static void *forward(void *env)
{
    const job *j = env;
    float x[SIDE];
    for (int i = 0; i < SIDE; i++) x[i] = (float)(i - 3);
    tp_tape *T = tp_tape_new(j->s->D, &(tp_tape_opts){ .compute = j->s->compute });
    tp_record(T, false);
    wait_for_all(j->s);
    const tp_tensor y = tp_linear_forward(T, &j->s->m, tp_from(T, TP_F32, TP_SHAPE(1, SIDE), x));
    j->s->sum[j->thread] = tp_item(T, tp_sum(T, tp_cast(T, y, TP_F32), TP_ALL));
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    return NULL;
}

Test(shared_device, first_use_of_parameters_by_several_threads)
{
    for (int i = 0; i < 2 * ROUNDS; i++) {
        shared s = { .D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 }),
                     .compute = i % 2 ? TP_BF16 : TP_F32 };
        s.P = tp_params_new(s.D, NULL);
        tp_linear_init(s.P, &s.m, "m", SIDE, SIDE, true);
        run(&s, forward);
        for (int k = 1; k < THREADS; k++) cr_expect_eq(s.sum[k], s.sum[0]);
        tp_params_free(s.P);
        tp_device_close(s.D);
    }
}

static void *come_and_go(void *env)
{
    const job *j = env;
    wait_for_all(j->s);
    for (int i = 0; i < 50; i++) {
        tp_params *P = tp_params_new(j->s->D, NULL);
        tp_tape *T = tp_tape_new(j->s->D, NULL);
        tp_linear_m m;
        tp_linear_init(P, &m, "m", SIDE, SIDE, true);
        tp_linear_forward(T, &m, tp_full(T, TP_F32, TP_SHAPE(1, SIDE), 1.0));
        cr_expect(tp_ok(T), "%s", tp_why(T));
        tp_tape_free(T);
        tp_params_free(P);
    }
    return NULL;
}

Test(shared_device, objects_come_and_go)
{
    shared s = { .D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 }) };
    run(&s, come_and_go);
    cr_expect_eq(tp_device_stats(s.D).live_bytes, 0);
    tp_device_close(s.D);
}
