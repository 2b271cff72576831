//! Who may resolve MariaDB's branches, who still holds one, and what the server can say of it afterwards.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};
use assent_ids::{Branch, Epoch, Incarnation, Xid};
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, MariadbConnector};
use assent_xa::{Connector, Past, Reply, Resource, Verb, Vote};

use super::engine::{Engine, MariadbTable, code, freed, node, wait, work, xid};
use super::mariadb::Tap;
use super::servers::{Servers, alone, shared};

const YES: Reply = Reply::Vote(Vote::Yes);

pub(super) fn root(servers: &Servers) -> Conn {
    let url = servers.mariadb.replace("//assent:assent@", "//root@");
    Conn::new(OptsBuilder::from_opts(Opts::from_url(&url).unwrap()).prefer_socket(false)).unwrap()
}

/// The connection that has the lock.
pub(super) fn holder(table: &MariadbTable, lock: &str) -> Option<u64> {
    table.plain().query_first::<Option<u64>, _>(format!("SELECT IS_USED_LOCK('{lock}')")).unwrap().unwrap()
}

pub(super) fn mark(test: &str, incarnation: &str, number: u32) -> String {
    format!("assent:{}:{incarnation}:{number}", node(test))
}

pub(super) fn id(branch: &mut Mariadb) -> u64 {
    branch.work(|connection| Ok(u64::from(connection.connection_id()))).unwrap()
}

/// The same branch, of another client process.
pub(super) fn of_client(xid: Xid, epoch: u32, number: u32) -> Xid {
    let mut branch = xid.branch().unwrap();
    branch.tx.incarnation = Incarnation { epoch: Epoch(epoch), number };
    Branch::xid(&branch)
}

/// A session with a row in a prepared branch, which stays where it is.
pub(super) fn prepared(table: &MariadbTable, xid: Xid, row: i32) -> Mariadb {
    prepared_in(table.resource(), table, xid, row)
}

pub(super) fn prepared_in(mut branch: Mariadb, table: &MariadbTable, xid: Xid, row: i32) -> Mariadb {
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    let insert = format!("INSERT INTO {} VALUES ({row})", table.table);
    branch.work(|connection| connection.query_drop(insert)).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    branch
}

#[test]
fn one_connection_resolves_a_nodes_branches_until_it_ends() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "claim");
    let mut agent = table.connector().connect().unwrap();
    let claim = Verb::Claim(node("claim"));
    assert_eq!(agent.call(claim.clone()), Reply::Done);
    assert_eq!(agent.call(claim.clone()), Reply::Done, "it is its own already");
    let mut second = table.connector().connect().unwrap();
    let reply = second.call(claim.clone());
    let Reply::Refused(Kind::Conflict, native) = reply else { panic!("{reply:?}") };
    let rid = assent_ids::ResourceId::of("shop");
    let holds = holder(&table, &format!("assent:{}:{rid}", node("claim"))).unwrap();
    assert!(native.message.contains(&format!("connection {holds} ")), "{}", native.message);
    assert_eq!(second.call(Verb::Claim(node("claim_other"))), Reply::Done, "another node");
    let other = MariadbConnector::new("another", &table.url).unwrap();
    assert_eq!(other.connect().unwrap().call(claim.clone()), Reply::Done, "another resource of this server");

    // What recovery does with it leaves it alone.
    let xid = xid("claim", 0);
    let mut owner = prepared(&table, xid, 1);
    let witness = owner.witness();
    drop(owner);
    freed(&mut *agent, xid, &witness);
    assert_eq!((agent.call(Verb::Commit(xid)), table.rows()), (Reply::Done, vec![1]));
    assert!(matches!(second.call(claim.clone()), Reply::Refused(Kind::Conflict, _)));
    drop(agent);
    let taken = wait("the claim to be free", || match second.call(claim.clone()) {
        Reply::Refused(Kind::Conflict, _) => None,
        reply => Some(reply),
    });
    assert_eq!(taken, Reply::Done);
}

