//! MariaDB, or MySQL, as a resource: its XA statements.
//!
//! Walk: [`Mariadb::connect`] our own connection, [`Mariadb::over`] the caller's · [`Mariadb::work`] lends it · the
//! verbs go through [`assent_xa::Resource`] · [`MariadbConnector`] for recovery.
//! A server that would lose a vote by a power cut, or roll a prepared branch back when its connection ends, is refused.
//! The server tells XIDs apart by gtrid and bqual alone, in whatever format, and for all its databases together.
//! Deliberately absent: TLS, pools, JOIN, SUSPEND and RESUME, which the server does not have.

mod begin;
mod client;
mod codes;
pub(crate) mod doctor;
mod failure;
mod keeps;
mod known;
mod owner;
mod place;
mod reader;
mod recovery;
mod session;
mod wire;
pub(crate) mod witness;
mod xids;

use std::collections::HashMap;
use std::time::Duration;

use assent_ids::ResourceId;
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};
use assent_xa::{Connector, Native, Reply, Resource, Verb};
use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable as _;
use mysql::{Conn, Opts, OptsBuilder};

use crate::error::ResourceError;
use crate::kept::{Kept, Limits, NotHere, Stuck, said};
use crate::url::hidden;
use codes::{judge_connect, judge_work};
use failure::Failure;
use recovery::{Leavers, is_read_only, look, replica};
use session::Session;

pub use client::MariadbClient;

const FORM: &str = "mysql://user:password@host:port/database";
/// How long recovery waits for a metadata lock. The default of a day would let FLUSH TABLES WITH READ LOCK hold it.
const LOCK_WAIT_S: u32 = 2;

/// After how much silence the server ends recovery's session, and with it its claim. Recovery looks every 10 s; a server
/// cannot be told by its client to prove an idle connection sooner.
const SILENCE_S: u32 = 30;

/// How long an idle connection goes unproved.
const KEEPALIVE_MS: u32 = 10_000;

/// A connection to a MariaDB or MySQL server, for one branch after the other. From start to the end of phase two it
/// belongs to the branch. A branch that is left to recovery takes the connection with it: open another one.
#[derive(Debug)]
pub struct Mariadb {
    name: String,
    kept: Kept<Session>,
}

impl Mariadb {
    /// Opens a connection to work on.
    ///
    /// # Errors
    /// [`ResourceError::Url`] and [`ResourceError::Connect`]; also `Unavailable` where the server is read-only, `Invalid`
    /// where it does not keep what was prepared.
    pub fn connect(name: &str, url: &str, limits: Limits) -> Result<Self, ResourceError> {
        Address::parse(name, url)?.open(false, limits, &Stuck::default())
    }

    /// Takes a connection that the caller has opened. A branch cannot start while a transaction is open on it; the
    /// server says so.
    ///
    /// # Errors
    /// [`ResourceError::Connect`] where it is closed, the server is read-only, or does not keep what was prepared.
    pub fn over(name: &str, connection: Conn, limits: Limits) -> Result<Self, ResourceError> {
        let resource = ResourceId::of(name);
        let checked = Kept::open(limits, Stuck::default(), move || checked(connection, resource, false, None));
        let kept = checked.map_err(|(kind, native)| ResourceError::Connect {
            name: name.to_owned(),
            place: "the given connection".to_owned(),
            kind,
            native,
        })?;
        Ok(Self { name: name.to_owned(), kept })
    }

    /// Whether a branch that only read is found (default: yes). It is then finished when it ends and drops out. What the
    /// server tells by itself costs nothing, so a branch that writes is asked nothing that would cost a message more
    /// than by hand (docs/tuning.md). Has no effect where the server does not tell: on a connection of the caller's own
    /// that was opened without CLIENT_SESSION_TRACK.
    #[must_use]
    pub fn detect_read_only(mut self, on: bool) -> Self {
        // It has just been opened; on a connection that is gone nothing ends.
        let _gone = self.kept.with(|session| session.detect_read_only = on);
        self
    }

