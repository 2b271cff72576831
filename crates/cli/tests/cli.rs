//! The binary as people and scripts meet it: sentences, exit codes, JSON; and the demo under every kill.

#[path = "cli/assent.rs"]
mod assent;
#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/exhausted.rs"]
mod exhausted;
#[path = "cli/full.rs"]
mod full;
#[path = "cli/kills.rs"]
mod kills;
#[path = "cli/matrix.rs"]
mod matrix;
#[path = "cli/served.rs"]
mod served;
#[path = "cli/tx.rs"]
mod tx;
#[path = "cli/usage.rs"]
mod usage;
