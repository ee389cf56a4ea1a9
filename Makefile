# Quire. `make` alone shows what there is to do.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
# Flags for the program that a target runs: make up ARGS="--brokers 2", make test ARGS="-k produce"
ARGS ?=
PYTEST := $(BIN)/python -m pytest
# Markers are described in pyproject.toml; every test is in one of these four.
FAST := not integration and not slow and not model
SMOKE := integration and smoke
SLOW := (slow or model) and not integration
REAL := integration and not smoke
# Continuous integration gives a test of real processes a second try, and its summary names every
# test that needed one (RERUN): such a test needs fixing. Nowhere else is anything tried twice.
SECOND_TRY := $(if $(CI),--reruns 1 -r fER)
# Where they are, which saves reading the others, unless ARGS names a file or folder.
WITHOUT_PROCESSES = $(if $(findstring tests/,$(ARGS)),,--ignore tests/integration --ignore tests/interop)
WITH_PROCESSES = $(if $(findstring tests/,$(ARGS)),,tests/integration tests/interop)
# With ARGS, a run that they leave no test is no failure: pytest ends with 5.
OR_NONE = $(if $(ARGS),|| [ $$? -eq 5 ])
CLUSTER_SEEDS ?= 0..1500
LEDGER_SEEDS ?= 0..21300
# Of each world, in continuous integration: on a slow machine it ends with fewer schedules, and says
# from which seed on none was run, instead of not ending in time.
SIM_MINUTES_MAX := $(if $(CI),--minutes 3)

.DEFAULT_GOAL := help
.PHONY: help setup upgrade up demo test test-all test-fast clients clients-short lint format clean
.PHONY: ecosystem spark sim sim-short mutants bench-spark fuzz model model-short chaos chaos-short chaos-transactions chaos-transactions-short chaos-compaction chaos-compaction-short chaos-secured-short power-loss full-disk-power-loss crash-loop rolling-restart
.PHONY: audit pins wheel test-newest interop interop-short bench bench-short bench-profile docs

help:  ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED)  ## Make .venv with the quire command and the test tools in it

$(INSTALLED): pyproject.toml constraints.txt ops/setup.sh
	@ops/setup.sh

$(RUNTIME): pyproject.toml constraints.txt ops/setup.sh ops/zookeeper_jars.py
	@ops/setup.sh --runtime

upgrade:  ## Install the newest versions of everything, and note them in constraints.txt
	@ops/setup.sh --newest

up: $(RUNTIME)  ## Run a local cluster until Ctrl-C: ZooKeeper, three bookies, one broker
	@$(BIN)/quire up $(ARGS)

demo: $(RUNTIME)  ## Publish, kill -9 a bookie and a broker, and check every record
	@$(BIN)/quire demo $(ARGS)

test: $(INSTALLED) $(if $(ARGS),,lint) clients-short  ## What should stop a commit, in ten minutes; ARGS="-k produce" narrows it
	@echo "test: what needs no processes, two tests at a time"
	@$(PYTEST) -n 2 -m "$(FAST)" $(WITHOUT_PROCESSES) $(ARGS) $(OR_NONE)
	@$(if $(ARGS),,$(MAKE) -s sim-short CLUSTER_SEEDS=0..60 LEDGER_SEEDS=0..900)
	@echo "test: the paths of a record through real processes and clients, two files at a time"
	@$(PYTEST) -n 2 --dist loadscope $(SECOND_TRY) -m "$(SMOKE)" $(WITH_PROCESSES) $(ARGS) $(OR_NONE)

test-all: $(INSTALLED) clients  ## All the rest, in half an hour; with `make test` it is everything
	@echo "test-all: long tests without processes, and the models, two tests at a time"
	@$(PYTEST) -n 2 -m "$(SLOW)" $(WITHOUT_PROCESSES) $(ARGS) $(OR_NONE)
	@$(if $(ARGS),,$(MAKE) -s sim-short CLUSTER_SEEDS=60..1500 LEDGER_SEEDS=900..21300)
	@$(if $(ARGS),,$(MAKE) -s chaos-short ARGS="--readable-s-max 30")
	@$(if $(ARGS),,$(MAKE) -s chaos-secured-short ARGS="--readable-s-max 60")
	@$(if $(ARGS),,$(MAKE) -s chaos-transactions-short)
	@$(if $(ARGS),,$(MAKE) -s chaos-compaction-short)
	@echo "test-all: real processes, foreign Kafka clients, Spark, Apache BookKeeper, two files at a time"
	@$(PYTEST) -n 2 --dist loadscope $(SECOND_TRY) -m "$(REAL)" $(WITH_PROCESSES) $(ARGS) $(OR_NONE)

test-fast: $(INSTALLED)  ## The first step of `make test` alone: no processes, nothing to install
	@$(PYTEST) -n 2 -m "$(FAST)" $(WITHOUT_PROCESSES) $(ARGS)

