//! Every message survives the wire, and no part of one passes for a message.

use assent_frame::{Frame, HEADER_BYTES};
use assent_ids::{Branch, Epoch, Incarnation, Lsn, Mark, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_wire::{
    Action, Answer, Bound, BranchRecord, BranchView, By, Checked, Compacted, Condition, Decide, Detail, Deviation,
    Expect, Expected, Fate, Found, Heuristic, KeyspaceQuery, KeyspaceView, Known, Limits, LogQuery, LogState, Look,
    Native, Object, Op, OperatorWord, Outcome, PAYLOAD_BYTES_MAX, Past, PastBranch, PastView, PastWord, Reply, Request,
    Resolved, RoundView, Row, Rows, Scan, Seal, Secret, Session, Standing, TransactionView, Verified, Vote, Voted,
    Welcome, WireError, Write, WriteIf,
};

pub(crate) fn tx() -> TxId {
    TxId { incarnation: Incarnation { epoch: Epoch(3), number: 1 }, counter: 42 }
}

fn xid() -> Xid {
    Branch { node: NodeId(9), tx: tx(), resource: ResourceId::of("a"), number: 1, flags: 0, mark: None }.xid()
}

fn foreign() -> Xid {
    Xid::new(0, &[1], &[]).unwrap()
}

const HEURISTICS: [Heuristic; 4] = [Heuristic::Committed, Heuristic::RolledBack, Heuristic::Mixed, Heuristic::Hazard];
const BYS: [By; 4] = [By::Client, By::Agent, By::Timeout, By::Operator];

fn decided(branches: Vec<BranchRecord<'_>>) -> Decide<'_> {
    Decide { tx: tx(), outcome: Outcome::Committed, first: true, branches }
}

pub(crate) fn requests() -> Vec<Request<'static>> {
    let branch = |witness| BranchRecord { resource: ResourceId(7), number: 2, flags: 1, mark: None, witness };
    let mark = Mark { resource: ResourceId(8), table: 9, timeline: 3 };
    let marked = BranchRecord { mark: Some(mark), ..branch(b"witness") };
    let word = OperatorWord { who: "anna", reason: "ticket 7" };
    let native = Native { code: "1402", message: "XA_RBROLLBACK" };
    let deviation = |heuristic| Deviation { resource: ResourceId(7), number: 2, flags: 1, heuristic, native };
    let voted = |vote| Voted { resource: ResourceId(7), number: 2, vote, retries: 3, native };
    let states = [LogState::Committed, LogState::RolledBack, LogState::Heuristic, LogState::InDoubt, LogState::Forced];
    let mut list = vec![
        Request::Decide(decided(vec![marked, branch(b"")])),
        Request::Noted(decided(vec![branch(b""), marked])),
        Request::Settle { tx: tx(), mark },
        Request::Ping,
        Request::Decide(decided(vec![])),
        Request::Decide(Decide {
            tx: tx(),
            outcome: Outcome::RolledBack,
            first: false,
            branches: vec![branch(b"witness"), branch(b"")],
        }),
        Request::Finished(vec![]),
        Request::Finished(vec![tx(), tx()]),
        Request::Acknowledged(vec![tx()]),
        Request::Ask(tx()),
        Request::Start(xid()),
        Request::End { xid: xid(), success: true },
        Request::End { xid: foreign(), success: false },
        Request::Prepare(xid()),
        Request::Commit(xid()),
        Request::CommitOnePhase(xid()),
        Request::Rollback(foreign()),
        Request::Recover(NodeId(u64::MAX)),
        Request::Forget(xid()),
        Request::Claim(NodeId(9)),
        Request::Inquire { xid: xid(), witness: b"xid8 77" },
        Request::Get { xid: None, keyspace: 0, key: b"" },
        Request::Get { xid: Some(xid()), keyspace: u32::MAX, key: b"key" },
        Request::TxList { after: None, limit: 1 },
        Request::TxList { after: Some(tx()), limit: 0 },
        Request::TxShow(tx()),
        Request::TxRecover,
        Request::Stats,
        Request::Heuristic { tx: tx(), told: Outcome::Committed, branches: vec![] },
        Request::Heuristic { tx: tx(), told: Outcome::RolledBack, branches: HEURISTICS.map(deviation).to_vec() },
        Request::TxForce { tx: tx(), outcome: Outcome::RolledBack, word },
        Request::TxForget { tx: tx(), word },
        Request::TxLog(LogQuery::default()),
        Request::TxLogVotes(LogQuery { tx: Some(tx()), limit: 1, ..LogQuery::default() }),
        Request::TxLogWitnesses(LogQuery { tx: Some(tx()), limit: 1, ..LogQuery::default() }),
        Request::Votes {
            tx: tx(),
            outcome: Outcome::RolledBack,
            votes: [Vote::Yes, Vote::ReadOnly, Vote::No].map(voted).to_vec(),
        },
        Request::TxVerify { kept: None },
        Request::TxVerify { kept: Some((7, [9; 32])) },
    ];
    list.extend(works());
    list.extend(states.map(|state| {
        Request::TxLog(LogQuery {
            since_ms: Some(5),
            until_ms: Some(u64::MAX),
            state: Some(state),
            resource: Some("shop"),
            tx: Some(tx()),
            after: Some(tx()),
            limit: 7,
        })
    }));
    list
}

/// Work on keys.
fn works() -> Vec<Request<'static>> {
    let range = |from, to| Scan { xid: Some(xid()), keyspace: 1, from, to, limit: 100 };
    let scan = |from, to| Request::Scan(range(from, to));
    vec![
        Request::Write(Write { xid: None, durable: true, ops: vec![] }),
        Request::Write(Write {
            xid: Some(xid()),
            durable: false,
            ops: vec![
                Op::Put { keyspace: 1, key: b"k", value: b"v" },
                Op::Delete { keyspace: 2, key: b"gone" },
                Op::Put { keyspace: 1, key: b"k", value: b"" },
            ],
        }),
        Request::Write(Write {
            xid: None,
            durable: true,
            ops: vec![
                Op::Set { keyspace: 1, key: b"k", metadata: b"m", expiry_ms: 77, value: b"v" },
                Op::Erase { keyspace: 1, from: b"a", to: Some(b"b") },
                Op::Erase { keyspace: 1, from: b"", to: None },
            ],
        }),
        Request::WriteIf(WriteIf { durable: false, conditions: vec![], ops: vec![] }),
        Request::WriteIf(WriteIf {
            durable: true,
            conditions: [Expect::Absent, Expect::Present, Expect::At(Lsn(7))]
                .map(|expects| Condition { keyspace: 1, key: b"k", expects })
                .to_vec(),
            ops: vec![Op::Delete { keyspace: 1, key: b"k" }],
        }),
        Request::Expect(Expected { xid: xid(), conditions: vec![] }),
        Request::Expect(Expected {
            xid: foreign(),
            conditions: vec![
                Condition { keyspace: 1, key: b"k", expects: Expect::At(Lsn(7)) },
                Condition { keyspace: u32::MAX, key: b"", expects: Expect::Absent },
            ],
        }),
        Request::Patience(0),
        Request::Patience(u32::MAX),
        Request::AsOf(0),
        Request::AsOf(u32::MAX),
        Request::StoreVerify,
        Request::StoreCompact,
        Request::KeyspaceCreate("orders"),
        Request::KeyspaceDrop(""),
        Request::Keyspaces(KeyspaceQuery { name: None, after: None }),
        Request::Keyspaces(KeyspaceQuery { name: Some("orders"), after: Some("a") }),
        Request::Look(Look { values: false, keys: vec![] }),
        Request::Look(Look { values: true, keys: vec![(1, b"a"), (u32::MAX, b"")] }),
        Request::Rows(Rows {
            values: true,
            scan: Scan { xid: None, ..range(Bound::Included(b"a"), Bound::Unbounded) },
        }),
        Request::Rows(Rows { values: false, scan: range(Bound::Unbounded, Bound::Excluded(b"z")) }),
        scan(Bound::Unbounded, Bound::Unbounded),
        scan(Bound::Included(b"a"), Bound::Excluded(b"b")),
    ]
}

