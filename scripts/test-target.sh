#!/usr/bin/env bash
# test-target.sh LOG FAILURES TARGET: runs a test target, a line of `test_targets`, as cargo does. Names it when
# it begins; when it has ended, or its time is up, prints and adds to LOG what it said, in one piece, for several
# run at once. One that fails is a line in FAILURES.
set -euo pipefail
# shellcheck source=scripts/results.sh
source "$(dirname "${BASH_SOURCE[0]}")/results.sh"
log=$1 failures=$2 target=$3
IFS=$'\t' read -r directory program <<<"$target"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
printf '%s begins\n' "$(target_name "$program")"
status=0 began=$SECONDS
(cd "$directory" && exec timeout --kill-after 10 "$target_patience" "$program" >"$output" 2>&1) &
running=$!
# `timeout` has a process group of its own, which Ctrl-C does not reach.
trap 'kill "$running"' INT TERM
wait "$running" || status=$?
times >"$output.times"
cost=$(tail -n 1 "$output.times"; rm "$output.times")
exec {lock}>>"$log"
flock "$lock"
{
  printf '     Running %s (%s)\n' "${directory##*/}" "$program"
  cat "$output"
  printf '     Took %d s; processor %s\n' $((SECONDS - began)) "$cost"
  if was_too_late "$status"; then
    printf '\nerror: %s was ended after %s\n' "$(target_name "$program")" "$target_patience"
  fi
} | tee -a "$log"
if ((status != 0)); then
  printf '%s\n' "$target" >>"$failures"
fi
