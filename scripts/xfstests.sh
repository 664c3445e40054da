#!/usr/bin/env bash
# `make soak` runs this too: xfstests' generic tests on two filesets, each in a directory as its store. xfstests are no part of
# this project: they run where their own `make install` put them, or where XFSTESTS says that they were built, and are counted
# as skipped elsewhere. XFSTESTS_GROUP=auto takes the long ones too; XFSTESTS_TESTS="generic/001 generic/451" some only.
# Each test in scripts/xfstests/excluded is left out for the reason that stands there.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh
: "${XFSTESTS:=/var/lib/xfstests}" "${XFSTESTS_GROUP:=quick}" "${XFSTESTS_TESTS:=}" "${XFSTESTS_PATIENCE:=10m}"
require_rust
require_fuse
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY

say "xfstests on filesets"
if [ ! -x "$XFSTESTS/check" ]; then
  note "xfstests are not in $XFSTESTS: build them from their source and name the directory with XFSTESTS=DIRECTORY"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
[ "$(id -u)" = 0 ] || die "xfstests need root"
helper=/sbin/mount.fuse.penstock
[ ! -e "$helper" ] || die "$helper is there already: this script puts its own in its place, so move it away first"
for user in fsgqa fsgqa2 123456-fsgqa; do
  id "$user" >/dev/null 2>&1 || die "xfstests need the user $user: useradd --badname -m $user"
done
binary=${PENSTOCK:-}
if [ -z "$binary" ]; then
  cargo build --release --quiet --package penstock-cli
  binary=$(target_directory)/release/penstock
fi

work=$(mktemp -d)
# Tests run as other users, too.
chmod 755 "$work"
clean_up() {
  umount --quiet "$work/scratch" "$work/test" || umount --quiet --lazy "$work/scratch" "$work/test" || true
  rm -rf --one-file-system "$work" "$helper"
}
trap clean_up EXIT
mkdir -p "$work"/{bin,test,scratch,filesets,results,store/test,store/scratch}
# mount(8) looks for it here alone, and hands on neither PATH nor other variables.
printf '#!/bin/sh\nPENSTOCK_FILESET_DIR=%s exec %s mount "$@"\n' "$work/filesets" "$(realpath "$binary")" >"$helper"
chmod +x "$helper"
# xfstests compare the type that df tells with the one that they were told, which has no second part.
printf '#!/bin/sh\n%s "$@" | sed s/fuse.penstock/fuse/\n' "$(command -v df)" >"$work/bin/df"
chmod +x "$work/bin/df"
export PATH="$work/bin:$PATH"
for name in test scratch; do
  PENSTOCK_FILESET_DIR="$work/filesets" "$binary" fileset create "xfstests-$name" --store "file://$work/store/$name" >/dev/null
done
words="-oallow_other,suid=on,dev=on,atime_mode=relatime"
cat >"$work/config" <<CONFIG
export FSTYP=fuse FUSE_SUBTYP=.penstock RESULT_BASE=$work/results
export TEST_DEV=fileset://xfstests-test TEST_DIR=$work/test TEST_FS_MOUNT_OPTS="$words"
export SCRATCH_DEV=fileset://xfstests-scratch SCRATCH_MNT=$work/scratch MOUNT_OPTIONS="$words"
CONFIG
export HOST_OPTIONS="$work/config"

# excluded NAME: why a test is left out, if it is.
excluded() {
  sed -nE "s|^$1 +(.*)|\1|p" scripts/xfstests/excluded
  case $1 in
    # They lower the limit of a file's size and raise it again.
    generic/394 | generic/564) (ulimit -S -f 100000 -H -f 100000 && ulimit -f 200000) 2>/dev/null || echo "root may not raise limits here" ;;
  esac
}
# chosen: the tests of the group, one a line.
chosen() {
  if [ -n "$XFSTESTS_TESTS" ]; then
    tr ' ' '\n' <<<"$XFSTESTS_TESTS"
  else
    awk -v group="$XFSTESTS_GROUP" '/^[0-9]/ && (" " $0 " ") ~ " " group " " { print "generic/" $1 }' \
      "$XFSTESTS/tests/generic/group.list"
  fi
}

passed=0 failed=0 skipped=0 inapplicable=0
while IFS= read -r name; do
  reason=$(excluded "$name")
  if [ -n "$reason" ]; then
    note "skipped: $name: $reason"
    skipped=$((skipped + 1))
    continue
  fi
  status=0
  (cd "$XFSTESTS" && timeout --kill-after 10 "$XFSTESTS_PATIENCE" ./check "$name") >"$work/said" 2>&1 </dev/null || status=$?
  if grep -q '^Not run' "$work/said"; then
    inapplicable=$((inapplicable + 1))
  elif [ "$status" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    note "failed: $name (exit status $status)"
    tail -n 20 "$work/said"
    umount --quiet --lazy "$work/scratch" "$work/test" || true
  fi
done < <(chosen)
note "$inapplicable more do not apply to a file system that has no block device, reflinks or project quotas for them"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
