//! Every record laid and read back, cut everywhere, and byte for byte as the document says.

use super::*;
use crate::note::Note;
use crate::replay;

fn at(epoch: u32, number: u32) -> Incarnation {
    Incarnation { epoch: Epoch(epoch), number }
}

fn some() -> (TxId, Vec<BranchRecord>) {
    let branch = |number, witness: &[u8]| BranchRecord {
        resource: ResourceId(0xfeed),
        number,
        flags: 1,
        mark: None,
        witness: witness.to_vec(),
    };
    (TxId { incarnation: at(3, 4), counter: 5 }, vec![branch(0, b""), branch(1, b"xid8 77")])
}

fn note() -> Note {
    let native = Native { code: "42704".to_owned(), message: "no such branch".to_owned() };
    let fate = Fate::Heuristic(Heuristic::RolledBack, native);
    Note { resource: ResourceId(0xfeed), number: 1, fate, by: By::Agent, retries: 2, native: Native::default() }
}

const SEALED: Seal =
    Seal { number: 7, previous: Digest([1; 32]), digest: Digest([2; 32]), count: 9, at_ms: 0x0100_0000_0001 };

fn decided(at_ms: u64) -> Decided {
    let (tx, list) = some();
    let branches = lay::branches(&list);
    let by = By::Client;
    Decided { tx, outcome: Outcome::Committed, by, at_ms, acknowledged: false, branches, row: None, notes: Vec::new() }
}

fn votes() -> Vec<Voted> {
    let words = Native { code: "23505".to_owned(), message: "there is one".to_owned() };
    let voice = |ballot| Voice { ballot, retries: 7, native: Native::default() };
    let no = Voice { native: words, ..voice(Ballot::No) };
    let voices = [voice(Ballot::Yes), voice(Ballot::ReadOnly), no];
    (0..).zip(voices).map(|(number, voice)| Voted { resource: ResourceId(0xfeed), number, voice }).collect()
}

fn voted(tx: TxId) -> Votes {
    Votes { at_ms: 9, tx, outcome: Outcome::RolledBack, votes: votes() }
}

