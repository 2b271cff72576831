//! The rules of the room, by name, so that a test can leave one out and see the model check go red.
//!
//! Deliberately absent: a way to leave one out in a build that ships. There the answer is a constant.

/// What makes a group of replicas safe, and what makes it go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the engine keeps the rules of sessions and refusals, which the model check plays")
)]
pub(crate) enum Rule {
    /// 1. Every message carries its epoch; a lower one is refused.
    Fence,
    /// 2. Only a member of the recorded set is promoted, by compare-and-set.
    OnlyInSync,
    /// 3. A primary that lost its standby takes it out of the set first, and then acknowledges alone.
    ShrinkFirst,
    /// 4. A primary whose compare-and-set was refused goes by what the arbiter says.
    RefusedIsRefused,
    /// 5. Without an arbiter a pair that hears each other goes on.
    ArbiterOffThePath,
    /// 5. Without an arbiter nobody is promoted.
    NoArbiterNoChange,
    /// 6. A read waits for everybody in the set to say that nobody else leads.
    ConfirmedReads,
    /// 7. Who comes back cuts its tail to where its log meets the primary's.
    CutTail,
    /// 7. Who comes back is in the set only when it holds everything that was acknowledged.
    CaughtUp,
    /// 8. A confirmation counts for what it says: received, written, durable.
    GradeOfAck,
    /// 9. A request that is sent again is answered again, not executed again.
    Sessions,
    /// 10. `durable` is durable on the primary's disk too.
    OwnDisk,
    /// A member that may have lost what it confirmed does not count as in sync any more.
    Lives,
    /// Who asks to be alone has everything on its disk first.
    DurableAlone,
    /// What is told as kept is on the disk of everybody in the set.
    KeptByAll,
    /// Who comes into the set has on its disk what was told as kept.
    KeptByNewcomers,
    /// What was asked of the arbiter may come true at any time: until it is known, both sets count.
    BothSets,
    /// Who asked to be promoted confirms nothing to the old primary.
    SilentCandidate,
    /// What was refused is over only when no earlier try of it can come true.
    SureRefusal,
}
