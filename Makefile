.DEFAULT_GOAL := help
.PHONY: help up demo test test-fast test-zenml check lint bench bench-peers scale damage worlds regret sim soak soak-postgres slurm storm storm-postgres aged stall properties screenshots page-load lock clean setup dev zenml system-packages
MAKEFLAGS += --no-print-directory
BIN := .venv/bin
# Tests start hundreds of Pythons: what one has compiled the others need not, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: setup ## Run a server on this machine
	@exec $(BIN)/cede up --data .cede

demo: setup ## Show three agents, a gang and a preemption on this machine
	@exec $(BIN)/python examples/demo/demo.py

test: dev zenml system-packages lint ## Run everything: the checks, then all tests
	@scripts/test

test-fast: dev ## Run the tests that need no other program and no patience: 2 minutes on 2 cores
	@scripts/test --fast

test-zenml: dev ## Run pipelines on real ZenML servers, and say how long they wait
	@scripts/setup --zenml
	@$(BIN)/mypy --strict --no-error-summary --follow-imports silent --python-executable .venv-zenml/bin/python src/cede/integrations
	@$(BIN)/pytest -q -s tests/zenml

check: dev lint ## Check style, types, imports and house rules
	@$(BIN)/pytest -q tests/tidy

bench: dev ## Measure rates and latencies
	@$(BIN)/python -m benchmarks

bench-peers: dev system-packages ## Give the same work to cede, Slurm, HyperQueue, Ray, task-spooler and a queue in PostgreSQL; write docs/performance.md
	@scripts/peers
	@$(BIN)/python -m benchmarks.peers --page docs/performance.md $(if $(ROUNDS),--rounds $(ROUNDS))

scale: dev system-packages ## Fill databases with 1,000 nodes, 50,000 running and 200,000 waiting, and with a million ended, serve them, measure; ON=sqlite, ONLY=history are parts; writes docs/explanation/scale.md
	@$(BIN)/python -m benchmarks.scale --page docs/explanation/scale.md $(if $(ON),--on $(ON)) $(if $(ONLY),--only $(ONLY))

damage: dev ## Damage 1,400 copies of a database, the WAL at every frame; none may be served with a wrong answer
	@$(BIN)/python -m tests.damage --files 1400 $(if $(SEED),--seed $(SEED))

worlds: dev ## Search a million states of small worlds for loops and broken invariants
	@$(BIN)/python -m tests.worlds --states 1000000

regret: dev ## Run random pools to rest and count who was stopped or promised something in vain
	@$(BIN)/python -m tests.regret --pools 1000

sim: dev ## Simulate 3 million events of servers, agents and clients amid faults; SEED=7 begins there, EVENTS=100000 is shorter
	@PYTHONHASHSEED=0 $(BIN)/python -W ignore -m tests.simulation --events $(or $(EVENTS),3000000) $(if $(SEED),--seed $(SEED))

soak: dev ## Stop programs 300 times amid 200 kills of agents, supervisors and the server; SEED=1 repeats
	@$(BIN)/python -m tests.soak --stops 300 --kills 200 $(if $(SEED),--seed $(SEED))

soak-postgres: dev ## The same with two servers on PostgreSQL
	@$(BIN)/python -m tests.soak --stops 300 --kills 200 --postgres $(if $(SEED),--seed $(SEED))

storm: dev ## An hour of kills, freezes and partitions, and two accounts compared; MINUTES=5, SEED=1
	@$(BIN)/python -m tests.storm $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

storm-postgres: dev ## The same with two servers on PostgreSQL, each with a link to it that fails
	@$(BIN)/python -m tests.storm --postgres $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

slurm: dev system-packages ## Tell all stories on a real Slurm, kill the bridge 40 times amid its calls, share it with outside jobs, and measure; ONLY=faults is one of the last three
	@$(if $(ONLY),,$(BIN)/pytest -q tests/slurm)
	@$(BIN)/python -m tests.slurm $(ONLY)

aged: dev ## Load ten days at 10 requests a second and compare with a day; RATE=1 is shorter
	@$(BIN)/python -m tests.aged $(if $(RATE),--rate $(RATE)) $(if $(DAYS),--days $(DAYS))

stall: dev ## Attack a server from ten tokens and a hundred addresses; say how long renewals take
	@$(BIN)/python -m tests.stall

properties: dev ## Try 20 times as many examples of every property, new ones; TIMES=100 tries more
	@PROPERTY_TIMES=$(or $(TIMES),20) $(BIN)/pytest -q -m 'hypothesis and not postgres' --timeout 0

screenshots: dev ## Take the screenshots of the page in docs/pictures; ALL=1 takes every view into build/screenshots
	@$(BIN)/python -m tests.page.screenshots $(if $(ALL),build/screenshots --all,docs/pictures)

page-load: dev ## Measure the page with 200 nodes, 40 teams, 5,000 running, 20,000 waiting, 20 pages and 20 changes a second
	@$(BIN)/python -m tests.page.load

lock: ## Write the lock files again; make lock UPGRADE=1 takes newer versions
	@scripts/lock $(if $(UPGRADE),--upgrade)

clean: ## Remove what the targets made
	@rm -rf page/generated page/node_modules src/cede/server/api/page/built
	@rm -rf .venv .venv-zenml build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without the page's packages, as where no registry can be reached, the server serves the plain page, and says so.
setup:
	@scripts/setup
	@scripts/page || echo "setup: the page was not built; the server will serve the plain one" >&2

dev:
	@scripts/setup --dev
	@scripts/page || echo "setup: the page was not built; its tests in a browser will be skipped" >&2

# Without it, as where no registry can be reached, the tests of ZenML are skipped, and say so.
zenml:
	@scripts/setup --zenml || echo "setup: no .venv-zenml: the tests that need ZenML will be skipped" >&2

system-packages:
	@scripts/system-packages

# Each tool is silent unless it objects.
lint: dev
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check . || { $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/mypy --strict --no-error-summary src
	@report=$$($(BIN)/lint-imports --no-logo) || { echo "$$report"; exit 1; }
	@scripts/page --check || { [ $$? -eq 3 ] && echo "lint: the page's types were not checked" >&2; }
