//! Who wants to know when assets change: changes in order, and for a slow one what it missed.
//!
//! Walk: [`Subscriptions::add`] and [`Subscriptions::wants`] · [`Subscriptions::tell`] gives a change to everybody who wants it, and
//! waits for nobody · [`Subscriptions::take`] is the subscriber's side: its changes, then one word about what did not fit.
//! Deliberately absent: threads, and what became of assets before the subscription: ask for it after subscribing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use assent_membership::Sequence;

use crate::asset::{Asset, AssetId};
use crate::error::AssetsError;
use crate::guest::{CLIENTS_MAX, NEWS_MAX};

/// Assets of one subscription, at most, where it is not all of them.
pub const WANTED_MAX: usize = 65_536;
/// Assets of all subscriptions together, at most.
pub const WANTED_SUM_MAX: usize = 1 << 20;
/// Changes that all subscriptions together may keep, at most: of 40 bytes, in queues that may have room for twice as many.
pub const KEPT_SUM_MAX: usize = 1 << 22;

const _: () = assert!(CLIENTS_MAX * NEWS_MAX <= KEPT_SUM_MAX, "each connection may keep what goes out in one frame");

/// An asset after a command. What came together has one place in the log: several changes in succession may have one sequence, and are
/// told in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The entry of the log that holds the command.
    pub sequence: Sequence,
    /// Which asset.
    pub id: AssetId,
    /// What it is now; nothing if it was removed.
    pub asset: Option<Asset>,
}

/// What a subscriber is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A change.
    Change(Change),
    /// Here changes are missing, because they were not taken in time. Ask for the assets again.
    Missed {
        /// How many.
        changes: u64,
        /// The first entry of which one is missing.
        first: Sequence,
        /// The last.
        last: Sequence,
    },
}

/// Names a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(u64);

#[derive(Debug)]
struct Subscriber {
    /// Nothing: all assets.
    wanted: Option<BTreeSet<AssetId>>,
    queue: VecDeque<Change>,
    most: usize,
    missed: Option<(u64, Sequence, Sequence)>,
}

/// All subscriptions.
#[derive(Debug, Default)]
pub struct Subscriptions {
    all: BTreeMap<SubscriptionId, Subscriber>,
    of_everything: BTreeSet<SubscriptionId>,
    by_asset: BTreeMap<AssetId, BTreeSet<SubscriptionId>>,
    /// Assets that they name, each as often as it is named.
    wanted: usize,
    /// Changes that they may keep.
    kept: usize,
    next: u64,
}

impl Subscriptions {
    /// A new one, of these assets or of all, that keeps up to `most` changes until they are taken. Of more than [`WANTED_MAX`] assets
    /// the first ones are taken.
    ///
    /// # Errors
    /// [`AssetsError::Subscribed`] where all together would name more than [`WANTED_SUM_MAX`] assets; [`AssetsError::Keeps`] where they could keep
    /// more than [`KEPT_SUM_MAX`] changes.
    pub fn add(&mut self, wanted: Option<&[AssetId]>, most: usize) -> Result<SubscriptionId, AssetsError> {
        let wanted: Option<BTreeSet<AssetId>> = wanted.map(|wanted| wanted.iter().copied().take(WANTED_MAX).collect());
        let sum = self.wanted + wanted.as_ref().map_or(0, BTreeSet::len);
        if sum > WANTED_SUM_MAX {
            return Err(AssetsError::Subscribed { assets: sum });
        }
        let most = most.max(1);
        let kept = self.kept.saturating_add(most);
        if kept > KEPT_SUM_MAX {
            return Err(AssetsError::Keeps { changes: kept, asked: most });
        }
        (self.wanted, self.kept) = (sum, kept);
        let id = SubscriptionId(self.next);
        self.next += 1;
        match &wanted {
            Some(wanted) => {
                for asset in wanted {
                    self.by_asset.entry(*asset).or_default().insert(id);
                }
            }
            None => _ = self.of_everything.insert(id),
        }
        self.all.insert(id, Subscriber { wanted, queue: VecDeque::new(), most, missed: None });
        Ok(id)
    }

    /// It is gone, and what was kept for it.
    pub fn remove(&mut self, id: SubscriptionId) {
        self.of_everything.remove(&id);
        let Some(subscriber) = self.all.remove(&id) else { return };
        self.wanted -= subscriber.wanted.as_ref().map_or(0, BTreeSet::len);
        self.kept -= subscriber.most;
        for asset in subscriber.wanted.into_iter().flatten() {
            if let Some(who) = self.by_asset.get_mut(&asset) {
                who.remove(&id);
                if who.is_empty() {
                    self.by_asset.remove(&asset);
                }
            }
        }
    }

    /// Whether nobody wants anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether somebody wants to know of this asset.
    #[must_use]
    pub fn wants(&self, id: AssetId) -> bool {
        !self.of_everything.is_empty() || self.by_asset.contains_key(&id)
    }

    /// Tells a change to everybody who wants it.
    pub fn tell(&mut self, change: &Change) {
        let named = self.by_asset.get(&change.id).into_iter().flatten();
        for id in self.of_everything.iter().chain(named) {
            if let Some(subscriber) = self.all.get_mut(id) {
                subscriber.take_in(change);
            }
        }
    }

