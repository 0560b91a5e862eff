# Needs Python 3.11 or newer, make and git. Everything else is fetched into this folder.
# Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
.DEFAULT_GOAL := help

BIN := .venv/bin
UV := .uv/bin/uv
# Named after the interpreter: choosing another one makes the environment anew.
READY := .venv/.ready-$(notdir $(PYTHON))
READERS := .uv/readers/.ready

# Without a HOME that can be written, tools would fail on their caches: keep those here instead.
ifneq ($(shell test -n "$$HOME" && mkdir -p "$$HOME" 2>/dev/null && test -w "$$HOME" && echo yes),yes)
export HOME := $(CURDIR)/.uv/home
endif
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv
# A shell's own environment must not receive what belongs into .venv.
unexport VIRTUAL_ENV
# Where Python keeps no compiled files, each of the many processes compiles all libraries again: 4 s, every time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow warm check fmt docs components bench bench-full property crash mutants clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Load the example shop and show what each step did
	@$(BIN)/python examples/shop/demo.py

# Four workers on two cores: some always wait for Spark, a database or the disk.
test: check ## Check the code, then run the tests
	$(BIN)/pytest -n 4 --durations=15

test-slow: $(READY) $(READERS) ## The tests that take longer: crashes, Spark Connect, the demo, every strategy on Delta
	$(BIN)/pytest -n 4 --durations=15 -m 'slow and not big'

warm: $(READY) ## Keep a Spark running, which test runs then join
	PYTHONPATH=tests $(BIN)/python tests/shared_spark.py .uv/warm

check: $(READY) ## Format, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(READY) ## Format the code and repair what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Write the reference from the code and check every link
	$(BIN)/python docs/write_reference.py
	$(BIN)/pytest tests/architecture -k markdown

components: $(READY) ## Write the bill of materials and the list of licences
	$(BIN)/python docs/write_components.py

bench: $(READY) ## Measure against peers, side by side (under 30 minutes)
	$(BIN)/python bench/run.py

bench-full: $(READY) ## The same up to 30M rows, 1,000 commits, 1M known files, and in fresh processes (hours)
	$(BIN)/python bench/run.py --full --fresh

property: $(READY) ## Try thousands of generated tables and batches against the oracle, and every variant (long)
	$(BIN)/pytest --durations=15 -m big tests/unit
	TALLYMARK_EXAMPLES=2000 $(BIN)/pytest -n 2 --timeout 3600 --durations=30 -m 'not big' \
	  tests/property tests/model tests/conformance

crash: $(READY) ## Kill loads at every step and look for lost or doubled rows (long)
	$(BIN)/pytest -n 2 --timeout 3600 --durations=15 tests/crash -m 'big or not big'

mutants: $(READY) ## Break one line of the source at a time and see that a test notices (under 30 minutes)
	PYTHONPATH=tests $(BIN)/python tests/mutants/run.py

clean: ## Remove what make has made
	rm -rf .venv .uv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): uv.lock pyproject.toml $(UV)
	@$(fit_python)
	@$(UV) sync --quiet --frozen --all-extras --python $(PYTHON)
	@touch $@

$(READERS): .ci/readers-requirements.txt $(UV)
	@$(UV) venv --quiet --clear --python $(PYTHON) .uv/readers
	@$(UV) pip install --quiet --python .uv/readers/bin/python -r .ci/readers-requirements.txt
	@touch $@

# uv itself is pinned, by version and checksum; everything that it installs is by uv.lock.
$(UV): .ci/uv-requirements.txt
	@$(fit_python)
	@$(PYTHON) -m venv .uv || \
	  { rm -rf .uv; echo "$(PYTHON) cannot make virtual environments: install its venv package (on Debian: python3-venv)" >&2; exit 1; }
	@.uv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r .ci/uv-requirements.txt
	@touch $@

fit_python = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
  { echo "Tallymark needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -n 1). Try: make PYTHON=python3.11" >&2; exit 1; }
