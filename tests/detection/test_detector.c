/* test_detector.c - complete detectors: every preset, parts of configurations, classifiers' weights
 * in backbones, matching anchors, and both kinds learning a scene. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/detection/loader.h>
#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/detection/retinanet.h>
#include <tapegrad/resnet.h>
#include <tapegrad/vil.h>

#include "support/folder.h"

TestSuite(detector, .timeout = 600);

static tp_detector_cfg preset(const char *name, int64_t classes)
{
    tp_detector_cfg c;
    char why[300] = "";
    cr_assert(tp_detector_preset(&c, name, classes, TP_DETECTRON2, why, sizeof why), "%s: %s", name,
              why);
    return c;
}

static double params_of(const char *name)
{
    const tp_detector_cfg c = preset(name, 80);
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_detector m;
    tp_detector_init(P, &m, "", &c);
    cr_assert(tp_params_ok(P), "%s: %s", name, tp_params_why(P));
    const double n = (double)tp_params_count(P);
    tp_params_free(P);
    tp_device_close(D);
    return n;
}

/* Every preset can be declared; those of Tables 6 and 7 have the specified parameters, except for
 * the classifier's norm and head, which are not declared. */
Test(detector, presets)
{
    for (int i = 0; tp_detector_known(i); i++)
        cr_expect(params_of(tp_detector_known(i)) > 1e6, "%s", tp_detector_known(i));
    const double norm_and_head[] = { 385000 + 768, 769000 + 1536 };
    cr_expect_eq(params_of("retinanet-vil-tiny"), 16604390 - norm_and_head[0]);
    cr_expect_eq(params_of("mask-rcnn-vil-tiny"), 26812642 - norm_and_head[0]);
    cr_expect_eq(params_of("retinanet-vil-small-ape"), 35681372 - norm_and_head[1]);
    cr_expect_eq(params_of("mask-rcnn-vil-base-ape"), 76077784 - norm_and_head[1]);
}

Test(detector, refuses_unknown_names)
{
    tp_detector_cfg c;
    char why[300];
    cr_expect(!tp_detector_preset(&c, "yolo-vil-tiny", 80, TP_DETECTRON2, why, sizeof why));
    cr_expect(strstr(why, "neither mask-rcnn-BACKBONE nor retinanet-BACKBONE"), "%s", why);
    cr_expect(!tp_detector_preset(&c, "retinanet-", 80, TP_DETECTRON2, why, sizeof why));
    cr_expect(!tp_detector_preset(&c, "mask-rcnn-vil-tiny", 0, TP_DETECTRON2, why, sizeof why));
    cr_expect(!tp_detector_preset(&c, "retinanetvil-tiny", 80, TP_DETECTRON2, why, sizeof why));
    cr_expect_null(tp_detector_known(-1));
    c.kind = NULL;
    cr_expect(!tp_detector_check(&c, why, sizeof why) && strstr(why, "no detector"), "%s", why);
}

/* The rows are all detectors on all backbones, each once; their figures name existing backbones. */
Test(detector, rows)
{
    tp_detector_row row;
    const tp_detector_kind *kind;
    int n = 0, figures = 0, rows = 0;
    for (; tp_detector_at(n, &row); n++) {
        cr_expect_str_eq(tp_detector_known(n), row.name);
        cr_expect_eq(tp_detector_kind_of(row.name), row.kind);
        figures += row.params > 0;
    }
    for (int i = 0; (kind = tp_detector_kind_at(i)); i++) {
        cr_expect(kind->cfg_size <= TP_DETECTOR_CFG_BYTES, "%s", kind->title);
        for (const tp_detector_figures *f = kind->figures; f->backbone; f++) rows++;
    }
    cr_expect(n == 2 * 58 && figures == rows && rows == 31, "%d, %d, %d", n, figures, rows);
}

