//! Any bytes as commands and as a snapshot get an answer.

use assent_assets::fuzzing::{fuzz_commands, fuzz_image, fuzz_run};
use assent_assets::{Command, Logics, Machine, Op, Request, SessionName};
use assent_membership::Sequence;

use super::{add, batch, create, get, laid, xid};

/// Commands, each behind its length.
fn corpus() -> Vec<u8> {
    let request = |number| Some(Request { session: SessionName(1), number, window: 2 });
    let commands = [
        laid(|out| Command::lay_open(out, SessionName(1))),
        batch(None, &[create(1, 5), create(2, -1)]),
        batch(request(1), &[add(1, 1), get(2)]),
        batch(request(2), &[Op::AddWithin { id: assent_assets::AssetId(1), by: 4, min: 0, max: 7 }]),
        laid(|out| Command::lay_prepare(out, &xid(1), &[add(2, 1)])),
        laid(|out| Command::lay_outcome(out, &xid(1), true)),
        laid(|out| Command::lay_call(out, request(3), 4, b"input")),
        laid(|out| Command::lay_close(out, SessionName(1))),
    ];
    let behind = |command: Vec<u8>| [&(command.len() as u16).to_le_bytes()[..], &command].concat();
    commands.into_iter().flat_map(behind).collect()
}

#[test]
fn fuzz_commands_do_the_same_twice() {
    let corpus = corpus();
    let runs = assent_sim::fuzz(1, &[&corpus, b""], fuzz_commands);
    assert!(runs > 1_000, "{runs}");
}

#[test]
fn fuzz_runs_do_the_same_twice() {
    let whose = |number: u64| [&[3][..], &1_u64.to_le_bytes(), &number.to_le_bytes(), &2_u32.to_le_bytes()].concat();
    // Two assets are there, one grows three times, logic is called that is not there.
    let corpus = [
        &[1, 2, 2, 1, 10, 2, 0x82, 1, 1][..],
        &whose(1),
        &[1, 1, 5, 1, 2],
        &[1, 1, 6, 1, 2, 0, 20],
        &[4, 1, 1, 5, 0x82, 1, 3],
        &whose(3),
        &[2, 4, 5, b'i', b'n', b'p', b'u', b't'],
        &whose(2),
        &[1, 1, 1, 1],
    ]
    .concat();
    let runs = assent_sim::fuzz(1, &[&corpus, b""], fuzz_run);
    assert!(runs > 1_000, "{runs}");
}

#[test]
fn fuzz_images_get_an_answer() {
    let mut machine = Machine::new(assent_assets::Limits::default(), Logics::default());
    let (mut rest, mut number) = (&corpus()[..], 0);
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (command, behind) = behind.split_at(u16::from_le_bytes(*length).into());
        number += 1;
        machine.apply(Sequence(number), 5, command, &mut Vec::new()).unwrap();
        rest = behind;
    }
    let mut image = Vec::new();
    let written: Result<(), ()> = machine.view().write(9, |frame| Ok(image.extend_from_slice(frame)));
    written.unwrap();
    let runs = assent_sim::fuzz(1, &[&image, b""], fuzz_image);
    assert!(runs > 1_000, "{runs}");
}
