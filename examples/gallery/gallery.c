/* gallery.c - flags, the check of the result, and pictures of grey images for the gallery. */
#include "gallery.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/image.h>
#include <tapegrad/train.h>

typedef struct settings {
    tp_machine_settings machine;
    int64_t steps, seed;
    char *picture;
    const gallery_program *program;
} settings;

static const tp_option flags[] = {
    TP_HEADING("RUN"),
    TP_INT("steps", settings, steps, 1, 1000000, 0,
           "Training steps. The result is checked only after the usual number or more."),
    TP_INT("seed", settings, seed, 0, 1000000000, 0,
           "Determines data, initial weights and noise, and so all of the output."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_option flags_and_picture[] = {
    TP_ROWS(flags),
    TP_HEADING("OUTPUT"),
    TP_STRING("picture", settings, picture, "FILE.png", 0, "Where the picture is written."),
    { 0 },
};

/* ---- a run ---- */

static bool possible(const void *options, char *why, size_t size)
{
    const settings *s = options;
    if (s->machine.dtype != TP_F64) return true;
    snprintf(why, size, "--dtype f64 is not possible: the data are f32; use f32 or bf16");
    return false;
}

void gallery_fail(const gallery *g, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!g->why[0]) vsnprintf(g->why, g->size, fmt, ap);
    va_end(ap);
}

static void on_error(void *env, tp_code code, const char *text)
{
    (void)code;
    gallery_fail(env, "%s", text);
}

/* Prints the result and compares it with the goal. */
static void judge(const gallery *g, const gallery_program *p, double result)
{
    const bool reached = p->higher ? result >= p->goal : result <= p->goal; /* NaN: false */
    printf("%s: %.4g%s\n", p->result, result, p->unit);
    if (reached || g->steps < p->steps) return;
    gallery_fail(g, "%s: %.4g%s after %lld steps, but %s %g%s was expected", p->result, result,
                 p->unit, (long long)g->steps, p->higher ? "at least" : "at most", p->goal,
                 p->unit);
}

static bool run(void *options, char *why, size_t size)
{
    const settings *s = options;
    gallery g = { .seed = (uint64_t)s->seed,
                  .training = { .seed = (uint64_t)s->seed,
                                .compute = (tp_dtype)s->machine.dtype,
                                .train = true },
                  .steps = s->steps,
                  .picture = s->picture,
                  .why = why,
                  .size = size };
    g.D =
        tp_device_open(s->machine.device, &(tp_device_opts){ .threads = (int)s->machine.threads });
    tp_device_on_error(g.D, on_error, &g);
    setvbuf(stdout, NULL, _IOLBF, 0); /* progress appears in pipes, too */
    const double result = why[0] ? 0.0 : s->program->run(&g);
    if (!why[0]) judge(&g, s->program, result);
    tp_device_close(g.D);
    return !why[0];
}

int gallery_main(const gallery_program *p, int argc, char **argv)
{
    settings s = { .machine = { .device = strdup("cpu") },
                   .steps = p->steps,
                   .seed = 1,
                   .picture = p->picture ? strdup(p->picture) : NULL,
                   .program = p };
    const tp_command command = { .name = p->name,
                                 .summary = p->summary,
                                 .about = p->about,
                                 .table = p->picture ? flags_and_picture : flags,
                                 .check = possible };
    return tp_command_main(&command, argc - 1, argv + 1, &s, run);
}

bool gallery_reports(const gallery *g, int64_t step)
{
    const int64_t tenth = (g->steps + 9) / 10;
    if ((step + 1) % tenth != 0 && step + 1 != g->steps) return false;
    printf("%6lld  ", (long long)step + 1);
    return true;
}

/* ---- pictures ---- */

enum { GAP = 4, SIDE = 64 }; /* pixels between images; the least height of an image */

static void paint(tp_image *p, int64_t row, int64_t col, int64_t zoom, float v)
{
    const uint8_t grey = (uint8_t)(255.0f * (v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v) + 0.5f);
    for (int64_t i = row; i < row + zoom; i++)
        memset(p->rgb + (i * p->width + col) * 3, grey, (size_t)zoom * 3);
}

void gallery_images(const gallery *g, int down, int across, int64_t height, int64_t width,
                    const float *v)
{
    const int64_t zoom = height < SIDE ? (SIDE + height - 1) / height : 1;
    const int64_t step_y = height * zoom + GAP, step_x = width * zoom + GAP;
    tp_image p = { 0 };
    if (g->why[0]) return;
    if (tp_image_new(&p, across * step_x + GAP, down * step_y + GAP)) {
        memset(p.rgb, 128, (size_t)(p.width * p.height) * 3);
        for (int64_t i = 0; i < down * across * height * width; i++) {
            const int64_t pixel = i % (height * width), image = i / (height * width);
            paint(&p, GAP + image / across * step_y + pixel / width * zoom,
                  GAP + image % across * step_x + pixel % width * zoom, zoom, v[i]);
        }
        if (tp_image_write(&p, g->picture)) printf("picture: %s\n", g->picture);
    }
    if (p.why[0]) gallery_fail(g, "%s", p.why);
    tp_image_free(&p);
}
