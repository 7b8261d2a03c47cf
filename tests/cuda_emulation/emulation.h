/* emulation.h - settings of the emulated device, for tests. */
#ifndef EMULATION_H
#define EMULATION_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which the blocks of a launch run, and the threads of a block up to their next
 * barrier. A result that differs between orders reveals a missing barrier, or blocks that read what
 * others write. */
typedef enum emulation_order { FORWARD, BACKWARD, SHUFFLED, EMULATION_ORDERS } emulation_order;

typedef struct emulation_settings {
    emulation_order order;
    uint64_t seed;          /* of SHUFFLED                                       */
    cudaError_t open_error; /* what counting the devices says; 0: there is one   */
    cudaError_t set_error;  /* what choosing the device says                     */
    int gpus;               /* 1 or 2                                            */
    int driver;             /* version, 0: none installed                        */
    int major;              /* compute capability                                */
    size_t memory;          /* of each device                                    */
    cudaError_t fault;      /* of a kernel: what every later call says, as of a GPU,
                             * until a test takes it back                        */
    int refusals;           /* calls of cuBLASLt that fail from now on           */
} emulation_settings;

enum { EMULATION_GPUS = 2 };
extern emulation_settings emulation;

/* Threads that all launches so far have started. */
uint64_t emulation_threads(void);

#ifdef __cplusplus
}
#endif
#endif
