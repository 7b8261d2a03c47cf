/* fuzz_torch.c - the input is a PyTorch checkpoint, as a ZIP archive or as consecutive pickles, to
 * open, list, read every tensor in two dtypes, and match with a model's names.
 *
 * Besides memory safety the following must hold: a tensor is found by its name and has the size of
 * its shape, a failed file exposes nothing, and every failure gives a reason. */
#include "fuzz.h"

#include <string.h>
#include <tapegrad/vision.h>

enum { PIECE = 64 }; /* elements read from each end of a tensor */

static void walk(const tp_file *F)
{
    for (int i = 0; i < tp_file_count(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        int64_t numel = 1;
        for (int k = 0; t->code == TP_OK && k < t->shape.ndim; k++) numel *= t->shape.dim[k];
        fuzz_demand(t->code != TP_OK ? t->numel == 0 && t->why && *t->why : numel == t->numel,
                    "a tensor has as many elements as its shape, or a reason");
        fuzz_demand(tp_file_find(F, t->name) == t, "a tensor is found by its name");
    }
    fuzz_demand(!tp_file_at(F, tp_file_count(F)), "there is nothing after the last tensor");
}

static void read_as(const char *path, tp_dtype dt)
{
    double room[PIECE];
    tp_file *F = tp_file_open(path);
    for (int i = 0; i < tp_file_count(F) && tp_file_ok(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        const bool is_float = strchr(t->stored, 'F') != NULL;
        const int64_t n = t->numel < PIECE ? t->numel : PIECE;
        if (is_float != (dt == TP_F64)) continue;
        tp_file_read_part(F, t, 0, n, dt, room);
        tp_file_read_part(F, t, t->numel - n, n, dt, room);
    }
    fuzz_demand_reason(tp_file_ok(F), tp_file_why(F));
    tp_file_close(F);
}

/* Reads the file as the published weights of a model. */
static void adopt(const char *path, const char *model)
{
    char why[256], prefix[64];
    tp_model_cfg cfg;
    tp_file *F = tp_file_open(path);
    const int all = tp_file_count(F);
    fuzz_demand(tp_model_preset(&cfg, model, why, sizeof why), "the model exists");
    const bool done = tp_model_adopt(&cfg, F, prefix, sizeof prefix);
    fuzz_demand(done == tp_file_ok(F), "adopting fails with the file");
    fuzz_demand_reason(done, tp_file_why(F));
    fuzz_demand(tp_file_count(F) <= all, "no tensor is added");
    if (done) walk(F);
    tp_file_close(F);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    const char *path = fuzz_path(input, size);
    tp_file *F = tp_file_open(path);
    const bool good = tp_file_ok(F);
    fuzz_demand_reason(good, tp_file_why(F));
    walk(F);
    fuzz_demand(good || (tp_file_count(F) == 0 && !tp_file_meta(F, "epoch")),
                "a bad file is empty");
    tp_file_close(F);
    if (!good) return 0;
    read_as(path, TP_F64);
    read_as(path, TP_I64);
    adopt(path, "tiny");
    adopt(path, "cvt-small");
    return 0;
}
