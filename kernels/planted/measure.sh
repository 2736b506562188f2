#!/bin/sh
# Gathers the facts of the planted kernels on this machine's GPU and triages them.
#   KBT=path/to/kbt OUT=folder sh kernels/planted/measure.sh [blind | NAME...]
# Without a name, all but those of the list `blind` below; with the name `blind`, those.
# Needs nvcc, ncu, cuobjdump and an sm_90a device. Leaves NAME.facts.yaml, NAME.ncu.csv, NAME.triage.txt, NAME.triage.json
# and NAME.log in OUT, and prints which candidate came first. Exit 1 where one is not the planted cause.
set -u
kbt=${KBT:?the kbt to run}
out=${OUT:?the folder for what is measured}
case $kbt in /*) ;; *) kbt=$PWD/$kbt ;; esac
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$(dirname "$0")" || exit 2
PATH=${CUDA_HOME:-/usr/local/cuda}/bin:$PATH
export PATH
mkdir -p "$out" build || exit 2
# Written after the thresholds were frozen.
blind='layer_norm smoothing weight_gradient min_plus hard_swish escape_counts'
case $* in
  '')
    for sheet in *.facts.yaml; do
      name=${sheet%.facts.yaml}
      case " $blind " in *" $name "*) ;; *) set -- "$@" "$name" ;; esac
    done
    ;;
  blind) set -- $blind ;;
esac

{
  nvidia-smi
  nvcc --version
  ncu --version
  "$kbt" --version
} > "$out/machine.txt" 2>&1
building=
for name; do
  nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -cudart static -o "build/$name" "$name.cu" \
    > "$out/$name.log" 2>&1 &
  building="$building $!"
done
# Which counters this profiler knows of the chip, for reading a complaint about one.
timeout 60 ncu --query-metrics --chip gh100 > "$out/metrics.txt" 2>&1 &
for process in $building; do wait "$process"; done
wait

agreed=0
printf '%-16s %-24s %-24s %-10s %s\n' kernel first planted agree call
for name; do
  timeout 90 "$kbt" roofline gather "$name.yaml" --no-build --force --out "$out/$name.facts.yaml" \
    --csv "$out/$name.ncu.csv" >> "$out/$name.log" 2>&1
  for format in text json; do
    timeout 20 "$kbt" roofline triage "$out/$name.facts.yaml" --device auto --format "$format" \
      > "$out/$name.triage.$format" 2>> "$out/$name.log"
  done
  mv "$out/$name.triage.text" "$out/$name.triage.txt"
  planted=$(sed -n 's/^# Planted.*candidate=//p' "$name.yaml")
  first=$(sed -n '/^  "evidence": \[/,$ s/^ *"candidate": "\(.*\)".*/\1/p' "$out/$name.triage.json" | head -n 1)
  call=$(sed -n 's/^  "call": "\(.*\)".*/\1/p' "$out/$name.triage.json")
  if [ -n "$first" ] && [ "$first" = "$planted" ]; then
    agree=yes
    agreed=$((agreed + 1))
  else
    agree=NO
  fi
  printf '%-16s %-24s %-24s %-10s %s\n' "$name" "${first:-none}" "$planted" "$agree" "${call:-none}"
  [ "$agree" = yes ] || tail -n 2 "$out/$name.log" | sed 's/^/  | /'
done
echo "$agreed of $# name the planted cause first"
[ "$agreed" -eq $# ]
