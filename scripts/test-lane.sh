#!/usr/bin/env bash
# test-lane.sh LOG FAILURES QUEUE...: runs the test targets of one queue after the other, each when the one before
# has ended. Other lanes may take from the same queues: they are files with a target a line.
set -euo pipefail
log=$1 failures=$2
shift 2

# take QUEUE: prints its first target and takes it off; fails if there is none.
take() {
  local first
  exec {lock}>>"$1.lock"
  flock "$lock"
  IFS= read -r first <"$1" && sed --in-place 1d "$1" && printf '%s\n' "$first"
}

for queue; do
  while target=$(take "$queue"); do
    bash "$(dirname "${BASH_SOURCE[0]}")/test-target.sh" "$log" "$failures" "$target"
  done
done
