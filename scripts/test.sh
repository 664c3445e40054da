#!/usr/bin/env bash
# `make test`: everything that must hold before a change lands. Tests mount for real.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh
# shellcheck source=scripts/results.sh
source scripts/results.sh

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
want rsync rsync
want fsck.erofs erofs-utils
want e2fsck e2fsprogs
want_minio
want_fsx
want_pjdfstest
want_python_environments
want_cargo_deny
# What tests install for themselves, such as the clouds' own SDKs, outlives this clone.
export PENSTOCK_TEST_CACHE=$penstock_cache
# Tests that cannot run here leave a line in it, and so do the checks below.
PENSTOCK_TEST_SKIPS=$(mktemp)
export PENSTOCK_TEST_SKIPS
trap 'rm -f "$PENSTOCK_TEST_SKIPS"' EXIT
skip_check() {
  note "$1"
  printf 'check: %s\n' "$1" >>"$PENSTOCK_TEST_SKIPS"
}

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

step "Dependencies: licences, sources and duplicates"
if have cargo-deny; then
  cargo deny --locked --log-level error check licenses bans sources
else
  skip_check "cargo-deny is missing: licences, sources and duplicates are not looked at"
fi

step "Dependencies: advisories"
if ! have cargo-deny; then
  skip_check "cargo-deny is missing: advisories are not looked at"
elif timeout 60 cargo deny --log-level error fetch db; then
  cargo deny --locked --offline --log-level error check advisories
else
  skip_check "the advisories at github.com/rustsec/advisory-db cannot be fetched"
fi

step "Build the binary that the end-to-end tests mount with"
cargo build --package penstock-cli

step "Tests"
log=$(mktemp)
trap 'rm -f "$log" "$PENSTOCK_TEST_SKIPS"; bash scripts/clean-mounts.sh' EXIT
status=0
cargo test --workspace --no-fail-fast 2>&1 | tee "$log" || status=$?

# Runs each target that failed once more, its failed tests alone and one after the other. Whoever reads
# on learns whether a failure is steady; the run has failed either way.
repeat_failures() {
  local -a names targets
  mapfile -t names < <(failed_tests "$log")
  mapfile -t targets < <(failed_targets "$log")
  local target
  for target in "${targets[@]}"; do
    # shellcheck disable=SC2086 # a target is several words
    cargo test $target -- --exact "${names[@]}" --test-threads 1 || true
  done
}

if ((status != 0)); then
  step "What failed, once more by itself: this tells whether it is steady and mends nothing"
  repeat_failures
fi

step "Result"
bash scripts/clean-mounts.sh
print_result "$log" "$PENSTOCK_TEST_SKIPS"
exit "$status"
