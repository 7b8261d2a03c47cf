/* peers.h - several processes train one model: how they talk, and the exchange of gradients.
 *
 * A program that uses the engine (train.h) needs none of this: it runs under mpirun as it is. A
 * loop of its own becomes one of several processes like this:
 *
 *     tp_peers *G = tp_peers_open(NULL);               NULL: started alone
 *     tp_exchange *X = tp_exchange_new(P, G, NULL);    before the optimiser
 *     for (...) {
 *         ... the loss of this process's rows, divided by tp_peers_count(G) ...
 *         tp_exchange_begin(X);
 *         tp_backward(T, loss);
 *         if (!tp_exchange_finish(X)) ...              gradients are sums over the processes
 *         tp_clip_grad_norm(P, 1.0);
 *         tp_step(O, lr);
 *     }
 *
 * All processes call these functions in the same order, each from one thread. Sums are made in the
 * order of the ranks, so equal inputs give equal bits in every run with as many processes. */
#ifndef TAPEGRAD_PEERS_H
#define TAPEGRAD_PEERS_H

#include <tapegrad/params.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- transports ---- */

/* Moves bytes between processes. libtapegrad_openmpi.so and libtapegrad_mpich.so, compiled from
 * train/peers/mpi/mpi.c, are transports; another one is a constant of this type. */
typedef struct tp_transport {
    const char *name; /* "Open MPI 4.1.4" */
    const char *host; /* the name of this process's host */
    int rank, ranks;
    int local_rank, local_ranks; /* among the processes of this host */
    void *env;
    /* Begin a message of n bytes, whose memory must stay until it is done. Messages of the same tag
     * (0 to 16383) between two processes arrive in order. NULL: failed. */
    void *(*send)(void *env, int to, int tag, const void *data, size_t n);
    void *(*receive)(void *env, int from, int tag, void *data, size_t n);
    /* 1: the message is done, and the request is gone; 0: not yet; 2: not yet, but a part of it has
     * been moved since the last call; -1: failed. Makes progress on all messages. A transport that
     * never returns 2 needs a timeout longer than the longest message. */
    int (*test)(void *env, void *request);
    const char *(*why)(void *env); /* a message failed; may be NULL */
    /* Not called after an error, when MPI could wait for ever; may be NULL. */
    void (*close)(void *env);
} tp_transport;

/* ---- the processes of a run ---- */

typedef struct tp_peers tp_peers;

typedef struct tp_peers_opts {
    /* The most seconds without a byte from a process that is waited for. 0: 30. MPI itself notices
     * neither a hang nor a cut cable. */
    double timeout;
    /* Called when that time is over, on a thread of its own while the waiting one still hangs, with
     * a sentence that names rank and host; should end the process. NULL: waiting has no limit. */
    void (*lost)(void *env, const char *why);
    void *env;
    bool keep_binding; /* tp_peers_open leaves this process on the cores that it was started on */
} tp_peers_opts;

/* The processes that an MPI launcher (mpirun, mpiexec, srun) started together with this one: finds
 * the launcher in the environment and loads the transport for it. NULL if this process was started
 * alone. Otherwise never NULL; see tp_peers_ok. o may be NULL. Call it once, before threads start.
 *
 * The processes of a host divide its cores, as far as the launcher itself may use them: each runs
 * on its own stretch, at most on its part of the CPU quota, and devices opened later have as many
 * threads. So one process a host has all cores, though Open MPI binds it to one. A process that was
 * bound on purpose stays where it is: by `mpirun --bind-to`, by srun, by taskset below the
 * launcher.
 *
 * tp_peers_new: the same over a transport of your own, which it closes; cores stay as they are.
 * Both wait for all processes, which tell each other their hosts. */
TP_API tp_peers *tp_peers_open(const tp_peers_opts *o);
TP_API tp_peers *tp_peers_new(const tp_transport *t, const tp_peers_opts *o);
/* Did a launcher start several processes, of which this is number *rank? Loads nothing: for
 * programs that work alone. rank may be NULL. */
TP_API bool tp_peers_launched(int *rank);
/* MPI waits for the other processes to close, too, but not after an error. */
TP_API void tp_peers_close(tp_peers *G);

/* Errors are sticky: after a failed message every call fails at once. */
TP_API bool tp_peers_ok(const tp_peers *G);
TP_API const char *tp_peers_why(const tp_peers *G);

TP_API int tp_peers_rank(const tp_peers *G);  /* NULL: 0 */
TP_API int tp_peers_count(const tp_peers *G); /* NULL: 1 */
TP_API const tp_transport *tp_peers_transport(const tp_peers *G);
/* The name of that rank's host, of 63 bytes at most; "" if it is not known. */
TP_API const char *tp_peers_host(const tp_peers *G, int rank);

/* ---- small exchanges; each waits for all processes ---- */

/* all[rank] = the n bytes `mine` of every process. */
TP_API TP_CHECKED bool tp_peers_gather(tp_peers *G, const void *mine, size_t n, void *all);
/* Replaces x by the sums over the processes, in the order of their ranks. */
TP_API TP_CHECKED bool tp_peers_sum(tp_peers *G, double *x, int n);
/* True in all processes if true in any, and after an error. */
TP_API bool tp_peers_any(tp_peers *G, bool here);
/* Copies rank 0's bytes to all. */
TP_API TP_CHECKED bool tp_peers_broadcast(tp_peers *G, void *data, size_t n);

