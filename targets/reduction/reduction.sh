#!/bin/sh
# `build`: PTX and cubin of the default setting into KBT_DUMP. `run`: the program of this setting, compiled where it is not
# there yet. `reference`: the right sums, in f64 on the CPU.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
nvcc=nvcc
link=
for folder in ${KBT_CUDA:+"$KBT_CUDA/bin" "$KBT_CUDA/nvidia/cu13/bin" "$KBT_CUDA"}; do
    if [ -x "$folder/nvcc" ]; then
        nvcc=$folder/nvcc
        # Where the compilers came as packages, the runtime's libraries lie in lib, where nvcc does not look.
        link=-L$folder/../lib
        break
    fi
done
arch=${KBT_ARCH:-native}
case ${KBT_TRACE:-off} in off) level=0 ;; barrier) level=1 ;; coarse) level=2 ;; *) level=3 ;; esac
include=$here/../../kernels/include

compile() {
    "$nvcc" -std=c++17 -O3 -lineinfo -arch="$arch" -I"$include" \
        -DTHREADS="${THREADS:-256}" -DLOADS="${LOADS:-1}" -DVECTOR="${VECTOR:-1}" -DFINISH="${FINISH:-0}" \
        -DTRACE_LEVEL="$level" "$@" "$here/reduction.cu"
}

case ${1:-} in
build)
    compile -ptx -o "$KBT_DUMP/reduction.ptx"
    compile -cubin -o "$KBT_DUMP/reduction.cubin"
    ;;
run | reference)
    bin=${TMPDIR:-/tmp}/kbt-reduction-$(id -u)
    mkdir -p "$bin"
    program=$bin/$arch-${THREADS:-256}-${LOADS:-1}-${VECTOR:-1}-${FINISH:-0}-$level
    if [ ! -x "$program" ] || [ "$here/reduction.cu" -nt "$program" ] || [ "$here/../cuda/kbt_target.hpp" -nt "$program" ]; then
        # Beside its place and renamed: two processes may want it at once.
        compile $link -o "$program.$$"
        mv "$program.$$" "$program"
    fi
    exec "$program" "$@"
    ;;
*)
    echo "usage: reduction.sh build|run|reference" >&2
    exit 2
    ;;
esac
