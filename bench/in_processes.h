/* in_processes.h - work that goes on after the loss of its process or of a GPU.
 *
 * After a kernel's error a process cannot use the GPU any more, and a kernel that does not end holds its process up. So
 * the work runs in a child process, and what is left of it in another one. */
#ifndef IN_PROCESSES_H
#define IN_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>

/* Memory that child processes share with this one, cleared; NULL: none is left. */
void *shared_memory(size_t bytes);

/* Calls work(env) in a child process, and again in a new one as long as it returns false or its process ends early. In
 * the latter case lost(env, how) is called in this process before, and tells whether there is work left. env is
 * shared memory. False: no process could be started. */
bool in_processes(bool (*work)(void *env), bool (*lost)(void *env, const char *how), void *env);

#endif
