# For a new user: `make demo` and `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
SEEDS  ?= 1000
SCRIPTS ?= 128
REQUESTS ?= 2000
RUNS   ?= 34
EXAMPLES ?= 2000
SEED   ?= 1
ON     ?= ours
LABELS ?= integration-test,-performance
FOLDER ?=
# More extras for the tests, comma-separated: `rivals,compiled`. Tests with missing requirements are skipped, with a reason.
EXTRAS ?=
LIMIT  ?= 400

.PHONY: help demo test lint check docs docs-serve wheel upstream bench scheduler-perf swarm swarm-cluster explore torture planted mutants laws study-quick clean

help:            ## lists the targets
	@grep -E '^[a-z-]+: .*##|^[a-z-]+: *##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1	/' | expand -t 22

$(BIN)/.installed: pyproject.toml
	@echo "installing into $(VENV) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version)'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lab,explain]'
	@touch $@

$(BIN)/.installed-dev: $(BIN)/.installed
	@echo "installing what the tests need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lab,explain,dev$(EXTRAS:%=,%)]'
	@touch $@

demo: $(BIN)/.installed  ## a control plane, a real trace, a range query: under a minute, once installed
	@$(BIN)/minikube-py demo

test: $(BIN)/.installed-dev  ## all tests of the project
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests

.PHONY: pythons
pythons: $(BIN)/.installed-dev  ## installs the packages with which tests/sim/test_every_python.py compares Python versions
	@$(BIN)/python tests/support/pythons.py

.PHONY: deep
deep: pythons    ## all seeds and Pythons of the tests of which `make test` runs a sample
	@MINIKUBE_PY_DEEP=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $$(grep -rlE "^from depth import" tests --include='test_*.py')

.PHONY: collected
collected: $(BIN)/.installed-dev  ## imports all tests, which compiles each once: workers that begin together would each do so
	@mkdir -p results
	@$(BIN)/python -m pytest --collect-only -q tests >results/collected.txt || { cat results/collected.txt; exit 1; }

.PHONY: test-quick
test-quick: $(BIN)/.installed-dev  ## the unit tests except those in tests/slow_files.txt: under a minute on two idle cores
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --quick tests/unit

lint: $(BIN)/.installed-dev  ## ruff, mypy, import contracts, line budgets, language
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports
	@$(BIN)/python tools/check_size.py
	@$(BIN)/python tools/check_language.py

.PHONY: pictures
pictures: $(BIN)/.installed  ## draws the pictures of docs/studies and docs/img again from the data in docs
	@$(BIN)/python tools/pictures.py

.PHONY: actionlint
actionlint:      ## checks the GitHub workflows (needs Go)
	@go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7 -shellcheck= -pyflakes=

check: lint      ## lint and the unit tests; run it before each commit
	@$(BIN)/python -m pytest -n $(JOBS) tests/unit

$(BIN)/.installed-docs: $(BIN)/.installed
	@echo "installing what the docs need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: $(BIN)/.installed-docs  ## the docs as a site in docs/_build; warnings and broken links are errors
	@$(BIN)/sphinx-build -q -W --keep-going -E -b html docs docs/_build
	@$(BIN)/python tools/check_site.py docs/_build
	@echo "docs/_build/index.html; make docs-serve shows it in a browser"

docs-serve: docs  ## the same at http://127.0.0.1:8000
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory docs/_build 8000

wheel: $(BIN)/.installed  ## builds sdist and wheel into dist/, and tests the wheel in a fresh environment
	@$(BIN)/python tools/check_wheel.py --keep dist

upstream:        ## builds etcd, Kubernetes and KWOK for comparison in tests and benchmarks (needs Go; minutes, once)
	@$(PYTHON) tools/upstream build

bench: $(BIN)/.installed-dev upstream  ## upstream and ours interleaved, in one run (needs Go, h2load)
	@PYTHONPATH=tests/support $(BIN)/python tests/bench/beside.py

