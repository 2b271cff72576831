//! PostgreSQL as a resource: its prepared transactions are the branches.
//!
//! Walk: [`Postgres::connect`] our own connection, [`Postgres::over`] the caller's · [`Postgres::work`] lends it ·
//! the verbs go through [`assent_xa::Resource`] · [`PostgresConnector`] for recovery.
//! Durable means what the server is set to: votes and second phases are always flushed, a commit in one phase is not
//! under synchronous_commit = off.
//! PostgreSQL itself never votes read-only: the adapter finds it out when the branch ends.
//! Deliberately absent: TLS, pools.

mod answer;
mod claim;
mod client;
mod codes;
pub(crate) mod doctor;
mod failure;
pub(crate) mod last;
mod line;
mod pace;
mod prepared;
mod reading;
mod recovery;
mod session;
mod socket;
mod truth;
pub(crate) mod witness;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_ids::{Mark, ResourceId, Xid};
use assent_kind::Kind;
use assent_xa::{Connector, Native, Reply, Resource, Stay, Verb};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::error::ResourceError;
use crate::kept::{Kept, Limits, NotHere, Stuck, said};
use crate::url::hidden;
use claim::KEEPALIVES;
use client::Way;
use codes::{judge_connect, judge_work};
use failure::Failure;
use line::{Line, NoLine, Notices};
use reading::Asking;
use session::Session;

pub use client::PostgresClient;

const FORM: &str = "postgresql://user:password@host:port/database";
/// How long an idle connection goes unproved.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A connection to a PostgreSQL database, for one branch after the other.
#[derive(Debug)]
pub struct Postgres {
    name: String,
    kept: Kept<Session>,
}

impl Postgres {
    /// Opens a connection to work on.
    ///
    /// # Errors
    /// [`ResourceError::Url`] and [`ResourceError::Connect`]; also `Invalid` where the server prepares nothing, and
    /// `Unavailable` where it is a standby.
    pub fn connect(name: &str, url: &str, limits: Limits) -> Result<Self, ResourceError> {
        Address::parse(name, url)?.open(None, limits, &Stuck::default())
    }

    /// Takes a connection that the caller has opened. No transaction may be open on it, now and when a branch starts:
    /// its notices go to the caller, so it is not noticed. Nor is it that the server no longer waited for its synchronous standby when a
    /// branch committed: have nothing cut that short there (`statement_timeout` does, and `pg_cancel_backend`).
    ///
    /// # Errors
    /// [`ResourceError::Connect`] where it is closed, the server prepares nothing, or it is a standby.
    pub fn over(name: &str, client: postgres::Client, limits: Limits) -> Result<Self, ResourceError> {
        let (id, client) = (ResourceId::of(name), PostgresClient(Way::Given(client)));
        let checked = Kept::open(limits, Stuck::default(), move || recovery::checked(client, id, Arc::default()));
        let kept = checked.map_err(|(kind, native)| ResourceError::Connect {
            name: name.to_owned(),
            place: "the given connection".to_owned(),
            kind,
            native,
        })?;
        Ok(Self { name: name.to_owned(), kept })
    }

    /// Whether a branch that ends is always (`true`) or never asked if it wrote anything. One that did not commits then,
    /// without a sync, and drops out; one that did pays a round trip. By default it is asked while one of the last eight
    /// branches on this connection only read.
    #[must_use]
    pub fn detect_read_only(mut self, on: bool) -> Self {
        // It has just been opened; on a connection that is gone nothing ends.
        let asking = if on { Asking::Always } else { Asking::Never };
        let _gone = self.kept.with(|session| session.asking.set(asking));
        self
    }

    /// From now on a branch on this connection that is enlisted before all others, and has written rows, decides its transaction:
    /// it is not prepared, and takes no slot for prepared transactions, but commits together with a row of `assent_rows.decisions`
    /// that says so, when all others have voted. One durable write less at the coordinator, and one less here. As safe as the
    /// ordinary way, and asked for one connection at a time: where it cannot be (the coordinator does not attend this resource,
    /// two branches would, nothing was written) the ordinary one is taken.
    ///
    /// Makes schema `assent_rows` and the table where they are missing.
    ///
    /// # Errors
    /// [`ResourceError::Connect`]: `Denied` where this role may not make the table, with the SQL that does, or may not write to
    /// it, or not know which server it is; `Invalid` on a connection of the caller's own ([`Postgres::over`]) or of a pool, and where
    /// somebody has changed the table.
    pub fn last_resource(mut self) -> Result<Self, ResourceError> {
        self.kept.set_up(&self.name, Session::open_last)?;
        Ok(self)
    }

    /// From now on this connection's branches only read: each begins with BEGIN READ ONLY, and the server refuses what writes (25006). Outside
    /// of branches too, as long as the caller leaves the session as it is (RESET ALL). A branch is asked nothing and commits when it ends,
    /// which a serializable one may be refused (a no); it drops out of its transaction as any that only read. Who makes a branch write all
    /// the same, by SET TRANSACTION READ WRITE as its first words or by a transaction of its own in the branch's place, has
    /// written whatever is decided.
    ///
    /// # Errors
    /// [`ResourceError::Connect`]: `Invalid` on a connection of the caller's own ([`Postgres::over`]) or of a pool, within a branch, and
    /// while a transaction is open.
    pub fn read_only(mut self) -> Result<Self, ResourceError> {
        self.kept.set_up(&self.name, Session::only_read)?;
        Ok(self)
    }

