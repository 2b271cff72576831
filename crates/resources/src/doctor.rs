//! Looks at resource managers before they are trusted with a branch, and says in plain words what is wrong.
//!
//! Walk: [`examine`] asks all of them at once, each over a short connection of its own, for [`Facts`] · [`judge`] makes
//! [`Finding`]s of the facts, and asks nobody · what is asked and judged stands with each adapter.
//! Nothing is changed at the servers, and none is refused: also what no adapter would work with is described.
//! Deliberately absent: printing, exit codes, what a coordinator knows of its transactions.

mod store;
mod twins;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use assent_kind::Kind;
use assent_world::Clock;

pub use self::store::StoreFacts;
use crate::error::ResourceError;
use crate::kept::Limits;
#[cfg(feature = "mariadb")]
pub use crate::mariadb::doctor::MariadbFacts;
#[cfg(feature = "postgres")]
pub use crate::postgres::doctor::{PostgresFacts, Prepared, Proxy, Replicas};

/// How long one resource may take. Whoever asks waits in front of a terminal.
pub const PATIENCE: Limits = Limits { connect_ms_max: 3_000, answer_ms_max: 5_000 };
/// So many are asked at once.
const AT_ONCE: usize = 32;
const CLOCK_NOTE_MS: u64 = 1_000;
const CLOCK_WARNING_MS: u64 = 60_000;

/// What speaks behind a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres,
    /// A MariaDB or MySQL database.
    #[cfg(feature = "mariadb")]
    Mariadb,
    /// A store in another Assent process.
    Store,
}

/// A resource to look at.
#[derive(Clone)]
pub struct Patient {
    /// The registered name.
    pub name: String,
    /// What it is.
    pub engine: Engine,
    /// Where it is; or why that is not known.
    pub url: Result<String, NoFacts>,
}

// The URL may hold a password: never printed.
impl std::fmt::Debug for Patient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patient").field("name", &self.name).field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// Why nothing is known of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFacts {
    /// What the caller must do.
    pub kind: Kind,
    /// One sentence, without a password.
    pub message: String,
}

impl NoFacts {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl From<ResourceError> for NoFacts {
    fn from(error: ResourceError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

/// What a resource said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// A PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresFacts>),
    /// A MariaDB or MySQL database.
    #[cfg(feature = "mariadb")]
    Mariadb(Box<MariadbFacts>),
    /// A store in another Assent process.
    Store(StoreFacts),
}

/// A resource and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// The registered name.
    pub resource: String,
    /// What it said, or why it said nothing.
    pub facts: Result<Facts, NoFacts>,
}

/// How bad a finding is. The order is that of the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing has to be done.
    Note,
    /// Works, and can lose something or stand still in a bad hour.
    Warning,
    /// It could not be asked now. Nothing else is known of it.
    Unreachable,
    /// Does not work, or does not keep what it says.
    Error,
}

impl Severity {
    /// The name in tables and JSON, lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Unreachable => "unreachable",
            Self::Error => "error",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The registered name.
    pub resource: String,
    /// How bad it is.
    pub severity: Severity,
    /// What is so, in one sentence.
    pub what: String,
    /// What to do; empty if nothing has to be done.
    pub advice: String,
}

/// The findings of one resource.
pub(crate) struct Sheet<'a> {
    resource: &'a str,
    findings: Vec<Finding>,
}

impl Sheet<'_> {
    pub(crate) fn ok(&mut self, what: impl Into<String>) {
        self.add(Severity::Ok, what, "");
    }

    pub(crate) fn note(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Note, what, advice);
    }

    pub(crate) fn warning(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Warning, what, advice);
    }

    pub(crate) fn error(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Error, what, advice);
    }

    fn add(&mut self, severity: Severity, what: impl Into<String>, advice: impl Into<String>) {
        let (resource, what, advice) = (self.resource.to_owned(), what.into(), advice.into());
        self.findings.push(Finding { resource, severity, what, advice });
    }

    /// The server's clock against ours.
    pub(crate) fn clock(&mut self, ahead_ms: i64) {
        let (off_ms, way) = (ahead_ms.unsigned_abs(), if ahead_ms < 0 { "behind" } else { "ahead of" });
        let severity = match off_ms {
            0..=CLOCK_NOTE_MS => return,
            _ if off_ms <= CLOCK_WARNING_MS => Severity::Note,
            _ => Severity::Warning,
        };
        let advice = "let NTP set both; no decision depends on it, but ages and logs are read side by side";
        self.add(severity, format!("its clock is {off_ms} ms {way} this machine's"), advice);
    }

    fn nothing_known(&mut self, reason: &NoFacts) {
        let severity = match reason.kind {
            Kind::Unavailable | Kind::Busy | Kind::Closed | Kind::InDoubt => Severity::Unreachable,
            _ => Severity::Error,
        };
        let advice = match reason.kind {
            Kind::Unavailable | Kind::Closed | Kind::InDoubt => {
                "start it or correct its url; until it answers, its branches wait and keep their locks"
            }
            Kind::Busy => "it has too many connections; raise its limit, recovery needs one too",
            Kind::Denied => "correct user and password in its url, or give the account the right",
            Kind::NotFound => "create what is missing, or correct its url",
            _ => "",
        };
        self.add(severity, reason.message.clone(), advice);
    }
}

