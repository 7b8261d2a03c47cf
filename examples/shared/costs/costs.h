/* costs.h - time and memory of a step by its size: measured, printed and drawn.
 *
 * Memory is counted on a dry device, exactly and also where a step would take too long. */
#ifndef COSTS_H
#define COSTS_H

#include <jansson.h>
#include <tapegrad/options.h>
#include <tapegrad/tapegrad.h>
#include <tapegrad/train.h>

/* ---- settings of a command that measures ---- */

typedef struct cost_settings {
    double seconds, limit;
    int cpu_time;  /* 1: CPU time instead of elapsed time */
    bool dry;      /* only memory */
    bool forward;  /* forward passes in evaluation instead of training steps */
    char *picture; /* NULL: none */
    int format;    /* 0: text, 1: JSON lines */
} cost_settings;

#define COST_DEFAULTS                                                                              \
    {                                                                                              \
        .seconds = 2, .limit = 20                                                                  \
    }

/* Option rows for settings S with a cost_settings member `at`. */
#define OPTIONS_COSTS(S, at)                                                                       \
    TP_HEADING("MEASURING"),                                                                       \
        TP_NUM("seconds", S, at.seconds, 0.001, 3600, 0,                                           \
               "Time of measuring one size, after the first steps."),                              \
        TP_NUM("limit", S, at.limit, 0, TP_BIG, 0,                                                 \
               "A step that is expected to take more seconds than that is not timed."),            \
        TP_CHOICE("clock", S, at.cpu_time, "wall|cpu", 0,                                          \
                  "Elapsed time, or CPU time, which other load on the machine affects less; with " \
                  "--threads 1."),                                                                 \
        TP_FLAG("dry", S, at.dry, 0, "Only count the memory, which takes milliseconds."),          \
        TP_FLAG("forward", S, at.forward, 0,                                                       \
                "Forward passes in evaluation instead of training steps."),                        \
        TP_HEADING("RESULTS"),                                                                     \
        TP_STRING("picture", S, at.picture, "FILE", 0,                                             \
                  "Draw time and memory as FILE.png or FILE.svg."),                                \
        TP_CHOICE("format", S, at.format, "table|json", 0,                                         \
                  "Text for people, or a JSON object for each measurement.")

/* ---- measuring ---- */

/* What steps run with. */
typedef struct cost_world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;  /* reset before each step */
    tp_optim *O; /* made by build; NULL: steps do not update */
} cost_world;

/* A step that is repeated. */
typedef struct cost_step {
    void *of; /* the program's */
    /* Declares the model and its optimiser, and makes its inputs. False with the reason in why. */
    bool (*build)(void *of, cost_world *w, char *why, size_t size);
    /* The forward pass: returns the loss, from which backward and update follow. Errors stay in
     * w. */
    tp_tensor (*take)(void *of, cost_world *w);
    void (*drop)(void *of, cost_world *w); /* follows build in any case; w is still open */
    int warm; /* steps that are not timed; after these and one more, memory has had its peak */
} cost_step;

enum { COST_SERIES = 24, COST_SIZES = 32 };

/* Measurements, usually by ascending size: the time of each bounds that of the next. */
typedef struct cost_series {
    char name[80]; /* in pictures */
    int line;      /* of PICTURE_STYLE; 0: by its position */
    int power;     /* of the size that bounds the growth of time; 0: 2 */
    int n;
    double x[COST_SIZES], bytes[COST_SIZES];
    double ms[COST_SIZES]; /* the median step's; NAN: not timed */
} cost_series;

/* Adds the memory of a step of size x and, unless it is dry, expected to exceed the limit, or too
 * large for the memory, its time. False with the reason in why. After a signal nothing is added. */
bool cost_measure(cost_series *s, double x, const cost_step *step, const tp_machine_settings *m,
                  const cost_settings *o, char *why, size_t size);

/* ---- results ---- */

/* Prints the last measurement: time and memory behind `left`, or a JSON line with both added to
 * key, which is released. False with the reason in why. */
void cost_print_heading(const cost_settings *o, const char *left);
bool cost_print(const cost_series *s, const cost_settings *o, const char *left, json_t *key,
                char *why, size_t size);

typedef struct cost_picture {
    const char *by;     /* "the length of documents" */
    const char *note;   /* what was measured; the axes are explained after it */
    const char *across; /* the size: "tokens" */
} cost_picture;

/* Draws time and memory, or only memory, over the size, to o->picture. False with the reason in
 * why. */
bool cost_draw(const cost_series *s, int n, const cost_settings *o, cost_picture p, char *why,
               size_t size);

#endif
