/* test_analyze.c - the numbers of `imagenet analyze` against plain arithmetic on the same models,
 * and its files as a user gets them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tapegrad/image.h>

#include "analyze.h"
#include "host_array.h"
#include "image_settings.h"
#include "map_numbers.h"
#include "support_folder.h"
#include "support_values.h"

#define IMAGENET TP_BIN_DIR "/imagenet"
enum { PICTURES = 3, SIDE = 32 };

/* ---- a model with random weights in f64, and pictures of noise ---- */

static void begin(analysis *a, const char *preset)
{
    image_settings s = { .accumulation = 1 };
    char why[256] = "";
    const int64_t n = (int64_t)PICTURES * SIDE * SIDE * 3;
    double *noise = malloc((size_t)n * sizeof *noise);
    *a = (analysis){ .n = PICTURES, .batch = 2, .block = -1, .query = -1 };
    cr_assert(image_preset(&s, preset, -1, why, sizeof why), "%s", why);
    s.size = SIDE;
    cr_assert(image_model(&s, 4, &a->f.cfg, why, sizeof why), "%s", why);
    free(s.preset);
    a->f.D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    a->f.P = tp_params_new(a->f.D, &(tp_params_opts){ .seed = 5, .dtype = TP_F64 });
    a->f.T = tp_tape_new(a->f.D, &(tp_tape_opts){ .compute = TP_F64 });
    a->f.m = calloc(1, sizeof *a->f.m);
    classifier_init(a->f.P, a->f.m, &a->f.cfg);
    tp_record(a->f.T, false);
    a->x = malloc((size_t)n * sizeof *a->x);
    values_random(noise, n, 7);
    for (int64_t i = 0; i < n; i++) a->x[i] = (float)noise[i];
    free(noise);
}

static void end(analysis *a)
{
    free(a->x);
    image_file_close(&a->f);
}

static tp_tensor pictures(analysis *a)
{
    tp_tape *T = a->f.T;
    tp_reset(T);
    return tp_cast(T, tp_from(T, TP_F32, TP_SHAPE(a->n, SIDE, SIDE, 3), a->x), TP_F64);
}

/* ---- similarity ---- */

/* Mean cosine of all pairs, pair by pair, of x [B,front+N,D] or [B,H,W,D]. */
static double plain_cosine(tp_tape *T, tp_tensor x, int64_t front)
{
    host_array h = { 0 };
    cr_assert(host_read(&h, T, x), "%s", tp_why(T));
    const int64_t D = tp_dim(x, -1), B = tp_dim(x, 0), N = h.numel / (B * D);
    double sum = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = front; i < N; i++)
            for (int64_t j = front; j < N; j++) {
                const double *p = h.v + (b * N + i) * D, *q = h.v + (b * N + j) * D;
                double pq = 0, pp = 0, qq = 0;
                for (int64_t c = 0; c < D; c++) {
                    pq += p[c] * q[c];
                    pp += p[c] * p[c];
                    qq += q[c] * q[c];
                }
                if (i != j) sum += pq / sqrt(pp * qq);
            }
    host_free(&h);
    const double pairs = (double)(N - front) * (double)(N - front - 1);
    return pairs > 0 ? sum / (pairs * (double)B) : 0;
}

/* The similarity after each block by the models' own parts, NAN where these do not show it. */
static int of_lsla(analysis *a, double *want)
{
    const tp_vit_lsla *m = &a->f.m->lsla;
    tp_tape *T = a->f.T;
    tp_tensor x = tp_lsla_stem_forward(T, &m->stem, pictures(a));
    int n = 0;
    for (int i = 0; i < m->cfg.stages; i++) {
        for (int j = 0; j < m->cfg.depths[i]; j++, n++) {
            x = tp_lsla_block_forward(T, &m->block[n], x);
            want[n] = plain_cosine(T, x, 0);
        }
        if (i + 1 < m->cfg.stages) x = tp_lsla_merge_forward(T, &m->merge[i], x);
    }
    return n;
}

