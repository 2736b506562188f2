#!/bin/sh
# The ladder on the targets that come with kbt, live on a GPU: sh h200.sh NAME, from the repository's root.
#
#   KBT   the kbt binary (cargo xtask dist)       OUT   where the runs go; default: h200-runs
#   NAME  check, reduction, triton-matmul, flash-attention-4 or first-kernel
#
# `reduction` measures the device's rates; the others take them from its run where OUT has it. flash-attention-4 needs its
# packages: installed, or as wheels in the folders below FA4_PACKAGES, where a large one may lie in parts (NAME.whl.part-aa,
# ...); tools.tar.xz there may hold ptxas, nvdisasm and cuobjdump as new as the DSL's own assembler.
set -eu
kbt=${KBT:?the kbt binary}
out=${OUT:-h200-runs}
name=${1:?check, reduction, triton-matmul, flash-attention-4 or first-kernel}
mkdir -p "$out"

say() { printf '\n== %s\n' "$*"; }
# A command with its wall time; its failure is shown and does not end the script.
timed() {
    start=$(date +%s)
    "$@" || echo "exit code $?"
    echo "-- $(($(date +%s) - start)) s: $*"
}
rates() { if [ -f "$out/reduction/profile.yaml" ]; then echo --rates "$out/reduction/profile.yaml"; fi; }
climb() {
    # shellcheck disable=SC2046
    timed "$kbt" tune --target "targets/$1.yaml" --device live --quick --force --out "$out/$1" $(rates) 2> "$out/$1.log"
    tail -n 25 "$out/$1.log"
}

case $name in
check)
    for target in reduction triton-matmul; do
        say "kbt target check targets/$target.yaml"
        timed "$kbt" target check "targets/$target.yaml"
    done
    ;;
reduction | triton-matmul)
    say "the ladder on $name"
    climb "$name"
    ;;
flash-attention-4)
    if [ -n "${FA4_PACKAGES:-}" ]; then
        site=${TMPDIR:-/tmp}/fa4-site
        if [ ! -d "$site" ]; then
            rm -rf "$site.new" && mkdir -p "$site.new"
            for wheel in "$FA4_PACKAGES"/*/*.whl "$FA4_PACKAGES"/*/*.whl.part-aa; do
                [ -f "$wheel" ] || continue
                name=$(basename "${wheel%.part-aa}")
                case $wheel in
                *.part-aa) cat "$FA4_PACKAGES"/*/"$name".part-* > "$site.$name" && wheel=$site.$name ;;
                esac
                python3 -m zipfile -e "$wheel" "$site.new"
            done
            mv "$site.new" "$site"
        fi
        export PYTHONPATH="$site:$site/nvidia_cutlass_dsl/dsl_packages"
        for tools in "$FA4_PACKAGES"/*/tools.tar.xz; do
            [ -f "$tools" ] || continue
            mkdir -p "$site-tools" && tar -xJf "$tools" -C "$site-tools"
            export KBT_CUDA="$site-tools"
        done
        name=flash-attention-4
    fi
    say "arguments that the DSL discards, in the package's source"
    python3 targets/flash-attention-4/fa4.py lint || true
    say "a plain timing of the same call"
    timed python3 targets/flash-attention-4/fa4.py plain
    say "the ladder on $name"
    climb "$name"
    ;;
first-kernel)
    # docs/first-kernel.md, with a GPU.
    work=${TMPDIR:-/tmp}/first-kernel
    rm -rf "$work" && mkdir -p "$work"
    cp docs/recipes/targets/gelu.cu docs/recipes/targets/gelu.yaml "$work"
    (
        cd "$work"
        say "kbt target check gelu.yaml"
        timed "$kbt" target check gelu.yaml
        say "kbt tune --target gelu.yaml"
        timed "$kbt" tune --target gelu.yaml --device live --quick --out run
    )
    cp -r "$work/run" "$out/first-kernel"
    ;;
*)
    echo "no target $name" >&2
    exit 2
    ;;
esac
