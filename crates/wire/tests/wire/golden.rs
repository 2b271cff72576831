//! The bytes of versions 2, 3 and 4, as they were when they were made: who changes one of them makes another version.

use assent_frame::Frame;
use assent_ids::{Epoch, Incarnation, Lsn, ResourceId, TxId, Xid};
use assent_wire::{
    Answer, Bound, By, Checked, Compacted, Condition, Detail, Expect, Expected, KeyspaceQuery, KeyspaceView, LogQuery,
    Look, Native, Object, Op, Outcome, PastBranch, PastView, Request, Row, Rows, Scan, Vote, Voted, WireError, Write,
    WriteIf,
};

const LIMIT: usize = 1 << 20;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn object(value: Option<&'static [u8]>) -> Object<'static> {
    Object { lsn: Lsn(0x11), modified_ms: 0x22, expiry_ms: 0x33, hash: 0x44, value_bytes: 2, metadata: b"m", value }
}

fn requests() -> Vec<(Request<'static>, u16, &'static str)> {
    let write = |op| Request::Write(Write { xid: None, durable: true, ops: vec![op] });
    let scan = Scan { xid: None, keyspace: 5, from: Bound::Included(b"a"), to: Bound::Unbounded, limit: 9 };
    vec![
        (
            write(Op::Set { keyspace: 5, key: b"k", metadata: b"m", expiry_ms: 0x1234, value: b"v" }),
            0x31,
            "00 01 03 05000000 01000000 6b 01000000 6d 3412000000000000 01000000 76",
        ),
        (
            write(Op::Erase { keyspace: 5, from: b"a", to: Some(b"b") }),
            0x31,
            "00 01 04 05000000 01000000 61 01 01000000 62",
        ),
        (write(Op::Erase { keyspace: 5, from: b"", to: None }), 0x31, "00 01 04 05000000 00000000 00"),
        (
            Request::Look(Look { values: true, keys: vec![(5, b"k"), (6, b"")] }),
            0x33,
            "01 05000000 01000000 6b 06000000 00000000",
        ),
        (
            Request::WriteIf(WriteIf {
                durable: true,
                conditions: vec![
                    Condition { keyspace: 5, key: b"k", expects: Expect::Absent },
                    Condition { keyspace: 5, key: b"l", expects: Expect::Present },
                    Condition { keyspace: 6, key: b"", expects: Expect::At(Lsn(0x99)) },
                ],
                ops: vec![Op::Delete { keyspace: 5, key: b"k" }],
            }),
            0x35,
            "01 03000000 05000000 01000000 6b 01 05000000 01000000 6c 02 06000000 00000000 03 9900000000000000 \
             02 05000000 01000000 6b",
        ),
        (
            Request::Expect(Expected {
                xid: Xid::new(7, b"ab", b"c").unwrap(),
                conditions: vec![
                    Condition { keyspace: 5, key: b"k", expects: Expect::Absent },
                    Condition { keyspace: 6, key: b"", expects: Expect::At(Lsn(0x99)) },
                ],
            }),
            0x3b,
            "07000000 02 01 6162 63 05000000 01000000 6b 01 06000000 00000000 03 9900000000000000",
        ),
        (Request::Patience(0x1234), 0x3c, "34120000"),
        (Request::KeyspaceCreate("ab"), 0x36, "02000000 6162"),
        (Request::StoreVerify, 0x39, ""),
        (Request::StoreCompact, 0x3a, ""),
        (Request::KeyspaceDrop("ab"), 0x37, "02000000 6162"),
        (Request::Keyspaces(KeyspaceQuery { name: None, after: Some("ab") }), 0x38, "00 01 02000000 6162"),
        (Request::Rows(Rows { values: false, scan }), 0x34, "00 00 05000000 09000000 01 01000000 61 00"),
    ]
}

fn answers() -> Vec<(Answer<'static>, u16, &'static str)> {
    const HEAD: &str = "1100000000000000 2200000000000000 3300000000000000 4400000000000000 02000000 01000000 6d";
    let with = |text: &str| -> &'static str { Box::leak(text.replace("HEAD", HEAD).into_boxed_str()) };
    vec![
        (
            Answer::Objects(vec![None, Some(object(None)), Some(object(Some(b"vv")))]),
            0x8033,
            with("00 01 HEAD 00 01 HEAD 01 02000000 7676"),
        ),
        (
            Answer::Checked(Checked {
                runs: 1,
                volumes: 2,
                items: 3,
                entries: 4,
                values: 5,
                damaged: 6,
                damages: vec!["ab"],
            }),
            0x8039,
            "0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000 0600000000000000 \
             02000000 6162",
        ),
        (
            Answer::Compacted(Compacted { compactions: 1, read_bytes: 2, written_bytes: 3, reclaimed_bytes: 4 }),
            0x803a,
            "0100000000000000 0200000000000000 0300000000000000 0400000000000000",
        ),
        (
            Answer::Keyspaces { more: false, list: vec![KeyspaceView { id: 5, name: "ab", created_ms: 6 }] },
            0x8038,
            "00 05000000 02000000 6162 0600000000000000",
        ),
        (
            Answer::Rows { more: true, rows: vec![Row { key: b"k", object: object(None) }] },
            0x8034,
            with("01 01000000 6b HEAD 00"),
        ),
    ]
}

fn payload(laid: &[u8]) -> Frame<'_> {
    assent_frame::parse(laid, LIMIT).unwrap().unwrap().0
}

