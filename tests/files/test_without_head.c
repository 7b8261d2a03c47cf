/* test_without_head.c - a published file loads into a net with a head of its own: its body fits or
 * is refused, its head keeps its values. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/model.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/folder.h"

TestSuite(without_head, .init = make_folder, .fini = remove_folder);

enum { WIDTH = 4 };

static void declare(tp_params *P, tp_linear_m m[2], int64_t classes, const char *head)
{
    tp_linear_init(P, &m[0], "body", WIDTH, WIDTH, true);
    tp_linear_init(P, &m[1], head, WIDTH, classes, true);
}

/* A file of a net with ten classes, as PyTorch's wrapper of several GPUs would name it, with a
 * second tensor below its head. */
static const char *published(tp_device *D)
{
    static const float one = 1;
    const char *path = in_folder("published.safetensors");
    tp_linear_m m[2];
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 9 });
    declare(P, m, 10, "fc");
    tp_writer *W = tp_writer_new(path);
    cr_assert(tp_params_write(P, W, "module."));
    tp_writer_add(W, "module.fc.scale", TP_F32, TP_SHAPE(1), &one, false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_params_free(P);
    return path;
}

static void refused(tp_params *P, const char *path, const tp_load_opts *o, const char *want)
{
    cr_expect_not(tp_load(P, path, o), "%s", want);
    cr_expect(strstr(tp_params_why(P), want), "'%s' in: %s", want, tp_params_why(P));
}

Test(without_head, the_body_is_loaded_and_the_head_kept)
{
    tp_device *D = device_open(NULL);
    const char *path = published(D);
    for (int64_t classes = 3; classes <= 10; classes += 7) { /* even if its shape would fit */
        float head[10 * WIDTH], was[10 * WIDTH], body[WIDTH * WIDTH], own[WIDTH * WIDTH];
        const size_t n = (size_t)classes * WIDTH * sizeof(float);
        tp_linear_m m[2];
        tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
        declare(P, m, classes, "fc");
        cr_assert(tp_param_get(P, m[1].weight, TP_F32, was, n));
        cr_assert(tp_param_get(P, m[0].weight, TP_F32, own, sizeof own));
        if (classes == 3)
            refused(P, path, NULL, "shape: fc.weight is [10,4] in the file, [3,4] here");
        cr_assert(tp_load(P, path, &(tp_load_opts){ .without = "fc" }), "%s", tp_params_why(P));
        cr_assert(tp_param_get(P, m[1].weight, TP_F32, head, n));
        cr_assert(tp_param_get(P, m[0].weight, TP_F32, body, sizeof body));
        cr_expect_arr_eq(head, was, n);
        cr_expect_arr_neq(body, own, sizeof body);
        tp_params_free(P);
    }
    tp_device_close(D);
}

Test(without_head, the_rest_must_fit)
{
    tp_device *D = device_open(NULL);
    const char *path = published(D);
    tp_linear_m m[2], more;
    tp_params *P = tp_params_new(D, NULL);
    declare(P, m, 3, "head");
    refused(P, path, &(tp_load_opts){ .without = "fc" },
            "have none of the name 'fc' or below it to load ");
    refused(P, path, &(tp_load_opts){ .without = "hea" }, "none of the name 'hea'");
    refused(P, path, &(tp_load_opts){ .without = "head" }, "unknown: module.fc.weight");
    tp_params *Q = tp_params_new(D, NULL);
    declare(Q, m, 3, "fc");
    tp_linear_init(Q, &more, "fc2", WIDTH, 1, true);
    refused(Q, path, &(tp_load_opts){ .without = "fc" }, "missing: fc2.weight");
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

/* As docs/checkpoints.md shows it. */
Test(without_head, a_model_of_the_table)
{
    char why[300];
    static float want[1 << 15], got[1 << 15];
    const char *path = in_folder("resnet.safetensors");
    tp_model_cfg cfg;
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 4 }), *Q = tp_params_new(D, NULL);
    cr_assert(tp_model_preset(&cfg, "resnet-mini", why, sizeof why), "%s", why);
    tp_net *theirs = tp_net_new(P, "", &cfg);
    cr_assert(tp_save(P, path), "%s", tp_params_why(P));
    tp_file *F = tp_file_open(path);
    cr_assert(tp_model_adopt(&cfg, F, NULL, 0), "%s", tp_file_why(F));
    tp_common_cfg own = tp_model_get(&cfg);
    own.outputs++;
    tp_model_set(&cfg, &own);
    tp_net *ours = tp_net_new(Q, "", &cfg);
    cr_assert(tp_params_read(Q, F, "", &(tp_load_opts){ .convert = true, .without = "fc" }), "%s",
              tp_params_why(Q));
    const tp_tensor a = tp_find(P, "conv1.weight"), b = tp_find(Q, "conv1.weight");
    const size_t n = (size_t)tp_numel(a) * sizeof *want;
    cr_assert(n <= sizeof want && tp_param_get(P, a, TP_F32, want, n));
    cr_assert(tp_param_get(Q, b, TP_F32, got, n), "%s", tp_params_why(Q));
    cr_expect_arr_eq(got, want, n);
    cr_expect_eq(tp_dim(tp_find(Q, "fc.weight"), 0), own.outputs);
    tp_file_close(F);
    tp_net_free(ours);
    tp_net_free(theirs);
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}