const NATIVE: Native<'static> = Native { code: "42704", message: "no such thing" };

fn transactions() -> Vec<Answer<'static>> {
    let view = |decided, standing, branches| TransactionView {
        tx: tx(),
        decided,
        decided_ms: 77,
        is_durable: true,
        is_acknowledged: false,
        may_be_lost: true,
        client: "shop",
        standing,
        age_ms: 12,
        branches,
    };
    let mut fates = vec![
        Fate::Open,
        Fate::Prepared,
        Fate::Committed,
        Fate::CommittedInferred,
        Fate::RolledBack,
        Fate::NotListed,
        Fate::Cleared,
    ];
    fates.extend(HEURISTICS.map(Fate::Heuristic));
    let branch = |fate| BranchView {
        resource: "a",
        xid: xid(),
        fate,
        by: None,
        retries: 3,
        native: NATIVE,
        place: "db:5432",
        prepared_ms: 4,
        listed: "transaction 5",
        witness: b"pg1",
    };
    let branches = fates.into_iter().map(branch).collect();
    let by = |by| BranchView { by: Some(by), ..branch(Fate::Prepared) };
    let standings = [
        Standing::Connected,
        Standing::Lost,
        Standing::Resumable,
        Standing::Fencing,
        Standing::Fenced,
        Standing::Never,
    ];
    let views = standings.map(|standing| view(None, standing, BYS.map(by).to_vec())).to_vec();
    vec![
        Answer::Transactions { more: true, list: views },
        Answer::Transactions {
            more: true,
            list: vec![view(Some((Outcome::Committed, By::Agent)), Standing::Fenced, branches)],
        },
    ]
}

