# Every target sets up what it needs: a virtual environment in .venv, made once and
# remade when pyproject.toml changes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Processes that share the tests.
WORKERS := -n auto --maxprocesses 4

.PHONY: help test test-gpu run-test-gpu lint docs bench bench-gpu run-bench-gpu demo paper clean

help:
	@echo "make demo    fit digits, and write a report and pictures to demo-output/"
	@echo "make test    lint, types, documentation and tests"
	@echo "make bench   speed as ratios to the floor"
	@echo "make paper   the paper's experiments, for hours; data in the folder ANAMORPH_DATA"
	@echo "make test-gpu, make bench-gpu   the same on a GPU, where there is one"
	@echo "make docs    documentation, in site/; its examples are run"
	@echo "make clean   remove the environment and caches"

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[dev,docs,cluster,federation]'
	@touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: $(READY) lint docs
	$(BIN)/pytest -q $(WORKERS) --dist worksteal -m "not slow"
	@# Each file in one process: what slow tests share, such as running servers, is started once.
	@# Interrupted when that takes too long, they tell what has failed so far.
	timeout --signal INT --kill-after 30 780 $(BIN)/pytest -q $(WORKERS) --dist loadfile -m slow

bench: $(READY)
	$(BIN)/python -m benchmarks

# Needs a GPU and CUDA 13: without them one line says so, and that is all.
CUDA_READY := $(VENV)/.cuda-ready
$(CUDA_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda]'
	@touch $@

test-gpu bench-gpu:
	@if command -v nvidia-smi > /dev/null; then $(MAKE) --no-print-directory run-$@; \
	else echo "$@ is skipped: no GPU (nvidia-smi) was found"; fi

run-test-gpu: $(CUDA_READY)
	$(BIN)/pytest -q tests/device

run-bench-gpu: $(CUDA_READY)
	$(BIN)/python -m benchmarks.gpu kernels digits volumes

demo: $(READY)
	$(BIN)/anamorph demo -o demo-output

paper: $(READY)
	$(BIN)/python -m examples.paper.mnist
	$(BIN)/python -m examples.paper.groups
	$(BIN)/python -m examples.paper.held_out
	$(BIN)/python -m examples.paper.brains
	$(BIN)/python -m examples.paper.faces

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output site
	find . -name __pycache__ -prune -exec rm -rf {} +
