/* thread_transport.h - a transport between threads of one process, for tests of several ranks. */
#ifndef TP_THREAD_TRANSPORT_H
#define TP_THREAD_TRANSPORT_H

#include <tapegrad/peers.h>

enum { THREAD_RANKS = 8 };

/* Runs body(env, G) in `ranks` threads, each with its own G; returns when all have ended. */
void run_ranks(int ranks, void (*body)(void *env, tp_peers *G), void *env);
/* The same with options for tp_peers_new. */
void run_ranks_with(int ranks, const tp_peers_opts *o, void (*body)(void *env, tp_peers *G),
                    void *env);

#endif
