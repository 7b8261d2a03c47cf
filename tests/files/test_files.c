/* test_files.c - safetensors files: every dtype written and read back, other programs' dtypes,
 * metadata. test_files_damage.c tests damaged files. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/files.h"
#include "support/folder.h"

TestSuite(files, .init = make_folder, .fini = remove_folder);

/* ---- round trips ---- */

Test(files, all_dtypes_there_and_back)
{
    static const float f32[] = { 0.0f, -0.0f, 1.5f, INFINITY, 1e-42f, 3.4e38f };
    static const double f64[] = { 0.1, -1e300, 5e-324 };
    static const uint16_t bf16[] = { 0x3f80, 0xff80, 0x0001, 0x7fc1 };
    static const int32_t i32[] = { INT32_MIN, -1, INT32_MAX };
    static const int64_t i64[] = { INT64_MIN, -1, INT64_MAX };
    static const uint8_t u8[] = { 0, 1, 255 };
    static const struct {
        const char *name, *stored;
        tp_dtype dt;
        tp_shape shape;
        const void *data;
    } cases[] = {
        { "u8", "U8", TP_U8, { 1, { 3 } }, u8 },
        { "bf16", "BF16", TP_BF16, { 2, { 2, 2 } }, bf16 },
        { "i64", "I64", TP_I64, { 1, { 3 } }, i64 },
        { "f32", "F32", TP_F32, { 2, { 2, 3 } }, f32 },
        { "scalar \"x\"\n\xc3\xa4", "F32", TP_F32, { 0, { 0 } }, f32 + 2 },
        { "f64", "F64", TP_F64, { 3, { 1, 3, 1 } }, f64 },
        { "empty", "F64", TP_F64, { 2, { 0, 7 } }, NULL },
        { "i32", "I32", TP_I32, { 1, { 3 } }, i32 },
    };
    enum { N = sizeof cases / sizeof *cases };
    const char *path = in_folder("all");
    tp_writer *W = tp_writer_new(path);
    for (int i = 0; i < N; i++)
        tp_writer_add(W, cases[i].name, cases[i].dt, cases[i].shape, cases[i].data, i % 2);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    cr_expect(!tp_writer_commit(W), "committed twice");
    tp_writer_free(W);

    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect_str_eq(tp_file_path(F), path);
    cr_expect_eq(tp_file_count(F), N);
    size_t end = 0;
    for (int i = 0; i < N; i++) {
        const tp_file_tensor *t = tp_file_find(F, cases[i].name), *at = tp_file_at(F, i);
        unsigned char back[64];
        cr_assert(t, "%s", cases[i].name);
        cr_expect_str_eq(t->stored, cases[i].stored);
        cr_expect_eq(t->shape.ndim, cases[i].shape.ndim);
        cr_expect_arr_eq(t->shape.dim, cases[i].shape.dim, sizeof t->shape.dim);
        cr_expect(tp_file_read(F, t, cases[i].dt, back), "%s", tp_file_why(F));
        cr_expect_eq(memcmp(back, cases[i].data ? cases[i].data : back, t->bytes), 0, "%s differs",
                     cases[i].name);
        cr_expect_eq((uintptr_t)tp_file_data(F, t) % tp_dtype_size(cases[i].dt), 0,
                     "%s is not aligned", cases[i].name);
        cr_expect_eq(at->offset, end);
        end += at->bytes;
    }
    cr_expect_null(tp_file_at(F, N));
    cr_expect_null(tp_file_at(F, -1));
    cr_expect_null(tp_file_find(F, "f3"));
    tp_file_close(F);
}

Test(files, no_tensors)
{
    const char *path = in_folder("none");
    tp_writer *W = tp_writer_new(path);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(path);
    cr_expect(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_count(F), 0);
    tp_file_close(F);
}

/* Other programs write dtypes that our tensors lack. The odd header length misaligns all
 * elements. */
