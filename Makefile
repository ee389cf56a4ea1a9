# Quire. `make` alone shows what there is to do.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Flags for `quire up` and `quire demo`, and for pytest: make up ARGS="--brokers 2"
ARGS ?=
FAST := not integration and not slow

.DEFAULT_GOAL := help
.PHONY: help setup up demo test test-fast test-integration clients lint format clean
.PHONY: sim sim-short mutants

help:  ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED)  ## Make .venv with the quire command and the test tools in it

$(INSTALLED): pyproject.toml ops/setup.sh
	@ops/setup.sh

up: $(INSTALLED)  ## Run a local cluster until Ctrl-C: ZooKeeper, three bookies, one broker
	@$(BIN)/quire up $(ARGS)

demo: $(INSTALLED)  ## Publish, kill -9 a bookie and a broker, and check every record
	@$(BIN)/quire demo $(ARGS)

test: $(INSTALLED) lint clients  ## Lint and run every test
	@echo "test: every test, with real processes and foreign Kafka clients"
	@$(BIN)/python -m pytest $(ARGS)

test-fast: $(INSTALLED)  ## Run the tests that start no processes
	@$(BIN)/python -m pytest -m "$(FAST)" $(ARGS)

test-integration: $(INSTALLED) clients  ## Run the tests that start real processes
	@$(BIN)/python -m pytest -m "integration" $(ARGS)

admin-api: $(INSTALLED)  ## Hold the admin API to its OpenAPI document with many requests
	@QUIRE_ADMIN_API_EXAMPLES=300 $(BIN)/python -m pytest tests/property/test_admin_api.py \
		--timeout 1800 $(ARGS)

clients:  ## Install the foreign Kafka clients that tests use: kcat, kafkajs, the Java tools
	@tests/integration/clients/install.sh

sim: $(INSTALLED)  ## Simulate clusters under faults for MINUTES (default 60), fresh seeds
	@$(BIN)/python -m tests.simulation --jobs 2 --minutes $(or $(MINUTES),60) $(ARGS)

sim-short: $(INSTALLED)  ## The form of it that CI runs: 20,000 ledger schedules
	@$(BIN)/python -m tests.simulation --jobs 2 --count 20000 $(ARGS)

mutants: $(INSTALLED)  ## Plant each known defect in turn; the simulation must find all of them
	@$(BIN)/python -m tests.simulation.mutation --jobs 2 $(ARGS)

lint: $(INSTALLED)  ## Check style, types and import contracts
	@echo "lint: ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .
	@echo "lint: mypy" && $(BIN)/mypy --no-error-summary
	@echo "lint: import contracts" && $(BIN)/lint-imports --no-logo

format: $(INSTALLED)  ## Format the code and sort the imports
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

clean:  ## Remove .venv, caches and test leftovers; keeps ./data
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	rm -rf tests/integration/clients/kafkajs/node_modules tests/integration/clients/java/lib
	find broker bookie client ops tests -name __pycache__ -type d -prune -exec rm -rf {} +
