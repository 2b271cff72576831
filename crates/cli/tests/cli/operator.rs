//! Nodes of a group as their operator meets them: looked at side by side, by machines, stopped, verified, compared; with a witness that
//! forgot, tails that parted, a snapshot that was cut.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use assent_assets::{Answer, AssetId, Client, Op, Options};
use assent_world::RealClock;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::assent::{fails, json as shown, run, write};
use super::pair::Pair;
use super::served;

fn verify(pair: &Pair, node: u8) -> Value {
    let output = run(&["assets", "verify", pair.data(node).to_str().unwrap(), "--json"]);
    assert!(output.status.success(), "{output:?}");
    shown(&output)
}

fn compare(pair: &Pair, one: u8, other: u8) -> (Option<i32>, Value) {
    let folders = [pair.data(one), pair.data(other)];
    let [one, other] = folders.each_ref().map(|folder| folder.to_str().unwrap());
    let output = run(&["assets", "compare", one, other, "--json"]);
    (output.status.code(), shown(&output))
}

fn text(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn get(admin: &str, path: &str) -> String {
    #[allow(clippy::disallowed_methods, reason = "a test is a client of its own")]
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn of_three_processes_one_dies_and_comes_back_and_all_have_the_same() {
    let mut group = Pair::of(&[1, 2, 3], &["--ack", "received"]);
    group.settled();
    group.says(&["create", "1=0"], &group.both());
    let mut expected = 0;
    // A standby, then whoever leads.
    for dead in [3, 1] {
        group.end(dead, Signal::KILL);
        for _ in 0..5 {
            expected += 1;
            let added = group.says(&["add", "1=1"], &group.both());
            assert_eq!(added["assets"][0]["value"], json!(expected));
        }
        let left: Vec<u8> = [1, 2, 3].into_iter().filter(|node| *node != dead).collect();
        group.until(2, "without the dead one", |status| status["in_sync"] == json!(left));
        group.start(dead);
        group.until(2, "with all three", |status| status["in_sync"] == json!([1, 2, 3]));
    }
    group.are_the_same(1);
    [1, 2, 3].into_iter().for_each(|node| group.end(node, Signal::KILL));
    let found = [1, 2, 3].map(|node| verify(&group, node));
    assert_eq!(found[0]["assets"], json!(1));
    for other in [2, 3] {
        let (code, compared) = compare(&group, 1, other);
        assert_eq!(
            (code, &compared["same"], &compared["differs"]),
            (Some(0), &json!(true), &Value::Null),
            "{compared}"
        );
    }
}

/// A pair both of whose nodes are dead, and what node 1 said of itself before: it ordered what nobody confirmed, then node 2 led.
fn parted() -> (Pair, Value) {
    let mut pair = Pair::new(&["--ack", "received", "--slow-ms", "60000", "--silent-ms", "10000"]);
    pair.settled();
    pair.says(&["create", "1=0", "2=0"], &pair.both());
    pair.signal(2, Signal::STOP);
    let options = Options { session: false, ..Options::to(pair.at(1).parse().unwrap()) };
    let mut client = Client::connect(options.clone(), std::sync::Arc::new(RealClock)).unwrap();
    // Each alone: what comes together would be one entry, which is cut as a whole or not at all.
    let mut looking = Client::connect(options, std::sync::Arc::new(RealClock)).unwrap();
    let mut end = || looking.status().unwrap().group.unwrap().end;
    for _ in 0..40 {
        let before = end();
        client.send(&[Op::Add { id: AssetId(1), by: 1 }]).unwrap();
        client.flush().unwrap();
        assert!((0..100_000).any(|_| end() > before), "it is not ordered behind {before}");
    }
    let ahead = pair.until(1, "on its own disk with all of it", |status| {
        status["end"].as_u64() > status["confirmed"].as_u64().map(|at| at + 39) && status["durable"] == status["end"]
    });
    pair.end(1, Signal::KILL);
    pair.signal(2, Signal::CONT);
    pair.until(2, "primary", |status| status["role"] == "primary");
    pair.says(&["add", "2=7"], &pair.at(2));
    pair.end(2, Signal::KILL);
    (pair, ahead)
}

#[test]
fn both_restarted_with_different_tails_have_one_history_and_compare_names_where_they_parted() {
    // What node 2's kernel has taken for it, it may read before it hears that node 1 is dead: then its log has that too, and nothing
    // parts them.
    let mut tries = (0..10).map(|_| parted()).map(|(pair, ahead)| (compare(&pair, 1, 2), pair, ahead));
    let ((code, compared), mut pair, ahead) =
        tries.find(|((_, compared), ..)| compared["same"] == json!(false)).unwrap();
    assert_eq!(code, Some(13), "{compared}");
    let parted = compared["differs"].as_u64().unwrap();
    // Of the forty, node 2 may have some.
    let kept = parted - 1 - ahead["confirmed"].as_u64().unwrap();
    assert!(kept < 40, "{compared} and {ahead}");
    assert_eq!(compared["hashes"][0], compared["hashes"][1], "before it they are the same: {compared}");
    assert!(compared["ends"][0]["sequence"].as_u64() > compared["ends"][1]["sequence"].as_u64(), "{compared}");
    let said = run(&["assets", "compare", pair.data(1).to_str().unwrap(), pair.data(2).to_str().unwrap()]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains(&format!("entry {parted} is the first that is not the same")), "{said}");
    // The longer log is of a dead epoch: it is cut, whoever starts first.
    pair.start(1);
    pair.start(2);
    let led =
        pair.until(2, "primary of both", |status| status["role"] == "primary" && status["in_sync"] == json!([1, 2]));
    assert_eq!(led["forced"], json!(false));
    let found = pair.says(&["get", "1", "2"], &pair.both());
    assert_eq!((&found["assets"][0]["value"], &found["assets"][1]["value"]), (&json!(kept), &json!(7)));
    assert_eq!(pair.status(1)["counts"]["cuts"], json!(1), "what nobody confirmed is nobody's");
    pair.are_the_same(2);
    [1, 2].into_iter().for_each(|node| pair.end(node, Signal::TERM));
    let (code, compared) = compare(&pair, 1, 2);
    assert_eq!((code, &compared["same"]), (Some(0), &json!(true)), "{compared}");
}

#[test]
fn a_witness_that_forgot_stops_nobody_until_it_is_needed_and_a_person_tells_it_again() {
    let mut pair = Pair::new(&["--ack", "received"]);
    let first = pair.settled();
    pair.says(&["create", "1=0"], &pair.both());
    pair.start_witness("another");
    pair.says(&["add", "1=1"], &pair.both());
    assert_eq!(pair.status(1)["role"], json!("primary"));
    // Now it is needed: the standby cannot be taken out by who holds nothing.
    pair.end(2, Signal::KILL);
    let stalled = pair.until(1, "stalled", |status| status["role"] == "stalled");
    let why = stalled["why"].as_str().unwrap();
    assert!(why.contains("node 2"), "{why}");
    let table = text(&["assets", "status", "--server", &pair.at(1)]);
    assert!(table.contains("stalled") && table.contains("node 2"), "{table}");
    pair.says(&["force"], &pair.at(1));
    let forced = pair.until(1, "primary again", |status| status["role"] == "primary");
    assert_eq!(forced["in_sync"], json!([1]));
    assert!(forced["version"].as_u64() > first["version"].as_u64(), "above all that was ever seen: {forced}");
    assert_eq!(pair.says(&["add", "1=1"], &pair.at(1))["assets"][0]["value"], json!(2));
    pair.start(2);
    pair.until(1, "in sync with both", |status| status["in_sync"] == json!([1, 2]));
    pair.are_the_same(1);
}

#[test]
fn a_cut_snapshot_of_a_node_is_named_and_it_starts_again_from_an_empty_folder() {
    let mut pair = Pair::new(&["--ack", "durable"]);
    pair.settled();
    pair.says(&["create", "1=5", "2=6"], &pair.both());
    pair.says(&["snapshot"], &pair.at(2));
    pair.until(2, "with a snapshot", |status| status["snapshot"].as_u64() > Some(0));
    pair.says(&["add", "1=1"], &pair.both());
    pair.end(2, Signal::TERM);
    let found = verify(&pair, 2);
    assert_eq!((&found["reached"], &found["assets"], &found["out"]), (&json!(true), &json!(2), &json!(false)));
    let said = text(&["assets", "verify", pair.data(2).to_str().unwrap()]);
    assert!(said.contains("is whole, and what the log leads to") && said.contains("in sync: 1, 2"), "{said}");
    let file = pair.data(2).join("group/snapshot");
    #[allow(clippy::disallowed_methods, reason = "a test harms what it is about")]
    let bytes = std::fs::read(&file).unwrap();
    #[allow(clippy::disallowed_methods, reason = "a test harms what it is about")]
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let data = pair.data(2);
    fails(&["assets", "verify", data.to_str().unwrap()], 13, "group/snapshot is damaged");
    let (cut, running) = (data.to_str().unwrap(), pair.data(1));
    fails(&["assets", "compare", cut, cut], 13, "group/snapshot is damaged");
    fails(&["assets", "compare", running.to_str().unwrap(), cut], 5, "another process");
    let serve = pair.arguments(2);
    let serve: Vec<&str> = serve.iter().map(String::as_str).chain(["--data", data.to_str().unwrap()]).collect();
    fails(&serve, 13, "take this member's folder away and let it start from an empty one");
    #[allow(clippy::disallowed_methods, reason = "a test takes a folder away, as it is told to")]
    std::fs::rename(&data, pair.path("away")).unwrap();
    pair.start(2);
    pair.until(1, "in sync with both", |status| status["in_sync"] == json!([1, 2]));
    pair.are_the_same(2);
    // A folder is of one kind.
    let lone = pair.path("lone");
    std::fs::create_dir_all(lone.join("log")).unwrap();
    fails(&["assets", "compare", lone.to_str().unwrap(), data.to_str().unwrap()], 2, "have nothing in common");
}

#[test]
fn nodes_are_shown_side_by_side_and_one_that_is_dead_is_shown_as_that() {
    let mut pair = Pair::new(&["--ack", "received", "--trace-every", "1", "--read", "lease"]);
    pair.settled();
    fails(&["assets", "status", "--trace", "--server", &pair.both()], 3, "--trace-every");
    pair.says(&["create", "1=0"], &pair.both());
    assert_eq!(pair.says(&["get", "1"], &pair.both())["assets"][0]["value"], json!(0));
    let looked = pair.says(&["status"], &pair.both());
    let roles: Vec<&Value> = looked["nodes"].as_array().unwrap().iter().map(|node| &node["role"]).collect();
    assert_eq!(roles, ["primary", "standby"]);
    let both = pair.both();
    let table = text(&["assets", "top", "--times", "2", "--every-ms", "50", "--server", &both]);
    for said in ["commands/s", "primary", "standby", "in sync", "1, 2", "total"] {
        assert!(table.contains(said), "{said} in {table}");
    }
    // The steps of one command, as docs/assets.md shows them.
    let trace = text(&["assets", "status", "--trace", "--server", &both]);
    for step in ["command ", "arrived", "ordered", "sent", "confirmed", "replied"] {
        assert!(trace.contains(step), "{step} in {trace}");
    }
    pair.end(1, Signal::KILL);
    pair.until(2, "primary", |status| status["role"] == "primary");
    let looked = pair.says(&["status"], &both);
    assert_eq!(looked["nodes"][0]["error"]["kind"], json!("unavailable"), "{looked}");
    assert_eq!(looked["nodes"][1]["role"], json!("primary"));
    let table = text(&["assets", "status", "--server", &both]);
    assert!(table.contains("not reached") && table.contains("primary"), "{table}");
    pair.end(2, Signal::KILL);
    fails(&["assets", "status", "--server", &both], 8, "connecting to");
}

#[test]
fn each_node_says_over_http_how_it_is() {
    let mut pair = Pair::new(&["--ack", "received", "--admin", "127.0.0.1:0"]);
    pair.settled();
    pair.says(&["create", "1=0"], &pair.both());
    let admin = |pair: &Pair, node: u8| pair.ready(node).rsplit_once(" admin=").unwrap().1.to_owned();
    let until = |at: &str, path: &str, says: &[&str]| loop {
        let answer = get(at, path);
        if says.iter().all(|one| answer.contains(one)) {
            return answer;
        }
    };
    let one = admin(&pair, 1);
    let metrics = until(&one, "/metrics", &["assent_assets_role{role=\"primary\"} 1", "assent_assets_in_sync 2"]);
    for said in [
        "assent_assets_up 1",
        "assent_assets_epoch ",
        "assent_assets_lag{node=\"2\"} ",
        "assent_assets_place{place=\"confirmed\"} ",
        "assent_assets_events_total{event=\"leads\"} 1",
        "assent_assets_step_us_bucket{le=\"+Inf\",step=\"total\"} ",
    ] {
        assert!(metrics.contains(said), "{said} in {metrics}");
    }
    assert!(until(&one, "/health", &["all nodes are in sync"]).starts_with("HTTP/1.1 200"));
    let two = admin(&pair, 2);
    let metrics = until(&two, "/metrics", &["assent_assets_role{role=\"standby\"} 1"]);
    assert!(!metrics.contains("assent_assets_lag"), "a standby does not know that: {metrics}");
    // Neither the arbiter nor the primary: it serves nobody, and says so.
    pair.witness_dies();
    pair.end(1, Signal::KILL);
    assert!(until(&two, "/health", &["node 2 is waiting"]).starts_with("HTTP/1.1 503"));
    until(&two, "/metrics", &["assent_assets_role{role=\"waiting\"} 1"]);
    fails(&["assets", "serve", "--data", pair.path("x").to_str().unwrap(), "--admin", "0.0.0.0:0"], 6, "--insecure");
}

#[test]
fn a_section_of_the_configuration_serves_assets_beside_everything_else() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| format!("unix:{}", folder.path().join(name).display());
    let text = format!(
        "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[kv]\n\
         [assets]\nack = \"written\"\nlisten = \"{}\"\ntrace_every = 1\n",
        place("assets")
    );
    write(&folder.path().join("assent.toml"), &text);
    for round in 0..2 {
        let server = served::serve(folder.path());
        let at = server.assets.clone().unwrap();
        let mut client = Client::connect(Options::to(at.parse().unwrap()), std::sync::Arc::new(RealClock)).unwrap();
        if round == 0 {
            client.execute(&[Op::Create { id: AssetId(1), value: 5 }]).unwrap();
        }
        let Answer::Done(results) = client.execute(&[Op::Get { id: AssetId(1) }]).unwrap() else { panic!("refused") };
        assert_eq!(results.assets[0].value, 5);
        while !server.get("/metrics").contains("assent_assets 1\n") {}
        assert!(server.get("/metrics").contains("assent_assets_role{role=\"solo\"} 1"));
        assert!(server.get("/health").contains("takes commands"));
        if round == 0 { server.kill() } else { server.stop() }
    }
    let data = folder.path().join("data/assets");
    assert_eq!(shown(&run(&["assets", "verify", data.to_str().unwrap(), "--json"]))["assets"], json!(1));
    write(&folder.path().join("assent.toml"), "data_dir = \"data\"\n[assets]\nsilent_ms = 1\n");
    let config = folder.path().join("assent.toml");
    fails(&["serve", "--config", config.to_str().unwrap()], 2, "--silent-ms");
}
