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
 * barrier. A result that differs between orders reveals a missing barrier, or blocks that read
 * other blocks' results. */
typedef enum emulation_order { FORWARD, BACKWARD, SHUFFLED, EMULATION_ORDERS } emulation_order;

typedef struct emulation_settings {
    emulation_order order;
    uint64_t seed;          /* seed of SHUFFLED                                  */
    cudaError_t open_error; /* result of cudaGetDeviceCount                      */
    cudaError_t set_error;  /* result of cudaSetDevice                           */
    int gpus;               /* 1 or 2                                            */
    int driver;             /* driver version; 0: none installed                 */
    int major;              /* compute capability, major version                 */
    size_t memory;          /* bytes per device                                  */
    cudaError_t fault;      /* a kernel's fault, which every later call returns,
                             * as on a GPU, until a test clears it               */
    int refusals;           /* number of next calls of cuBLASLt that fail        */
} emulation_settings;

enum { EMULATION_GPUS = 2 };
extern emulation_settings emulation;

/* The number of threads started by all launches so far. */
uint64_t emulation_threads(void);

#ifdef __cplusplus
}
#endif
#endif