/* clang-format off */
static const char *const foreign =
    "{" TENSOR("f16", "F16", "[6]", "[0,12]")
    "," TENSOR("i8", "I8", "[2]", "[12,14]")
    "," TENSOR("i16", "I16", "[2]", "[14,18]")
    "," TENSOR("u16", "U16", "[2]", "[18,22]")
    "," TENSOR("u32", "U32", "[2]", "[22,30]")
    "," TENSOR("u64", "U64", "[2]", "[30,46]")
    "," TENSOR("bool", "BOOL", "[3]", "[46,49]")
    "," TENSOR("f8", "F8_E4M3", "[1]", "[49,50]")
    "," TENSOR("f64", "F64", "[2]", "[50,66]")
    ",\"__metadata__\":{\"i\":\"-12\",\"n\":\"2.5e-4\",\"one\":\"1\",\"text\":\"12x\",\"two\":\"1 "
    "2\",\"nan\":\"nan\",\"inf\":\"1e999\",\"empty\":\"\",\"half\":\"0.5\","
    "\"long\":\"9223372036854775808\"}} ";
/* clang-format on */

static tp_file *open_foreign(void)
{
    static const struct __attribute__((packed)) {
        uint16_t f16[6];
        int8_t i8[2];
        int16_t i16[2];
        uint16_t u16[2];
        uint32_t u32[2];
        uint64_t u64[2];
        uint8_t bools[3], f8;
        double f64[2];
    } data = { { 0x3c00, 0xc000, 0x7c00, 0x7e00, 0x8001, 0x7bff },
               { -128, 127 },
               { -32768, 32767 },
               { 65535, 1 },
               { 7, 4294967295u },
               { 1, UINT64_MAX },
               { 0, 1, 7 },
               0x38,
               { 1.0 / 3.0, 1e300 } };
    const char *path = in_folder("foreign");
    cr_assert(strlen(foreign) % 2 == 1, "the data should not be aligned");
    write_raw(path, 0, foreign, &data, sizeof data);
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    return F;
}

Test(files, conversion_of_foreign_dtypes)
{
    static const double half[] = { 1.0, -2.0, INFINITY, NAN, -0x1p-24, 65504.0 };
    float f[6];
    double d[6];
    uint16_t h[6];
    int64_t l[2];
    int32_t i[2];
    uint8_t b[3];
    tp_file *F = open_foreign();

    cr_assert(tp_file_read(F, tp_file_find(F, "f16"), TP_F32, f), "%s", tp_file_why(F));
    cr_assert(tp_file_read(F, tp_file_find(F, "f16"), TP_F64, d), "%s", tp_file_why(F));
    cr_assert(tp_file_read(F, tp_file_find(F, "f16"), TP_BF16, h), "%s", tp_file_why(F));
    for (int k = 0; k < 6; k++) {
        cr_expect(isnan(half[k]) ? isnan(f[k]) : (double)f[k] == half[k], "f16 %d as f32", k);
        cr_expect(isnan(half[k]) ? isnan(d[k]) : d[k] == half[k], "f16 %d as f64", k);
    }
    cr_expect_eq(h[0], 0x3f80);
    cr_expect_eq(h[5], 0x4780, "65504 rounds to 65536");
    cr_assert(tp_file_read(F, tp_file_find(F, "f64"), TP_F32, f), "%s", tp_file_why(F));
    cr_expect_eq(f[0], (float)(1.0 / 3.0));
    cr_expect_eq(f[1], INFINITY);

    cr_assert(tp_file_read(F, tp_file_find(F, "i8"), TP_I64, l), "%s", tp_file_why(F));
    cr_expect(l[0] == -128 && l[1] == 127);
    cr_assert(tp_file_read(F, tp_file_find(F, "i16"), TP_I32, i), "%s", tp_file_why(F));
    cr_expect(i[0] == -32768 && i[1] == 32767);
    cr_assert(tp_file_read(F, tp_file_find(F, "u16"), TP_I32, i), "%s", tp_file_why(F));
    cr_expect(i[0] == 65535 && i[1] == 1);
    cr_assert(tp_file_read(F, tp_file_find(F, "u32"), TP_I64, l), "%s", tp_file_why(F));
    cr_expect(l[0] == 7 && l[1] == 4294967295);
    cr_assert(tp_file_read_part(F, tp_file_find(F, "u64"), 0, 1, TP_U8, b), "%s", tp_file_why(F));
    cr_expect_eq(b[0], 1);
    cr_assert(tp_file_read(F, tp_file_find(F, "bool"), TP_U8, b), "%s", tp_file_why(F));
    cr_expect(b[0] == 0 && b[1] == 1 && b[2] == 1);
    cr_assert(tp_file_read_part(F, tp_file_find(F, "f16"), 4, 2, TP_F32, f), "%s", tp_file_why(F));
    cr_expect(f[0] == -0x1p-24f && f[1] == 65504.0f, "a part begins where it was asked");
    cr_expect(tp_file_ok(F));
    tp_file_close(F);
}

