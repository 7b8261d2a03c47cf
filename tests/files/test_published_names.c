/* test_published_names.c - weights in other programs' checkpoints: their names become ours, and
 * ours stay. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vision.h>

#include "support/folder.h"
#include "support/published.h"

TestSuite(published_names, .init = make_folder, .fini = remove_folder);

static char why[2048];

/* The spelling tables leave our own names unchanged. */
Test(published_names, our_names_stay)
{
    static const char *const models[] = { "tiny",
                                          "cvt-13",
                                          "cvt-ls-13",
                                          "vil-tiny-rpb",
                                          "vil-medium-ls",
                                          "vil-tiny-1-1-9-1-performer",
                                          "vil-tiny-1-1-9-1-linformer",
                                          "vit-lsla",
                                          "deit-t-distilled",
                                          "resnet-50",
                                          "pvt-tiny",
                                          "pvt2-b0",
                                          "swin-t",
                                          "cswin-t",
                                          "coat_lite-small",
                                          "mpvit-t",
                                          "ls_lm-tiny",
                                          "txl-tiny" };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tp_model_cfg cfg;
        tp_net *N;
        cr_assert(tp_model_preset(&cfg, models[i], why, sizeof why), "%s", why);
        tp_params *P = published_params(&cfg, D, &N);
        tp_writer *W = published_file();
        for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
            tp_writer_add(W, it.name, TP_F32, TP_SHAPE(1), (const float[1]){ 0 }, true);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        tp_file *F = tp_file_open(in_folder("w.safetensors"));
        char prefix[64] = "?";
        cr_assert(tp_model_adopt(&cfg, F, prefix, sizeof prefix), "%s", tp_file_why(F));
        cr_expect_str_eq(prefix, "", "%s", models[i]);
        cr_expect_eq(tp_model_get(&cfg).outputs, 1, "%s has no head", models[i]);
        for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
            cr_expect(tp_file_find(F, it.name), "%s: %s", models[i], it.name);
        tp_file_close(F);
        tp_net_free(N);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* The name of a CvT parameter in Hugging Face's transformers. */
static void spell_as_theirs(const char *name, char *buf, size_t size)
{
    static const char *const parts[][2] = {
        { "patch_embed.proj", "embedding.convolution_embeddings.projection" },
        { "patch_embed.norm", "embedding.convolution_embeddings.normalization" },
        { "norm1", "layernorm_before" },
        { "norm2", "layernorm_after" },
        { "mlp.fc1", "intermediate.dense" },
        { "mlp.fc2", "output.dense" },
        { "attn.proj.", "attention.output.dense." },
        { "cls_token", "cls_token" },
    };
    static const char *const roles[] = { "query", "key", "value" };
    int stage, block, used = 0;
    char role, rest[256];
    if (sscanf(name, "stage%d.blocks.%d.%n", &stage, &block, &used) == 2 && used)
        snprintf(buf, size, "cvt.encoder.stages.%d.layers.%d.", stage, block);
    else if (sscanf(name, "stage%d.%n", &stage, &used) == 1 && used)
        snprintf(buf, size, "cvt.encoder.stages.%d.", stage);
    else {
        const bool head = strncmp(name, "head", 4) == 0;
        snprintf(buf, size, "%s%s", head ? "classifier" : "layernorm", name + 4);
        return;
    }
    char *end = buf + strlen(buf);
    name += used;
    size -= (size_t)(end - buf);
    if (sscanf(name, "attn.conv_proj_%c.%255s", &role, rest) == 2) {
        const char *r = roles[role == 'k' ? 1 : role == 'v' ? 2 : 0], *dot = strchr(rest, '.');
        snprintf(end, size,
                 "attention.attention.convolution_projection_%s.convolution_projection.%s%s", r,
                 rest[0] == 'b' ? "normalization" : "convolution", dot);
        return;
    }
    if (sscanf(name, "attn.proj_%c.%255s", &role, rest) == 2) {
        snprintf(end, size, "attention.attention.projection_%s.%s",
                 roles[role == 'k'   ? 1
                       : role == 'v' ? 2
                                     : 0],
                 rest);
        return;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t n = strlen(parts[i][0]);
        if (strncmp(name, parts[i][0], n) == 0) snprintf(end, size, "%s%s", parts[i][1], name + n);
    }
}

Test(published_names, transformers_names_of_cvt)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_model_cfg cfg;
    cr_assert(tp_model_preset(&cfg, "cvt-13-32", why, sizeof why), "%s", why);
    tp_cvt_cfg *c = (tp_cvt_cfg *)&cfg.at;
    for (int s = 0; s < TP_CVT_STAGES; s++) c->dim[s] = 4 * c->heads[s], c->blocks[s] = 1;
    c->classes = 5;
    tp_net *N, *M;
    tp_params *P = published_params(&cfg, D, &N);
    tp_writer *W = published_file();
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        char name[512], x[16384];
        const size_t bytes = (size_t)tp_numel(it.tensor) * tp_dtype_size(it.dtype);
        cr_assert(bytes <= sizeof x && tp_param_get(P, it.tensor, it.dtype, x, bytes));
        spell_as_theirs(it.name, name, sizeof name);
        tp_writer_add(W, name, it.dtype, it.shape, x, true);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);

    c->classes = 7; /* the file knows better */
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    cr_assert(tp_model_adopt(&cfg, F, NULL, 0), "%s", tp_file_why(F));
    cr_expect_eq(tp_model_get(&cfg).outputs, 5);
    tp_params *Q = tp_params_new(D, &(tp_params_opts){ .blank = true });
    M = tp_net_new(Q, "", &cfg);
    cr_assert(tp_net_load(Q, M, F, false), "%s", tp_params_why(Q));
    double a[5], b[5];
    cr_assert(tp_param_get(P, tp_find(P, "head.bias"), TP_F64, a, sizeof a));
    cr_assert(tp_param_get(Q, tp_find(Q, "head.bias"), TP_F64, b, sizeof b));
    cr_expect(memcmp(a, b, sizeof a) == 0);
    tp_file_close(F);
    tp_net_free(M);
    tp_net_free(N);
    tp_params_free(Q);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- other publishers' names as replacements in ours; ^ is the beginning of a name ---- */