/// The host of a coordinator vanishes and ends no connection: the server has to, or the claim stays for hours.
#[test]
fn a_holder_of_the_claim_that_is_silent_loses_it() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "silent");
    let tap = Tap::new(&table.url);
    let mut own = MariadbConnector::new("shop", &tap.url).unwrap().connect().unwrap();
    assert!(tap.said("wait_timeout = 30"), "recovery's session asks for the server's limit");
    let claim = Verb::Claim(node("silent"));
    assert_eq!(own.call(claim.clone()), Reply::Done);
    drop(own);
    // The same limit, shorter.
    let lock = format!("assent:{}:{}", node("silent"), assent_ids::ResourceId::of("shop"));
    let mut gone = table.plain();
    gone.query_drop("SET SESSION wait_timeout = 1").unwrap();
    let _taken: Option<u8> = gone.query_first(format!("SELECT GET_LOCK('{lock}', 10)")).unwrap();
    let mut next = table.connector().connect().unwrap();
    let taken = wait("the silent session's claim to be free", || match next.call(claim.clone()) {
        Reply::Refused(Kind::Conflict, _) => None,
        reply => Some(reply),
    });
    assert_eq!(taken, Reply::Done);
    assert!(gone.query_drop("DO 1").is_err(), "its session was ended by the server");
}

/// The place in the log is the vote's own, not the connection's: a backup from between them must not pass for the server
/// that voted.
#[test]
fn the_witness_of_each_vote_says_how_far_the_log_was_on_disk_behind_it() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "vote_place");
    let mut branch = table.resource().log_place_age_max(Duration::ZERO);
    for round in 0..2 {
        // The backup would be taken here.
        table.plain().query_drop(format!("INSERT INTO {} VALUES ({})", table.table, 100 + round)).unwrap();
        let backup = on_disk(&table);
        let xid = xid("vote_place", round);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        let insert = format!("INSERT INTO {} VALUES ({round})", table.table);
        branch.work(|connection| connection.query_drop(insert)).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        let voted = place(&mut branch);
        assert!(voted > backup, "{voted} is not behind {backup}");
        assert!(voted <= on_disk(&table), "what a crash could take back is no place");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
}

/// A young place is not asked for again; a backup from behind it is taken for the server that voted.
#[test]
fn a_place_that_is_young_enough_is_kept_with_the_next_votes() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "young_place");
    let mut branch = table.resource().log_place_age_max(Duration::from_secs(3_600));
    let opened = branch.witness();
    table.plain().query_drop(format!("INSERT INTO {} VALUES (100)", table.table)).unwrap();
    let xid = xid("young_place", 0);
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    branch.work(|connection| connection.query_drop(format!("INSERT INTO {} VALUES (1)", table.table))).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    assert_eq!(branch.witness(), opened);
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
}

/// The one that its vote keeps.
pub(super) fn place(branch: &mut Mariadb) -> u64 {
    let text = String::from_utf8(branch.witness()).unwrap();
    text.split_once("lsn=").unwrap().1.split_once(' ').unwrap().0.parse().unwrap()
}

/// Up to where InnoDB's log is on disk.
pub(super) fn on_disk(table: &MariadbTable) -> u64 {
    let answer: Option<(String, u64)> =
        table.plain().query_first("SHOW GLOBAL STATUS LIKE 'Innodb_lsn_flushed'").unwrap();
    answer.unwrap().1
}

/// The server answers such a commit with success and does nothing, so nobody may ask before the owner's session has gone.
#[test]
fn a_commit_behind_an_owner_that_is_going_is_done() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "going");
    commits_behind_owners_that_go(&table, "going", &mut *table.connector().connect().unwrap());
}

/// It sees no session of the owner's account in the process list, neither one that is there nor one that is going.
#[test]
fn a_commit_by_another_account_behind_an_owner_that_is_going_is_done() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "other_going");
    let other = Account::new(&servers, "going");
    let url = table.url.replace("//assent:assent@", &format!("//{}@", other.login()));
    let mut agent = MariadbConnector::new("shop", &url).unwrap().connect().unwrap();
    commits_behind_owners_that_go(&table, "other_going", &mut *agent);
}

