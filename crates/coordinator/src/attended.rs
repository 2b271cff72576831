//! What the attendants of all resources share, under the coordinator's lock: what each saw prepared, whom each found to be
//! at work beside us, and a branch that nobody here can have begun. No I/O.
//!
//! Walk: [`Attended::expect`] the resources that are to be attended · [`Attended::saw`] a listing · [`Attended::claimed`]
//! how a claim went · [`Attended::take`] whether new work may be taken · [`Attended::yields`] who steps back.
//!
//! Why new work is refused while another process resolves this node's branches: two processes over copies of one data
//! folder open the same epoch and hand out the same incarnations. The other's agent finds a branch that our client has
//! prepared, takes the client for one of its own that it fenced, and rolls the branch back while we decide commit.
//! So: no claim, no decision. What is decided already is in both copies, and is finished by either.
//! Not a lease: a claim ends with its connection (which an Assent store ends after 30 s of silence, too), and the holder
//! sees that within a second after its kernel does. A copy that starts in exactly that time, and reaches everything that the
//! first one has lost, is not found by it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use assent_ids::{Mark, ResourceId, TxId};
use assent_world::Moment;
use assent_xa::{BranchRecord, Native, Stay};

use crate::Stopped;
use crate::rows;
use crate::siblings::{Answer, Question, Questions, Sibling, lasts};

/// A dead resource keeps no server from its work for longer, once it has been started.
pub(crate) const FIRST_PASS_MAX: Duration = Duration::from_secs(1);

/// Two that start together have sorted it out by then.
const RIVALLED_MAX: Duration = Duration::from_secs(1);

/// A branch seen prepared.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) record: BranchRecord,
    pub(crate) stay: Stay,
    /// What its resource said when it was last told, if it is there all the same.
    pub(crate) trouble: Option<Native>,
    /// How often it was.
    pub(crate) failures: u32,
}

/// Branches seen prepared, by transaction, and since when.
pub(crate) type Sights = BTreeMap<TxId, (Moment, Vec<Seen>)>;

/// How the claim on a resource stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nobody has asked yet.
    Unasked,
    /// It is this process's.
    Ours,
    /// Another process has it.
    Theirs(Native),
    /// Given up to a process that has others, and not asked for since: that one may have it, and be at work.
    Left,
    /// It could not be asked, or the connection that had it is gone.
    Unknown,
}

impl Claim {
    /// Another process is believed to have it, until the resource itself says otherwise.
    pub(crate) const fn is_anothers(&self) -> bool {
        matches!(self, Self::Theirs(_) | Self::Left)
    }
}

#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) name: String,
    claim: Claim,
    sights: Sights,
    stranger: Option<Stopped>,
    questions: Questions,
    /// What is asked of its rows.
    pub(crate) rows: rows::Questions,
}

/// What the attendants share.
#[derive(Debug, Default)]
pub(crate) struct Attended {
    pub(crate) posts: BTreeMap<ResourceId, Post>,
    since: Moment,
    /// Every resource has been asked for its claim, none is somebody else's, and none has a stranger's branch: what each commit looks at.
    is_clear: bool,
    /// A client or a commit was taken: from then on nothing is left to a newcomer.
    has_taken: bool,
    /// Since when there is a rival.
    rivalled_since: Option<Moment>,
}

impl Attended {
    /// These are to be attended from now on. Nothing is decided before each was asked for its claim once.
    pub(crate) fn expect(&mut self, names: &[(ResourceId, String)], now: Moment) {
        let post = |name: &String| Post {
            name: name.clone(),
            claim: Claim::Unasked,
            sights: Sights::new(),
            stranger: None,
            questions: Questions::new(),
            rows: rows::Questions::default(),
        };
        self.posts = names.iter().map(|(id, name)| (*id, post(name))).collect();
        self.since = now;
        self.is_clear = self.posts.is_empty();
    }

    /// What a resource lists, in place of what it listed before. All that is seen anywhere.
    pub(crate) fn saw(&mut self, resource: ResourceId, sights: Sights) -> BTreeSet<TxId> {
        if let Some(post) = self.posts.get_mut(&resource) {
            post.sights = sights;
        }
        let seen: BTreeSet<TxId> = self.posts.values().flat_map(|post| post.sights.keys().copied()).collect();
        // Whoever is gone is not asked about any more.
        for post in self.posts.values_mut() {
            post.questions.retain(|tx, _| seen.contains(tx));
            post.rows.keep(&seen);
        }
        seen
    }

    /// The name of a registered resource.
    pub(crate) fn name(&self, resource: ResourceId) -> Option<String> {
        self.posts.get(&resource).map(|post| post.name.clone())
    }

    /// Since when branches of this transaction are seen, and which.
    pub(crate) fn seen(&self, tx: TxId) -> Option<(Moment, Vec<Seen>)> {
        let mut sights = self.posts.values().filter_map(|post| post.sights.get(&tx));
        let (first, branches) = sights.next()?;
        let mut all = (*first, branches.clone());
        for (first, branches) in sights {
            all.0 = all.0.min(*first);
            all.1.extend_from_slice(branches);
        }
        all.1.sort_by_key(|branch| branch.record.number);
        Some(all)
    }