typedef const char *const renaming[2];

static renaming torchvision_vit[] = {
    { "blocks.", "encoder.layers.encoder_layer_" },
    { ".norm1.", ".ln_1." },
    { ".norm2.", ".ln_2." },
    { ".attn.qkv.", ".self_attention.in_proj_" },
    { ".attn.proj.", ".self_attention.out_proj." },
    { ".mlp.fc1.", ".mlp.0." },
    { ".mlp.fc2.", ".mlp.3." },
    { "patch_embed.proj.", "conv_proj." },
    { "pos_embed", "encoder.pos_embedding" },
    { "cls_token", "class_token" },
    { "^norm.", "encoder.ln." },
    { "^head.", "heads.head." },
    { NULL, NULL },
};

static renaming transformers_resnet[] = {
    { "^conv1.", "resnet.embedder.embedder.convolution." },
    { "^bn1.", "resnet.embedder.embedder.normalization." },
    { "^layer1.", "resnet.encoder.stages.0.layers." },
    { "^layer2.", "resnet.encoder.stages.1.layers." },
    { "^layer3.", "resnet.encoder.stages.2.layers." },
    { "^layer4.", "resnet.encoder.stages.3.layers." },
    { ".downsample.0.", ".shortcut.convolution." },
    { ".downsample.1.", ".shortcut.normalization." },
    { ".conv1.", ".layer.0.convolution." },
    { ".bn1.", ".layer.0.normalization." },
    { ".conv2.", ".layer.1.convolution." },
    { ".bn2.", ".layer.1.normalization." },
    { ".conv3.", ".layer.2.convolution." },
    { ".bn3.", ".layer.2.normalization." },
    { "^fc.", "classifier.1." },
    { NULL, NULL },
};

