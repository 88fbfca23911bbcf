# The few commands of this repository; `make` alone lists them.

CARGO ?= cargo
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Targets that start servers share the machine's two cores badly.
.NOTPARALLEL:

# A server for the run of a command, in DATABASE_URL; the one that is named there, if one is.
WITH_POSTGRES := $(if $(DATABASE_URL),,$(CARGO) run --quiet --locked -p private-postgres -- run --)

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
# The same random cases each time, so that a red test is the change's; make soak takes others.
test: export PROPTEST_RNG_SEED ?= 20261130
# Most tests wait, for Kubernetes, a database or the end of a lease.
test: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test: prepare ## Run every test that takes less than a minute
	@echo '== tests: all crates, against one Postgres'
	$(WITH_POSTGRES) $(CARGO) test --workspace --locked
	@echo '== tests: the store again, through pgbouncer in transaction mode'
	SLUICE_TEST_PGBOUNCER=1 $(WITH_POSTGRES) $(CARGO) test --workspace --test store --locked
	@if $(MAKE) --dry-run cluster-check >/dev/null 2>&1; then \
	  echo '== tests: a real Kubernetes control plane'; \
	  $(MAKE) --no-print-directory cluster-check; \
	fi
	@echo '== tests: the demo, from nothing to ingested documents and back'
	$(MAKE) --no-print-directory demo ARGS=--once

.PHONY: lint
lint: need-cargo ## Check format, lints and what dependencies bring along
	@echo '== format'
	$(CARGO) fmt --all --check
	@echo '== clippy'
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	  echo '== cargo deny'; $(CARGO) deny check; \
	else \
	  echo '== cargo deny: skipped, it is not installed (cargo install cargo-deny --locked)'; \
	fi

.PHONY: generate
generate: need-cargo ## Write what is made from the code: crds/, their chart, the reference, Argo CD's patch
	$(CARGO) run --quiet --locked -- crds --output-dir crds
	$(CARGO) run --quiet --locked -- crds --output-dir charts/sluice-crds/templates
	SLUICE_WRITE_GENERATED=1 $(CARGO) test --quiet --locked --test crds -- the_reference_says the_patch_has

.PHONY: bench-queue
bench-queue: prepare ## Measure the queue; QUICK=1 does so within a minute
	@echo '== bench: the queue'
	$(CARGO) bench --bench queue --locked

.PHONY: bench-worker
bench-worker: prepare ## Measure the worker; QUICK=1 does so within a minute
	@echo '== bench: the worker'
	$(CARGO) bench --bench worker --locked

.PHONY: bench-pipeline
# The converter is a package of its own, and its library half of all that is compiled: the first build takes ten minutes.
bench-pipeline: prepare cluster-build ## Measure the pipeline; QUICK=1 does so within a minute
	@echo '== bench: the converter, with the release'\''s profile'
	$(CARGO) build --profile bench --package sluice-convert --bins --examples --locked
	@echo '== bench: the pipeline'
	$(CARGO) bench --bench pipeline --locked

.PHONY: bench-operator
bench-operator: prepare cluster-build ## Measure the operator; QUICK=1 takes a tenth of the sizes
	@echo '== bench: the operator'
	$(CARGO) bench --bench operator --locked

.PHONY: demo
# The same build as for the tests, so that nothing is built twice.
demo: prepare cluster-build ## Show Sluice from end to end; DOCS=dir takes other PDFs, ARGS=--once ends by itself
	@echo '== demo: building'
	$(CARGO) build --workspace --locked --bins --example demo
	@"$${CARGO_TARGET_DIR:-target}/debug/examples/demo" $(ARGS)

.PHONY: soak
soak: prepare ## Run the tests that take longer
	@echo '== soak: tests that are ignored otherwise'
	$(CARGO) test --workspace --locked -- --ignored
	@echo '== soak: the model of the queue, with many cases'
	SLUICE_MODEL_CASES=3000 $(CARGO) test --workspace --test store --locked model::

.PHONY: prepare
prepare: need-cargo
	@tests/prepare.sh

.PHONY: need-cargo
need-cargo:
	@command -v $(CARGO) >/dev/null || { echo 'Missing: cargo (Rust 1.95 or newer, see https://rustup.rs)' >&2; exit 1; }

# The control plane of the tests brings its own targets.
-include tests/cluster/targets.mk