/* One message between two processes; the others take no part. */
TP_API TP_CHECKED bool tp_peers_send(tp_peers *G, int to, const void *data, size_t n);
TP_API TP_CHECKED bool tp_peers_receive(tp_peers *G, int from, void *data, size_t n);

/* Names what the processes do now, for the sentence of `lost` ("update 120"). times: a multiple of
 * the time limit, for work of very different length on each process; usually 1. */
TP_API void tp_peers_during(tp_peers *G, const char *what, double times);
/* Replaces the timeout of the options, also in what the processes do now. */
TP_API void tp_peers_set_timeout(tp_peers *G, double timeout);

/* ---- batch norms ---- */

/* From now on batch norms in training on D normalise with the statistics of all processes' rows, as
 * one process with the whole batch would; G NULL: with this one's again. Each then waits for the
 * others twice, forward and backward, and in a recomputation once more; recorded steps
 * (tp_capture) refuse them. All processes run the same ones in the same order. D must not outlive
 * G. */
TP_API void tp_peers_batch_norm(tp_peers *G, tp_device *D);

/* ---- one file of all processes ---- */

/* tp_writer_commit by all processes together, each with the same tensors in its W: rank 0 writes
 * the file. Tensors whose names begin with `rows` (NULL: none) hold rows of the batch: they are
 * joined along their first axis in the order of the ranks; of the others rank 0's are written.
 * Moments that an exchange has divided are collected, through one bounded buffer. If rank 0 cannot
 * write, the others still send, so that none waits. If any fails, all return false; those without a
 * reason of their own have TP_E_STATE as the writer's code. tp_file_share reads rows. */
TP_API TP_CHECKED bool tp_peers_commit(tp_peers *G, tp_writer *W, const char *rows);

/* ---- gradients ---- */

/* Sums gradients over the processes. They travel in buckets, which leave during backward as soon as
 * all gradients in them are final, from the second update on. A process that did not reach a
 * parameter adds zeros; one that no process reached keeps no gradient. In all processes the same
 * parameters are frozen; buckets of nothing else are not sent. The bits of the sums depend on the
 * number of processes, not on the options, but for bf16.
 *
 * Gradients on GPUs travel by NCCL 2.18 or later (libnccl.so.2, found at run time) where every
 * process finds the same version and has a GPU of its own, and bf16 is not asked for; else through
 * host memory. NCCL sums where the gradients are, in an order of its own, which only repeats with
 * the same GPUs, their connections, and version. It serves one exchange of a device. */
typedef struct tp_exchange tp_exchange;

typedef struct tp_exchange_opts {
    size_t bucket; /* bytes; 0: 1 MiB on the CPU, 4 MiB on a GPU */
    /* Gradients travel as bf16 with error feedback: what rounding takes from a gradient is added to
     * the next one. Sums travel as f32, so 3/4 of the bytes; 4 more a parameter in memory. Which
     * parts of a gradient are rounded depends on the size of buckets. What was to be added is not
     * saved: a resumed run begins with none. Only if parameters are f32. */
    bool bf16;
    /* The optimiser's moments are divided among the processes (ZeRO-1): each sums and steps its own
     * part, and tp_step, in which all must take part, gathers the values. Fewer bytes in memory, as
     * many on the wire; same bits as without. After finish a process has the sums of its own part
     * only, which clipping knows, and the rest of what tp_param_get_grad copies means nothing. Only
     * optimisers created later on P can step; the parts of kinds that need norms of a parameter
     * (lamb, adafactor, muon) are whole parameters, so create them before the first update.
     * Averages (tp_ema_new) are not divided. Files (tp_optim_write, tp_peers_commit) are the same
     * as without, so any number of processes, dividing or not, can read them. */
    bool shard;
    bool after; /* buckets leave only after backward: no overlap */
} tp_exchange_opts;

/* P must have all its parameters. Never NULL; o may be NULL. P has one exchange at a time, which
 * must be freed before P and before G. Up to 8 buckets are in flight, as many as fit into 16 times
 * `bucket` of host memory, at least one. */
TP_API tp_exchange *tp_exchange_new(tp_params *P, tp_peers *G, const tp_exchange_opts *o);
TP_API void tp_exchange_free(tp_exchange *X);
TP_API bool tp_exchange_ok(const tp_exchange *X);
TP_API const char *tp_exchange_why(const tp_exchange *X);

/* The next backward is the last one before the step: its gradients are sent as they become final,
 * and until finish they mean nothing. Call tp_freeze before begin. finish sends the rest and waits;
 * without begin, it sends all. All processes must call finish, also one whose backward failed, so
 * that none waits for it in vain: finish is then false everywhere, and tp_step refuses these
 * gradients until tp_grad_clear. A step that tp_capture launches sends all in finish. */
TP_API void tp_exchange_begin(tp_exchange *X);
TP_API TP_CHECKED bool tp_exchange_finish(tp_exchange *X);

/* Since the exchange was created: bytes sent by this process, seconds of finish (exposed), seconds
 * spent on exchanging during backward (packing, summing, polling), and updates. */
typedef struct tp_exchange_stats {
    double bytes, exposed, hidden;
    int64_t updates;
    size_t memory; /* bytes of buffers */
    /* How gradients travel: "NCCL 2.27.3" (then `bytes` counts what it was given), "messages", or
     * with the reason, "messages: libnccl.so.2 was not found...". "" before the first update. Valid
     * until X is freed. */
    const char *path;
} tp_exchange_stats;
TP_API tp_exchange_stats tp_exchange_stats_of(const tp_exchange *X);

#ifdef __cplusplus
}
#endif
#endif
