/* test_dlpack.c - exports and imports: nothing is copied, each deleter runs once and when the
 * header says so, values stay as promised, what cannot be shared is refused. In the first half the
 * producer is the test, with memory of the host; the second half runs on the suite's device. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/capture.h>
#include <tapegrad/dlpack.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

/* ---- a producer ---- */

typedef struct producer {
    tp_dlpack m;
    int64_t shape[9], strides[9];
    float data[64];
    int deleted;
} producer;

static void deleted(tp_dlpack *m)
{
    ((producer *)m->context)->deleted++;
}

/* f32 [2,3] of 0, 1, ... on the host. */
static producer *make(producer *p)
{
    *p = (producer){ .shape = { 2, 3 }, .strides = { 3, 1 } };
    for (int i = 0; i < 64; i++) p->data[i] = (float)i;
    p->m = (tp_dlpack){ .version = { 1, 7 },
                        .context = p,
                        .deleter = deleted,
                        .tensor = { .data = p->data,
                                    .device = { TP_DL_CPU, 0 },
                                    .ndim = 2,
                                    .dtype = { TP_DL_FLOAT, 32, 1 },
                                    .shape = p->shape,
                                    .strides = p->strides } };
    return p;
}

static tp_device *D;
static tp_tape *T;

static void begin(void)
{
    device_cpu_only();
    D = tp_device_open("cpu", NULL);
    T = tp_tape_new(D, NULL);
}