/* Metadata hide checksums from programs, so copied metadata carry no stale checksums. */
Test(files, checksums_are_hidden_from_metadata)
{
    static unsigned char whole[4096];
    const char *path = in_folder("meta"), *key, *value;
    whole_file(path, whole, sizeof whole);
    tp_file *F = tp_file_open(path);
    cr_expect(tp_file_has_checksums(F));
    cr_expect_null(tp_file_meta(F, "xxh3.header"));
    cr_expect(tp_file_meta_at(F, 1, &key, &value));
    cr_expect_str_eq(key, "note");
    cr_expect(!tp_file_meta_at(F, 2, &key, &value), "%s", key);
    tp_file_close(F);
    F = open_foreign();
    cr_expect(!tp_file_has_checksums(F) && tp_file_verify(F));
    tp_file_close(F);
}

static const struct {
    const char *name;
    int64_t first, n;
    tp_dtype dt;
    const char *why;
} unreadable[] = {
    { "i8", 0, 2, TP_U8,
      "element 0 of tensor 'i8' is -128, which does not fit u8; read it as a "
      "wider dtype" },
    { "u32", 1, 1, TP_I32,
      "element 1 of tensor 'u32' is 4294967295, which does not fit i32; read "
      "it as a wider dtype" },
    { "u64", 0, 2, TP_I64,
      "element 1 of tensor 'u64' is 18446744073709551615, which does not fit "
      "i64; read it as a wider dtype" },
    { "f16", 0, 6, TP_I32,
      "tensor 'f16' is stored as F16 and cannot be read as i32; read it as "
      "f32, f64 or bf16" },
    { "i8", 0, 2, TP_F32,
      "tensor 'i8' is stored as I8 and cannot be read as f32; read it as i64, "
      "i32 or u8" },
    { "f8", 0, 1, TP_F32,
      "tensor 'f8' is stored as F8_E4M3 and cannot be read as f32; take its "
      "bytes with tp_file_data" },
    { "i8", 1, 2, TP_I32, "2 elements from 1 on of tensor 'i8' were read, but it has 2" },
    { "i8", -1, 1, TP_I32, "1 elements from -1 on of tensor 'i8' were read, but it has 2" },
    { "none", 0, 0, TP_I32, "a tensor was read that the file does not have; see tp_file_find" },
};

Test(files, unreadable_tensors)
{
    for (size_t i = 0; i < sizeof unreadable / sizeof *unreadable; i++) {
        double room[8];
        tp_file *F = open_foreign();
        const tp_file_tensor *t = tp_file_find(F, unreadable[i].name);
        cr_expect(
            !tp_file_read_part(F, t, unreadable[i].first, unreadable[i].n, unreadable[i].dt, room));
        cr_expect_str_eq(tp_file_why(F) + strlen(tp_file_path(F)) + 2, unreadable[i].why, "%s",
                         tp_file_why(F));
        cr_expect(!tp_file_read(F, tp_file_at(F, 0), TP_F32, room), "errors stick");
        tp_file_close(F);
    }
}

/* ---- metadata ---- */

