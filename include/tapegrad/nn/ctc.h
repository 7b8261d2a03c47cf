/* nn/ctc.h - reading out what a network trained with tp_ctc has recognised. See nn.h, which
 * includes this. */
#ifndef TAPEGRAD_NN_CTC_H
#define TAPEGRAD_NN_CTC_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* beams 0 or 1: the most probable symbol of each row, without repetitions and blanks (greedy). That
 * is the most probable alignment, not the most probable text.
 *
 * beams > 1: prefix beam search (Hannun et al. 2014, without a language model). A text's
 * probability is the sum over its alignments. Two prunings bound the work, and may miss the best
 * text: after each row the `beams` most probable prefixes are kept, and a row extends them by its
 * `symbols` most probable labels only (0: all of them), besides the blank and a repetition of the
 * last label. Ties go to the lower symbol and to the prefix that was found first. */
typedef struct tp_ctc_decode_cfg {
    int64_t blank;
    int64_t beams, symbols;
} tp_ctc_decode_cfg;

/* The labels of B rows of log-probabilities x [B,N,V] (of tp_log_softmax; any float dtype).
 * x_lengths: integer [B], rows that count, or TP_NONE: all N. labels [B*N] gets those of text b
 * from b * N on, lengths [B] how many there are. score [B], if not NULL, gets the logarithm of the
 * probability: of the alignment if greedy, else of the text, as far as it was not pruned. Computes
 * on the host, with memory for N * beams prefixes. Synchronises. False with T failed: wrong shapes,
 * NaN or infinity in a row that counts, or memory; minus infinity is a probability of 0. */
TP_API bool tp_ctc_decode(tp_tape *T, tp_tensor x, tp_tensor x_lengths, tp_ctc_decode_cfg cfg,
                          int32_t *labels, int64_t *lengths, double *score);

#ifndef TP_NO_SITE
#include <tapegrad/sites/nn/ctc.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