static int of_vil(analysis *a, double *want)
{
    const tp_vil *m = &a->f.m->vil;
    tp_vil_out out[TP_VIL_MAX_STAGES];
    int n = 0;
    tp_vil_trunk(a->f.T, m, pictures(a), out);
    for (int i = 0; i < m->cfg.stages; i++) {
        for (int j = 0; j < m->cfg.stage[i].blocks; j++) want[n++] = NAN;
        want[n - 1] = plain_cosine(a->f.T, out[i].map, 0);
    }
    return n;
}

static int of_cvt(analysis *a, double *want)
{
    const tp_cvt *m = &a->f.m->cvt;
    tp_tape *T = a->f.T;
    tp_tensor map = pictures(a);
    int n = 0;
    for (int i = 0; i < TP_CVT_STAGES; i++) {
        map = tp_cvt_embed_forward(T, &m->embed[i], map);
        const tp_shape s = tp_shape_of(map);
        const int64_t B = s.dim[0], N = s.dim[1] * s.dim[2], D = s.dim[3];
        const int64_t front = i == TP_CVT_STAGES - 1;
        const tp_tensor grid = tp_full(T, TP_F32, TP_SHAPE(s.dim[1], s.dim[2], 0), 0.0);
        tp_tensor x = tp_reshape(T, map, TP_SHAPE(B, N, D));
        if (front) x = tp_concat(T, 1, tp_expand(T, m->cls_token, TP_SHAPE(B, 1, D)), x);
        for (int j = 0; j < m->cfg.blocks[i]; j++, n++) {
            x = tp_cvt_block_forward(T, &m->block[n], x, grid);
            want[n] = plain_cosine(T, x, front);
        }
        if (!front) map = tp_reshape(T, x, s);
    }
    return n;
}

static int of_convnet(analysis *a, double *want)
{
    const convnet *m = &a->f.m->convnet;
    tp_tape *T = a->f.T;
    tp_tensor x = pictures(a);
    for (int i = 0; i < CONVNET_LAYERS; i++) {
        x = tp_batchnorm_forward(T, &m->norm[i], tp_conv2d_forward(T, &m->conv[i], x));
        x = tp_relu(T, x);
        want[i] = plain_cosine(T, x, 0);
    }
    return CONVNET_LAYERS;
}

Test(analyze, similarity)
{
    static const struct {
        const char *preset;
        int (*plain)(analysis *a, double *want);
    } cases[] = {
        { "lsla-small", of_lsla },    { "vil-small", of_vil }, { "vil-ls-small", of_vil },
        { "vil-full-small", of_vil }, { "cvt-small", of_cvt }, { "cvt-ls-small", of_cvt },
        { "tiny", of_convnet },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static depth got;
        double want[DEPTH_MAX];
        analysis a;
        begin(&a, cases[i].preset);
        cr_assert(similarity_measure(&a, &got), "%s: %s", cases[i].preset, a.why);
        const int n = cases[i].plain(&a, want);
        cr_expect(tp_ok(a.f.T), "%s: %s", cases[i].preset, tp_why(a.f.T));
        cr_expect_eq(got.blocks, n, "%s: %d blocks", cases[i].preset, (int)got.blocks);
        for (int k = 0; k < n; k++)
            cr_expect(isnan(want[k]) || fabs(got.cosine[k] - want[k]) < 1e-9,
                      "%s, block %d: %.12g, not %.12g", cases[i].preset, k, got.cosine[k], want[k]);
        end(&a);
    }
}

Test(analyze, cosine_of_known_rows)
{
    static const struct {
        const char *name;
        double x[8], mean, length;
        int64_t n;
    } cases[] = {
        { "the same direction", { 1, 2, 2, 4, 3, 6 }, 1, 2 * 2.2360679774997896, 3 },
        { "opposite", { 3, 4, -3, -4 }, -1, 5, 2 },
        { "orthogonal", { 0, 2, 5, 0 }, 0, 3.5, 2 },
        { "one of zeros", { 0, 0, 1, 0, 1, 0 }, 1.0 / 3, 2.0 / 3, 3 },
        { "one row", { 3, 4 }, 0, 5, 1 },
    };
    double work[2];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double mean = mean_cosine(cases[i].x, cases[i].n, 2, work);
        const double length = mean_norm(cases[i].x, cases[i].n, 2);
        cr_expect(fabs(mean - cases[i].mean) < 1e-12, "%s: %g", cases[i].name, mean);
        cr_expect(fabs(length - cases[i].length) < 1e-12, "%s: %g", cases[i].name, length);
    }
}

