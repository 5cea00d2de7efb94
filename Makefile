# `make demo` sets everything up and shows the whole; `make test` sets everything up and runs every check.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test fuzz lint types fetch clean

demo: fetch
	$(BIN)/draftwood demo

test: lint types fetch
	$(BIN)/python -m pytest

# Random stories about random models; a case that fails names the command that repeats it.
N := 2000
SEED := 0
FROM := 0
fuzz: $(VENV)/.ready
	$(BIN)/python -m tests.fuzz --cases $(N) --seed $(SEED) --from $(FROM)

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
