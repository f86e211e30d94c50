#!/bin/sh
# Makes synthetic.flac, the spoken sentence that whispyx ships for trying a model without a network.
# Needs the Debian packages espeak-ng and sox (libsox-fmt-base has FLAC). Usage: make_synthetic.sh, in this folder.
set -eu
raw=$(mktemp --suffix=.wav)
trap 'rm -f "$raw"' EXIT
espeak-ng -v en-us -s 140 -w "$raw" "This is a short test on speech recognition."
sox -R -D -G "$raw" -r 16000 -c 1 -b 16 synthetic.flac