/// Ten at a time go, as sessions of one process do, and share what recovery waits.
fn commits_behind_owners_that_go(table: &MariadbTable, test: &str, agent: &mut dyn Resource) {
    for round in 0..60 {
        let xids: Vec<Xid> = (0..10).map(|it| of_client(xid(test, it), 7, round)).collect();
        let rows = i32::try_from(round).unwrap() * 10..;
        let mut owners: Vec<_> = xids.iter().zip(rows).map(|(xid, row)| prepared(table, *xid, row)).collect();
        let witnesses: Vec<Vec<u8>> = owners.iter_mut().map(|owner| owner.witness()).collect();
        let told = || xids.iter().zip(&witnesses);
        if round == 0 {
            for (xid, witness) in told() {
                let reply = agent.call(Verb::Freed { xid: *xid, witness: witness.clone() });
                assert!(matches!(reply, Reply::Refused(Kind::Busy, _)), "it is there: {reply:?}");
            }
        }
        // As when their process dies: nobody waits for that.
        let going: Vec<_> = owners.into_iter().map(|owner| std::thread::spawn(move || drop(owner))).collect();
        told().for_each(|(xid, witness)| freed(agent, *xid, witness));
        for xid in &xids {
            assert_eq!(agent.call(Verb::Commit(*xid)), Reply::Done);
        }
        going.into_iter().for_each(|it| it.join().unwrap());
    }
    assert_eq!(table.rows(), (0..600).collect::<Vec<_>>());
}

/// A session leaves the list of connections before its branch is free. Ten thousand may have gone, so a pause is behind all
/// that were found gone, on whatever connection.
#[test]
fn one_pause_is_behind_all_owners_that_were_found_gone() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "pause");
    let tap = Tap::new(&table.url);
    let connector = MariadbConnector::new("shop", &tap.url).unwrap();
    let mut agent = connector.connect().unwrap();
    let paused = || tap.times("SELECT SLEEP(0.1)");
    let gone = |numbers: [u16; 3]| {
        numbers.map(|number| {
            let xid = xid("pause", number);
            let mut owner = prepared(&table, xid, number.into());
            (xid, owner.witness())
        })
    };
    let first = gone([0, 1, 2]);
    first.iter().for_each(|(xid, witness)| freed(&mut *agent, *xid, witness));
    assert_eq!(paused(), 0);
    first.iter().for_each(|(xid, _)| assert_eq!(agent.call(Verb::Commit(*xid)), Reply::Done));
    assert_eq!(paused(), 1);
    let second = gone([3, 4, 5]);
    second.iter().for_each(|(xid, witness)| freed(&mut *agent, *xid, witness));
    second.iter().for_each(|(xid, witness)| freed(&mut *agent, *xid, witness));
    assert_eq!(agent.call(Verb::Commit(second[0].0)), Reply::Done);
    assert_eq!(agent.call(Verb::Rollback(second[1].0)), Reply::Done);
    assert_eq!(paused(), 2);
    // Found gone by one connection, told by another.
    assert_eq!(connector.connect().unwrap().call(Verb::Commit(second[2].0)), Reply::Done);
    assert_eq!(paused(), 3);
    assert_eq!(table.rows(), [0, 1, 2, 3, 5]);
}

/// An account that sees the tables and no other account's sessions, until this goes.
pub(super) struct Account<'a> {
    name: String,
    servers: &'a Servers,
}

impl<'a> Account<'a> {
    pub(super) fn new(servers: &'a Servers, test: &str) -> Self {
        let it = Self { name: format!("{test}_{}", std::process::id()), servers };
        let mut root = root(servers);
        root.query_drop(format!("CREATE USER {}@'127.0.0.1' IDENTIFIED BY 'other'", it.name)).unwrap();
        root.query_drop(format!("GRANT SELECT ON assent.* TO {}@'127.0.0.1'", it.name)).unwrap();
        it
    }

    pub(super) fn login(&self) -> String {
        format!("{}:other", self.name)
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        // Its name is this run's: one that stays harms nobody.
        let _stays = root(self.servers).query_drop(format!("DROP USER {}@'127.0.0.1'", self.name));
    }
}