    /// Whether a branch may vote yes that wrote to tables without transactions, as `MyISAM`, Aria and MEMORY are (default:
    /// no). What is written there stays, whatever is decided. Seen where the server tells, as for
    /// [`Mariadb::detect_read_only`]; a branch that commits in one phase is not asked.
    #[must_use]
    pub fn allow_plain_tables(mut self, on: bool) -> Self {
        let _gone = self.kept.with(|session| session.allow_plain_tables = on);
        self
    }

    /// How old the place in the server's log may be that is kept with a vote (default: a second). By it a server that was
    /// set back to a copy of its data from before the vote is told from the one that voted (docs/robustness.md); a copy
    /// from between place and vote is not. Connections of this process to the same server ask for one another: from half of
    /// this age on one of them asks with its vote, and whoever votes when it is over. `Duration::ZERO` asks behind every vote,
    /// in its message, which costs the server more than the branch's own statements (docs/PERFORMANCE.md); worth it where the data is copied all the
    /// time, as by asynchronous replication of the volume.
    #[must_use]
    pub fn log_place_age_max(mut self, longest: Duration) -> Self {
        let _gone = self.kept.with(|session| session.place_age_max = longest);
        self
    }

    /// From now on this connection's branches only read: the server refuses what writes (1792), `FOR UPDATE` included and temporary
    /// tables excepted. Outside of branches too, as long as the caller leaves the session's access mode as it is. A branch is then a plain
    /// transaction (START TRANSACTION READ ONLY), of which nothing is asked and nothing prepared, and whose end is waited for by nobody on a
    /// connection of our own; it drops out of its transaction as any that only read. It is refused while a transaction of the caller's is open.
    /// Who ends the branch's transaction and writes in its place has written whatever is decided.
    ///
    /// # Errors
    /// [`ResourceError::Connect`]: `Invalid` within a branch and while a transaction is open.
    pub fn read_only(mut self) -> Result<Self, ResourceError> {
        self.kept.set_up(&self.name, Session::only_read)?;
        Ok(self)
    }

    /// Says that the branch is whole although a statement was cut short (1205, 1317, 1969), because it has been repeated
    /// or was not needed. Without it a branch of which [`Mariadb::work`] has seen such an error is rolled back when it
    /// ends.
    pub fn carry_on(&mut self) {
        let _gone = self.kept.with(Session::carry_on);
    }

    /// Lends the connection for the caller's own statements (the driver's [`mysql::prelude::Queryable`]): within the branch between its start and its end, each
    /// for itself outside, and not while a branch is prepared (the server answers 1399). A lock-wait timeout (1205)
    /// undoes only its statement: end the branch without success, or repeat the statement and say
    /// [`Mariadb::carry_on`]. An error that `work` keeps to itself is not seen.
    ///
    /// # Errors
    /// [`ResourceError::UnderWay`] between `send` and `receive`, [`ResourceError::Gone`] when the connection is lost,
    /// [`ResourceError::Statement`] for what `work` returned.
    pub fn work<T>(
        &mut self,
        work: impl FnOnce(&mut MariadbClient<'_>) -> Result<T, mysql::Error>,
    ) -> Result<T, ResourceError> {
        let name = || self.name.clone();
        match self.kept.with(|session| session.work(work)) {
            Ok(Ok(Ok(done))) => Ok(done),
            Ok(Ok(Err(failure))) => {
                let kind = match &failure {
                    Failure::Server(code, _) => judge_work(*code),
                    Failure::Lost(_) => Kind::InDoubt,
                };
                Err(ResourceError::Statement { name: name(), kind, native: failure.native() })
            }
            Ok(Err(native)) | Err(NotHere::Gone(native)) => Err(ResourceError::Gone { name: name(), native }),
            Err(NotHere::UnderWay) => Err(ResourceError::UnderWay { name: name() }),
        }
    }
}

impl Resource for Mariadb {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, verb: Verb) {
        self.kept.send(verb);
    }

    fn defer(&mut self, verb: Verb) -> Option<Verb> {
        self.kept.defer(verb)
    }

    fn receive(&mut self) -> Reply {
        self.kept.receive()
    }

