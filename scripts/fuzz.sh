#!/usr/bin/env bash
# `make fuzz`: throws made-up bytes at every parser of bytes from outside, for SECONDS_EACH seconds
# each (`make fuzz SECONDS=600`). Stops at the first input that breaks one and says how to run it
# again. Works with the stable compiler: inputs are steered by coverage, without a sanitizer.
#
# What is found worth keeping grows in fuzz/target/corpus; the seeds in fuzz/corpus stay as they
# are.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh
require_rust
: "${SECONDS_EACH:=30}"

if ! command -v cargo-fuzz >/dev/null; then
  say "Installing cargo-fuzz"
  cargo install cargo-fuzz --locked
fi
# Coverage is switched on by flags that only the nightly compiler takes without this.
export RUSTC_BOOTSTRAP=1

for target in $(cargo fuzz list); do
  say "$target: $SECONDS_EACH s"
  grown="fuzz/target/corpus/$target"
  mkdir -p "$grown"
  cargo fuzz run --sanitizer none "$target" "$grown" "fuzz/corpus/$target" -- \
    -max_total_time="$SECONDS_EACH" -max_len=4096 -timeout=10 -rss_limit_mb=1024 \
    -print_final_stats=1 -verbosity=0
done
say "Nothing was found"
