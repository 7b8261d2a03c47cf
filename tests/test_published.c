/* test_published.c - weights in checkpoints of other programs: the prefix under which they are is
 * found, and no other tensors are taken for them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/model.h>

#include "support_folder.h"

TestSuite(published, .init = make_folder, .fini = remove_folder);

typedef struct trial {
    tp_device *D;
    tp_params *P;
    tp_net *N;
} trial;

static trial begin(uint64_t seed)
{
    char why[256];
    tp_model_cfg cfg;
    cr_assert(tp_model_preset(&cfg, "tiny", why, sizeof why), "%s", why);
    tp_common_cfg o = tp_model_get(&cfg);
    o.image[0] = o.image[1] = 16;
    o.outputs = 3;
    tp_model_set(&cfg, &o);
    trial t = { .D = tp_device_open("cpu", NULL) };
    t.P = tp_params_new(t.D, &(tp_params_opts){ .seed = seed });
    t.N = tp_net_new(t.P, "", &cfg);
    cr_assert(tp_params_ok(t.P), "%s", tp_params_why(t.P));
    return t;
}

static void end(trial *t)
{
    tp_net_free(t->N);
    tp_params_free(t->P);
    tp_device_close(t->D);
}

/* Adds all of P under a prefix, with `scale` times its values, but for the tensor `without`. */
static void add(tp_writer *W, tp_params *P, const char *prefix, double scale, const char *without)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_dtype dt = it.dtype == TP_I64 ? TP_I64 : TP_F64;
        const size_t n = (size_t)tp_numel(it.tensor);
        char name[256];
        if (it.alias_of || (without && strcmp(it.name, without) == 0)) continue;
        double *x = malloc(n * sizeof *x); /* of doubles or of int64 */
        cr_assert(tp_param_get(P, it.tensor, dt, x, n * sizeof *x), "%s", tp_params_why(P));
        for (size_t i = 0; dt == TP_F64 && i < n; i++) x[i] *= scale;
        snprintf(name, sizeof name, "%s%s", prefix, it.name);
        tp_writer_add(W, name, dt, it.shape, x, true);
        free(x);
    }
}

static double first_weight(tp_params *P)
{
    double x[16 * 3 * 3 * 3];
    cr_assert(tp_param_get(P, tp_find(P, "conv.0.weight"), TP_F64, x, sizeof x), "%s",
              tp_params_why(P));
    return x[0];
}

/* Commits W and loads its file into a model with other values; the error's text, "" if none. */
static char why[2048];
static double load(tp_writer *W)
{
    trial t = begin(2);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    tp_net_load(t.P, t.N, F, false);
    snprintf(why, sizeof why, "%s", tp_params_why(t.P));
    const double x = *why ? 0.0 : first_weight(t.P);
    tp_file_close(F);
    end(&t);
    return x;
}

static tp_writer *new_file(void)
{
    return tp_writer_new(in_folder("w.safetensors"));
}

Test(published, any_prefix_is_found)
{
    static const char *const prefixes[] = { "", "model.", "state_dict.module.", "net.", "x.y.z." };
    trial t = begin(1);
    const double is = first_weight(t.P);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        tp_writer *W = new_file();
        add(W, t.P, prefixes[i], 1.0, NULL);
        cr_expect_eq(load(W), is, "'%s': %s", prefixes[i], why);
    }
    end(&t);
}

Test(published, averages_are_taken_only_if_there_is_nothing_else)
{
    trial t = begin(1);
    const double is = first_weight(t.P);
    tp_writer *W = new_file();
    add(W, t.P, "model_ema.", 2.0, NULL);
    add(W, t.P, "model.module.", 1.0, NULL); /* a longer name */
    cr_expect_eq(load(W), is, "%s", why);
    W = new_file();
    add(W, t.P, "model_ema.", 2.0, NULL);
    cr_expect_eq(load(W), 2.0 * is, "%s", why);
    end(&t);
}

/* What lacks a weight is refused, though other tensors of those names are complete. */
Test(published, nothing_stands_in_for_a_missing_weight)
{
    trial t = begin(1);
    tp_writer *W = new_file();
    add(W, t.P, "", 1.0, "head.bias");
    add(W, t.P, "optim.m.", 3.0, NULL);
    add(W, t.P, "ema.", 2.0, NULL);
    load(W);
    cr_expect(strstr(why, "missing: head.bias"), "%s", why);
    W = new_file();
    add(W, t.P, "model.", 1.0, "head.bias");
    add(W, t.P, "model_ema.", 2.0, NULL);
    load(W);
    cr_expect(strstr(why, "missing: head.bias"), "%s", why);
    end(&t);
}

Test(published, index_tables_are_skipped_and_other_extras_named)
{
    static const int64_t index[4];
    trial t = begin(1);
    const double is = first_weight(t.P);
    tp_writer *W = new_file();
    add(W, t.P, "model.", 1.0, NULL);
    tp_writer_add(W, "model.a.relative_position_index", TP_I64, TP_SHAPE(2, 2), index, false);
    cr_expect_eq(load(W), is, "%s", why);
    W = new_file();
    add(W, t.P, "model.", 1.0, NULL);
    tp_writer_add(W, "model.a.other", TP_I64, TP_SHAPE(2, 2), index, false);
    load(W);
    cr_expect(strstr(why, "unknown: a.other"), "%s", why);
    end(&t);
}

Test(published, entering_a_prefix)
{
    trial t = begin(1);
    tp_writer *W = new_file();
    add(W, t.P, "model.", 1.0, NULL);
    add(W, t.P, "other.", 2.0, NULL);
    cr_assert(tp_writer_commit(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    const int all = tp_file_count(F);
    cr_expect(tp_file_enter(F, "other."), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_count(F), all / 2);
    cr_expect(tp_file_find(F, "head.bias") && !tp_file_find(F, "model.head.bias"));
    cr_expect(tp_file_verify(F), "%s", tp_file_why(F));
    cr_expect_not(tp_file_enter(F, "none."));
    cr_expect(strstr(tp_file_why(F), "begins with 'none.'"), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_count(F), 0);
    cr_expect_not(tp_file_enter(NULL, "none."));
    tp_file_close(F);
    end(&t);
}
