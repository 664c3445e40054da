#!/usr/bin/env bash
# `make clean-mounts`: lets go of Penstock mounts below this clone and below the tests' temporary
# directories. Mounts anywhere else are yours and stay.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

while read -r _ mountpoint kind _; do
  case "$kind" in fuse.penstock | fuse | tmpfs | erofs | ext4) ;; *) continue ;; esac
  case "$mountpoint" in
    "$repository"/* | "${TMPDIR:-/tmp}"/penstock-test-*)
      echo "unmounting $mountpoint"
      # A test that was killed may have left its disk frozen, and whoever touches that would wait for ever.
      [ "$kind" != ext4 ] || timeout 10 fsfreeze --unfreeze "$mountpoint" 2>/dev/null || true
      umount -l "$mountpoint" 2>/dev/null || fusermount3 -u -z "$mountpoint" || true
      ;;
  esac
done </proc/self/mounts