static renaming timm_pvt2[] = {
    { "^patch_embed1.", "patch_embed." },
    { "^patch_embed2.", "stages.1.downsample." },
    { "^patch_embed3.", "stages.2.downsample." },
    { "^patch_embed4.", "stages.3.downsample." },
    { "^block1.", "stages.0.blocks." },
    { "^block2.", "stages.1.blocks." },
    { "^block3.", "stages.2.blocks." },
    { "^block4.", "stages.3.blocks." },
    { "^norm1.", "stages.0.norm." },
    { "^norm2.", "stages.1.norm." },
    { "^norm3.", "stages.2.norm." },
    { "^norm4.", "stages.3.norm." },
    { ".dwconv.dwconv.", ".dwconv." },
    { NULL, NULL },
};

static renaming torchvision_swin[] = {
    { "patch_embed.proj.", "features.0.0." },
    { "patch_embed.norm.", "features.0.2." },
    { "layers.0.blocks.", "features.1." },
    { "layers.0.downsample.", "features.2." },
    { "layers.1.blocks.", "features.3." },
    { "layers.1.downsample.", "features.4." },
    { "layers.2.blocks.", "features.5." },
    { "layers.2.downsample.", "features.6." },
    { "layers.3.blocks.", "features.7." },
    { ".mlp.fc1.", ".mlp.0." },
    { ".mlp.fc2.", ".mlp.3." },
    { NULL, NULL },
};

/* Official names, but for other weights. */
static renaming timm_swin[] = {
    { "layers.2.downsample.", "layers.3.downsample." },
    { "layers.1.downsample.", "layers.2.downsample." },
    { "layers.0.downsample.", "layers.1.downsample." },
    { "^head.", "head.fc." },
    { NULL, NULL },
};

static void rename_by(const renaming *table, const char *name, char *buf, size_t size)
{
    snprintf(buf, size, "%s", name);
    for (; (*table)[0]; table++) {
        const bool first = (*table)[0][0] == '^';
        const char *from = (*table)[0] + first;
        char *at = strstr(buf, from), rest[256];
        if (!at || (first && at != buf)) continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(from));
        snprintf(at, (size_t)(buf + size - at), "%s%s", (*table)[1], rest);
    }
}

/* Up to `kept` names equal the publisher's. */
static void write_renamed(tp_params *P, const renaming *table, int kept)
{
    tp_writer *W = published_file();
    int same = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t bytes = (size_t)tp_numel(it.tensor) * tp_dtype_size(it.dtype);
        char name[256], *x = malloc(bytes + 1);
        cr_assert(x && tp_param_get(P, it.tensor, it.dtype, x, bytes), "%s", it.name);
        rename_by(table, it.name, name, sizeof name);
        same += strcmp(name, it.name) == 0;
        tp_writer_add(W, name, it.dtype, it.shape, x, true);
        free(x);
    }
    cr_expect(same <= kept, "%d names have not changed", same);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

Test(published_names, names_of_other_libraries)
{
    static const struct {
        const char *model;
        const renaming *table;
        int kept;
    } cases[] = {
        { "deit-mini", torchvision_vit, 0 },      { "resnet-mini", transformers_resnet, 0 },
        { "resnet-50", transformers_resnet, 0 },  { "pvt2-mini", timm_pvt2, 2 },
        { "swin-mini", torchvision_swin, 4 },     { "swin-t", torchvision_swin, 4 },
        { "swin-t", timm_swin, 173 - 3 * 3 - 2 },
    };
    tp_device *D = tp_device_open("cpu", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_model_cfg cfg;
        tp_net *N, *M;
        cr_assert(tp_model_preset(&cfg, cases[i].model, why, sizeof why), "%s", why);
        tp_params *P = published_params(&cfg, D, &N);
        tp_params *Q = tp_params_new(D, &(tp_params_opts){ .blank = true });
        M = tp_net_new(Q, "", &cfg);
        write_renamed(P, cases[i].table, cases[i].kept);
        tp_file *F = tp_file_open(in_folder("w.safetensors"));
        cr_expect(tp_net_load(Q, M, F, false), "%s: %s", cases[i].model, tp_params_why(Q));
        for (tp_param_info it = { 0 }; tp_params_ok(Q) && tp_next_param(P, &it);) {
            const size_t bytes = (size_t)tp_numel(it.tensor) * tp_dtype_size(it.dtype);
            char *a = malloc(2 * bytes + 1), *b = a + bytes;
            cr_assert(a && tp_param_get(P, it.tensor, it.dtype, a, bytes) &&
                          tp_param_get(Q, tp_find(Q, it.name), it.dtype, b, bytes),
                      "%s", it.name);
            cr_expect(memcmp(a, b, bytes) == 0, "%s: %s", cases[i].model, it.name);
            free(a);
        }
        tp_file_close(F);
        tp_net_free(N);
        tp_net_free(M);
        tp_params_free(P);
        tp_params_free(Q);
    }
    tp_device_close(D);
}

