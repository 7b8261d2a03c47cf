/* test_torch_files.c - checkpoints of PyTorch (tests/fixtures/torch, written by PyTorch): values of
 * every dtype and layout in both containers, several files with an index, and refusals. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "support/folder.h"

TestSuite(torch_files, .init = make_folder, .fini = remove_folder);

#define FIXTURE(name) TP_SOURCE_DIR "/tests/fixtures/torch/" name

static const char *const containers[] = { FIXTURE("zip.pth"), FIXTURE("legacy.pth"),
                                          FIXTURE("protocol4.pth"), FIXTURE("compressed.pth") };

enum { CONTAINERS = sizeof containers / sizeof *containers };

static unsigned char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s cannot be opened", path);
    unsigned char *bytes = malloc(1 << 16);
    *n = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

/* ---- values ---- */

static void expect(tp_file *F, const char *name, const char *stored, tp_shape s, const double *x)
{
    double real[32];
    int64_t whole[32];
    const tp_file_tensor *t = tp_file_find(F, name);
    cr_assert(t, "%s lacks %s", tp_file_path(F), name);
    cr_expect_str_eq(t->stored, stored, "%s", name);
    cr_expect_eq(t->shape.ndim, s.ndim);
    for (int i = 0; i < s.ndim; i++) cr_expect_eq(t->shape.dim[i], s.dim[i], "%s", name);
    const bool is_float = strchr(stored, 'F') != NULL;
    cr_assert(tp_file_read(F, t, is_float ? TP_F64 : TP_I64, is_float ? (void *)real : whole), "%s",
              tp_file_why(F));
    for (int64_t i = 0; i < t->numel; i++)
        cr_expect_eq(is_float ? real[i] : (double)whole[i], x[i], "%s[%d]", name, (int)i);
}

static const double count[] = { -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 };

Test(torch_files, every_dtype_and_layout_in_every_container)
{
    static const char *const dtypes[][2] = { { "f32", "F32" },   { "f64", "F64" }, { "f16", "F16" },
                                             { "bf16", "BF16" }, { "i64", "I64" }, { "i32", "I32" },
                                             { "i16", "I16" },   { "i8", "I8" } };
    for (int c = 0; c < CONTAINERS; c++) {
        tp_file *F = tp_file_open(containers[c]);
        cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
        cr_expect_eq(tp_file_count(F), 19);
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            char name[32];
            snprintf(name, sizeof name, "model.%s", dtypes[i][0]);
            expect(F, name, dtypes[i][1], TP_SHAPE(2, 3), count);
        }
        expect(F, "model.u8", "U8", TP_SHAPE(2, 3), count + 2);
        expect(F, "model.bool", "BOOL", TP_SHAPE(3), (double[]){ 1, 0, 1 });
        expect(F, "model.scalar", "F32", TP_SCALAR, (double[]){ 7.5 });
        expect(F, "model.empty", "F32", TP_SHAPE(0, 4), NULL);
        expect(F, "model.transposed", "F32", TP_SHAPE(3, 4),
               (double[]){ -2, 1, 4, 7, -1, 2, 5, 8, 0, 3, 6, 9 });
        expect(F, "model.middle", "F32", TP_SHAPE(2, 4), count + 8);
        expect(F, "model.column", "F32", TP_SHAPE(3), (double[]){ -1, 4, 9 });
        expect(F, "model.tied.weight", "F32", TP_SHAPE(2, 3), count);
        expect(F, "model.parameter", "F32", TP_SHAPE(5), count);
        expect(F, "list.2.inner", "F32", TP_SHAPE(1), count);
        expect(F, "optimizer.state.0.exp_avg", "F32", TP_SHAPE(2), count);
        tp_file_close(F);
    }
}

Test(torch_files, numbers_and_texts_are_metadata)
{
    for (int c = 0; c < CONTAINERS; c++) {
        int64_t epoch = 0;
        double best = 0.0, rate = 0.0;
        tp_file *F = tp_file_open(containers[c]);
        cr_expect(tp_file_int(F, "epoch", &epoch) && epoch == 12);
        cr_expect(tp_file_num(F, "best", &best) && best == 0.75);
        cr_expect(tp_file_num(F, "args.lr", &rate) && rate == 0.25);
        cr_expect_str_eq(tp_file_meta(F, "args.arch"), "small");
        cr_expect_null(tp_file_meta(F, "list.0"), "numbers of lists are none");
        tp_file_close(F);
    }
}

