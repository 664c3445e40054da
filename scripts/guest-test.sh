#!/usr/bin/env bash
# `make guest-test`: the tests that need a kernel driver which this machine's kernel may lack, such
# as nbd, ublk or NFS, in a guest with Debian's kernel. Everything is emulated, so neither KVM nor root is
# needed, and the guest sees nothing of this machine: it gets the binaries, with their libraries,
# in memory. PACKAGE names another kernel package, TESTS="NAME ..." some of the tests, LIMIT=SECONDS how long they
# may take together, KEEP=1 keeps what the guest boots from. What PENSTOCK_TEST_... variables say holds in the guest.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh

# What the guest loads, with what that needs, in this order. The tests of what is missing come before
# the last two.
readonly modules=(crc32c_generic fuse loop erofs ext4 nfsv3 nbd ublk_drv)
readonly guest_memory=2G guest_processors=2
# Seconds until a guest that hangs is ended.
readonly limit=${LIMIT:-3000}

require_rust
require qemu-system-x86_64 qemu-system-x86
require busybox busybox-static
require cpio cpio
require xz xz-utils
require dpkg-deb dpkg
want_fsx
want_pjdfstest
have apt-get || die "the guest's kernel is a Debian package, and there is no apt-get here"

folder=$(mktemp -d)
[ -n "${KEEP:-}" ] && note "keeping $folder" || trap 'rm -rf "$folder"' EXIT

# The package with the kernel itself; the one without a version only depends on it.
kernel_package() {
  local meta
  for meta in ${PACKAGE:-linux-image-6.12-amd64 linux-image-amd64}; do
    apt-cache depends "$meta" 2>/dev/null | sed -nE 's/^ +Depends: (linux-image-[0-9].*)$/\1/p' | head -1
  done | head -1
}

# Unpacks the kernel, once; prints where it is.
fetch_kernel() {
  local package place
  package=$(kernel_package)
  if [ -z "$package" ]; then
    as_root apt-get update -qq || true
    package=$(kernel_package)
  fi
  [ -n "$package" ] || die "no package ${PACKAGE:-linux-image-amd64} is known to apt-get"
  place=$penstock_cache/guest/$package
  if [ ! -d "$place/boot" ]; then
    note "fetching $package (once, 100 MB)" >&2
    mkdir -p "$folder/kernel"
    (cd "$folder" && apt-get download -qq "$package" >&2) || die "$package cannot be fetched"
    dpkg-deb -x "$folder/$package"*.deb "$folder/kernel"
    mkdir -p "$(dirname "$place")"
    rm -rf "$place"
    cp -r "$folder/kernel" "$place"
    rm -rf "$folder/kernel" "$folder"/*.deb
  fi
  printf '%s' "$place"
}

# add_module NAME: puts a module and what it needs into the guest, in the order of loading.
# What is built into the kernel has no file.
declare -A added=()
add_module() {
  local file need
  [ -z "${added[$1]:-}" ] || return 0
  added[$1]=1
  file=$(find "$kernel" -name "$1.ko*" -print -quit)
  [ -n "$file" ] || file=$(find "$kernel" -name "${1//_/-}.ko*" -print -quit)
  [ -n "$file" ] || return 0
  case $file in
    *.xz) xz -dc "$file" >"$guest/modules/$1.ko" ;;
    *) cp "$file" "$guest/modules/$1.ko" ;;
  esac
  for need in $(tr '\0' '\n' <"$guest/modules/$1.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
    add_module "$need"
  done
  printf '%s\n' "$1" >>"$guest/modules/order"
}

# add_program FILE: puts a program and its libraries into the guest, without what debuggers want.
add_program() {
  local library
  cp "$1" "$guest/bin/"
  ! have strip || strip "$guest/bin/$(basename "$1")" || true
  for library in $(ldd "$1" | grep -oE '/[^ ]+'); do
    mkdir -p "$guest$(dirname "$library")"
    [ -e "$guest$library" ] || cp -L "$library" "$guest$library"
  done
}

# test_program NAME: the executable of a test target, built first. The name of a crate stands for its
# own tests, of which those of devices that are served run.
test_program() {
  local target=(--package penstock-tests --test "$1")
  [[ $1 != penstock_* ]] || target=(--package "${1//_/-}" --lib)
  cargo test "${target[@]}" --no-run --quiet --message-format=json |
    sed -nE "s/.*\"executable\":\"([^\"]*\/$1-[0-9a-f]+)\".*/\1/p" | tail -1
}

