# Everything runs in a locked environment in .venv; PYTHON is only needed to make it. See README.md.
PYTHON ?= python3.11
VENV := .venv
STAMP := $(VENV)/.locked
MESH := $(VENV)/bin/agentmesh

.PHONY: setup eval eval-full test packages smoke incidents mutants calibrate characteristics sensitivity bench nightly lint report clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

eval: setup            ## both arms, and the strong baselines, on the main schedule in the live world
	$(MESH) eval schedules/main.yaml $(ARGS)

eval-full: setup       ## the same until the comparison is settled too: superiority with both non-inferiority claims
	$(MESH) eval schedules/main.yaml --until full_claim $(ARGS)

test: setup            ## every test, on all cores
	$(VENV)/bin/python -m pytest -n auto $(ARGS)

packages: setup        ## what the workload repository_mutation mutates: fetched and tried once, kept in a cache
	$(VENV)/bin/python -m workloads.repository_mutation

smoke: setup           ## a small live run of every workload: every fault class once
	$(VENV)/bin/python -m tests.smoke $(ARGS)

incidents: setup       ## known failures, ours and those of public reports, on an arm that fails of them and on the mesh
	$(MESH) incidents $(ARGS)

mutants: setup         ## every guard taken back in turn: its incidents must come back, and no other
	$(MESH) mutants $(ARGS)

calibrate: setup       ## does the instrument find what is there, and nothing else? in the sim world
	$(MESH) calibrate $(ARGS)

characteristics: setup ## how often the decision is wrong, and how soon it comes, over a grid of truths
	$(VENV)/bin/python -m tests.characteristics $(ARGS)

sensitivity: setup     ## which level of variation defeats which ledger, in the sim world
	$(MESH) sensitivity $(ARGS)

bench: setup           ## speed, as ratios to limits measured in the same run
	$(VENV)/bin/python -m tests.bench $(ARGS)

nightly: setup         ## 100,000 simulated trials: memory, disk
	$(VENV)/bin/python -m tests.nightly $(ARGS)

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(MESH) lint schedules/*.yaml schedules/negative/*.yaml schedules/calibration/*.yaml

report: setup          ## make the derived files of RUN again: make report RUN=results/main/<run_id>
	$(MESH) score $(RUN)
	$(MESH) report $(RUN)

clean:                 ## derived files and caches; never results
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
	find harness arms faults workloads tests -name __pycache__ -prune -exec rm -rf {} +
