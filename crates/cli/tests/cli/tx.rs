//! `assent tx` against real servers: what is in doubt is shown, decided by a person who must mean it, and kept in the log.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::Path;
use std::time::Duration;

use assent_ids::{Branch, ResourceId, TxId};
use assent_link::{Link, LinkConfig};
use assent_wire::{
    Answer, BranchRecord, Decide, Deviation, Hello, Heuristic, Native, Op, Outcome, Reply, Request, Role, Write,
};
use assent_world::{Clock as _, RealClock};
use serde_json::Value;

use super::assent::{command, fails, json, run, unheard, unsaid, write};
use super::served::{Served, serve};

const NAME: &str = "orders";

/// A store and a coordinator that knows it, each a process of its own.
struct Pair {
    store: Served,
    coordinator: Served,
    folder: tempfile::TempDir,
}

fn pair(more: &str) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let both = "data_dir = \"data\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n";
    let place = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    write(&place("store").join("assent.toml"), &format!("{both}[kv]\n"));
    let store = serve(&place("store"));
    let resource = format!("[[resource]]\nname = {NAME:?}\nkind = \"assent\"\nurl = \"{}\"\n", store.protocol);
    let text = format!("{both}client_lost_ms = 60000\n[coordinator]\n{more}{resource}");
    write(&place("coordinator").join("assent.toml"), &text);
    let coordinator = serve(&place("coordinator"));
    Pair { store, coordinator, folder }
}

impl Pair {
    fn data(&self) -> String {
        self.folder.path().join("coordinator").join("data").to_str().unwrap().to_owned()
    }

    /// The coordinator dies without a word and starts again.
    fn again(self) -> Self {
        let Self { store, coordinator, folder } = self;
        coordinator.kill();
        let coordinator = serve(&folder.path().join("coordinator"));
        Self { store, coordinator, folder }
    }

    fn tx(&self, arguments: &[&str]) -> std::process::Output {
        let arguments = [&["--json", "tx"], arguments, &["--server", &self.coordinator.protocol]].concat();
        run(&arguments)
    }

    fn listed(&self) -> Value {
        json(&self.tx(&["list"]))["transactions"].clone()
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let link = link(&self.store, Role::Store { label: "test" });
        let arrived = link.request(&Request::Get { xid: None, keyspace: 0, key }).unwrap();
        let Answer::Value(value) = arrived.answer().unwrap() else { panic!("{arrived:?}") };
        value.map(<[u8]>::to_vec)
    }
}

fn link(served: &Served, role: Role<'_>) -> Link {
    Link::connect(&served.protocol.parse().unwrap(), &Hello::new(role), &LinkConfig::default()).unwrap()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = RealClock.now().after(Duration::from_secs(20));
    while !is_so() {
        assert!(RealClock.now() < until, "never: {what}");
        RealClock.sleep(Duration::from_millis(20));
    }
}

/// A client with one branch that is prepared.
struct Prepared {
    decisions: Link,
    tx: TxId,
    branch: Branch,
}

fn prepared(pair: &Pair, counter: u64, key: &[u8]) -> Prepared {
    let role = Role::Client { label: "shop", resume: None, resources: vec![NAME] };
    let decisions = link(&pair.coordinator, role);
    let store = link(&pair.store, Role::Store { label: "shop" });
    let incarnation = decisions.welcome().session.unwrap().incarnation;
    let tx = TxId { incarnation, counter };
    let node = decisions.welcome().node;
    let branch = Branch { node, tx, resource: ResourceId::of(NAME), number: 0, flags: 0, mark: None };
    let xid = branch.xid();
    let ops = vec![Op::Put { keyspace: 0, key, value: b"paid" }];
    let requests = [
        Request::Start(xid),
        Request::Write(Write { xid: Some(xid), durable: true, ops }),
        Request::End { xid, success: true },
        Request::Prepare(xid),
    ];
    let last = requests.map(|request| store.request(&request).unwrap()).into_iter().last().unwrap();
    assert!(matches!(last.answer().unwrap(), Answer::Branch(Reply::Yes(_))), "{last:?}");
    Prepared { decisions, tx, branch }
}

