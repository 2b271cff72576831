//! What a race leaves in its servers: every command that was answered, once, and one state in both nodes.
//!
//! Walk: [`create`] the assets before · [`executed`] and [`agreed`] after. [`listen`] is a subscriber beside the load.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_assets::{Answer, AssetId, Client, ClientError, Feed, KEPT_SUM_MAX, News, OPS_MAX, Op, Options, Status};
use assent_kind::Kind;
use assent_world::net::Address;
use assent_world::{Clock as _, RealClock};

use super::load::PATIENCE;
use crate::BenchError;

/// Changes that a server keeps for a subscriber of the race, at most.
const NEWS_KEPT: u32 = 65_536;
const LOOK: Duration = Duration::from_millis(10);

fn client(at: &Address) -> Result<Client, BenchError> {
    let options = Options { session: false, patience: PATIENCE, ..Options::to(at.clone()) };
    Client::connect(options, Arc::new(RealClock)).map_err(said)
}

fn said(error: ClientError) -> BenchError {
    BenchError::new(error.kind, error.message)
}

/// How a server is.
///
/// # Errors
/// As the client says.
pub fn status(at: &Address) -> Result<Status, BenchError> {
    client(at)?.status().map_err(said)
}

/// Has a server write a snapshot soon; how it is now.
///
/// # Errors
/// As the client says.
pub fn snapshot(at: &Address) -> Result<Status, BenchError> {
    client(at)?.snapshot().map_err(said)
}

/// So many operations at once, over all assets.
fn over(
    at: &Address,
    assets: RangeInclusive<u64>,
    op: impl Fn(AssetId) -> Op,
    mut done: impl FnMut(&Answer),
) -> Result<(), BenchError> {
    let mut client = client(at)?;
    let most = u64::try_from(OPS_MAX).unwrap_or(1);
    for first in assets.clone().step_by(OPS_MAX) {
        let last = (first + most - 1).min(*assets.end());
        let ops: Vec<Op> = (first..=last).map(|id| op(AssetId(id))).collect();
        let answer = client.execute(&ops).map_err(said)?;
        if !matches!(answer, Answer::Done(_)) {
            return Err(BenchError::new(Kind::Internal, format!("the assets of the race answered {answer:?}")));
        }
        done(&answer);
    }
    Ok(())
}

/// Creates the assets of the race.
///
/// # Errors
/// As the client says.
pub fn create(at: &Address, assets: u64) -> Result<(), BenchError> {
    create_more(at, 1..=assets)
}

/// Creates some of them.
///
/// # Errors
/// As the client says.
pub fn create_more(at: &Address, assets: RangeInclusive<u64>) -> Result<(), BenchError> {
    over(at, assets, |id| Op::Create { id, value: 0 }, |_| {})
}

/// What all assets say: how many commands were executed.
///
/// # Errors
/// As the client says.
pub fn executed(at: &Address, assets: u64) -> Result<u64, BenchError> {
    let mut sum = 0;
    over(
        at,
        1..=assets,
        |id| Op::Get { id },
        |answer| {
            if let Answer::Done(results) = answer {
                sum += results.assets.iter().map(|asset| asset.updates).sum::<u64>();
            }
        },
    )?;
    Ok(sum)
}

/// Waits until all nodes have executed the same, and holds their states against each other.
///
/// # Errors
/// `Corrupt` where they differ; `Unavailable` for one that does not come so far.
pub fn agreed(nodes: &[Address]) -> Result<(), BenchError> {
    let until = RealClock.now().after(PATIENCE);
    loop {
        let all = nodes.iter().map(status).collect::<Result<Vec<_>, _>>()?;
        let states: Vec<(u64, u64)> = all.iter().map(|status| (status.stats.sequence.0, status.stats.hash)).collect();
        if states.windows(2).all(|two| two.first() == two.last()) {
            return Ok(());
        }
        let same = states.windows(2).all(|two| two.first().map(|one| one.0) == two.last().map(|one| one.0));
        if same {
            return Err(BenchError::new(
                Kind::Corrupt,
                format!("the nodes of the race have different states: {states:x?}"),
            ));
        }
        if RealClock.now() >= until {
            return Err(BenchError::new(Kind::Unavailable, format!("a node of the race lags behind: {states:x?}")));
        }
        RealClock.sleep(LOOK);
    }
}

/// Changes that a server keeps for each of so many.
#[must_use]
pub fn kept_of(subscribers: u32) -> u32 {
    let each = u32::try_from(KEPT_SUM_MAX).unwrap_or(u32::MAX) / subscribers.max(1);
    each.min(NEWS_KEPT)
}

/// Takes in the news of all assets until it is told to stop, of which so many may wait; how many changes came, and how many were said
/// to be missing.
///
/// # Errors
/// As the feed says.
pub fn listen(at: &Address, kept: u32, stop: &AtomicBool, ready: impl FnOnce()) -> Result<(u64, u64), BenchError> {
    let opened = Feed::open(at, &[], kept, PATIENCE).map_err(said);
    ready();
    let (mut feed, mut told, mut missed) = (opened?, 0, 0);
    loop {
        // Whoever stops it has no more commands under way: what was confirmed before is on its way.
        let is_last = stop.load(Ordering::SeqCst);
        match feed.next(Duration::from_millis(100)).map_err(said)? {
            Some(news) => {
                for one in news {
                    match one {
                        News::Change(_) => told += 1,
                        News::Missed { changes, .. } => missed += changes,
                    }
                }
            }
            None if is_last => return Ok((told, missed)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_what_all_subscribers_of_a_race_ask_for() {
        for count in [1, 64, 65, 1_000] {
            let all = usize::try_from(kept_of(count) * count).unwrap();
            assert!(all > 0 && all <= KEPT_SUM_MAX, "{count}");
        }
        assert_eq!((kept_of(0), kept_of(64), kept_of(1_000)), (NEWS_KEPT, NEWS_KEPT, 4_194));
    }
}
