#!/usr/bin/env bash
# test-lane.sh LOG FAILURES [--when-idle] QUEUE...: runs the test targets of one queue after the other, each when the one
# before has ended. Other lanes may take from the same queues: they are files with a target a line. With `--when-idle`
# a target begins only while half of the processors' time goes unused, which those that begin at any time leave by waiting.
set -euo pipefail
log=$1 failures=$2 is_patient=0
shift 2
if [[ $1 == --when-idle ]]; then
  is_patient=1
  shift
fi

# Seconds for which the processors are watched: a target that began a moment ago shows in them.
sample=3

# take QUEUE: prints its first target and takes it off; fails if there is none.
take() {
  local first
  exec {lock}>>"$1.lock"
  flock "$lock"
  IFS= read -r first <"$1" && sed --in-place 1d "$1" && printf '%s\n' "$first"
}

# processor_times: the ticks of all processors since the machine began, those that went unused and all of them.
processor_times() { awk '$1 == "cpu" { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9 }' /proc/stat; }

# await_idleness QUEUE: waits until half of the processors' time goes unused, or nothing is in the queue.
await_idleness() {
  local unused all unused_before all_before
  read -r unused all < <(processor_times)
  while [[ -s $1 ]]; do
    unused_before=$unused all_before=$all
    sleep "$sample"
    read -r unused all < <(processor_times)
    ((2 * (unused - unused_before) < all - all_before)) || return 0
  done
}

# take_when_idle QUEUE: the same as `take` for those that wait. One at a time, so that each sees what the one before began.
take_when_idle() {
  exec {gate}>>"$1.gate"
  flock "$gate"
  await_idleness "$1"
  take "$1"
}

next() { if ((is_patient)); then take_when_idle "$1"; else take "$1"; fi; }

for queue; do
  while target=$(next "$queue"); do
    bash "$(dirname "${BASH_SOURCE[0]}")/test-target.sh" "$log" "$failures" "$target"
  done
done