    fn witness(&mut self) -> Vec<u8> {
        self.kept.with(|session| session.seen.bytes()).unwrap_or_default()
    }

    fn let_go(&mut self) {
        self.kept.let_go();
    }

    fn has_ended(&mut self) -> bool {
        self.kept.has_ended()
    }
}

/// Opens connections for recovery: short limits.
#[derive(Debug)]
pub struct MariadbConnector {
    address: Address,
    limits: Limits,
    stuck: Stuck,
    leavers: Leavers,
}

impl MariadbConnector {
    /// Reads the URL; connects later.
    ///
    /// # Errors
    /// [`ResourceError::Url`].
    pub fn new(name: &str, url: &str) -> Result<Self, ResourceError> {
        let address = Address::parse(name, url)?;
        Ok(Self { address, limits: Limits::RECOVERY, stuck: Stuck::default(), leavers: Leavers::default() })
    }

    /// With other limits than [`Limits::RECOVERY`].
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }
}

impl Connector for MariadbConnector {
    fn name(&self) -> &str {
        &self.address.name
    }

    fn place(&self) -> String {
        let Address { place, options, .. } = &self.address;
        let [database, user] = [options.get_db_name(), options.get_user()].map(Option::unwrap_or_default);
        format!("{place}, database {database:?}, account {user:?}")
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        let opened = self.address.open(true, self.limits, &self.stuck);
        let mut opened = opened.map_err(ResourceError::into_native)?;
        // It has just been opened.
        let _gone = opened.kept.with(|session| session.leavers = self.leavers.shared());
        Ok(Box::new(opened))
    }
}

/// A URL that was understood.
struct Address {
    name: String,
    place: String,
    options: Opts,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.name, self.place)
    }
}

impl Address {
    fn parse(name: &str, url: &str) -> Result<Self, ResourceError> {
        let wrong = |reason: &str| ResourceError::Url {
            name: name.to_owned(),
            url: hidden(url),
            reason: reason.to_owned(),
            form: FORM,
        };
        if !["mysql://", "mariadb://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(wrong("it does not begin with mysql://"));
        }
        let known = url.strip_prefix("mariadb://").map(|rest| format!("mysql://{rest}"));
        // The driver's reasons may repeat what they could not read, so they are not repeated here.
        let options =
            Opts::from_url(known.as_deref().unwrap_or(url)).map_err(|_| wrong("a part of it cannot be read"))?;
        if options.get_user().is_none_or(str::is_empty) {
            return Err(wrong("it names no user"));
        }
        if options.get_db_name().is_none_or(str::is_empty) {
            return Err(wrong("it names no database"));
        }
        let place = format!("{}:{}", options.get_ip_or_hostname(), options.get_tcp_port());
        Ok(Self { name: name.to_owned(), place, options })
    }

    /// Where it leads, for those who share what they know of the server there: a socket wins over host and port.
    fn at(&self) -> String {
        [&self.place, self.options.get_socket().unwrap_or_default()].join(" ")
    }

    fn open(&self, recovery: bool, limits: Limits, stuck: &Stuck) -> Result<Mariadb, ResourceError> {
        let connect = Duration::from_millis(limits.connect_ms_max);
        let mut options = OptsBuilder::from_opts(self.options.clone())
            // Otherwise it would connect a second time, to the socket.
            .prefer_socket(false)
            .tcp_connect_timeout(Some(connect))
            // A machine that vanished is noticed by the kernel, so that no helper waits for it for ever.
            .tcp_keepalive_time_ms(Some(KEEPALIVE_MS))
            // Or the server does not tell what a branch has written.
            .additional_capabilities(CapabilityFlags::CLIENT_SESSION_TRACK)
            .connect_attrs(Some(HashMap::from([("program_name", "assent")])));
        if recovery {
            let answer = Duration::from_millis(limits.answer_ms_max);
            let set = format!(
                "SET SESSION lock_wait_timeout = {LOCK_WAIT_S}, wait_timeout = {SILENCE_S}, \
                 net_read_timeout = {SILENCE_S}, net_write_timeout = {SILENCE_S}"
            );
            options = options.read_timeout(Some(answer)).write_timeout(Some(answer)).init(vec![set]);
        }
        let resource = ResourceId::of(&self.name);
        // What is compressed only the driver writes.
        let is_plain = self.options.get_compress().is_none();
        let at = self.at();
        let opened = Kept::open(limits, stuck.clone(), move || match Conn::new(options) {
            Ok(connection) => checked(connection, resource, is_plain, Some(&at)),
            Err(error) => Err(refusal(&error)),
        });
        let kept = opened.map_err(|(kind, native)| ResourceError::Connect {
            name: self.name.clone(),
            place: self.place.clone(),
            kind,
            native,
        })?;
        Ok(Mariadb { name: self.name.clone(), kept })
    }
}

