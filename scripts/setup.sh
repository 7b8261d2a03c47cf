# setup.sh - sourced by the other scripts: installs the dependencies of a build, configures, builds.
#
#   need WHAT:PACKAGE ...    installs the Debian packages whose tool, library or file is missing
#   configure PRESET ...     configures build/PRESET; further arguments go to CMake
#   build PRESET TARGET ...  builds; fast if everything is up to date
#   temporary_in_memory      puts temporary folders into memory, if there is room
#   gpu_tests PRESET         prints the tests of a configured build that need only a GPU
#   manual FILE              prints the comment at the head of a script, which is its manual
set -euo pipefail
unset LC_ALL
export LC_NUMERIC=C # awk and gnuplot write numbers with a point
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

manual() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$1"; }

have() {
    case $1 in
    pc-*) pkg-config --exists "${1#pc-}" 2>/dev/null ;;
    file-*) [ -e "${1#file-}" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# An argument is what to look for, a colon, and the package that provides it.
need() {
    local missing="" entry
    for entry in "$@"; do
        have "${entry%%:*}" || missing="$missing ${entry#*:}"
    done
    [ -z "$missing" ] && return
    local as=""
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 ||
            die "These packages are missing:$missing. Ask an administrator to run:" \
                "apt-get install$missing"
        as=sudo
    fi
    command -v apt-get >/dev/null 2>&1 ||
        die "These packages are missing:$missing. This system has no apt-get; install them with" \
            "its own package manager, then run this again."
    say "Installing$missing"
    {
        $as apt-get update -qq &&
            $as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing
    } >/tmp/tapegrad-apt.$$ 2>&1 || {
        tail -n 3 /tmp/tapegrad-apt.$$ >&2
        rm -f /tmp/tapegrad-apt.$$
        die "Could not install$missing. Check the network, or install them by hand, then run this" \
            "again."
    }
    rm -f /tmp/tapegrad-apt.$$
}

# Runs sync each file that they write, which costs tests more than half of their time on a disk.
# Some tests build programs, so the folder must allow to run them.
temporary_in_memory() {
    local room
    room=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1) || true
    [ ! -w /dev/shm ] || [ "${room:-0}" -lt 4000000 ] ||
        findmnt -no OPTIONS -T /dev/shm | grep -q noexec || export TMPDIR=${TMPDIR:-/dev/shm}
}

# Prints the path of nvcc: $CUDACXX, from PATH, or the toolkit's default. False if there is none.
find_nvcc() { command -v "${CUDACXX:-nvcc}" || command -v /usr/local/cuda/bin/nvcc; }

BUILD_NEEDS="cc:gcc cmake:cmake ninja:ninja-build pkg-config:pkg-config git:git
    pc-openblas:libopenblas-dev pc-jansson:libjansson-dev pc-libxxhash:libxxhash-dev
    pc-libarchive:libarchive-dev pc-libjpeg:libjpeg-dev pc-libpng:libpng-dev"
TEST_NEEDS="pc-criterion:libcriterion-dev file-/usr/share/i18n/locales/de_DE:locales"
MPI_NEEDS="mpicc.openmpi:libopenmpi-dev mpirun.openmpi:openmpi-bin mpicc.mpich:libmpich-dev
    mpirun.mpich:mpich" # for several processes; what needs it is skipped without it
PLOT_NEEDS="gnuplot:gnuplot-nox"
REPORT_NEEDS="chromium:chromium" # the test of tp-report's page, which is skipped without it
# clang with its sanitizers and fuzzer. CMakePresets.json has the version for all scripts; the
# archive of pack.sh has neither that file nor clang.
presets=$ROOT/CMakePresets.json
CLANG=$(sed -n 's/.*"CMAKE_C_COMPILER": "clang-\([0-9]*\)".*/\1/p' "$presets" 2>/dev/null || true)
LLVM=/usr/lib/llvm-$CLANG/lib
FUZZER=$LLVM/clang/$CLANG/lib/linux/libclang_rt.fuzzer-$(uname -m).a
CLANG_NEEDS="clang-$CLANG:clang-$CLANG file-$FUZZER:libclang-rt-$CLANG-dev"

# Configures build/PRESET; further arguments go to CMake. New build folders use Ninja, existing ones
# keep their generator.
configure() {
    local preset=$1 log=/tmp/tapegrad-cmake.$$ generator="-G Ninja"
    shift
    cd "$ROOT"
    [ ! -f "build/$preset/CMakeCache.txt" ] || generator=""
    cmake --preset "$preset" $generator "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        rm -f "$log"
        die "The build could not be configured; see the lines above."
    }
    rm -f "$log"
}

configured() { [ -f "$ROOT/build/$1/build.ninja" ] || [ -f "$ROOT/build/$1/Makefile" ]; }

# Builds the named targets, or everything.
build() {
    local preset=$1
    shift
    cd "$ROOT"
    cmake --build --preset "$preset" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" ${1+--target "$@"}
}

gpu_tests() {
    ctest --test-dir "$ROOT/build/$1" -N -L device -LE tree 2>/dev/null |
        sed -n 's/^ *Test *#[0-9]*: //p'
}
