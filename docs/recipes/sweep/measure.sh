#!/usr/bin/env bash
# What a sweep promises, measured on this machine's GPUs with the built-in kernel.
#
#   measure.sh compile MODE          every kernel of the mode's space into kbt's cache, in parallel; once, beforehand
#   measure.sh exhaustive MODE GPUS  every setting to a decision, killed (-9) a third of the way and resumed
#   measure.sh tuned MODE GPUS       the default sweep of the same space, compared with the exhaustive one
#   measure.sh again MODE GPUS       the exhaustive sweep once more, compared with the first
#   measure.sh equal GPUS            a hundred equal settings: how many are called faster
#   measure.sh scale MODE GPU GPU    a part of the space on one GPU and on two: wall time and verdicts
#   measure.sh agree SWEEP SWEEP     two sweeps side by side, such as those of two machines
#   measure.sh pack FILE             what of the sweeps is needed to compare them elsewhere, as a tar.gz
#
# MODE is bf16, fp8 or fp4, GPUS a list such as 0,1. Variables: KBT the program, OUT the folder for the sweeps, LIMIT the
# seconds a call may take (the same call again goes on), BLOCKS the most blocks of four processes a setting, TARGET
# another target file, PART the knobs that `scale` holds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kbt=${KBT:-kbt}
out=${OUT:-sweeps}
target=${TARGET:-$here/attention.yaml}
blocks=${BLOCKS:-3}
limit=${LIMIT:-86400}
# A stale row maximum costs bf16 a quarter of its accuracy, by design: half as much again is let pass.
factor=1.5
mkdir -p "$out"
# Without persistence mode the driver shuts a GPU down when its last process ends, and starting it again takes a second:
# the devices are held open meanwhile.
for device in /dev/nvidia[0-9]*; do
    if [ -c "$device" ]; then exec {held}<>"$device" || true; fi
done

sweep() { # NAME OPTION...: becomes the sweep
    local name=$1
    shift
    local resume=() left=$((limit > SECONDS ? limit - SECONDS : 0))
    # The right outputs are the same for every mode: made once. What is resumed keeps those that it began with.
    local right
    if [ -e "$out/$name/spec.json" ]; then
        resume=(--resume)
    else
        for right in "$out"/*/right.safetensors; do
            [ -e "$right" ] && resume=(--reference "$right") && break
        done
    fi
    exec "$kbt" split sweep "$target" --factor $factor --blocks "$blocks" --budget $left --out "$out/$name" \
        "${resume[@]}" "$@" >"$out/$name.txt" 2>>"$out/$name.log"
}

# In a process of its own; `tell` says what came of it.
run() {
    local start=$SECONDS
    (sweep "$@") || echo "$1: exit code $?; the end of $out/$1.log: $(tail -1 "$out/$1.log")"
    took=$((SECONDS - start))
}

count() { "$kbt" split sweep "$target" "$@" --out "$out/unused" --dry-run 2>/dev/null | wc -l; }

points() { cat "$out/$1/journal.jsonl" 2>/dev/null | grep -c '"kind":"point"' || true; }

# A column of a sweep's table: how often each of its words is there.
words() { # NAME COLUMN
    awk -F, -v column="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) c = i; next }
        { n[$c == "" ? "none" : $c]++ } END { for (w in n) printf " %s %d", w, n[w] }' "$out/$1/table.csv"
}

tell() { # NAME SECONDS
    head -1 "$out/$1.txt"
    echo "$1: $(points "$1") points journalled, $2 s; status:$(words "$1" status); speed:$(words "$1" speed)"
    sed -n 's/.*"device_s": *\([0-9.]*\).*/device time \1 s/p' "$out/$1/outcome.json" | head -1
}

compare() { # NAME NAME; a contradiction is a result
    "$kbt" split compare "$1" "$2" || echo "split compare: exit code $?"
}

case ${1:-} in
compile)
    "$kbt" split sweep "$target" --set "KBT_PV_MODE=$2" --out "$out/unused" --dry-run 2>/dev/null |
        sed 's/^[0-9]*  *//' |
        xargs -P "$(nproc)" -L 1 sh -c "env \"\$@\" '$kbt' kernel compile attention -o /dev/null && echo compiled" sh |
        grep -c compiled
    ;;
exhaustive)
    name=$2-exhaustive
    set=(--set "KBT_PV_MODE=$2" --gpus "$3" --exhaustive)
    of=$(count --set "KBT_PV_MODE=$2")
    before=0
    if [ ! -e "$out/$name-before.jsonl" ]; then
        start=$SECONDS
        (sweep "$name" "${set[@]}") &
        while kill -0 $! 2>/dev/null && [ "$(points "$name")" -lt $((of / 3)) ]; do sleep 0.2; done
        # The process that swept has the number of its shell.
        kill -9 $! || echo "it had ended by itself: $(tail -1 "$out/$name.log")"
        wait $! 2>/dev/null || true
        before=$((SECONDS - start))
        cp "$out/$name/journal.jsonl" "$out/$name-before.jsonl"
        echo "killed after $(points "$name") of $of points, $before s"
    fi
    run "$name" "${set[@]}"
    tell "$name" $((before + took))
    # What was in the journal before the kill is where it was, and each point is there once.
    lines=$(wc -l <"$out/$name-before.jsonl")
    cmp <(head -n "$lines" "$out/$name-before.jsonl") <(head -n "$lines" "$out/$name/journal.jsonl")
    once=$(grep -o '"kind":"point","index":[0-9]*' "$out/$name/journal.jsonl" | sort -u | wc -l)
    echo "$once of $of points, each once: $([ "$once" = "$(points "$name")" ] && echo yes || echo no)"
    ;;
tuned)
    run "$2-tuned" --set "KBT_PV_MODE=$2" --gpus "$3"
    tell "$2-tuned" $took
    compare "$out/$2-exhaustive" "$out/$2-tuned"
    ;;
again)
    run "$2-again" --set "KBT_PV_MODE=$2" --gpus "$3" --exhaustive
    tell "$2-again" $took
    compare "$out/$2-exhaustive" "$out/$2-again"
    ;;
equal)
    target=${TARGET:-$here/attention-aa.yaml}
    run equal --gpus "$2" --exhaustive
    tell equal $took
    ;;
scale)
    part=()
    # Each setting to a decision: what is narrowed first would be another set of points on each.
    for knob in ${PART:-KBT_SOFTMAX_REGISTERS=0 KBT_RESCALE_LOG2=0}; do part+=(--set "$knob"); done
    run "$2-one" --set "KBT_PV_MODE=$2" "${part[@]}" --exhaustive --gpus "$3"
    one=$took
    tell "$2-one" $one
    run "$2-two" --set "KBT_PV_MODE=$2" "${part[@]}" --exhaustive --gpus "$3,$4"
    tell "$2-two" $took
    echo "one GPU: $one s, two: $took s; ratio $(awk "BEGIN { print $took / $one }")"
    compare "$out/$2-one" "$out/$2-two"
    ;;
agree)
    compare "$2" "$3"
    ;;
pack)
    (cd "$out" && find . -maxdepth 2 \( -name '*.json' -o -name '*.jsonl' -o -name '*.csv' -o -name '*.txt' -o -name '*.log' \) \
        -print0 | tar --null -T - -czf -) >"$2"
    ;;
*)
    sed -n '2,15p' "$0" | cut -c3-
    exit 2
    ;;
esac