/* ---- the program ---- */

static char said[20000];

static int run(const char *args)
{
    char command[1024];
    snprintf(command, sizeof command, "OMP_WAIT_POLICY=passive %s %s >said 2>&1", IMAGENET, args);
    const int status = system(command);
    FILE *f = fopen("said", "r");
    said[f ? fread(said, 1, sizeof said - 1, f) : 0] = '\0';
    if (f) fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void succeed(const char *args)
{
    const int status = run(args);
    cr_assert(status == 0, "imagenet %s: status %d\n%s", args, status, said);
}

/* Lines of a file below its first, which must be the names. */
static int lines_of(const char *name, const char *columns)
{
    char line[512] = "";
    int n = 0;
    FILE *f = fopen(name, "r");
    cr_assert(f && fgets(line, sizeof line, f), "%s", name);
    line[strcspn(line, "\n")] = '\0';
    cr_expect_str_eq(line, columns, "%s", name);
    while (fgets(line, sizeof line, f)) n++;
    fclose(f);
    return n;
}

static void expect_picture(const char *name, int64_t width, int64_t height)
{
    tp_image p = { 0 };
    cr_expect(tp_image_read(&p, name, &(tp_image_opts){ .strict = true }), "%s: %s", name, p.why);
    cr_expect(p.width == width && p.height == height, "%s: %d x %d", name, (int)p.width,
              (int)p.height);
    tp_image_free(&p);
}

static void begin_folder(void)
{
    make_folder();
    cr_assert(chdir(folder) == 0);
}

static void end_folder(void)
{
    cr_assert(chdir("/") == 0);
    remove_folder();
}

TestSuite(program, .init = begin_folder, .fini = end_folder, .timeout = 300);

#define SMALL "--threads 1 --shapes 20 --size 32 --batch 10 --epochs 1 "

Test(program, files)
{
    const bool gnuplot = system("command -v gnuplot >/dev/null") == 0;
    succeed("train " SMALL "--preset vil-ls-small --run-dir run");
    succeed("train " SMALL "--run-dir other");
    succeed("analyze other --run-dir run --pictures 5 --batch 2 --threads 1");
    cr_expect_eq(lines_of("run/analysis/similarity.tsv", "block\ttokens\tcosine"), 7);
    succeed("analyze --what resolution --preset tiny,convnet --sizes 8,16 --seconds 0.01 "
            "--batch 2 --threads 1 --out sizes");
    cr_expect_eq(lines_of("sizes/resolution.tsv", "preset\tsize\tbatch\tforward_ms\tforward_mb\t"
                                                  "step_ms\tstep_mb"),
                 4);
    if (gnuplot) {
        expect_picture("run/analysis/similarity.png", CURVES_WIDTH, CURVES_HEIGHT);
        expect_picture("sizes/resolution-forward.png", CURVES_WIDTH, CURVES_HEIGHT);
        expect_picture("sizes/resolution-step.png", CURVES_WIDTH, CURVES_HEIGHT);
        expect_picture("sizes/resolution-memory.png", CURVES_WIDTH, CURVES_HEIGHT);
    }
}

Test(program, refusals)
{
    static const struct {
        const char *args;
        int status;
        const char *message;
    } cases[] = {
        { "--run-dir gone", 1, "gone: there is no such run" },
        { "--what resolution --sizes 64,x --out o", 1, "--sizes: 'x' is no size from 8 to 4096" },
        { "--what resolution --preset none --out o", 1, "--preset: 'none' is none of tiny," },
        { "--what resolution --preset lsla-small --sizes 40 --out o", 1,
          "lsla-small at 40 pixels: " },
        { "--what nothing", 2, "--what: " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char args[256];
        snprintf(args, sizeof args, "analyze %s", cases[i].args);
        const int status = run(args);
        cr_expect_eq(status, cases[i].status, "%s: status %d", args, status);
        cr_expect(strstr(said, cases[i].message), "%s:\n%s", args, said);
    }
}