write_init() {
  cat >"$guest/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TMPDIR=/tmp PENSTOCK_TEST_BINARY=/bin/penstock RUST_BACKTRACE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
. /environment
ln -s /proc/self/fd /dev/fd
ip link set lo up
dmesg -n 1
echo "guest: Linux $(uname -r), up for $(cut -d' ' -f1 /proc/uptime) s"
status=0
load() { [ ! -e "/modules/$1.ko" ] || insmod "/modules/$1.ko" || status=1; }
refused() {
  mkdir -p /tmp/bucket /tmp/mnt
  message=$(env -u PENSTOCK_TEST_BINARY penstock stream "--transport=$1" file:///tmp/bucket /tmp/mnt 2>&1) && status=1
  echo "guest: without it, $1 says: $message"
  case $message in *"modprobe $2"*) ;; *) status=1 ;; esac
}
for name in $(grep -vE '^(nbd|ublk_drv)$' /modules/order); do load "$name"; done
refused nbd nbd
refused ublk ublk_drv
load nbd
load ublk_drv
for program in $(cat /programs); do
  case $program in
    penstock_*) only=served_tests ;;
    tools_tree-* | pjdfstest-* | fsx-*) only=through_nfs ;;
    *) only= ;;
  esac
  "/bin/$program" --test-threads 1 --nocapture $only || status=1
done
left=$(cat /sys/block/nbd*/pid /sys/block/loop*/loop/backing_file 2>/dev/null
  ls /sys/class/ublk-char 2>/dev/null)
[ -z "$left" ] || { echo "guest: devices are left: $left"; status=1; }
dmesg | grep -E 'BUG|WARNING|Oops|blocked for more' && status=1
[ "$status" = 0 ] || dmesg | tail -n 60
echo "guest: up for $(cut -d' ' -f1 /proc/uptime) s"
echo "guest: status $status"
poweroff -f
INIT
  chmod +x "$guest/init"
}

say "Kernel"
kernel=$(fetch_kernel)
image=$(find "$kernel/boot" -name 'vmlinuz-*' -print -quit)
note "$(basename "$image")"

say "Build"
cargo build --quiet --package penstock-cli
read -ra tests <<<"${TESTS:-penstock_block stream_nbd stream_ublk nfs tools_tree pjdfstest fsx}"

say "Guest"
guest=$folder/guest
mkdir -p "$guest"/{bin,dev,proc,sys,tmp,run,root,modules,var/cache,etc}
cp "$(command -v busybox)" "$guest/bin/busybox"
for module in "${modules[@]}"; do add_module "$module"; done
add_program "$(target_directory)/debug/penstock"
for suite in pjdfstest fsx; do
  ! have "$suite" || add_program "$(command -v "$suite")"
done
printf '%s:x:%d:%d::/:/bin/sh\n' root 0 0 daemon 1 1 nobody 65534 65534 >"$guest/etc/passwd"
printf '%s:x:%d:\n' root 0 daemon 1 nogroup 65534 >"$guest/etc/group"
export -p | grep '^declare -x PENSTOCK_TEST_.*=' | sed 's/^declare -x/export/' >"$guest/environment" || true
for test in "${tests[@]}"; do
  program=$(test_program "$test")
  [ -n "$program" ] || die "the test $test does not build"
  add_program "$program"
  basename "$program" >>"$guest/programs"
done
write_init
(cd "$guest" && find . | cpio --quiet -o -H newc) >"$folder/initramfs"
note "$(du -h "$folder/initramfs" | cut -f1) of programs"

# One thread emulates both processors: with one each, the emulator (7.2) trips over the kernel
# changing its own code, once in a while, and the guest dies of an `int3` that is not there any more.
# The time stamp counter is measured at the start, and wrongly on a busy machine.
timeout "$limit" qemu-system-x86_64 -accel tcg,thread=single -smp "$guest_processors" \
  -m "$guest_memory" -nographic -no-reboot -nic none -kernel "$image" -initrd "$folder/initramfs" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=unstable clocksource=hpet" \
  </dev/null | tee "$folder/log" || die "the guest did not end within $limit s"
grep -q '^guest: status 0' "$folder/log" || die "a test in the guest failed, or the guest did"