    /// A listing with a branch that nobody here can have begun, or one without.
    pub(crate) fn stranger(&mut self, resource: ResourceId, stranger: Option<Stopped>) {
        if let Some(post) = self.posts.get_mut(&resource) {
            post.stranger = stranger;
        }
        self.look();
    }

    fn look(&mut self) {
        let is_clear = |post: &Post| post.stranger.is_none() && matches!(post.claim, Claim::Ours | Claim::Unknown);
        self.is_clear = self.posts.values().all(is_clear);
    }

    /// The first such branch. While there is one nothing is touched anywhere.
    pub(crate) fn stopped(&self) -> Option<&Stopped> {
        self.posts.values().find_map(|post| post.stranger.as_ref())
    }

    /// How a claim went. Whether that is the first rival, or the last one has gone: the others are to look.
    pub(crate) fn claimed(&mut self, resource: ResourceId, claim: Claim, now: Moment) -> bool {
        let had_rival = self.rivals().next().is_some();
        if let Some(post) = self.posts.get_mut(&resource) {
            post.claim = claim;
        }
        self.look();
        let has_rival = self.rivals().next().is_some();
        // Not while something is left alone: two that have half each, and leave it to each other, meet again in the order of the resources.
        self.rivalled_since = has_rival.then(|| self.rivalled_since.unwrap_or(now));
        if had_rival && !has_rival {
            // What was not asked meanwhile is waited for anew.
            self.since = now;
        }
        had_rival != has_rival
    }

    /// Whether another process is believed to resolve somewhere.
    pub(crate) fn is_rivalled(&self) -> bool {
        self.posts.values().any(|post| post.claim.is_anothers())
    }

    /// Where another process of this node is at work, and what the resource says of it.
    pub(crate) fn rivals(&self) -> impl Iterator<Item = (&str, &Native)> {
        self.posts.values().filter_map(|post| match &post.claim {
            Claim::Theirs(native) => Some((post.name.as_str(), native)),
            Claim::Unasked | Claim::Ours | Claim::Left | Claim::Unknown => None,
        })
    }

    /// Whether a claim at this resource is to be given up, and to whose rival. Never by a process that has taken work: its
    /// clients' branches may be anywhere.
    ///
    /// Two copies that start at the same moment may have claimed half of the resources each: whoever is refused at one
    /// gives up all behind it, so the first one decides. And whoever is refused somewhere for a second gives up all: the
    /// other one is at work, and must get back what a broken connection cost it.
    pub(crate) fn yields(&self, resource: ResourceId, now: Moment) -> Option<&str> {
        let is_late = now.since(self.rivalled_since?) > RIVALLED_MAX;
        let mut others = self.posts.iter().filter(|(id, _)| **id < resource || (is_late && **id != resource));
        let (_, post) = others.find(|(_, post)| matches!(post.claim, Claim::Theirs(_))).filter(|_| !self.has_taken)?;
        Some(&post.name)
    }

    /// Takes new work, or says why not.
    pub(crate) fn take(&mut self, now: Moment) -> Result<(), String> {
        match self.refusal(now) {
            Some(why) => Err(why),
            None => {
                self.has_taken = !self.posts.is_empty();
                Ok(())
            }
        }
    }

    /// Whether a sibling is committed, as far as the resources have answered lately; asks the others.
    pub(crate) fn sibling(&mut self, tx: TxId, mark: Option<Mark>, now: Moment) -> Sibling {
        let mut all = Sibling::Nowhere;
        for post in self.posts.values_mut() {
            let lasts = lasts(post.questions.len());
            let question = post.questions.entry(tx).or_insert(Question { mark, answer: None, is_tried: false });
            let Question { answer, is_tried, .. } = question;
            match answer {
                Some(Answer::Committed(record)) => return Sibling::Committed(record.clone()),
                Some(Answer::Nothing(at)) if now.since(*at) <= lasts => {}
                Some(Answer::Nothing(_)) => {
                    (*answer, *is_tried) = (None, false);
                    all = Sibling::Unknown;
                }
                None => all = Sibling::Unknown,
            }
        }
        all
    }

    /// What is asked of a resource and not answered.
    pub(crate) fn questions(&self, resource: ResourceId) -> Vec<(TxId, Option<Mark>)> {
        let questions = self.posts.get(&resource).map(|post| &post.questions);
        questions.into_iter().flatten().filter(|(_, it)| it.answer.is_none()).map(|(tx, it)| (*tx, it.mark)).collect()
    }

    /// The answer; none, if it would not say.
    pub(crate) fn answer(&mut self, resource: ResourceId, tx: TxId, answer: Option<Answer>) {
        if let Some(question) = self.posts.get_mut(&resource).and_then(|post| post.questions.get_mut(&tx)) {
            (question.answer, question.is_tried) = (answer, true);
        }
    }