    /// Lends the connection for the caller's own statements: within the branch between its start and its end, each
    /// for itself outside. Do not end the transaction here: the branch would be unknown when it is asked to vote, and
    /// in doubt if it is the only one.
    ///
    /// # Errors
    /// [`ResourceError::UnderWay`] between `send` and `receive`, [`ResourceError::Gone`] when the connection is lost,
    /// [`ResourceError::Statement`] for what `work` returned.
    pub fn work<T>(
        &mut self,
        work: impl FnOnce(&mut PostgresClient) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, ResourceError> {
        let name = || self.name.clone();
        match self.kept.with(|session| session.work(work)) {
            Ok(Ok(Ok(done))) => Ok(done),
            Ok(Ok(Err(error))) => {
                let Failure { native, lost } = Failure::of(&error);
                let kind = if lost { Kind::InDoubt } else { judge_work(&native.code) };
                Err(ResourceError::Statement { name: name(), kind, native })
            }
            Err(NotHere::UnderWay) => Err(ResourceError::UnderWay { name: name() }),
            Ok(Err(native)) | Err(NotHere::Gone(native)) => Err(ResourceError::Gone { name: name(), native }),
        }
    }
}

impl Resource for Postgres {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, verb: Verb) {
        self.kept.send(verb);
    }

    fn receive(&mut self) -> Reply {
        self.kept.receive()
    }

    /// Transaction number, place in the log, server and role, as `witness.rs` writes them.
    fn witness(&mut self) -> Vec<u8> {
        self.kept.with(|session| session.witness.clone()).unwrap_or_default()
    }

    fn decides(&mut self) -> Option<Mark> {
        self.kept.with(|session| session.decides()).ok().flatten()
    }

    fn let_go(&mut self) {
        self.kept.let_go();
    }

    fn stays(&mut self) -> BTreeMap<Xid, Stay> {
        self.kept.with(|session| std::mem::take(&mut session.stays)).unwrap_or_default()
    }

    fn has_ended(&mut self) -> bool {
        self.kept.has_ended()
    }
}

/// Opens connections for recovery: short limits, and the server gives up before we do.
#[derive(Debug)]
pub struct PostgresConnector {
    address: Address,
    limits: Limits,
    stuck: Stuck,
}

impl PostgresConnector {
    /// Reads the URL; connects later.
    ///
    /// # Errors
    /// [`ResourceError::Url`].
    pub fn new(name: &str, url: &str) -> Result<Self, ResourceError> {
        Ok(Self { address: Address::parse(name, url)?, limits: Limits::RECOVERY, stuck: Stuck::default() })
    }

    /// With other limits than [`Limits::RECOVERY`].
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }
}

impl Connector for PostgresConnector {
    fn name(&self) -> &str {
        &self.address.name
    }

    fn place(&self) -> String {
        let Address { place, config, .. } = &self.address;
        // As the driver has it: without a database that of the user's name.
        let user = config.get_user().unwrap_or_default();
        format!("{place}, database {:?}, role {user:?}", config.get_dbname().unwrap_or(user))
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        // Half of our own limit, so that a slow statement is refused by the server and not lost by us.
        let statement_ms = self.limits.answer_ms_max.div_ceil(2);
        let opened = self.address.open(Some(statement_ms), self.limits, &self.stuck);
        opened.map(|it| Box::new(it) as Box<dyn Resource>).map_err(ResourceError::into_native)
    }
}

/// A URL that was understood.
struct Address {
    name: String,
    place: String,
    config: Config,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.name, self.place)
    }
}

