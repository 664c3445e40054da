#!/usr/bin/env bash
# `make install`: the release binary, the names under which it is parcp, partar and parrm, manual pages and completions,
# below PREFIX, or below DESTDIR for who makes a package. PROGRAM is another binary than the one that `make build` made.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/tools.sh
source "$repository/scripts/tools.sh"
: "${PREFIX:=/usr/local}" "${DESTDIR:=}"

# Root, who installs, may have no toolchain and no business to build.
program=${PROGRAM:-${CARGO_TARGET_DIR:-$repository/target}/release/penstock}
[ -x "$program" ] || die "there is no $program: run \"make build\" first"
target=$DESTDIR$PREFIX

# page FILE WORD...: what the program prints for these words.
page() {
  local file=$target/share/$1
  install -d "$(dirname "$file")"
  "$program" "${@:2}" >"$file"
}

install -D --mode 755 "$program" "$target/bin/penstock"
page man/man1/penstock.1 man
for command in cp tar rm; do
  ln -sf penstock "$target/bin/par$command"
  page "man/man1/par$command.1" man "$command"
done
for command in mount stream serve fileset; do
  page "man/man1/penstock-$command.1" man "$command"
done
page bash-completion/completions/penstock completions bash
page zsh/site-functions/_penstock completions zsh
page fish/vendor_completions.d/penstock.fish completions fish
say "Installed penstock, parcp, partar and parrm in $target/bin"