Test(detector, parts_of_a_configuration)
{
    static const char *const names[] = { "retinanet-resnet-mini", "mask-rcnn-vil-mini" };
    for (int i = 0; i < 2; i++) {
        tp_detector_cfg c = preset(names[i], 7);
        char why[300];
        const tp_detector_parts parts = tp_detector_parts_of(&c);
        tp_retinanet_cfg r;
        tp_mask_rcnn_cfg m;
        cr_expect_eq(parts.classes, 7);
        cr_expect_eq(tp_detector_has_masks(&c), i == 1);
        cr_expect_eq(parts.anchors->size[0][0], 16);
        cr_expect(parts.matcher->low_quality);
        cr_expect_eq(parts.backbone->model.model, i ? &tp_model_vil : &tp_model_resnet);
        tp_detector_limit(&c, 0.3, 9);
        memcpy(&r, &c.at, sizeof r);
        memcpy(&m, &c.at, sizeof m);
        cr_expect_eq(i ? m.most : r.select.most, 9);
        cr_expect_eq(i ? m.score : r.select.score, 0.3);
        cr_expect(tp_detector_check(&c, why, sizeof why), "%s", why);
    }
}

/* Setting a member to its own value changes nothing, separately and with all others. */
Test(detector, members_keep_their_values)
{
    static const char *const names[] = { "retinanet-vil-mini", "mask-rcnn-resnet-mini" };
    for (int i = 0; i < 2; i++) {
        const tp_detector_cfg c = preset(names[i], 7);
        tp_detector_cfg now = c;
        const tp_model_cfg *b = &tp_detector_parts_of(&now).backbone->model;
        char all[2000] = "", value[512], item[600], why[512];
        const tp_model_member *const tables[] = { c.kind->members, b->model->members };
        for (int t = 0; t < 2; t++)
            for (const tp_model_member *m = tables[t]; m->kind != TP_MEMBER_END; m++) {
                if (m->kind == TP_MEMBER_HIDDEN || m->common == TP_COMMON_OUTPUTS) continue;
                tp_model_member_get(m, t ? (const void *)&b->at : (const void *)&c.at, value,
                                    sizeof value);
                snprintf(item, sizeof item, "%s%s=%s", t ? TP_BACKBONE_PREFIX : "", m->key, value);
                cr_expect(tp_detector_change(&now, item, NULL, why, sizeof why), "%s: %s", item,
                          why);
                cr_expect(memcmp(&now, &c, sizeof c) == 0, "%s", item);
                const size_t n = strlen(all);
                snprintf(all + n, sizeof all - n, "%s%s", n ? "," : "", item);
            }
        cr_expect(tp_detector_change(&now, all, NULL, why, sizeof why), "%s: %s", all, why);
        cr_expect(memcmp(&now, &c, sizeof c) == 0, "%s", all);
    }
}

Test(detector, changes)
{
    static const struct {
        const char *preset, *text, *why;
    } bad[] = {
        { "retinanet-vil-mini", "", "'' is not KEY=VALUE" },
        { "retinanet-vil-mini", "3", "'3' is not KEY=VALUE" },
        { "retinanet-vil-mini", "conv=3", "no member of retinanet; did you mean 'convs'?" },
        { "retinanet-vil-mini", "classes=3", "'classes' is no member of retinanet" },
        { "retinanet-vil-mini", "backbone.num_classes=3", "a backbone has no classes, not 3" },
        { "retinanet-vil-mini", "backbone.=3", "'=3' is not KEY=VALUE" },
        { "retinanet-vil-mini", "convs=9", "convs, the length of a tower, must be from 0 to 8" },
        { "retinanet-vil-mini", "anchors.size=1,2", "for each of 5 levels" },
        { "retinanet-vil-mini", "anchors.ratio=1,,2", "is not a list of at most 8 finite numbers" },
        { "retinanet-vil-mini", "matcher.threshold=0.5", "is not a list of 2 finite numbers" },
        { "retinanet-vil-mini", "matcher.threshold=0.5,inf", "is not a list of 2 finite numbers" },
        { "retinanet-vil-mini", "backbone.drop_path=0.1", "drop_path is set by --drop-path" },
        { "mask-rcnn-vil-mini", "dim=0", "the pyramid has 1 to 2^16 channels" },
        { "mask-rcnn-vil-mini", "rpn.most=3", "rpn.most" },
        { "mask-rcnn-vil-mini", "frozen=3", "3 frozen stages" },
    };
    static const char *const set_by[TP_COMMON_KINDS] = { [TP_COMMON_DROP_PATH] = "--drop-path" };
    char why[512];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tp_detector_cfg c = preset(bad[i].preset, 3);
        const tp_detector_cfg before = c;
        why[0] = '\0';
        cr_expect(!tp_detector_change(&c, bad[i].text, set_by, why, sizeof why) &&
                      strstr(why, bad[i].why),
                  "%s: %s", bad[i].text, why);
        cr_expect(memcmp(&c, &before, sizeof c) == 0, "%s changes nothing", bad[i].text);
    }
    tp_detector_cfg c = preset("mask-rcnn-resnet-mini", 3);
    tp_mask_rcnn_cfg m;
    cr_assert(tp_detector_change(&c,
                                 "dim=32,box.hidden=16,backbone.layers=1,2,1,1,rpn.anchors.size=4,"
                                 "8,16,32,64,5,9,17,33,65,score=0.1",
                                 NULL, why, sizeof why),
              "%s", why);
    memcpy(&m, &c.at, sizeof m);
    cr_expect(m.dim == 32 && m.rpn.dim == 32 && m.box.dim == 32 && m.mask.in == 32);
    cr_expect(m.box.layers == 1 && m.box.hidden[0] == 16 && m.box.hidden[1] == 0);
    cr_expect(m.rpn.anchors.sizes == 2 && m.rpn.anchors.size[2][0] == 64 &&
              m.rpn.anchors.size[2][1] == 5);
    cr_expect(m.score == 0.1 && ((const tp_resnet_cfg *)&m.backbone.model.at)->blocks[1] == 2);
}

/* An object that equals an anchor matches it and neighbours overlapping it by half. */
Test(detector, matched_anchors)
{
    const tp_detector_cfg c = preset("mask-rcnn-resnet-mini", 3);
    const tp_corners box = { 56, 56, 72, 72 }; /* 16 x 16 around a cell of the finest map */
    const int category = 0;
    const tp_objects one[2] = { { .n = 1, .box = &box, .category = &category }, { 0 } };
    const double n = tp_detector_matched(&c, 128, 128, one, 2);
    cr_expect(n >= 1 && n <= 20, "%g", n);
    cr_expect(isnan(tp_detector_matched(&c, 128, 128, one + 1, 1)));
}

/* ---- weights of classifiers ---- */

static double first_value(tp_params *P, const char *name)
{
    const tp_tensor t = tp_find(P, name);
    cr_assert(tp_given(t), "%s", name);
    double *x = malloc((size_t)tp_numel(t) * sizeof *x);
    cr_assert(tp_param_get(P, t, TP_F64, x, (size_t)tp_numel(t) * sizeof *x));
    const double v = x[tp_numel(t) / 2];
    free(x);
    return v;
}

/* A classifier with full attention in stages 3 and 4 on small images becomes a windowed
 * backbone. */
Test(detector, backbone_from_a_classifier, .init = make_folder, .fini = remove_folder)
{
    tp_detector_cfg c = preset("retinanet-vil-mini", 5);
    tp_vil_cfg v;
    memcpy(&v, &tp_detector_parts_of(&c).backbone->model.at, sizeof v);
    v.classes = 10;
    v.image[0] = v.image[1] = 96;
    v.stage[2].dense = v.stage[3].dense = true;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 5 }),
              *Q = tp_params_new(D, &(tp_params_opts){ .seed = 6 });
    static tp_vil m;
    static tp_detector d;
    char why[2048] = "";
    tp_model_vil.init(P, &m, "", &v);
    cr_assert(tp_save(P, in_folder("vil.safetensors")), "%s", tp_params_why(P));
    tp_detector_init(Q, &d, "", &c);
    cr_assert(tp_detector_load_backbone(Q, &d, in_folder("vil.safetensors"), why, sizeof why), "%s",
              why);
    static const char *const same[] = { "layer1.0.proj.weight", "layer1.1.attn.query.weight",
                                        "layer2.1.attn.local_relative_position_bias_table",
                                        "layer4.2.mlp.fc1.bias" };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char name[200];
        snprintf(name, sizeof name, "backbone.bottom_up.%s", same[i]);
        cr_expect_eq(first_value(P, same[i]), first_value(Q, name), "%s", name);
    }
    const tp_tensor qkv = tp_find(P, "layer3.1.attn.qkv.weight"),
                    query = tp_find(Q, "backbone.bottom_up.layer3.1.attn.query.weight"),
                    kv = tp_find(Q, "backbone.bottom_up.layer3.1.attn.kv.weight");
    const size_t n = (size_t)tp_numel(query);
    double *x = malloc(6 * n * sizeof *x);
    cr_assert(tp_param_get(P, qkv, TP_F64, x, 3 * n * sizeof *x) &&
              tp_param_get(Q, query, TP_F64, x + 3 * n, n * sizeof *x) &&
              tp_param_get(Q, kv, TP_F64, x + 4 * n, 2 * n * sizeof *x));
    cr_expect(memcmp(x, x + 3 * n, 3 * n * sizeof *x) == 0);
    free(x);
    /* another model, and none */
    const tp_detector_cfg other = preset("retinanet-resnet-mini", 5);
    tp_params *R = tp_params_new(D, NULL);
    static tp_detector e;
    tp_detector_init(R, &e, "", &other);
    cr_expect(!tp_detector_load_backbone(R, &e, in_folder("vil.safetensors"), why, sizeof why));
    cr_expect(why[0]);
    tp_params_free(R);
    cr_expect(!tp_detector_load_backbone(Q, &d, in_folder("none"), why, sizeof why));
    cr_expect(strstr(why, "none"), "%s", why);
    tp_params_free(P);
    tp_params_free(Q);
    tp_device_close(D);
}