impl Address {
    fn parse(name: &str, url: &str) -> Result<Self, ResourceError> {
        let wrong = |reason: String| ResourceError::Url { name: name.to_owned(), url: hidden(url), reason, form: FORM };
        if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(wrong("it does not begin with postgresql://".to_owned()));
        }
        // The driver's reasons may repeat what they could not read, so they are not repeated here.
        let config: Config = url.parse().map_err(|_| wrong("a part of it cannot be read".to_owned()))?;
        if config.get_hosts().is_empty() {
            return Err(wrong("it names no host".to_owned()));
        }
        let hosts = config.get_hosts().len();
        let (addresses, ports) = (config.get_hostaddrs().len(), config.get_ports().len());
        if ![0, hosts].contains(&addresses) || ![0, 1, hosts].contains(&ports) {
            return Err(wrong(format!("it has {hosts} hosts, {addresses} addresses for them and {ports} ports")));
        }
        if config.get_user().is_none_or(str::is_empty) {
            return Err(wrong("it names no user".to_owned()));
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            // The database belongs to what a branch is: it must not depend on the server's defaults.
            return Err(wrong("it names no database".to_owned()));
        }
        if !matches!(config.get_ssl_mode(), SslMode::Disable | SslMode::Prefer) {
            return Err(wrong("sslmode asks for TLS, which this adapter does not speak".to_owned()));
        }
        Ok(Self { name: name.to_owned(), place: place(&config), config })
    }

    fn open(&self, statement_ms: Option<u64>, limits: Limits, stuck: &Stuck) -> Result<Postgres, ResourceError> {
        let mut config = self.config.clone();
        if config.get_application_name().is_none() {
            config.application_name(if statement_ms.is_some() { "assent recovery" } else { "assent" });
        }
        // Of several hosts, or several machines behind one name, the one that is no standby.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        // A machine that vanished: what we sent stays unacknowledged, or a proof of life does, and the kernel gives up
        // in our place.
        config.tcp_user_timeout(Duration::from_millis(limits.answer_ms_max));
        config.keepalives_idle(KEEPALIVE);
        if let Some(statement_ms) = statement_ms {
            ask_for_limits(&mut config, statement_ms);
        }
        let id = ResourceId::of(&self.name);
        let was_open = Arc::new(AtomicBool::new(false));
        let noticed = Arc::clone(&was_open);
        let notices: Notices = Box::new(move |code| {
            if code == "25001" {
                noticed.store(true, Ordering::Relaxed);
            }
        });
        let connect = Duration::from_millis(limits.connect_ms_max);
        let opened = Kept::open(limits, stuck.clone(), move || match Line::connect(&config, connect, notices) {
            Ok(line) => recovery::checked(PostgresClient(Way::Line(line)), id, was_open),
            Err(why) => Err(unconnected(why)),
        });
        let kept = opened.map_err(|(kind, native)| ResourceError::Connect {
            name: self.name.clone(),
            place: self.place.clone(),
            kind,
            native,
        })?;
        Ok(Postgres { name: self.name.clone(), kept })
    }
}

/// What recovery's session asks the server for when it connects: also to be told that a wait for its standby was cut short by that limit.
fn ask_for_limits(config: &mut Config, statement_ms: u64) {
    let options = config.get_options().unwrap_or_default();
    let options = format!("{options} -c statement_timeout={statement_ms} -c client_min_messages=warning {KEEPALIVES}");
    config.options(&options);
}

/// Why there is no connection.
fn unconnected(why: NoLine) -> (Kind, Native) {
    match why {
        NoLine::Nobody(error) => (Kind::Unavailable, said(format!("error connecting to server: {error}"))),
        NoLine::Said(error) => refusal(&error),
        NoLine::Failed(failure) => refused(failure),
        NoLine::ReadOnly => {
            let message = "it is a standby, or default_transaction_read_only is on; name the primary";
            (Kind::Unavailable, Native { code: "25006".to_owned(), message: message.to_owned() })
        }
    }
}

/// Why a connection could not be used from the first.
fn refusal(error: &tokio_postgres::Error) -> (Kind, Native) {
    let native = Failure::of(error).native;
    // The driver's own refusals have no code: it was asked for a password and had none, or one the server's proof
    // did not fit.
    let kind = match error.to_string().as_str() {
        "invalid configuration" | "authentication error" => Kind::Denied,
        _ => judge_connect(&native.code),
    };
    (kind, native)
}

/// The same, once the server had let us in.
fn refused(Failure { native, .. }: Failure) -> (Kind, Native) {
    (judge_connect(&native.code), native)
}

fn place(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(host) => format!("{host}:{port}"),
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    });
    hosts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_url_is_told_in_one_sentence_without_its_password() {
        let cases = [
            ("mysql://u:secret@h/db", "does not begin with postgresql://"),
            ("host=h password=secret", "does not begin with postgresql://"),
            ("postgresql://u:secret@h:port/db", "cannot be read"),
            ("postgresql://u:secret@h/db?unheard_of=1", "cannot be read"),
            ("postgresql://u:secret@/db", "names no host"),
            ("postgresql://h/db", "names no user"),
            ("postgresql://u:secret@h", "names no database"),
            ("postgresql://u:secret@h/db?sslmode=require", "TLS"),
        ];
        for (url, reason) in cases {
            let error = PostgresConnector::new("bank", url).unwrap_err();
            let said = error.to_string();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(said.contains(reason), "{url}: {said}");
            assert!(said.contains("\"bank\"") && said.contains(FORM) && !said.contains("secret"), "{said}");
            assert!(!said.contains('\n'));
        }
    }

    #[test]
    fn a_right_url_says_where_it_leads() {
        for (url, place) in [
            ("postgresql://u:p@h:1234/db", "h:1234"),
            ("postgres://u@h/db", "h:5432"),
            ("postgresql://u@h1:1,h2:2/db", "h1:1,h2:2"),
        ] {
            let connector = PostgresConnector::new("bank", url).unwrap();
            assert_eq!(connector.address.place, place);
            assert_eq!(format!("{:?}", connector.address), format!("bank at {place}"));
        }
    }
}