#[test]
fn what_is_in_doubt_is_shown_with_every_choice_and_decided_only_by_who_means_it() {
    let pair = pair("");
    let Prepared { decisions, tx, .. } = prepared(&pair, 1, b"k");
    decisions.request(&Request::Ping).unwrap();
    run(&["tx", "recover", "--server", &pair.coordinator.protocol]);
    let tx = tx.to_string();
    let server = ["--server", pair.coordinator.protocol.as_str()];
    // Whoever is silent for a second is lost.
    let ping = || _ = decisions.request(&Request::Ping).unwrap();
    ping();
    fails(&[&["tx", "commit", &tx][..], &server].concat(), 4, "its client is connected");
    ping();
    fails(&[&["tx", "commit", &tx, "--yes"][..], &server].concat(), 4, "stop the client first");
    decisions.close("the client dies");
    eventually("it is in doubt and its client lost", || pair.listed()[0]["client_is"] == "lost");
    let shown = run(&[&["tx", "show", &tx][..], &server].concat());
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    for said in ["undecided", "shop", "orders#0 prepared", "commit ", "rollback ", "wait ", "is told that it committed"]
    {
        assert!(text.contains(said), "{said:?} in {text}");
    }
    let one = json(&pair.tx(&["show", &tx]));
    let possible: Vec<&str> = one["choices"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["is_possible"] == true)
        .map(|it| it["choice"].as_str().unwrap())
        .collect();
    assert_eq!(possible, ["commit", "rollback", "wait"]);
    fails(&[&["tx", "commit", &tx][..], &server].concat(), 2, "add --yes");
    fails(&[&["tx", "forget", &tx, "--yes"][..], &server].concat(), 3, "no branch of");
    assert_eq!((pair.value(b"k"), pair.listed()[0]["outcome"].clone()), (None, Value::Null), "nothing was done");

    let forced = json(&pair.tx(&["commit", &tx, "--yes", "--by", "anna", "--reason", "the order was confirmed"]));
    assert_eq!((forced["outcome"].as_str(), forced["by"].as_str()), (Some("committed"), Some("anna")));
    assert!(forced["open"].is_array(), "decided is not done: {forced}");
    let (code, said) = unsaid(&[&["tx", "commit", &tx, "--yes", "--by", "anna"][..], &server].concat());
    assert!(code == Some(7) && said.contains("is decided: committed, by anna, but cannot write stdout"), "{said}");
    for words in [&["tx", "list"][..], &["tx", "log"], &["tx", "verify"], &["tx", "recover"]] {
        assert_eq!(unheard(&[words, &server].concat(), true), (Some(0), String::new()), "{words:?}");
    }
    eventually("the store has it", || pair.value(b"k") == Some(b"paid".to_vec()));
    fails(&[&["tx", "rollback", &tx, "--yes"][..], &server].concat(), 4, "decided before: committed");
    let told = json(&pair.tx(&["log", "--state", "forced", "--since", "1h", "--resource", NAME]));
    let [past] = &told["transactions"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!((&past["tx"], &past["outcome"], &past["by"]), (&tx.into(), &"committed".into(), &"operator".into()));
    assert_eq!((&past["operators"][0]["who"], &past["client"]), (&"anna".into(), &"shop".into()));
    assert_eq!(past["operators"][0]["reason"], "the order was confirmed");
    assert_eq!(json(&pair.tx(&["log", "--state", "rolled_back"]))["transactions"], serde_json::json!([]));
    fails(&["tx", "log", "--since", "yesterday"], 2, "a time is");
}

#[test]
fn without_by_it_is_the_name_of_the_operating_systems_user() {
    let pair = pair("");
    let Prepared { decisions, tx, .. } = prepared(&pair, 1, b"k");
    decisions.close("the client dies");
    eventually("recovery has seen it", || pair.listed()[0]["client_is"] == "lost");
    let arguments = ["tx", "rollback", &tx.to_string(), "--yes", "--server", &pair.coordinator.protocol];
    let output = command(&arguments).env_remove("SUDO_USER").env("USER", "berta").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("rolled_back, by berta"), "{output:?}");
    let told = json(&pair.tx(&["log", "--tx", &tx.to_string()]));
    assert_eq!(told["transactions"][0]["operators"][0]["who"], "berta");
    // Its client may still come back and ask, so it stays known.
    eventually("it is rolled back", || pair.listed()[0]["branches"][0]["state"] == "rolled back");
    assert_eq!(pair.value(b"k"), None);
}