test-newest: $(INSTALLED)  ## The fast tests on the newest Python here, if it is newer than that of .venv
	@ops/newest.sh -m "$(FAST)" $(ARGS)

admin-api: $(INSTALLED)  ## Hold the admin API to its OpenAPI document with many requests
	@QUIRE_ADMIN_API_EXAMPLES=300 $(BIN)/python -m pytest tests/property/test_admin_api.py \
		--timeout 1800 $(ARGS)

interop: $(INSTALLED) clients  ## Prove it against Apache BookKeeper; SECONDS of each kill -9 run
	@QUIRE_INTEROP_SECONDS=$(or $(SECONDS),120) $(BIN)/python -m pytest -m interop \
		--durations 10 tests/interop/bookkeeper $(ARGS)

interop-short: $(INSTALLED) clients  ## The form of it that CI runs: all rows
	@$(BIN)/python -m pytest -m interop tests/interop/bookkeeper $(ARGS)

clients:  ## Install the foreign programs that tests use: kcat, Chromium, Prometheus, Java's jars
	@tests/integration/clients/install.sh
	@ops/bench/peers/install.sh

clients-short:  ## Those of them that `make test` uses: kcat, curl, Chromium, Java
	@tests/integration/clients/install.sh --short

ecosystem: $(INSTALLED) clients  ## Programs of others, one row each with version and result; ARGS="kcat java" chooses
	@PYTHONPATH=. $(BIN)/python -m tests.integration.ecosystem $(ARGS)

crash-loop: $(INSTALLED)  ## Kill a bookie -9 under load KILLS times (default 100); nothing may be lost
	@QUIRE_CRASH_KILLS=$(or $(KILLS),100) $(BIN)/python -m pytest \
		tests/integration/test_bookie_process.py -k kill_9 -s $(ARGS)

spark: $(INSTALLED) clients  ## Run the Spark tests alone, drivers killed ROUNDS times at each step (default 5)
	@QUIRE_SPARK_ROUNDS=$(or $(ROUNDS),5) $(BIN)/python -m pytest tests/integration/spark \
		--durations 10 $(ARGS)

sim: $(INSTALLED)  ## Simulate clusters under faults for MINUTES (default 60), fresh seeds
	@$(BIN)/python -m tests.simulation --jobs 2 --minutes $(or $(MINUTES),60) $(ARGS)

sim-short: $(INSTALLED)  ## Fixed seeds: 20,000 ledger and 1,500 cluster schedules
	@echo "sim-short: schedules $(CLUSTER_SEEDS) of whole clusters"
	@$(BIN)/python -m tests.simulation --world cluster --jobs 2 --seeds $(CLUSTER_SEEDS) $(SIM_MINUTES_MAX) $(ARGS)
	@echo "sim-short: schedules $(LEDGER_SEEDS) of ledgers; in a few no ledger comes about"
	@$(BIN)/python -m tests.simulation --world ledger --jobs 2 --seeds $(LEDGER_SEEDS) $(SIM_MINUTES_MAX) $(ARGS)

rolling-restart: $(INSTALLED)  ## Restart every node under load; report what clients waited
	@$(BIN)/python -m tests.integration.rolling_restart $(ARGS)

model: $(INSTALLED)  ## Check the TLA+ models in every state, and that each of their rules is needed
	@$(BIN)/python -m tests.model $(ARGS)

model-short: $(INSTALLED)  ## Without the sizes that take minutes, as the tests run it
	@$(BIN)/python -m tests.model --short $(ARGS)

chaos: $(INSTALLED) clients  ## Real processes under real faults for MINUTES (default 30)
	@$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),30) $(ARGS)

chaos-short: $(INSTALLED) clients  ## Three minutes of it, at least 50 faults
	@$(BIN)/python -m tests.chaos --minutes 3 --every-s 2.5 --faults-min 50 --seed 11 $(ARGS)

chaos-transactions: $(INSTALLED) clients  ## Transactions under real faults, clients killed too, for MINUTES (default 10)
	@$(BIN)/python -m tests.chaos.exactly_once --minutes $(or $(MINUTES),10) $(ARGS)

chaos-transactions-short: $(INSTALLED) clients  ## A minute and a half of it
	@$(BIN)/python -m tests.chaos.exactly_once --minutes 1.5 --every-s 2.5 --faults-min 20 --seed 5 $(ARGS)

chaos-compaction: $(INSTALLED) clients  ## A compacted topic and its readers under real faults for MINUTES (default 10)
	@$(BIN)/python -m tests.chaos.compacted --minutes $(or $(MINUTES),10) $(ARGS)

chaos-compaction-short: $(INSTALLED) clients  ## A minute of it
	@$(BIN)/python -m tests.chaos.compacted --minutes 0.9 --every-s 2.5 --faults-min 14 --swaps-min 20 --seed 7 $(ARGS)