/* ---- wrappers of modules ---- */

/* Writes the weights of P; put(name, i) gives the name of the i-th, in a buffer. */
static void write_wrapped(tp_params *P, const char *(*put)(const char *name, int i),
                          const char *second)
{
    tp_writer *W = published_file();
    char name[512];
    int i = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it); i++) {
        const size_t bytes = (size_t)tp_numel(it.tensor) * tp_dtype_size(it.dtype);
        char *x = malloc(bytes + 1);
        cr_assert(x && tp_param_get(P, it.tensor, it.dtype, x, bytes), "%s", it.name);
        tp_writer_add(W, put(it.name, i), it.dtype, it.shape, x, true);
        snprintf(name, sizeof name, "%s%s", second ? second : "", it.name);
        if (second) tp_writer_add(W, name, it.dtype, it.shape, x, true);
        free(x);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
}

static char wrapped[600];

static const char *at_the_beginning(const char *name, int i)
{
    (void)i;
    snprintf(wrapped, sizeof wrapped, "module._orig_mod.%s", name);
    return wrapped;
}

/* FSDP wraps blocks, checkpoint_wrapper their contents, torch.compile single modules; each name
 * gets another wrapper in another place. */
static const char *inside(const char *name, int i)
{
    static const char *const parts[] = { "_orig_mod.", "_fsdp_wrapped_module.",
                                         "_checkpoint_wrapped_module.",
                                         "_fsdp_wrapped_module._checkpoint_wrapped_module.",
                                         "module." };
    int dots = 0, at = 0;
    for (const char *s = name; *s; s++) dots += *s == '.';
    const int place = i % (dots + 1);
    for (int k = 0; k < place; at++) k += name[at] == '.';
    snprintf(wrapped, sizeof wrapped, "state_dict.model.%.*s%s%s", at, name,
             parts[(size_t)i % (sizeof parts / sizeof *parts)], name + at);
    return wrapped;
}

static const char *under_student(const char *name, int i)
{
    (void)i;
    snprintf(wrapped, sizeof wrapped, "student.module.%s", name);
    return wrapped;
}

static bool loads(const tp_model_cfg *cfg, tp_device *D, tp_params *P)
{
    tp_params *Q = tp_params_new(D, &(tp_params_opts){ .blank = true });
    tp_net *M = tp_net_new(Q, "", cfg);
    tp_file *F = tp_file_open(in_folder("w.safetensors"));
    const bool done = tp_net_load(Q, M, F, false);
    snprintf(why, sizeof why, "%s", tp_params_why(Q));
    for (tp_param_info it = { 0 }; done && tp_next_param(P, &it);) {
        const size_t bytes = (size_t)tp_numel(it.tensor) * tp_dtype_size(it.dtype);
        char *a = malloc(2 * bytes + 1), *b = a + bytes;
        cr_assert(a && tp_param_get(P, it.tensor, it.dtype, a, bytes) &&
                  tp_param_get(Q, tp_find(Q, it.name), it.dtype, b, bytes));
        cr_expect(memcmp(a, b, bytes) == 0, "%s", it.name);
        free(a);
    }
    tp_file_close(F);
    tp_net_free(M);
    tp_params_free(Q);
    return done;
}

