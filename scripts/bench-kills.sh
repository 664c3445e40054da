#!/usr/bin/env bash
# Kills `penstock bench run` with SIGKILL at random moments and looks whether a mount, a process or a
# temporary file stays. Ends with 1 at the first that does.
#
#   scripts/bench-kills.sh [KILLS [CLIENT,...]]     default: 20 penstock,s3fs,rclone
#
# PENSTOCK names the program (default target/debug/penstock), SEED repeats the moments.
set -euo pipefail

kills=${1:-20}
clients=${2:-penstock,s3fs,rclone}
penstock=$(realpath "${PENSTOCK:-target/debug/penstock}")
# How long cleaning up may take, in tenths of a second.
patience=600
RANDOM=${SEED:-$$}

# Processes whose environment names the directory: all that the benchmark started.
programs() {
    local file found=
    for file in /proc/[0-9]*/environ; do
        if timeout 2 grep -qsF "$1/" "$file" 2>/dev/null; then
            file=${file%/environ}
            found+=" ${file#/proc/}"
        fi
    done
    echo "$found"
}

mounts() { awk -v under="$1/" 'index($5, under) == 1 { print $5 }' /proc/self/mountinfo; }

left() {
    local files
    files=$(ls -A "$1")
    echo "$(mounts "$1")$(programs "$1")${files}"
}

for ((kill = 1; kill <= kills; kill++)); do
    directory=$(mktemp -d)
    TMPDIR=$directory "$penstock" bench run --clients "$clients" --repeat 20 --scale 0.02 \
        >/dev/null 2>&1 &
    bench=$!
    moment=$((RANDOM % 9000 + 20))
    sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
    doing=$(find "$directory" -maxdepth 2 -name 'mount-*' -prune 2>/dev/null | wc -l)
    kill -KILL "$bench"
    wait "$bench" 2>/dev/null || true
    for ((waited = 0; waited < patience; waited++)); do
        [[ -z $(left "$directory") ]] && break
        sleep 0.1
    done
    if [[ -n $(left "$directory") ]]; then
        echo "kill $kill after $moment ms left something:"
        echo "mounts: $(mounts "$directory")"
        echo "processes:$(programs "$directory")"
        find "$directory" -maxdepth 3
        exit 1
    fi
    rmdir "$directory"
    echo "kill $kill after $moment ms, mount directories $doing: nothing is left after $((waited / 10)).$((waited % 10)) s"
done
