//! What the attendants of all resources share, under the coordinator's lock: what each saw prepared, whom each found to be
//! at work beside us, and a branch that nobody here can have begun. No I/O.
//!
//! Walk: [`Attended::expect`] the resources that are to be attended · [`Attended::saw`] a listing · [`Attended::claimed`]
//! how a claim went · [`Attended::refusal`] whether new work may be taken · [`Attended::yields`] who steps back.
//!
//! Why new work is refused while another process resolves this node's branches: two processes over copies of one data
//! folder open the same epoch and hand out the same incarnations. The other's agent finds a branch that our client has
//! prepared, takes the client for one of its own that it fenced, and rolls the branch back while we decide commit.
//! So: no claim, no decision. What is decided already is in both copies, and is finished by either.
//! Not a lease: a claim ends with its connection, which the holder sees when it looks again, up to 10 s later. A copy
//! that starts in exactly that time, and reaches everything that the first one has lost, is not found by it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use assent_ids::{ResourceId, TxId};
use assent_world::Moment;
use assent_xa::{BranchRecord, Native};

use crate::Stopped;

/// A dead resource keeps no server from its work for longer, once it has been started.
const FIRST_PASS_MAX: Duration = Duration::from_secs(1);

/// Branches seen prepared, by transaction, and since when.
pub(crate) type Sights = BTreeMap<TxId, (Moment, Vec<BranchRecord>)>;

/// How the claim on a resource stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nobody has asked yet.
    Unasked,
    /// It is this process's.
    Ours,
    /// Another process has it.
    Theirs(Native),
    /// It could not be asked, or the connection that had it is gone.
    Unknown,
}

#[derive(Debug)]
struct Post {
    name: String,
    claim: Claim,
    sights: Sights,
    stranger: Option<Stopped>,
}

/// What the attendants share.
#[derive(Debug, Default)]
pub(crate) struct Attended {
    posts: BTreeMap<ResourceId, Post>,
    since: Moment,
    /// Every resource has been asked for its claim, and none is somebody else's: what each commit looks at.
    is_clear: bool,
}

impl Attended {
    /// These are to be attended from now on. Nothing is decided before each was asked for its claim once.
    pub(crate) fn expect(&mut self, names: &[(ResourceId, String)], now: Moment) {
        let post =
            |name: &String| Post { name: name.clone(), claim: Claim::Unasked, sights: Sights::new(), stranger: None };
        self.posts = names.iter().map(|(id, name)| (*id, post(name))).collect();
        self.since = now;
        self.is_clear = self.posts.is_empty();
    }

    /// What a resource lists, in place of what it listed before. All that is seen anywhere.
    pub(crate) fn saw(&mut self, resource: ResourceId, sights: Sights) -> BTreeSet<TxId> {
        if let Some(post) = self.posts.get_mut(&resource) {
            post.sights = sights;
        }
        self.posts.values().flat_map(|post| post.sights.keys().copied()).collect()
    }

    /// Since when branches of this transaction are seen, and which.
    pub(crate) fn seen(&self, tx: TxId) -> Option<(Moment, Vec<BranchRecord>)> {
        let mut sights = self.posts.values().filter_map(|post| post.sights.get(&tx));
        let (first, branches) = sights.next()?;
        let mut all = (*first, branches.clone());
        for (first, branches) in sights {
            all.0 = all.0.min(*first);
            all.1.extend_from_slice(branches);
        }
        all.1.sort_by_key(|branch| branch.number);
        Some(all)
    }

    /// A listing with a branch that nobody here can have begun, or one without.
    pub(crate) fn stranger(&mut self, resource: ResourceId, stranger: Option<Stopped>) {
        if let Some(post) = self.posts.get_mut(&resource) {
            post.stranger = stranger;
        }
    }

    /// The first such branch. While there is one nothing is touched anywhere.
    pub(crate) fn stopped(&self) -> Option<&Stopped> {
        self.posts.values().find_map(|post| post.stranger.as_ref())
    }

