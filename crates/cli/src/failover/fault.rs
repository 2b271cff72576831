//! What can happen to a pair: who dies, who freezes, which way is cut. No I/O.
//!
//! Walk: [`Fault::all`] lists what a house can play · [`order`] spreads it, so that a short run has seen every kind before any of
//! them for a second time.

use std::collections::BTreeMap;
use std::fmt;

use assent_sim::Rng;

/// Who it is, at the moment of the blow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Primary,
    Standby,
    Arbiter,
    Clients,
}

/// Which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    There,
    Back,
    Both,
}

/// One blow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing: what is seen without a fault.
    Calm,
    /// SIGKILL; started again when the fault ends.
    Kill(Role),
    /// Both members at once, by SIGKILL.
    KillBoth,
    /// SIGSTOP for longer than anybody waits, then SIGCONT.
    Freeze(Role),
    /// Nothing arrives, in this direction.
    Cut(Role, Role, Way),
    /// The primary reaches clients, and nobody else.
    Isolate,
    /// Everything between the two takes longer.
    Delay(Role, Role),
    /// What is said between the two is lost and said again, and connections end.
    Loss(Role, Role),
    /// The disk of this member is full.
    FullDisk(Role),
    /// The wall clock of this member steps by so many seconds, and back at the end.
    Clock(Role, i64),
    /// A person's word: the standby leads.
    HandOver,
}

/// What the machine lets a house play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Means {
    /// One server and nobody else.
    pub(super) solo: bool,
    /// Small file systems of its own.
    pub(super) disks: bool,
    /// Clocks that step.
    pub(super) clocks: bool,
    /// An answer outlives both processes: it is in a kernel.
    pub(super) kernel: bool,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Standby => "standby",
            Self::Arbiter => "arbiter",
            Self::Clients => "clients",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calm => write!(f, "calm"),
            Self::Kill(role) => write!(f, "kill {role}"),
            Self::KillBoth => write!(f, "kill both members"),
            Self::Freeze(role) => write!(f, "freeze {role}"),
            Self::Cut(one, other, Way::There) => write!(f, "cut {one} -> {other}"),
            Self::Cut(one, other, Way::Back) => write!(f, "cut {other} -> {one}"),
            Self::Cut(one, other, Way::Both) => write!(f, "cut {one} - {other}"),
            Self::Isolate => write!(f, "cut primary - all but clients"),
            Self::Delay(one, other) => write!(f, "delay {one} - {other}"),
            Self::Loss(one, other) => write!(f, "loss {one} - {other}"),
            Self::FullDisk(role) => write!(f, "full disk of {role}"),
            Self::Clock(role, by) => write!(f, "clock of {role} {by:+} s"),
            Self::HandOver => write!(f, "hand over"),
        }
    }
}

impl Fault {
    /// All that these means can play.
    pub(super) fn all(means: Means) -> Vec<Self> {
        use Role::{Arbiter, Clients, Primary, Standby};
        if means.solo {
            return Self::of_one(means);
        }
        let mut all = vec![Self::Calm, Self::Isolate, Self::HandOver];
        if means.kernel {
            all.push(Self::KillBoth);
        }
        for role in [Primary, Standby, Arbiter] {
            all.extend([Self::Kill(role), Self::Freeze(role)]);
        }
        for (one, other) in
            [(Primary, Standby), (Primary, Arbiter), (Standby, Arbiter), (Clients, Primary), (Clients, Standby)]
        {
            all.extend([Way::There, Way::Back, Way::Both].map(|way| Self::Cut(one, other, way)));
        }
        for (one, other) in [(Primary, Standby), (Primary, Arbiter), (Clients, Primary)] {
            all.extend([Self::Delay(one, other), Self::Loss(one, other)]);
        }
        if means.disks {
            all.extend([Self::FullDisk(Primary), Self::FullDisk(Standby)]);
        }
        if means.clocks {
            all.extend([Self::Clock(Primary, 3_600), Self::Clock(Primary, -3_600), Self::Clock(Standby, -86_400)]);
        }
        all
    }

