#!/usr/bin/env bash
# `make soak`: mixed load on real mounts while the server fails in every way, for DURATION
# (`make soak DURATION=15m`), half of it on S3 and half on OSS, with memory enough and with little of
# everything in each mode. SEED, which is any unless it is given, makes another run: each round of at
# most a minute prints its own, from which what is done and what goes wrong in it follow. Then the
# matrix of stores (scripts/stores.sh) runs: stores from the package registries, each used in every
# way. Then xfstests run on filesets, where they were built (scripts/xfstests.sh). Then a stream volume of 100,000 files is compared file by file through each way to mount it, a tree of 100,000 entries goes
# through parcp and partar in a directory, on a fileset and on a staged mount, and
# the file system exerciser runs on staged mounts: OPERATIONS while all is well, a twentieth of them
# while the server fails, and a twentieth with little of everything, the store failing and not. In the
# end mounts that are short are killed, one round for each ten seconds of DURATION and at least one,
# in BAD_DAYS rounds something happens to one of three machines, its database or its store, and
# SIMULATIONS filesets live through crashes and a failing network in virtual time.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh
: "${DURATION:=5m}" "${SEED:=$RANDOM}" "${OPERATIONS:=1000000}" "${KILLS:=500}" "${BAD_DAYS:=200}" "${SIMULATIONS:=10000}"

case "$DURATION" in
  *[!0-9smh]* | "") die "DURATION=$DURATION is no duration: try 90s, 15m or 2h" ;;
  *s) seconds=${DURATION%s} ;;
  *m) seconds=$((${DURATION%m} * 60)) ;;
  *h) seconds=$((${DURATION%h} * 3600)) ;;
  *) seconds=$DURATION ;;
esac
case "$OPERATIONS" in
  *[!0-9]* | "") die "OPERATIONS=$OPERATIONS is no number" ;;
esac
case "$KILLS" in
  *[!0-9]* | "") die "KILLS=$KILLS is no number" ;;
esac
case "$BAD_DAYS" in
  *[!0-9]* | "") die "BAD_DAYS=$BAD_DAYS is no number" ;;
esac
case "$SIMULATIONS" in
  *[!0-9]* | "") die "SIMULATIONS=$SIMULATIONS is no number" ;;
esac
short_kills=$((seconds < 10 ? 1 : seconds / 10))
require_rust
require_fuse
want_fsx
want faketime faketime
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY

say "$seconds s of load, SEED=$SEED"
# A release build, so that what limits it is the mount and not the test's own server.
trap 'bash scripts/clean-mounts.sh' EXIT
PENSTOCK_TEST_SOAK_SECONDS=$seconds PENSTOCK_TEST_SOAK_SEED=$SEED \
  cargo test --release --package penstock-tests --test soak -- --nocapture

bash scripts/stores.sh

bash scripts/xfstests.sh

say "A stream volume of 100,000 files"
PENSTOCK_TEST_TREE_FILES=100000 \
  cargo test --release --package penstock-tests --test stream_tree -- --nocapture

say "A tree of 100,000 entries through parcp and partar, SEED=$SEED"
PENSTOCK_TEST_TOOLS_ENTRIES=100000 PENSTOCK_TEST_TOOLS_SEED=$SEED \
  cargo test --release --package penstock-tests --test tools_tree -- --nocapture --test-threads 1

say "$OPERATIONS operations of fsx, SEED=$SEED"
PENSTOCK_TEST_FSX_OPERATIONS=$OPERATIONS PENSTOCK_TEST_FSX_SEED=$SEED \
  PENSTOCK_TEST_FSX_FAILING_OPERATIONS=$((OPERATIONS / 20)) \
  PENSTOCK_TEST_FSX_SHORT_OPERATIONS=$((OPERATIONS / 20)) \
  cargo test --release --package penstock-tests --test fsx -- --nocapture

say "$short_kills rounds of kills on short mounts, SEED=$SEED"
PENSTOCK_TEST_SHORT_KILL_ROUNDS=$short_kills PENSTOCK_TEST_SHORT_KILL_SEED=$SEED \
  cargo test --release --package penstock-tests --test short_kills -- --nocapture

say "$KILLS kills, SEED=$SEED"
PENSTOCK_TEST_KILL_ROUNDS=$KILLS PENSTOCK_TEST_KILL_SEED=$SEED \
  cargo test --release --package penstock-tests --test kills -- --nocapture

say "$BAD_DAYS bad days of three machines on one file system, SEED=$SEED"
PENSTOCK_TEST_MACHINES_ROUNDS=$BAD_DAYS PENSTOCK_TEST_MACHINES_SEED=$SEED \
  cargo test --release --package penstock-tests --test machines -- --nocapture

say "$SIMULATIONS simulated filesets, SEED=$SEED"
PENSTOCK_TEST_SIMULATION_SEEDS=$SIMULATIONS PENSTOCK_TEST_SIMULATION_SEED=$SEED \
  cargo test --release --package penstock-fileset --test simulation -- --nocapture
