# Every target sets up what it needs: a virtual environment in .venv, made once and remade when
# pyproject.toml changes. `make help` lists the targets that have a comment after two hashes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := -m pip install --quiet --disable-pip-version-check
# Processes that share the tests.
WORKERS := -n auto --maxprocesses 4
# Rounding differs between the kernels of linear algebra. Tests use those that it chooses for this
# processor, whatever the environment asks for.
unexport OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
# Matrices of tests are small: threads of linear algebra that wait in a loop would cost the others.
test-fast test-slow test-long run-test-lowest: export OPENBLAS_NUM_THREADS := 1

.PHONY: help demo test lint docs test-fast test-slow test-long test-lowest bench test-gpu bench-gpu \
	prepare-lowest run-test-lowest run-test-gpu run-bench-gpu paper clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --editable '.[dev,docs,cluster,federation,privacy]'
	@touch $@

demo: $(READY) ## fit digits, and write a report and pictures to demo-output/
	$(BIN)/anamorph demo -o demo-output

# Style and types use one process, while the environment of the oldest versions is made;
# documentation uses one process too, beside the first of the tests.
test: $(READY) ## all of the five below: what continuous integration runs
	@$(MAKE) --no-print-directory -j 2 lint prepare-lowest
	@$(MAKE) --no-print-directory -j 2 docs test-fast
	@$(MAKE) --no-print-directory test-slow
	@$(MAKE) --no-print-directory test-lowest

lint: $(READY) ## style (ruff) and types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY) ## build the documentation in site/, and run its examples
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test-fast: $(READY) ## tests that take at most a few seconds each
	$(BIN)/pytest -q $(WORKERS) --dist worksteal -m "not slow and not long"

# Each file in one process: what slow tests share, such as running servers, is started once.
# Interrupted when that takes too long, they tell what has failed so far.
test-slow: $(READY) ## the others, but for the longest
	timeout --signal INT --kill-after 30 900 $(BIN)/pytest -q $(WORKERS) --dist loadfile \
		-m "slow and not long"

test-long: $(READY) ## the longest: kills of processes of hospitals, six sites, simulated GPUs
	$(BIN)/pytest -q $(WORKERS) --dist loadfile -m long

# Old libraries call what newer ones have deprecated, which is no fault of ours. A cache of kernels
# of its own, or the two versions of Numba would overwrite each other's.
LOWEST := .venv-lowest
test-lowest: ## some tests with the oldest allowed version of every dependency, on Python 3.11
	@if command -v python3.11 > /dev/null; then $(MAKE) --no-print-directory run-$@; \
	else echo "$@ is skipped: no python3.11 was found"; fi

prepare-lowest:
	@if command -v python3.11 > /dev/null; then $(MAKE) --no-print-directory $(LOWEST)/.ready; fi

run-test-lowest: $(LOWEST)/.ready
	NUMBA_CACHE_DIR=$(LOWEST)/kernels $(LOWEST)/bin/pytest -q $(WORKERS) --dist worksteal \
		-W default::DeprecationWarning -W default::PendingDeprecationWarning --disable-warnings \
		-m "not slow and not long" $(LOWEST_TESTS)

LOWEST_TESTS := tests/latents tests/storage tests/images/readers tests/plots \
	tests/cli/test_values.py tests/cli/test_commands.py
$(LOWEST)/.ready: pyproject.toml scripts/lowest.py
	python3.11 -m venv $(LOWEST)
	python3.11 scripts/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python $(PIP) --constraint $(LOWEST)/constraints.txt --editable '.[dev]'
	@touch $@

bench: $(READY) ## speed as ratios to the floor
	$(BIN)/python -m benchmarks

# Needs a GPU and CUDA 13: without them one line says so, and that is all.
CUDA_READY := $(VENV)/.cuda-ready
$(CUDA_READY): $(READY)
	$(BIN)/python $(PIP) --editable '.[cuda]'
	@touch $@

test-gpu: ## tests on a GPU, where there is one
bench-gpu: ## speed on a GPU, where there is one
test-gpu bench-gpu:
	@if command -v nvidia-smi > /dev/null; then $(MAKE) --no-print-directory run-$@; \
	else echo "$@ is skipped: no GPU (nvidia-smi) was found"; fi

run-test-gpu: $(CUDA_READY)
	$(BIN)/pytest -q tests/device

run-bench-gpu: $(CUDA_READY)
	$(BIN)/python -m benchmarks.gpu kernels digits volumes

paper: $(READY) ## the paper's experiments, for hours; data in the folder ANAMORPH_DATA
	$(BIN)/python -m examples.paper.mnist
	$(BIN)/python -m examples.paper.groups
	$(BIN)/python -m examples.paper.held_out
	$(BIN)/python -m examples.paper.brains
	$(BIN)/python -m examples.paper.faces

clean: ## remove environments, caches and what the other targets wrote
	rm -rf $(VENV) $(LOWEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output site \
		build dist
	find . -name __pycache__ -prune -exec rm -rf {} +