#[test]
fn a_word_that_cannot_be_done_now_names_the_branches_that_stay_open() {
    let pair = pair("");
    let Prepared { decisions, tx, .. } = prepared(&pair, 1, b"k");
    decisions.close("the client dies");
    eventually("recovery has seen it", || pair.listed()[0]["client_is"] == "lost");
    let Pair { store, coordinator, folder } = pair;
    store.kill();
    let tx = tx.to_string();
    let said = run(&["tx", "rollback", &tx, "--yes", "--by", "anna", "--server", &coordinator.protocol]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains(&format!("by anna; recovery tells {NAME}#0 now; assent tx show {tx}")), "{said}");
    drop((coordinator, folder));
}

#[test]
fn a_heuristic_outcome_stays_listed_over_a_kill_until_a_person_forgets_it_and_the_log_keeps_it() {
    let pair = pair("");
    let Prepared { decisions, tx, branch } = prepared(&pair, 1, b"k");
    let record = BranchRecord { resource: branch.resource, number: 0, flags: 0, mark: None, witness: b"" };
    let decide = Decide { tx, outcome: Outcome::Committed, first: true, branches: vec![record] };
    decisions.request(&Request::Decide(decide)).unwrap().answer().unwrap();
    // A person rolled the branch back by hand before it was told: its client learns that and tells it.
    let by_hand = link(&pair.store, Role::Store { label: "a person" });
    by_hand.request(&Request::Rollback(branch.xid())).unwrap().answer().unwrap();
    let native = Native { code: "XA_HEURRB", message: "rolled back by hand" };
    let strayed =
        Deviation { resource: branch.resource, number: 0, flags: 0, heuristic: Heuristic::RolledBack, native };
    decisions.one_way(&Request::Heuristic { tx, told: Outcome::Committed, branches: vec![strayed] }).unwrap();
    decisions.one_way(&Request::Acknowledged(vec![tx])).unwrap();
    decisions.request(&Request::Ping).unwrap();
    let is_listed = |pair: &Pair| {
        let listed = pair.listed();
        listed[0]["tx"] == tx.to_string() && listed[0]["branches"][0]["heuristic"] == "rolled_back"
    };
    eventually("it is listed", || is_listed(&pair));
    // A client's word is one-way; whoever has the chain checked is told of what is on disk.
    json(&pair.tx(&["verify"]));
    let pair = pair.again();
    assert!(is_listed(&pair), "also after a kill: {}", pair.listed());
    let id = tx.to_string();
    let server = ["--server", pair.coordinator.protocol.as_str()];
    fails(&[&["tx", "forget", &id][..], &server].concat(), 2, "add --yes");
    fails(&[&["tx", "commit", &id][..], &server].concat(), 4, "a decision is never taken back");
    json(&pair.tx(&["forget", &id, "--yes", "--by", "anna", "--reason", "paid out by hand"]));
    eventually("it is off the list", || pair.listed() == serde_json::json!([]));
    let pair = pair.again();
    assert!(pair.listed()[0]["branches"][0]["heuristic"].is_null(), "also after a kill: {}", pair.listed());
    eventually("its store has been told, too", || pair.listed() == serde_json::json!([]));
    let told = json(&pair.tx(&["log", "--state", "heuristic"]));
    let past = &told["transactions"][0];
    assert_eq!(
        (&past["branches"][0]["heuristic"], &past["branches"][0]["code"]),
        (&"rolled_back".into(), &"XA_HEURRB".into())
    );
    assert_eq!(past["operators"][0]["action"], "forget");
    // The same from the stopped server's folder, which knows ids, and the one name that is asked for.
    let data = pair.data();
    pair.coordinator.stop();
    let offline = json(&run(&["--json", "tx", "log", "--state", "heuristic", "--resource", NAME, "--data", &data]));
    assert_eq!(offline["transactions"][0]["branches"][0]["resource"], NAME);
    assert_eq!(offline["transactions"][0]["operators"], past["operators"]);
}

