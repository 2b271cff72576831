# The daily commands. `make` alone lists them; what takes more than a line is in scripts/.
# ARGS is handed on: `make demo ARGS="--seed 7"`. BUDGET is in seconds.

# Where cargo builds, as it is told itself.
binaries := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help demo demo-sql doctor test lint bench bench-tx bench-kv bench-docs bench-real bench-recover peers-tx peers-kv peers-docs peers-assets bench-assets gate space model sim matrix failover demo-failover hostile kv-kills docs-kills rest-kills fuzz

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.* ## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "  make %-10s %s\n", $$1, $$2 }'

# The build that `make test` takes as well: from a fresh clone a release takes more than twice as long to be made.
demo: ## transfers between stores while processes are killed; nothing is lost
	cargo build -p assent-cli
	$(binaries)/debug/assent demo $(ARGS)

demo-sql: ## the same with a private PostgreSQL and MariaDB among the stores
	scripts/demo-sql $(ARGS)

demo-failover: ## a pair of asset servers: the primary is killed under load, on screen; nothing is lost or done twice
	cargo build --release -p assent-cli
	$(binaries)/release/assent failover --show 10 --disk-mib 0 $(ARGS)

doctor: ## what `assent doctor` says of a badly set PostgreSQL and MariaDB
	scripts/doctor $(ARGS)

test: ## lint, then all tests, with private database servers
	scripts/test $(ARGS)

lint: ## formatting, clippy and the rules of the house
	cargo xtask check

bench: ## measure the journal and the transactions
	cargo build --release -p assent-cli
	$(binaries)/release/assent bench journal $(ARGS)
	$(binaries)/release/assent bench tx --workload none --coordinator embedded,served -l 1,10,50,100 -C 1000

bench-tx: ## the field's race of transactions, with its charts: ARGS="--matrix published --report NAME.html"
	cargo build --release -p assent-cli
	$(binaries)/release/assent bench tx $(or $(ARGS),--matrix short --report target/tx.html)

bench-kv: ## key-value stores, ours beside a floor, 8 KB objects: ARGS="--scenario all -t 60 --report NAME.html"
	cargo build --release -p assent-cli
	$(binaries)/release/assent bench kv $(or $(ARGS),--report target/kv.html)

bench-docs: ## documents: long histories and large ones, against durable writes of the same bytes: ARGS="--scenario history --report NAME.html"
	cargo build --release -p assent-cli
	$(binaries)/release/assent bench docs $(or $(ARGS),--report target/docs.html)

bench-assets: ## assets, one server and a pair, against as many processes that do nothing: ARGS="--role pair --shapes 6x1 --report NAME.html"
	cargo build --release -p assent-cli
	$(binaries)/release/assent bench assets $(or $(ARGS),--report target/assets.html)

bench-real: ## one row in PostgreSQL and one in MariaDB, against plain commits and the verbs by hand
	scripts/bench-sql real $(ARGS)

bench-recover: ## 10,000 branches in doubt in both databases, and killed clients: how long until nothing is left
	scripts/bench-sql recover $(ARGS)

peers-tx: ## transactions against Narayana, Atomikos and plain commits, in one run (Java 17, Maven; peers/README.md)
	scripts/peers-tx $(ARGS)

peers-kv: ## the same against RocksDB, LevelDB, fjall and redb, in one run (their packages; peers/README.md)
	scripts/peers-kv $(or $(ARGS),--report target/peers-kv.html)

peers-docs: ## documents against PostgreSQL as jsonb with a history table, in one run (a server of its own; peers/README.md)
	scripts/peers-docs $(ARGS)

peers-assets: ## a pair of asset servers against Redis with a replica and etcd, in one run (their packages; peers/README.md)
	scripts/peers-assets $(ARGS)

gate: ## the gate tests only, for BUDGET seconds each (default 600)
	ASSENT_GATE_SECONDS=$(or $(BUDGET),600) cargo test --workspace gate_ -- --nocapture $(ARGS)

space: ## what a key-value store takes and writes under pressure, counted at a 16th and a 4th of 4 GiB: minutes, 4 GiB of memory
	cargo test -p assent-kv --test kv -- --ignored --nocapture --test-threads 1 space:: $(ARGS)

model: ## the model check of the membership rules for BUDGET seconds a gate (default 600); SEED=number for other walks
	ASSENT_GATE_SECONDS=$(or $(BUDGET),600) ASSENT_GATE_SEED=$(or $(SEED),1) cargo test -p assent-membership gate_ -- --nocapture $(ARGS)

sim: ## groups in simulated time, of assets and of a small machine, SEEDS of each (default 20000) from SEED (default 1) on
	ASSENT_SIM_SEEDS=$(or $(SEEDS),20000) ASSENT_SIM_SEED=$(or $(SEED),1) cargo test -p assent-replica -p assent-assets --lib gate_no_seed -- --nocapture $(ARGS)

matrix: ## every process killed at every stop point, alone and under load, for BUDGET seconds (default 600)
	scripts/matrix $(or $(BUDGET),600) $(ARGS)

failover: ## a pair killed, frozen, cut off, slowed, filled under 16 clients, N plays (default 50): every history is judged
	scripts/failover $(or $(N),50) $(ARGS)

kv-kills: ## the served store killed under 64 clients, 30 times and as often as BUDGET seconds (default 120) allow
	ASSENT_KILLS=30 ASSENT_KILLS_SECONDS=$(or $(BUDGET),120) cargo test -p assent-cli --test cli -- --nocapture store_kills

docs-kills: ## a process that commits documents killed 50 times, and as often as BUDGET seconds (default 60) allow
	ASSENT_KILLS=50 ASSENT_KILLS_SECONDS=$(or $(BUDGET),60) cargo test -p assent-docs --test docs -- --nocapture kills_of

rest-kills: ## a server killed under 32 HTTP writers whose requests have keys, 30 times and as often as BUDGET seconds (default 120) allow
	ASSENT_KILLS=30 ASSENT_KILLS_SECONDS=$(or $(BUDGET),120) cargo test -p assent-cli --test cli -- --nocapture rest_kills

hostile: ## 10,000 hostile connections against a town that goes on committing (CONNECTIONS=number)
	scripts/hostile $(or $(CONNECTIONS),10000)

fuzz: ## coverage-guided fuzzing, BUDGET seconds a target (default 60; nightly and cargo-fuzz needed)
	scripts/fuzz $(or $(BUDGET),60)
