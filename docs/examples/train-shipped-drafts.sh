#!/bin/sh
# Trains the four drafts that are meant to be shipped for SmolLM2-135M-Instruct, on one GPU, from a plain checkout:
#   PYTHONPATH=.:spec:backends:conformance FLASHSPEC_CACHE=CACHE sh docs/examples/train-shipped-drafts.sh DIR [SHARE]
# SHARE scales the steps (1 by default; 0.02 tries everything out in a minute or two). Stopped, it goes on where it was.
# Data: requests written for this project and beginnings from Python's standard library (PSF), answered by the target.
set -eu
out=$1
share=${2:-1}
steps() { awk "BEGIN { n = int($1 * $share); print (n < 1) ? 1 : n }"; }
many() { awk "BEGIN { n = int($1 * $share); print (n < 128) ? 128 : n }"; }
train() {
    name=$1
    shift
    python -P -m flashspec.training --target smollm2-135m --out "$out/$name" --text "$out/text" --length 256 --batch 64 \
        --every 500 --temperature 0.7 --json "$out/$name.json" "$@"
}
train code --kind eagle --data self:code --sequences "$(many 6144)" --steps "$(steps 3000)" --width 768 --vocab 8192
train prose --kind eagle --data self:prose --sequences "$(many 6144)" --steps "$(steps 3000)" --width 768 --vocab 8192
train medusa --kind medusa --data self --sequences "$(many 6144)" --steps "$(steps 3000)" --heads 4 --vocab 8192
train small --kind model --data self --sequences "$(many 6144)" --steps "$(steps 4000)" --width 192 --layers 4 --vocab 8192
