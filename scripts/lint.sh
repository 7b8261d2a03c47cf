#!/usr/bin/env bash
# lint.sh - checks format and runs static analysis: clang-format (dry run) on every source file,
# clang-tidy on everything but the tests (which may read unset values after a failed expectation).
#
#   scripts/lint.sh            everything; clang-tidy skips files that it found clean before
#                              (~/.cache/tapegrad-lint)
#   scripts/lint.sh --format   only the format
source "$(dirname "$0")/setup.sh"
case ${1:-} in
"" | --format) ;;
-h | --help)
    manual "$0"
    exit 0
    ;;
*) die "Unknown argument $1; see scripts/lint.sh --help" ;;
esac
need clang-format:clang-format
cd "$ROOT"
git ls-files -z '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.inc' |
    xargs -0 -n 32 -P "$(nproc)" clang-format --dry-run -Werror
say "clang-format: clean"
[ "${1:-}" = --format ] && exit 0

need $BUILD_NEEDS $TEST_NEEDS clang-tidy:clang-tidy python3:python3
configure release -DTAPEGRAD_TESTS=ON -DTAPEGRAD_BENCH=ON
# Kernel files are compiled several times from the same source: keep one entry per file.
python3 - <<'P'
import json, os, shlex
entries, seen = [], set()
for e in json.load(open('build/release/compile_commands.json')):
    if e['file'] not in seen and '/build/' not in e['file'] and '/tests/' not in e['file']:
        seen.add(e['file'])
        entries.append(e)
os.makedirs('build/lint', exist_ok=True)
json.dump(entries, open('build/lint/compile_commands.json', 'w'))
with open('build/lint/files', 'w') as out: # a file, and the command that preprocesses it
    for e in sorted(entries, key=lambda e: e['file']):
        words = shlex.split(e['command'])
        del words[words.index('-o'):words.index('-o') + 2]
        words[words.index('-c')] = '-E'
        print(e['file'], shlex.join(words + ['-C', '-P']), sep='\t', file=out)
P

# Checks a file unless it, its headers and the checks are those of an earlier run without findings.
# Its argument is a line of build/lint/files. A third of the default nodes that the analyser visits
# in a function take a third of the time.
tidy() {
    local options="--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang
        --extra-arg=max-nodes=75000"
    local file=${1%%$'\t'*} key
    key=$({
        clang-tidy --version
        cat .clang-tidy
        echo "$options"
        bash -c "${1#*$'\t'}"
    } | sha256sum | cut -c1-64)
    [ ! -e "$clean/$key" ] || return 0
    clang-tidy --quiet -p build/lint $options "$file"
    touch "$clean/$key"
}
export -f tidy
export clean=${XDG_CACHE_HOME:-$HOME/.cache}/tapegrad-lint
mkdir -p "$clean"
find "$clean" -type f -mtime +60 -delete
xargs -a build/lint/files -d '\n' -P "$(nproc)" -n 1 bash -euo pipefail -c 'tidy "$1"' - \
    >&2 2>build/lint/log || die "clang-tidy: see above, and build/lint/log"
say "clang-tidy: clean"
