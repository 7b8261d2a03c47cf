/* norms_report.h - what the commands `norms` of several programs share: settings and results. */
#ifndef NORMS_REPORT_H
#define NORMS_REPORT_H

#include <tapegrad/model.h>
#include <tapegrad/options.h>

#include "norms.h"

typedef struct norms_settings {
    bool fresh;
    char *picture; /* NULL: none */
    int format;    /* 0: text, 1: JSON lines */
} norms_settings;

/* Option rows for settings S with a norms_settings member `at`. */
#define OPTION_NORMS_FRESH(S, at)                                                                  \
    TP_FLAG("fresh", S, at.fresh, 0,                                                               \
            "Use the model of --preset with its initial weights instead of a run.")
#define OPTIONS_NORMS_RESULTS(S, at)                                                               \
    TP_HEADING("RESULTS"),                                                                         \
        TP_STRING("picture", S, at.picture, "FILE", 0,                                             \
                  "Draw the ratios by layer as FILE.png or FILE.svg."),                            \
        TP_CHOICE("format", S, at.format, "table|json", 0,                                         \
                  "Text for people, or a JSON object for each layer without and with DualLN.")

/* The paragraph of their manuals that says what is measured. */
#define NORMS_ABOUT                                                                                \
    "Long-short attention puts keys of a window and keys of the dynamic projection, which are "    \
    "averages, into one softmax. The command prints the mean norm of both and their ratio by "     \
    "layer, and the same for values: without DualLN, which is before its norms, and with it, "     \
    "which is what the attention reads (Figure 2 of the Transformer-LS paper). A model without "   \
    "DualLN has only the former."

/* Observes a model of documents on `batch` samples of random ids, without padding. */
bool norms_of_noise(norms *s, tp_tape *T, const tp_net *N, int64_t batch, uint64_t seed);

/* Ends the observation, prints and draws. model and inputs describe what was measured in the
 * picture. False with the reason in why, also if no layer has long-short attention. */
bool norms_report(norms *s, const norms_settings *o, const char *model, const char *inputs,
                  char *why, size_t size);

#endif
