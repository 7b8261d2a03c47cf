/* ops/packed.h - documents of different lengths one after another, without padding. See ops.h.
 *
 * Packed data is [M,...]: the rows of n documents in turn. A tp_packed says where they are.
 * Documents may be empty. The results are those of documents padded to `longest` and masked, whose
 * padding is left out; the masks of dropout are the same, too. Linear layers, norms and everything
 * else that works row by row need no special op.
 *
 * Offsets stay on the device and no op waits for them. On the CPU, invalid offsets are errors. On a
 * GPU they are brought into range, so that no access leaves the tensors, and results are
 * meaningless. */
#ifndef TAPEGRAD_OPS_PACKED_H
#define TAPEGRAD_OPS_PACKED_H

#include <tapegrad/ops/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_packed {
    /* integer [n+1]: document b has rows offset[b] to offset[b+1] - 1; from 0 to M */
    tp_tensor offset;
    int64_t longest; /* rows of the longest document, or more: no document is longer */
} tp_packed;

/* tp_attention within each document: the rows of document b in q [Mq,H*D] (of_q) see its rows in k
 * and v [Mk,G*D] (of_k) -> [Mq,H*D]. Causal: query i of a document sees its keys j <= i + S - N, S
 * and N being the document's numbers of keys and queries. Other documents have no influence.
 * cfg.keys must be 0. Saves inputs, output and log-sum-exp; nothing has the size of padded
 * documents. (As with the cumulative lengths of FlashAttention, Dao 2023.) */
TP_API tp_tensor tp_packed_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v,
                                     tp_packed of_q, tp_packed of_k, tp_attn_cfg cfg);

/* tp_chunk_project_kv of whole documents: k, v [M,H*D], scores [M,H*rank] -> [n,rank,H*D], zeros
 * for empty documents. */
TP_API tp_kv tp_packed_project_kv(tp_tape *T, tp_tensor k, tp_tensor v, tp_tensor scores,
                                  tp_packed of, int heads, int rank);

/* The sum of each document's rows: x [M,...] -> [n,...], zeros for empty documents. */
TP_API tp_tensor tp_packed_sum(tp_tape *T, tp_tensor x, tp_packed of);

/* Puts row b of first [n,...] before the rows of document b in x [M,...] -> [n+M,...]. *longer,
 * unless NULL, receives the places of the longer documents. */
TP_API tp_tensor tp_packed_prepend(tp_tape *T, tp_tensor first, tp_tensor x, tp_packed of,
                                   tp_packed *longer);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/packed.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
