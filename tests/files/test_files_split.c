/* test_files_split.c - parts of a file's tensors: rows and transposes, of contiguous, transposed,
 * checked and sharded tensors, whole and in pieces; refusals leave no half of a list. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/files.h"
#include "support/folder.h"

TestSuite(files_split, .init = make_folder, .fini = remove_folder);

enum { R = 1203, C = 7 }; /* more rows than are read at once */

static float whole[R * C];

/* A file with "m" [R,C], "v" [R] and "s" []; without checksums unless `sums`. */
static const char *write_file(bool sums)
{
    const char *path = in_folder("m.safetensors");
    for (int i = 0; i < R * C; i++) whole[i] = (float)i;
    if (sums) {
        tp_writer *W = tp_writer_new(path);
        tp_writer_add(W, "m", TP_F32, TP_SHAPE(R, C), whole, true);
        tp_writer_add(W, "v", TP_F32, TP_SHAPE(R), whole, true);
        tp_writer_add(W, "s", TP_F32, (tp_shape){ 0 }, whole, true);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        return path;
    }
    char json[400];
    float *data = malloc(sizeof whole + (R + 1) * sizeof *data);
    memcpy(data, whole, sizeof whole);
    memcpy(data + R * C, whole, (R + 1) * sizeof *data);
    snprintf(json, sizeof json,
             "{\"m\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
             "\"v\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
             "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[%d,%d]}}",
             R, C, 4 * R * C, R, 4 * R * C, 4 * (R * C + R), 4 * (R * C + R), 4 * (R * C + R + 1));
    write_raw(path, 0, json, data, sizeof whole + (R + 1) * sizeof *data);
    free(data);
    return path;
}

/* Compares a part with rows from `first` of m or of its transpose, read whole and in pieces. */
static void expect_part(tp_file *F, const char *name, int first, int rows, bool turned)
{
    const tp_file_tensor *t = tp_file_find(F, name);
    const int columns = turned ? R : C;
    static double got[R * C];
    cr_assert(t && t->shape.ndim == 2, "%s", name);
    cr_expect(t->shape.dim[0] == rows && t->shape.dim[1] == columns && t->numel == rows * columns,
              "%s", name);
    for (int piece = 0; piece < 3; piece++) {
        const int64_t step = (int64_t[]){ t->numel, 5, 1001 }[piece];
        memset(got, 0, sizeof got);
        for (int64_t i = 0; i < t->numel; i += step)
            cr_assert(tp_file_read_part(F, t, i, i + step > t->numel ? t->numel - i : step, TP_F64,
                                        got + i),
                      "%s: %s", name, tp_file_why(F));
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) {
                const int at = turned ? j * C + first + i : (first + i) * C + j;
                cr_assert_eq(got[i * columns + j], whole[at], "%s[%d,%d], piece %d", name, i, j,
                             piece);
            }
    }
}

static void divide(tp_file *F)
{
    const tp_file_part parts[] = {
        { "top", 0, 400, false },  { "rest", 400, R - 400, false }, { "turned", 0, C, true },
        { "columns", 2, 3, true }, { "none", 5, 0, false },
    };
    cr_assert(tp_file_split(F, "m", parts, 5), "%s", tp_file_why(F));
    cr_expect_null(tp_file_find(F, "m"));
    expect_part(F, "top", 0, 400, false);
    expect_part(F, "rest", 400, R - 400, false);
    expect_part(F, "turned", 0, C, true);
    expect_part(F, "columns", 2, 3, true);
    expect_part(F, "none", 5, 0, false);
    /* parts of parts: rows 1 and 2 of columns 2 to 4, and the transpose of the transpose */
    cr_assert(tp_file_split(F, "columns", &(tp_file_part){ "inner", 1, 2, false }, 1));
    expect_part(F, "inner", 3, 2, true);
    cr_assert(tp_file_split(F, "turned", &(tp_file_part){ "turned", 10, 90, true }, 1));
    expect_part(F, "turned", 10, 90, false);
    const tp_file_part halves[] = { { "v", 0, 3, false }, { "v.rest", 3, R - 3, false } };
    cr_assert(tp_file_split(F, "v", halves, 2), "%s", tp_file_why(F));
    float v[R];
    cr_assert(tp_file_read(F, tp_file_find(F, "v.rest"), TP_F32, v));
    cr_expect_arr_eq(v, whole + 3, (R - 3) * sizeof *v);
    cr_expect(tp_file_verify(F), "%s", tp_file_why(F));
}