    fn of_one(means: Means) -> Vec<Self> {
        use Role::{Clients, Primary};
        let mut all = vec![Self::Calm, Self::Kill(Primary), Self::Freeze(Primary)];
        all.extend([Way::There, Way::Back, Way::Both].map(|way| Self::Cut(Clients, Primary, way)));
        all.extend([Self::Delay(Clients, Primary), Self::Loss(Clients, Primary)]);
        if means.disks {
            all.push(Self::FullDisk(Primary));
        }
        if means.clocks {
            all.extend([Self::Clock(Primary, 3_600), Self::Clock(Primary, -3_600)]);
        }
        all
    }

    /// What is told apart in the order of plays.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Kill(_) | Self::KillBoth => "kill",
            Self::Freeze(_) => "freeze",
            Self::Cut(..) | Self::Isolate => "cut",
            Self::Delay(..) => "delay",
            Self::Loss(..) => "loss",
            Self::FullDisk(_) => "full disk",
            Self::Clock(..) => "clock",
            Self::HandOver => "hand over",
        }
    }

    /// Whether clients are answered before it ends: an arbiter and a member that has everything are up and reach each other and the
    /// clients, or the pair needs nobody.
    pub(super) const fn leaves_service(&self, solo: bool) -> bool {
        if solo {
            return matches!(self, Self::Calm | Self::Delay(..) | Self::Loss(..) | Self::Clock(..));
        }
        !matches!(self, Self::KillBoth | Self::Cut(Role::Clients, Role::Primary, _))
    }

    /// Whether the primary is taken from its clients, so that the time until somebody else answers is the time of a fail-over.
    pub(super) const fn is_fail_over(&self) -> bool {
        matches!(self, Self::Kill(Role::Primary))
    }
}

/// So many faults as a seed shuffles them, of the kind that was seen least.
pub(super) fn order(all: &[Fault], plays: usize, seed: u64) -> Vec<Fault> {
    let mut rng = Rng::new(seed);
    let (mut kinds, mut faults): (BTreeMap<&str, u64>, BTreeMap<String, u64>) = (BTreeMap::new(), BTreeMap::new());
    let mut ordered = Vec::with_capacity(plays);
    while ordered.len() < plays && !all.is_empty() {
        let weight = |fault: &Fault| {
            let seen = faults.get(&fault.to_string()).copied().unwrap_or_default();
            (kinds.get(fault.kind()).copied().unwrap_or_default().saturating_sub(seen_often(fault)), seen)
        };
        let least = all.iter().map(weight).min().unwrap_or_default();
        let lightest: Vec<&Fault> = all.iter().filter(|fault| weight(fault) == least).collect();
        let Some(fault) = lightest.get(rng.index(lightest.len())) else { break };
        *kinds.entry(fault.kind()).or_default() += 1;
        *faults.entry(fault.to_string()).or_default() += 1;
        ordered.push(**fault);
    }
    ordered
}

/// Kills, freezes and cuts have more faces than the others, and so come more often.
fn seen_often(fault: &Fault) -> u64 {
    match fault.kind() {
        "kill" | "freeze" => 2,
        "cut" => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MEANS: Means = Means { solo: false, disks: true, clocks: true, kernel: true };

    #[test]
    fn twenty_plays_see_every_kind_and_a_seed_repeats() {
        let all = Fault::all(MEANS);
        let kinds = |faults: &[Fault]| faults.iter().map(Fault::kind).collect::<BTreeSet<_>>();
        for seed in 0..50 {
            let ordered = order(&all, 20, seed);
            assert_eq!((ordered.len(), kinds(&ordered)), (20, kinds(&all)), "{ordered:?}");
            assert_eq!(ordered, order(&all, 20, seed));
            let texts: BTreeSet<String> = ordered.iter().map(ToString::to_string).collect();
            assert!(texts.len() >= 18, "hardly any twice: {texts:?}");
            for kill in [Fault::Kill(Role::Primary), Fault::Freeze(Role::Primary)] {
                assert!(order(&all, 40, seed).contains(&kill), "{kill} is missing in forty");
            }
        }
        assert_ne!(order(&all, 20, 1), order(&all, 20, 2));
    }

    #[test]
    fn without_means_nothing_needs_them_and_names_are_unique() {
        let all = Fault::all(Means { solo: false, disks: false, clocks: false, kernel: false });
        assert!(!all.iter().any(|fault| matches!(fault, Fault::FullDisk(_) | Fault::Clock(..) | Fault::KillBoth)));
        let all = Fault::all(MEANS);
        let names: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len());
    }
}