/* ---- learning ---- */

/* Forty updates on the same four scenes halve the first one's loss, and detections are inside the
 * images. */
static void learn(const char *name)
{
    const tp_detector_cfg c = preset(name, 5);
    tp_scenes *S = tp_scenes_new(&(tp_scenes_opts){ .images = 4, .size = 64, .most = 2 });
    const tp_object_source source = { .coco = tp_scenes_coco(S), .scenes = S };
    tp_loader *L = tp_object_loader_new(
        &source, &(tp_object_loader_opts){
                     .batch = 4, .train = true, .size = { 64 }, .most = 64, .masks = true });
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    static tp_detector m;
    double first = 0, last = 0;
    tp_object_batch b;
    tp_detector_init(P, &m, "", &c);
    tp_optim *O = tp_adamw_new(P, NULL);
    for (int k = 0; k < 40; k++) {
        cr_assert(tp_object_loader_next(L, &b), "%s", tp_loader_why(L));
        tp_random r = tp_random_stream(1, "samples", (uint64_t)k, 0);
        tp_reset(T);
        const tp_detection_in in = { .images = tp_from(T, TP_F32,
                                                       TP_SHAPE(b.n, b.height, b.width, 3), b.x),
                                     .size = b.size,
                                     .objects = b.objects,
                                     .random = &r };
        const tp_tensor loss = tp_detector_losses(T, &m, &in).total;
        last = tp_item(T, loss);
        if (k == 0) first = last;
        tp_backward(T, loss);
        tp_clip_grad_norm(P, 1);
        tp_step(O, 1e-3);
        cr_assert(tp_ok(T) && tp_optim_ok(O), "%s%s", tp_why(T), tp_optim_why(O));
    }
    cr_expect(last < first / 2, "%s: %g, then %g", name, first, last);
    tp_tape *E = tp_tape_new(D, NULL);
    tp_record(E, false);
    tp_detected found[4];
    const tp_detection_in in = { .images =
                                     tp_from(E, TP_F32, TP_SHAPE(b.n, b.height, b.width, 3), b.x),
                                 .size = b.size };
    cr_assert(tp_detector_detect(E, &m, &in, found), "%s", tp_why(E));
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(found[i].mask != NULL, tp_detector_has_masks(&c) && found[i].n > 0);
        for (int64_t k = 0; k < found[i].n; k++) cr_expect(found[i].found[k].category < 5);
        tp_detected_free(&found[i]);
    }
    tp_tape_free(E);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    tp_loader_free(L);
    tp_scenes_free(S);
}

Test(detector, retinanet_learns)
{
    learn("retinanet-vil-mini");
}

Test(detector, mask_rcnn_learns)
{
    learn("mask-rcnn-resnet-mini");
}
