/* mpi.h - starts programs in several processes with the launchers of both MPIs. */
#ifndef TP_SUPPORT_MPI_H
#define TP_SUPPORT_MPI_H

#include <stdbool.h>

typedef enum mpi_kind { OPEN_MPI, MPICH, MPI_KINDS } mpi_kind;

const char *mpi_name(mpi_kind k);

/* Are its launcher installed and its plugin built? */
bool has_mpi(mpi_kind k);

/* The command that starts a program in `ranks` processes: a prefix for run_under. */
const char *mpi_command(mpi_kind k, int ranks);

#endif