Test(files_split, with_and_without_checksums)
{
    for (int sums = 0; sums < 2; sums++) {
        tp_file *F = tp_file_open(write_file(sums));
        cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
        cr_expect_eq(tp_file_has_checksums(F), sums);
        divide(F);
        tp_file_close(F);
    }
}

Test(files_split, of_several_files)
{
    static const char index[] = "{\"metadata\":{},\"weight_map\":{\"m\":\"m.safetensors\","
                                "\"v\":\"m.safetensors\",\"s\":\"m.safetensors\"}}";
    const char *path = in_folder("model.safetensors.index.json");
    write_file(false);
    write_bytes(path, index, sizeof index - 1);
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    divide(F);
    tp_file_close(F);
}

/* Damage is found before a part of the tensor is returned. */
Test(files_split, a_damaged_tensor)
{
    const char *path = write_file(true);
    FILE *f = fopen(path, "r+b");
    cr_assert(f && fseek(f, -5000, SEEK_END) == 0 && fputc('x', f) == 'x' && fclose(f) == 0);
    tp_file *F = tp_file_open(path);
    const tp_file_part parts[] = { { "turned", 0, C, true } };
    cr_expect(!tp_file_split(F, "m", parts, 1) || !tp_file_split(F, "v", &parts[0], 1));
    cr_expect(strstr(tp_file_why(F), "is damaged"), "%s", tp_file_why(F));
    tp_file_close(F);
}

