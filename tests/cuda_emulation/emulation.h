/* emulation.h - settings of the emulated device, for tests. */
#ifndef EMULATION_H
#define EMULATION_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which a launch's blocks run, and a block's threads up to their next barrier. Results
 * that differ between orders reveal a missing barrier, or blocks that read other blocks'
 * results. */
typedef enum emulation_order { FORWARD, BACKWARD, SHUFFLED, EMULATION_ORDERS } emulation_order;

/* Programs started by a test read memory and fault_bytes from the environment: EMULATION_MEMORY and
 * EMULATION_FAULT_BYTES. */
typedef struct emulation_settings {
    emulation_order order;
    uint64_t seed;           /* seed of SHUFFLED                                  */
    cudaError_t open_error;  /* result of cudaGetDeviceCount                      */
    cudaError_t set_error;   /* result of cudaSetDevice                           */
    int gpus;                /* 1 or 2                                            */
    int driver;              /* driver version; 0: none installed                 */
    int major;               /* compute capability, major version                 */
    int processors;          /* few, so that grid-stride loops go round           */
    size_t memory;           /* bytes per device                                  */
    cudaError_t fault;       /* a kernel's fault, which every later call returns,
                             * as on a GPU, until a test clears it               */
    int refusals;            /* number of next cuBLASLt calls that fail        */
    cudaError_t end_error;   /* result of the next cudaStreamEndCapture,          */
    cudaError_t make_error;  /* of the next cudaGraphInstantiate,                 */
    cudaError_t start_error; /* and of the next cudaGraphLaunch                  */
    size_t fault_bytes;      /* > 0: fault when more memory is requested        */
    size_t pinned;           /* > 0: most bytes of pinned memory                  */
    int busy;                /* 1: cudaEventQuery lets no queued work run         */
    int counting;            /* count calls instead of executing them (counts.h)  */
} emulation_settings;

enum { EMULATION_GPUS = 2, EMULATION_STREAMS = 2 * EMULATION_GPUS };
extern emulation_settings emulation;

/* The number of threads started by all launches so far. */
uint64_t emulation_threads(void);
size_t emulation_pinned(void); /* bytes of pinned memory in use */

#ifdef __cplusplus
}
#endif
#endif