#[test]
fn a_branch_is_open_while_listed_and_forgotten_afterwards() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "inquire");
    let mut agent = table.connector().connect().unwrap();
    let xid = xid("inquire", 0);
    let mut owner = prepared(&table, xid, 1);
    let witness = owner.witness();
    let text = String::from_utf8(witness.clone()).unwrap();
    assert!(text.starts_with(&format!("mdb2 connection={} started=", id(&mut owner))), "{text}");
    assert!(text.contains("/mariadb/data/"), "{text}");
    let mut ask = |witness: &[u8]| agent.call(Verb::Inquire { xid, witness: witness.to_vec() });
    for witness in [&witness[..], b""] {
        assert_eq!(ask(witness), Reply::Past(Past::Open));
    }
    assert_eq!(owner.call(Verb::Commit(xid)), Reply::Done);
    assert_eq!(ask(&witness), Reply::Past(Past::Forgotten));
    let reply = ask(b"");
    let Reply::Past(Past::Elsewhere(native)) = &reply else { panic!("{reply:?}") };
    assert!(native.message.contains("nothing was kept of its vote"), "{}", native.message);
    let (_, data) = text.rsplit_once("server=").unwrap();
    let elsewhere = text.replace(data, "other data");
    assert!(matches!(ask(elsewhere.as_bytes()), Reply::Past(Past::Elsewhere(_))));
    let (head, tail) = text.split_once("lsn=").unwrap();
    let (_, tail) = tail.split_once(' ').unwrap();
    let restored = format!("{head}lsn={} {tail}", u64::MAX);
    let reply = ask(restored.as_bytes());
    let Reply::Past(Past::Elsewhere(native)) = &reply else { panic!("{reply:?}") };
    assert!(native.message.contains("set back"), "{}", native.message);
    assert!(matches!(ask(b"of another kind"), Reply::Past(Past::Elsewhere(_))));
}

#[test]
fn a_restarted_server_is_the_one_that_voted() {
    let servers = alone();
    let table = MariadbTable::new(&servers, "restarted");
    let (listed, gone) = (xid("restarted", 0), xid("restarted", 1));
    let mut owner = prepared(&table, listed, 1);
    let witness = owner.witness();
    servers.kill("mariadb");
    let ask = |xid| {
        let witness = witness.clone();
        table.connector().connect().map(|mut agent| agent.call(Verb::Inquire { xid, witness }))
    };
    assert!(matches!(ask(listed), Err((Kind::Unavailable, _))));
    servers.revive("mariadb");
    assert_eq!(ask(listed), Ok(Reply::Past(Past::Open)));
    assert_eq!(ask(gone), Ok(Reply::Past(Past::Forgotten)));
    let mut agent = table.connector().connect().unwrap();
    assert_eq!(agent.call(Verb::Evict(listed)).name(), "a refusal", "no session has it");
    assert_eq!(agent.call(Verb::Commit(listed)), Reply::Done);
}

/// A server that is started again counts its connections from one again. What was seen: a decided branch stayed prepared for
/// as long as somebody was connected who had the voter's number in the server's next run, two seconds later.
#[test]
fn who_has_the_voters_number_in_another_run_is_not_waited_for() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "another_run");
    let xid = xid("another_run", 0);
    let age = "SELECT CAST(UNIX_TIMESTAMP() - VARIABLE_VALUE AS UNSIGNED) FROM information_schema.GLOBAL_STATUS \
               WHERE VARIABLE_NAME = 'UPTIME'";
    let started: u64 = table.plain().query_first(age).unwrap().unwrap();
    // Where it was asked within one second of the server's clock, as almost always.
    let mut agent = wait("a connection that knows when its server was started", || {
        let mut agent = table.resource();
        let witness = String::from_utf8(agent.witness()).unwrap();
        witness.contains(&format!(" started={started} ")).then_some(agent)
    });
    let mut owner = prepared(&table, xid, 1);
    let witness = owner.witness();
    let (_, data) = std::str::from_utf8(&witness).unwrap().split_once(" lsn=").unwrap();
    let mut bystander = table.resource();
    let number = id(&mut bystander);
    drop(owner);
    freed(&mut agent, xid, &witness);
    let mut asked = |started_s: u64| {
        let witness = format!("mdb2 connection={number} started={started_s} lsn={data}");
        agent.call(Verb::Freed { xid, witness: witness.into() })
    };
    let reply = asked(started);
    assert!(matches!(reply, Reply::Refused(Kind::Busy, _)), "it may be the voter: {reply:?}");
    assert_eq!([started - 1, started + 1].map(&mut asked), [Reply::Done, Reply::Done]);
    assert_eq!(agent.call(Verb::Commit(xid)), Reply::Done);
    drop(bystander);
    assert_eq!(table.rows(), [1]);
}

