/* ops.h - every op: what it computes, the shapes, and a prototype, in the files of ops/.
 *
 * Letters: B batch, N tokens (queries), S tokens attended to, C channels, H heads, D head size, l
 * chunk length, r rank. "..." stands for any leading axes. Every op checks its arguments before it
 * allocates anything; a failed op returns a failed tensor, and the tape keeps the text. No op
 * synchronises. Results belong to the tape. Every op has a gradient unless its comment says
 * otherwise. Negative axes count from the end. Integer tensors are TP_I32 or TP_I64, masks TP_U8 (1
 * = true). Configurations (tp_..._cfg) are passed by value; { 0 } is the default except for sizes.
 *
 * The floating inputs of an op have one dtype. On a tape with compute = TP_BF16, f32 and bf16 may
 * be mixed: products cast theirs to bf16, the others to the widest dtype of their tensors. Sums and
 * losses are f32 for bf16. docs/guide/mixed-precision.md says what each op gives. */
#ifndef TAPEGRAD_OPS_H
#define TAPEGRAD_OPS_H

#include <tapegrad/ops/along.h>
#include <tapegrad/ops/attention.h>
#include <tapegrad/ops/categorical.h>
#include <tapegrad/ops/create.h>
#include <tapegrad/ops/elementwise.h>
#include <tapegrad/ops/layers.h>
#include <tapegrad/ops/loss.h>
#include <tapegrad/ops/packed.h>
#include <tapegrad/ops/reduce.h>
#include <tapegrad/ops/sequence.h>
#include <tapegrad/ops/shape.h>

#endif
