//! What was decided so far: the coordinator's own log, read as history, and the chain that shows that nobody changed it.
//!
//! Walk: [`run`] asks for pages, or reads a stopped server's folder · [`verify`] has every seal of the chain checked.

use std::ops::ControlFlow;
use std::path::Path;

use assent_coordinator::history::{self, Filter, State};
use assent_coordinator::{Digest, Seal};
use assent_ids::{ResourceId, TxId};
use assent_kind::Kind;
use assent_link::Link;
use assent_server::views;
use assent_wire::{Action, Answer, LogQuery, LogState, PastView, Request, Vote};
use assent_world::{Clock as _, RealClock};
use serde::Serialize;

use super::{admin, hint, moment, patient, seen, source, transaction, unexpected};
use crate::args::{Source, TxLog, TxState};
use crate::bench::{print_json, table};
use crate::failure::Failure;
use crate::say::plain;

/// Transactions asked for in one message.
const PAGE: u32 = 1_000;

#[derive(Debug, Serialize)]
struct Past {
    tx: String,
    decided_at: Option<String>,
    finished_at: Option<String>,
    outcome: &'static str,
    by: &'static str,
    client: String,
    branches: Vec<Branch>,
    operators: Vec<Word>,
    #[serde(skip)]
    took_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Branch {
    resource: String,
    number: u16,
    has_witness: bool,
    /// What the decision keeps of the vote, in words; nothing where a server of an older release is asked.
    witness: Option<String>,
    /// `yes`, `read_only`, `no`; nothing if the log does not say.
    vote: Option<&'static str>,
    fate: String,
    heuristic: Option<&'static str>,
    by: Option<&'static str>,
    retries: u32,
    code: String,
    message: String,
    noted_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct Word {
    at: String,
    action: &'static str,
    who: String,
    reason: String,
}

impl Past {
    fn of(view: &PastView<'_>) -> Self {
        let branch = |branch: &assent_wire::PastBranch<'_>| Branch {
            resource: branch.resource.to_owned(),
            number: branch.number,
            has_witness: branch.has_witness,
            witness: assent_resources::witness_words(branch.witness),
            vote: branch.vote.map(vote),
            fate: branch.fate.to_owned(),
            heuristic: branch.heuristic.map(seen::heuristic),
            by: branch.by.map(seen::by),
            retries: branch.retries,
            code: branch.native.code.to_owned(),
            message: branch.native.message.to_owned(),
            noted_at: branch.noted_ms.map(moment::show),
        };
        let word = |word: &assent_wire::PastWord<'_>| Word {
            at: moment::show(word.at_ms),
            action: match word.action {
                Action::Commit => "commit",
                Action::Rollback => "rollback",
                Action::Forget => "forget",
            },
            who: word.who.to_owned(),
            reason: word.reason.to_owned(),
        };
        let times = view.decided_ms.zip(view.finished_ms.filter(|ms| *ms > 0));
        Self {
            tx: view.tx.to_string(),
            decided_at: view.decided_ms.map(moment::show),
            finished_at: view.finished_ms.filter(|ms| *ms > 0).map(moment::show),
            outcome: seen::outcome(view.outcome),
            by: seen::by(view.by),
            client: view.client.to_owned(),
            branches: view.branches.iter().map(branch).collect(),
            operators: view.words.iter().map(word).collect(),
            took_ms: times.map(|(decided, finished)| finished.saturating_sub(decided)),
        }
    }

    fn end(&self) -> String {
        match (self.took_ms, &self.finished_at) {
            (Some(ms), _) => format!("{ms} ms"),
            (None, Some(_)) => "finished".to_owned(),
            (None, None) => "unfinished".to_owned(),
        }
    }
}

impl Branch {
    fn words(&self) -> String {
        let fate = match (self.heuristic, self.fate.as_str(), self.vote) {
            (Some(how), fate, _) => format!(" {fate}: {how}"),
            (None, "", None) => " by its client".to_owned(),
            // Nobody told them anything more.
            (None, "", Some("read_only")) => " voted read-only".to_owned(),
            (None, "", Some("no")) => " voted no".to_owned(),
            (None, "", Some(_)) => " voted yes, finished by its client".to_owned(),
            (None, fate, None) => format!(" {fate}"),
            (None, fate, Some(vote)) => format!(" voted {}, {fate}", vote.replace('_', "-")),
        };
        let native = if self.message.is_empty() {
            String::new()
        } else {
            format!(": {} ({})", plain(&self.message), plain(&self.code))
        };
        let retries = if self.retries > 0 { format!(", told {} times", self.retries + 1) } else { String::new() };
        format!("{}#{}{fate}{retries}{native}", self.resource, self.number)
    }
}

