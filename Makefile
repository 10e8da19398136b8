# Two commands to begin with: `make up` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.synced

.DEFAULT_GOAL := help
.PHONY: help up preview down status toolchain check test soak test-all bench golden screenshots lock

# A virtual environment survives neither a move of the checkout nor the loss of its Python; then it is made anew.
IS_OURS = test -x $(BIN)/python && grep -qsF "$(CURDIR)/$(VENV)" $(BIN)/activate
$(shell { $(IS_OURS); } || rm -f $(STAMP))

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) \
		| while IFS='|' read -r name what; do printf '  make %-11s %s\n' "$$name" "$$what"; done

$(STAMP): requirements/dev.txt requirements/engine.txt requirements/uv.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "Python 3.11, 3.12 or 3.13 is needed, $$($(PYTHON) --version) was found. Set PYTHON=... to another one." >&2; exit 1; }
	@{ $(IS_OURS) && $(BIN)/python -m pip --version >/dev/null 2>&1; } || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing Python packages ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt requirements/engine.txt requirements/uv.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

up: $(STAMP) ## deploy stack dev on an embedded control plane (builds what is missing)
	@$(BIN)/serving-stack dev up

preview: $(STAMP) ## show what `make up` would change
	@$(BIN)/serving-stack dev preview

status: $(STAMP) ## Pods, claims and volumes of stack dev
	@$(BIN)/serving-stack dev status

down: $(STAMP) ## destroy stack dev, then stop everything it started
	@$(BIN)/serving-stack dev down

toolchain: $(STAMP) ## build every tool that is missing
	@$(BIN)/python -m local.toolchain build

check: $(STAMP) ## format, lint, types, imports, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	@git ls-files -z -- . ':!requirements*' ':!*/go.sum' ':!tests' | xargs -0 $(BIN)/detect-secrets-hook --no-verify
	@! git grep -nI '[[:blank:]]$$' -- . ':!tests/bad' ':!LICENSE'
	$(BIN)/pytest -q -n 2 -m "not e2e and not soak"

test: $(STAMP) ## everything but the campaign: fast tests, then the real engine on a real control plane
	$(BIN)/python -m local.toolchain build
	$(BIN)/pytest -m "not e2e and not soak" -q -n 2
	$(BIN)/pytest -m "e2e and not soak" -n 2 --dist loadgroup

soak: $(STAMP) ## the campaign: many more changes and interruptions of the kinds that `make test` has a few of
	$(BIN)/python -m local.toolchain build
	$(BIN)/pytest -m soak -n 2 --dist loadgroup

test-all: test soak ## `make test`, then `make soak`

bench: $(STAMP) ## measure a mode switch against the longest drain, and guards in large clusters
	$(BIN)/python -m local.toolchain build
	$(BIN)/python -m benchmarks.mode_switch
	$(BIN)/python -m benchmarks.spares
	$(BIN)/python -m benchmarks.guards
	$(BIN)/python -m benchmarks.drain
	$(BIN)/python -m benchmarks.drain_budget

screenshots: $(STAMP) ## make the images of docs/images anew; the pages need a Chromium on PATH
	@$(BIN)/python -m docs.images.screenshots

golden: $(STAMP) ## rewrite the golden files, the schema and the config reference; review the diff
	$(BIN)/pytest -q tests/golden --rewrite

lock: $(STAMP) ## resolve the requirements anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header requirements/uv.in -o requirements/uv.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-deps requirements/engine.in -o requirements/engine.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--extra advice --extra local --extra test --extra lint --extra types pyproject.toml -o requirements/dev.txt
