#!/usr/bin/env bash
# check-compilers.sh - compiles every public header alone as C17 and C++17, which the builds do not.
source "$(dirname "$0")/setup.sh"
need $BUILD_NEEDS $CLANG_NEEDS g++:g++
cd "$ROOT"
configure release # generates the call-site macros
warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
include="-Iinclude -Ibuild/release/include"

for h in include/tapegrad/*.h include/tapegrad/*/*.h; do
    name=${h#include/tapegrad/}
    line="#include <tapegrad/$name>"
    echo "$line" | gcc -std=c17 $warn $include -fsyntax-only -x c -
    echo "$line" | clang-$CLANG -std=c17 $warn $include -fsyntax-only -x c -
    echo "$line" | g++ -std=c++17 -Wall -Wextra -Werror $include -fsyntax-only -x c++ -
done
for std in c++17 c++20; do
    for cxx in g++ clang++-$CLANG; do
        $cxx -std=$std -Wall -Wextra -Wpedantic -Werror $include -fsyntax-only \
            tests/tree/consumer/cpp/main.cpp
    done
done
say "headers: each compiles alone, C17 (gcc, clang) and C++17; their macros in C++17 and C++20" \
    "(g++, clang++)"