fn laid() -> Vec<(u16, Vec<u8>, Record)> {
    let (tx, list) = some();
    let body = lay::branches(&list);
    let head = lay::decided_head(tx, Outcome::Committed, By::Client, 0x77);
    let census = Census { node: NodeId(9), upto: at(3, 8), live: vec![at(2, 1), at(3, 7)] };
    let opened = Opened { epoch: Epoch(3), is_lazy: true, lost_below: Epoch(2) };
    let entry = Decided { acknowledged: true, notes: vec![note()], ..decided(0x77) };
    let mut checkpoint = lay::checkpoint(&census, &[(at(3, 7), "shop")], &opened, &SEALED, 1);
    lay::entry(&mut checkpoint, tx, &replay::entry(entry.clone(), assent_world::Moment(0)).1);
    let labels = vec![(at(3, 7), "shop".to_owned())];
    let whole = Checkpoint { census: census.clone(), labels, opened, seal: Some(SEALED), entries: vec![entry] };
    let word = Word { at_ms: 5, tx, action: Action::Forget, who: "ada".to_owned(), reason: "seen to".to_owned() };
    let [when, mine] = [0x88_u64.to_le_bytes().to_vec(), lay::tx_bytes(tx).to_vec()];
    vec![
        (DECIDED, [&head[..], &body, &mine].concat(), Record::Decided(decided(0x77), vec![tx])),
        (FINISHED, [when, mine].concat(), Record::Finished(0x88, vec![tx])),
        (CHECKPOINT, checkpoint.into_vec(), Record::Checkpoint(whole)),
        (FENCED, lay::fenced(&[at(1, 2)]), Record::Fenced(vec![at(1, 2)])),
        (CLIENTS, lay::census(&census), Record::Clients(census)),
        (BRANCH, lay::branch(6, tx, &note()), Record::Branch(6, tx, note())),
        (CLIENT, lay::client(7, at(3, 7), "shop"), Record::Client(7, at(3, 7), "shop".to_owned())),
        (SEAL, lay::seal(&SEALED), Record::Seal(SEALED)),
        (OPERATOR, lay::operator(&word), Record::Operator(word)),
        (OPENED, lay::opened(8, &opened), Record::Opened(8, opened)),
        (VOTES, lay::votes(9, tx, Outcome::RolledBack, &votes()), Record::Votes(voted(tx))),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn records_survive_and_no_cut_is_taken_for_the_whole() {
    for (kind, bytes, record) in laid() {
        assert_eq!(Record::read(kind, &bytes), Ok(Some(record.clone())));
        for end in 0..bytes.len() {
            // Only whole entries of an open list can be missing unseen; the frame's length guards those.
            let cut = Record::read(kind, &bytes[..end]);
            assert_ne!(cut, Ok(Some(record.clone())), "{kind:#x} cut at {end}");
        }
    }
    assert_eq!(read_branches(&lay::branches(&some().1)), Ok(some().1));
    assert_eq!(Record::read(0x7f01, &[]), Ok(None));
}

#[test]
fn every_end_of_a_branch_survives() {
    let heuristics = [Heuristic::Committed, Heuristic::RolledBack, Heuristic::Mixed, Heuristic::Hazard];
    let words = Native { code: "1397".to_owned(), message: "XAER_NOTA".to_owned() };
    let finishes = [Finish::Committed, Finish::CommittedInferred, Finish::RolledBack, Finish::NotListed];
    let mut fates: Vec<(Fate, Native)> = finishes.map(|it| (Fate::Finished(it), words.clone())).to_vec();
    fates.extend(heuristics.map(|it| (Fate::Heuristic(it, words.clone()), Native::default())));
    fates.push((Fate::Cleared, words));
    let tx = some().0;
    for (fate, native) in fates {
        let one = Note { fate, native, ..note() };
        assert_eq!(Record::read(BRANCH, &lay::branch(6, tx, &one)), Ok(Some(Record::Branch(6, tx, one))));
    }
    let open = Note { fate: Fate::Open, ..note() };
    assert!(Record::read(BRANCH, &lay::branch(6, tx, &open)).is_err(), "what is not over is never noted");
}

#[test]
fn the_bytes_are_those_of_the_format_document() {
    const TX: &str = "03000000040000000500000000000000";
    const BRANCHES: &str = "0200edfe0000000000000000010000000000edfe00000000000001000100070000007869643820\
                            3737";
    const NOTE: &str = "edfe0000000000000100050202020000000500000034323730340e0000006e6f2073756368206272616e6368";
    let seal =
        ["0700000000000000", &"01".repeat(32), &"02".repeat(32), "0900000000000000", "0100000000010000"].concat();
    let of = |kind| hex(&laid().into_iter().find(|(of, ..)| *of == kind).unwrap().1);
    assert_eq!(of(DECIDED), [TX, "0101", "7700000000000000", BRANCHES, TX].concat());
    assert_eq!(of(FINISHED), ["8800000000000000", TX].concat());
    assert_eq!(of(BRANCH), ["0600000000000000", TX, NOTE].concat());
    const VOTE: &str = "edfe000000000000";
    const SILENT: &str = "070000000000000000000000";
    let no = [VOTE, "02000307000000", "05000000", "3233353035", "0c000000", "7468657265206973206f6e65"].concat();
    let list = [VOTE, "000001", SILENT, VOTE, "010002", SILENT, &no].concat();
    assert_eq!(of(VOTES), ["0900000000000000", TX, "02", "0300", &list].concat());
    assert_eq!(of(CLIENT), "070000000000000003000000070000000400000073686f70");
    assert_eq!(of(SEAL), seal);
    assert_eq!(of(OPERATOR), ["0500000000000000", TX, "03", "03000000616461", "070000007365656e20746f"].concat());
    assert_eq!(of(OPENED), "0800000000000000030000000102000000");
    let census = "0900000000000000030000000800000002000000020000000100000003000000\
                  07000000";
    let entry = [TX, "0101", "01", "7700000000000000", BRANCHES, "0100", NOTE].concat();
    let labels = "0100000003000000070000000400000073686f70";
    assert_eq!(of(CHECKPOINT), [census, labels, "030000000102000000", &seal, "01000000", &entry].concat());
}

#[test]
fn records_of_earlier_programs_are_still_read() {
    let (tx, list) = some();
    let body = lay::branches(&list);
    let mine = lay::tx_bytes(tx);
    let first = [&mine[..], &[1, 1], &body, &mine].concat();
    assert_eq!(Record::read(DECIDED_1, &first), Ok(Some(Record::Decided(decided(0), vec![tx]))));
    assert_eq!(Record::read(FINISHED_1, &mine), Ok(Some(Record::Finished(0, vec![tx]))));
    let census = Census { node: NodeId(9), upto: at(3, 8), live: vec![] };
    let bytes = [&lay::census(&census)[..], &[1, 0, 0, 0], &mine, &[1, 1, 1], &body].concat();
    let entries = vec![Decided { acknowledged: true, ..decided(0) }];
    let expected = Checkpoint { census, labels: vec![], opened: Opened::default(), seal: None, entries };
    assert_eq!(Record::read(CHECKPOINT_1, &bytes), Ok(Some(Record::Checkpoint(expected))));
}
