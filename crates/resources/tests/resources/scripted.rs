//! A script comes true, or says at which line it did not.

use assent_ids::{NodeId, Xid};
use assent_kind::Kind;
use assent_resources::{Script, ScriptError, Scripted, ScriptedConnector};
use assent_xa::{Connector, Heuristic, Reply, Resource, Verb, Vote};
use proptest::prelude::*;

fn xid() -> Xid {
    Xid::new(1, b"\xaa", b"\xbb").unwrap()
}

#[test]
fn a_branch_goes_as_written() {
    let script = Script::parse(
        "# a branch whose resource decides alone\n\
         start 1.aa.bb -> XA_OK\n\
         \n\
         end * -> XA_OK      # the application is content\n\
         prepare -> XA_OK\n\
         commit 1.a* -> XA_HEURRB\n\
         forget -> lost\n\
         recover 00000000000000ff -> XA_OK 1.aa.bb 1.aa.cc\n",
    )
    .unwrap();
    let mut branch = ScriptedConnector::new("bank", &script).connect().unwrap();
    assert_eq!(branch.name(), "bank");
    assert_eq!(branch.call(Verb::Start(xid())), Reply::Done);
    assert_eq!(branch.call(Verb::End { xid: xid(), success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid())), Reply::Vote(Vote::Yes));
    assert!(matches!(branch.call(Verb::Commit(xid())), Reply::Heuristic(Heuristic::RolledBack, _)));
    assert!(matches!(branch.call(Verb::Forget(xid())), Reply::Lost(_)));
    assert!(matches!(script.verdict(), Err(ScriptError::Missing { line: 8, .. })), "one line is left");
    let listed = branch.call(Verb::Recover(NodeId(255)));
    assert_eq!(listed, Reply::Listed(vec![xid(), Xid::new(1, b"\xaa", b"\xcc").unwrap()]));
    assert_eq!(script.verdict(), Ok(()));
}

#[test]
fn another_call_than_written_names_the_line_and_both() {
    let script = Script::parse("start -> XA_OK\nprepare 1.cc* -> XA_OK\n").unwrap();
    let mut branch = Scripted::new("bank", &script);
    assert_eq!(branch.call(Verb::Start(xid())), Reply::Done);
    let Reply::Refused(Kind::Internal, native) = branch.call(Verb::Prepare(xid())) else {
        panic!("a mismatch must be refused")
    };
    assert_eq!(native.message, "line 2: expected prepare 1.cc*, got prepare 1.aa.bb");
    assert_eq!(script.verdict().unwrap_err().to_string(), native.message, "the first mismatch stays the verdict");

    let empty = Script::parse("").unwrap();
    let mut branch = Scripted::new("bank", &empty);
    let Reply::Refused(_, native) = branch.call(Verb::End { xid: xid(), success: false }) else { panic!() };
    assert_eq!(native.message, "line 1: expected no further call, got end-failed 1.aa.bb");
    assert!(matches!(branch.receive(), Reply::Refused(Kind::Internal, _)), "no verb is under way");
}

#[test]
fn a_wrong_line_is_named_by_its_number() {
    let cases = [
        ("prepare", "write verb [xid] -> answer"),
        ("vote -> XA_OK", "no verb is called"),
        ("prepare 1.aa.bb 2.aa.bb -> XA_OK", "one XID"),
        ("prepare 1.aa -> XA_OK", "XID text"),
        ("prepare 01.AA.bb -> XA_OK", "write the XID as 1.aa.bb"),
        ("prepare *.aa* -> XA_OK", "comes last"),
        ("recover ff -> XA_OK", "16 lower-case"),
        ("prepare ->", "an answer is missing"),
        ("prepare -> OK", "no code of xa.h"),
        ("commit -> XA_RDONLY", "prepare only"),
        ("prepare -> XA_OK 1.aa.bb", "only recover"),
        ("commit -> lost 1.aa.bb", "lost has no list"),
        ("recover -> XA_OK nonsense", "XID text"),
    ];
    for (line, reason) in cases {
        let error = Script::parse(&format!("start -> XA_OK\n# then\n{line}\n")).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        let said = error.to_string();
        assert!(said.starts_with("line 3: ") && said.contains(reason), "{line:?}: {said}");
    }
    assert_eq!(Script::parse(&"\n".repeat(100_001)).unwrap_err(), ScriptError::Length);
    assert!(Script::parse(&"\n".repeat(100_000)).is_ok());
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*|([a-z-]{0,8} [0-9a-f.*]{0,9} ?-> ?[A-Zl_]{0,9}( [0-9a-f.]{0,9})?\n){0,4}") {
        let _ = Script::parse(&text).map(|script| script.verdict());
    }
}
