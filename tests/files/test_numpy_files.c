/* test_numpy_files.c - NumPy's files: those of NumPy itself (tests/fixtures/numpy, written by its
 * make.py), ours read back and, where python3 has NumPy, by NumPy; damaged ones. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "support/folder.h"

TestSuite(numpy_files, .init = make_folder, .fini = remove_folder);

#define FIXTURE(name) TP_SOURCE_DIR "/tests/fixtures/numpy/" name

enum { ROOM = 1 << 16 };

static size_t read_all(const char *path, unsigned char *bytes)
{
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s cannot be opened", path);
    const size_t n = fread(bytes, 1, ROOM, f);
    fclose(f);
    return n;
}

/* ---- what NumPy has written ---- */

static void expect(tp_file *F, const char *name, const char *stored, tp_shape s, const double *x)
{
    double real[32];
    int64_t whole[32];
    const tp_file_tensor *t = tp_file_find(F, name);
    cr_assert(t, "%s lacks %s", tp_file_path(F), name);
    cr_expect_str_eq(t->stored, stored, "%s", name);
    cr_assert_eq(t->shape.ndim, s.ndim, "%s", name);
    for (int i = 0; i < s.ndim; i++) cr_expect_eq(t->shape.dim[i], s.dim[i], "%s", name);
    const bool is_float = stored[0] == 'F';
    cr_assert(tp_file_read(F, t, is_float ? TP_F64 : TP_I64, is_float ? (void *)real : whole), "%s",
              tp_file_why(F));
    for (int64_t i = 0; i < t->numel; i++) {
        const double got = is_float ? real[i] : (double)whole[i];
        cr_expect_eq(got, x[i], "%s[%d]: %g", name, (int)i, got);
    }
    for (int64_t i = 0; is_float && i < t->numel; i++) { /* in pieces, too */
        cr_assert(tp_file_read_part(F, t, i, 1, TP_F64, real));
        cr_expect_eq(real[0], x[i], "%s[%d] alone", name, (int)i);
    }
}

Test(numpy_files, every_dtype_byte_order_and_order_of_axes)
{
    static const char *const dtypes[][2] = { { "f2", "F16" }, { "f4", "F32" }, { "f8", "F64" },
                                             { "i1", "I8" },  { "i2", "I16" }, { "i4", "I32" },
                                             { "i8", "I64" }, { "u1", "U8" },  { "u2", "U16" },
                                             { "u4", "U32" }, { "u8", "U64" }, { "b1", "BOOL" } };
    static const double count[] = { -2, -1, 0, 1, 2, 3, 4, 5 }, truth[] = { 0, 1, 1, 1, 1, 1 };
    static const char *const orders[] = { "C", "F", "bigC", "bigF" };
    static const char *const files[] = { FIXTURE("stored.npz"), FIXTURE("deflated.npz") };
    char name[32];
    double cube[24];
    for (int i = 0; i < 24; i++) cube[i] = i;
    for (int f = 0; f < 2; f++) {
        tp_file *F = tp_file_open(files[f]);
        cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
        cr_expect_eq(tp_file_count(F), 12 * 4 + 5);
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
            for (int k = 0; k < 4; k++) {
                const char kind = dtypes[i][0][0];
                snprintf(name, sizeof name, "%s%s", dtypes[i][0], orders[k]);
                expect(F, name, dtypes[i][1], TP_SHAPE(2, 3),
                       kind == 'b'   ? truth
                       : kind == 'u' ? count + 2
                                     : count);
            }
        expect(F, "scalar", "F32", TP_SCALAR, (double[]){ 7.5 });
        expect(F, "empty", "F32", TP_SHAPE(0, 4), NULL);
        expect(F, "vector", "I64", TP_SHAPE(5), cube);
        expect(F, "cube", "F64", TP_SHAPE(2, 3, 4), cube);
        expect(F, "folder/inner", "F32", TP_SHAPE(3), cube);
        tp_file_close(F);
    }
}

