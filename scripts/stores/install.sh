# Sourced by scripts/stores.sh: installs the stores of the matrix from the package registries, each
# once, into the cache. What cannot be had is said, and left out by the matrix by its name.
# shellcheck shell=bash

stores=$penstock_cache/stores

# How long one store may take to install; building Garage takes longest.
: "${INSTALL_SECONDS:=2400}"

# install_store NAME PROBE COMMAND...: runs COMMAND unless PROBE is there already.
install_store() {
  local name=$1 probe=$2 log=$stores/$1.log
  shift 2
  if [ -e "$probe" ]; then return; fi
  note "installing $name"
  timeout "$INSTALL_SECONDS" "$@" >"$log" 2>&1 || true
  [ -e "$probe" ] || note "$name cannot be installed: $(tail -n 1 "$log")"
}

go_store() { GOBIN=$stores/bin install_store "$1" "$stores/bin/$2" go install "$3"; }

cargo_store() {
  local name=$1 program=$2
  shift 2
  install_store "$name" "$stores/bin/$program" cargo install --locked --quiet --root "$stores" "$@"
}

# maven_store NAME FILE GROUP ARTIFACT VERSION [CLASSIFIER]
maven_store() {
  local name=$1 file=$2 artifact=$3:$4:$5:jar${6:+:$6}
  install_store "$name" "$stores/$file" mvn --batch-mode --quiet \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
    "-Dartifact=$artifact" "-DoutputDirectory=$stores" -Dmdep.stripVersion=true -Dmdep.stripClassifier=false
}

install_stores() {
  mkdir -p "$stores/bin"
  install_store boto3 "$stores/python/bin/moto_server" \
    bash -c 'python3 -m venv "$0" && "$0/bin/pip" install --quiet "$@"' "$stores/python" \
    'boto3==1.43.11' 'moto[s3,server]==5.2.5'
  if have go; then
    go_store MinIO minio github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
    go_store versitygw versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0
    go_store gofakes3 gofakes3 github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0
    go_store rclone rclone github.com/rclone/rclone@v1.76.0
  fi
  if have npm; then
    install_store s3rver "$stores/node_modules/s3rver/bin/s3rver.js" \
      npm install --silent --no-audit --no-fund --prefix "$stores" s3rver@3.7.1
  fi
  if have mvn && have java; then
    maven_store S3Mock s3mock-exec.jar com.adobe.testing s3mock 4.7.0 exec
    maven_store S3Proxy s3proxy-jar-with-dependencies.jar org.gaul s3proxy 2.6.0 jar-with-dependencies
  fi
  cargo_store s3s-fs s3s-fs s3s-fs --version 0.14.1 --features binary
  cargo_store Garage garage garage --version 2.5.0 --no-default-features --features sqlite,bundled-libs
}
