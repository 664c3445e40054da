# Sourced by the other scripts: finds and installs the programs that they need.
# shellcheck shell=bash

# Programs that this repository installed for itself live here.
penstock_cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/penstock
export PATH="$penstock_cache/bin:$PATH:${HOME:-/root}/.cargo/bin:${HOME:-/root}/go/bin:/usr/local/go/bin"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
note() { printf '  %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# as_root COMMAND...: runs it as root without ever asking for a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    have sudo && sudo -n "$@"
  fi
}

# update_package_lists: once for a script. Lists that are old, or of which one cannot be had, mostly do.
update_package_lists() {
  [ -z "${package_lists_updated:-}" ] || return 0
  package_lists_updated=1
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || true
}

# install_packages DEBIAN_NAME...: installs system packages; says nothing unless it fails.
install_packages() {
  local log status=0
  log=$(mktemp)
  if have apt-get; then
    {
      update_package_lists
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >"$log" 2>&1 || status=$?
  elif have dnf; then
    as_root dnf install -y -q "$@" >"$log" 2>&1 || status=$?
  else
    status=1
  fi
  [ "$status" = 0 ] || tail -n 3 "$log" >&2
  rm -f "$log"
  return "$status"
}

# how_to_install PACKAGE: what somebody has to do who may.
how_to_install() {
  local command="apt-get install $1"
  have apt-get || ! have dnf || command="dnf install $1"
  if [ "$(id -u)" = 0 ]; then
    printf 'run "%s"' "$command"
  elif have sudo; then
    printf 'run "sudo %s"' "$command"
  else
    printf 'become root (there is no sudo here) and run "%s"' "$command"
  fi
}

# require PROGRAM PACKAGE: the program is there, or gets installed, or we stop and say how.
require() {
  have "$1" && return
  note "installing $2 (for $1)"
  install_packages "$2" || true
  have "$1" || die "$1 is missing and could not be installed: $(how_to_install "$2"), and try again"
}

# want PROGRAM PACKAGE: like require, but tests that need the program are skipped without it.
want() {
  have "$1" && return
  note "installing $2 (for $1)"
  install_packages "$2" || note "$1 is missing; the tests that use it say so and are skipped"
}

require_rust() {
  have cargo || die "cargo is missing: install Rust from https://rustup.rs and try again"
  have cc || require cc gcc
}

require_fuse() {
  require fusermount3 fuse3
  [ -e /dev/fuse ] || die "there is no /dev/fuse: load the kernel module (modprobe fuse), or pass the device into this container"
}

# The server's programs are not on the PATH.
want_postgres() {
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && return
  note "installing postgresql"
  install_packages postgresql || note "postgresql is missing; the tests that use it say so and are skipped"
}

# MinIO is built from source, once, because Debian has no package of it.
want_minio() {
  have minio && return
  if have go; then
    note "building MinIO with go (once, takes some minutes)"
    mkdir -p "$penstock_cache/bin"
    GOBIN="$penstock_cache/bin" go install github.com/minio/minio@latest >/dev/null 2>&1 || true
  fi
  have minio || note "minio is missing and cannot be built; the tests that use it say so and are skipped"
}

# want_crate PROGRAM VERSION USE: builds a crate's program from source, once, because Debian has no package of it.
# What it works on is small, so its compilation is not the one that its author chose for speed.
want_crate() {
  have "$1" && return
  note "building $1 with cargo (once, takes a minute)"
  mkdir -p "$penstock_cache"
  env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo install "$1" --version "$2" --locked --quiet --root "$penstock_cache" >/dev/null 2>&1 || true
  have "$1" || note "$1 is missing and cannot be built; $3 say so and are skipped"
}

# The file system exerciser.
want_fsx() { want_crate fsx 0.3.2 "the tests that use it"; }

# The suite that holds a file system against POSIX.
want_pjdfstest() { want_crate pjdfstest 0.2.2 "the tests that use it"; }

# What looks at the licences, the versions and the advisories of what this is built from.
want_cargo_deny() { want_crate cargo-deny 0.20.2 "the checks that use it"; }

# Debian's python3 cannot make virtual environments without another package.
want_python_environments() {
  python3 -c 'import ensurepip' 2>/dev/null && return
  note "installing python3-venv"
  install_packages python3 python3-venv || note "python3 cannot make virtual environments; the tests with the clouds' SDKs say so and are skipped"
}

# Where cargo puts what it builds.
target_directory() {
  printf '%s' "${CARGO_TARGET_DIR:-$repository/target}"
}