scheduler-perf: $(BIN)/.installed  ## LABELS=l FOLDER=f upstream's scheduler_perf workloads here, file by file (needs Go)
	@go mod download k8s.io/kubernetes@v1.36.2
	@folder="$$(go env GOMODCACHE)/k8s.io/kubernetes@v1.36.2/test/integration/scheduler_perf/$(FOLDER)"; \
	test -d "$$folder" || { echo "there is no folder $$folder"; exit 1; }; \
	failed=0; for file in $$(find "$$folder" -name performance-config.yaml | sort); do \
	  echo "== $$file"; $(BIN)/minikube-py bench scheduler-perf "$$file" --labels "$(LABELS)" || failed=1; done; exit $$failed

swarm: $(BIN)/.installed  ## SEEDS=n simulated histories of the store under faults, on all cores; resumable
	@$(BIN)/python -m minikube_py.sim.swarm --seeds $(SEEDS) --journal results/swarm

swarm-cluster: $(BIN)/.installed  ## SEEDS=n simulated histories of a whole control plane under faults, on all cores; resumable
	@$(BIN)/python -m minikube_py.sim.swarm --of cluster --seeds $(SEEDS) --journal results/swarm-cluster

explore: $(BIN)/.installed-dev  ## SEEDS=n interleavings and faults around a correct operator; must find nothing
	@MINIKUBE_PY_EXPLORE_SEEDS=$(SEEDS) $(BIN)/python -m pytest -n 0 --durations 1 tests/unit/cluster/test_explore.py -k right_one

torture: $(BIN)/.installed-dev  ## RUNS=n times fault injection on three store processes under load: kill, stop, partition, torn writes, wipe
	@MINIKUBE_PY_TORTURE=$(RUNS) $(BIN)/python -m pytest -n 0 -s tests/e2e/test_three_members_store.py tests/e2e/test_three_members_api.py

.PHONY: robustness
robustness: $(BIN)/.installed-dev  ## RUNS=n of etcd's robustness traffic against three members under fault injection
	@MINIKUBE_PY_ROBUSTNESS=$(RUNS) $(BIN)/python -m pytest -n 0 -s tests/e2e/test_etcd_robustness.py

.PHONY: torture-etcd
torture-etcd: $(BIN)/.installed-dev upstream  ## RUNS=n of users on two API servers on a real etcd whose members are killed, stopped, without a quorum (needs Go)
	@MINIKUBE_PY_TORTURE_ETCD=$(RUNS) $(BIN)/python -m pytest -n 0 -s tests/e2e/test_etcd_behind_torture.py

.PHONY: etcd-clients
etcd-clients: $(BIN)/.installed-dev  ## the test suites of etcd's Python clients on three members of ours and of etcd (needs Go, git, unshare)
	@$(BIN)/python tests/conformance/judge_etcd_clients.py

planted: $(BIN)/.installed-dev  ## bugs planted in store, components, indexes and scheduler: which test finds each
	@PYTHONPATH=tests/planted $(BIN)/python tests/planted/swarm_planting.py
	@PYTHONPATH=tests/planted $(BIN)/python tests/planted/swarm_planting.py --of cluster
	@PYTHONPATH=tests/planted $(BIN)/python tests/planted/index_planting.py
	@PYTHONPATH=tests/planted $(BIN)/python tests/planted/scheduler_planting.py
	@MINIKUBE_PY_PLANTED=all $(BIN)/python -m pytest -n $(JOBS) tests/planted/test_planted_bugs.py

mutants: $(BIN)/.installed-dev  ## LIMIT=n automatic mutants of raft, wal, mvcc and store: how many are detected; resumable
	@$(BIN)/python tests/mutants/mutants_command.py --limit $(LIMIT) --jobs $(JOBS)

