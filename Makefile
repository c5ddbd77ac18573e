# Every target sets up what it needs: a virtual environment in .venv, made once and
# remade when pyproject.toml changes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Processes that share the tests.
WORKERS := -n auto --maxprocesses 4 --dist worksteal

.PHONY: help test lint docs bench demo clean

help:
	@echo "make demo    fit digits, and write a report and pictures to demo-output/"
	@echo "make test    lint, types and tests"
	@echo "make bench   speed as ratios to the floor"
	@echo "make docs    documentation, in site/; its examples are run"
	@echo "make clean   remove the environment and caches"

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs,federation]'
	@touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: $(READY) lint docs
	$(BIN)/pytest -q $(WORKERS) -m "not slow"
	timeout 600 $(BIN)/pytest -q $(WORKERS) -m slow

bench: $(READY)
	$(BIN)/python -m benchmarks

demo: $(READY)
	$(BIN)/anamorph demo -o demo-output

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output site
	find . -name __pycache__ -prune -exec rm -rf {} +
