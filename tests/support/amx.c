/* amx.c - the tile instructions of AMX-BF16 in C, and the handler that runs them.
 *
 * Intel's manual (volume 2, TDPBF16PS) defines the sums: for each element of c two chains of fused
 * multiply-adds from 0, over the low and the high halves of the pairs; their sum is added to c. All
 * of it rounds to nearest even, with subnormal operands and results taken as 0. */
#define _GNU_SOURCE /* REG_RIP */
#include "support/amx.h"

#include "tensor/backend.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, LINE = 64, FLUSH = 0x9fc0 /* MXCSR: FTZ, DAZ, nothing traps */ };

typedef struct tiles {
    bool held;
    int rows[TILES], bytes[TILES];
    uint8_t tile[TILES][ROWS][LINE];
} tiles;

static _Thread_local tiles mine;
static int64_t products, holders;

static bool usable(int t)
{
    return mine.held && mine.rows[t] > 0;
}

bool amx_ldtilecfg(const void *shapes)
{
    const uint8_t *from = shapes;
    if (from[0] != 1 || from[1] != 0) return false; /* palette 1, first row 0 */
    for (int i = 2; i < 16; i++)
        if (from[i]) return false;
    for (int t = 0; t < 16; t++) {
        const int rows = from[48 + t], bytes = from[16 + 2 * t] | from[17 + 2 * t] << 8;
        if (rows > ROWS || bytes > LINE || !rows != !bytes) return false;
        if (t >= TILES && rows) return false;
    }
    tp__count(holders, mine.held ? 0 : 1);
    mine = (tiles){ .held = true };
    for (int t = 0; t < TILES; t++) {
        mine.rows[t] = from[48 + t];
        mine.bytes[t] = from[16 + 2 * t];
    }
    return true;
}

bool amx_tilerelease(void)
{
    tp__count(holders, mine.held ? -1 : 0);
    mine = (tiles){ 0 };
    return true;
}

bool amx_tilezero(int t)
{
    if (!usable(t)) return false;
    memset(mine.tile[t], 0, sizeof mine.tile[t]);
    return true;
}

bool amx_tileloadd(int t, const void *from, int64_t bytes)
{
    if (!amx_tilezero(t)) return false;
    for (int r = 0; r < mine.rows[t]; r++)
        memcpy(mine.tile[t][r], (const char *)from + r * bytes, (size_t)mine.bytes[t]);
    return true;
}

bool amx_tilestored(int t, void *to, int64_t bytes)
{
    if (!usable(t)) return false;
    for (int r = 0; r < mine.rows[t]; r++)
        memcpy((char *)to + r * bytes, mine.tile[t][r], (size_t)mine.bytes[t]);
    return true;
}

/* c[n] += the products of a row of `pairs` pairs with the columns of b. */
__attribute__((target("fma,avx512f"))) static void multiply_row(const uint32_t *a, int pairs,
                                                                uint8_t (*b)[LINE], int n, float *c)
{
    float low[LINE / 4] = { 0 }, high[LINE / 4] = { 0 };
    for (int k = 0; k < pairs; k++) {
        const uint32_t x = a[k] << 16, y = a[k] & 0xffff0000u;
        uint32_t of_b[LINE / 4], l[LINE / 4], h[LINE / 4];
        float fx, fy, fl[LINE / 4], fh[LINE / 4];
        memcpy(&fx, &x, sizeof fx);
        memcpy(&fy, &y, sizeof fy);
        memcpy(of_b, b[k], sizeof of_b);
        for (int j = 0; j < LINE / 4; j++) l[j] = of_b[j] << 16;
        for (int j = 0; j < LINE / 4; j++) h[j] = of_b[j] & 0xffff0000u;
        memcpy(fl, l, sizeof fl);
        memcpy(fh, h, sizeof fh);
        for (int j = 0; j < LINE / 4; j++) low[j] = __builtin_fmaf(fx, fl[j], low[j]);
        for (int j = 0; j < LINE / 4; j++) high[j] = __builtin_fmaf(fy, fh[j], high[j]);
    }
    for (int j = 0; j < n; j++) c[j] += low[j] + high[j];
}

bool amx_tdpbf16ps(int c, int a, int b)
{
    if (!usable(a) || !usable(b) || !usable(c) || a == b || a == c || b == c) return false;
    if (mine.rows[c] != mine.rows[a] || mine.bytes[c] != mine.bytes[b]) return false;
    if (mine.bytes[a] != 4 * mine.rows[b]) return false;
    const unsigned before = _mm_getcsr();
    _mm_setcsr(FLUSH);
    for (int r = 0; r < mine.rows[c]; r++) {
        uint32_t row[LINE / 4];
        float sums[LINE / 4];
        memcpy(row, mine.tile[a][r], sizeof row);
        memcpy(sums, mine.tile[c][r], sizeof sums);
        multiply_row(row, mine.bytes[a] / 4, mine.tile[b], mine.bytes[c] / 4, sums);
        memcpy(mine.tile[c][r], sums, sizeof sums);
    }
    _mm_setcsr(before);
    tp__count(products, 1);
    return true;
}