static void end(void)
{
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- import ---- */

Test(dlpack, import_shares_the_memory)
{
    producer p;
    float found[6];
    begin();
    const tp_tensor x = tp_from_dlpack(T, &make(&p)->m);
    cr_expect(tp_ndim(x) == 2 && tp_dim(x, 0) == 2 && tp_dim(x, 1) == 3);
    cr_expect_eq(tp_dtype_of(x), TP_F32);
    p.data[4] = 40; /* before the first op: not copied */
    cr_expect_eq(tp_item(T, tp_sum(T, x, TP_ALL)), 51);
    cr_expect(tp_read(T, x, found, sizeof found) && memcmp(found, p.data, sizeof found) == 0);
    cr_expect_eq(p.deleted, 0);
    tp_reset(T);
    cr_expect_eq(p.deleted, 1, "the reset drops it");
    cr_expect(tp_ok(T), "%s", tp_why(T));
    end();
    cr_expect_eq(p.deleted, 1);
}

/* Scopes, records and views decide how long the memory is needed. */
Test(dlpack, import_lives_as_long_as_it_is_needed)
{
    producer p, q;
    begin();
    const tp_tensor w = tp_input(T, TP_F32, TP_SCALAR, &(float){ 2 });
    tp_enter(T, "scope");
    const tp_tensor kept = tp_mul(T, tp_from_dlpack(T, &make(&p)->m), w);
    const tp_tensor y = tp_leave(T, kept);
    cr_expect_eq(p.deleted, 0, "backward needs it");
    tp_backward(T, tp_sum(T, y, TP_ALL));
    cr_expect_eq(p.deleted, 1, "after backward nothing does");
    cr_expect_eq(tp_item(T, tp_grad(T, w)), 15);
    tp_enter(T, "scope");
    const tp_tensor flat = tp_leave(T, tp_reshape(T, tp_from_dlpack(T, &make(&q)->m), TP_SHAPE(6)));
    cr_expect_eq(q.deleted, 0, "a view needs it");
    cr_expect_eq(tp_item(T, tp_sum(T, flat, TP_ALL)), 15);
    tp_tape_free(T);
    cr_expect_eq(q.deleted, 1);
    T = NULL;
    end();
}

Test(dlpack, import_with_a_gradient)
{
    producer p, q;
    float g[6];
    begin();
    const tp_tensor x = tp_input_dlpack(T, &make(&p)->m);
    tp_backward(T, tp_sum(T, tp_mul(T, x, x), TP_ALL));
    cr_expect(tp_read(T, tp_grad(T, x), g, sizeof g));
    for (int i = 0; i < 6; i++) cr_expect_eq(g[i], 2 * (float)i);
    make(&q)->m.tensor.dtype = (tp_dl_dtype){ TP_DL_INT, 32, 1 };
    tp_input_dlpack(T, &q.m);
    cr_expect(strstr(tp_why(T), "tp_input_dlpack: i32 tensors have no gradient"), "%s", tp_why(T));
    cr_expect_eq(q.deleted, 1);
    end();
}

/* What is carried may be written (tp_feed, tp_write_rows), so it is a copy. */
Test(dlpack, carrying_copies)
{
    producer p;
    const float next[6] = { 9, 9, 9, 9, 9, 9 };
    tp_tensor slot = TP_NONE;
    begin();
    tp_carry(T, &slot, tp_from_dlpack(T, &make(&p)->m));
    tp_reset(T);
    cr_expect_eq(p.deleted, 1);
    p.data[5] = 100;
    cr_expect_eq(tp_item(T, tp_sum(T, slot, TP_ALL)), 15);
    tp_feed(T, &slot, TP_F32, TP_SHAPE(2, 3), next);
    cr_expect_eq(p.data[0], 0);
    end();
}

Test(dlpack, import_of_layouts)
{
    producer p;
    begin();
    make(&p)->m.tensor.strides = NULL;
    p.m.tensor.byte_offset = 8;
    cr_expect_eq(tp_item(T, tp_sum(T, tp_from_dlpack(T, &p.m), TP_ALL)), 2 + 3 + 4 + 5 + 6 + 7);
    tp_reset(T);
    make(&p)->m.tensor.ndim = 3; /* strides of axes of size 1 do not matter */
    memcpy(p.shape, (int64_t[]){ 2, 1, 3 }, 24);
    memcpy(p.strides, (int64_t[]){ 3, 77, 1 }, 24);
    cr_expect_eq(tp_item(T, tp_sum(T, tp_from_dlpack(T, &p.m), TP_ALL)), 15);
    tp_reset(T);
    make(&p)->m.tensor.ndim = 0;
    p.m.tensor.shape = p.m.tensor.strides = NULL;
    p.data[0] = 5;
    cr_expect_eq(tp_item(T, tp_from_dlpack(T, &p.m)), 5);
    tp_reset(T);
    make(&p)->shape[0] = 0; /* no elements: no memory, and nothing to keep */
    p.m.tensor.data = NULL;
    const tp_tensor none = tp_from_dlpack(T, &p.m);
    cr_expect(tp_dim(none, 0) == 0 && tp_dim(none, 1) == 3);
    cr_expect_eq(p.deleted, 1);
    make(&p)->m.deleter = NULL; /* memory that nobody frees */
    tp_from_dlpack(T, &p.m);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    end();
}

Test(dlpack, dtypes)
{
    static const struct {
        tp_dl_dtype theirs;
        tp_dtype ours;
    } same[] = { { { TP_DL_FLOAT, 32, 1 }, TP_F32 },   { { TP_DL_FLOAT, 64, 1 }, TP_F64 },
                 { { TP_DL_BFLOAT, 16, 1 }, TP_BF16 }, { { TP_DL_INT, 32, 1 }, TP_I32 },
                 { { TP_DL_INT, 64, 1 }, TP_I64 },     { { TP_DL_UINT, 8, 1 }, TP_U8 },
                 { { TP_DL_BOOL, 8, 1 }, TP_U8 } };
    static const struct {
        tp_dl_dtype theirs;
        const char *name;
    } refused[] = { { { TP_DL_FLOAT, 16, 1 }, "no dtype float16 here" },
                    { { TP_DL_INT, 8, 1 }, "no dtype int8 here" },
                    { { TP_DL_UINT, 32, 1 }, "no dtype uint32 here" },
                    { { 5, 64, 1 }, "no dtype complex64 here" },
                    { { TP_DL_FLOAT, 32, 4 }, "no dtype float32 of vectors here" },
                    { { 99, 8, 1 }, "no dtype of another kind, 8 here" } };
    producer p;
    begin();
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        make(&p)->m.tensor.dtype = same[i].theirs;
        const tp_tensor x = tp_from_dlpack(T, &p.m);
        cr_expect_eq(tp_dtype_of(x), same[i].ours, "%zu", i);
        tp_dlpack *back = tp_to_dlpack(T, x);
        cr_assert(back, "%s", tp_why(T));
        if (same[i].theirs.code != TP_DL_BOOL)
            cr_expect_eq(memcmp(&back->tensor.dtype, &same[i].theirs, sizeof(tp_dl_dtype)), 0);
        back->deleter(back);
        tp_reset(T);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        make(&p)->m.tensor.dtype = refused[i].theirs;
        tp_from_dlpack(T, &p.m);
        cr_expect(strstr(tp_why(T), refused[i].name), "%s", tp_why(T));
        cr_expect_eq(tp_code_of(T), TP_E_DTYPE);
        cr_expect_eq(p.deleted, 1);
        tp_clear(T);
    }
    end();
}

