/* fuzz_safetensors.c - the input is a safetensors file: opening, listing, every conversion, and
 * loading it into parameters, moments and averages.
 *
 * A file with checksums is tried as it is, and once more with correct ones.
 *
 * Besides memory safety the following must hold: tensors fill the data without gaps unless one of
 * them is described wrongly, what cannot be read has a reason, a failed file exposes nothing, every
 * failure gives a reason, and a load that succeeds has stored the bytes of the file. */
#include "fuzz.h"

#include <string.h>
#include <tapegrad/tapegrad.h>

enum { PIECE = 64 }; /* elements read from each end of a tensor */

static volatile unsigned sink;

/* Reads the first and the last byte of each tensor, so that a sanitizer reports bytes out of
 * bounds. */
static void walk(tp_file *F, size_t size)
{
    size_t end = 0;
    bool gaps = false;
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        gaps = gaps || t->code == TP_E_IO;
        fuzz_demand((t->code == TP_OK) == (t->why == NULL), "what cannot be read has a reason");
        fuzz_demand(t->code == TP_OK || t->numel == 0, "what cannot be read has no elements");
        if (t->code != TP_OK) {
            end = t->bytes ? t->offset + t->bytes : end;
            continue;
        }
        const unsigned char *bytes = tp_file_data(F, t);
        fuzz_demand((t->offset == end || (gaps && t->offset > end)) && t->bytes <= size - t->offset,
                    "tensors lie side by side inside");
        fuzz_demand(tp_file_find(F, t->name) == t, "a tensor is found by its name");
        fuzz_demand(bytes || tp_file_has_checksums(F), "only checksums keep a tensor back");
        if (bytes && t->bytes) sink += bytes[0] + bytes[t->bytes - 1];
        end = t->offset + t->bytes;
    }
    fuzz_demand(!tp_file_at(F, tp_file_count(F)), "there is nothing after the last tensor");
}

static void read_as(const char *path, tp_dtype dt)
{
    double room[PIECE];
    tp_file *F = tp_file_open(path);
    for (int i = 0; i < tp_file_count(F) && tp_file_ok(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        const int64_t n = t->numel < PIECE ? t->numel : PIECE;
        tp_file_read_part(F, t, 0, n, dt, room);
        tp_file_read_part(F, t, t->numel - n, n, dt, room);
    }
    fuzz_demand_reason(tp_file_ok(F), tp_file_why(F));
    tp_file_close(F);
}

/* Reads metadata as text, and each value as a number until the first that is not one. */
static void read_meta(const char *path, bool real)
{
    const char *key, *value;
    tp_file *F = tp_file_open(path);
    for (int i = 0; tp_file_ok(F) && tp_file_meta_at(F, i, &key, &value); i++) {
        int64_t whole = 0;
        double number = 0;
        fuzz_demand(tp_file_meta(F, key) == value, "a value is found by its key");
        if (real)
            tp_file_num(F, key, &number);
        else
            tp_file_int(F, key, &whole);
        fuzz_demand(number - number == 0, "numbers are finite");
    }
    tp_file_close(F);
}

/* ---- loading ---- */

enum { W_SIZE = 6 };

typedef struct model {
    tp_params *P;
    tp_tensor w;
} model;

static model make_model(tp_device *D)
{
    static const int64_t indices[2] = { 4, 5 };
    const tp_init half = { TP_INIT_CONST, 0.5, 0 };
    model m = { .P = tp_params_new(D, NULL) };
    m.w = tp_param(m.P, "w", TP_SHAPE(2, 3), half, 0);
    tp_param(m.P, "layer.b", TP_SHAPE(3), half, 0);
    tp_param(m.P, "none", TP_SHAPE(0, 4), half, TP_FROZEN);
    tp_tie(m.P, "tied", m.w);
    tp_buffer(m.P, "index", TP_I64, TP_SHAPE(2), indices);
    return m;
}

static const char *skip_x(const char *name, void *env)
{
    (void)env;
    return name[0] == 'x' ? NULL : name;
}

/* Whether w has the bytes of this tensor of the file. */
static bool holds(const model *m, tp_file *F, const char *name)
{
    float now[W_SIZE];
    const tp_file_tensor *t = tp_file_find(F, name);
    return tp_param_get(m->P, m->w, TP_F32, now, sizeof now) && t &&
           memcmp(now, tp_file_data(F, t), sizeof now) == 0;
}

static void load(tp_device *D, const char *path, const tp_load_opts *o)
{
    const model m = make_model(D);
    tp_file *F = tp_file_open(path);
    const bool loaded = tp_params_read(m.P, F, "", o);
    fuzz_demand_reason(loaded, tp_params_why(m.P));
    if (loaded && !o)
        fuzz_demand(holds(&m, F, "w") || holds(&m, F, "tied"), "a load stores the file's bytes");
    tp_file_close(F);
    tp_params_free(m.P);
}

static void load_training_state(tp_device *D, const char *path)
{
    const model m = make_model(D);
    tp_file *F = tp_file_open(path);
    tp_optim *O = tp_adam_new(m.P, NULL);
    tp_ema *E = tp_ema_new(m.P, 0.5);
    const bool moments = tp_optim_read(O, F, NULL);
    fuzz_demand_reason(moments, tp_optim_why(O));
    const bool averaged = tp_ema_read(E, F, NULL);
    fuzz_demand_reason(averaged, tp_ema_why(E));
    tp_ema_swap(E);
    fuzz_demand(!averaged || holds(&m, F, "ema.w"), "averages have the file's bytes");
    tp_optim_free(O);
    tp_ema_free(E);
    tp_params_free(m.P);
    tp_file_close(F);
}

static void try(tp_device *D, const uint8_t *input, size_t size)
{
    const char *path = fuzz_path(input, size);
    tp_file *F = tp_file_open(path);
    const bool good = tp_file_ok(F);
    fuzz_demand_reason(good, tp_file_why(F));
    walk(F, size);
    fuzz_demand(good || (tp_file_count(F) == 0 && !tp_file_meta(F, "format")),
                "a bad file is empty");
    tp_file_close(F);
    if (!good) return;
    for (int dt = 0; dt < TP_NDTYPES; dt++) read_as(path, (tp_dtype)dt);
    read_meta(path, false);
    read_meta(path, true);
    load(D, path, NULL);
    load(D, path, &(tp_load_opts){ .partial = true, .convert = true, .strip = "m." });
    load(D, path, &(tp_load_opts){ .convert = true, .rename = skip_x });
    load_training_state(D, path);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    enum { MOST = 1 << 16 };
    static uint8_t mended[MOST];
    static tp_device *D;
    if (!D) D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    try(D, input, size);
    if (size > MOST) return 0;
    memcpy(mended, input, size);
    if (!fuzz_mend(mended, size)) return 0;
    tp_file *F = tp_file_open(fuzz_path(mended, size));
    fuzz_demand(tp_file_count(F) == 0 || tp_file_verify(F), "mended checksums agree");
    tp_file_close(F);
    try(D, mended, size);
    return 0;
}
