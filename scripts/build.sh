#!/usr/bin/env bash
# `make build` and `make bench`: the release binary, stripped, and beside it what a debugger, a profiler and
# the backtrace of a panic need of it.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh

require_rust
cargo build --release --package penstock-cli "$@"

cd "$(target_directory)/release"
# Cargo links anew only after a change, so the binary may have been stripped before.
if [[ $(objdump --section-headers penstock) == *.debug_line* ]]; then
  objcopy --only-keep-debug penstock penstock.debug
  # Cargo's own copy in deps/ is a hard link to this file, and keeps its symbols.
  objcopy --strip-all --remove-section .gnu_debuglink --add-gnu-debuglink penstock.debug penstock penstock.stripped
  mv penstock.stripped penstock
fi
