# Go 1.26 is all that the targets need, except e2e, zmq and vocabularies, which
# need Python, and e2e Node.js besides.

GO      ?= go
TOOL    := $(GO) tool -modfile=tools/go.mod
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

FUZZTIME ?= 10s
BENCH    ?= all
SCALE    ?= 100
SEED     ?= $(shell date +%Y%m%d)

# The race detector needs cgo; nothing else does.
ifdef RACE
export CGO_ENABLED := 1
RACEFLAG := -race
else
export CGO_ENABLED := 0
endif

.DEFAULT_GOAL := help
.PHONY: build test lint fuzz bench bench-short nightly soak e2e e2e-agents e2e-kserve e2e-perf-analyzer e2e-redis e2e-lmcache e2e-nats e2e-otlp e2e-s3 e2e-tiny e2e-tiny-torch prometheus backends zmq templates vocabularies generate help

build: ## static binary bin/dynago
	$(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/dynago ./cmd/dynago

# One goroutine computes virtual time, makes workloads up and texts to train with: the
# race detector finds nothing there, and makes it twenty times slower.
SINGLE = ./bench/virtual ./bench/workload ./sim ./sim/agenttrace ./sim/trace ./internal/demo/train ./internal/tiny/train
# So do numbers, and the scripts of the command, each line of which starts it anew.
REUSE = '^TestReuseChangesNothing$$'
SCRIPTS = '^TestScripts$$'

test: ## all tests that need Go alone (RACE=1: with the race detector)
	$(GO) test -tags invariants ./kvcache ./kvindex ./engine/mock
	$(GO) test -tags invariants -run TestAnyHistory ./kvcache -args -rapid.checks 2000
	$(GO) test $(SINGLE)
	$(GO) test -timeout 5m -run $(REUSE) ./engine/tiny -args -rapid.checks 150
	$(GO) test -run $(SCRIPTS) ./cmd/dynago
	$(GO) test -timeout 20m $(RACEFLAG) -skip $(REUSE)'|'$(SCRIPTS) $$($(GO) list ./... | grep -v $(SINGLE:./%=-e '/%$$'))

lint: ## go vet, staticcheck and gofumpt, at the versions of tools/go.mod
	$(GO) vet -tags e2e,realengine ./...
	$(GO) vet -tags invariants ./kvcache ./kvindex
	$(TOOL) staticcheck -tags e2e,realengine ./...
	@files=$$($(TOOL) gofumpt -l $$(git ls-files -co --exclude-standard '*.go' | xargs grep -L '^// Code generated .* DO NOT EDIT')) || exit 1; \
	if [ -n "$$files" ]; then echo "not formatted; run gofumpt -w on:"; echo "$$files"; exit 1; fi

fuzz: ## each fuzz target for FUZZTIME (10s)
	@set -e; \
	targets=$$($(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/ {names = names " " $$1} /^ok/ {n = split(names, a); for (i = 1; i <= n; i++) print $$2 ":" a[i]; names = ""}'); \
	for t in $$targets; do \
		echo "== $${t%:*} $${t#*:}"; \
		$(GO) test -run '^$$' -fuzz "^$${t#*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$${t%:*}"; \
	done

bench: ## the figures of bench/README.md (BENCH=B8,B9: some of them)
	$(GO) run ./bench -id $(BENCH) -json bench.out

bench-short: ## a short form of all figures, about a minute
	$(GO) run ./bench -id all -short

nightly: ## the index against its model, some 20 million steps (SCALE=100, SEED: today), the pool against its own, a million, and 100,000 workloads in virtual time
	$(GO) test -count=1 -timeout 1h -tags invariants -run TestAnyHistory ./kvcache -args -rapid.checks 10000 -rapid.steps 100
	$(GO) test -count=1 -timeout 1h -run $(REUSE) ./engine/tiny -args -rapid.checks 3000
	$(GO) test -count=1 -timeout 3h -run TestIndex ./kvindex ./kvindex/positional -args -indextest.scale $(SCALE) -indextest.seed $(SEED)
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 3h -run TestIndex ./kvindex ./kvindex/positional -args -indextest.scale $(SCALE) -indextest.seed $(SEED)
	$(GO) test -count=1 -timeout 3h -run TestAnyWorkload ./sim -args -rapid.checks 100000

soak: ## ten minutes of load, aborts and worker churn
	$(GO) run ./bench -id B16

e2e: build ## the built binary against the official SDKs of OpenAI and Anthropic, and Vercel's
	e2e/run

backends: build ## workers in Python and Go, of examples, behind the built binary
	e2e/backend/run

e2e-agents: build ## Codex CLI, OpenCode, Claude Code and Pi at work, against models of four families
	e2e/agents/run

e2e-vllm: build ## the built binary before two real vLLM servers, on processors, with a tiny model
	e2e/vllm/run

e2e-sglang: build ## the same before two real SGLang servers, on processors
	e2e/sglang/run

e2e-llamacpp: build ## the same before two real servers of llama.cpp
	e2e/llamacpp/run

e2e-kserve: build ## the built binary against the Python clients of Triton, grpcurl, and a client that does as the one in C++
	e2e/kserve/run

e2e-perf-analyzer: build ## the same against Triton's benchmark
	e2e/kserve/run perf

e2e-redis: build ## the built binary's kvstore against redis-py, LMCache's native client and, where they are installed, Redis's own tools
	e2e/redis/run

e2e-lmcache: build ## the same against LMCache's connectors, over tensors of PyTorch
	e2e/redis/run lmcache

e2e-nats: ## trace/nats against a NATS server
	e2e/nats/run

e2e-otlp: ## trace/otlp and internal/otel against the receiver of the OpenTelemetry Collector
	e2e/otlp/run

e2e-s3: ## kvcache/s3 and trace/s3 against two S3 servers that others wrote, versitygw and Moto
	e2e/s3/run

e2e-tiny: ## the numbers of engine/tiny against those of llama.cpp
	e2e/oracle/run

e2e-tiny-torch: ## the same against PyTorch's, 1.5 GB (UPDATE=1: for the model in the binary, anew into testdata)
	e2e/oracle/run torch

prometheus: build ## the page of metrics, boards and rules against Prometheus' own parsers and promtool
	e2e/prometheus/run

zmq: ## kvevent and its sockets, and tool events, against libzmq
	e2e/zmq/run

templates: ## all chat templates of npm, PyPI and Go packages against Python's Jinja2
	chattemplate/testdata/corpus/run

vocabularies: ## real vocabularies, in all their forms, against the ids of the real libraries (UPDATE=1: ask those anew)
	$(GO) run ./internal/models/fetch '*/tokenizer.*' '*/tekken.json'
	$(GO) test -count=1 -timeout 60m -tags e2e -run TestVocabularies ./tokenizer/corpus $(if $(UPDATE),-args -update)
	$(GO) test -count=1 -timeout 10m -tags e2e -run TestFetched ./prompt

generate: ## what is generated
	$(GO) generate ./...

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-17s %s\n", $$1, $$2}' Makefile
