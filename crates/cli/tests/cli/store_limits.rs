//! A store at its limits, through the command line: the longest value, keys and times at their ends, and a ledger that is gone.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test helpers fail by panicking, and a test has files of its own"
)]

use std::path::Path;

use serde_json::json;

use super::served::serve;
use super::store::{configure, done, fed, kv, refused, told};

/// Bytes that are not the same everywhere, made fast.
fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| seed ^ at.to_le_bytes()[0] ^ at.to_le_bytes()[2]).collect()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn the_longest_value_goes_in_and_comes_out_and_one_byte_more_is_refused() {
    const MOST: usize = 256 << 20;
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let (input, output) = (path(folder.path(), "in"), path(folder.path(), "out"));
    let mut value = bytes(MOST, 5);
    std::fs::write(&input, &value).unwrap();
    done(&served, &["put", "longest", "--file", &input]);
    done(&served, &["get", "longest", "--output", &output]);
    assert!(std::fs::read(&output).unwrap() == value);
    assert_eq!(told(&served, &["head", "longest"])["heads"][0]["value_bytes"], json!(MOST));
    value.push(0);
    std::fs::write(&input, &value).unwrap();
    refused(&kv(&served, &["put", "longer", "--file", &input]), 2, "268435456 bytes, the longest value");
    refused(&kv(&served, &["get", "longer"]), 3, "there is no key");
    served.stop();
}

#[test]
fn keys_metadata_and_times_at_their_ends_are_taken_and_what_is_beyond_is_named() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let longest = "k".repeat(64 << 10);
    for key in ["", "\t", "two\nlines", &longest] {
        done(&served, &["put", key, "v"]);
        assert_eq!(done(&served, &["get", key]), b"v");
        assert_eq!(told(&served, &["head", key])["heads"][0]["key"], json!(key));
        done(&served, &["delete", key, "--if-present"]);
        assert_eq!(kv(&served, &["get", key]).status.code(), Some(3));
    }
    // Both ends of a range are as long as keys.
    done(&served, &["put", &longest, "v"]);
    done(&served, &["delete", "--from", &longest, "--to", &format!("{}l", &longest[1..])]);
    assert_eq!(kv(&served, &["get", &longest]).status.code(), Some(3));
    let longer = format!("{longest}k");
    for words in [&["delete", longer.as_str()][..], &["delete", "--prefix", &longer], &["delete", "--to", &longer]] {
        refused(&kv(&served, words), 2, "65537");
    }
    done(&served, &["put", "m", "v", "--metadata", &"m".repeat(4096)]);
    refused(&kv(&served, &["put", "m", "v", "--metadata", &"m".repeat(4097)]), 2, "4097");
    // Over at once, and for longer than anybody counts.
    done(&served, &["put", "brief", "v", "--ttl", "0s"]);
    while kv(&served, &["get", "brief"]).status.code() == Some(0) {
        std::thread::yield_now();
    }
    refused(&kv(&served, &["get", "brief"]), 3, "there is no key");
    done(&served, &["put", "brief", "again", "--if-absent"]);
    done(&served, &["put", "ages", "v", "--ttl", "213503982334d"]);
    assert_eq!(done(&served, &["get", "ages"]), b"v");
    assert!(told(&served, &["head", "ages"])["heads"][0]["expiry_ms"].as_u64().unwrap() > 1 << 60);
    assert!(kv(&served, &["head", "ages"]).status.success(), "also for people");
    refused(&kv(&served, &["put", "ages", "v", "--ttl", "213503982335d"]), 2, "is no length of time");
    // An expiry that is over is no line that is wrong.
    let lines = format!(
        "{{\"key\":\"past\",\"value\":\"v\",\"expiry_ms\":1}}\n{{\"key\":\"late\",\"value\":\"v\",\"expiry_ms\":{}}}\n",
        u64::MAX
    );
    assert!(fed(&served, &["load"], lines.as_bytes()).status.success());
    assert_eq!(kv(&served, &["get", "past"]).status.code(), Some(3));
    assert_eq!(told(&served, &["head", "late"])["heads"][0]["expiry_ms"], json!(u64::MAX));
    // A name that is a number could not be told from the number.
    for name in ["7", "+7", "4294967295"] {
        refused(&kv(&served, &["keyspace", "create", name]), 2, "is a number");
    }
    done(&served, &["keyspace", "create", "4294967296"]);
    done(&served, &["put", "k", "v", "--keyspace", "4294967296"]);
    served.stop();
}

#[test]
fn a_ledger_that_is_gone_or_damaged_is_built_anew_and_the_log_says_how_far_it_is() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let input = path(folder.path(), "in");
    for seed in 0..3 {
        std::fs::write(&input, bytes(16 << 20, seed)).unwrap();
        done(&served, &["put", &seed.to_string(), "--file", &input]);
    }
    served.stop();
    let said = || std::fs::read_to_string(folder.path().join("said")).unwrap();
    let ledger = folder.path().join("data/kv-ledger");
    for is_damaged in [false, true] {
        if is_damaged {
            for name in ["manifest-a", "manifest-b"] {
                std::fs::write(ledger.join(name), b"rot").unwrap();
            }
        } else {
            std::fs::remove_dir_all(&ledger).unwrap();
        }
        let served = serve(folder.path());
        let text = said();
        for part in ["built from values and journal, 30 % of ", "built from values and journal, 100 % of "] {
            assert!(text.contains(part), "damaged {is_damaged}: {text}");
        }
        assert_eq!(text.contains("and has been built anew"), is_damaged, "{text}");
        for seed in 0..3 {
            assert!(done(&served, &["get", &seed.to_string()]) == bytes(16 << 20, seed));
        }
        served.stop();
        if is_damaged {
            // It is there again, and little is read behind it.
            let served = serve(folder.path());
            assert!(!said().contains("kv-ledger"), "{}", said());
            served.stop();
        }
    }
}
