//! PostgreSQL behind a real PgBouncer: pooled by session everything works, with one line in its configuration; pooled by
//! transaction recovery notices that its claim is somebody else's, and is given none that somebody else has.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use assent_ids::NodeId;
use assent_kind::Kind;
use assent_resources::PostgresConnector;
use assent_xa::{Connector as _, Reply, Resource, Verb};
use postgres::{Client, NoTls};
use tempfile::TempDir;

use super::assent::{json, run, write};
use super::town::{BANK, Rules, Town, eventually, prepared, shared, variable};

/// A pooler before the shared PostgreSQL, until this goes.
struct Pooler {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Pooler {
    /// Nothing, said aloud, where it is not installed.
    #[allow(clippy::print_stderr, clippy::disallowed_methods, reason = "what is not tested is said aloud; a free port")]
    fn start(mode: &str, more: &str) -> Option<Self> {
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        if !Command::new("pgbouncer").arg("--version").env("PATH", &path).output().is_ok_and(|it| it.status.success()) {
            eprintln!("NOT TESTED: pgbouncer is not installed; scripts/servers install brings it");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // It reads its file by an account of its own.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let server = variable("ASSENT_TEST_POSTGRES");
        let (account, place) = server.split_once("//").unwrap().1.split_once('@').unwrap();
        let ((host, port), database) =
            place.split_once('/').map(|(at, database)| (at.split_once(':').unwrap(), database)).unwrap();
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = format!(
            "[databases]\n{database} = host={host} port={port} dbname={database} user={account}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {own}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n{more}"
        );
        let file = folder.path().join("pgbouncer.ini");
        write(&file, &text);
        let is_root = rustix::process::geteuid().is_root();
        let mut command = Command::new(if is_root { "setpriv" } else { "pgbouncer" });
        if is_root {
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--", "pgbouncer"]);
        }
        command.args(["-q".as_ref(), file.as_os_str()]).env("PATH", path);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let url = format!("postgresql://{account}@127.0.0.1:{own}/{database}");
        eventually("the pooler answers", || Client::connect(&url, NoTls).is_ok());
        Some(Self { child, url, _folder: folder })
    }

    fn recovery(&self) -> Box<dyn Resource + Send> {
        PostgresConnector::new(BANK, &self.url).unwrap().connect().unwrap()
    }
}

#[test]
fn behind_a_pooler_by_session_a_decided_branch_is_finished_and_the_claim_is_one_process_s() {
    let _quiet = shared();
    let Some(pooler) = Pooler::start("session", "ignore_startup_parameters = options\n") else { return };
    let rules = Rules { bank: pooler.url.clone(), ..Rules::default() };
    let town = Town::new("pooled", Rules { stop: "coordinator-after-answer", ..rules.clone() });
    let mut voted = town.voted(1);
    let node = voted.xids[0].branch().unwrap().node;
    voted.decide();
    town.served.freezes();
    let (_, xids) = voted.dies();
    let town = town.again(rules);
    town.settles();
    assert_eq!((town.rows(), prepared(&town.rules.bank, &xids)), ((vec![1], vec![1]), (false, false)));

    let mut other = pooler.recovery();
    let reply = other.call(Verb::Claim(node));
    assert!(matches!(reply, Reply::Refused(Kind::Conflict, _)), "{reply:?}");
    let found = errors(&pooler);
    assert!(found.is_empty(), "the doctor has nothing against it: {found:?}");
    town.served.kill();
    eventually("a killed process's claim is free", || other.call(Verb::Claim(node)) == Reply::Done);
}

/// Why it is not silently another way: the pooler would drop the limits that recovery's session asks for.
#[test]
fn a_pooler_that_does_not_take_recovery_s_options_is_named_with_them() {
    let _quiet = shared();
    let Some(pooler) = Pooler::start("session", "") else { return };
    let town = Town::new("unignored", Rules { bank: pooler.url.clone(), ..Rules::default() });
    let looked = json(&town.tx(&["recover"]));
    let why = looked["unreachable"][0]["why"].as_str().unwrap();
    assert!(why.contains("unsupported startup parameter: options"), "{why}");
    let found = errors(&pooler);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0.contains("refuses the time limits") && found[0].0.contains("parameter: options"), "{found:?}");
    assert!(found[0].1.contains("ignore_startup_parameters = options"), "{found:?}");
}

/// What the doctor calls an error behind it, and what it says is to be done.
fn errors(pooler: &Pooler) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doctor.toml");
    let resource = format!("[[resource]]\nname = \"bank\"\nkind = \"postgres\"\nurl = {:?}\n", pooler.url);
    write(&file, &format!("data_dir = \"data\"\n[coordinator]\n{resource}"));
    let report = json(&run(&["--json", "doctor", "--config", file.to_str().unwrap()]));
    let findings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["severity"] == "error");
    findings.map(|it| (it["what"].as_str().unwrap().to_owned(), it["advice"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn behind_a_pooler_by_transaction_recovery_believes_no_list_that_another_session_made() {
    let _quiet = shared();
    let Some(pooler) = Pooler::start("transaction", "ignore_startup_parameters = options\n") else { return };
    let node = node(1);
    let mut recovery = pooler.recovery();
    assert_eq!(recovery.call(Verb::Claim(node)), Reply::Done);
    // Somebody else is given the session that has the lock.
    let mut worker = Client::connect(&pooler.url, NoTls).unwrap();
    worker.batch_execute("BEGIN").unwrap();
    let reply = recovery.call(Verb::Recover(node));
    let Reply::Refused(Kind::Invalid, native) = reply else { panic!("{reply:?}") };
    assert!(native.message.contains("pools this connection by transaction"), "{}", native.message);
}

/// One session of the server serves both, so the server itself would give both the lock.
#[test]
fn behind_a_pooler_by_transaction_one_process_has_the_claim_and_the_doctor_says_what_to_do() {
    let _quiet = shared();
    let Some(pooler) = Pooler::start("transaction", "ignore_startup_parameters = options\n") else { return };
    let claim = || Verb::Claim(node(2));
    let (mut first, mut second) = (pooler.recovery(), pooler.recovery());
    assert_eq!(first.call(claim()), Reply::Done);
    for _ in 0..3 {
        let reply = second.call(claim());
        let Reply::Refused(Kind::Conflict, native) = reply else { panic!("{reply:?}") };
        assert!(native.message.contains("a proxy pools both by transaction"), "{}", native.message);
        assert_eq!(first.call(claim()), Reply::Done, "it is its own as before");
    }
    let found = errors(&pooler);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0.contains("pools its connections by transaction"), "{found:?}");
    assert!(found[0].1.contains("pool_mode = session"), "{found:?}");
}

/// A node of this run.
fn node(number: u32) -> NodeId {
    NodeId(u64::from(std::process::id()) << 32 | u64::from(number))
}