fn histories() -> Vec<Answer<'static>> {
    let past = |heuristic, by| PastBranch {
        resource: "a",
        number: 2,
        has_witness: true,
        fate: "committed",
        heuristic,
        by,
        retries: 1,
        native: NATIVE,
        noted_ms: Some(9),
        vote: None,
        witness: b"",
    };
    let verified = |head, is_whole| Verified { seals: 1, records: 2, unsealed: 3, is_whole, first: None, head };
    let said = |action| PastWord { at_ms: 8, action, who: "anna", reason: "" };
    let over = |by| PastView {
        tx: tx(),
        outcome: Outcome::RolledBack,
        by,
        client: "shop",
        decided_ms: Some(7),
        finished_ms: None,
        branches: HEURISTICS.map(|it| past(Some(it), Some(by))).to_vec(),
        words: [Action::Commit, Action::Rollback, Action::Forget].map(said).to_vec(),
    };
    let votes = [None, Some(Vote::Yes), Some(Vote::ReadOnly), Some(Vote::No)];
    let voted =
        PastView { branches: votes.map(|vote| PastBranch { vote, ..past(None, None) }).to_vec(), ..over(By::Client) };
    let witnesses = [&b""[..], b"xid8 77"];
    let branches = witnesses.map(|witness| PastBranch { witness, vote: Some(Vote::Yes), ..past(None, None) }).to_vec();
    let witnessed = PastView { branches, ..over(By::Agent) };
    let bare = PastView { branches: vec![past(None, None)], words: vec![], ..over(By::Client) };
    vec![
        Answer::Forgotten,
        Answer::Log { more: false, detail: Detail::Fates, list: vec![] },
        Answer::Log { more: true, detail: Detail::Fates, list: BYS.map(over).to_vec() },
        Answer::Log { more: false, detail: Detail::Fates, list: vec![bare] },
        Answer::Log { more: false, detail: Detail::Votes, list: vec![voted] },
        Answer::Log { more: false, detail: Detail::Witnesses, list: vec![witnessed] },
        Answer::Verified(verified(None, false)),
        Answer::Verified(verified(Some(Seal { number: 5, digest: [6; 32], at_ms: 7 }), true)),
    ]
}

