/* test_files.c - safetensors files: every kind of damage with its text, every dtype there and back.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "support_folder.h"

TestSuite(files, .init = make_folder, .fini = remove_folder);

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert(f);
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    cr_assert_eq(fclose(f), 0);
}

/* A file with this header (its length field is `length` if that is not 0) and these data. */
static void write_raw(const char *path, uint64_t length, const char *json, const void *data,
                      size_t bytes)
{
    static unsigned char raw[1 << 16];
    const size_t n = strlen(json);
    if (length == 0) length = n;
    memcpy(raw, &length, 8);
    memcpy(raw + 8, json, n + 1);
    if (data)
        memcpy(raw + 8 + n, data, bytes);
    else
        memset(raw + 8 + n, 0, bytes);
    write_bytes(path, raw, 8 + n + bytes);
}

/* ---- damage ---- */

#define AGAIN "; the file is damaged: copy, download or write it again"
#define OTHER "; this is no safetensors file, or its beginning is damaged"
#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *name;
    uint64_t length;
    const char *json;
    size_t data;
    const char *why;
} broken[] = {
    { "length beyond file", 1000, "{}", 0,
      "the header length (bytes 0 to 7) is 1000, but only 2 bytes follow" OTHER },
    { "length with its top bit", UINT64_MAX - 7, "{}", 0,
      "the header length (bytes 0 to 7) is 18446744073709551608, but only 2 bytes follow" OTHER },
    { "no brace", 0, "[1,2]", 0,
      "the header does not begin with '{' but with byte 0x5b, at offset 8" OTHER },
    { "cut JSON", 0, "{\"a\":", 0,
      "the header is not valid JSON at offset 13: unexpected token near end of file" AGAIN },
    { "text behind the JSON", 0, "{} x", 0,
      "the header is not valid JSON at offset 12: end of file expected near 'x'" AGAIN },
    { "not UTF-8", 0, "{\"\xff\":1}", 0,
      "the header is not valid JSON at offset 10: unable to decode byte 0xff near '\"'" AGAIN },
    { "name twice", 0,
      "{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}", 2,
      "the header is not valid JSON at offset 64: duplicate object key near '\"a\"'" AGAIN },
    { "metadata no object", 0, "{\"__metadata__\":[]}", 0,
      "__metadata__ is not a JSON object" AGAIN },
    { "metadata no string", 0, "{\"__metadata__\":{\"step\":3}}", 0,
      "metadata 'step' is not a string" AGAIN },
    { "tensor no object", 0, "{\"a\":3}", 0, "tensor 'a' has no dtype" AGAIN },
    { "no dtype", 0, "{\"a\":{\"shape\":[],\"data_offsets\":[0,0]}}", 0,
      "tensor 'a' has no dtype" AGAIN },
    { "unknown dtype", 0, "{" TENSOR("a", "Q4_K", "[1]", "[0,1]") "}", 1,
      "tensor 'a' has the unknown dtype 'Q4_K'; convert it to F32 or BF16" },
    { "no shape", 0, "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4,
      "tensor 'a' has no shape" AGAIN },
    { "nine axes", 0, "{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1,
      "tensor 'a' has 9 axes; at most 8 are supported" },
    { "negative axis", 0, "{" TENSOR("a", "U8", "[2,-1]", "[0,1]") "}", 1,
      "axis 1 of tensor 'a' is not a whole number from 0 on" AGAIN },
    { "fractional axis", 0, "{" TENSOR("a", "U8", "[1.0]", "[0,1]") "}", 1,
      "axis 0 of tensor 'a' is not a whole number from 0 on" AGAIN },
    { "huge axis", 0, "{" TENSOR("a", "U8", "[99999999999999999999]", "[0,1]") "}", 1,
      "the header is not valid JSON at offset 56: too big integer near "
      "'99999999999999999999'" AGAIN },
    { "shape overflow", 0, "{" TENSOR("a", "U8", "[4294967296,4294967296]", "[0,1]") "}", 1,
      "the shape of tensor 'a' has more elements than can be counted" AGAIN },
    { "no offsets", 0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
      "tensor 'a' has no pair of data_offsets" AGAIN },
    { "three offsets", 0, "{" TENSOR("a", "F32", "[1]", "[0,4,8]") "}", 4,
      "tensor 'a' has no pair of data_offsets" AGAIN },
    { "negative offset", 0, "{" TENSOR("a", "F32", "[1]", "[-4,0]") "}", 4,
      "tensor 'a' has no pair of data_offsets" AGAIN },
    { "offsets backwards", 0, "{" TENSOR("a", "F32", "[1]", "[4,0]") "}", 4,
      "tensor 'a' lies at offsets 4 to 0 of 4 bytes of data" AGAIN },
    { "cut off", 0, "{" TENSOR("a", "F32", "[2]", "[0,8]") "}", 7,
      "tensor 'a' lies at offsets 0 to 8 of 7 bytes of data; the file is cut off: copy, download "
      "or "
      "write it again" },
    { "wrong length", 0, "{" TENSOR("a", "F32", "[2,3]", "[0,20]") "}", 20,
      "tensor 'a' is F32[2,3] but its offsets 0 to 20 hold 20 bytes" AGAIN },
    { "overlap", 0,
      "{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[2]", "[4,12]") "}", 12,
      "tensors 'a' and 'b' overlap at offset 4 of the data" AGAIN },
    { "empty tensor inside another", 0,
      "{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[0]", "[4,4]") "}", 8,
      "tensors 'a' and 'b' overlap at offset 4 of the data" AGAIN },
    { "gap", 0, "{" TENSOR("b", "U8", "[4]", "[8,12]") "," TENSOR("a", "U8", "[4]", "[0,4]") "}",
      12, "offsets 4 to 8 of the data, before tensor 'b', belong to no tensor" AGAIN },
    { "rest", 0, "{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 6,
      "offsets 4 to 6, the end of the data, belong to no tensor" AGAIN },
    { "only data", 0, "{}", 3, "offsets 0 to 3, the end of the data, belong to no tensor" AGAIN },
};

