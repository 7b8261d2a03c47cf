/* test_tp_models.c - the program tp-models: list, filter, trees, JSON, exit status. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/model.h>

static char text[400000];

/* Runs the program, stores its output and errors in `text` and returns its exit status. */
static int models(const char *arguments)
{
    char command[1000];
    snprintf(command, sizeof command, "'%s/tp-models' %s 2>&1", TP_BIN_DIR, arguments);
    FILE *p = popen(command, "r");
    cr_assert(p);
    text[fread(text, 1, sizeof text - 1, p)] = '\0';
    const int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int lines(void)
{
    int n = 0;
    for (const char *s = text; *s; s++) n += *s == '\n';
    return n;
}

static json_t *parsed(const char *arguments)
{
    json_error_t error;
    cr_assert_eq(models(arguments), 0, "%s: %s", arguments, text);
    json_t *j = json_loads(text, 0, &error);
    cr_assert(j, "%s: %s", arguments, error.text);
    return j;
}

/* ---- the list ---- */

Test(tp_models, list)
{
    const tp_model_row *row;
    int n = 0;
    cr_expect_eq(models(""), 0);
    for (; (row = tp_model_at(n)); n++) {
        char begin[128];
        snprintf(begin, sizeof begin, "\n%-34s ", row->name);
        cr_expect(strstr(text, begin), "%s is missing", row->name);
    }
    int detectors = 0;
    while (tp_detector_known(detectors)) {
        char begin[128];
        snprintf(begin, sizeof begin, "\n%-37s ", tp_detector_known(detectors++));
        cr_expect(strstr(text, begin), "%s is missing", begin + 1);
    }
    cr_expect_eq(lines(), 1 + n + 2 + detectors);
    cr_expect(strstr(text,
                     "\ncvt_ls-13-224                      224 x 224                    "
                     "20181304      20.3      4.94      4.90     134.6      67.6       8.7\n"));
    cr_expect(strstr(text,
                     "\ntxl-base-enwik8                    512 tokens, memory 512       "
                     "41055436      41.0     33.11         -     232.7     109.5      16.4\n"));
    cr_expect(strstr(text,
                     "\nvil-tiny-rpb                       224 x 224                     "
                     "6719698       6.7      1.33      1.30      40.8      21.0       5.0\n"));
    cr_expect(strstr(text,
                     "\nlra-listops-ls                     2048 tokens                 "
                     "   249418         -      0.20      0.20      13.2       6.7       1.0\n"));
    cr_expect(strstr(text,
                     "\nlra-retrieval-ls-best              2 x 4096 tokens             "
                     "   461754         -      2.17      2.17      81.6      41.2       4.0\n"));
    cr_expect(strstr(text, "\nmask-rcnn-vil-small-sra32             800 x 1344            "
                           "    50734704      51.5    268.34     268.3    268.19\n"));
    cr_expect(strstr(text, "\nretinanet-vil-tiny                    800 x 1344            "
                           "    16218622      16.6    182.74     182.7    191.90\n"));
}

Test(tp_models, filters)
{
    static const struct {
        const char *arguments, *holds, *lacks;
        int lines;
    } cases[] = {
        { "txl-", "txl-base-text8", "ls_lm", 9 },
        { "lra-text-", "lra-text-performer", "lra-listops", 13 },
        { "--filter XL", "txl-base-text8", "ls_lm", 10 },
        { "--filter cvt*-ls", "cvt_ls-21-448", "cvt-13-224", 9 },
        { "--filter E-ViT", "vil-small-flat-full", "vil-tiny-flat-full", 2 },
        { "--filter -384 vil-", "vil-base-rpb-384", "cvt", 6 },
        { "mask-rcnn-pvt2", "mask-rcnn-pvt2-b2-li", "GFLOPs     paper       MiB", 8 },
        { "--filter resnet18", "mask-rcnn-resnet18", "resnet50", 6 },
        { "--memory --filter retinanet retinanet-resnet-mini", "detect     train\n", "MiB", 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(models(cases[i].arguments), 0, "%s", text);
        cr_expect(strstr(text, cases[i].holds) && !strstr(text, cases[i].lacks), "%s: %s",
                  cases[i].arguments, text);
        cr_expect_eq(lines(), cases[i].lines, "%s: %s", cases[i].arguments, text);
    }
}

Test(tp_models, members)
{
    cr_expect_eq(models("--members swin-t"), 0);
    cr_expect(
        strstr(text, "\ndepths                     2,2,6,2                          "
                     "at most 8 whole numbers, 1 to 128\n") &&
            strstr(text, "\nape                        0                                0|1\n"),
        "%s", text);
    cr_expect_eq(models("--members swin-t --set depths=1,1,1,1,ape=1"), 0);
    cr_expect(strstr(text, "\ndepths                     1,1,1,1  ") &&
                  strstr(text, "\nape                        1 "),
              "%s", text);
    cr_expect_eq(models("--params swin-mini --set depths=1,1,1"), 0);
    cr_expect(strstr(text, "layers.0.blocks.0.") && !strstr(text, "layers.0.blocks.1."), "%s",
              text);
    cr_expect_eq(models("--summary swin-t --depth 1"), 0);
    cr_expect(strstr(text, "the paper prints 4.50 G"), "%s", text);
    cr_expect_eq(models("--summary swin-t --depth 1 --set mlp_ratio=2"), 0);
    cr_expect(strstr(text, "mult-adds    3.10 G") && !strstr(text, "the paper prints"), "%s", text);
}

Test(tp_models, members_of_detectors)
{
    cr_expect_eq(
        models("--members mask-rcnn-resnet18 --set dim=64,rpn.most=20,10,backbone.layers=1,1,1,1"),
        0);
    cr_expect(strstr(text, "\ndim                        64 ") &&
                  strstr(text, "\nrpn.anchors.size           32,64,128,256,512 ") &&
                  strstr(text, "\nrpn.most                   20,10 ") &&
                  strstr(text, "\nbackbone.layers            1,1,1,1 "),
              "%s", text);
    cr_expect_eq(models("--params retinanet-vil-mini --set convs=1"), 0);
    cr_expect(strstr(text, "head.cls_subnet.0.") && !strstr(text, "head.cls_subnet.2."), "%s",
              text);
    cr_expect_eq(models("--summary retinanet-vil-tiny --depth 1 --set convs=1"), 0);
    cr_expect(!strstr(text, "the paper prints"), "%s", text);
}

Test(tp_models, papers)
{
    static const struct {
        const char *text, *holds, *lacks;
        int rows;
    } cases[] = {
        { "ViL Table 2", "ViL, Table 2: ViL-1,2,8,1-RPB\n", "Transformer-LS", 15 },
        { "vil table 2, Full", "vil-small-1-1-9-1-full\n", "-RPB", 5 },
        { "Transformer-LS table 9", "\n    printed: 37.1, 65.4, 82.3\n", "ViL", 8 },
        { "ViT-LSLA Figure 3", "ViT-LSLA, Figure 3a, Figure 4a: ", "Figure 5", 2 },
        { "Table 14 ResNet-50", "Transformer-LS, Table 14: ", "Table 1:", 1 },
        { "BiT-152x4-M", "\n    quoted from elsewhere, not built\n", "imagenet", 1 },
        { "ViL Table 5 ViL-Base-RPB", "--run-dir runs/21k && \\\n    imagenet train", "Table 4",
          1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, "--paper '%s'", cases[i].text);
        cr_expect_eq(models(arguments), 0, "%s", text);
        cr_expect(strstr(text, cases[i].holds) && !strstr(text, cases[i].lacks), "%s: %s",
                  cases[i].text, text);
        snprintf(arguments, sizeof arguments, "--json --paper '%s'", cases[i].text);
        json_t *rows = parsed(arguments);
        cr_expect_eq((int)json_array_size(rows), cases[i].rows, "%s", cases[i].text);
        json_decref(rows);
    }
}

Test(tp_models, parameters)
{
    cr_expect_eq(models("--params cvt-13"), 0);
    cr_expect(strstr(text, "stage0.patch_embed.proj.weight               [64,3,7,7]\n"), "%s",
              text);
    cr_expect(strstr(text, "\n19997480 parameters\n"));
    cr_expect_eq(models("--params ls_lm-tiny"), 0);
    cr_expect(
        strstr(text, "out_emb.weight                               [208,128] = in_emb.weight\n"));
    cr_expect(strstr(text, "pos_emb.inv_freq                             [64] buffer f64\n"));
    cr_expect_eq(models("--params mask-rcnn-vil-tiny"), 0);
    cr_expect(strstr(text, "roi_heads.box_head.fc1.weight                [1024,12544]\n"), "%s",
              text);
    cr_expect(strstr(text, "\n26426874 parameters\n"));
}

#define TRY "Try 'tp-models --help'.\n"

Test(tp_models, refusals)
{
    static const struct {
        const char *arguments;
        int status;
        const char *output;
    } cases[] = {
        { "--summary cvt-14", 1,
          "tp-models: no model is called 'cvt-14'; did you mean 'cvt-13'?\n" },
        { "--params CVT-13", 1,
          "tp-models: no model is called 'CVT-13'; did you mean 'cvt-13'?\n" },
        { "--summary unet", 1, "tp-models: no model is called 'unet'; tp-models lists them all\n" },
        { "unet", 1,
          "tp-models: no model's name begins with 'unet'; run tp-models to list them all\n" },
        { "--filter unet", 1,
          "tp-models: no model's name or family contains 'unet'; run tp-models to list them "
          "all\n" },
        { "--summary retinanet-vgg", 1, "tp-models: no backbone of detectors is called 'vgg'\n" },
        { "--params mask-rcnn-vil", 1, "tp-models: no backbone of detectors is called 'vil'\n" },
        { "--memory --summary tiny", 2,
          "tp-models: --memory: only a list takes it; --summary always shows the memory\n" TRY },
        { "--all", 2, "tp-models: --all: unknown flag\n" TRY },
        { "--summary", 2, "tp-models: --summary: a value is missing\n" TRY },
        { "--summary tiny --depth x", 2, "tp-models: --depth: 'x' is not a whole number\n" TRY },
        { "a b", 2, "tp-models: 'b': only one PREFIX is allowed\n" TRY },
        { "--summary tiny --params tiny", 2,
          "tp-models: --summary, --params, --members, --paper and a list of models exclude each "
          "other\n" TRY },
        { "--memory --paper ViL", 2,
          "tp-models: --memory: only a list takes it; --summary always shows the memory\n" TRY },
        { "--paper 'ViL Table 22'", 1,
          "tp-models: no row of a paper has all words of 'ViL Table 22'; did you mean 'ViL Table "
          "2'?\n" },
        { "--paper nonsense", 1,
          "tp-models: no row of a paper has all words of 'nonsense'; --paper ViL lists a paper\n" },
        { "--set depths=1 swin", 2,
          "tp-models: --set: it changes the model of --summary, --params or --members\n" TRY },
        { "--summary swin-t --set depth=1,1,1,1", 1,
          "tp-models: --set: 'depth' is no member of swin; did you mean 'depths'?\n" },
        { "--members retinanet-vil-tiny --set conv=3", 1,
          "tp-models: --set: 'conv' is no member of retinanet; did you mean 'convs'?\n" },
        { "--members retinanet-vil-tiny --set backbone.archs=l1", 1,
          "tp-models: --set: 'archs' is no member of vision-longformer; did you mean 'arch'?\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(models(cases[i].arguments), cases[i].status, "%s", cases[i].arguments);
        cr_expect_str_eq(text, cases[i].output);
    }
    cr_expect_eq(models("--help"), 0);
    cr_expect(strncmp(text, "NAME\n    tp-models", 18) == 0 && strstr(text, "--fold"));
}

/* ---- a summary ---- */

Test(tp_models, tree)
{
    cr_expect_eq(models("--summary tiny"), 0);
    cr_expect_str_eq(
        text,
        "tiny: convolutional, 32 x 32\n"
        "\n"
        "layer    op         output           parameters   mult-adds    share\n"
        "────────────────────────────────────────────────────────────────────\n"
        "tiny                [1,1000]            374,392      4.70 M  100.0 %\n"
        "├─ conv             [1,2,2,128]         244,656      4.57 M   97.3 %\n"
        "│  ├─ 0  conv2d     [1,32,32,16]            432       442 k    9.4 %\n"
        "│  ├─ 1  conv2d     [1,16,16,32]          4,608      1.18 M   25.1 %\n"
        "│  ├─ 2  conv2d     [1,8,8,64]           18,432      1.18 M   25.1 %\n"
        "│  ├─ 3  conv2d     [1,4,4,128]          73,728      1.18 M   25.1 %\n"
        "│  └─ 4  conv2d     [1,2,2,128]         147,456       590 k   12.6 %\n"
        "├─ norm             [1,2,2,128]             736           -\n"
        "│  ├─ 0  batchnorm  [1,32,32,16]             32           -\n"
        "│  ├─ 1  batchnorm  [1,16,16,32]             64           -\n"
        "│  ├─ 2  batchnorm  [1,8,8,64]              128           -\n"
        "│  ├─ 3  batchnorm  [1,4,4,128]             256           -\n"
        "│  └─ 4  batchnorm  [1,2,2,128]             256           -\n"
        "└─ head  linear     [1,1000]            129,000       128 k    2.7 %\n"
        "────────────────────────────────────────────────────────────────────\n"
        "input        [1,32,32,3], one image\n"
        "parameters   374,392, 1.4 MiB in f32; 741 elements of buffers\n"
        "mult-adds    4.70 M\n"
        "FLOPs        4.76 M by the paper's count\n"
        "memory       0.3 MiB a sample for backward, 0.1 in bf16, 0.3 with --recompute block\n");
}

/* Trees at several depths, and with one line for equal blocks. */
Test(tp_models, trees_of_other_models)
{
    static const struct {
        const char *arguments, *holds, *lacks;
    } cases[] = {
        { "--summary cvt-ls-13", "cvt-ls-13 is cvt_ls-13-224: CvT*-LS, 224 x 224\n", "proj_q" },
        { "--summary cvt-ls-13", "│     └─ 9 ", "(window_attention_2d)" },
        { "--summary cvt-ls-13 --depth 0", "\ncvt_ls-13-224 ", "stage0" },
        { "--summary cvt-ls-13 --depth 9 --fold", "└─ 0 .. 9  (10 x) ", "└─ 9" },
        { "--summary cvt-ls-13 --depth 5", "├─ (window_attention_2d) ", "(10 x)" },
        { "--summary vil-tiny-rpb --fold", "├─ 1, 3 .. 17  (9 x) ", "├─ 3 " },
        { "--summary vil-tiny-rpb --fold", "└─ 2, 4 .. 18  (9 x) ", "└─ 18" },
        { "--summary ls_lm-tiny --depth 4", "└─ (ls_attention) ", "(4 x)" },
        { "--summary cvt-13-448", "cvt-13-448: cvt, 448 x 448\n", " is " },
        { "--summary lra-text-ls", "[1,4096], one document\n", "pair" },
        { "--summary lra-retrieval-performer", "[1,2,4096], one pair of documents\n", "segment" },
        { "--summary roberta-base", "125,237,762, 477.7 MiB in f32; 590,592 are not trained",
          "buffers" },
        { "--summary lra-text-ls --depth 5", "├─ (window_attention_2d) ", "(attention_" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(models(cases[i].arguments), 0, "%s: %s", cases[i].arguments, text);
        cr_expect(strstr(text, cases[i].holds), "%s lacks '%s'", cases[i].arguments,
                  cases[i].holds);
        cr_expect(!strstr(text, cases[i].lacks), "%s holds '%s'", cases[i].arguments,
                  cases[i].lacks);
    }
}

/* ---- JSON ---- */

Test(tp_models, list_as_json)
{
    json_t *list = parsed("--json"), *one;
    const tp_model_row *row;
    int models = 0;
    size_t i;
    json_array_foreach(list, i, one)
    {
        row = tp_model_at((int)i);
        cr_expect(json_integer_value(json_object_get(one, "parameters")) > 0);
        cr_expect_str_eq(json_string_value(json_object_get(one, "name")),
                         row ? row->name : tp_detector_known((int)i - models));
        if (!row) continue;
        models++;
        cr_expect_str_eq(json_string_value(json_object_get(one, "family")), row->family);
        cr_expect(json_number_value(json_object_get(one, "paper_flops")) == row->flops);
    }
    cr_expect(!tp_model_at(models) && !tp_detector_known((int)i - models));
    json_decref(list);
    list = parsed("--json --memory mask-rcnn-vil-small-s");
    cr_expect_eq(json_array_size(list), 2);
    one = json_array_get(list, 1);
    cr_expect_str_eq(json_string_value(json_object_get(one, "name")), "mask-rcnn-vil-small-sra32");
    cr_expect_str_eq(json_string_value(json_object_get(one, "family")), "Mask R-CNN");
    cr_expect_eq(json_number_value(json_object_get(one, "paper_parameters")), 51.5e6);
    cr_expect(json_integer_value(json_object_get(one, "training_bytes")) >
              json_integer_value(json_object_get(one, "detection_bytes")));
    json_decref(list);
    list = parsed("--json --filter cvt-ls-13");
    cr_expect_eq(json_array_size(list), 1);
    one = json_object_get(json_array_get(list, 0), "also");
    cr_expect_str_eq(json_string_value(json_array_get(one, 1)), "CvT*-LS-13");
    json_decref(list);
}

/* A node has at least the parameters and multiply-adds of its parts. */
static void check_node(const char *model, const json_t *node)
{
    const json_t *part, *parts = json_object_get(node, "layers");
    double macs = 0.0;
    json_int_t params = 0;
    size_t i;
    json_array_foreach(parts, i, part)
    {
        check_node(model, part);
        macs += json_number_value(json_object_get(part, "macs"));
        params += json_integer_value(json_object_get(part, "parameters"));
    }
    cr_expect(macs <= json_number_value(json_object_get(node, "macs")) * (1 + 1e-12) &&
                  params <= json_integer_value(json_object_get(node, "parameters")),
              "%s: %s", model, json_string_value(json_object_get(node, "name")));
}

/* The tree of a detector has the multiply-adds that the plan counts. */
Test(tp_models, detectors)
{
    static const char *const names[] = { "retinanet-vil-mini", "mask-rcnn-resnet18" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char arguments[128], why[256];
        tp_detector_cfg c;
        tp_detector_plan p;
        cr_assert(tp_detector_preset(&c, names[i], 80, TP_DETECTRON2, why, sizeof why), "%s", why);
        cr_assert(tp_detector_planned(&p, &c,
                                      &(tp_detector_plan_opts){ .size = { 800, 1344 }, .batch = 1 },
                                      why, sizeof why),
                  "%s", why);
        snprintf(arguments, sizeof arguments, "--summary %s --json --depth 9", names[i]);
        json_t *j = parsed(arguments);
        const double macs = json_number_value(json_object_get(j, "macs"));
        check_node(names[i], j);
        cr_expect_eq(macs, p.macs[0] + p.macs[1] + p.macs[2], "%s", names[i]);
        cr_expect_eq((double)json_integer_value(json_object_get(j, "parameters")),
                     p.params[0] + p.params[1] + p.params[2], "%s", names[i]);
        cr_expect_eq(json_integer_value(json_object_get(j, "training_bytes")), p.train_bytes);
        json_decref(j);
    }
    cr_expect_eq(models("--summary mask-rcnn-resnet18 --depth 1"), 0);
    cr_expect(strstr(text, "mask-rcnn-resnet18: Mask R-CNN, 800 x 1344\n") &&
                  strstr(text, "the paper prints 31.2 M; ") &&
                  strstr(text, "161 G, without masks\nFLOPs        161 G by the paper's count"),
              "%s", text);
}

Test(tp_models, summaries_as_json)
{
    static const char *const names[] = { "ls_lm-tiny",   "txl-tiny",
                                         "cvt-13",       "cvt-ls-13",
                                         "vil-tiny-rpb", "vil-tiny-1-1-9-1-performer",
                                         "vit-lsla",     "swin-t",
                                         "cswin-t",      "coat_lite-tiny",
                                         "mpvit-t",      "convnet",
                                         "lra-text-ls" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char arguments[128], why[256];
        tp_model_cfg c;
        cr_assert(tp_model_preset(&c, names[i], why, sizeof why), "%s", why);
        snprintf(arguments, sizeof arguments, "--summary %s --json --depth 9", names[i]);
        json_t *j = parsed(arguments);
        const double macs = json_number_value(json_object_get(j, "macs"));
        const double want = tp_model_cost(&c, 0, 0).macs;
        check_node(names[i], j);
        cr_expect_eq(macs, want, "%s: %g multiply-adds, not %g", names[i], macs, want);
        cr_expect_eq(json_array_size(json_object_get(j, "input")),
                     c.model->input == TP_IMAGES ? 4 : 2, "%s", names[i]);
        json_decref(j);
    }
}
