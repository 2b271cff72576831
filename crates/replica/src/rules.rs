//! The rules of the stream, by name, so that a test can leave one out and see the simulation go red.
//!
//! Those of who leads are `membership`'s, and are left out in its own model check.
//! Deliberately absent: a way to leave one out in a build that ships. There the answer is a constant.

/// What keeps the logs of a group one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// An entry is taken only as the next one, and only if its chain follows.
    Order,
    /// Only the primary of the present epoch is listened to.
    Epoch,
    /// A diverged tail is cut before anything is taken.
    Cut,
    /// A standby goes on only where its chain is the primary's.
    SameChain,
    /// A standby applies nothing that the primary did not say is confirmed.
    ConfirmedOnly,
    /// Held is what is held: received, written, durable.
    HeldIsHeld,
    /// A standby whose connection lost something asks for it again.
    AskAgain,
    /// A member that was taken for slow is taken out of the set.
    SlowGoes,
    /// The members compare their states.
    Compare,
    /// Who promised a lease does not ask for the lead before it is over.
    Promise,
    /// What is to be kept is asked of the node, and told when everybody in the set has it on the disk.
    Keep,
    /// What a standby is being sent stays in the log.
    Hold,
    /// A promise counts only if it was said: a member may be told to promise nothing.
    SaidPromise,
    /// A lease counts only if everybody in every set that may be recorded has promised.
    AllPromise,
    /// Who promised in an earlier life keeps it, also where it is told of no lease now.
    EarlierPromise,
    /// A member of a group of another name, or to whom an acknowledgement means something else, is not listened to.
    ToldAlike,
}