static void expect_why(const char *name, const char *path, const char *why)
{
    char expected[2048];
    tp_file *F = tp_file_open(path);
    snprintf(expected, sizeof expected, "%s: %s", path, why);
    cr_expect(!tp_file_ok(F), "%s: opened", name);
    cr_expect_str_eq(tp_file_why(F), expected, "%s: says\n  %s\nnot\n  %s", name, tp_file_why(F),
                     expected);
    cr_expect_eq(tp_file_count(F), 0, "%s: shows tensors", name);
    cr_expect_null(tp_file_at(F, 0));
    cr_expect_null(tp_file_find(F, "a"));
    cr_expect_null(tp_file_meta(F, "step"));
    tp_file_close(F);
}

Test(files, broken_headers)
{
    const char *path = in_folder("broken");
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_raw(path, broken[i].length, broken[i].json, NULL, broken[i].data);
        expect_why(broken[i].name, path, broken[i].why);
    }
}

Test(files, broken_beginnings)
{
    const char *path = in_folder("none");
    expect_why("missing", path,
               "cannot be opened (No such file or directory); check the path and its permissions");
    expect_why("folder", folder, "is a folder; give the path of a safetensors file");
    expect_why("device", "/dev/zero", "is a device; give the path of a safetensors file");
    path = in_folder("pipe");
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_why("pipe", path, "is a pipe; give the path of a safetensors file");
    path = in_folder("short");
    write_bytes(path, "", 0);
    expect_why("empty", path, "has 0 bytes, too few for the 8 of the header length" AGAIN);
    write_bytes(path, "{\"a\"", 4);
    expect_why("short", path, "has 4 bytes, too few for the 8 of the header length" AGAIN);
    write_bytes(path, "\0\0\0\0\0\0\0\0", 8);
    expect_why("zero", path, "the header length (bytes 0 to 7) is 0" OTHER);
    write_bytes(path, "\1\xe1\xf5\5\0\0\0\0", 8); /* 100000001 */
    cr_assert_eq(truncate(path, 8 + 100000001), 0);
    expect_why(
        "absurd", path,
        "the header length (bytes 0 to 7) is 100000001, more than the 100000000 allowed" OTHER);
}

/* Headers of which the JSON library would make a tree 80 times as large. */
Test(files, headers_that_would_take_memory)
{
    enum { MANY = 2100000 };
    static const char *const cases[][3] = {
        { "{\"a\":[{}", ",{}", "has lists or objects in others" },
        { "{\"a\":[[]", ",[]", "has lists or objects in others" },
        { "{\"a\":{\"b\":{}", ",\"c\":{}", "has lists or objects in others" },
        { "{\"a\":[[1", "", "has lists or objects in others" },
        { "{\"a\":{\"\\\"[\":[1", ",1", "has more than 2000000 values" },
        { "{\"[{\":1", ",\"a\":1", "has more than 2000000 values" },
    };
    const char *path = in_folder("vast");
    char *raw = malloc(MANY * 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t n = strlen(cases[i][0]);
        const size_t step = strlen(cases[i][1]);
        memcpy(raw + 8, cases[i][0], n);
        for (int k = 0; k < MANY && step; k++, n += step) memcpy(raw + 8 + n, cases[i][1], step);
        memcpy(raw, &n, 8);
        write_bytes(path, raw, 8 + n);
        tp_file *F = tp_file_open(path);
        cr_expect(strstr(tp_file_why(F), cases[i][2]), "case %zu: %s", i, tp_file_why(F));
        tp_file_close(F);
    }
    free(raw);
}

