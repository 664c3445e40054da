#!/usr/bin/env bash
# `make demo`: from a fresh clone to a mounted bucket.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh

bucket=$repository/demo/bucket
mountpoint=$repository/demo/mnt

say "1. What is needed"
require_rust
require_fuse
note "a Rust toolchain, a C compiler and fuse3 are here"

say "2. Build (the first time takes some minutes)"
cargo build --release --package penstock-cli
penstock=$(target_directory)/release/penstock

say "3. A sample bucket: a local directory, $bucket"
if grep -qsF " $mountpoint " /proc/self/mounts; then
  "$penstock" umount "$mountpoint"
fi
mkdir -p "$bucket/pictures" "$mountpoint"
printf 'Hello from a bucket.\n' >"$bucket/hello.txt"
printf 'A folder is a common prefix of keys.\n' >"$bucket/pictures/readme.txt"
[ -e "$bucket/large.bin" ] || head -c 64M /dev/urandom >"$bucket/large.bin"
note "hello.txt, pictures/readme.txt, large.bin"

say "4. Mount it: penstock mount file://$bucket $mountpoint"
"$penstock" mount "file://$bucket" "$mountpoint"

show() {
  printf '$ %s\n' "$*"
  "$@"
}
say "5. Use it"
show ls -l "$mountpoint"
show cat "$mountpoint/hello.txt"
show dd if="$mountpoint/large.bin" of=/dev/null bs=1M status=none
printf '$ echo "Written through the mount." > %s\n' "$mountpoint/written.txt"
printf 'Written through the mount.\n' >"$mountpoint/written.txt"
show cat "$mountpoint/written.txt"

say "It works. What next?"
cat <<END
  It stays mounted: look around in $mountpoint

  Unmount it:       $penstock umount $mountpoint
  Mount your own:   $penstock mount s3://BUCKET/PREFIX  MOUNTPOINT
                    $penstock mount oss://BUCKET/PREFIX MOUNTPOINT
                    $penstock mount file:///DIRECTORY   MOUNTPOINT
  Look first:       $penstock check s3://BUCKET
  All options:      $penstock mount --help
END
