/* amx.c - may this process use the tiles of AMX-BF16?
 *
 * The processor must have the instructions, the system must save the registers, and Linux must
 * grant them to the process: it does so on request only, because they enlarge the frames of
 * signals. */
#define _DEFAULT_SOURCE /* syscall */
#include "tensor/backend.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST  0x1023                /* ARCH_REQ_XCOMP_PERM */
#define TILEDATA 18                    /* bit of XCR0, and what is requested */
#define TILES    (3ull << 17)          /* bits of XCR0: configuration and data of the tiles */
#define XSAVES   (1u << 27)            /* leaf 1, ecx: the system has set XCR0 */
#define AMX      (1u << 22 | 1u << 24) /* leaf 7, edx: AMX-BF16, AMX-TILE */
#define BF16     (1u << 5)             /* leaf 7 part 1, eax: AVX512-BF16 */

static void read_cpuid(uint32_t leaf, uint32_t part, uint32_t to[4])
{
    if (!__get_cpuid_count(leaf, part, &to[0], &to[1], &to[2], &to[3]))
        to[0] = to[1] = to[2] = to[3] = 0;
}

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static long ask_linux(void)
{
    return syscall(SYS_arch_prctl, REQUEST, TILEDATA);
}

/* Are there 8 tiles of 16 rows of 64 bytes, palette 1? */
static bool has_palette(const tp_amx_source *s)
{
    uint32_t r[4];
    s->cpuid(0x1d, 0, r);
    if (r[0] < 1) return false;
    s->cpuid(0x1d, 1, r);
    return r[1] >> 16 >= 8 && (r[1] & 0xffff) == 64 && (r[2] & 0xffff) == 16;
}

bool tp__amx_runs(const tp_amx_source *s)
{
    static const tp_amx_source machine = { read_cpuid, read_xcr0, ask_linux };
    uint32_t one[4], seven[4], more[4];
    if (!s) s = &machine;
    s->cpuid(1, 0, one);
    s->cpuid(7, 0, seven);
    if (!(one[2] & XSAVES) || (seven[3] & AMX) != AMX) return false;
    s->cpuid(7, 1, more);
    return (more[0] & BF16) && has_palette(s) && (s->xcr0() & TILES) == TILES && s->permit() == 0;
}
#else
bool tp__amx_runs(const tp_amx_source *s)
{
    (void)s;
    return false;
}
#endif