chaos-secured-short: $(INSTALLED) clients  ## Half a minute with TLS and logins on every link, certificates renewed
	@$(BIN)/python -m tests.chaos --secured --minutes 0.4 --every-s 2 --faults-min 6 --seed 11 $(ARGS)

power-loss: $(INSTALLED) clients  ## The whole cluster loses power COUNT times (default 20) under load
	@$(BIN)/python -m tests.chaos --only power_loss --strikes $(or $(COUNT),20) $(ARGS)

full-disk-power-loss: $(INSTALLED) clients  ## It loses power COUNT times (default 3) while disks of bookies are full
	@$(BIN)/python -m tests.chaos --only full_disk_power_loss --strikes $(or $(COUNT),3) $(ARGS)

fuzz: $(INSTALLED)  ## Fuzz every parser for SECONDS each (default 60), guided by coverage if atheris is there
	@$(BIN)/pip install -q atheris || echo "fuzz: no atheris for this Python: mutations instead"
	@$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(ARGS)

mutants: $(INSTALLED)  ## Plant each known defect in turn; the simulation must find all of them
	@$(BIN)/python -m tests.simulation.mutation --jobs 2 $(ARGS)

bench: $(INSTALLED) clients  ## Measure Quire, Kafka and BookKeeper side by side, for hours, on an idle machine
	@ops/bench/peers/install.sh
	@$(BIN)/python -m ops.bench.compare $(ARGS)

bench-short: $(INSTALLED)  ## A moment of each workload: checks only that they run, as CI does
	@ops/bench/peers/install.sh
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
		$(BIN)/python -m ops.bench.compare --short --anyway \
		--folder "$$out/data" --out "$$out/results" $(ARGS)

bench-profile: $(INSTALLED)  ## Sample where brokers, bookies and clients spend their time: a page in ops/bench
	@$(BIN)/python -m ops.bench.profile $(ARGS)

bench-spark: $(INSTALLED) clients  ## The rows of it about Spark: through brokers, from ledgers
	@ops/bench/peers/install.sh
	@$(BIN)/python -m ops.bench.compare --only spark $(ARGS)

docs: $(INSTALLED)  ## Make one searchable site of all Markdown pages: build/docs/site/index.html
	@test -x $(BIN)/zensical || $(BIN)/pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[docs]'
	@$(BIN)/python -m ops.docs.site build/docs
	@$(BIN)/zensical build --strict --config-file build/docs/zensical.toml
	@echo "docs: build/docs/site/index.html"

wheel: $(INSTALLED)  ## Build dist/quire-VERSION-cp311-abi3-PLATFORM.whl, its bill of materials and pinned requirements
	@rm -rf build dist/quire-*.whl dist/quire.cdx.json
	@$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	@rm -rf build && ls dist/quire-*.whl
	@for kind in servers spark; do cp ops/deploy/requirements/$$kind.txt dist/requirements-$$kind.txt; done
	@$(BIN)/python -m ops.docs.sbom dist/quire.cdx.json bookie secure schemas spark

pins: $(INSTALLED)  ## Pin what releases are installed with, with hashes: ops/deploy/requirements
	@[ -x build/pins/bin/uv ] || { $(BIN)/python -m venv build/pins && \
		build/pins/bin/pip install --quiet --disable-pip-version-check uv; }
	@$(BIN)/python -m ops.docs.pins build/pins/bin/uv

audit: $(INSTALLED)  ## Known vulnerabilities of the versions in constraints.txt, where such data can be reached
	@[ -x build/audit/bin/pip-audit ] || { $(BIN)/python -m venv build/audit && \
		build/audit/bin/pip install --quiet --disable-pip-version-check pip-audit; }
	@$(BIN)/python -m ops.docs.audit build/audit/bin/pip-audit constraints.txt

lint: $(INSTALLED)  ## Check style, types and import contracts
	@echo "lint: ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .
	@echo "lint: mypy" && $(BIN)/mypy --no-error-summary
	@echo "lint: import contracts" && $(BIN)/lint-imports --no-logo

format: $(INSTALLED)  ## Format the code and sort the imports
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

clean:  ## Remove .venv, caches and test leftovers; keeps ./data
	rm -rf $(VENV) $(VENV)-newest build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	rm -rf tests/integration/clients/kafkajs/node_modules tests/integration/clients/*/lib
	rm -rf tests/integration/clients/franz-go/bin tests/integration/clients/franz-go/tools
	rm -rf tests/integration/clients/golang/bin tests/integration/clients/rust/target
	rm -rf tests/integration/spark/jars/lib tests/integration/moving/lib
	rm -rf tests/interop/bookkeeper/java/lib ops/bench/peers/java*/lib
	find broker bookie client ops tests -name __pycache__ -type d -prune -exec rm -rf {} +
