/* counts.cpp - counts calls of the emulated GPU by kernel and op. Kernels are mostly static
 * functions, so their names come from the program's symbol table, which dladdr does not read. */
#include "counts.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <vector>

extern "C" {
#include "emulated_gemm.h"
}
#include "emulation.h"

namespace
{

/* ---- names of kernels ---- */

/* "void name<float, 4>(int)" without type and parameters. */
std::string short_name(const char *symbol)
{
    int status = 0;
    char *text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string s = text ? text : symbol;
    std::free(text);
    if (s.compare(0, 5, "void ") == 0) s.erase(0, 5);
    int depth = 0;
    for (size_t i = 0; i < s.size(); i++) {
        depth += (s[i] == '<') - (s[i] == '>');
        if (s[i] == '(' && depth == 0 && i > 0) return s.substr(0, i);
    }
    return s;
}

/* Address in the file -> symbol, for all functions of the program; empty if it is stripped. */
std::map<uint64_t, std::string> read_symbols()
{
    std::map<uint64_t, std::string> all;
    struct stat st;
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) return all;
    void *map = mmap(nullptr, size_t(st.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return all;
    const char *file = static_cast<const char *>(map);
    Elf64_Ehdr head;
    std::memcpy(&head, file, sizeof head);
    std::vector<Elf64_Shdr> sections(head.e_shnum);
    std::memcpy(sections.data(), file + head.e_shoff, sections.size() * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr &s : sections) {
        if (s.sh_type != SHT_SYMTAB) continue;
        const char *names = file + sections[s.sh_link].sh_offset;
        for (size_t at = 0; at < s.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol;
            std::memcpy(&symbol, file + s.sh_offset + at, sizeof symbol);
            if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value)
                all[symbol.st_value] = names + symbol.st_name;
        }
    }
    munmap(map, size_t(st.st_size));
    return all;
}

/* The program's load address, which its symbols are relative to; 0 if it has a fixed one. */
uint64_t load_address(const void *inside)
{
    Dl_info info;
    Elf64_Ehdr head;
    if (!dladdr(inside, &info)) return 0;
    std::memcpy(&head, info.dli_fbase, sizeof head);
    return head.e_type == ET_DYN ? reinterpret_cast<uint64_t>(info.dli_fbase) : 0;
}

const char *kernel_name(const void *kernel)
{
    static const std::map<uint64_t, std::string> symbols = read_symbols();
    static std::map<const void *, std::string> known;
    std::string &name = known[kernel];
    if (!name.empty()) return name.c_str();
    const auto s = symbols.find(reinterpret_cast<uint64_t>(kernel) - load_address(kernel));
    name = s == symbols.end() ? "unnamed" : short_name(s->second.c_str());
    return name.c_str();
}

/* ---- counts ---- */

struct Note {
    count_kind kind;
    std::string name;
    uint64_t amount;
};
struct Sum {
    uint64_t calls = 0, amount = 0, few = 0;
};
typedef std::tuple<count_kind, std::string, std::string, int> Key; /* kind, name, op, backward */

std::vector<Note> notes; /* not yet of an op */
std::map<Key, Sum> sums;
std::vector<count_line> listed;

} // namespace

void counts_clear(void)
{
    notes.clear();
    sums.clear();
}

void counts_op(const char *op, int backward)
{
    for (const Note &n : notes) {
        Sum &s = sums[Key(n.kind, n.name, op, backward)];
        s.calls++;
        s.amount += n.amount;
        s.few += n.kind == COUNT_KERNEL && n.amount < COUNTED_PROCESSORS;
    }
    notes.clear();
}

size_t counts_list(const count_line **lines)
{
    counts_op("", 0);
    listed.clear();
    for (const auto &s : sums)
        listed.push_back({ std::get<0>(s.first), std::get<1>(s.first).c_str(),
                           std::get<2>(s.first).c_str(), std::get<3>(s.first), s.second.calls,
                           s.second.amount, s.second.few });
    std::stable_sort(listed.begin(), listed.end(), [](const count_line &a, const count_line &b) {
        return a.kind != b.kind ? a.kind < b.kind : a.calls > b.calls;
    });
    *lines = listed.data();
    return listed.size();
}

int counts_note(count_kind kind, const char *name, uint64_t amount)
{
    if (!emulation.counting) return 0;
    notes.push_back({ kind, name, amount });
    return 1;
}

void counts_launch(const void *kernel, uint64_t blocks)
{
    if (emulation.counting) counts_note(COUNT_KERNEL, kernel_name(kernel), blocks);
}

int counts_product(const void *args)
{
    const emulated_gemm *g = static_cast<const emulated_gemm *>(args);
    char sizes[100];
    if (!emulation.counting) return 0;
    std::snprintf(sizes, sizeof sizes, "%d x %d x %d, %d times, %s%s", g->m, g->n, g->k, g->batch,
                  g->type == CUDA_R_16BF ? "bf16" : "f32",
                  g->bias   ? ", bias"
                  : g->sums ? ", sums"
                            : "");
    return counts_note(COUNT_PRODUCT, sizes, uint64_t(g->m) * g->n * g->k * g->batch);
}

int counts_copy(void *to, size_t bytes, enum cudaMemcpyKind kind)
{
    const count_kind what = kind == cudaMemcpyHostToDevice   ? COUNT_UPLOAD
                            : kind == cudaMemcpyDeviceToHost ? COUNT_DOWNLOAD
                                                             : COUNT_COPY;
    if (emulation.counting && what == COUNT_DOWNLOAD) std::memset(to, 0, bytes);
    return counts_note(what, "", bytes);
}

void *counts_memory(size_t bytes)
{
    void *p = mmap(nullptr, bytes ? bytes : 1, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void counts_free(void *p, size_t bytes)
{
    munmap(p, bytes ? bytes : 1);
}