/* Every prefix of a good file is an error, never a crash. */
Test(files, every_cut)
{
    static unsigned char whole[4096];
    const char *path = in_folder("whole");
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta(W, "step", "3");
    tp_writer_add(W, "a", TP_F32, TP_SHAPE(2, 3), (const float[6]){ 1, 2, 3, 4, 5, 6 }, false);
    tp_writer_add(W, "b", TP_U8, TP_SHAPE(5), "12345", false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    path = in_folder("cut");
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(path, whole, cut);
        tp_file *F = tp_file_open(path);
        cr_expect(!tp_file_ok(F), "the first %zu of %zu bytes open", cut, n);
        tp_file_close(F);
    }
}

/* ---- checksums ---- */

/* A file with metadata and tensors; its bytes and how many. */
static size_t whole_file(const char *path, unsigned char *bytes, size_t room)
{
    static const float x[6] = { 1, 2, 3, 4, 5, 6 };
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta(W, "step", "3");
    tp_writer_meta(W, "note", "backslash \\ X");
    tp_writer_add(W, "a", TP_F32, TP_SHAPE(2, 3), x, false);
    tp_writer_add(W, "none", TP_F32, TP_SHAPE(0), NULL, false);
    tp_writer_add(W, "b", TP_U8, TP_SHAPE(5), "12345", false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, room, f);
    fclose(f);
    cr_assert_lt(n, room);
    return n;
}

/* Reads all of a file, in one of several ways. */
static bool reads(const char *path, int way, char *why, size_t size)
{
    tp_file *F = tp_file_open(path);
    double x[8];
    for (int i = 0; i < tp_file_count(F) && tp_file_ok(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        const tp_dtype dt = t->stored[0] == 'F' ? TP_F32 : TP_U8;
        switch (way) {
        case 0: tp_file_read(F, t, dt, x); break;
        case 1: tp_file_data(F, t); break;
        case 2: tp_file_read(F, t, dt == TP_F32 ? TP_F64 : TP_I64, x); break;
        case 3: /* only the last element */
            if (t->numel) tp_file_read_part(F, t, t->numel - 1, 1, dt, x);
            break;
        default: tp_file_verify(F);
        }
    }
    const bool ok = tp_file_ok(F);
    snprintf(why, size, "%s", tp_file_why(F));
    tp_file_close(F);
    return ok;
}

/* Whichever bit of a file is another, and however it is read, it is refused. */
Test(files, every_flipped_bit)
{
    static unsigned char whole[4096];
    char why[2048];
    const char *path = in_folder("bits");
    const size_t n = whole_file(path, whole, sizeof whole);
    for (int way = 0; way < 5; way++) cr_expect(reads(path, way, why, sizeof why), "%s", why);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        whole[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_bytes(path, whole, n);
        whole[bit / 8] ^= (unsigned char)(1 << bit % 8);
        for (int way = 0; way < 5; way++)
            cr_expect(!reads(path, way, why, sizeof why), "bit %zu of byte %zu, way %d", bit % 8,
                      bit / 8, way);
    }
}

static void expect_damage(const char *path, const char *why)
{
    char said[2048], expected[2048];
    snprintf(expected, sizeof expected, "%s: %s", path, why);
    cr_expect(!reads(path, 0, said, sizeof said), "read: %s", why);
    cr_expect_str_eq(said, expected, "says\n  %s\nnot\n  %s", said, expected);
}

#define KEPT                                                                                       \
    "; the file is damaged, or a program has changed it and kept the checksums: take the last "    \
    "good checkpoint, or leave out the metadata 'xxh3.header' and 'xxh3.tensors'"

Test(files, damage_is_named)
{
    static unsigned char whole[4096];
    const char *path = in_folder("named");
    const size_t n = whole_file(path, whole, sizeof whole);
    whole[n - 1] ^= 1;
    write_bytes(path, whole, n);
    expect_damage(path, "tensor 'b' is damaged: its checksum is e5569a7d66f90f73, the file says "
                        "f34099ede96b5581; copy or download the file again, or take the last good "
                        "checkpoint");
    whole[n - 1] ^= 1;
    char *step = strstr((char *)whole + 8, "\"3\"");
    cr_assert(step);
    step[1] = '4';
    write_bytes(path, whole, n);
    expect_damage(path, "the checksum of the header is 73dae909a00bdfa8, the file says "
                        "6850f3735a142f9c" KEPT);
}

/* What other programs make of such a file: without checksums it is theirs, with old ones refused. */
Test(files, checksums_of_rewritten_files)
{
    static const struct {
        const char *json, *why; /* NULL: reads */
    } cases[] = {
        { "{\"__metadata__\":{\"step\":\"4\"}," TENSOR("a", "U8", "[2]", "[0,2]") "}", NULL },
        { "{\"__metadata__\":{}," TENSOR("a", "U8", "[2]", "[0,2]") "}", NULL },
        { "{\"__metadata__\":{\"xxh3.header\":\"0123456789abcdef\",\"xxh3.tensors\":"
          "\"0123456789abcdef\"}," TENSOR("a", "U8", "[2]", "[0,2]") "}",
          "the checksum of the header is b2be5fbae3b8763e, the file says 0123456789abcdef" KEPT },
        { "{\"__metadata__\":{\"xxh3.tensors\":\"0123456789abcdef\",\"xxh3.header\":"
          "\"0123456789abcdef\"}," TENSOR("a", "U8", "[2]", "[0,2]") "}",
          "the checksum of the header is not in its place" KEPT },
        { "{\"__metadata__\":{\"xxh3.header\":\"0123456789abcdef\"}," TENSOR("a", "U8", "[2]",
                                                                             "[0,2]") "}",
          "the checksum of the header is not in its place" KEPT },
        { "{\"__metadata__\":{\"xxh3.header\":\"0123456789ABCDEF\",\"xxh3.tensors\":\"\"}," TENSOR(
              "a", "U8", "[2]", "[0,2]") "}",
          "the checksum of the header is not in its place" KEPT },
    };
    const char *path = in_folder("rewritten");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[2048];
        write_raw(path, 0, cases[i].json, "xy", 2);
        if (cases[i].why)
            expect_damage(path, cases[i].why);
        else
            cr_expect(reads(path, 0, why, sizeof why), "%s", why);
    }
}