/// What the facts say. Asks nobody: the same facts, the same findings, in the order of the resources.
#[must_use]
pub fn judge(examined: &[Examined]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, one) in examined.iter().enumerate() {
        let mut sheet = Sheet { resource: &one.resource, findings: Vec::new() };
        match &one.facts {
            #[cfg(feature = "postgres")]
            Ok(Facts::Postgres(facts)) => crate::postgres::doctor::judge(facts, &mut sheet),
            #[cfg(feature = "mariadb")]
            Ok(Facts::Mariadb(facts)) => crate::mariadb::doctor::judge(facts, &mut sheet),
            Ok(Facts::Store(facts)) => store::judge(facts, &mut sheet),
            Err(reason) => sheet.nothing_known(reason),
        }
        twins::judge(examined.get(..index).unwrap_or_default(), one, &mut sheet);
        findings.append(&mut sheet.findings);
    }
    findings
}

/// The worst of them; [`Severity::Ok`] if there is none.
#[must_use]
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

/// Asks all of them at once. A dead one delays nobody, and is given up after its limits.
#[must_use]
pub fn examine(patients: &[Patient], limits: Limits, clock: &Arc<dyn Clock>) -> Vec<Examined> {
    let mut all = Vec::with_capacity(patients.len());
    for some in patients.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let asked = some.iter().map(|patient| {
                let started = Builder::new().spawn_scoped(scope, || facts(patient, limits, clock));
                (patient, started)
            });
            // All are started before the first is waited for.
            for (patient, started) in asked.collect::<Vec<_>>() {
                let facts = match started.map(|thread| thread.join()) {
                    Ok(Ok(facts)) => facts,
                    Ok(Err(_)) => Err(NoFacts::new(Kind::Internal, "the examination broke off; report it")),
                    Err(error) => Err(NoFacts::new(Kind::Busy, format!("no thread to ask with: {error}"))),
                };
                all.push(Examined { resource: patient.name.clone(), facts });
            }
        });
    }
    all
}

fn facts(patient: &Patient, limits: Limits, clock: &Arc<dyn Clock>) -> Result<Facts, NoFacts> {
    let url = patient.url.clone()?;
    match patient.engine {
        #[cfg(feature = "postgres")]
        Engine::Postgres => crate::postgres::doctor::gather(&patient.name, &url, limits, Arc::clone(clock))
            .map(|facts| Facts::Postgres(Box::new(facts))),
        #[cfg(feature = "mariadb")]
        Engine::Mariadb => crate::mariadb::doctor::gather(&patient.name, &url, limits, Arc::clone(clock))
            .map(|facts| Facts::Mariadb(Box::new(facts))),
        Engine::Store => store::gather(&url, limits, clock).map(Facts::Store),
    }
}