#[test]
fn the_bytes_of_version_2_are_these() {
    for (request, kind, expected) in requests() {
        let mut laid = Vec::new();
        request.lay(&mut laid, 1, LIMIT).unwrap();
        let frame = payload(&laid);
        assert_eq!((frame.kind, hex(frame.payload)), (kind, hex(&bytes(expected))), "{request:?}");
        assert_eq!(request.since(), 2, "{request:?}");
    }
    for (answer, kind, expected) in answers() {
        let mut laid = Vec::new();
        answer.lay(&mut laid, 1, LIMIT).unwrap();
        let frame = payload(&laid);
        assert_eq!((frame.kind, hex(frame.payload)), (kind, hex(&bytes(expected))), "{answer:?}");
    }
}

#[test]
fn the_bytes_of_version_3_are_these() {
    const TX: &str = "03000000 01000000 2a00000000000000";
    let tx = TxId { incarnation: Incarnation { epoch: Epoch(3), number: 1 }, counter: 42 };
    let native = Native { code: "23505", message: "no" };
    let voted = |vote| Voted { resource: ResourceId(7), number: 2, vote, retries: 3, native };
    let votes = [Vote::Yes, Vote::ReadOnly, Vote::No].map(voted).to_vec();
    let vote = |byte: &str| format!("0700000000000000 0200 {byte} 03000000 05000000 3233353035 02000000 6e6f");
    let asked = LogQuery { tx: Some(tx), limit: 9, ..LogQuery::default() };
    let told = format!("{TX} 02 {} {} {}", vote("01"), vote("02"), vote("03"));
    for (request, kind, expected) in [
        (Request::Votes { tx, outcome: Outcome::RolledBack, votes }, 0x15, told),
        (Request::TxLogVotes(asked), 0x48, format!("00 00 00 00 01 {TX} 00 09000000")),
    ] {
        let mut laid = Vec::new();
        request.lay(&mut laid, 1, LIMIT).unwrap();
        let frame = payload(&laid);
        assert_eq!((frame.kind, hex(frame.payload)), (kind, hex(&bytes(&expected))), "{request:?}");
        assert_eq!(request.since(), 3, "{request:?}");
    }
}

/// One branch and one transaction, as each version tells them: what is new stands behind what was there.
#[test]
fn the_bytes_of_version_4_are_these() {
    const TX: &str = "03000000 01000000 2a00000000000000";
    let tx = TxId { incarnation: Incarnation { epoch: Epoch(3), number: 1 }, counter: 42 };
    let asked = LogQuery { tx: Some(tx), limit: 9, ..LogQuery::default() };
    let request = Request::TxLogWitnesses(asked);
    let mut laid = Vec::new();
    request.lay(&mut laid, 1, LIMIT).unwrap();
    let frame = payload(&laid);
    let expected = hex(&bytes(&format!("00 00 00 00 01 {TX} 00 09000000")));
    assert_eq!((frame.kind, hex(frame.payload), request.since()), (0x49, expected, 4));
    let branch = PastBranch {
        resource: "a",
        number: 2,
        has_witness: true,
        fate: "",
        heuristic: None,
        by: None,
        retries: 0,
        native: Native { code: "", message: "" },
        noted_ms: None,
        vote: Some(Vote::Yes),
        witness: b"pg",
    };
    let past = PastView {
        tx,
        outcome: Outcome::Committed,
        by: By::Client,
        client: "",
        decided_ms: None,
        finished_ms: None,
        branches: vec![branch],
        words: vec![],
    };
    let head = format!("00 {TX} 01 01 00000000 00 00 01000000");
    let known = "01000000 61 0200 01 00000000 00 00 00000000 00000000 00000000 00";
    let words = "00000000";
    for (detail, kind, more) in [
        (Detail::Fates, 0x8046, ""),
        (Detail::Votes, 0x8048, "01 01"),
        (Detail::Witnesses, 0x8049, "01 01 02000000 7067"),
    ] {
        let mut laid = Vec::new();
        Answer::Log { more: false, detail, list: vec![past.clone()] }.lay(&mut laid, 1, LIMIT).unwrap();
        let frame = payload(&laid);
        let expected = hex(&bytes(&format!("{head} {known} {more} {words}")));
        assert_eq!((frame.kind, hex(frame.payload)), (kind, expected), "{detail:?}");
    }
}

