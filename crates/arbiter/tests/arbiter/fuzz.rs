//! Any bytes get an answer.

use assent_arbiter::fuzzing;

#[test]
fn fuzz_arbiter() {
    let text =
        br#"{"epoch":1,"forced":false,"in_sync":[{"disk":"a","member":0,"memory":"1"}],"primary":0,"version":"1"}"#;
    let answer = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    let question = b"\x01\x01\0\0\0g\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let runs = assent_sim::fuzz(1, &[text, answer, question, b""], fuzzing::arbiter);
    assert!(runs > 1_000, "{runs}");
}

#[test]
fn fuzz_ledger() {
    let runs = assent_sim::fuzz(2, &[b"\x01\0\0\0g\x02\0\0\0{}", b""], fuzzing::ledger);
    assert!(runs > 1_000, "{runs}");
}
