# Two commands from a fresh clone: `make run` and `make test`. Both set up a virtual environment of their own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled then, in much less time than all that is installed.
PIP := --quiet --disable-pip-version-check --no-compile
STYLED := benchmarks docs/*.py examples fedbo plugins tests
# One thread for each process: the replicates and hosts are what runs in parallel.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
# Ray gives its workers the lowest priority but four, so that beside other tests on two cores they would hardly run.
export RAY_worker_niceness := 0
# The order of sets may decide which case a test tries. A failure is tried again by make PYTHONHASHSEED=N test.
ifndef PYTHONHASHSEED
PYTHONHASHSEED := $(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')
endif
export PYTHONHASHSEED
# Tests start some hundred processes, which need not compile the package each time, whatever the surroundings say.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-long with-ray half-1 half-2 mutants check bench site reference release-check format style types setup clean

run: $(VENV)/compiled  ## run the main job: thirty agents tune a classifier together
	$(BIN)/fedbo run examples/digits.toml

test: $(VENV)/ready $(VENV)/compiled  ## pass the tests, in about six minutes on two cores
	$(MAKE) --no-print-directory --jobs 3 with-ray half-1 half-2

test-long: $(VENV)/ready $(VENV)/compiled $(VENV)/docs  ## pass those that are left out otherwise, in some hours: more worlds, kills and seeds, and an hour of random studies
	$(BIN)/python -m pytest -m "ray and long"
	$(MAKE) --no-print-directory --jobs 2 half-1 half-2 WHICH="long and not ray"

check: setup  ## everything that a commit must pass
	$(MAKE) --no-print-directory --jobs 5 style types with-ray half-1 half-2

with-ray: $(VENV)/ready $(VENV)/compiled
	$(BIN)/python -m pytest -m "ray and not long" $$(grep -rl --include="test_*.py" "mark\.ray" tests)

WHICH := not ray and not long
half-1 half-2: half-%: $(VENV)/ready $(VENV)/compiled  # each imports and collects its own files alone
	$(BIN)/python -m pytest -p tests.shares --share $*/2 -m "$(WHICH)"

mutants: $(VENV)/ready $(VENV)/compiled  ## plant faults at random and count those that the tests do not notice
	$(BIN)/python benchmarks/mutation.py record
	$(BIN)/python benchmarks/mutation.py run --mutants 200

REVISION ?=
bench: $(VENV)/ready $(VENV)/compiled  ## compare the speed of the core with that of an earlier revision: make bench REVISION=HEAD~10
	$(BIN)/python benchmarks/against.py $(REVISION) --quick

site: $(VENV)/docs  ## build the documentation into build/site; a link that leads nowhere is an error
	rm -rf build/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html --conf-dir docs . build/site
	@echo "open build/site/index.html"

reference: setup  ## write docs/cli.md and docs/reference from the code, and the notebooks from the tutorials
	$(BIN)/python docs/generate.py

release-check:  ## build the wheel and the source distribution, install the wheel into an empty environment, and use it
	.ci/release $(PYTHON)

format: setup  ## put the code into its format
	$(BIN)/ruff format $(STYLED)
	$(BIN)/ruff check --fix $(STYLED)

style: setup
	$(BIN)/ruff format --check $(STYLED)
	$(BIN)/ruff check $(STYLED)

types: setup  ## check the types of the package, its plug-ins and the random studies
	nice -n 19 $(BIN)/mypy fedbo plugins/hunt/fedbo_hunt plugins/leak/fedbo_leak plugins/papers/fedbo_papers plugins/rivals/fedbo_rivals plugins/tables/fedbo_tables tests/random_studies

setup: $(VENV)/ready

$(VENV)/installed: pyproject.toml constraints.txt  # what running needs
	$(PYTHON) -c "import sys; sys.exit('fedbo needs Python 3.11 or later; call make PYTHON=python3.11') if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP) --constraint constraints.txt setuptools
	$(BIN)/python -m pip install $(PIP) --constraint constraints.txt --editable .
	touch $@

$(VENV)/ready: $(VENV)/installed  # and what tests, styles and types need
	$(BIN)/python -m pip install $(PIP) --constraint constraints.txt --editable ".[dev]"
	touch $@

$(VENV)/compiled: $(VENV)/installed  # beside which types are checked
	$(BIN)/python -m fedbo.execution.compiling
	touch $@

$(VENV)/docs: $(VENV)/ready  # and what runs the notebooks
	$(BIN)/python -m pip install $(PIP) --constraint constraints.txt --editable ".[docs]"
	touch $@

clean:  ## remove what the commands above have made
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache
