//! A server that runs out of descriptors: newcomers are refused, those inside are served, and it recovers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::process::Command;
use std::time::Duration;

use assent_link::{Link, LinkConfig};
use assent_wire::{Hello, Op, Request, Role, Write};
use assent_world::{Clock as _, RealClock};

use super::assent::write;
use super::served::start;

/// Descriptors of the server, its own files and listeners among them.
const DESCRIPTORS: u32 = 230;
const LONG: Duration = Duration::from_secs(20);

fn link(to: &str, connect_ms: u32) -> Option<Link> {
    let config = LinkConfig { connect_ms: connect_ms.into(), ..LinkConfig::default() };
    Link::connect(&to.parse().unwrap(), &Hello::new(Role::Store { label: "test" }), &config).ok()
}

fn put(link: &Link, key: &[u8]) {
    let ops = vec![Op::Put { keyspace: 0, key, value: &[7; 2_000] }];
    link.request(&Request::Write(Write { xid: None, durable: true, ops })).unwrap().answer().unwrap();
}

#[test]
fn a_server_with_few_descriptors_serves_those_inside_and_takes_newcomers_again_when_some_leave() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("assent.toml");
    // Small segments: the journal opens files all the while, and must not be starved by newcomers.
    let listens = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    write(&file, &format!("data_dir = \"data\"\n{listens}[coordinator]\n[kv]\nlog_size = 20480\n"));
    let script = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" serve --config \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_assent")]).arg(&file).env_remove("ASSENT_STOP");
    let served = start(&mut command);

    let inside = link(&served.protocol, 5_000).unwrap();
    put(&inside, b"before");
    let mut crowd: Vec<Link> = Vec::new();
    while let Some(newcomer) = link(&served.protocol, 500) {
        assert!(crowd.len() < 200, "{DESCRIPTORS} descriptors are more than the system gave");
        crowd.push(newcomer);
    }
    // Idle strangers, too, who were never greeted.
    let to: std::net::SocketAddr = served.protocol.parse().unwrap();
    #[allow(clippy::disallowed_methods, reason = "a test is a stranger")]
    let strangers: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(to).unwrap()).collect();
    // Twenty segments are begun meanwhile.
    for number in 0..200_u32 {
        put(&inside, &number.to_be_bytes());
    }
    // Also the others inside.
    crowd.iter().for_each(|link| put(link, b"crowd"));
    assert!(link(&served.protocol, 300).is_none(), "there was no place for a newcomer");

    drop((crowd, strangers));
    let began = RealClock.now();
    let newcomer = loop {
        if let Some(newcomer) = link(&served.protocol, 1_000) {
            break newcomer;
        }
        assert!(RealClock.now().since(began) < LONG, "no newcomer is taken although all have left");
    };
    put(&newcomer, b"after");
    drop((newcomer, inside));
    served.stop();
}