Test(numpy_files, every_version)
{
    static const char *const files[] = { FIXTURE("version1.npy"), FIXTURE("version2.npy"),
                                         FIXTURE("version3.npy") };
    for (int i = 0; i < 3; i++) {
        tp_file *F = tp_file_open(files[i]);
        cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
        cr_expect_eq(tp_file_count(F), 1);
        expect(F, "arr_0", "F32", TP_SHAPE(2, 3), (double[]){ 0, 1, 2, 3, 4, 5 });
        tp_file_close(F);
    }
}

Test(numpy_files, arrays_that_cannot_be_read_spoil_only_themselves)
{
    static const char *const table[][2] = {
        { "objects", "has NumPy's dtype |O, which is not read; save numbers: a.astype('float32')" },
        { "fields", "has NumPy's dtype with fields, which is not read; save its fields as arrays" },
        { "complex", "has NumPy's dtype <c8, which is not read; save a.real and a.imag" },
        { "texts", "has NumPy's dtype <U1, which is not read; save numbers that stand for" },
        { "dates", "has NumPy's dtype <M8[s], which is not read; save a.astype('int64')" },
        { "void", "has NumPy's dtype |V2, which is not read; save a.astype('float32')" },
        { "long", "has NumPy's dtype <f16, which is not read; save a.astype('float32')" },
        { "axes", "has 9 axes; at most 8 are supported: reshape it" },
    };
    tp_file *F = tp_file_open(FIXTURE("refused.npz"));
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_count(F), 9);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const tp_file_tensor *t = tp_file_find(F, table[i][0]);
        cr_assert(t && t->why, "%s", table[i][0]);
        cr_expect_eq(strncmp(t->why, table[i][1], strlen(table[i][1])), 0, "%s: %s", table[i][0],
                     t->why);
        cr_expect_eq(t->numel, 0);
    }
    cr_expect_eq(tp_file_find(F, "axes")->code, TP_E_DTYPE);
    expect(F, "good", "F32", TP_SHAPE(2), (double[]){ 0, 1 });
    tp_file_close(F);
}

/* ---- damage ---- */

static void expect_refused(const char *path, const char *part)
{
    tp_file *F = tp_file_open(path);
    const tp_file_tensor *t = tp_file_at(F, 0);
    const char *why = t && t->why ? t->why : tp_file_why(F);
    cr_expect(strstr(why, part), "'%s' lacks '%s'", why, part);
    float x[64];
    cr_expect_not(t && t->code == TP_OK && t->numel <= 64 && tp_file_read(F, t, TP_F32, x));
    tp_file_close(F);
}

/* A .npy of format 1.0 with that text and n bytes of elements. */
static const char *write_npy(const char *text, size_t n)
{
    unsigned char bytes[1024] = "\x93NUMPY\x01";
    const size_t length = strlen(text);
    bytes[8] = (unsigned char)(length & 255);
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + 10, text, length);
    return write_in_folder("damaged.npy", bytes, 10 + length + n);
}