/* A file that somebody cuts off while it is open: a message, no SIGBUS. */
Test(files, shorter_than_when_opened)
{
    enum { N = 1 << 16 };
    static const char why[] = ": became shorter since it was opened: it ends at offset 5000 of ";
    static float x[N];
    const char *path = in_folder("shrinks");
    for (int way = 0; way < 4; way++) {
        tp_writer *W = tp_writer_new(path);
        tp_writer_add(W, "x", TP_F32, TP_SHAPE(N), x, false);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
        tp_params *P = tp_params_new(D, NULL);
        tp_param(P, "x", TP_SHAPE(N), (tp_init){ TP_INIT_CONST, 1, 0 }, 0);
        tp_file *F = tp_file_open(path);
        const tp_file_tensor *t = tp_file_find(F, "x");
        cr_assert(t && tp_file_read_part(F, t, 0, N, TP_F32, x), "%s", tp_file_why(F));
        cr_assert_eq(truncate(path, 5000), 0);
        switch (way) {
        case 0: cr_expect(!tp_file_read(F, t, TP_F32, x), "read"); break;
        case 1: cr_expect(!tp_file_read_part(F, t, N / 2, N / 2, TP_BF16, x), "converted"); break;
        case 2: cr_expect_null(tp_file_data(F, t)); break;
        default: cr_expect(!tp_params_read(P, F, "", NULL), "loaded");
        }
        if (way != 1) cr_expect(strstr(tp_file_why(F), why), "way %d: %s", way, tp_file_why(F));
        cr_expect_not(tp_file_ok(F), "way %d", way);
        if (way == 3) cr_expect_str_eq(tp_params_why(P), tp_file_why(F));
        tp_file_close(F);
        tp_params_free(P);
        tp_device_close(D);
    }
}

/* ---- there and back ---- */

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

/* What other programs write: dtypes that tensors here do not have, and an odd header length, so
 * that no element is aligned. */
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
    ",\"__metadata__\":{\"i\":\"-12\",\"n\":\"2.5e-4\",\"one\":\"1\",\"text\":\"12x\",\"two\":\"1 2\","
    "\"nan\":\"nan\",\"inf\":\"1e999\",\"empty\":\"\",\"half\":\"0.5\",\"long\":\"9223372036854775808\"}} ";
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

/* Programs see the metadata of programs: what is copied to another file has no old checksums. */
Test(files, checksums_are_no_metadata)
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

Test(files, what_cannot_be_read)
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
