//! Any bytes get an answer from the decoder and from every parser behind it.

use assent_wire::{Hello, PAYLOAD_BYTES_MAX, Role, fuzzing};

use super::messages::{answers, requests};

fn good() -> Vec<Vec<u8>> {
    let lay = |lay: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        lay(&mut bytes);
        bytes
    };
    let requests = requests().into_iter().map(|it| lay(&|out| it.lay(out, 1, PAYLOAD_BYTES_MAX).unwrap()));
    let answers = answers().into_iter().map(|it| lay(&|out| it.lay(out, 1, PAYLOAD_BYTES_MAX).unwrap()));
    requests.chain(answers).collect()
}

#[test]
fn fuzz_decoder() {
    let good = good();
    let seeds: Vec<&[u8]> = good.iter().map(Vec::as_slice).collect();
    let runs = assent_sim::fuzz(1, &seeds, fuzzing::decoder);
    assert!(runs > 1_000, "{runs}");
}

#[test]
fn fuzz_messages() {
    // The kind, then the payload: the checksum would hide the parsers from chance.
    let good: Vec<Vec<u8>> = good().iter().map(|frame| [&frame[16..18], &frame[24..]].concat()).collect();
    let seeds: Vec<&[u8]> = good.iter().map(Vec::as_slice).collect();
    let runs = assent_sim::fuzz(2, &seeds, fuzzing::messages);
    assert!(runs > 1_000, "{runs}");
}

#[test]
fn fuzz_handshake() {
    let mut hello = Vec::new();
    Hello::new(Role::Client { label: "shop", resume: None, resources: vec!["a"] }).lay(&mut hello, 1).unwrap();
    let runs = assent_sim::fuzz(3, &[&hello[24..]], fuzzing::handshake);
    assert!(runs > 1_000, "{runs}");
}

#[test]
fn fuzz_parts() {
    // A write in two parts, and one whose parts do not follow.
    let good = [&[20, 0][..], &[0; 20], &[9, 0], &[0; 9]].concat();
    let wrong = [&[4, 9][..], b"part", &[4, 5], b"part", &[4, 3], b"part"].concat();
    let runs = assent_sim::fuzz(4, &[&good, &wrong], fuzzing::parts);
    assert!(runs > 1_000, "{runs}");
}