/* ---- refusals ---- */

typedef enum fault { VERSION, DEVICE, AXES, SHAPE, SIZE, STRIDES, ALIGNED, DATA, FAULTS } fault;

static const char *spoil(producer *p, fault f)
{
    tp_dl_tensor *t = &make(p)->m.tensor;
    switch (f) {
    case VERSION: p->m.version.major = 2; return "version 2.7 of DLPack, but only 1.x is known";
    case DEVICE:
        t->device = (tp_dl_device){ TP_DL_CUDA, 1 };
        return "the tensor is on DLPack's device 2:1, the tape on cpu: move it there first";
    case AXES: t->ndim = 9; return "the tensor has 9 axes; at most 8 are possible";
    case SHAPE: t->shape = NULL; return "the tensor has 2 axes and no shape; at most 8";
    case SIZE: p->shape[0] = -1; return "impossible sizes (negative, or too many elements)";
    case STRIDES:
        memcpy(p->strides, (int64_t[]){ 1, 2 }, 16);
        return "the tensor [2,3] has strides [1,2], but must be row-major without gaps: copy it "
               "first";
    case ALIGNED: t->byte_offset = 2; return "the elements are not aligned to 4 bytes";
    case DATA: t->data = NULL; return "the tensor has no memory (data is NULL)";
    default: return "";
    }
}

Test(dlpack, import_refuses)
{
    producer p;
    begin();
    for (fault f = 0; f < FAULTS; f++) {
        const char *why = spoil(&p, f);
        const tp_tensor x = tp_from_dlpack(T, &p.m);
        cr_expect(strstr(tp_why(T), why), "%d: %s", f, tp_why(T));
        cr_expect(strstr(tp_why(T), "test_dlpack.c:"), "the caller's line: %s", tp_why(T));
        cr_expect_eq(tp_ndim(x), 0);
        cr_expect_eq(p.deleted, 1, "%d: taken over in any case", f);
        tp_from_dlpack(T, &make(&p)->m);
        cr_expect_eq(p.deleted, 1, "%d: also by a failed tape", f);
        tp_clear(T);
    }
    tp_from_dlpack(T, NULL);
    cr_expect(strstr(tp_why(T), "tp_from_dlpack: NULL was given in place of a tensor"), "%s",
              tp_why(T));
    tp_from_dlpack(NULL, &make(&p)->m);
    cr_expect_eq(p.deleted, 1);
    cr_expect_null(tp_to_dlpack(NULL, TP_NONE));
    end();
    D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    T = tp_tape_new(D, NULL);
    tp_from_dlpack(T, &make(&p)->m);
    cr_expect(strstr(tp_why(T), "a dry device has no values to share"), "%s", tp_why(T));
    cr_expect_eq(p.deleted, 1);
    end();
}

/* ---- export ---- */

static void *delete_it(void *m)
{
    ((tp_dlpack *)m)->deleter(m);
    return NULL;
}

Test(dlpack, export_outlives_everything)
{
    const float x[6] = { 1, 2, 3, 4, 5, 6 };
    pthread_t thread;
    begin();
    const tp_tensor all = tp_from(T, TP_F32, TP_SHAPE(2, 3), x);
    tp_dlpack *m = tp_to_dlpack(T, tp_slice(T, all, 0, 1, 1)), *bare = tp_to_dlpack(T, all);
    tp_dlpack *none = tp_to_dlpack(T, tp_from(T, TP_I64, TP_SHAPE(0, 4), NULL));
    cr_assert(m && bare && none, "%s", tp_why(T));
    cr_expect(m->version.major == 1 && m->flags == TP_DL_READ_ONLY);
    cr_expect(m->tensor.device.type == TP_DL_CPU && m->tensor.device.id == 0);
    cr_expect(m->tensor.ndim == 2 && m->tensor.shape[0] == 1 && m->tensor.shape[1] == 3);
    cr_expect(m->tensor.strides[0] == 3 && m->tensor.strides[1] == 1);
    cr_expect_eq((const char *)m->tensor.data, (const char *)bare->tensor.data + 12, "no copy");
    cr_expect(none->tensor.data == NULL && none->tensor.strides[0] == 4);
    none->deleter(none);
    bare->deleter(bare);
    tp_reset(T);
    for (int i = 0; i < 8; i++) tp_full(T, TP_F32, TP_SHAPE(2, 3), 7); /* would use free memory */
    end();
    cr_expect_eq(memcmp(m->tensor.data, x + 3, 12), 0, "after the device was closed");
    cr_assert(pthread_create(&thread, NULL, delete_it, m) == 0);
    pthread_join(thread, NULL); /* frees the device; memory checkers see leaks */
}