    /// How a claim went.
    pub(crate) fn claimed(&mut self, resource: ResourceId, claim: Claim) {
        if let Some(post) = self.posts.get_mut(&resource) {
            post.claim = claim;
        }
        let is_clear = |post: &Post| matches!(post.claim, Claim::Ours | Claim::Unknown);
        self.is_clear = self.posts.values().all(is_clear);
    }

    /// Where another process of this node is at work, and what the resource says of it.
    pub(crate) fn rivals(&self) -> impl Iterator<Item = (&str, &Native)> {
        self.posts.values().filter_map(|post| match &post.claim {
            Claim::Theirs(native) => Some((post.name.as_str(), native)),
            Claim::Unasked | Claim::Ours | Claim::Unknown => None,
        })
    }

    /// Whether a claim at this resource is to be given up: two copies that start at the same moment may have claimed half
    /// of the resources each. Whoever is refused at one gives up all behind it, so the first one decides.
    pub(crate) fn yields(&self, resource: ResourceId) -> Option<&str> {
        let mut before = self.posts.range(..resource).map(|(_, post)| post);
        before.find(|post| matches!(post.claim, Claim::Theirs(_))).map(|post| post.name.as_str())
    }

    /// Why no new client and no new commit is taken now; none if they are.
    pub(crate) fn refusal(&self, now: Moment) -> Option<String> {
        if self.is_clear {
            return None;
        }
        if let Some((name, _)) = self.rivals().next() {
            return Some(rivalled(name));
        }
        if now.since(self.since) > FIRST_PASS_MAX {
            return None;
        }
        let unasked = self.posts.values().find(|post| post.claim == Claim::Unasked)?;
        Some(format!("resource {} has not been asked for its claim yet: send it again in a moment", unasked.name))
    }
}

/// In plain words.
pub(crate) fn rivalled(name: &str) -> String {
    format!("another process of this node resolves at resource {name}: a copied data folder? stop one of the two")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ResourceId = ResourceId(1);
    const TWO: ResourceId = ResourceId(2);
    const THREE: ResourceId = ResourceId(3);

    fn attended() -> Attended {
        let mut it = Attended::default();
        let names = [(ONE, "one".to_owned()), (TWO, "two".to_owned()), (THREE, "three".to_owned())];
        it.expect(&names, Moment(5));
        it
    }

    fn theirs() -> Claim {
        Claim::Theirs(Native::default())
    }

    #[test]
    fn nothing_is_taken_before_all_were_asked_or_a_second_has_passed() {
        let mut it = attended();
        let (limit, beyond) = (Moment(1_000_005), Moment(1_000_006));
        [ONE, TWO].into_iter().for_each(|id| it.claimed(id, Claim::Ours));
        assert!(it.refusal(limit).is_some_and(|why| why.contains("three")), "at the limit");
        assert_eq!(it.refusal(beyond), None, "one beyond");
        it.claimed(THREE, Claim::Unknown);
        assert_eq!(it.refusal(Moment(5)), None, "all were asked; a dead one keeps nobody waiting");
        assert_eq!(Attended::default().refusal(Moment(0)), None, "nobody attends: nothing is waited for");
    }

    #[test]
    fn one_rival_anywhere_is_enough_and_has_no_end_by_time() {
        let mut it = attended();
        [ONE, TWO, THREE].into_iter().for_each(|id| it.claimed(id, Claim::Ours));
        it.claimed(TWO, theirs());
        let why = it.refusal(Moment(u64::MAX)).expect("refused");
        assert!(why.contains("two"), "{why}");
        it.claimed(TWO, Claim::Ours);
        assert_eq!(it.refusal(Moment(5)), None);
    }

    #[test]
    fn who_is_refused_at_one_resource_gives_up_all_behind_it() {
        let mut it = attended();
        it.claimed(TWO, theirs());
        assert_eq!([ONE, TWO, THREE].map(|id| it.yields(id)), [None, None, Some("two")]);
        it.claimed(ONE, theirs());
        assert_eq!([ONE, TWO, THREE].map(|id| it.yields(id)), [None, Some("one"), Some("one")]);
    }
}
