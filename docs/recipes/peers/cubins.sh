#!/bin/sh
# Writes the cubins of this recipe into a folder: cubins.sh DIR. KBT names the kbt binary, default the one on the path.
set -eu
dir=${1:?usage: cubins.sh DIR}
kbt=${KBT:-kbt}
mkdir -p "$dir"
# name, head dimension, knobs
cubin() {
    name=$1 dim=$2
    shift 2
    env "$@" "$kbt" kernel compile attention --headdim "$dim" -o "$dir/attention-$name.cubin"
}
registers="KBT_TOPOLOGY=registers KBT_SPLIT_NUM=7 KBT_SPLIT_DEN=8 KBT_SOURCE_ORDER=pipelined"
for dim in 64 128; do
    [ $dim = 128 ] && large16=176 large8=192 || large16=128 large8=128
    # The handoff's best setting at head dimension 64; at 128 the default's neighbours are as fast.
    [ $dim = 128 ] && handoff= || handoff="KBT_SPLIT_NUM=3 KBT_SPLIT_DEN=4 KBT_SOURCE_ORDER=pipelined"
    cubin bf16-smem-d$dim $dim KBT_PV_MODE=bf16 $handoff
    cubin bf16-registers-d$dim $dim KBT_PV_MODE=bf16 $registers KBT_TILE_N=$large16
    cubin fp8-smem-d$dim $dim KBT_PV_MODE=fp8 KBT_QUANT_FORM=log2
    cubin fp8-registers-d$dim $dim KBT_PV_MODE=fp8 KBT_QUANT_FORM=log2 $registers KBT_TILE_N=$large8
done
for form in linear linear_rcp log2 log2_fused; do
    cubin fp4-$form-smem-d128 128 KBT_PV_MODE=fp4 KBT_QUANT_FORM=$form
    cubin fp4-$form-registers-d128 128 KBT_PV_MODE=fp4 KBT_QUANT_FORM=$form KBT_TOPOLOGY=registers KBT_SPLIT_NUM=7 KBT_SPLIT_DEN=8
done