/* ---- the handler ---- */

static const int registers[] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15 };

/* An operand in memory: its address, that without the index, and the index. */
typedef struct operand {
    const uint8_t *end; /* of the instruction */
    int64_t base, index;
} operand;

static int64_t signed_at(const uint8_t *p, int bytes)
{
    int8_t one;
    int32_t four;
    memcpy(&one, p, sizeof one);
    if (bytes == 1) return one;
    memcpy(&four, p, sizeof four);
    return four;
}

/* p: the byte ModRM; high: bits B and X of the prefix, not inverted. */
static operand operand_at(const uint8_t *p, unsigned b, unsigned x, const greg_t *r)
{
    const unsigned mod = p[0] >> 6, rm = p[0] & 7;
    operand o = { p + 1, 0, 0 };
    bool far = mod == 2, after = false;
    if (rm == 4) {
        const unsigned sib = *o.end++, base = sib & 7, index = (sib >> 3 & 7) | x << 3;
        if (index != 4) o.index = (int64_t)r[registers[index]] * (1 << (sib >> 6));
        if (base == 5 && mod == 0)
            far = true;
        else
            o.base = (int64_t)r[registers[base | b << 3]];
    } else if (rm == 5 && mod == 0) {
        far = after = true; /* relative to the next instruction */
    } else {
        o.base = (int64_t)r[registers[rm | b << 3]];
    }
    const int bytes = far ? 4 : mod == 1 ? 1 : 0;
    if (bytes) o.base += signed_at(o.end, bytes);
    o.end += bytes;
    if (after) o.base += (int64_t)(intptr_t)o.end;
    return o;
}

/* Runs the instruction at p; NULL if it is not one of the above, or faults. */
static const uint8_t *run(const uint8_t *p, const greg_t *r)
{
    if (p[0] != 0xc4 || (p[1] & 0x1f) != 2) return NULL; /* VEX, map 0f38 */
    const unsigned x = !(p[1] & 0x40), b = !(p[1] & 0x20), prefix = p[2] & 3;
    const int c = p[4] >> 3 & 7, a = p[4] & 7, other = ~p[2] >> 3 & 15;
    const bool tiles_only = p[4] >> 6 == 3;
    enum { NONE = 0, F3 = 2, F2 = 3 };
    if (p[3] == 0x49 && tiles_only && prefix == NONE) return amx_tilerelease() ? p + 5 : NULL;
    if (p[3] == 0x49 && tiles_only && prefix == F2) return amx_tilezero(c) ? p + 5 : NULL;
    if (p[3] == 0x5c && tiles_only && prefix == F3)
        return other < TILES && amx_tdpbf16ps(c, a, other) ? p + 5 : NULL;
    if (tiles_only) return NULL;
    const operand o = operand_at(p + 4, b, x, r);
    void *at = (void *)(intptr_t)o.base;
    if (p[3] == 0x49 && prefix == NONE)
        return amx_ldtilecfg((const char *)at + o.index) ? o.end : NULL;
    if (p[3] == 0x4b && prefix == F2) return amx_tileloadd(c, at, o.index) ? o.end : NULL;
    if (p[3] == 0x4b && prefix == F3) return amx_tilestored(c, at, o.index) ? o.end : NULL;
    return NULL;
}

/* Runs all tile instructions from the illegal one to the first other one. */
static void on_illegal(int signal_number, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *p = (const uint8_t *)(intptr_t)r[REG_RIP], *next = run(p, r);
    (void)info;
    if (!next) signal(signal_number, SIG_DFL); /* ends the test */
    for (; next; next = run(next, r)) r[REG_RIP] = (greg_t)(intptr_t)next;
}

bool amx_stood_for(void)
{
    return !tp_isa_runs(TP_ISA_AMX);
}

bool amx_isa_runs(tp_isa isa)
{
    if (isa != TP_ISA_AMX || !amx_stood_for()) return tp_isa_runs(isa);
    return tp_isa_runs(TP_ISA_AVX512) && __builtin_cpu_supports("avx512bf16");
}

tp_device *amx_open(const tp_device_opts *o)
{
    if (o->isa != TP_ISA_AMX || !amx_stood_for() || !amx_isa_runs(TP_ISA_AMX))
        return tp_device_open("cpu", o);
    tp_device_opts as = *o;
    as.isa = TP_ISA_AVX512;
    tp_device *D = tp_device_open("cpu", &as);
    struct sigaction act = { .sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO };
    sigaction(SIGILL, &act, NULL);
    D->amx = true;
    return D;
}

int64_t amx_products(void)
{
    return tp__counted(products);
}

int64_t amx_holders(void)
{
    return tp__counted(holders);
}

#else
bool amx_stood_for(void)
{
    return false;
}

bool amx_isa_runs(tp_isa isa)
{
    return tp_isa_runs(isa);
}

tp_device *amx_open(const tp_device_opts *o)
{
    return tp_device_open("cpu", o);
}

int64_t amx_products(void)
{
    return 0;
}

int64_t amx_holders(void)
{
    return 0;
}
#endif