    /// A change that nobody can be told any more counts as missed.
    pub(crate) fn miss(&mut self, change: &Change) {
        let named = self.by_asset.get(&change.id).into_iter().flatten();
        for id in self.of_everything.iter().chain(named) {
            if let Some(subscriber) = self.all.get_mut(id) {
                subscriber.miss(change);
            }
        }
    }

    /// Takes up to so many of the oldest news of a subscription.
    pub fn take(&mut self, id: SubscriptionId, most: usize) -> Vec<News> {
        let Some(subscriber) = self.all.get_mut(&id) else { return Vec::new() };
        let count = most.min(subscriber.queue.len());
        let mut news: Vec<News> = subscriber.queue.drain(..count).map(News::Change).collect();
        if subscriber.queue.is_empty()
            && news.len() < most
            && let Some((changes, first, last)) = subscriber.missed.take()
        {
            news.push(News::Missed { changes, first, last });
        }
        news
    }
}

impl Subscriber {
    fn take_in(&mut self, change: &Change) {
        match self.missed {
            // Once something is missing all is, until it has been told: so news stay in order.
            None if self.queue.len() < self.most => self.queue.push_back(*change),
            _ => self.miss(change),
        }
    }

    fn miss(&mut self, change: &Change) {
        let (changes, first, _) = self.missed.unwrap_or((0, change.sequence, change.sequence));
        self.missed = Some((changes + 1, first, change.sequence));
    }
}

#[cfg(test)]
mod tests {
    use assent_kind::Kind;

    use super::*;

    fn change(sequence: u64, id: u64) -> Change {
        let asset = Some(Asset { value: 1, updates: sequence });
        Change { sequence: Sequence(sequence), id: AssetId(id), asset }
    }

    #[test]
    fn who_wants_an_asset_is_told_and_nobody_else() {
        let mut subscriptions = Subscriptions::default();
        assert!(!subscriptions.wants(AssetId(1)));
        let one = subscriptions.add(Some(&[AssetId(1), AssetId(2)]), 10).unwrap();
        assert!(subscriptions.wants(AssetId(2)) && !subscriptions.wants(AssetId(3)));
        let all = subscriptions.add(None, 10).unwrap();
        assert!(subscriptions.wants(AssetId(3)));
        [change(1, 1), change(2, 3)].iter().for_each(|change| subscriptions.tell(change));
        assert_eq!(subscriptions.take(one, 10), [News::Change(change(1, 1))]);
        assert_eq!(subscriptions.take(all, 1), [News::Change(change(1, 1))]);
        assert_eq!(subscriptions.take(all, 9), [News::Change(change(2, 3))]);
        subscriptions.remove(all);
        subscriptions.remove(one);
        assert!(subscriptions.is_empty() && !subscriptions.wants(AssetId(1)));
        assert_eq!((subscriptions.by_asset.len(), subscriptions.take(one, 1)), (0, Vec::new()));
    }

    /// Each had its limit and all together had none: 4,000 connections that read nothing could have 10 GB kept for them.
    #[test]
    fn what_all_may_keep_has_a_limit_and_who_leaves_makes_room() {
        let mut subscriptions = Subscriptions::default();
        let all: Vec<_> = (0..KEPT_SUM_MAX / 65_536).map(|_| subscriptions.add(None, 65_536).unwrap()).collect();
        let refused = subscriptions.add(Some(&[AssetId(1)]), 1).unwrap_err();
        assert_eq!(refused, AssetsError::Keeps { changes: KEPT_SUM_MAX + 1, asked: 1 });
        assert_eq!(refused.kind(), Kind::Full);
        let text = refused.to_string();
        assert!(text.contains("4194305") && text.contains("4194304"), "{text}");
        assert!(subscriptions.add(None, usize::MAX).is_err());
        // Nothing of who was refused stays.
        assert!((subscriptions.len(), subscriptions.wanted, subscriptions.by_asset.len()) == (all.len(), 0, 0));
        subscriptions.remove(all[7]);
        let less = subscriptions.add(Some(&[AssetId(1)]), 65_535).unwrap();
        subscriptions.add(None, 0).unwrap();
        assert!(subscriptions.add(None, 1).is_err(), "who asks for none is given one");
        subscriptions.remove(less);
        subscriptions.remove(less);
        assert!(subscriptions.add(None, 65_536).is_err() && subscriptions.add(None, 65_535).is_ok());
    }

    #[test]
    fn a_slow_subscriber_is_told_what_it_missed_in_its_place() {
        let mut subscriptions = Subscriptions::default();
        let slow = subscriptions.add(None, 2).unwrap();
        (1..=5).for_each(|sequence| subscriptions.tell(&change(sequence, 7)));
        assert_eq!(subscriptions.take(slow, 1), [News::Change(change(1, 7))]);
        subscriptions.tell(&change(6, 7));
        assert_eq!(subscriptions.take(slow, 1), [News::Change(change(2, 7))]);
        let missed = News::Missed { changes: 4, first: Sequence(3), last: Sequence(6) };
        assert_eq!(subscriptions.take(slow, 5), [missed]);
        subscriptions.tell(&change(7, 7));
        assert_eq!(subscriptions.take(slow, 5), [News::Change(change(7, 7))]);
    }
}