Test(published_names, names_of_wrapped_modules)
{
    static const char *const models[] = { "tiny",      "cvt-small",  "vil-tiny-rpb", "resnet-mini",
                                          "swin-mini", "ls_lm-tiny", "roberta-mini" };
    tp_device *D = tp_device_open("cpu", NULL);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tp_model_cfg cfg;
        tp_net *N;
        cr_assert(tp_model_preset(&cfg, models[i], why, sizeof why), "%s", why);
        tp_params *P = published_params(&cfg, D, &N);
        write_wrapped(P, at_the_beginning, NULL);
        cr_expect(loads(&cfg, D, P), "%s: %s", models[i], why);
        write_wrapped(P, inside, NULL);
        cr_expect(loads(&cfg, D, P), "%s: %s", models[i], why);
        tp_net_free(N);
        tp_params_free(P);
    }
    tp_device_close(D);
}

/* Ambiguous weights are not guessed; averages are not weights if there are others. */
Test(published_names, two_weights_in_a_file_are_refused)
{
    tp_model_cfg cfg;
    tp_net *N;
    tp_device *D = tp_device_open("cpu", NULL);
    cr_assert(tp_model_preset(&cfg, "tiny", why, sizeof why), "%s", why);
    tp_params *P = published_params(&cfg, D, &N);
    write_wrapped(P, under_student, "teacher.");
    cr_expect_not(loads(&cfg, D, P));
    cr_expect(strstr(why, "'student.module.") && strstr(why, "'teacher.") &&
                  strstr(why, "has two tensors"),
              "%s", why);
    write_wrapped(P, at_the_beginning, "");
    cr_expect_not(loads(&cfg, D, P));
    cr_expect(strstr(why, "'module._orig_mod.") && strstr(why, "has two tensors"), "%s", why);
    write_wrapped(P, under_student, "ema_model.");
    cr_expect(loads(&cfg, D, P), "%s", why);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

/* tp_load needs no model. */
Test(published_names, tp_load_finds_wrapped_names)
{
    static const float x[2] = { 3, 4 };
    float now[2];
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor w = tp_param(P, "layers.0.weight", TP_SHAPE(2), (tp_init){ 0 }, 0);
    tp_param(P, "module.weight", TP_SHAPE(2), (tp_init){ 0 }, 0); /* a name of ours stays */
    for (int twice = 0; twice < 2; twice++) {
        tp_writer *W = published_file();
        tp_writer_add(W, "layers._checkpoint_wrapped_module.0._orig_mod.weight", TP_F32,
                      TP_SHAPE(2), x, true);
        tp_writer_add(W, "module.weight", TP_F32, TP_SHAPE(2), x, true);
        if (twice) tp_writer_add(W, "module.layers.0.weight", TP_F32, TP_SHAPE(2), now, true);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        const bool done = tp_load(P, in_folder("w.safetensors"), NULL);
        if (twice)
            cr_expect(!done && strstr(tp_params_why(P), "ambiguous"), "%s", tp_params_why(P));
        else
            cr_expect(done && tp_param_get(P, w, TP_F32, now, sizeof now) && now[1] == 4, "%s",
                      tp_params_why(P));
        now[0] = 9;
    }
    tp_params_free(P);
    tp_device_close(D);
}

Test(published_names, unwrapped)
{
    static const char *const cases[][2] = {
        { "a._orig_mod.b", "a.b" },
        { "_orig_mod.module._fsdp_wrapped_module.w", "w" },
        { "a.module", NULL }, /* a weight of that name */
        { "amodule.b", NULL },
        { "module.", NULL },
        { "module", NULL },
        { "", NULL },
        { "a.._orig_mod..b", "a...b" },
    };
    char plain[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool found = tp_file_unwrapped(cases[i][0], plain, sizeof plain);
        cr_expect_eq(found, cases[i][1] != NULL, "%s", cases[i][0]);
        if (found && cases[i][1]) cr_expect_str_eq(plain, cases[i][1]);
    }
    cr_expect_not(tp_file_unwrapped("module.abcdef", plain, 6));
    cr_expect(tp_file_unwrapped("module.abcdef", plain, 8));
}
