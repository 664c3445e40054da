# Every target is one command that works on a fresh clone; the scripts say what they do.

.DEFAULT_GOAL := help
.PHONY: help demo build bench install test guest-test tidy fuzz soak clean-mounts

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: ## build, make a sample bucket in ./demo/bucket and mount it at ./demo/mnt
	@bash scripts/demo.sh

build: ## the release binary, target/release/penstock, and its symbols beside it in penstock.debug
	@bash scripts/build.sh

bench: ## the same with `penstock bench` and the development server that it measures against
	@bash scripts/build.sh --features bench

install: ## after `make build`: penstock, parcp, partar and parrm, manual and completions below PREFIX=/usr/local
	@bash scripts/install.sh

test: ## everything that must hold before a change lands, with real mounts
	@bash scripts/test.sh

guest-test: ## the tests that need a driver such as nbd, in an emulated guest with Debian's kernel
	@bash scripts/guest-test.sh

tidy: ## formatting, clippy and the rules of the house, without tests
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --features penstock-cli/bench,penstock-cli/tikv -- -D warnings
	cargo clippy --package penstock-cli -- -D warnings
	cargo xtask tidy

fuzz: SECONDS ?= 30
fuzz: ## throw made-up bytes at every parser, SECONDS=30 each
	@SECONDS_EACH=$(SECONDS) bash scripts/fuzz.sh

soak: ## mixed load while the server fails in every way, DURATION=5m; then OPERATIONS=1000000 of fsx
	@bash scripts/soak.sh

clean-mounts: ## unmount what a stopped demo or test left mounted
	@bash scripts/clean-mounts.sh
