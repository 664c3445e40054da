#!/usr/bin/env bash
# `make test`: everything that must hold before a change lands. Tests mount for real.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh
# shellcheck source=scripts/results.sh
source scripts/results.sh

# Most tests wait, for a store or for a lease, so more of a target run at once than there are processors.
processors=$(nproc)
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((processors > 4 ? processors : 4))}

# The tests start servers of their own on loopback; no proxy may stand in between.
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY AWS_CA_BUNDLE

started=$SECONDS
step() { say "[$((SECONDS - started)) s] $*"; }

step "Tools"
require_rust
require_fuse
want fio fio
want attr attr
want setfacl acl
want bsdtar libarchive-tools
want s3fs s3fs
want rclone rclone
want rsync rsync
want nfs-ls libnfs-utils
want rpcinfo rpcbind
want showmount nfs-common
want fsck.erofs erofs-utils
want e2fsck e2fsprogs
want faketime faketime
want_postgres
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
cargo clippy --workspace --all-targets --features penstock-cli/bench -- -D warnings
cargo clippy --package penstock-cli -- -D warnings

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

step "Build the tests, and the binary that the end-to-end tests mount with"
built=$(mktemp -d)
trap 'rm -rf "$built" "$PENSTOCK_TEST_SKIPS"; bash scripts/clean-mounts.sh' EXIT
cargo test --workspace --features penstock-cli/bench --no-run --message-format json-render-diagnostics >"$built/artifacts"

# Cargo would build it once more, with the features that it has without the other crates, and every target ask.
PENSTOCK_TEST_BINARY=$(built_program "$built/artifacts" penstock)
export PENSTOCK_TEST_BINARY

step "Tests"
log=$built/log failures=$built/failures
# In lanes, for most tests wait: for a store that is slow or away, or for a mount. One more fills what the others leave.
# `test_queue` says which targets cannot run beside which.
for queue in alone volumes any; do
  test_targets "$built/artifacts" | test_queue "$queue" >"$built/$queue"
done
run_lane() { xargs --max-lines=1 --max-procs 0 bash scripts/test-lane.sh "$log" "$failures"; }
run_lane <<<"$built/alone"
# Who asks for so many at once means no more.
patient=1
[[ -z ${TARGETS_AT_ONCE:-} ]] || patient=0
{
  printf '%s\n' "$built/volumes $built/any"
  for ((lane = 1; lane < ${TARGETS_AT_ONCE:-2}; lane++)); do printf '%s\n' "$built/any"; done
  for ((lane = 0; lane < ${TARGETS_WHEN_IDLE:-$patient}; lane++)); do printf '%s\n' "--when-idle $built/any"; done
} | run_lane
status=0
if [[ -s $built/volumes || -s $built/any ]]; then
  note "not all test targets ran: a lane could not take one, perhaps as the disk is full"
  status=1
fi
timeout --kill-after 10 "$target_patience" cargo test --workspace --doc 2>&1 | tee -a "$log" || status=$?

# Runs the failed tests of each target that failed once more, alone and one after the other. Whoever
# reads on learns whether a failure is steady; the run has failed either way.
repeat_failures() {
  local -a names
  mapfile -t names < <(failed_tests "$log")
  local directory program
  while IFS=$'\t' read -r directory program; do
    (cd "$directory" && timeout --kill-after 10 "$target_patience" "$program" --exact "${names[@]}" --test-threads 1) || true
  done <"$failures"
}

if [[ -e $failures ]]; then
  status=1
  step "What failed, once more by itself: this tells whether it is steady and mends nothing"
  repeat_failures
fi

step "Result"
bash scripts/clean-mounts.sh
print_result "$log" "$PENSTOCK_TEST_SKIPS" || status=1
exit "$status"