/// Connects and asks on a helper, each for no longer than its limit. A helper whose driver never comes back is left
/// behind.
#[cfg(any(feature = "postgres", feature = "mariadb"))]
pub(crate) fn within<C, F: Send + 'static>(
    place: &str,
    limits: Limits,
    connect: impl FnOnce() -> Result<C, NoFacts> + Send + 'static,
    ask: impl FnOnce(C) -> Result<F, NoFacts> + Send + 'static,
) -> Result<F, NoFacts> {
    let (tell, told) = sync_channel(2);
    let helper = Builder::new().name("assent-doctor".to_owned()).spawn(move || {
        // Nobody may wait any more for what is told.
        let outcome = connect().and_then(|connection| {
            let _waiting = tell.send(None);
            ask(connection)
        });
        let _waiting = tell.send(Some(outcome));
    });
    helper.map_err(|error| NoFacts::new(Kind::Busy, format!("no thread to ask {place} with: {error}")))?;
    let mut limit_ms = limits.connect_ms_max;
    loop {
        match told.recv_timeout(Duration::from_millis(limit_ms)) {
            Ok(Some(outcome)) => return outcome,
            Ok(None) => limit_ms = limits.answer_ms_max,
            Err(RecvTimeoutError::Timeout) => {
                let message = format!("{place} did not answer within {limit_ms} ms");
                return Err(NoFacts::new(Kind::Unavailable, message));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(NoFacts::new(Kind::Internal, format!("the driver gave up on {place}; report it")));
            }
        }
    }
}

/// How far a clock that was read between two looks at ours is ahead of it.
pub(crate) fn ahead_ms(there_ms: i64, before_ms: u64, after_ms: u64) -> i64 {
    let here_ms = before_ms.midpoint(after_ms);
    there_ms.saturating_sub(i64::try_from(here_ms).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet<'static> {
        Sheet { resource: "bank", findings: Vec::new() }
    }

    #[test]
    fn a_clock_is_judged_by_how_far_it_is_off_either_way() {
        let cases = [
            (0, None),
            (1_000, None),
            (-1_000, None),
            (1_001, Some((Severity::Note, "1001 ms ahead of"))),
            (-60_000, Some((Severity::Note, "60000 ms behind"))),
            (-60_001, Some((Severity::Warning, "60001 ms behind"))),
            (i64::MIN, Some((Severity::Warning, "behind"))),
        ];
        for (ahead_ms, expected) in cases {
            let mut sheet = sheet();
            sheet.clock(ahead_ms);
            let found = sheet.findings.first().map(|finding| (finding.severity, finding.what.as_str()));
            match (found, expected) {
                (None, None) => {}
                (Some((severity, what)), Some((wanted, said))) => {
                    assert!(severity == wanted && what.contains(said), "{ahead_ms}: {what}");
                }
                other => panic!("{ahead_ms}: {other:?}"),
            }
        }
        assert_eq!((ahead_ms(1_500, 900, 1_100), ahead_ms(500, 1_000, 1_000)), (500, -500));
    }

    #[test]
    fn what_may_pass_is_unreachable_and_what_stays_is_an_error() {
        for (kind, severity) in [
            (Kind::Unavailable, Severity::Unreachable),
            (Kind::Busy, Severity::Unreachable),
            (Kind::Denied, Severity::Error),
            (Kind::NotFound, Severity::Error),
            (Kind::Invalid, Severity::Error),
        ] {
            let examined = [Examined { resource: "bank".into(), facts: Err(NoFacts::new(kind, "so it is")) }];
            let findings = judge(&examined);
            assert_eq!((findings.len(), worst(&findings)), (1, severity), "{kind}");
            assert_eq!((findings[0].resource.as_str(), findings[0].what.as_str()), ("bank", "so it is"));
        }
        assert_eq!(worst(&judge(&[])), Severity::Ok);
        assert!(Severity::Error > Severity::Unreachable && Severity::Unreachable > Severity::Warning);
        assert!(Severity::Warning > Severity::Note && Severity::Note > Severity::Ok);
    }

    #[test]
    fn connecting_and_answering_have_a_limit_each() {
        let short = Limits { connect_ms_max: 1, answer_ms_max: 60_000 };
        let (say, hear) = sync_channel::<()>(1);
        let hang = move || {
            let _ = hear.recv();
            Ok(())
        };
        let refused = within("h:1", short, hang, Ok).unwrap_err();
        assert_eq!((refused.kind, refused.message.as_str()), (Kind::Unavailable, "h:1 did not answer within 1 ms"));
        drop(say);
        let short = Limits { connect_ms_max: 60_000, answer_ms_max: 2 };
        let (say, hear) = sync_channel::<()>(1);
        let hang = move |()| {
            let _ = hear.recv();
            Ok(())
        };
        assert!(within("h:1", short, || Ok(()), hang).unwrap_err().message.contains("within 2 ms"));
        drop(say);
        assert_eq!(within("h:1", PATIENCE, || Ok(3), |three| Ok(three + 4)), Ok(7));
    }
}