Test(torch_files, parts_of_a_transposed_tensor)
{
    const double all[] = { -2, 1, 4, 7, -1, 2, 5, 8, 0, 3, 6, 9 };
    tp_file *F = tp_file_open(containers[0]);
    const tp_file_tensor *t = tp_file_find(F, "model.transposed");
    for (int64_t first = 0; first < 12; first++)
        for (int64_t n = 0; n <= 12 - first; n++) {
            double x[12];
            cr_assert(tp_file_read_part(F, t, first, n, TP_F64, x), "%s", tp_file_why(F));
            cr_expect_arr_eq(x, all + first, (size_t)n * sizeof *x);
        }
    cr_expect_float_eq(((const float *)tp_file_data(F, t))[4], -1.0F, 0.0);
    tp_file_close(F);
}

Test(torch_files, weights_load_by_name)
{
    float w[2] = { 0 };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor weight = tp_param(P, "weight", TP_SHAPE(1, 2), (tp_init){ 0 }, 0);
    tp_param(P, "bias", TP_SHAPE(1), (tp_init){ 0 }, 0);
    cr_expect(tp_load(P, FIXTURE("linear.pth"), NULL), "%s", tp_params_why(P));
    cr_assert(tp_param_get(P, weight, TP_F32, w, sizeof w));
    cr_expect(w[0] != 0.0F && w[1] != 0.0F);
    cr_expect_not(tp_load(P, FIXTURE("shards.index.json"), NULL));
    cr_expect(strstr(tp_params_why(P), "b.bias"), "%s", tp_params_why(P));
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- several files ---- */

Test(torch_files, an_index_of_several_files)
{
    tp_file *F = tp_file_open(FIXTURE("shards.index.json"));
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_count(F), 3);
    expect(F, "a.weight", "F32", TP_SHAPE(2, 2), count);
    expect(F, "b.weight", "F32", TP_SHAPE(3), count);
    expect(F, "b.bias", "F32", TP_SHAPE(1), count);
    cr_expect(tp_file_verify(F));
    tp_file_close(F);
}

static void refuse(const char *path, const char *text)
{
    tp_file *F = tp_file_open(path);
    cr_expect_not(tp_file_ok(F), "%s is taken", path);
    cr_expect(strstr(tp_file_why(F), text), "'%s' lacks '%s'", tp_file_why(F), text);
    cr_expect_eq(tp_file_count(F), 0);
    cr_expect_null(tp_file_meta(F, "epoch"));
    tp_file_close(F);
}

static void refuse_index(const char *json, const char *text)
{
    refuse(write_in_folder("x.index.json", json, strlen(json)), text);
}

/* Windows editors begin files with a byte order mark. */
Test(torch_files, an_index_in_another_encoding)
{
    static const char wide[] = "\xff\xfe{\0\"\0w\0}\0";
    refuse(write_in_folder("x.index.json", wide, sizeof wide - 1),
           "is UTF-16; convert it to UTF-8");
    refuse_index("\xef\xbb\xbf{\"weight_map\": {\"a\": \"none.bin\"}}", "none.bin");
    refuse_index("{\"weight_map\": {\"a\\u0000b\": \"x\"}}", "not valid JSON");
    refuse_index("{\"weight_map\": {\"a\": \"x\\u0000\"}}", "the character \\u0000");
}