pub(crate) fn answers() -> Vec<Answer<'static>> {
    let native = NATIVE;
    let session = Session { incarnation: tx().incarnation, secret: Secret(u128::MAX - 5) };
    let welcome = |version, session| {
        // In version 1 a message is one frame.
        let message_bytes_max = if version == 1 { 1 << 20 } else { 300 };
        let limits = Limits { message_bytes_max, ..Limits::default() };
        Answer::Welcome(Welcome { version, node: NodeId(9), epoch: Epoch(3), session, limits })
    };
    let object =
        |value| Object { lsn: Lsn(7), modified_ms: 8, expiry_ms: 9, hash: 10, value_bytes: 5, metadata: b"m", value };
    let mut list = vec![
        welcome(1, None),
        welcome(1, Some(session)),
        welcome(2, None),
        welcome(2, Some(session)),
        Answer::Pong,
        Answer::Decided(Outcome::Committed),
        Answer::Decided(Outcome::RolledBack),
        Answer::Value(None),
        Answer::Value(Some(b"")),
        Answer::Value(Some(b"value")),
        Answer::Written(Lsn(77)),
        Answer::Pairs { more: false, pairs: vec![] },
        Answer::Pairs { more: true, pairs: vec![Found { key: b"k", value: b"v" }, Found { key: b"l", value: b"" }] },
        Answer::Objects(vec![]),
        Answer::Objects(vec![Some(object(None)), None, Some(object(Some(b""))), Some(object(Some(b"value")))]),
        Answer::Checked(Checked::default()),
        Answer::Checked(Checked { damaged: 5, damages: vec!["this", "and that"], ..Checked::default() }),
        Answer::Compacted(Compacted { compactions: 1, read_bytes: 2, written_bytes: 3, reclaimed_bytes: 4 }),
        Answer::Keyspaces { more: false, list: vec![] },
        Answer::Keyspaces { more: true, list: vec![KeyspaceView { id: 5, name: "orders", created_ms: 6 }] },
        Answer::Rows { more: false, rows: vec![] },
        Answer::Rows { more: true, rows: vec![Row { key: b"k", object: object(Some(b"v")) }] },
        Answer::Transactions { more: false, list: vec![] },
        Answer::Round(RoundView::default()),
        Answer::Round(RoundView {
            resolved: vec![Resolved { xid: xid(), resource: "a", fate: "committed" }],
            unreachable: vec![("b", "refused"), ("c", "timed out")],
        }),
        Answer::Stats(vec![]),
        Answer::Stats(vec![("a", 1), ("b", u64::MAX)]),
        Answer::Branch(Reply::Done),
        Answer::Branch(Reply::Yes(b"")),
        Answer::Branch(Reply::Yes(b"store 5 at 77")),
        Answer::Branch(Reply::ReadOnly),
        Answer::Branch(Reply::RolledBack(native)),
        Answer::Branch(Reply::Unknown(native)),
        Answer::Branch(Reply::Listed(vec![])),
        Answer::Branch(Reply::Past(Past::Committed)),
        Answer::Branch(Reply::Past(Past::RolledBack)),
        Answer::Branch(Reply::Past(Past::Open)),
        Answer::Branch(Reply::Past(Past::Forgotten)),
        Answer::Branch(Reply::Past(Past::Elsewhere(Native { code: "timeline", message: "2, and was 1" }))),
        Answer::Branch(Reply::Listed(vec![xid(), foreign()])),
    ];
    list.extend(transactions());
    list.extend(histories());
    list.extend(Kind::ALL.iter().map(|kind| Answer::Error { kind: *kind, message: "why" }));
    list.extend(Kind::ALL.iter().map(|kind| Answer::Branch(Reply::Refused(*kind, native))));
    let known = [Known::Committed, Known::RolledBack, Known::Undecided, Known::Unknown, Known::InDoubt];
    list.extend(known.map(Answer::Known));
    list.extend(HEURISTICS.map(|heuristic| Answer::Branch(Reply::Heuristic(heuristic, native))));
    list
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    let (frame, used) = assent_frame::parse(bytes, PAYLOAD_BYTES_MAX).unwrap().unwrap();
    assert_eq!(used, bytes.len());
    frame
}

fn cut<'a>(whole: &Frame<'a>, payload: &'a [u8]) -> Frame<'a> {
    Frame { payload, ..*whole }
}

#[test]
fn every_request_survives_the_wire_and_every_cut_of_it_is_another_or_none() {
    for request in requests() {
        let mut bytes = Vec::new();
        request.lay(&mut bytes, 4711, PAYLOAD_BYTES_MAX).unwrap();
        let whole = frame(&bytes);
        assert_eq!(whole.mark, 4711);
        assert_eq!(Request::parse(&whole), Ok(request.clone()));
        for end in 0..whole.payload.len() {
            // A list that runs to the end of its payload may be cut between two elements; the frame's length, under its
            // checksum, is what protects it. It is never taken for the whole.
            match Request::parse(&cut(&whole, &whole.payload[..end])) {
                Ok(other) => {
                    assert!(
                        matches!(
                            other,
                            Request::Decide(_)
                                | Request::Noted(_)
                                | Request::Finished(_)
                                | Request::Votes { .. }
                                | Request::Acknowledged(_)
                                | Request::Heuristic { .. }
                                | Request::Write(_)
                                | Request::Look(_)
                                | Request::WriteIf(_)
                                | Request::Expect(_)
                        ),
                        "{other:?}"
                    );
                    assert_ne!(other, request);
                }
                Err(error) => assert!(matches!(error, WireError::Malformed(_)), "{error:?}"),
            }
        }
        let longer = [whole.payload, &[0xff]].concat();
        assert!(Request::parse(&cut(&whole, &longer)).is_err(), "{request:?} and a byte");
    }
}

