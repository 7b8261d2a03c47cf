/* transport.h - the function of a transport plugin: libtapegrad_openmpi.so, libtapegrad_mpich.so.
 *
 * tp_peers_open (peers.h) loads the plugin for the launcher at hand. A site with another MPI
 * compiles the one file (train/peers/mpi/mpi.c, installed as share/tapegrad/mpi.c) with its own
 * compiler and puts the result beside the program or its libraries: libtapegrad_mpich.so where the
 * launcher sets PMI_SIZE, libtapegrad_openmpi.so where it sets OMPI_COMM_WORLD_SIZE or PMIX_RANK.
 *
 *     mpicc -O2 -fPIC -shared -pthread -I PREFIX/include mpi.c -o libtapegrad_mpich.so
 *
 * A program may also link the file and give the transport to tp_peers_new itself. */
#ifndef TAPEGRAD_TRANSPORT_H
#define TAPEGRAD_TRANSPORT_H

#include <tapegrad/peers.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the processes that were started together; initialises MPI unless the program has. All calls
 * of the transport must come from this thread. A thread of its own moves bytes while the program
 * computes; if the program has initialised MPI, only with MPI_THREAD_MULTIPLE. Every process has
 * one transport: call it once. NULL: failed, with a sentence in why. */
TP_API const tp_transport *tp_transport_open(char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