laws: $(BIN)/.installed-dev  ## EXAMPLES=n random programs and histories on every structure; SEED=s selects others
	@MINIKUBE_PY_LAW_EXAMPLES=$(EXAMPLES) MINIKUBE_PY_LAW_SEED=$(SEED) $(BIN)/python -m pytest -n $(JOBS) --timeout 3600 tests/property/test_index_laws.py tests/property/test_index_laws_store.py

.PHONY: judge
judge: $(BIN)/.installed-dev  ## SCRIPTS=n scripts of each theme on upstream's scheduler and ours; REQUESTS=n to both API servers (needs Go)
	@MINIKUBE_PY_JUDGE_EXAMPLES=$(REQUESTS) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/conformance/test_differential.py
	@$(BIN)/python tests/conformance/judge_scheduler.py --seeds $(SCRIPTS) --journal results/judge-scheduler.jsonl --write

.PHONY: test-cmd
test-cmd: $(BIN)/.installed-dev  ## ON=ours|upstream Kubernetes' own test-cmd with the real kubectl, function by function (needs Go)
	@$(BIN)/python tests/conformance/judge_test_cmd.py --on $(ON) --write

.PHONY: judge-e2e
judge-e2e: $(BIN)/.installed-dev  ## Kubernetes' own end-to-end tests that pass here, or FOCUS=regex of all (needs Go; they are built at first, for many minutes)
	@$(BIN)/python tests/conformance/judge_e2e.py --focus '$(FOCUS)'

.PHONY: judge-helm
judge-helm: $(BIN)/.installed-dev  ## helm and kustomize on upstream's control plane and on ours, output by output (needs Go; helm is built at first)
	@$(BIN)/python tests/conformance/judge_helm.py

.PHONY: large-objects
large-objects: $(BIN)/.installed-dev  ## KINDS="k..." FIELDS=n every field of every kind filled to 250 KB, sent in every way: the longest steps (hours without FIELDS)
	@$(BIN)/python tests/bench/bench_large_objects.py --fields $(or $(FIELDS),0) $(KINDS)

.PHONY: packing
packing: $(BIN)/.installed  ## JOBS=n the 17 published pod lists under six packing policies, 10 seeds each: half an hour on two cores; resumable
	@$(BIN)/minikube-py lab packing --pods all --jobs $(JOBS) --journal results/packing.jsonl --write docs/data/packing.json

.PHONY: packing-whole
packing-whole: $(BIN)/.installed-dev  ## the complete default list through the whole control plane in virtual time: the replay's nodes and devices
	@MINIKUBE_PY_PACKING_EVERY=1 $(BIN)/python -m pytest -n 0 --timeout 1800 tests/unit/lab/test_packing_whole.py

.PHONY: packing-limits
packing-limits: $(BIN)/.installed-dev  ## bounds on packing by linear programs, and nodes that suffice (Borg's compaction): minutes; resumable
	@$(BIN)/python tools/packing_limits.py --journal results/packing-limits.jsonl --write
	@$(BIN)/python tools/packing_limits.py --page

.PHONY: packing-prices
packing-prices: $(BIN)/.installed  ## JOBS=n judges the packing policy of our own beside FGD, as registered: minutes; resumable
	@$(BIN)/python tools/packing_prices.py --jobs $(JOBS) --journal results/packing-prices.jsonl --write

study-quick: $(BIN)/.installed  ## the pre-registered study of filters and indexes, small: minutes; report in results/
	@rm -rf results/study-bloom-quick
	@$(BIN)/minikube-py lab study bloom --quick --jobs $(JOBS)

.PHONY: study-emptiness
study-emptiness: $(BIN)/.installed  ## the registered study of fronts, complete: hours; resumable; report in results/study-emptiness
	@$(BIN)/minikube-py lab study emptiness --jobs $(JOBS) $(if $(wildcard results/study-emptiness/cells.jsonl),--resume)

clean:           ## remove what was built
	rm -rf $(VENV) build dist *.egg-info