/// What a person needs now does not wait for what was.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test damages a file")]
fn a_transaction_is_shown_also_where_the_history_cannot_be_read() {
    let pair = pair("log_size = 1048576\nhistory_bytes_max = 67108864\n");
    // A log is cut once nobody of an earlier opening may come back any more.
    let file = pair.folder.path().join("coordinator").join("assent.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    write(&file, &text.replace("client_lost_ms = 60000", "client_lost_ms = 1000"));
    let pair = pair.again();
    let Prepared { decisions, tx, branch } = prepared(&pair, 1, b"k");
    let Pair { store, coordinator, folder } = pair;
    // Its branch stays, whatever becomes of its client.
    store.kill();
    let witness = vec![b'w'; 4 << 10];
    // The first one stays; and more than the log grows between two checkpoints.
    for counter in 1..170 {
        let record =
            |number| BranchRecord { resource: branch.resource, number, flags: 0, mark: None, witness: &witness };
        let tx = TxId { counter, ..tx };
        let decide = Decide { tx, outcome: Outcome::Committed, first: true, branches: (0..16).map(record).collect() };
        decisions.request(&Request::Decide(decide)).unwrap().answer().unwrap();
        if counter > 1 {
            decisions.one_way(&Request::Finished(vec![tx])).unwrap();
        }
    }
    decisions.close("the client dies");
    let journal = folder.path().join("coordinator").join("data").join("coordinator");
    let archived = || {
        let names = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.extension().is_some_and(|it| it == "archived")).min()
    };
    eventually("the log has an archive", || archived().is_some());
    let damaged = archived().unwrap();
    let mut bytes = std::fs::read(&damaged).unwrap();
    let at = bytes.windows(100).position(|window| window == [b'w'; 100]).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let tx = tx.to_string();
    let server = ["--server", coordinator.protocol.as_str()];
    let shown = run(&[&["tx", "show", &tx][..], &server].concat());
    let (said, aside) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    assert!(shown.status.success() && said.contains("choices:"), "{shown:?}");
    assert!(aside.contains("what its branches voted cannot be read"), "{aside}");
    assert_eq!(json(&run(&[&["--json", "tx", "show", &tx][..], &server].concat()))["transactions"][0]["tx"], tx);
    fails(&[&["tx", "verify"][..], &server].concat(), 13, "archived");
}

#[test]
fn the_chain_is_verified_online_and_offline_and_a_head_that_was_kept_must_be_in_it() {
    let pair = pair("");
    let Prepared { decisions, tx, .. } = prepared(&pair, 1, b"k");
    let decide = Decide { tx, outcome: Outcome::RolledBack, first: true, branches: vec![] };
    decisions.request(&Request::Decide(decide)).unwrap().answer().unwrap();
    decisions.close("done");
    let mut found = Value::Null;
    eventually("a seal", || {
        found = json(&pair.tx(&["verify"]));
        found["head"].is_string()
    });
    let head = found["head"].as_str().unwrap().to_owned();
    assert_eq!(
        (&found["whole"], json(&pair.tx(&["verify", "--kept", &head]))["whole"].clone()),
        (&true.into(), true.into())
    );
    let data = pair.data();
    let (number, digest) = head.split_once(':').unwrap();
    let other = format!("{number}:{}{}", if digest.starts_with('0') { '1' } else { '0' }, &digest[1..]);
    let Pair { store, coordinator, folder } = pair;
    fails(&["tx", "verify", "--kept", &other, "--server", &coordinator.protocol], 13, "seal");
    coordinator.stop();
    let text = run(&["tx", "verify", "--kept", &head, "--data", &data]);
    let said = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(said.contains("the chain holds") && said.contains("the log's birth"), "{text:?}");
    fails(&["tx", "verify", "--kept", &other, "--data", &data], 13, "seal");
    fails(&["tx", "verify", "--kept", "7", "--data", &data], 2, "NUMBER:DIGEST");
    fails(&["tx", "verify", "--data", Path::new(&data).parent().unwrap().to_str().unwrap()], 3, "node file");
    store.stop();
    drop(folder);
}