#[test]
fn the_bytes_of_version_6_are_these() {
    let mut laid = Vec::new();
    let request = Request::AsOf(0x1234);
    request.lay(&mut laid, 1, LIMIT).unwrap();
    let frame = payload(&laid);
    assert_eq!((frame.kind, hex(frame.payload), request.since()), (0x3d, hex(&bytes("34120000")), 6));
}

#[test]
fn a_long_message_of_version_2_is_these_frames() {
    let request = requests().swap_remove(0).0;
    let mut laid = Vec::new();
    request.lay_long(&mut laid, 0x77, 16, LIMIT).unwrap();
    // Length, (checksum), mark, kind, flags 1, bytes from here to the end; the bytes.
    let expected = [
        ("10000000", "7700000000000000 3100 0100 1e000000", "00 01 03 05000000 01000000 6b 01000000"),
        ("0e000000", "7700000000000000 3100 0100 0e000000", "6d 3412000000000000 01000000 76"),
    ];
    let mut rest = laid.as_slice();
    for (length, head, text) in expected {
        let piece = bytes(text);
        assert_eq!((hex(&rest[..4]), hex(&rest[8..24])), (length.to_owned(), hex(&bytes(head))));
        assert_eq!(hex(&rest[24..24 + piece.len()]), hex(&piece));
        rest = &rest[assent_frame::laid_bytes(piece.len())..];
    }
    assert!(rest.is_empty());
}

#[test]
fn malformed_payloads_are_refused_by_their_field() {
    let cases = [
        (0x31, "00 01 03 05000000 01000000 6b 01000000 6d 34120000000000", "expiry"),
        (0x31, "00 01 03 05000000 01000000 6b ff000000 6d", "metadata"),
        (0x31, "00 01 04 05000000 00000000 02", "end"),
        (0x31, "00 01 04 05000000 00000000 01 02000000 62", "end"),
        (0x31, "00 01 05 05000000 00000000", "op"),
        (0x33, "", "values"),
        (0x33, "02", "values"),
        (0x33, "01 05000000 02000000 6b", "key"),
        (0x33, "01 0500", "keyspace"),
        (0x36, "03000000 6162", "name"),
        (0x36, "01000000 ff", "name"),
        (0x38, "02", "name"),
        (0x38, "00 01 05000000", "name"),
        (0x35, "02 00000000", "durable"),
        (0x35, "01 01000000", "keyspace"),
        (0x35, "01 ffffffff 05000000 01000000 6b 01", "keyspace"),
        (0x35, "01 01000000 05000000 01000000 6b 04", "expectation"),
        (0x35, "01 01000000 05000000 01000000 6b 03 00000000000000", "lsn"),
        (0x35, "01 00000000 07", "keyspace"),
        (0x34, "02 00 05000000 09000000 00 00", "values"),
        (0x34, "01 00 05000000 09000000 03 00", "bound"),
        (0x34, "01 00 05000000 0900", "limit"),
        (0x34, "01 00 05000000 09000000 01 ffffffff 61", "bound"),
    ];
    for (kind, text, field) in cases {
        let payload = bytes(text);
        let frame = Frame { mark: 1, kind, flags: 0, chain: 0, payload: &payload };
        match Request::parse(&frame) {
            Err(WireError::Malformed(found)) => assert_eq!(found.field, field, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    let head = "1100000000000000 2200000000000000 3300000000000000 4400000000000000 02000000 01000000 6d";
    let cases = [
        (0x8033, "02".to_owned(), "object"),
        (0x8033, format!("01 {head}"), "value"),
        (0x8033, format!("01 {head} 01 03000000 7676"), "value"),
        (0x8033, format!("01 {}", &head[..head.len() - 2]), "metadata"),
        (0x8034, String::new(), "more"),
        (0x8034, format!("00 01000000 6b {head} 02"), "value"),
        (0x8034, "01 05000000 6b".to_owned(), "key"),
    ];
    for (kind, text, field) in cases {
        let payload = bytes(&text);
        let frame = Frame { mark: 1, kind, flags: 0, chain: 0, payload: &payload };
        match Answer::parse(&frame) {
            Err(WireError::Malformed(found)) => assert_eq!(found.field, field, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}
