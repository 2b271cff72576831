//! The store's answers in the words of the protocol's contract.

use assent_kind::Kind;
use assent_link::LinkError;
use assent_wire as wire;
use assent_xa::{Heuristic, Native, Past, Reply, Vote};

pub(super) fn native(code: &str, message: &str) -> Native {
    Native { code: code.to_owned(), message: message.to_owned() }
}

/// What a branch's answer means.
pub(super) fn reply_of(reply: wire::Reply<'_>) -> Reply {
    let own = |words: wire::Native<'_>| native(words.code, words.message);
    match reply {
        wire::Reply::Done => Reply::Done,
        wire::Reply::Yes(_) => Reply::Vote(Vote::Yes),
        wire::Reply::ReadOnly => Reply::Vote(Vote::ReadOnly),
        wire::Reply::RolledBack(words) => Reply::RolledBack(own(words)),
        wire::Reply::Heuristic(heuristic, words) => Reply::Heuristic(heuristic_of(heuristic), own(words)),
        wire::Reply::Unknown(words) => Reply::Unknown(own(words)),
        wire::Reply::Refused(Kind::InDoubt, words) => Reply::Lost(own(words)),
        wire::Reply::Refused(kind, words) => Reply::Refused(kind, own(words)),
        wire::Reply::Listed(xids) => Reply::Listed(xids),
        wire::Reply::Past(past) => Reply::Past(past_of(past)),
    }
}

fn past_of(past: wire::Past<'_>) -> Past {
    match past {
        wire::Past::Committed => Past::Committed,
        wire::Past::RolledBack => Past::RolledBack,
        wire::Past::Open => Past::Open,
        wire::Past::Forgotten => Past::Forgotten,
        wire::Past::Elsewhere(words) => Past::Elsewhere(native(words.code, words.message)),
    }
}

const fn heuristic_of(heuristic: wire::Heuristic) -> Heuristic {
    match heuristic {
        wire::Heuristic::Committed => Heuristic::Committed,
        wire::Heuristic::RolledBack => Heuristic::RolledBack,
        wire::Heuristic::Mixed => Heuristic::Mixed,
        wire::Heuristic::Hazard => Heuristic::Hazard,
    }
}

/// What a missing answer means: lost if the verb may have been done, refused if it surely was not.
pub(super) fn trouble(error: &LinkError) -> Reply {
    let words = native(error.kind().name(), &error.to_string());
    match error.kind() {
        Kind::InDoubt => Reply::Lost(words),
        kind => Reply::Refused(kind, words),
    }
}