    /// A resource that is there, and has not been asked yet.
    pub(crate) fn unasked(&self, tx: TxId) -> Option<&str> {
        let is_unasked = |post: &&Post| {
            post.claim == Claim::Ours && post.questions.get(&tx).is_none_or(|it| it.answer.is_none() && !it.is_tried)
        };
        self.posts.values().find(is_unasked).map(|post| post.name.as_str())
    }

    /// Why no new client and no new commit is taken now; none if they are.
    pub(crate) fn refusal(&self, now: Moment) -> Option<String> {
        if self.is_clear {
            return None;
        }
        if let Some((name, _)) = self.rivals().next() {
            return Some(rivalled(name));
        }
        // A new client would be given the name that the stranger has, and the branch would be taken for its own.
        if let Some(stopped) = self.stopped() {
            return Some(strange(stopped));
        }
        if let Some(left) = self.posts.values().find(|post| post.claim == Claim::Left) {
            let name = &left.name;
            return Some(format!(
                "the claim at resource {name} was left to another process of this node, and is asked for again once that resource answers"
            ));
        }
        if now.since(self.since) > FIRST_PASS_MAX {
            return None;
        }
        let unasked = self.posts.values().find(|post| post.claim == Claim::Unasked)?;
        Some(format!("resource {} has not been asked for its claim yet: send it again in a moment", unasked.name))
    }
}

/// The same of a branch that no client of ours can have begun.
pub(crate) fn strange(Stopped { tx, resource, .. }: &Stopped) -> String {
    format!(
        "at resource {resource} is a branch, or a last resource's row, of {tx}, which nobody here can have begun: a copied data folder, \
         or an old one?"
    )
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

    const NOW: Moment = Moment(5);

    fn attended() -> Attended {
        let mut it = Attended::default();
        let names = [(ONE, "one".to_owned()), (TWO, "two".to_owned()), (THREE, "three".to_owned())];
        it.expect(&names, NOW);
        it
    }

    fn theirs() -> Claim {
        Claim::Theirs(Native::default())
    }

    #[test]
    fn nothing_is_taken_before_all_were_asked_or_a_second_has_passed() {
        let mut it = attended();
        let (limit, beyond) = (Moment(1_000_005), Moment(1_000_006));
        [ONE, TWO].into_iter().for_each(|id| _ = it.claimed(id, Claim::Ours, NOW));
        assert!(it.refusal(limit).is_some_and(|why| why.contains("three")), "at the limit");
        assert_eq!(it.refusal(beyond), None, "one beyond");
        it.claimed(THREE, Claim::Unknown, NOW);
        assert_eq!(it.refusal(NOW), None, "all were asked; a dead one keeps nobody waiting");
        assert_eq!(Attended::default().refusal(Moment(0)), None, "nobody attends: nothing is waited for");
    }

    #[test]
    fn one_rival_anywhere_is_enough_and_has_no_end_by_time() {
        let mut it = attended();
        [ONE, TWO, THREE].into_iter().for_each(|id| _ = it.claimed(id, Claim::Ours, NOW));
        assert!(it.claimed(TWO, theirs(), NOW), "the first one");
        assert!(!it.claimed(THREE, theirs(), NOW));
        let why = it.refusal(Moment(u64::MAX)).expect("refused");
        assert!(why.contains("two"), "{why}");
        [TWO, THREE].into_iter().for_each(|id| _ = it.claimed(id, Claim::Ours, NOW));
        assert_eq!(it.refusal(NOW), None);
    }

    #[test]
    fn who_is_refused_at_one_resource_gives_up_all_behind_it_and_later_all() {
        let mut it = attended();
        let yields = |it: &Attended, now| [ONE, TWO, THREE].map(|id| it.yields(id, now).map(str::to_owned));
        let two = || Some("two".to_owned());
        it.claimed(TWO, theirs(), NOW);
        assert_eq!(yields(&it, Moment(1_000_005)), [None, None, two()], "at the limit");
        assert_eq!(yields(&it, Moment(1_000_006)), [two(), None, two()], "one beyond");
        let one = || Some("one".to_owned());
        it.claimed(ONE, theirs(), NOW);
        assert_eq!(yields(&it, NOW), [None, one(), one()]);
    }

    #[test]
    fn who_has_taken_work_gives_nothing_up() {
        let mut it = attended();
        [ONE, TWO, THREE].into_iter().for_each(|id| _ = it.claimed(id, Claim::Ours, NOW));
        assert_eq!(it.take(NOW), Ok(()));
        it.claimed(ONE, theirs(), NOW);
        assert!(it.take(NOW).is_err());
        for now in [NOW, Moment(u64::MAX)] {
            assert_eq!([ONE, TWO, THREE].map(|id| it.yields(id, now)), [None; 3]);
        }
    }
}