Test(files_split, refusals)
{
    static const struct {
        const char *of;
        tp_file_part part;
        const char *text;
    } cases[] = {
        { "w", { "x", 0, 1, false }, "has no tensor 'w' to be divided" },
        { NULL, { "x", 0, 1, false }, "has no tensor '(NULL)'" },
        { "m",
          { "x", 0, R + 1, false },
          "has 1203 rows; 1204 of them from number 0 on do not exist" },
        { "m", { "x", -1, 1, false }, "1 of them from number -1 on" },
        { "m", { "x", INT64_MAX, 2, false }, "2 of them from number 9223372036854775807 on" },
        { "m", { "x", 0, C + 1, true }, "has 7 columns; 8 of them" },
        { "v", { "x", 0, 1, true }, "'v' has 1 axes and cannot be transposed" },
        { "s", { "x", 0, 1, false }, "'s' has 0 axes and cannot be divided" },
        { "m", { "v", 0, 1, false }, "has two tensors 'v'" },
        { "m", { NULL, 0, 1, false }, "part 0 of tensor 'm' has no name" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_file *F = tp_file_open(write_file(false));
        cr_expect(!tp_file_split(F, cases[i].of, &cases[i].part, 1) && !tp_file_ok(F), "%s",
                  cases[i].text);
        cr_expect(strstr(tp_file_why(F), cases[i].text), "%s: %s", cases[i].text, tp_file_why(F));
        tp_file_close(F);
    }
    cr_expect(!tp_file_split(NULL, "m", &cases[0].part, 1));
}

static const char *renamed_to_nothing(const tp_file_tensor *t, void *env)
{
    (void)t;
    (void)env;
    return NULL;
}

/* What is missing is reported; the tensors stay as they are. */
Test(files_split, nothing_given)
{
    static const char *const texts[] = {
        "tensor 'm' cannot be divided into 1 parts: their list is NULL",
        "tensor 'm' cannot be divided into 0 parts; give at least one",
        "tensor 'm' cannot be divided into -1 parts; give at least one",
        "NULL was given in place of a prefix",
        "NULL was given in place of a prefix",
        "NULL was given in place of a function that renames",
    };
    const tp_file_part part = { "x", 0, 1, false };
    const tp_share half = { .rank = 0, .ranks = 2 };
    for (int i = 0; i < 6; i++) {
        tp_file *F = tp_file_open(write_file(true));
        cr_expect_not(i == 0   ? tp_file_split(F, "m", NULL, 1)
                      : i == 1 ? tp_file_split(F, "m", NULL, 0)
                      : i == 2 ? tp_file_split(F, "m", &part, -1)
                      : i == 3 ? tp_file_enter(F, NULL)
                      : i == 4 ? tp_file_share(F, NULL, half)
                               : tp_file_rename(F, NULL, NULL));
        cr_expect(strstr(tp_file_why(F), texts[i]), "%s", tp_file_why(F));
        cr_expect_eq(tp_file_count(F), 3);
        tp_file_close(F);
    }
    cr_expect_not(tp_file_enter(NULL, NULL) || tp_file_share(NULL, NULL, half));
    cr_expect_not(tp_file_rename(NULL, renamed_to_nothing, NULL));
}

/* ---- arrays of NumPy ---- */

enum { AXIS = 6 };

/* Elements [AXIS,AXIS] counted in row-major order, in a .npy of that byte order and order of
 * axes. */
static void write_array(const char *path, bool big, bool fortran)
{
    char bytes[400] = "\x93NUMPY\x01";
    const int n = snprintf(bytes + 10, sizeof bytes - 10,
                           "{'descr': '%cf4', 'fortran_order': %s, 'shape': (%d, %d), }\n",
                           big ? '>' : '<', fortran ? "True" : "False", AXIS, AXIS);
    bytes[8] = (char)n;
    for (int i = 0; i < AXIS * AXIS; i++) {
        const float x = (float)(fortran ? i % AXIS * AXIS + i / AXIS : i);
        unsigned char b[4], *to = (unsigned char *)bytes + 10 + n + 4 * i;
        memcpy(b, &x, 4);
        for (int k = 0; k < 4; k++) to[k] = b[big ? 3 - k : k];
    }
    write_bytes(path, bytes, 10 + (size_t)n + 4 * AXIS * AXIS);
}

/* Expects the elements of a part in two dtypes; their offset is that of the first one's bytes, from
 * `base` on. */
static void expect_array(tp_file *F, const tp_file_part *p, int above, size_t base, bool fortran)
{
    const tp_file_tensor *t = tp_file_find(F, p->name);
    double wide[AXIS * AXIS];
    float x[AXIS * AXIS];
    cr_assert(t && t->numel == p->rows * AXIS, "%s", p->name);
    cr_assert(tp_file_read(F, t, TP_F64, wide) && tp_file_read(F, t, TP_F32, x), "%s",
              tp_file_why(F));
    for (int i = 0; i < t->numel; i++) {
        const int row = above + (int)p->first + i / AXIS, column = i % AXIS;
        cr_expect(wide[i] == row * AXIS + column && x[i] == wide[i], "%s[%d]: %g", p->name, i,
                  wide[i]);
    }
    cr_expect_eq(t->offset, base + 4 * (size_t)(above + p->first) * (fortran ? 1 : AXIS), "%s: %zu",
                 p->name, t->offset);
}

/* Of a .npy, and of an index that names it; all rows, and one process's of several. */
Test(files_split, arrays_of_numpy)
{
    static const char index[] = "{\"weight_map\":{\"arr_0\":\"a.npy\"}}";
    const tp_file_part parts[] = { { "a", 0, 1, false }, { "b", 1, 2, false } };
    write_bytes(in_folder("model.index.json"), index, sizeof index - 1);
    for (int i = 0; i < 16; i++) {
        const bool big = i & 1, fortran = i & 2, shard = i & 4, shared = i & 8;
        write_array(in_folder("a.npy"), big, fortran);
        tp_file *F = tp_file_open(in_folder(shard ? "model.index.json" : "a.npy"));
        cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
        const size_t base = tp_file_at(F, 0)->offset;
        if (shared) cr_assert(tp_file_share(F, "", (tp_share){ .rank = 1, .ranks = 2 }));
        cr_assert(tp_file_split(F, "arr_0", parts, 2), "%s", tp_file_why(F));
        for (int k = 0; k < 2; k++)
            expect_array(F, &parts[k], shared ? AXIS / 2 : 0, base, fortran);
        tp_file_close(F);
    }
}

/* Offsets in a safetensors file count from its data. */
Test(files_split, offsets)
{
    tp_file *F = tp_file_open(write_file(false));
    const tp_file_part parts[] = { { "all", 0, R, false }, { "rest", 3, 2, false } };
    cr_assert(tp_file_split(F, "v", parts, 2), "%s", tp_file_why(F));
    cr_expect_eq(tp_file_find(F, "all")->offset, 4 * R * C);
    cr_expect_eq(tp_file_find(F, "rest")->offset, 4 * R * C + 12);
    tp_file_close(F);
}