const fn vote(vote: Vote) -> &'static str {
    match vote {
        Vote::Yes => "yes",
        Vote::ReadOnly => "read_only",
        Vote::No => "no",
    }
}

/// What was decided.
pub(super) fn run(arguments: &TxLog, json: bool) -> Result<(), Failure> {
    let now_ms = RealClock.wall_ms();
    let time = |text: &Option<String>| text.as_deref().map(|text| moment::parse(text, now_ms)).transpose();
    let (since_ms, until_ms) = (time(&arguments.since)?, time(&arguments.until)?);
    let tx = arguments.tx.as_deref().map(transaction).transpose()?;
    let resource = arguments.resource.as_deref();
    let state = arguments.state.map(wire_state);
    let query = LogQuery { since_ms, until_ms, state, resource, tx, after: None, limit: PAGE };
    let (list, more) = match &arguments.from.data {
        Some(folder) => offline(folder, &arguments.from, &query, arguments.state, arguments.limit)?,
        // The table has no room for what was kept of the votes.
        None => {
            let link = patient(&arguments.from.server)?;
            online(&link, query, arguments.limit, if json { Most::Witnesses } else { Most::Votes })?
        }
    };
    print(&list, more, json)?;
    hint(&arguments.from, json || list.is_empty())?;
    Ok(())
}