Test(files, metadata_numbers)
{
    tp_file *F = open_foreign();
    int64_t i = 5;
    double x = 5.0;
    cr_expect(tp_file_int(F, "absent", &i) && i == 5);
    cr_expect(tp_file_num(F, "absent", &x) && x == 5.0);
    cr_expect(tp_file_int(F, "i", &i) && i == -12);
    cr_expect(tp_file_num(F, "i", &x) && x == -12.0);
    cr_expect(tp_file_num(F, "n", &x) && x == 2.5e-4);
    cr_expect_str_eq(tp_file_meta(F, "text"), "12x");
    const char *key, *value;
    int n = 0;
    for (; tp_file_meta_at(F, n, &key, &value); n++) cr_expect_str_eq(tp_file_meta(F, key), value);
    cr_expect_eq(n, 10);
    cr_expect(!tp_file_meta_at(F, -1, &key, &value));
    tp_file_close(F);

    static const char *const no_int[] = { "text", "two", "nan", "empty", "half", "long" };
    static const char *const no_num[] = { "text", "two", "nan", "empty", "inf" };
    for (size_t k = 0; k < sizeof no_int / sizeof *no_int; k++) {
        F = open_foreign();
        cr_expect(!tp_file_int(F, no_int[k], &i) && !tp_file_ok(F), "%s is an int", no_int[k]);
        if (k == 0)
            cr_expect_str_eq(tp_file_why(F) + strlen(tp_file_path(F)),
                             ": metadata 'text' is '12x', which is not one whole number");
        tp_file_close(F);
    }
    for (size_t k = 0; k < sizeof no_num / sizeof *no_num; k++) {
        F = open_foreign();
        cr_expect(!tp_file_num(F, no_num[k], &x) && !tp_file_ok(F), "%s is a number", no_num[k]);
        tp_file_close(F);
    }
}

Test(files, metadata_there_and_back)
{
    static const double xs[] = { 0.1, 1.0 / 3.0, -5e-324, 1.7976931348623157e308, 0.0, 1e22, 3.0 };
    enum { N = sizeof xs / sizeof *xs };
    const char *path = in_folder("meta");
    char key[16];
    tp_writer *W = tp_writer_new(path);
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "x%d", i);
        tp_writer_meta_num(W, key, xs[i]);
    }
    tp_writer_meta_int(W, "least", INT64_MIN);
    tp_writer_meta(W, "text", "\"quoted\" \\ \t\xc3\xa4");
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open(path);
    int64_t least = 0;
    for (int i = 0; i < N; i++) {
        double x = -1.0;
        snprintf(key, sizeof key, "x%d", i);
        cr_expect(tp_file_num(F, key, &x) && x == xs[i], "%.17g came back as %.17g", xs[i], x);
    }
    cr_expect_str_eq(tp_file_meta(F, "x0"), "0.1", "short where that is exact");
    cr_expect(tp_file_int(F, "least", &least) && least == INT64_MIN, "%s", tp_file_why(F));
    cr_expect_str_eq(tp_file_meta(F, "text"), "\"quoted\" \\ \t\xc3\xa4");
    tp_file_close(F);
}

Test(reserve, keeps_the_array_and_refuses_what_overflows)
{
    int32_t *x = NULL;
    size_t room = 0;
    for (int32_t i = 0; i < 1000; i++) {
        cr_assert(tp_reserve(&x, &room, (size_t)i, 1, sizeof *x) && room > (size_t)i);
        x[i] = i;
    }
    const size_t before = room;
    cr_expect_not(tp_reserve(&x, &room, room, SIZE_MAX / 8, sizeof *x));
    cr_expect_not(tp_reserve(&x, &room, SIZE_MAX, 1, sizeof *x));
    cr_expect_not(tp_reserve(&x, &room, SIZE_MAX / 4, SIZE_MAX / 4, 1));
    cr_expect_not(tp_reserve(&x, &room, room, 1, SIZE_MAX / 2));
    cr_expect_eq(room, before);
    for (int32_t i = 0; i < 1000; i++) cr_expect_eq(x[i], i);
    free(x);
}
