#!/usr/bin/env bash
# `make soak` runs this too: stores from the package registries, each started on loopback and used in
# every way through real mounts, with boto3 as the other client. The table of what came out is printed,
# and goes to TABLE where that is set. STORES="MinIO Garage" runs some only. docs/stores.md has a run.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"
# shellcheck source=scripts/tools.sh
source scripts/tools.sh
# shellcheck source=scripts/stores/install.sh
source scripts/stores/install.sh
: "${TABLE:=}" "${STORES:=}"
require_rust
require_fuse
want git git
want_python_environments
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY AWS_CA_BUNDLE

say "Stores from the registries"
install_stores
python=$stores/python/bin/python
[ -x "$python" ] || die "boto3 cannot be installed, without which the matrix of stores says nothing"

say "The matrix of stores"
binary=${PENSTOCK:-}
if [ -z "$binary" ]; then
  cargo build --release --quiet --package penstock-cli
  binary=$(target_directory)/release/penstock
fi
arguments=()
for store in $STORES; do arguments+=(--only "$store"); done
[ -z "$TABLE" ] || arguments+=(--table "$TABLE")
PYTHONDONTWRITEBYTECODE=1 PENSTOCK=$binary PENSTOCK_STORES=$stores "$python" scripts/stores/matrix.py "${arguments[@]}"