/// What the branches of one have voted, as far as the log says: a state table says nothing.
pub(super) fn votes(from: &Source, tx: TxId, tell: &mut dyn FnMut(&str, u16, &'static str)) -> Result<(), Failure> {
    let query = LogQuery { tx: Some(tx), limit: 1, ..LogQuery::default() };
    let found = match &from.data {
        Some(folder) => offline(folder, from, &query, None, 1),
        None => admin(&from.server).and_then(|link| online(&link, query, 1, Most::Votes)),
    };
    let list = match found {
        Err(failure) if failure.kind == Kind::NotFound => return Ok(()),
        found => found?.0,
    };
    let branches = list.iter().flat_map(|one| &one.branches);
    branches.for_each(|branch| _ = branch.vote.map(|vote| tell(&branch.resource, branch.number, vote)));
    Ok(())
}

const fn wire_state(state: TxState) -> LogState {
    match state {
        TxState::Committed => LogState::Committed,
        TxState::RolledBack => LogState::RolledBack,
        TxState::Heuristic => LogState::Heuristic,
        TxState::InDoubt => LogState::InDoubt,
        TxState::Forced => LogState::Forced,
    }
}

/// How much is shown of a branch.
#[derive(Clone, Copy)]
enum Most {
    Votes,
    Witnesses,
}

/// The fullest question that is wanted and that a server of this version of the protocol understands: one of an older release
/// tells less.
fn question(query: LogQuery<'_>, most: Most, version: u16) -> Request<'_> {
    let witnesses = matches!(most, Most::Witnesses).then_some(Request::TxLogWitnesses(query));
    let mut fuller = witnesses.into_iter().chain([Request::TxLogVotes(query)]);
    fuller.find(|it| it.since() <= version).unwrap_or(Request::TxLog(query))
}

fn online(link: &Link, query: LogQuery<'_>, most: u32, shown: Most) -> Result<(Vec<Past>, bool), Failure> {
    let (mut all, mut after): (Vec<Past>, Option<TxId>) = (Vec::new(), None);
    loop {
        let left = most.saturating_sub(u32::try_from(all.len()).unwrap_or(u32::MAX));
        let query = LogQuery { after, limit: left.min(PAGE), ..query };
        let arrived = link.request(&question(query, shown, link.welcome().version))?;
        let Answer::Log { more, list, .. } = arrived.answer()? else { return Err(unexpected()) };
        after = list.last().map(|one| one.tx);
        all.extend(list.iter().map(Past::of));
        let is_enough = u32::try_from(all.len()).map_or(true, |many| many >= most);
        if !more || after.is_none() || is_enough {
            return Ok((all, more));
        }
    }
}

fn offline(
    folder: &Path,
    from: &Source,
    query: &LogQuery<'_>,
    state: Option<TxState>,
    limit: u32,
) -> Result<(Vec<Past>, bool), Failure> {
    let kept = source::log(folder)?;
    let filter = Filter {
        since_ms: query.since_ms,
        until_ms: query.until_ms,
        state: state.map(|state| match state {
            TxState::Committed => State::Committed,
            TxState::RolledBack => State::RolledBack,
            TxState::Heuristic => State::Heuristic,
            TxState::InDoubt => State::InDoubt,
            TxState::Forced => State::Forced,
        }),
        resource: query.resource.map(ResourceId::of),
        tx: query.tx,
        after: None,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let names = source::Names::of(from)?.with(query.resource);
    let mut list = Vec::new();
    let more = history::read(&*kept.log, &filter, &mut |past| {
        let names: Vec<String> = past.branches.iter().map(|branch| names.name(branch.resource)).collect();
        list.push(Past::of(&views::past(past, &names)));
        ControlFlow::Continue(())
    })?;
    Ok((list, more))
}

fn print(list: &[Past], more: bool, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(&serde_json::json!({ "transactions": list, "more": more }));
    }
    if list.is_empty() {
        say!("the log tells of no such transaction")?;
        return Ok(());
    }
    let mut rows = table(&["decided", "transaction", "outcome", "by", "client", "finished in", "branches"]);
    for one in list {
        let mut lines: Vec<String> = one.branches.iter().map(Branch::words).collect();
        lines.extend(one.operators.iter().map(|word| {
            let Word { at, action, who, reason } = word;
            let why = if reason.is_empty() { String::new() } else { format!(": {}", plain(reason)) };
            format!("{action} by {} at {at}{why}", plain(who))
        }));
        rows.add_row([
            one.decided_at.clone().unwrap_or_default(),
            one.tx.clone(),
            one.outcome.to_owned(),
            one.by.to_owned(),
            plain(&one.client),
            one.end(),
            lines.join("\n"),
        ]);
    }
    say!("{rows}")?;
    if more {
        say!("there are more: narrow with --since, --until or --state, or raise --limit")?;
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct Checked {
    whole: bool,
    seals: u64,
    records: u64,
    unsealed: u64,
    /// `number:digest` of the last seal.
    head: Option<String>,
    head_at: Option<String>,
}

/// Whether the log is as it was written. `kept`: number and digest of a seal that somebody noted elsewhere.
pub(super) fn verify(kept: Option<&str>, from: &Source, json: bool) -> Result<(), Failure> {
    let kept = kept.map(seal).transpose()?;
    let shown = |seal: Option<(u64, Digest, u64)>| {
        let head = seal.map(|(number, digest, _)| format!("{number}:{digest}"));
        (head, seal.map(|(_, _, at_ms)| moment::show(at_ms)))
    };
    let checked = if let Some(folder) = &from.data {
        let stopped = source::log(folder)?;
        let found = history::verify(&*stopped.log, kept)?;
        let history::Verified { seals, records, unsealed, is_whole, head, .. } = found;
        let (head, head_at) = shown(head.map(|Seal { number, digest, at_ms, .. }| (number, digest, at_ms)));
        Checked { whole: is_whole, seals, records, unsealed, head, head_at }
    } else {
        let link = patient(&from.server)?;
        let arrived = link.request(&Request::TxVerify { kept: kept.map(|(number, digest)| (number, digest.0)) })?;
        let Answer::Verified(found) = arrived.answer()? else { return Err(unexpected()) };
        let assent_wire::Verified { seals, records, unsealed, is_whole, head, .. } = found;
        let (head, head_at) = shown(head.map(|seal| (seal.number, Digest(seal.digest), seal.at_ms)));
        Checked { whole: is_whole, seals, records, unsealed, head, head_at }
    };
    if json {
        return print_json(&checked);
    }
    let Checked { whole, seals, records, unsealed, head, head_at } = checked;
    say!("the chain holds: {seals} seals over {records} records, {unsealed} of them behind the last seal")?;
    let reach = if whole { "the log's birth" } else { "the oldest segment that is kept; what was before is gone" };
    say!("it reaches back to {reach}")?;
    if let (Some(head), Some(at)) = (head, head_at) {
        say!("head {head} at {at}")?;
        say!("keep the head elsewhere: `assent tx verify --kept {head}` proves later that nothing before it changed")?;
    }
    Ok(())
}

fn seal(text: &str) -> Result<(u64, Digest), Failure> {
    let wrong =
        || Failure::invalid(format!("--kept {text:?}: give NUMBER:DIGEST as `assent tx verify` prints its head"));
    let (number, digest) = text.split_once(':').ok_or_else(wrong)?;
    Ok((number.parse().map_err(|_| wrong())?, digest.parse().map_err(Failure::invalid)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_shows_what_was_kept_of_the_votes_asks_for_it() {
        let asked = |most, version| question(LogQuery::default(), most, version);
        let newest = Request::TxLogWitnesses(LogQuery::default()).since();
        assert!(matches!(asked(Most::Witnesses, newest), Request::TxLogWitnesses(_)));
        assert!(matches!(asked(Most::Votes, newest), Request::TxLogVotes(_)));
        assert!(matches!(asked(Most::Witnesses, newest - 1), Request::TxLogVotes(_)), "of an older server");
        assert!(matches!(asked(Most::Witnesses, 1), Request::TxLog(_)));
    }
}
