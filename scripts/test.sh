#!/usr/bin/env bash
# `make test`: everything that must hold before a change lands. Tests mount for real.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh

# The tests start servers of their own on loopback; no proxy may stand in between.
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY AWS_CA_BUNDLE

started=$SECONDS
step() { say "[$((SECONDS - started)) s] $*"; }

step "Tools"
require_rust
require_fuse
want fio fio
want attr attr
want s3fs s3fs
want rclone rclone
want fsck.erofs erofs-utils
want e2fsck e2fsprogs
want_minio
want_fsx
want_pjdfstest
want_python_environments
# What tests install for themselves, such as the clouds' own SDKs, outlives this clone.
export PENSTOCK_TEST_CACHE=$penstock_cache

step "Formatting"
cargo fmt --all -- --check

step "Clippy"
cargo clippy --workspace --all-targets -- -D warnings

step "The fuzz targets build"
# They are a workspace of their own. Nothing is linked, so the fuzzer's own library is not built.
CUSTOM_LIBFUZZER_PATH=/nonexistent/libnone.a cargo check --quiet --locked --bins \
  --manifest-path fuzz/Cargo.toml --target-dir "$(target_directory)"

step "Tidy"
cargo xtask tidy

step "Build the binary that the end-to-end tests mount with"
cargo build --package penstock-cli

step "Tests"
log=$(mktemp)
trap 'rm -f "$log" "$log.again"; bash scripts/clean-mounts.sh' EXIT
status=0
cargo test --workspace --no-fail-fast 2>&1 | tee "$log" || status=$?

# How many tests may fail beside the others and pass by themselves. More are no accident.
readonly unsteady_limit=2

# The names of the tests that failed, one a line.
failed_tests() { sed -nE 's/^test (.+) \.\.\. FAILED$/\1/p' "$1" | sort -u; }

# Runs each failed test once more, by itself: whether none of them fails now, and whether they were
# few enough to be called unsteady. A target that failed without naming a test stays failed.
pass_alone() {
  local -a names targets
  mapfile -t names < <(failed_tests "$log")
  mapfile -t targets < <(sed -nE 's/^    `(-p .*)`$/\1/p' "$log")
  ((${#names[@]} > 0 && ${#names[@]} <= unsteady_limit)) || return 1
  local target
  for target in "${targets[@]}"; do
    # shellcheck disable=SC2086 # a target is several words
    cargo test $target -- --exact "${names[@]}" --test-threads 1 2>&1 | tee "$log.again" || return 1
    grep -qE '^test result: ok\. [1-9]' "$log.again" || return 1
  done
}

if ((status != 0)); then
  step "What failed, once more by itself"
  if pass_alone; then
    status=0
    failed_tests "$log" | sed 's/^/UNSTEADY, a fault to find: /'
  fi
fi

step "Result"
awk '/^test result:/ { passed += $4; failed += $6 }
  END { printf "%d passed, %d failed\n", passed, failed }' "$log"
exit "$status"
