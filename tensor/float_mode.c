/* float_mode.c - the floating-point mode of the CPU kernels: round to nearest, no traps, and
 * subnormals flushed to 0, since they cost 10 to 100 times as much. All threads of a device use
 * this mode whatever their creator's is, so that bits do not depend on the number of threads. */
#include "tensor/backend.h"

#if defined(__x86_64__)
enum { DEFAULT = 0x1f80, FLUSH_RESULTS = 0x8000, FLUSH_OPERANDS = 0x40 }; /* MXCSR */

static uint64_t exchange(bool flush)
{
    const uint64_t before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(DEFAULT | (flush ? FLUSH_RESULTS | FLUSH_OPERANDS : 0));
    return before;
}

void tp__float_end(uint64_t before)
{
    __builtin_ia32_ldmxcsr((unsigned)before);
}
#elif defined(__aarch64__)
#define FLUSH ((uint64_t)1 << 24) /* FPCR; 0: the default */

void tp__float_end(uint64_t before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory");
}

static uint64_t exchange(bool flush)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before) : : "memory");
    tp__float_end(flush ? FLUSH : 0);
    return before;
}
#else
static uint64_t exchange(bool flush)
{
    (void)flush;
    return 0;
}

void tp__float_end(uint64_t before)
{
    (void)before;
}
#endif

uint64_t tp__float_begin(const tp_device *D)
{
    return exchange(!D->keep_subnormals);
}

tp_code tp__call(tp_kernel k, const tp_call *c)
{
    if (c->dev->be->kind != TP_CPU) return k(c);
    const uint64_t before = tp__float_begin(c->dev);
    const tp_code code = k(c);
    tp__float_end(before);
    return code;
}