#[test]
fn every_answer_survives_the_wire_and_every_cut_of_it_is_another_or_none() {
    for answer in answers() {
        let mut bytes = vec![0; 8];
        answer.lay(&mut bytes, 4711, PAYLOAD_BYTES_MAX).unwrap();
        let whole = frame(&bytes[8..]);
        assert_eq!(Answer::parse(&whole), Ok(answer.clone()));
        for end in 0..whole.payload.len() {
            match Answer::parse(&cut(&whole, &whole.payload[..end])) {
                Ok(other) => assert_ne!(other, answer),
                Err(error) => assert!(matches!(error, WireError::Malformed(_)), "{error:?}"),
            }
        }
        let longer = [whole.payload, &[0xff]].concat();
        assert!(Answer::parse(&cut(&whole, &longer)).is_err(), "{answer:?} and a byte");
    }
}

#[test]
fn requests_and_answers_have_kinds_of_their_own_and_an_unknown_one_is_named() {
    let mut bytes = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for request in requests() {
        bytes.clear();
        request.lay(&mut bytes, 1, PAYLOAD_BYTES_MAX).unwrap();
        let frame = frame(&bytes);
        assert_eq!(Answer::parse(&frame), Err(WireError::UnknownKind { kind: frame.kind }));
        seen.insert(frame.kind);
    }
    assert_eq!(seen.len(), 43, "each request is in the table");
    for answer in answers() {
        bytes.clear();
        answer.lay(&mut bytes, 1, PAYLOAD_BYTES_MAX).unwrap();
        let frame = frame(&bytes);
        assert_eq!(Request::parse(&frame), Err(WireError::UnknownKind { kind: frame.kind }));
        seen.insert(frame.kind);
    }
    assert_eq!(seen.len(), 43 + 22, "each answer is in the table");
    let error = Request::parse(&Frame { mark: 1, kind: 0x7777, flags: 0, chain: 0, payload: &[] }).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(error.to_string(), "message kind 0x7777 is unknown to this side, which speaks versions 1 to 6");
}

#[test]
fn the_largest_message_travels_and_one_byte_more_leaves_the_buffer_as_it_was() {
    let with = |value: &[u8]| {
        let mut bytes = vec![9; 8];
        let ops = vec![Op::Put { keyspace: 0, key: b"", value }];
        let laid = Request::Write(Write { xid: None, durable: false, ops }).lay(&mut bytes, 1, PAYLOAD_BYTES_MAX);
        (laid, bytes)
    };
    let empty = frame(&with(&[]).1[8..]).payload.len();
    let (laid, bytes) = with(&vec![1; PAYLOAD_BYTES_MAX - empty]);
    assert_eq!(laid, Ok(()));
    assert_eq!(frame(&bytes[8..]).payload.len(), PAYLOAD_BYTES_MAX);
    let (laid, bytes) = with(&vec![1; PAYLOAD_BYTES_MAX - empty + 1]);
    assert_eq!(laid, Err(WireError::TooLarge { bytes: PAYLOAD_BYTES_MAX + 1, limit: PAYLOAD_BYTES_MAX }));
    assert_eq!(bytes, [9; 8]);
    let mut bytes = Vec::new();
    assert_eq!(Answer::Value(Some(&[1; 6])).lay(&mut bytes, 1, 11), Ok(()));
    assert_eq!(bytes.len(), HEADER_BYTES + 16);
    assert_eq!(Answer::Value(Some(&[1; 7])).lay(&mut bytes, 1, 11), Err(WireError::TooLarge { bytes: 12, limit: 11 }));
}
