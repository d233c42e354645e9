.DEFAULT_GOAL := help
.PHONY: help up test test-fast check lint bench worlds lock clean setup dev system-packages
MAKEFLAGS += --no-print-directory
BIN := .venv/bin

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: setup ## Run a server on this machine
	@exec $(BIN)/cede up --data .cede

test: dev system-packages lint ## Run everything: the checks, then all tests
	@$(BIN)/pytest -q

test-fast: dev ## Run the tests that need no other program and no patience
	@$(BIN)/pytest -q -m 'not browser and not postgres and not slow and not system'

check: dev lint ## Check style, types, imports and house rules
	@$(BIN)/pytest -q tests/tidy

bench: dev ## Measure rates and latencies
	@$(BIN)/python -m benchmarks

worlds: dev ## Search a million states of small worlds for loops and broken invariants
	@$(BIN)/python -m tests.worlds --states 1000000

lock: ## Write both lock files again; make lock UPGRADE=1 takes newer versions
	@scripts/lock $(if $(UPGRADE),--upgrade)

clean: ## Remove what the targets made
	@rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@scripts/setup

dev:
	@scripts/setup --dev

system-packages:
	@scripts/system-packages

# Each tool is silent unless it objects.
lint: dev
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check . || { $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/mypy --strict --no-error-summary src
	@report=$$($(BIN)/lint-imports --no-logo) || { echo "$$report"; exit 1; }
