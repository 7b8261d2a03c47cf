/* emulation.h - what tests may choose about the emulated device. */
#ifndef EMULATION_H
#define EMULATION_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In which order the threads of a block run up to their next barrier. A result that differs
 * between orders tells of a missing barrier. */
typedef enum emulation_order { FORWARD, BACKWARD, SHUFFLED, EMULATION_ORDERS } emulation_order;

typedef struct emulation_settings {
    emulation_order order;
    uint64_t seed;          /* of SHUFFLED                                       */
    cudaError_t open_error; /* what counting the devices says; 0: there is one   */
    cudaError_t set_error;  /* what choosing the device says                     */
    int driver;             /* version, 0: none installed                        */
    int major;              /* compute capability                                */
    size_t memory;          /* of the device                                     */
    cudaError_t async;      /* reported by the next call that waits, then reset  */
} emulation_settings;

extern emulation_settings emulation;

/* Threads started and fibers switched so far. */
uint64_t emulation_threads(void);

#ifdef __cplusplus
}
#endif
#endif
