/* amx.h - devices that multiply by the tiles of AMX, also on processors without them.
 *
 * There the instructions are illegal. A handler of SIGILL decodes those of the library's own
 * machine code and calls the functions below, which stand for them, so that what is tested is the
 * code that runs on a processor with AMX. It costs some microseconds an instruction. */
#ifndef SUPPORT_AMX_H
#define SUPPORT_AMX_H

#include <stdbool.h>
#include <stdint.h>
#include <tapegrad/device.h>

/* As tp_isa_runs and tp_device_open("cpu", o), but TP_ISA_AMX needs only AVX-512 with bf16, on
 * which everything but the tiles runs. */
bool amx_isa_runs(tp_isa isa);
tp_device *amx_open(const tp_device_opts *o);

/* Tiles multiplied by the functions so far, on all threads; threads that hold tiles now. */
int64_t amx_products(void);
int64_t amx_holders(void);

/* Is the machine without tiles, so that the functions are used? */
bool amx_stood_for(void);

/* The instructions, on the tiles of the calling thread. False where a processor would fault. */
bool amx_ldtilecfg(const void *shapes);
bool amx_tilerelease(void);
bool amx_tilezero(int t);
bool amx_tileloadd(int t, const void *from, int64_t bytes);
bool amx_tilestored(int t, void *to, int64_t bytes);
bool amx_tdpbf16ps(int c, int a, int b);

#endif
