//! The binary as people and scripts meet it: sentences, exit codes, JSON; and the demo under every kill.

#[path = "cli/assent.rs"]
mod assent;
#[path = "cli/assets.rs"]
mod assets;
#[path = "cli/bare.rs"]
mod bare;
#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/by_hand.rs"]
mod by_hand;
#[path = "cli/copied.rs"]
mod copied;
#[path = "cli/docs.rs"]
mod docs;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/exhausted.rs"]
mod exhausted;
#[path = "cli/fail_over.rs"]
mod fail_over;
#[path = "cli/full.rs"]
mod full;
#[path = "cli/harmed.rs"]
mod harmed;
#[path = "cli/held.rs"]
mod held;
#[path = "cli/http.rs"]
mod http;
#[path = "cli/kills.rs"]
mod kills;
#[path = "cli/kv.rs"]
mod kv;
#[path = "cli/manual.rs"]
mod manual;
#[path = "cli/matrix.rs"]
mod matrix;
#[path = "cli/operator.rs"]
mod operator;
#[path = "cli/pair.rs"]
mod pair;
#[path = "cli/pooled.rs"]
mod pooled;
#[path = "cli/report.rs"]
mod report;
#[path = "cli/rest_kills.rs"]
mod rest_kills;
#[path = "cli/rights.rs"]
mod rights;
#[path = "cli/served.rs"]
mod served;
#[path = "cli/store.rs"]
mod store;
#[path = "cli/store_kills.rs"]
mod store_kills;
#[path = "cli/store_limits.rs"]
mod store_limits;
#[path = "cli/survives.rs"]
mod survives;
#[path = "cli/tour.rs"]
mod tour;
#[path = "cli/town.rs"]
mod town;
#[path = "cli/tx.rs"]
mod tx;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/votes.rs"]
mod votes;
#[path = "cli/witness.rs"]
mod witness;