Test(dlpack, export_of_parameters_follows_them)
{
    begin();
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_CONST, 1, 0 }, 0);
    tp_optim *O = tp_sgd_new(P, NULL);
    tp_dlpack *m = tp_to_dlpack(T, w);
    cr_assert(m, "%s", tp_why(T));
    const float *now = m->tensor.data;
    cr_expect_eq(now[1], 1);
    tp_backward(T, tp_sum(T, w, TP_ALL));
    tp_step(O, 0.5);
    cr_expect_eq(now[1], 0.5, "the step is seen");
    tp_optim_free(O);
    tp_params_free(P);
    cr_expect_eq(now[1], 0.5, "after P");
    m->deleter(m);
    end();
}

/* A gradient that is exported is not written any more. */
Test(dlpack, exported_gradients_stay)
{
    begin();
    const tp_tensor x = tp_input(T, TP_F32, TP_SCALAR, &(float){ 3 });
    tp_backward(T, tp_mul(T, x, x));
    tp_dlpack *m = tp_to_dlpack(T, tp_grad(T, x));
    cr_assert(m, "%s", tp_why(T));
    tp_backward(T, tp_mul(T, x, x));
    cr_expect_eq(*(const float *)m->tensor.data, 6);
    cr_expect_eq(tp_item(T, tp_grad(T, x)), 12);
    m->deleter(m);
    end();
}

/* ---- on the suite's device ---- */

Test(dlpack, there_and_back)
{
    const float x[6] = { 1, 2, 3, 4, 5, 6 };
    float found[6];
    D = device_open(NULL);
    tp_tape *from = tp_tape_new(D, NULL), *to = tp_tape_new(D, NULL);
    tp_dlpack *m = tp_to_dlpack(from, tp_add(from, tp_from(from, TP_F32, TP_SHAPE(2, 3), x), 1));
    cr_assert(m, "%s", tp_why(from));
    const void *data = m->tensor.data;
    cr_expect_eq(m->tensor.device.type, device_is_cuda() ? TP_DL_CUDA : TP_DL_CPU);
    tp_tape_free(from);
    const tp_tensor y = tp_from_dlpack(to, m);
    tp_dlpack *again = tp_to_dlpack(to, y);
    cr_assert(again, "%s", tp_why(to));
    cr_expect_eq(again->tensor.data, data, "the same memory");
    again->deleter(again);
    cr_expect(tp_read(to, tp_mul(to, y, 2), found, sizeof found));
    for (int i = 0; i < 6; i++) cr_expect_eq(found[i], 2 * (x[i] + 1));
    tp_reset(to);
    cr_expect(tp_ok(to), "%s", tp_why(to));
    tp_tape_free(to);
    tp_device_close(D);
}

Test(dlpack, not_while_a_step_is_recorded)
{
    D = device_open(NULL);
    if (!device_is_cuda()) {
        tp_device_close(D);
        cr_skip_test("only CUDA records steps");
    }
    T = tp_tape_new(D, NULL);
    tp_tensor slot = TP_NONE;
    tp_capture *C = tp_capture_new(T);
    for (int i = 0; i < 4 && tp_ok(T); i++) {
        tp_feed(T, &slot, TP_F32, TP_SCALAR, &(float){ 1 });
        if (!tp_capture_begin(C)) break;
        tp_dlpack *m = tp_to_dlpack(T, tp_exp(T, slot));
        if (m) m->deleter(m); /* the first steps run normally */
        tp_capture_end(C);
    }
    cr_expect(strstr(tp_why(T), "tp_to_dlpack: not between tp_capture_begin"), "%s", tp_why(T));
    tp_capture_free(C);
    end();
}
