/* parity_tensors.c - tensors of the file, the fill rule for those it does not store, layouts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "parity_case.h"

/* ---- names and shapes ---- */

bool par_has(const parity *p, const char *name)
{
    return tp_file_find(p->F, name) != NULL;
}

bool par_has_any(const parity *p, const char *prefix)
{
    for (int i = 0; i < tp_file_count(p->F); i++)
        if (strncmp(tp_file_at(p->F, i)->name, prefix, strlen(prefix)) == 0) return true;
    return false;
}

int64_t par_series(const parity *p, const char *prefix)
{
    char name[128];
    int64_t n = -1;
    do snprintf(name, sizeof name, "%s%lld", prefix, (long long)++n);
    while (par_has(p, name));
    return n;
}

tp_shape par_shape(const parity *p, const char *name)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);
    return t ? t->shape : TP_SHAPE(0);
}

int64_t par_numel(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

/* Marks the tensor as compared. */
static void saw(parity *p, const char *name)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);
    for (int i = 0; t && i < tp_file_count(p->F); i++)
        if (tp_file_at(p->F, i) == t) p->seen[i] = true;
}

/* ---- contents on the host ---- */

static bool is_floating(const tp_file_tensor *t)
{
    return t->stored[0] == 'F' || strcmp(t->stored, "BF16") == 0;
}

/* The tensor as dt, marked as seen; NULL: failed. */
static void *read_as(parity *p, const char *name, tp_dtype dt, tp_shape *shape)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);

    if (shape) *shape = par_shape(p, name);
    if (p->failed) return NULL;
    if (!t) {
        par_fail(p, "the file has no tensor %s", name);
        return NULL;
    }
    saw(p, name);
    void *host = par_alloc(p, t->numel, tp_dtype_size(dt));
    if (host && tp_file_read(p->F, t, dt, host)) return host;
    par_ok(p);
    return NULL;
}

double *par_values(parity *p, const char *name, tp_shape *shape)
{
    return read_as(p, name, TP_F64, shape);
}

float *par_floats(parity *p, const char *name, tp_shape *shape)
{
    const double *x = par_values(p, name, shape);
    float *f = x ? par_alloc(p, par_numel(*shape), sizeof *f) : NULL;
    for (int64_t i = 0; f && i < par_numel(*shape); i++) f[i] = (float)x[i];
    return f;
}

/* Integers may be stored as floats. */
int64_t *par_integers(parity *p, const char *name, tp_shape *shape)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);

    if (!t || !is_floating(t)) return read_as(p, name, TP_I64, shape);
    const double *x = read_as(p, name, TP_F64, shape);
    int64_t *id = x ? par_alloc(p, t->numel, sizeof *id) : NULL;
    for (int64_t i = 0; id && i < t->numel; i++) {
        id[i] = fabs(x[i]) < 1e15 ? (int64_t)x[i] : 0;
        if ((double)id[i] != x[i]) par_fail(p, "%s: %g is not a whole number", name, x[i]);
    }
    return id;
}

int64_t *par_integers_of(parity *p, const char *name, int64_t n)
{
    tp_shape s = { 0 };
    int64_t *x = par_integers(p, name, &s);
    if (x && par_numel(s) != n)
        par_fail(p, "%s has %lld elements, not %lld", name, (long long)par_numel(s), (long long)n);
    return p->failed ? NULL : x;
}

int *par_categories(parity *p, const char *name, int64_t n, int64_t most)
{
    const int64_t *stored = par_integers_of(p, name, n);
    int *category = par_alloc(p, n, sizeof *category);
    for (int64_t i = 0; stored && category && i < n; i++) {
        category[i] = (int)stored[i];
        if (stored[i] < 0 || stored[i] > most)
            par_fail(p, "%s: there is no class %lld of %lld", name, (long long)stored[i],
                     (long long)most + 1);
    }
    return p->failed ? NULL : category;
}

/* ---- on the tape ---- */

static tp_tensor upload(parity *p, const char *name, bool input)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);
    const tp_dtype dt = !t || is_floating(t) ? p->o->compute : TP_I64;
    tp_shape s;
    const void *host = read_as(p, name, dt, &s);

    if (!host) return tp_raise(p->T, TP_E_IO, "%s", p->r->why);
    return input ? tp_input(p->T, dt, s, host) : tp_from(p->T, dt, s, host);
}

tp_tensor par_tensor(parity *p, const char *name)
{
    return upload(p, par_name(p, "input.%s", name), false);
}

/* Registers x as an input whose gradient has that name in the file. Checks the batch size of the
 * first input against the metadata. */
static tp_tensor note_input(parity *p, const char *name, tp_tensor x)
{
    par_input *in = par_alloc(p, 1, sizeof *in);

    if (!in || !par_ok(p)) return x;
    if (!p->input) {
        par_same(p, "B", tp_dim(x, 0));
        par_same(p, "batch", tp_dim(x, 0));
    }
    *in = (par_input){ name, x, p->input };
    p->input = in;
    return x;
}

tp_tensor par_take(parity *p, const char *name)
{
    const char *full = par_name(p, "input.%s", name);
    return note_input(p, full, upload(p, full, true));
}

