# A real Kubernetes for tests, demo and benchmarks. Included by the Makefile at the root.

CLUSTER := tests/cluster/build.sh

.PHONY: cluster-build
cluster-build: ## Build the cluster's binary and keep it; K8S=1.34|1.35|1.36 picks the minor
	@$(CLUSTER)

# Before tests start that need it: a first build beside them would take the time that they measure.
test: cluster-build

.PHONY: cluster
cluster: ## Run a real Kubernetes in the foreground; Ctrl-C removes everything
	@cluster=$$($(CLUSTER)) && exec "$$cluster" up --foreground

.PHONY: cluster-check
cluster-check: ## Prove that the cluster is what it says, and measure it
	@cluster=$$($(CLUSTER)) && exec "$$cluster" check

.PHONY: cluster-test
cluster-test: ## Check and test the cluster's own code
	@cd tests/cluster && go vet ./... && go test ./...
