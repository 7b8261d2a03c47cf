#!/usr/bin/env bash
# lint.sh - checks format and runs static analysis: clang-format (dry run) on every source file,
# clang-tidy on everything but the tests (which may read unset values after a failed expectation).
#
#   scripts/lint.sh            everything
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
import json
entries, seen = [], set()
for e in json.load(open('build/release/compile_commands.json')):
    if e['file'] not in seen and '/build/' not in e['file'] and '/tests/' not in e['file']:
        seen.add(e['file'])
        entries.append(e)
import os
os.makedirs('build/lint', exist_ok=True)
json.dump(entries, open('build/lint/compile_commands.json', 'w'))
print('\n'.join(sorted(seen)), file=open('build/lint/files', 'w'))
P
# A third of the default nodes that the analyser visits in a function take a third of the time.
xargs -a build/lint/files -P "$(nproc)" -n 1 clang-tidy --quiet -p build/lint \
    --extra-arg=-Xclang --extra-arg=-analyzer-config \
    --extra-arg=-Xclang --extra-arg=max-nodes=75000 \
    2>/dev/null | tee build/lint/report >&2
! grep -qE '(warning|error):' build/lint/report || die "clang-tidy: see above"
say "clang-tidy: clean"
