#!/usr/bin/env bash
# check-compilers.sh - compiles every public header alone as C17 and C++17, which the builds do not.
source "$(dirname "$0")/setup.sh"
need $BUILD_NEEDS $CLANG_NEEDS g++:g++
cd "$ROOT"
configure release # generates the call-site macros
warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
include="-Iinclude -Ibuild/release/include"

alone() {
    local line="#include <${1#include/}>"
    gcc -std=c17 $warn $include -fsyntax-only -x c - <<<"$line"
    clang-$CLANG -std=c17 $warn $include -fsyntax-only -x c - <<<"$line"
    g++ -std=c++17 -Wall -Wextra -Werror $include -fsyntax-only -x c++ - <<<"$line"
}
export -f alone
export warn include CLANG
printf '%s\n' include/tapegrad/*.h include/tapegrad/*/*.h |
    xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'alone {}'
for std in c++17 c++20; do
    for cxx in g++ clang++-$CLANG; do
        $cxx -std=$std -Wall -Wextra -Wpedantic -Werror $include -fsyntax-only \
            tests/tree/consumer/cpp/main.cpp
    done
done
say "headers: each compiles alone, C17 (gcc, clang) and C++17; their macros in C++17 and C++20" \
    "(g++, clang++)"
