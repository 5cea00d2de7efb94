# `make demo` sets everything up and shows the whole; `make test` sets everything up and runs every check.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types fetch clean

demo: fetch
	$(BIN)/draftwood demo

test: lint types fetch
	$(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready
	$(BIN)/mypy

fetch: $(VENV)/.ready
	$(BIN)/draftwood fetch smollm2

# pip must know dependency groups (25.1); older Pythons bring an older one.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable ".[transformers,measure,corpus,llama]"
	touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
