#!/usr/bin/env bash
# check-arm64.sh - builds library, tools and programs for ARM64 with Debian's cross compiler and
# runs them under qemu: all reference cases but full-size models, and short runs of the programs.
# Runs on x86-64 and takes minutes.
#
# Debian's ARM64 libraries are unpacked into build/arm64-root. apt keeps its state there too, so
# that nothing on this machine changes. Criterion's processes do not start under qemu, so no tests
# run.
source "$(dirname "$0")/setup.sh"
[ "$(uname -m)" != aarch64 ] || die "This machine is ARM64: scripts/test.sh runs everything here."
need $BUILD_NEEDS aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static
cd "$ROOT"
root=$ROOT/build/arm64-root
libraries="libopenblas-pthread-dev libjansson-dev libxxhash-dev libarchive-dev libjpeg-dev"
libraries="$libraries libpng-dev"

# Downloads and unpacks the libraries and their dependencies: 32 MB.
fetch() {
    local apt=$root/apt deb
    rm -rf "$root"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/status" # no package is installed
    local own="-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$apt
        -o Dir::State::status=$apt/status -o Dir::Cache=$apt/cache -o Debug::NoLocking=1
        -o APT::Sandbox::User=$(id -un)"
    apt-get $own update &&
        apt-get $own install -y --download-only --no-install-recommends $libraries ||
        die "Debian's ARM64 libraries could not be downloaded; check the network."
    for deb in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done
    touch "$root/done"
}

[ -e "$root/done" ] || fetch
configure arm64 -DTAPEGRAD_WERROR=ON
build arm64 tp-parity tp-inspect tp-models tp-bpe tp-report enwik8 gpt imagenet imdb lra coco
say "aarch64: library, tools and programs build"

run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
# Runs PROGRAM ARGUMENT... under qemu.
arm() {
    qemu-aarch64-static -L "$root" -E LD_LIBRARY_PATH=/usr/lib/aarch64-linux-gnu/openblas-pthread \
        "build/arm64/bin/$1" "${@:2}" >"$run/out" 2>&1 || {
        cat "$run/out" >&2
        die "aarch64: $1 ${2:-} failed"
    }
}

shopt -s extglob
cases=(tests/fixtures/*/!(full_*).safetensors) # a full-size model takes more than five minutes
arm tp-parity --threads "$(nproc)" "${cases[@]}"
say "aarch64: ${#cases[@]} reference cases agree"

head -c 6000 docs/design.md >"$run/text"
small="--data $run/text --threads 2 --layers 1 --dim 16 --hidden 16 --heads 2 --chunk 4 --window 8
    --tokens 16 --mem-len 16 --batch 2 --eval-tokens 50 --dropout 0.1 --ema 0.9 --clip 0.5"
arm enwik8 train $small --steps 5 --run-dir "$run/straight"
arm enwik8 train $small --steps 2 --run-dir "$run/a"
arm enwik8 train --resume --steps 5 --threads 2 --run-dir "$run/a"
cmp "$run/straight/last.safetensors" "$run/a/last.safetensors" ||
    die "aarch64: a resumed run gives different bits"
arm enwik8 train $small --steps 2 --dtype bf16 --run-dir "$run/b"
arm enwik8 generate --run-dir "$run/a" --threads 2 --prompt "the " --length 20 --top-k 5
arm gpt train --data "$run/text" --model llama-mini --set num_hidden_layers=1 --tokens 16 \
    --batch 2 --steps 2 --threads 2 --run-dir "$run/h"
arm gpt generate --run-dir "$run/h" --threads 2 --prompt "the " --length 20
arm imagenet train --shapes 20 --batch 2 --steps 2 --threads 2 --run-dir "$run/c"
arm imagenet eval --shapes 10 --run-dir "$run/c" --threads 2
arm lra train --examples 8 --valid-examples 4 --test-examples 4 --shortest 5 --longest 30 \
    --length 32 --layers 1 --batch 4 --steps 2 --threads 2 --run-dir "$run/d"
arm lra eval --run-dir "$run/d" --threads 2
mkdir -p "$run/texts/a" "$run/texts/b"
for i in 1 2 3 4 5 6; do
    echo "a dull film, no. $i" >"$run/texts/a/$i.txt"
    echo "a fine film, no. $i" >"$run/texts/b/$i.txt"
done
arm tp-bpe train "$run"/texts/*/*.txt --size 270 --output "$run/words"
imdb="--tokenizer $run/words --layers 1 --dim 16 --heads 2 --hidden 16 --length 16 --batch 2
    --steps 2 --threads 2"
arm imdb pretrain --data "$run/texts" $imdb --held-out 0.2 --run-dir "$run/e"
arm imdb train --data "$run/texts" $imdb --init "$run/e/best.safetensors" --run-dir "$run/f"
arm imdb predict "$run/texts/a" --explain --run-dir "$run/f" --threads 2
arm coco train --preset mask-rcnn-vil-mini --scenes 4 --valid-scenes 2 --scene-size 64 --sizes 64 \
    --size 64 --longest 64 --batch 2 --warmup 1 --steps 2 --threads 2 --run-dir "$run/g"
arm coco eval --run-dir "$run/g" --threads 2
arm tp-inspect "$run/c/last.safetensors"
say "aarch64: the six programs train, resume, evaluate, generate and predict"