/// Whoever is replaced by a later version votes with a witness that this one cannot read. That was taken for a voter who has
/// gone, so that an outcome could be told into a session that was just ending.
#[test]
fn who_voted_with_a_witness_of_a_later_version_is_waited_for() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "later");
    let mut agent = table.resource();
    let xid = xid("later", 0);
    let mut owner = prepared(&table, xid, 1);
    let later = String::from_utf8(owner.witness()).unwrap().replace("mdb2 ", "mdb3 ").into_bytes();
    for witness in [&later[..], b"\xff", b""] {
        let reply = agent.call(Verb::Freed { xid, witness: witness.to_vec() });
        let Reply::Refused(Kind::Busy, native) = &reply else { panic!("{reply:?}") };
        assert!(native.message.contains(&format!("connection {} works for", id(&mut owner))), "{}", native.message);
    }
    drop(owner);
    freed(&mut agent, xid, &later);
    assert_eq!((agent.call(Verb::Commit(xid)), table.rows()), (Reply::Done, vec![1]));
}

const FROZEN: &str = "ASSENT_TEST_FROZEN";

/// A process that has prepared and does not answer any more. Its kernel does, so the server waits for it.
#[test]
fn the_branch_of_a_frozen_process_is_freed() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "frozen");
    let xid = xid("frozen", 0);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "databases::owners::the_process_that_is_frozen"])
        .env(FROZEN, format!("{}\n{}\n{xid}", table.url, table.table))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("prepared")), "the process prepares");
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    let mut agent = table.connector().connect().unwrap();
    assert!(matches!(agent.call(Verb::Rollback(xid)), Reply::Refused(Kind::Busy, _)));
    assert_eq!(agent.call(Verb::Evict(xid)), Reply::Done);
    assert_eq!(agent.call(Verb::Rollback(xid)), Reply::Done);
    signal("-CONT");
    drop(child.stdin.take());
    let said: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(said.iter().any(|line| line.ends_with("a lost answer")), "it wakes to no half a commit: {said:?}");
    assert!(child.wait().unwrap().success());
    assert_eq!(table.rows(), [0_i32; 0]);
}

/// Not a test of its own: what `the_branch_of_a_frozen_process_is_freed` runs.
#[test]
fn the_process_that_is_frozen() {
    let Ok(told) = std::env::var(FROZEN) else { return };
    let [url, table, xid] = told.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let (table, xid) = (MariadbTable { url: url.to_owned(), table: table.to_owned() }, xid.parse().unwrap());
    let mut branch = prepared(&table, xid, 1);
    println!("\nprepared");
    // Until the parent closes it.
    let _ = std::io::stdin().read_line(&mut String::new());
    println!("\n{}", branch.call(Verb::Commit(xid)).name());
}

#[test]
fn a_branch_that_occupies_a_connection_leaves_no_room_for_recovery_on_it() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "occupied");
    let xid = xid("occupied", 0);
    let mut branch = table.open();
    work(&mut *branch, xid, 1);
    for verb in [Verb::Claim(node("occupied")), Verb::Evict(xid), Verb::Inquire { xid, witness: Vec::new() }] {
        let reply = branch.call(verb);
        assert!(matches!(reply, Reply::Refused(Kind::Busy, _)), "{reply:?}");
        assert_eq!(code(&reply), "");
    }
    assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    let mut over = Mariadb::over("shop", table.plain(), Limits::WORK).unwrap();
    assert_eq!(over.call(Verb::Claim(node("occupied"))), Reply::Done);
}
