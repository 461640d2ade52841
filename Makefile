# Everything a person or CI runs. `make demo` and `make test` set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 100
FAMILY ?= all
FRAMES ?= 100000000
FUZZED ?=
SEED ?= 1
MINUTES ?= 10
LONGEST := F7,F13,F31,F32,F39
WORKERS ?= 4
CHECKED := tests/test_tidy.py tests/test_circles.py tests/test_docs.py tests/test_ways.py tests/mutation

.PHONY: anomalies setup check test storage-long simulate-long conformance-long verify-long suites faults faults-long mixed moves upgrades drills compatibility spark-matrix spark-long docker-long demo pipeline pipeline-test simulate bench bench-smoke docs fuzz clean

# Compiled each time: a broker that compiles its sources takes twice as long to start, and where Python may not
# write what it has compiled (PYTHONDONTWRITEBYTECODE), every broker of every test would.
setup: $(VENV)/.ready $(VENV)/.kernel
	@$(BIN)/python -m compileall -q base protocol storage client zookeeper replication controller broker simulation local cli testing

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: apt-get install python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || (echo "python3-venv is missing: apt-get install python3-venv"; exit 1)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# The install has tried already; this is for a source that has changed since. It never fails: without Cython or
# a compiler records are decoded by numpy, and encoded one by one.
$(VENV)/.kernel: $(VENV)/.ready setup.py protocol/record_kernel.py protocol/record_encoder.py
	@$(BIN)/python -W ignore setup.py --quiet build_ext --inplace || true
	@$(BIN)/python -c 'import strandline.protocol.kernel as kernel; print("the kernel of the record decoder:", kernel.built().why); print("the kernel of the record encoder:", kernel.built_encoder().why)'
	@touch $@

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q --no-header $(CHECKED)

# All but what `make check` has tested. Some files at a time, the long ones first (tests/conftest.py): for most of
# its time a test waits for a cluster, and two cores have time for four. Each of the four reads all tests, and
# pytest rewrites their assertions, nine seconds of a core, unless they are kept. So Python may write what it
# compiles, and where nobody has, one does it first.
test: setup
	@test -n "$$(find tests/__pycache__ -name 'conftest.*-pytest-*.pyc' 2>/dev/null)" || PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -qq --collect-only tests >/dev/null 2>&1 || true
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -ra --no-header -n $(WORKERS) --no-loadscope-reorder $(addprefix --ignore=,$(CHECKED)) tests

storage-long: setup
	$(BIN)/python -m pytest -ra --no-header -m long -o faulthandler_timeout=0 tests/storage

simulate-long: setup
	$(BIN)/python -m pytest -ra --no-header -m long -o faulthandler_timeout=0 tests/simulation

conformance-long: setup
	$(BIN)/python -m pytest -ra --no-header -m long -o faulthandler_timeout=600 tests/conformance

# As root: the matrix of docs/reliability.md, or with ONLY=F8,F12 a part of it.
faults: setup
	FAULTS_ONLY=$(ONLY) $(BIN)/python -m pytest -ra --no-header -m faults tests/faults

# What takes long in the matrix, at full length: results go to the same file.
faults-long:
	FAULTS_STORM_S=600 FAULTS_FLAP_S=300 FAULTS_CONNECTIONS=10000 FAULTS_REQUESTS=200 FAULTS_REQUEST_MIB=50 \
	    FAULTS_SWARM_S=$$((60 * $(MINUTES))) PYTEST_ADDOPTS="-o faulthandler_timeout=0" \
	    $(MAKE) faults ONLY=$(or $(ONLY),$(LONGEST))

# As root: brokers and clients live in network namespaces (docs/anomalies.md).
anomalies: setup
	$(BIN)/strandline verify anomalies --namespaces --minutes $(MINUTES) --seed $(SEED)

# Brokers of earlier versions and of this one in one cluster, back and forth under load: writes upgrades.log.
upgrades: setup
	UPGRADE_MINUTES=$(MINUTES) UPGRADE_SEED=$(SEED) $(BIN)/python -m pytest -ra --no-header -m long -o faulthandler_timeout=0 tests/upgrade

# Bugs that are planted, Kafka's own, an interrupt: `strandline verify` finds and mends them. Some as root.
verify-long: setup
	$(BIN)/python -m pytest -ra --no-header -m long -o faulthandler_timeout=600 tests/anomalies tests/cli tests/testing

spark-matrix: setup
	$(BIN)/python -m pytest -ra --no-header -m "matrix or not matrix" tests/client/spark/parity

spark-long: setup
	$(BIN)/python -m pytest -ra --no-header -m long -o faulthandler_timeout=600 tests/client/spark

# Images are built twice, and a year of flights goes through the compose profile `spark`: ten minutes.
docker-long: setup
	$(BIN)/python -m pytest -ra --no-header -m long -o faulthandler_timeout=0 tests/docker

# The pictures of docs/drills.md, by its own commands: three minutes. With ONLY=1,2 some of them.
drills: setup
	$(BIN)/python -m bench.drills --only "$(ONLY)"

# Each mixture of Apache Kafka's brokers and ours under load and faults (docs/migration.md), some as root: two hours.
mixed: setup
	$(BIN)/python -m pytest -ra --no-header -m "long or not long" -o faulthandler_timeout=600 tests/mixed

moves: setup
	$(BIN)/python tests/conformance/leader_moves.py

# Every client, feature and event: writes docs/compatibility.md and the results it tells. It takes forty minutes.
compatibility: setup
	$(BIN)/python -W ignore -m tests.conformance.matrix.walk

demo: setup
	$(BIN)/strandline demo

# What it came to is drawn in .demo/pipeline.svg.
pipeline: setup
	$(BIN)/python -m examples.pipeline.drill --plot .demo/pipeline.svg

pipeline-test: setup
	$(BIN)/python -m pytest -ra --no-header -m long -o faulthandler_timeout=0 tests/examples

simulate: setup
	$(BIN)/strandline simulate --seeds $(SEEDS) --family $(FAMILY) $(if $(MUTANTS),--mutants)

bench-smoke: setup
	$(BIN)/python -m bench.smoke

bench: setup
	$(BIN)/python -m bench.smoke --rounds 5 --minutes 120

# With FUZZED=file it goes on where that file says that it was, until all its seeds have sent so many frames.
fuzz: setup
	$(BIN)/python -m tests.fuzzing.run --frames $(FRAMES) --seed $(SEED) $(if $(FUZZED),--progress $(FUZZED)) $(if $(WAIT),--wait $(WAIT))

# CHECKOUTS: a folder with the sources of each suite, outside of the repository (docs/suites.md).
suites: setup
	$(BIN)/python -m tests.suites --all "$(CHECKOUTS)"

mutants: setup
	$(BIN)/python tests/mutation/run.py

docs: setup
	$(BIN)/strandline docs docs
	$(BIN)/python -m tests.conformance.differential.page
	$(BIN)/python -m tests.suites --page
	$(BIN)/python -m tests.faults.page

clean:
	rm -rf $(VENV) build protocol/*.so .mypy_cache .ruff_cache .hypothesis .demo