tp_tensor par_matrix(parity *p, int64_t rows, int64_t columns, const double *x)
{
    const int64_t n = rows * columns;
    if (p->real == TP_F64) return tp_from(p->T, TP_F64, TP_SHAPE(rows, columns), x);

    float *f = par_alloc(p, n, sizeof *f);
    if (!f) return tp_raise(p->T, TP_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < n; i++) f[i] = (float)x[i];
    return tp_from(p->T, TP_F32, TP_SHAPE(rows, columns), f);
}

double *par_read(parity *p, tp_tensor x)
{
    if (tp_dtype_of(x) == TP_BF16) x = tp_cast(p->T, x, TP_F32);
    const int64_t n = tp_ok(p->T) ? tp_numel(x) : 0;
    const size_t size = tp_dtype_size(tp_dtype_of(x));
    double *out = p->failed ? NULL : par_alloc(p, n, sizeof *out);

    if (!out || !tp_read(p->T, x, out, (size_t)n * size)) {
        par_ok(p);
        return NULL;
    }
    if (size == sizeof(float)) /* widens in place, from the end */
        for (int64_t i = n - 1; i >= 0; i--) {
            float f;
            memcpy(&f, (const char *)out + (size_t)i * sizeof f, sizeof f);
            out[i] = f;
        }
    return out;
}

/* ---- layouts ---- */

tp_tensor par_channels_last(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(0, 2, 3, 1));
}

tp_tensor par_channels_first(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(0, 3, 1, 2));
}

/* ---- the fill rule ---- */

uint64_t par_hash(const char *name)
{
    return tp_hash_text(TP_HASH, name);
}

double par_uniform(uint64_t hash, int64_t i)
{
    uint64_t z = hash + ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 40) / 16777216.0;
}

/* An input [B,C,H,W] with values in [-1,1), filled by the rule that the metadata give. */
static tp_tensor filled_images(parity *p)
{
    const char *name = par_text(p, "input_fill");
    int64_t axes;
    const int64_t *s = par_sizes(p, "input_shape", 1, &axes);
    if (!name || axes != 4 || (double)s[0] * (double)s[1] * (double)s[2] * (double)s[3] > 1e9)
        par_fail(p, "the case stores no images and has no valid input_fill and input_shape");
    if (p->failed) return tp_raise(p->T, TP_E_VALUE, "%s", p->r->why);

    const tp_shape shape = TP_SHAPE(s[0], s[1], s[2], s[3]);
    const int64_t n = par_numel(shape);
    const uint64_t hash = par_hash(name);
    double *x = par_alloc(p, n, sizeof *x);
    float *f = (float *)x;
    for (int64_t i = 0; x && i < n; i++) {
        const double value = (float)(2.0 * par_uniform(hash, i) - 1.0);
        if (p->real == TP_F64)
            x[i] = value;
        else
            f[i] = (float)value;
    }
    if (!x) return tp_raise(p->T, TP_E_MEMORY, "out of memory");
    const tp_tensor images = note_input(p, "input", tp_input(p->T, p->real, shape, x));
    return p->o->compute == TP_BF16 ? tp_cast(p->T, images, TP_BF16) : images;
}

/* Checks a key that holds height and width, or the side of a square. */
static void check_sides(parity *p, const char *key, int64_t H, int64_t W)
{
    int64_t n;
    const int64_t *side = par_sizes(p, key, 1, &n);

    if (n && (n > 2 || side[0] != H || side[n - 1] != W))
        par_fail(p, "metadata %s: the case's images are %lld x %lld", key, (long long)H,
                 (long long)W);
}

/* Checks the size of the first images [B,C,H,W] against the metadata. */
static void check_image(parity *p, tp_tensor x)
{
    if (tp_ndim(x) != 4) {
        par_fail(p, "%s: images must be [batch,channels,height,width]", p->input->name);
        return;
    }
    const int64_t H = tp_dim(x, 2), W = tp_dim(x, 3);
    par_same(p, "H", H);
    par_same(p, "W", W);
    par_same(p, "height", H);
    par_same(p, "width", W);
    check_sides(p, "image", H, W);
    check_sides(p, "image_hw", H, W);
    check_sides(p, "image_size", H, W);
    check_sides(p, "size", H, W);
}

tp_tensor par_images(parity *p, const char *name)
{
    const bool first = !p->input, stored = par_has(p, par_name(p, "input.%s", name));
    const tp_tensor x = stored ? par_take(p, name) : filled_images(p);

    if (par_ok(p) && first) check_image(p, x);
    return par_channels_last(p->T, x);
}

void par_image_size(parity *p, const char *name, int64_t size[2])
{
    const tp_shape stored = par_shape(p, par_name(p, "input.%s", name));
    int64_t axes;
    const int64_t *s = par_sizes(p, "input_shape", 1, &axes);

    size[0] = size[1] = 1;
    if (stored.ndim != 4 && axes != 4)
        par_fail(p, "neither input.%s nor input_shape gives the size of the images", name);
    for (int i = 0; i < 2 && !p->failed; i++)
        size[i] = stored.ndim == 4 ? stored.dim[2 + i] : s[2 + i];
}