/// Everything in a folder: names, when each was written, and what is in it.
#[allow(clippy::disallowed_methods, reason = "a test compares files")]
fn inventory(folder: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime, Vec<u8>)> {
    let mut all = vec![(folder.to_owned(), folder.metadata().unwrap().modified().unwrap(), vec![])];
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, written) = (entry.path(), entry.metadata().unwrap().modified().unwrap());
        if path.is_dir() {
            all.extend(inventory(&path));
        } else {
            all.push((path.clone(), written, std::fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

/// Evidence is looked at in a copy, or on a volume that may not be written to.
#[test]
fn whoever_reads_a_folder_writes_nothing_into_it_and_says_names_where_a_configuration_has_them() {
    let pair = pair("");
    let Prepared { decisions, tx, branch } = prepared(&pair, 1, b"k");
    let record = BranchRecord { resource: branch.resource, number: 0, flags: 0, mark: None, witness: b"" };
    let decide = Decide { tx, outcome: Outcome::Committed, first: true, branches: vec![record] };
    decisions.request(&Request::Decide(decide)).unwrap().answer().unwrap();
    let config = pair.folder.path().join("coordinator").join("assent.toml");
    let (data, tx) = (pair.data(), tx.to_string());
    let Pair { coordinator, store, folder } = pair;
    // Killed, so that the next opening of the server would have something to mend.
    coordinator.kill();
    let before = inventory(Path::new(&data));
    let journal = format!("{data}/coordinator");
    let named = ["--config", config.to_str().unwrap()];
    for arguments in [
        &["tx", "list", "--data", &data][..],
        &["tx", "show", &tx, "--data", &data],
        &["tx", "log", "--data", &data],
        &["tx", "verify", "--data", &data],
        &["journal", "check", &journal],
        &["journal", "inspect", &journal],
    ] {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert_eq!(inventory(Path::new(&data)), before, "{arguments:?}");
        if !["list", "show", "log"].contains(&arguments[1]) {
            continue;
        }
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("--config FILE shows their names") && !said.contains(NAME), "{said}");
        let said = String::from_utf8(run(&[arguments, &named].concat()).stdout).unwrap();
        assert!(said.contains(&format!("{NAME}#0")) && !said.contains("--config"), "{said}");
        assert_eq!(inventory(Path::new(&data)), before, "{arguments:?} by its configuration");
    }
    fails(&["tx", "list", "--config", "assent.toml"], 2, "--data");
    drop((folder, store));
}

#[test]
fn a_lazy_coordinator_says_so_counts_its_window_and_a_killed_process_loses_nothing() {
    let pair = pair("max_elapsed_sync_time = 60000\nhistory_bytes_max = 1000000\n");
    #[allow(clippy::disallowed_methods, reason = "a test reads what its server said")]
    let said = std::fs::read_to_string(pair.folder.path().join("coordinator").join("said")).unwrap();
    assert_eq!(said.matches("RPO > 0").count(), 1, "{said}");
    let Prepared { decisions, tx, branch } = prepared(&pair, 1, b"k");
    let record = BranchRecord { resource: branch.resource, number: 0, flags: 0, mark: None, witness: b"" };
    let decide = Decide { tx, outcome: Outcome::Committed, first: true, branches: vec![record] };
    decisions.request(&Request::Decide(decide)).unwrap().answer().unwrap();
    let metrics = pair.coordinator.get("/metrics");
    for gauge in ["assent_decisions_unsynced", "assent_held 0", "assent_rivals 0"] {
        assert!(metrics.contains(&format!("\n{gauge}")), "{gauge} in {metrics}");
    }
    let pair = pair.again();
    let admin = link(&pair.coordinator, Role::Admin);
    let arrived = admin.request(&Request::Ask(tx)).unwrap();
    assert_eq!(arrived.answer().unwrap(), Answer::Known(assent_wire::Known::Committed));
    // Its decision is there, so nothing is held, and recovery finishes what the client left.
    eventually("the store has it", || pair.value(b"k") == Some(b"paid".to_vec()));
    assert!(pair.coordinator.get("/metrics").contains("\nassent_held 0"));
    let told = json(&pair.tx(&["log", "--tx", &tx.to_string()]));
    assert_eq!(told["transactions"][0]["outcome"], "committed");
}

#[test]
fn a_state_table_keeps_decisions_over_a_kill_and_says_that_it_keeps_no_history() {
    let pair = pair("engine = \"table\"\n");
    let Prepared { decisions, tx, branch } = prepared(&pair, 1, b"k");
    let record = BranchRecord { resource: branch.resource, number: 0, flags: 0, mark: None, witness: b"" };
    let decide = Decide { tx, outcome: Outcome::Committed, first: true, branches: vec![record] };
    decisions.request(&Request::Decide(decide)).unwrap().answer().unwrap();
    let pair = pair.again();
    eventually("the store has it", || pair.value(b"k") == Some(b"paid".to_vec()));
    let sentence = "keeps its state in a table and no history";
    for verb in ["log", "verify"] {
        fails(&["tx", verb, "--server", &pair.coordinator.protocol], 3, sentence);
    }
    let (data, folder) = (pair.data(), pair.folder.path().join("coordinator"));
    let Pair { store, coordinator, folder: _kept } = pair;
    coordinator.stop();
    for verb in ["log", "verify"] {
        fails(&["tx", verb, "--data", &data], 3, sentence);
    }
    assert!(run(&["tx", "list", "--data", &data]).status.success());
    fails(&["journal", "check", &format!("{data}/coordinator")], 2, "state table and no journal");
    // The other engine does not begin anew beside it.
    let config = folder.join("assent.toml");
    let config = config.to_str().unwrap();
    let output = command(&["serve", "--config", config]).env("ASSENT_COORDINATOR_ENGINE", "journal").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("holds a state table"), "{said}");
    store.stop();
}

/// The word is in the server's log whichever engine keeps the state: a table keeps nothing of it.
#[test]
fn a_forced_outcome_is_told_to_the_servers_log_with_the_name_the_reason_and_from_where() {
    for engine in ["", "engine = \"table\"\n"] {
        let pair = pair(engine);
        let Prepared { decisions, tx, .. } = prepared(&pair, 1, b"k");
        drop(decisions);
        let tx = tx.to_string();
        eventually("it is seen", || pair.listed().as_array().is_some_and(|all| all.len() == 1));
        json(&pair.tx(&["rollback", &tx, "--yes", "--by", "anna", "--reason", "nobody paid"]));
        #[allow(clippy::disallowed_methods, reason = "a test reads what its server says")]
        let said = std::fs::read_to_string(pair.folder.path().join("coordinator").join("said")).unwrap();
        let line = said.lines().find(|line| line.contains("an operator")).unwrap_or_else(|| panic!("{said}"));
        for words in [
            "WARN",
            "\"anna\" by 127.0.0.1:",
            &format!("forces the rollback of {tx}"),
            "\"nobody paid\"",
            "rolled back",
        ] {
            assert!(line.contains(words), "{words:?} in {line}");
        }
    }
}

#[test]
fn a_journals_folder_is_refused_to_a_state_table() {
    let pair = pair("");
    let Pair { store, coordinator, folder } = pair;
    coordinator.stop();
    let config = folder.path().join("coordinator").join("assent.toml");
    let config = config.to_str().unwrap();
    let output = command(&["serve", "--config", config]).env("ASSENT_COORDINATOR_ENGINE", "table").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("holds a journal"), "{said}");
    store.stop();
}
