#!/usr/bin/env bash
# What a sweep promises, measured on this machine's GPUs with the built-in kernel.
#
#   measure.sh compile MODE          every kernel of the mode's space into kbt's cache, in parallel; once, beforehand
#   measure.sh exhaustive MODE GPUS  every setting to a decision, killed (-9) half-way once and resumed
#   measure.sh tuned MODE GPUS       the default sweep of the same space, compared with the exhaustive one
#   measure.sh again MODE GPUS       the exhaustive sweep once more; compare it, or one of another machine, with the first
#   measure.sh equal GPUS            a hundred equal settings: how many are called faster
#   measure.sh scale MODE GPU GPU    the default sweep on one GPU and on two: wall time and verdicts
#
# MODE is bf16, fp8 or fp4, GPUS a list such as 0,1. KBT names the program, OUT the folder for the sweeps.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kbt=${KBT:-kbt}
out=${OUT:-sweeps}
mkdir -p "$out"

# Settings that change the arithmetic are judged against the most accurate mode, on the same inputs.
reference() {
    local file=$out/reference.safetensors
    [ -e "$file" ] || KBT_PV_MODE=bf16 KBT_INPUT_SET=0 KBT_OUT=$file "$kbt" kernel run attention \
        --batch 2 --heads 16 --seqlen 4096 --headdim 128 --launches 1 >/dev/null
    echo "$file"
}

sweep() { # MODE NAME GPUS OPTION...
    local mode=$1 name=$2 gpus=$3
    shift 3
    "$kbt" split sweep attention --set "KBT_PV_MODE=$mode" --gpus "$gpus" --reference "$(reference)" \
        --out "$out/$mode-$name" "$@" >"$out/$mode-$name.txt"
    head -1 "$out/$mode-$name.txt"
}

points() { grep -c '"kind":"point"' "$1/journal.jsonl" 2>/dev/null || true; }

seconds() { # COMMAND...: its wall time, its output kept
    local start=$SECONDS
    "$@" >&2
    echo $((SECONDS - start))
}

case ${1:-} in
compile)
    "$kbt" split sweep attention --set "KBT_PV_MODE=$2" --out "$out/unused" --dry-run | sed 's/^[0-9]*  *//' |
        xargs -P "$(nproc)" -L 1 sh -c "exec env \"\$@\" '$kbt' kernel run attention --batch 1 --heads 1 --seqlen 256 \
            --launches 1 --warmup 0" sh | grep -c kbt-time-us
    ;;
exhaustive)
    of=$("$kbt" split sweep attention --set "KBT_PV_MODE=$2" --out "$out/unused" --dry-run 2>/dev/null | wc -l)
    sweep "$2" exhaustive "$3" --exhaustive &
    shell=$!
    until [ "$(points "$out/$2-exhaustive")" -ge $((of / 2)) ]; do sleep 0.2; done
    # The sweep is the only child of the function's shell.
    kill -9 "$(pgrep -P $shell -f 'split sweep')"
    wait $shell || true
    echo "killed after $(points "$out/$2-exhaustive") of $of points"
    cp "$out/$2-exhaustive/journal.jsonl" "$out/$2-before.jsonl"
    sweep "$2" exhaustive "$3" --exhaustive --resume
    # What was in the journal before the kill is where it was, and each point is there once.
    lines=$(wc -l <"$out/$2-before.jsonl")
    cmp <(head -n "$lines" "$out/$2-before.jsonl") <(head -n "$lines" "$out/$2-exhaustive/journal.jsonl")
    [ "$(points "$out/$2-exhaustive")" = "$of" ] && echo "$of points, each once"
    ;;
tuned)
    sweep "$2" tuned "$3"
    "$kbt" split compare "$out/$2-exhaustive" "$out/$2-tuned"
    ;;
again)
    sweep "$2" again "$3" --exhaustive
    "$kbt" split compare "$out/$2-exhaustive" "$out/$2-again"
    ;;
equal)
    "$kbt" split sweep "$here/attention-aa.yaml" --gpus "$2" --exhaustive --out "$out/equal" >"$out/equal.txt"
    for word in faster slower same ambiguous; do
        awk -F, -v word=$word 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "speed") column = i }
            $column == word { n++ } END { print n + 0 " of 100 called " word }' "$out/equal/table.csv"
    done
    ;;
scale)
    one=$(seconds sweep "$2" one "$3")
    two=$(seconds sweep "$2" two "$3,$4")
    echo "one GPU: $one s, two: $two s; ratio $(awk "BEGIN { print $two / $one }")"
    "$kbt" split compare "$out/$2-one" "$out/$2-two"
    ;;
*)
    sed -n '2,12p' "$0" | cut -c3-
    exit 2
    ;;
esac