/// A server that cannot be believed must be told now, not when it has voted.
fn checked(
    mut connection: Conn,
    resource: ResourceId,
    is_own: bool,
    at: Option<&str>,
) -> Result<Session, (Kind, Native)> {
    if is_read_only(&mut connection).map_err(|error| refusal(&error))? {
        return Err((Kind::Unavailable, replica()));
    }
    let answered = connection.query_first("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, VERSION()");
    let (flush, version): (u64, String) = answered
        .map_err(|error| refusal(&error))?
        .ok_or_else(|| (Kind::Internal, said("VERSION() had no answer".to_owned())))?;
    keeps::check(flush, &version).map_err(|message| (Kind::Invalid, said(message)))?;
    known::track(&mut connection);
    let asked = RealClock.now();
    let seen = look(&mut connection).map_err(|error| refusal(&error))?;
    Ok(Session::new(connection, resource, (seen, asked), is_own, at))
}

/// Why a connection could not be used from the first.
fn refusal(error: &mysql::Error) -> (Kind, Native) {
    let kind = match error {
        mysql::Error::MySqlError(error) => judge_connect(error.code),
        mysql::Error::DriverError(
            mysql::DriverError::UnknownAuthPlugin(_)
            | mysql::DriverError::OldMysqlPasswordDisabled
            | mysql::DriverError::CleartextPluginDisabled,
        ) => Kind::Denied,
        _ => Kind::Unavailable,
    };
    (kind, Failure::of(error).native())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_url_is_told_in_one_sentence_without_its_password() {
        let cases = [
            ("postgresql://u:secret@h/db", "does not begin with mysql://"),
            ("secret", "does not begin with mysql://"),
            ("mysql://u:secret@h:port/db", "cannot be read"),
            ("mysql://u:secret@h/db?unheard_of=1", "cannot be read"),
            ("mysql://h/db", "names no user"),
            ("mysql://u:secret@h", "names no database"),
        ];
        for (url, reason) in cases {
            let error = MariadbConnector::new("shop", url).unwrap_err();
            let said = error.to_string();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(said.contains(reason), "{url}: {said}");
            assert!(said.contains("\"shop\"") && said.contains(FORM) && !said.contains("secret"), "{said}");
            assert!(!said.contains('\n'));
        }
    }

    #[test]
    fn a_right_url_says_where_it_leads() {
        for (url, place) in
            [("mysql://u:p@h:1234/db", "h:1234"), ("mysql://u@h/db", "h:3306"), ("mariadb://u@h/db", "h:3306")]
        {
            let connector = MariadbConnector::new("shop", url).unwrap();
            assert_eq!(connector.address.place, place);
            assert_eq!(format!("{:?}", connector.address), format!("shop at {place}"));
        }
    }

    /// Containers of one kind: the same host, port and configuration, each with a socket of its own.
    #[test]
    fn who_goes_by_another_socket_goes_to_another_server() {
        let at = |more: &str| Address::parse("shop", &format!("mysql://u@h/db{more}")).unwrap().at();
        let all = ["", "?socket=/run/a.sock", "?socket=/run/b.sock"].map(at);
        assert!(all[0] != all[1] && all[1] != all[2] && all[2] != all[0], "{all:?}");
        assert_eq!(all[0], at(""));
    }
}
