/* adaptations.h - low-rank adaptation (tapegrad/lora.h) in any training program. */
#ifndef REPORTS_ADAPTATIONS_H
#define REPORTS_ADAPTATIONS_H

#include <tapegrad/lora.h>
#include <tapegrad/train.h>

typedef struct adaptation {
    int64_t rank; /* 0: none */
    double alpha, dropout;
    char *modules;
} adaptation;

/* Option rows for settings S with an adaptation member `at`. */
#define OPTIONS_ADAPTATION(S, at, tag)                                                             \
    TP_INT("lora", S, at.rank, 0, 65536, tag,                                                      \
           "Train low-rank adaptations of this rank in place of the weights (--init), which stay " \
           "as they are; adapter.safetensors in the run folder holds the best ones. 0: train the " \
           "weights."),                                                                            \
        TP_NUM("lora-alpha", S, at.alpha, 0, 1e6, tag,                                             \
               "The adaptations are multiplied by this over their rank; 0: by 1."),                \
        TP_NUM("lora-dropout", S, at.dropout, 0, 0.99, tag, "Dropout before the adaptations."),    \
        TP_STRING("lora-modules", S, at.modules, "NAME,...", tag,                                  \
                  "The linear modules that are adapted, by the last parts of their paths, in "     \
                  "which * stands for any characters: q_proj,v_proj. Not given: all.")

/* Adapts what is declared in P from now on, unless the rank is 0. train: names of parameters that
 * are trained, too; may be NULL. */
void adaptation_begin(tp_params *P, const adaptation *a, const char *train);
/* The same as a checkpoint says, for a command that runs it. */
bool adaptation_read(tp_params *P, const tp_file *F, char *why, size_t size);
/* Has the file adaptations? */
bool adaptation_in(const tp_file *F);
/* Can training with these settings begin at F? If F has adaptations, rank and alpha must be theirs.
 * merge: the command that adds them to the weights, for the sentence in why if not. */
bool adaptation_fits(const adaptation *a, const tp_file *F, const char *merge, char *why,
                     size_t size);
/* What adaptation_read reads. */
void adaptation_write(const adaptation *a, const char *train, tp_writer *W);

/* "1234 of 567890 parameters are trained". */
void adaptation_say(tp_run *R, const adaptation *a);

/* Writes adapter.safetensors in the run folder, for tp_training.best. */
void adaptation_save(tp_run *R, const adaptation *a);

#endif