Test(torch_files, a_bad_index)
{
    refuse_index("{\"weight_map\": ", "not valid JSON");
    refuse_index("{\"other\": {}}", "without a 'weight_map'");
    refuse_index("{\"weight_map\": {\"a\": 1}}", "file in the same folder");
    refuse_index("{\"weight_map\": {\"a\": \"../b.bin\"}}", "file in the same folder");
    refuse_index("{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "file in the same folder");
    refuse_index("{\"weight_map\": {\"a\": \"none.bin\"}}", "none.bin");
    refuse_index("{\"weight_map\": {\"a\": \"x.index.json\"}}", "x.index.json");
    size_t n;
    unsigned char *half = read_all(FIXTURE("shard-00001-of-00002.bin"), &n);
    write_in_folder("half.bin", half, n);
    free(half);
    refuse_index("{\"weight_map\": {\"b.weight\": \"half.bin\"}}", "is not in 'half.bin'");
}

/* ---- refusals ---- */

Test(torch_files, code_is_refused_by_name_and_never_run)
{
    refuse(FIXTURE("hostile.pth"), "posix.system");
    refuse(FIXTURE("hostile_legacy.pth"), "posix.system");
    refuse(FIXTURE("module.pth"), "torch.nn.modules.linear.Linear");
    cr_expect_neq(access("/tmp/tapegrad-was-run", F_OK), 0);
}

/* A file truncated anywhere is refused: an archive ends with its directory, a legacy file with the
 * data of its last tensor. */
Test(torch_files, cut_off_anywhere)
{
    for (int c = 0; c < 2; c++) {
        size_t n;
        unsigned char *bytes = read_all(containers[c], &n);
        for (size_t kept = 0; kept < n; kept += kept < 64 ? 1 : 13) {
            tp_file *F = tp_file_open(write_in_folder("cut.pth", bytes, kept));
            cr_expect_not(tp_file_ok(F), "%d: %zu of %zu bytes", c, kept, n);
            cr_expect_neq(tp_file_why(F)[0], 0);
            tp_file_close(F);
        }
        free(bytes);
    }
}

#define MAGIC   "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define PREFACE MAGIC "\x80\x02M\xe9\x03.\x80\x02}."

/* Refuses a legacy file whose object is this pickle, a literal that may contain 0. */
#define REFUSE_PICKLE(pickle, text)                                                                \
    refuse(write_in_folder("x.pth", PREFACE pickle, sizeof PREFACE pickle - 1), text)

#define FLOATS                                                                                     \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                             \
    "0X\3\0\0\0cpuK\4NtQ"
#define REBUILD      "ctorch._utils\n_rebuild_tensor_v2\n"
#define TENSOR(rest) "}X\1\0\0\0w" REBUILD "(" FLOATS rest "\x89}tRs."
#define DATA                                                                                       \
    "]X\1\0\0\0"                                                                                   \
    "0a.\4\0\0\0\0\0\0\0"                                                                          \
    "abcdefghijklmnop"

Test(torch_files, a_pickle_by_hand)
{
    static const char file[] = PREFACE TENSOR("K\1K\2\x85K\1\x85") DATA;
    const char *path = write_in_folder("x.pth", file, sizeof file - 1);
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect_arr_eq(tp_file_data(F, tp_file_find(F, "w")), "efghijkl", 8);
    tp_file_close(F);
}

/* Settings beside the weights hold paths, whose class depends on Python and system. */
Test(torch_files, paths_are_accepted)
{
    static const char file[] = PREFACE "}(X\1\0\0\0"
                                       "acpathlib\nPosixPath\n)R"
                                       "X\1\0\0\0"
                                       "bcpathlib\nWindowsPath\n)R"
                                       "X\1\0\0\0"
                                       "ccpathlib._local\nPosixPath\n)R"
                                       "X\1\0\0\0"
                                       "dcpathlib._local\nWindowsPath\n)Ru.].";
    tp_file *F = tp_file_open(write_in_folder("x.pth", file, sizeof file - 1));
    cr_expect(tp_file_ok(F), "%s", tp_file_why(F));
    tp_file_close(F);
}

/* ---- one tensor spoils only itself ---- */

/* Two tensors, v and w, of which v cannot be read. */
static void spoil(const char *file, size_t n, tp_code code, const char *why)
{
    float x[2];
    tp_file *F = tp_file_open(write_in_folder("x.pth", file, n));
    cr_assert(tp_file_ok(F), "%s: %s", why, tp_file_why(F));
    cr_assert_eq(tp_file_count(F), 2);
    const tp_file_tensor *v = tp_file_find(F, "v"), *w = tp_file_find(F, "w");
    cr_assert(v && w);
    cr_assert_eq(v->code, code, "%s", why);
    cr_expect(strstr(v->why, why), "'%s' lacks '%s'", v->why, why);
    cr_expect(tp_file_read(F, w, TP_F32, x), "%s", tp_file_why(F));
    cr_expect_arr_eq(x, "efghijkl", 8);
    cr_expect_not(tp_file_read(F, v, TP_F32, x));
    cr_expect(strstr(tp_file_why(F), "tensor 'v' ") && strstr(tp_file_why(F), why), "%s",
              tp_file_why(F));
    tp_file_close(F);
}

#define UNREADABLE(v)                                                                              \
    "}(X\1\0\0\0v" v "X\1\0\0\0w" REBUILD "(" FLOATS "K\1K\2\x85K\1\x85\x89}tRu." DATA
#define SPOIL(v, code, why)                                                                        \
    spoil(PREFACE UNREADABLE(v), sizeof PREFACE UNREADABLE(v) - 1, code, why)
#define VIEW(rest) REBUILD "(" FLOATS rest "\x89}tR"

Test(torch_files, tensors_outside_their_storage)
{
    SPOIL(VIEW("K\1K\4\x85K\1\x85"), TP_E_IO, "not inside its storage"); /* 1 + 4 > 4      */
    SPOIL(VIEW("K\0K\2\x85K\4\x85"), TP_E_IO, "not inside its storage"); /* second at 4    */
    SPOIL(VIEW("K\0K\5\x85K\0\x85"), TP_E_DTYPE, "is expanded");
    SPOIL(VIEW("J\xff\xff\xff\xffK\2\x85K\1\x85"), TP_E_IO, "no storage"); /* offset -1      */
    SPOIL(VIEW("K\0K\2\x85K\1K\1\x86"), TP_E_IO, "no storage");            /* strides of two */
    SPOIL(VIEW("K\0(\x8a\x08\0\0\0\0\0\0\0\x10\x8a\x08\0\0\0\0\0\0\0\x10tK\1K\1\x86"), TP_E_IO,
          "not inside its storage"); /* 2^60 x 2^60 elements */
    SPOIL(VIEW("K\0K\2\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"), TP_E_IO,
          "not inside its storage"); /* a stride of 2^63 - 1 */
}

#define PLAIN VIEW("K\0K\2\x85K\1\x85")

Test(torch_files, tensors_of_other_kinds)
{
    SPOIL("ctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n_get_layout\n"
          "X\x10\0\0\0torch.sparse_coo\x85R(" PLAIN PLAIN "ctorch\nSize\nK\3K\4\x86\x85R\x88ttR",
          TP_E_DTYPE, "is sparse; save it as dense: t.to_dense()");
    SPOIL("ctorch._utils\n_rebuild_qtensor\n(" FLOATS
          "K\0K\2\x85K\1\x85(ctorch\nper_tensor_affine\n"
          "G?\xf0\0\0\0\0\0\0K\0t\x89}tR",
          TP_E_DTYPE, "is quantised; save it as floats: t.dequantize()");
    SPOIL("ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\nK\2\x85K\1\x85\x89tR",
          TP_E_DTYPE, "is on the device 'meta'");
    SPOIL("cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85"
          "C\1btR",
          TP_E_DTYPE, "is an array of NumPy");
    SPOIL(VIEW("K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t(K\1K\1K\1K\1K\1K\1K\1K\1K\1t"), TP_E_DTYPE,
          "has 9 axes");
    SPOIL(REBUILD "(" FLOATS "K\0K\2\x85K\1\x85\x89}}X\3\0\0\0neg\x88stR", TP_E_DTYPE,
          "is a negated");
    SPOIL("ctorch._utils\n_rebuild_tensor_v3\n((X\7\0\0\0storagectorch.storage\nUntypedStorage\n"
          "X\1\0\0\0"
          "0X\3\0\0\0cpuK\x10tQK\0K\2\x85K\1\x85\x89}ctorch\nfloat4_e2m1fn_x2\ntR",
          TP_E_DTYPE, "has the unknown dtype 'torch.float4_e2m1fn_x2'");
}

Test(torch_files, kinds_keep_their_shape_and_dtype)
{
    static const char file[] = PREFACE UNREADABLE(
        "ctorch._utils\n_rebuild_sparse_tensor\n(Nctorch\nSize\nK\3K\4\x86\x85R\x85tR");
    tp_file *F = tp_file_open(write_in_folder("x.pth", file, sizeof file - 1));
    const tp_file_tensor *v = tp_file_find(F, "v");
    cr_assert(v, "%s", tp_file_why(F));
    cr_expect_eq(v->shape.ndim, 2);
    cr_expect_eq(v->shape.dim[1], 4);
    cr_expect_eq(v->numel, 0);
    cr_expect_str_eq(v->stored, "?");
    tp_file_close(F);
}

/* NumPy's shape is in the state, which may be anything. */
Test(torch_files, arrays_of_numpy)
{
#define ARRAY(state)                                                                               \
    PREFACE UNREADABLE("cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85"           \
                       "C\1btR" state "b")
    static const char good[] = ARRAY("(K\1K\3K\4\x86NN\x89t"), odd[] = ARRAY("K\7");
    tp_file *F = tp_file_open(write_in_folder("x.pth", good, sizeof good - 1));
    const tp_file_tensor *v = tp_file_find(F, "v");
    cr_assert(v, "%s", tp_file_why(F));
    cr_expect(v->shape.ndim == 2 && v->shape.dim[0] == 3 && v->shape.dim[1] == 4);
    tp_file_close(F);
    F = tp_file_open(write_in_folder("x.pth", odd, sizeof odd - 1));
    v = tp_file_find(F, "v");
    cr_expect(v && v->shape.ndim == 0 && v->code == TP_E_DTYPE, "%s", tp_file_why(F));
    tp_file_close(F);
}

/* A subclass of tensors that pickles as a plain one is read. */
Test(torch_files, a_subclass_of_tensors)
{
    static const char file[] =
        PREFACE UNREADABLE("ctorch._tensor\n_rebuild_from_type_v2\n(" REBUILD
                           "ctorch.nn.parameter\nParameter\n(" FLOATS "K\0K\2\x85K\1\x85\x89}t}tR");
    tp_file *F = tp_file_open(write_in_folder("x.pth", file, sizeof file - 1));
    cr_assert(tp_file_find(F, "v"), "%s", tp_file_why(F));
    cr_expect_arr_eq(tp_file_data(F, tp_file_find(F, "v")), "abcdefgh", 8);
    tp_file_close(F);
}

/* A storage missing from the archive, or of another size, spoils its tensors. */
Test(torch_files, a_storage_that_the_archive_lacks)
{
    size_t n;
    unsigned char *bytes = read_all(containers[0], &n);
    for (size_t i = 0; i + 8 < n; i++) /* in both directories */
        if (memcmp(bytes + i, "zip/data/3", 10) == 0 && bytes[i + 10] != '.')
            memcpy(bytes + i, "zip/data/x", 10);
    tp_file *F = tp_file_open(write_in_folder("x.pth", bytes, n));
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    int spoiled = 0;
    for (int i = 0; i < tp_file_count(F); i++) spoiled += tp_file_at(F, i)->code == TP_E_IO;
    cr_expect_eq(tp_file_count(F), 19);
    cr_expect_eq(spoiled, 1);
    expect(F, "model.f32", "F32", TP_SHAPE(2, 3), count);
    tp_file_close(F);
    free(bytes);
}

Test(torch_files, pickles_that_are_wrong)
{
    REFUSE_PICKLE("K\1", "ends in the middle");
    REFUSE_PICKLE(".", "no operand");
    REFUSE_PICKLE("t.", "lacks its mark");
    REFUSE_PICKLE("h\7.", "before it is made");
    REFUSE_PICKLE("Nr\xff\xff\xff\xff.", "far from the others");
    REFUSE_PICKLE("X\xff\xff\xff\x7f", "longer than the file");
    REFUSE_PICKLE("K\1K\2a.", "do not fit their container");
    REFUSE_PICKLE("\xff.", "0xff");
    REFUSE_PICKLE("I42\n.", "0x49"); /* protocol 0: texts, including eval */
    REFUSE_PICKLE("cbuiltins\neval\n(X\1\0\0\0"
                  "1tR.",
                  "builtins.eval");
    REFUSE_PICKLE("X\x08\0\0\0builtinsX\4\0\0\0eval\x93.", "builtins.eval");
    REFUSE_PICKLE("}.]X\1\0\0\0"
                  "0a.",
                  "does not fit the pickle");
    REFUSE_PICKLE("]q\0h\0a.].", "contain themselves"); /* a list that is its own item */
    refuse(write_in_folder("x.pth", "\x80\2K\1.0123", 9), "not one of torch.save");
}

/* Each list holds the previous one twice: 2^30 values in a few bytes. */
Test(torch_files, a_pickle_that_explodes)
{
    char file[1024] = PREFACE "]q\0";
    size_t n = sizeof PREFACE "]q\0" - 1;
    for (int i = 0; i < 30; i++) {
        const char level[] = { ']', 'h', (char)i, 'a', 'h', (char)i, 'a', 'q', (char)(i + 1) };
        memcpy(file + n, level, sizeof level);
        n += sizeof level;
    }
    memcpy(file + n, ".].", 3);
    refuse(write_in_folder("x.pth", file, n + 3), "holds objects that are at so many places");
}

Test(torch_files, archives_that_are_wrong)
{
    size_t n;
    unsigned char *bytes = read_all(containers[0], &n);
    for (size_t i = 0; i + 8 < n; i++) /* "zip/data.pkl", in both directories */
        if (memcmp(bytes + i, "data.pkl", 8) == 0) memcpy(bytes + i, "data.pcl", 8);
    refuse(write_in_folder("x.pth", bytes, n), "without a data.pkl");
    free(bytes);

    bytes = read_all(containers[0], &n);
    for (size_t i = 0; i + 3 < n; i++) /* the pickle ends without a value */
        if (memcmp(bytes + i, "\x80\2}", 3) == 0) bytes[i + 2] = '.';
    refuse(write_in_folder("x.pth", bytes, n), "no operand");
    free(bytes);
}