Test(numpy_files, damaged_headers)
{
#define DICT(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
    static const struct {
        const char *text;
        size_t n;
        const char *part;
    } table[] = {
        { DICT("'<f4'", "False", "(2, 3)"), 23,
          "has 23 bytes of elements from offset 70 on, its "
          "shape needs 24; the file is cut off" },
        { DICT("'<f4'", "False", "(2, 3)"), 25,
          "needs 24; several arrays in one .npy belong into one .npz" },
        { DICT("'<f4'", "Maybe", "(2,)"), 8, "offset 44: True or False is expected" },
        { DICT("'<f4'", "False", "(2, -3)"), 8,
          "a size, a number that is not negative is expected" },
        { DICT("'<f4'", "False", "(9223372036854775808,)"), 8, "a size below 2^63 is expected" },
        { DICT("'<f4'", "False", "(4611686018427387904, 4611686018427387904)"), 8,
          "has more elements than can be counted" },
        { DICT("'<f4'", "False", "(4611686018427387904,)"), 8,
          "has more elements than can be counted" },
        { DICT("'<f4'", "False", "(2 3)"), 8, "a comma or the end of the shape is expected" },
        { DICT("'<f4'", "False", "(2"), 8, "offset 64: a size, a number that is not negative" },
        { DICT("'<f4'", "False", "2"), 8, "a shape in parentheses is expected" },
        { DICT("<f4", "False", "(2,)"), 8, "offset 20: a text in quotes is expected" },
        { DICT("'?4'", "False", "(2,)"), 8, "has NumPy's dtype ?4, which is not read" },
        { DICT("''", "False", "(2,)"), 8, "has NumPy's dtype , which is not read" },
        { DICT("[('x', '<f4'", "False", "(2,)"), 8, "the end of the list of fields is expected" },
        { "{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}\n", 8, "one each of 'descr'" },
        { "{'descr': '<f4', 'shape': (2,)}\n", 8, "'descr', 'fortran_order' and 'shape' is exp" },
        { "{'other': '<f4'}\n", 8, "offset 11: one each of 'descr'" },
        { "{'descr' '<f4'}\n", 8, "a colon is expected" },
        { "{'descr': '<f4' 'shape': (2,)}\n", 8, "a comma is expected" },
        { "['descr']\n", 8, "offset 10: a dictionary is expected" },
        { DICT("'<f4'", "False", "(2,)") "x", 8, "nothing after the dictionary is expected" },
        { "", 8, "a dictionary is expected" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        expect_refused(write_npy(table[i].text, table[i].n), table[i].part);
}

Test(numpy_files, damaged_beginnings)
{
    unsigned char bytes[ROOM];
    const size_t n = read_all(FIXTURE("version2.npy"), bytes);
    expect_refused(write_in_folder("a.npy", bytes, 9), "\\x93NUMPY and a version are expected");
    expect_refused(write_in_folder("a.npy", bytes, 11), "is longer than the file");
    bytes[11] = 1;
    expect_refused(write_in_folder("a.npy", bytes, n), "is longer than the 10000 that are read");
    bytes[11] = 0;
    bytes[6] = 4;
    expect_refused(write_in_folder("a.npy", bytes, n),
                   "has version 4.0 of NumPy's format at offset 6");
    bytes[6] = 2;
    for (size_t k = 8; k < n; k++) { /* no length makes it readable, or worse */
        tp_file *F = tp_file_open(write_in_folder("a.npy", bytes, k));
        const tp_file_tensor *t = tp_file_at(F, 0);
        cr_expect(!t || t->code != TP_OK, "%zu bytes", k);
        tp_file_close(F);
    }
}

/* An archive of n stored arrays, each of which holds all later ones among its elements. */
static const char *write_nested(int n)
{
    enum { HEADER = 30, NAME = 8, TEXT = 90, BLOCK = HEADER + NAME + TEXT, CENTRAL = 46 };
    const size_t end = (size_t)n * BLOCK, size = end + (size_t)n * (CENTRAL + NAME) + 22;
    unsigned char *bytes = calloc(size, 1);
    cr_assert(bytes);
    for (int i = 0; i < n; i++) {
        unsigned char *local = bytes + i * BLOCK, *npy = local + HEADER + NAME;
        unsigned char *central = bytes + end + (size_t)i * (CENTRAL + NAME);
        char name[NAME + 1], text[TEXT];
        const uint32_t at = (uint32_t)(i * BLOCK), length = (uint32_t)(bytes + end - npy);
        snprintf(name, sizeof name, "%04d.npy", i);
        snprintf(text, sizeof text, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }",
                 (int)length - TEXT);
        memcpy(local, "PK\3\4\x14", 5);
        memcpy(local + 18, &length, 4);
        memcpy(local + 22, &length, 4);
        local[26] = NAME;
        memcpy(local + HEADER, name, NAME);
        memcpy(npy, "\x93NUMPY\x01\x00", 8);
        npy[8] = TEXT - 10;
        memset(npy + 10, ' ', TEXT - 10);
        memcpy(npy + 10, text, strlen(text));
        memcpy(central, "PK\1\2\x14\x00\x14", 7);
        memcpy(central + 20, &length, 4);
        memcpy(central + 24, &length, 4);
        central[28] = NAME;
        memcpy(central + 42, &at, 4);
        memcpy(central + CENTRAL, name, NAME);
    }
    const uint16_t entries = (uint16_t)n;
    const uint32_t from = (uint32_t)end, central = (uint32_t)(size - 22 - end);
    memcpy(bytes + size - 22, "PK\5\6", 4);
    memcpy(bytes + size - 14, &entries, 2);
    memcpy(bytes + size - 12, &entries, 2);
    memcpy(bytes + size - 10, &central, 4);
    memcpy(bytes + size - 6, &from, 4);
    const char *path = write_in_folder("nested.npz", bytes, size);
    free(bytes);
    return path;
}

/* A small file must not take hours to list. */
Test(numpy_files, entries_that_overlap)
{
    tp_file *F = tp_file_open(write_nested(300)); /* 107 times its bytes */
    cr_expect(tp_file_ok(F) && tp_file_count(F) == 300, "%s", tp_file_why(F));
    for (int i = 0; i < tp_file_count(F); i++) cr_expect_eq(tp_file_at(F, i)->code, TP_OK);
    tp_file_close(F);
    expect_refused(write_nested(1200), "has tensors of more than 256 times its own bytes, in "
                                       "entries that overlap; the file is damaged");
}

/* ---- what we write ---- */

static const double some[] = { 0, 1, 2, 3, 4, 250 };

/* Six numbers of a dtype. */
static tp_tensor six(tp_tape *T, tp_dtype dt)
{
    double room[6];
    const tp_view v = { .data = room, .dtype = dt };
    for (int i = 0; i < 6; i++)
        if (dt == TP_I64)
            ((int64_t *)v.data)[i] = (int64_t)some[i];
        else
            tp_st(&v, i, some[i]);
    return tp_from(T, dt, TP_SHAPE(3, 2), room);
}

static const char *write_six(tp_tape *T)
{
    const char *path = in_folder("ours.npz");
    tp_writer *W = tp_writer_numpy(path);
    for (int dt = 0; dt < TP_NDTYPES; dt++)
        tp_add_to_file(T, six(T, (tp_dtype)dt), W, tp_dtype_name((tp_dtype)dt));
    tp_add_to_file(T, tp_full(T, TP_F32, TP_SCALAR, 7.5), W, "scalar");
    tp_add_to_file(T, tp_full(T, TP_F32, TP_SHAPE(0, 4), 0), W, "empty");
    tp_add_to_file(T, tp_full(T, TP_I32, TP_SHAPE(1, 1, 1, 1, 1, 1, 1, 2), 9), W, "eight/axes");
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    return path;
}

Test(numpy_files, ours_are_read_back)
{
    static const char *const stored[] = { "F32", "F64", "F32", "I32", "I64", "U8" };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const char *path = write_six(T);
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_count(F), TP_NDTYPES + 3);
    for (int dt = 0; dt < TP_NDTYPES; dt++)
        expect(F, tp_dtype_name((tp_dtype)dt), stored[dt], TP_SHAPE(3, 2), some);
    expect(F, "scalar", "F32", TP_SCALAR, (double[]){ 7.5 });
    expect(F, "empty", "F32", TP_SHAPE(0, 4), NULL);
    expect(F, "eight/axes", "I32", TP_SHAPE(1, 1, 1, 1, 1, 1, 1, 2), (double[]){ 9, 9 });
    for (int dt = 0; dt < TP_NDTYPES; dt++) /* in the order of the file */
        cr_expect_str_eq(tp_file_at(F, dt)->name, tp_dtype_name((tp_dtype)dt));
    cr_expect_str_eq(tp_file_at(F, TP_NDTYPES)->name, "scalar");
    cr_expect_str_eq(tp_file_at(F, TP_NDTYPES + 1)->name, "empty");
    tp_file_close(F);
    char why[300];
    const char *npy = in_folder("one.npy");
    cr_assert(tp_to_npy(T, six(T, TP_I64), npy, why, sizeof why), "%s", why);
    cr_expect_str_eq(why, "");
    int64_t back[6];
    const tp_tensor x = tp_from_file(T, npy, NULL);
    cr_expect_eq(tp_dtype_of(x), TP_I64);
    cr_expect_eq(tp_dim(x, 0), 3);
    cr_expect(tp_read(T, x, back, sizeof back));
    for (int i = 0; i < 6; i++) cr_expect_eq((double)back[i], some[i]);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

static const char *write_none(void)
{
    const char *path = in_folder("none.npz");
    tp_writer *W = tp_writer_numpy(path);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    return path;
}

/* Flips a bit of the last byte before the archive's directory: of the last element. */
static void flip_last(unsigned char *bytes, size_t n)
{
    size_t at = 4;
    while (at < n && memcmp(bytes + at, "PK\1\2", 4) != 0) at++;
    cr_assert(at < n, "it has a directory");
    bytes[at - 1] ^= 1;
}

static void expect_damage(const unsigned char *bytes, size_t n, bool in_part)
{
    double to;
    tp_file *F = tp_file_open(write_in_folder("damaged.npz", bytes, n));
    const tp_file_tensor *last = tp_file_at(F, tp_file_count(F) - 1);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect(tp_file_read_part(F, tp_file_at(F, 0), 0, 1, TP_F64, &to), "%s", tp_file_why(F));
    cr_expect_not(in_part ? tp_file_read_part(F, last, 0, 1, TP_F64, &to) : tp_file_verify(F));
    cr_expect(strstr(tp_file_why(F), "' is damaged: its CRC-32 is ") &&
                  strstr(tp_file_why(F), ", the archive says "),
              "%s", tp_file_why(F));
    tp_file_close(F);
}

/* Of archives of ours, with ZIP64's fields, and of NumPy's. */
Test(numpy_files, sums_of_stored_entries_are_compared)
{
    static const double x[3] = { 1, 2, 7 };
    static unsigned char bytes[ROOM];
    tp_writer *W = tp_writer_numpy(in_folder("x.npz"));
    tp_writer_add(W, "a", TP_F64, TP_SHAPE(1), x, false);
    tp_writer_add(W, "x", TP_F64, TP_SHAPE(3), x, false);
    cr_assert(tp_writer_commit(W));
    tp_writer_free(W);
    size_t n = read_all(in_folder("x.npz"), bytes);
    tp_file *F = tp_file_open(in_folder("x.npz"));
    cr_expect(tp_file_verify(F), "%s", tp_file_why(F));
    tp_file_close(F);
    flip_last(bytes, n);
    expect_damage(bytes, n, true);
    expect_damage(bytes, n, false);
    n = read_all(FIXTURE("stored.npz"), bytes);
    flip_last(bytes, n);
    expect_damage(bytes, n, false);
}

Test(numpy_files, an_archive_of_no_arrays)
{
    unsigned char bytes[ROOM];
    tp_file *F = tp_file_open(write_none());
    cr_expect(tp_file_ok(F) && tp_file_count(F) == 0, "%s", tp_file_why(F));
    tp_file_close(F);
    cr_expect_eq(read_all(in_folder("none.npz"), bytes), 22);
    cr_expect_eq(memcmp(bytes, "PK\5\6", 5), 0); /* numpy.load knows it by these */
}

/* The bytes of a .npy that NumPy writes itself are ours, too. */
Test(numpy_files, the_same_bytes_as_numpy)
{
    unsigned char theirs[ROOM], ours[ROOM];
    char why[300];
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_reshape(T, tp_arange(T, TP_F32, 0, 6, 1), TP_SHAPE(2, 3));
    cr_assert(tp_to_npy(T, x, in_folder("a.npy"), why, sizeof why), "%s", why);
    const size_t n = read_all(FIXTURE("version1.npy"), theirs);
    cr_assert_eq(read_all(in_folder("a.npy"), ours), n);
    cr_expect_eq(memcmp(ours, theirs, n), 0);
    tp_tape_free(T);
    tp_device_close(D);
}

Test(numpy_files, numpy_reads_ours)
{
    if (system("python3 -c 'import numpy' 2>/dev/null") != 0) cr_skip_test("python3 has no NumPy");
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    char command[2000];
    snprintf(command, sizeof command,
             "python3 -c \"\n"
             "import numpy as np, zipfile, sys\n"
             "path = '%s'\n"
             "assert zipfile.ZipFile(path).testzip() is None\n"
             "z = np.load(path)\n"
             "x = np.array([0, 1, 2, 3, 4, 250]).reshape(3, 2)\n"
             "kinds = dict(f32='f4', f64='f8', bf16='f4', i32='i4', i64='i8', u8='u1')\n"
             "assert z.files == [*kinds, 'scalar', 'empty', 'eight/axes'], z.files\n"
             "for name, kind in kinds.items():\n"
             "    assert z[name].dtype == kind and (z[name] == x).all(), name\n"
             "assert z['scalar'].shape == () and z['scalar'] == 7.5\n"
             "assert z['empty'].shape == (0, 4)\n"
             "assert z['eight/axes'].shape == (1,) * 7 + (2,)\n",
             write_six(T));
    snprintf(command + strlen(command), sizeof command - strlen(command),
             "assert np.load('%s').files == []\n\"", write_none());
    cr_expect_eq(system(command), 0);
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- refusals of writers ---- */

Test(numpy_files, writers_refuse)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const float x[2] = { 1, NAN };
    for (int i = 0; i < 5; i++) {
        static const char *const parts[] = { "NumPy's files hold no metadata like 'k'",
                                             "a .npy holds one tensor, not 2",
                                             "tensor 'a' is given twice",
                                             "element 1 of tensor 'a' is NaN",
                                             "a .npy holds one tensor, not 0" };
        const bool npy = i == 1 || i == 4;
        const char *path = write_in_folder(npy ? "a.npy" : "a.npz", "before", 6);
        tp_writer *W = tp_writer_numpy(path);
        if (i == 0) tp_writer_meta(W, "k", "v");
        if (i == 3) tp_writer_finite(W);
        if (i < 4) tp_writer_add(W, "a", TP_F32, TP_SHAPE(i == 3 ? 2 : 1), x, false);
        if (i == 1 || i == 2) tp_writer_add(W, i == 1 ? "b" : "a", TP_F32, TP_SHAPE(1), x, false);
        cr_expect_not(tp_writer_commit(W));
        cr_expect(strstr(tp_writer_why(W), parts[i]), "%s", tp_writer_why(W));
        tp_writer_free(W);
        unsigned char bytes[ROOM];
        cr_expect(read_all(path, bytes) == 6 && memcmp(bytes, "before", 6) == 0,
                  "%d: the former file is changed", i);
    }
    char why[300] = "";
    const tp_tensor y = tp_full(T, TP_F32, TP_SHAPE(1), 0);
    cr_expect_not(tp_to_npy(T, y, in_folder("x.bin"), why, sizeof why));
    cr_expect(strstr(why, "x.bin does not end in .npy; write a .npz with tp_writer_numpy"), "%s",
              why);
    cr_expect_not(tp_to_npy(T, y, "/there/is/no/such/folder.npy", why, sizeof why));
    cr_expect(strstr(why, "create the folder first"), "%s", why);
    cr_expect_not(tp_to_npy(T, y, NULL, why, sizeof why));
    cr_expect_str_eq(why, "file cannot be written: NULL was given in place of a path");
    cr_expect(tp_ok(T), "%s", tp_why(T));
    cr_expect_not(tp_to_npy(NULL, y, "never.npy", why, sizeof why));
    cr_expect_not(tp_to_npy(T, y, in_folder("x.bin"), NULL, 9));
    cr_expect_not(tp_to_npy(T, TP_NONE, in_folder("none.npy"), NULL, 9));
    cr_expect_eq(access(in_folder("none.npy"), F_OK), -1);
    tp_writer *W = tp_writer_numpy(in_folder("none.npz"));
    tp_add_to_file(T, y, W, "y");
    cr_expect_not(tp_writer_ok(W), "the tape has failed");
    tp_add_to_file(NULL, y, NULL, NULL);
    tp_writer_free(W);
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- tensors from files ---- */

Test(numpy_files, tensors_of_any_file)
{
    static const struct {
        const char *name;
        tp_dtype dt;
    } table[] = { { "f2F", TP_F32 },    { "f8bigC", TP_F64 }, { "i1C", TP_I32 },
                  { "u2bigF", TP_I32 }, { "u4C", TP_I64 },    { "u8C", TP_I64 },
                  { "b1bigF", TP_U8 },  { "u1F", TP_U8 } };
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const tp_tensor x = tp_from_file(T, FIXTURE("deflated.npz"), table[i].name);
        cr_assert(tp_ok(T), "%s", tp_why(T));
        cr_expect_eq(tp_dtype_of(x), table[i].dt, "%s", table[i].name);
        cr_expect_eq(tp_item(T, tp_slice(T, tp_reshape(T, x, TP_SHAPE(-1)), 0, 3, 1)),
                     *table[i].name == 'u' ? 3 : 1, "%s", table[i].name);
    }
    static const struct {
        const char *path, *name, *part;
    } bad[] = {
        { FIXTURE("stored.npz"), NULL, "stored.npz: has 53 tensors; give the name of one\n  at " },
        { FIXTURE("stored.npz"), "w", "has no tensor 'w'; tp-inspect lists what it has" },
        { FIXTURE("refused.npz"), "texts", "tensor 'texts' has NumPy's dtype <U1" },
        { "there/is/none.npy", NULL, "cannot be opened" },
        { NULL, NULL, "NULL was given in place of a path" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tp_from_file(T, bad[i].path, bad[i].name);
        cr_expect(strstr(tp_why(T), "tp_from_file: ") && strstr(tp_why(T), bad[i].part), "%s",
                  tp_why(T));
        tp_clear(T);
    }
    tp_from_file(NULL, FIXTURE("version1.npy"), NULL);
    tp_tape_free(T);
    tp_device_close(D);
}

/* An array [R,C] of i4 in Fortran's order, whose elements are their numbers in row-major order. */
static const char *write_columns(int rows, int columns)
{
    char text[128];
    const char *path = in_folder("large.npy");
    snprintf(text, sizeof text, "{'descr': '<i4', 'fortran_order': True, 'shape': (%d, %d), }\n",
             rows, columns);
    FILE *f = fopen(path, "wb");
    cr_assert(f);
    const uint16_t n = (uint16_t)strlen(text);
    fwrite("\x93NUMPY\x01\x00", 1, 8, f);
    fwrite(&n, 2, 1, f);
    fputs(text, f);
    for (int32_t c = 0; c < columns; c++)
        for (int32_t r = 0, x; r < rows; r++) {
            x = r * columns + c;
            fwrite(&x, sizeof x, 1, f);
        }
    cr_assert(fclose(f) == 0);
    return path;
}

/* Columns are turned in pieces; few long rows take no longer than many short ones, also in another
 * dtype and for one process of two. */
Test(numpy_files, large_arrays_in_fortrans_order)
{
    static const int sizes[][2] = { { 1500, 700 }, { 2, 500000 }, { 500000, 2 }, { 64, 16000 } };
    for (int k = 0; k < 4; k++) {
        const int columns = sizes[k][1], n = sizes[k][0] * columns;
        const int part = columns < 1000 ? 2 * columns : 9000;
        int32_t *x = malloc(sizeof *x * (size_t)n);
        int64_t *wide = malloc(sizeof *wide * (size_t)n);
        tp_file *F = tp_file_open(write_columns(sizes[k][0], columns));
        const tp_file_tensor *t = tp_file_at(F, 0);
        int wrong = 0;
        cr_assert(x && wide && tp_file_read(F, t, TP_I32, x) && tp_file_read(F, t, TP_I64, wide),
                  "%s", tp_file_why(F));
        for (int i = 0; i < n; i++) wrong += x[i] != i || wide[i] != i;
        cr_expect_eq(wrong, 0, "%d columns", columns);
        cr_assert(tp_file_read_part(F, t, columns - 1, part, TP_I32, x) &&
                  tp_file_read_part(F, t, columns - 1, part, TP_I64, wide));
        for (int i = 0; i < part; i++)
            wrong += x[i] != columns - 1 + i || wide[i] != columns - 1 + i;
        cr_expect_eq(wrong, 0, "%d columns", columns);
        cr_assert(tp_file_share(F, "", (tp_share){ .rank = 1, .ranks = 2 }));
        cr_assert(tp_file_read(F, tp_file_at(F, 0), TP_I64, wide), "%s", tp_file_why(F));
        for (int i = 0; i < n / 2; i++) wrong += wide[i] != n / 2 + i;
        cr_expect_eq(wrong, 0, "%d columns, shared", columns);
        tp_file_close(F);
        free(wide);
        free(x);
    }
}
