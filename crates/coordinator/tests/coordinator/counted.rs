//! What a transaction costs, counted: counts gate, times do not.

use assent_coordinator::Known;
use assent_xa::{Decider, Verdict};

use super::stand::{Stand, commit};
use crate::client::transfer;

#[test]
fn a_transaction_over_many_branches_costs_one_append_and_one_sync() {
    let stand = Stand::new();
    stand.fence();
    let client = stand.coordinator.embedded().unwrap();
    let before = stand.log.counts();
    for _ in 0..100 {
        assert_eq!(transfer(&client, &stand.banks).verdict, Verdict::Committed);
    }
    let after = stand.log.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (100, 100), "what is finished rides with the next decision");
    assert_eq!(stand.coordinator.gauges().live, 0);
    stand.coordinator.tick().unwrap();
    let told = stand.log.counts();
    assert_eq!((told.0 - after.0, told.1 - after.1), (1, 0), "the last one is told lazily");
}

#[test]
fn one_branch_read_only_branches_and_rollbacks_cost_nothing() {
    let stand = Stand::new();
    stand.fence();
    let client = stand.coordinator.embedded().unwrap();
    let before = stand.log.stored().appends;
    assert_eq!(transfer(&client, &stand.banks[..1]).verdict, Verdict::Committed);
    stand.banks[1].vault().votes_no = true;
    assert!(matches!(transfer(&client, &stand.banks).verdict, Verdict::RolledBack(_)));
    for bank in &stand.banks {
        bank.vault().votes_no = false;
        bank.vault().read_only = true;
    }
    assert_eq!(transfer(&client, &stand.banks).verdict, Verdict::Committed);
    assert_eq!(stand.log.stored().appends, before);
    assert_eq!(stand.coordinator.gauges().live, 0);
}

#[test]
fn many_threads_share_what_one_decides() {
    let stand = Stand::new();
    let client = stand.coordinator.embedded().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let (_, tx) = client.begin().unwrap();
                    client.decide(&commit(tx)).unwrap();
                    assert_eq!(stand.coordinator.ask(tx), Known::Committed);
                    client.finished(tx);
                }
            });
        }
    });
    let gauges = stand.coordinator.gauges();
    assert_eq!((gauges.decided_committed, gauges.live, gauges.forgotten), (4_000, 0, 4_000));
    assert!(stand.log.stored().syncs <= 4_000);
}
