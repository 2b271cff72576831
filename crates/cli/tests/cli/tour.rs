//! The README's five minutes with the key-value store, with documents and with assets: every command of them, as it stands there.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::Path;
use std::process::Command;

use super::served::serve;
use super::store::configure;

/// The blocks of commands of a section.
pub(crate) fn blocks(section: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    #[allow(clippy::disallowed_methods, reason = "a test reads the page that it is about")]
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    section.split("```text\n").skip(1).map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

/// A block as a shell runs it, in that folder; what it says.
pub(crate) fn shell(folder: &Path, protocol: &str, script: &str) -> String {
    let binaries = Path::new(env!("CARGO_BIN_EXE_assent")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-e", "-o", "pipefail", "-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .env("ASSENT_SERVER", protocol)
        .env_remove("ASSENT_STOP")
        .env_remove("ASSENT_CONFIG")
        .env_remove("ASSENT_DOCS")
        .env_remove("ASSENT_ASSETS_SERVER")
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

#[test]
fn the_tour_of_the_store_works_as_it_stands_in_the_readme() {
    let blocks = blocks("Five minutes with the key-value store");
    let [start, commands, stopped] = &blocks[..] else { panic!("three blocks: {blocks:?}") };
    let folder = tempfile::tempdir().unwrap();
    let (start, server) = start.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(server, "assent serve --config kv/assent.toml &");
    shell(folder.path(), "", start);
    let kv = folder.path().join("kv");
    #[allow(clippy::disallowed_methods, reason = "a test looks at what the tour wrote")]
    let written = std::fs::read_to_string(kv.join("assent.toml")).unwrap();
    assert_eq!(written, "data_dir = \"data\"\n[kv]\n");
    // The same on ports that are free.
    configure(&kv, "");
    let served = serve(&kv);
    let said = shell(folder.path(), &served.protocol, commands);
    for expected in ["good morning", "anna", "fruit/1\tapple 1", "3 objects", "keyspace0.jsonl"] {
        assert!(said.contains(expected), "{expected:?} in {said}");
    }
    let again = shell(folder.path(), &served.protocol, "assent kv put leader node-2 --if-absent 2>&1 || echo code $?");
    assert!(again.contains("code 4"), "{again}");
    served.stop();
    let (kill, rest) = stopped.split_once('\n').unwrap();
    assert_eq!(kill, "kill %1");
    let said = shell(folder.path(), "", rest);
    #[allow(clippy::disallowed_methods, reason = "a test looks at what the tour wrote")]
    let exported = std::fs::read_to_string(folder.path().join("keyspace0.jsonl")).unwrap();
    assert_eq!(said, exported);
    assert!(exported.contains("fruit/1") && !exported.contains("fruit/2"), "{exported}");
}

#[test]
fn the_tour_of_documents_works_as_it_stands_in_the_readme() {
    let blocks = blocks("Five minutes with documents");
    let [commands] = &blocks[..] else { panic!("one block: {blocks:?}") };
    assert!(commands.lines().count() <= 10, "ten lines");
    let folder = tempfile::tempdir().unwrap();
    let said = shell(folder.path(), "", commands);
    for expected in [
        "orders: revision 1 of ",
        "orders: revision 2 of ",
        "\n{\"item\":\"pen\",\"price\":1.50}\n",
        "- \"/price\": 1.50\n+ \"/price\": 1.75\n",
        "$['price']\t1.75\n",
        "orders: revision 3 of ",
        "orders: agreed is revision 3\n",
        "dearer",
        "everything is as it was written: 1 documents, 3 revisions, 9 nodes\n",
    ] {
        assert!(said.contains(expected), "{expected:?} in {said}");
    }
}

#[test]
fn the_tour_of_assets_works_as_it_stands_in_the_readme() {
    let blocks = blocks("Five minutes with assets");
    let [start, commands] = &blocks[..] else { panic!("two blocks: {blocks:?}") };
    let folder = tempfile::tempdir().unwrap();
    // The same on sockets that are nobody else's.
    let settled = "until assent assets status --json --server unix:c1 2>/dev/null | grep -q '\"in_sync\":\\[1,2\\]'; do :; done\n";
    let mut script = format!("trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT\n{start}{settled}{commands}");
    assert!(script.contains("assent witness --data witness &"), "{script}");
    script = script.replace("--data witness &", "--data witness --listen unix:w &");
    for (there, here) in [("7432", "w"), ("7433", "c1"), ("7434", "c2"), ("7441", "p1"), ("7442", "p2")] {
        assert!(script.contains(&format!("127.0.0.1:{there}")), "{there} in {script}");
        script = script.replace(&format!("127.0.0.1:{there}"), &format!("unix:{here}"));
    }
    let said = shell(folder.path(), "", &script);
    let row = |asset: u64, value: i64| {
        let is_row = |line: &str| {
            let words: Vec<&str> =
                line.split(|c: char| !c.is_ascii_digit() && c != '-').filter(|word| !word.is_empty()).collect();
            words == [asset.to_string(), value.to_string(), "1".to_owned()]
        };
        said.lines().filter(|line| is_row(line)).count()
    };
    assert_eq!((row(1, 70), row(2, 30)), (2, 2), "both were changed once, and the survivor has them: {said}");
    for expected in ["node", "primary", "standby", "in sync", "received: in the memory of each node in sync"] {
        assert!(said.contains(expected), "{expected:?} in {said}");
    }
}
