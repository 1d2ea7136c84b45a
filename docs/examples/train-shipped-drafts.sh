#!/bin/sh
# Trains the four drafts that are shipped for SmolLM2-135M-Instruct, on one GPU, three at a time, from a plain checkout:
#   PYTHONPATH=.:spec:backends:conformance FLASHSPEC_CACHE=CACHE sh docs/examples/train-shipped-drafts.sh DIR [SHARE]
# SHARE scales text and steps (1 by default; 0.02 tries everything out in a minute or two). Stopped, it goes on where it was.
# Data: requests written for this project and beginnings from Python's standard library (PSF), answered by the target.
set -u
out=$1
share=${2:-1}
scaled() { awk "BEGIN { n = int($1 * $share); print (n < $2) ? $2 : n }"; }
train() {
    name=$1 sequences=$2 steps=$3
    shift 3
    python3 -P -m flashspec.training --target smollm2-135m --out "$out/$name" --text "$out/text" --length 256 --batch 64 \
        --sequences "$(scaled "$sequences" 128)" --steps "$(scaled "$steps" 2)" --every "$(scaled 500 2)" --temperature 0.7 \
        --vocab 8192 --store int8 --json "$out/$name.json" "$@" >"$out/$name.log" 2>&1
}
mkdir -p "$out"
eagle="--kind eagle --taps 10,20,30 --width 768"
train code 12288 1600 --data self:code $eagle &
first=$!
train prose 12288 1600 --data self:prose $eagle &
second=$!
train medusa 8192 1200 --data self --kind medusa --heads 4 && train small 8192 2000 --data self --kind model --width 192 --layers 4 --rate 2e-3
last=$?
wait $first && wait $second && exit $last
