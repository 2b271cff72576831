//! A transaction in doubt or unfinished, as people and scripts read it.
//!
//! Walk: [`Transaction::of`] takes it off the wire · [`print()`] a table of many · [`print_one`] one with everything that is
//! known, and what each choice would do.

use assent_wire::{By, Fate, Heuristic, Outcome, Standing, TransactionView};
use serde::Serialize;

use super::choices::{self, Choice};
use super::head::Head;
use super::moment;
use crate::bench::{print_json, table};
use crate::failure::Failure;
use crate::say::plain;

/// What is known of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Transaction {
    pub(super) tx: String,
    /// `committed`, `rolled_back`, or nothing yet.
    pub(super) outcome: Option<&'static str>,
    /// `client`, `agent`, `timeout`, `operator`.
    decided_by: Option<&'static str>,
    /// UTC; nothing if it is undecided or nobody noted it.
    decided_at: Option<String>,
    pub(super) may_be_lost: bool,
    /// A sentence.
    state: String,
    client: String,
    /// `connected`, `lost`, `resumable`, `fencing`, `fenced`, `never`.
    client_is: &'static str,
    age_ms: u64,
    pub(super) branches: Vec<Branch>,
    #[serde(skip)]
    pub(super) standing: Standing,
}

/// One of its branches.
#[derive(Default, Clone, Debug, Serialize)]
pub(super) struct Branch {
    pub(super) resource: String,
    number: u16,
    xid: String,
    state: String,
    /// `yes`, `read_only`, `no`; nothing if the log does not say, or was not asked.
    vote: Option<&'static str>,
    /// `committed`, `rolled_back`, `mixed`, `hazard`: it ended otherwise than decided.
    pub(super) heuristic: Option<&'static str>,
    by: Option<&'static str>,
    retries: u32,
    /// The resource's own words.
    code: String,
    message: String,
    /// Where the resource is: host, port, database, role.
    place: String,
    /// UTC, by the resource's clock; nothing if it does not tell.
    prepared_since: Option<String>,
    /// What its list says of the branch beside its name.
    listed: String,
    /// What the decision keeps of the vote, in words: the number that the server knows the branch's work by.
    witness: Option<String>,
    #[serde(skip)]
    pub(super) is_open: bool,
}

pub(super) const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack => "rolled_back",
    }
}

pub(super) const fn by(by: By) -> &'static str {
    match by {
        By::Client => "client",
        By::Agent => "agent",
        By::Timeout => "timeout",
        By::Operator => "operator",
    }
}

pub(super) const fn heuristic(heuristic: Heuristic) -> &'static str {
    match heuristic {
        Heuristic::Committed => "committed",
        Heuristic::RolledBack => "rolled_back",
        Heuristic::Mixed => "mixed",
        Heuristic::Hazard => "hazard",
    }
}

const fn standing(standing: Standing) -> (&'static str, &'static str) {
    match standing {
        Standing::Connected => ("connected", "its client is connected"),
        Standing::Lost => ("lost", "its client was lost a moment ago and may come back"),
        Standing::Resumable => ("resumable", "its client is of an earlier start and may come back"),
        Standing::Fencing => ("fencing", "its client is being fenced"),
        Standing::Fenced => ("fenced", "its client is fenced"),
        Standing::Never => ("never", "its client was never known here"),
    }
}

const fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Open => "not seen by recovery",
        Fate::Prepared => "prepared",
        Fate::Committed => "committed",
        Fate::CommittedInferred => "committed (inferred)",
        Fate::RolledBack => "rolled back",
        Fate::NotListed => "finished",
        Fate::Heuristic(Heuristic::Committed) => "committed on its own",
        Fate::Heuristic(Heuristic::RolledBack) => "rolled back on its own",
        Fate::Heuristic(Heuristic::Mixed) => "partly committed, partly rolled back on its own",
        Fate::Heuristic(Heuristic::Hazard) => "in hazard: it may have gone either way",
        Fate::Cleared => "ended on its own, forgotten by a person",
    }
}

fn state(view: &TransactionView<'_>) -> String {
    let (_, client) = standing(view.standing);
    let Some((outcome, who)) = view.decided else {
        let held = "prepared and held: its decision may be lost (a power cut, or an older copy of the folder put \
                    back), and nobody presumes";
        let open = if view.may_be_lost { held } else { "prepared and undecided" };
        return format!("{open}; {client}");
    };
    let who = match who {
        By::Client => "its client",
        By::Agent => "recovery, its client being fenced",
        By::Timeout => "recovery, a branch having been prepared for too long",
        By::Operator => "an operator",
    };
    let verb = match outcome {
        Outcome::Committed => "commit",
        Outcome::RolledBack => "roll back",
    };
    let durable = if view.is_durable { "" } else { ", not on disk yet" };
    let known = if view.is_acknowledged { "; the client knows" } else { "" };
    format!("decided by {who} to {verb}{durable}{known}; {client}")
}

impl Transaction {
    pub(super) fn of(view: &TransactionView<'_>) -> Self {
        let branch = |branch: &assent_wire::BranchView<'_>| Branch {
            resource: branch.resource.to_owned(),
            number: branch.xid.branch().map_or(0, |it| it.number),
            xid: branch.xid.to_string(),
            state: fate(branch.fate).to_owned(),
            vote: None,
            heuristic: if let Fate::Heuristic(how) = branch.fate { Some(heuristic(how)) } else { None },
            by: branch.by.map(by),
            retries: branch.retries,
            code: branch.native.code.to_owned(),
            message: branch.native.message.to_owned(),
            place: branch.place.to_owned(),
            prepared_since: (branch.prepared_ms > 0).then(|| moment::show(branch.prepared_ms)),
            listed: branch.listed.to_owned(),
            witness: assent_resources::witness_words(branch.witness),
            is_open: matches!(branch.fate, Fate::Open | Fate::Prepared),
        };
        Self {
            tx: view.tx.to_string(),
            outcome: view.decided.map(|(it, _)| outcome(it)),
            decided_by: view.decided.map(|(_, who)| by(who)),
            decided_at: (view.decided_ms > 0).then(|| moment::show(view.decided_ms)),
            may_be_lost: view.may_be_lost && view.decided.is_none(),
            state: state(view),
            client: view.client.to_owned(),
            client_is: standing(view.standing).0,
            age_ms: view.age_ms,
            branches: view.branches.iter().map(branch).collect(),
            standing: view.standing,
        }
    }

    /// What a branch voted, as the log says. One that voted and has nothing to be told is not among those that are known.
    pub(super) fn voted(&mut self, resource: &str, number: u16, vote: &'static str) {
        let known = self.branches.iter_mut().find(|one| one.resource == resource && one.number == number);
        if let Some(branch) = known {
            branch.vote = Some(vote);
            return;
        }
        let (resource, state) = (resource.to_owned(), "over".to_owned());
        self.branches.push(Branch { resource, number, state, vote: Some(vote), ..Branch::default() });
    }

    /// Its branches that are not finished, by resource and number.
    pub(super) fn open(&self) -> Vec<String> {
        let open = self.branches.iter().filter(|branch| branch.is_open);
        open.map(|branch| format!("{}#{}", branch.resource, branch.number)).collect()
    }

    pub(super) fn is_heuristic(&self) -> bool {
        self.branches.iter().any(|branch| branch.heuristic.is_some())
    }
}

impl Branch {
    /// Where it is, since when, and what the server knows it by: a line each, as far as it is known.
    fn facts(&self) -> Vec<String> {
        let place = Some(format!("at {}", plain(&self.place))).filter(|_| !self.place.is_empty());
        let since = self.prepared_since.as_ref().map(|since| format!("prepared since {since}"));
        let listed = Some(format!("listed as {}", plain(&self.listed))).filter(|_| !self.listed.is_empty());
        let voted = self.witness.as_ref().map(|words| format!("voted as {words}"));
        let xid = Some(format!("xid {}", self.xid)).filter(|_| !self.xid.is_empty());
        [place, since, listed, voted, xid].into_iter().flatten().collect()
    }

    fn words(&self) -> String {
        let retries = if self.retries > 0 { format!(", told {} times", self.retries + 1) } else { String::new() };
        let native = match (plain(&self.code), plain(&self.message)) {
            (code, message) if code.is_empty() && message.is_empty() => String::new(),
            (code, message) if code.is_empty() => format!(": {message}"),
            (code, message) => format!(": {message} ({code})"),
        };
        let vote = self.vote.map(|vote| format!("voted {}, ", vote.replace('_', "-"))).unwrap_or_default();
        format!("{}#{} {vote}{}{retries}{native}", self.resource, self.number, self.state)
    }
}

/// All of them.
pub(super) fn print(head: &Head, list: &[Transaction], json: bool) -> Result<(), Failure> {
    if json {
        let Head { held, heuristic, rivals } = head;
        let all = serde_json::json!({
            "held": held, "heuristic": heuristic, "rivals": rivals, "transactions": list
        });
        return print_json(&all);
    }
    head.lines(list.len()).iter().try_for_each(|line| say!("{line}"))?;
    if list.is_empty() {
        return Ok(());
    }
    let mut rows = table(&["transaction", "outcome", "state", "client", "age", "branches"]);
    for one in list {
        let with_place = |branch: &Branch| match branch.place.as_str() {
            "" => branch.words(),
            place => format!("{} at {}", branch.words(), plain(place)),
        };
        let branches: Vec<String> = one.branches.iter().map(with_place).collect();
        rows.add_row([
            one.tx.clone(),
            one.outcome.unwrap_or("undecided").to_owned(),
            one.state.clone(),
            plain(&one.client),
            format!("{} s", one.age_ms / 1_000),
            branches.join("\n"),
        ]);
    }
    say!("{rows}")
}

/// One, with what each choice would do.
pub(super) fn print_one(one: &Transaction, json: bool) -> Result<(), Failure> {
    let choices = choices::of(one);
    if json {
        return print_json(&serde_json::json!({ "transactions": [one], "choices": choices }));
    }
    print_facts(one)?;
    say!("choices:")?;
    for Choice { choice, is_possible, what } in &choices {
        let open = if *is_possible { "" } else { "not possible: " };
        say!("  {choice:<9} {open}{what}")?;
    }
    Ok(())
}

/// What is known of it.
pub(super) fn print_facts(one: &Transaction) -> Result<(), Failure> {
    say!("transaction {}", one.tx)?;
    say!("  outcome   {}", one.outcome.unwrap_or("undecided"))?;
    say!("  state     {}", one.state)?;
    if let Some(at) = &one.decided_at {
        say!("  decided   {at}")?;
    }
    say!("  client    {}", if one.client.is_empty() { "(no label)".to_owned() } else { plain(&one.client) })?;
    say!("  known for {} s", one.age_ms / 1_000)?;
    for branch in &one.branches {
        say!("  branch    {}", branch.words())?;
        branch.facts().iter().try_for_each(|fact| say!("            {fact}"))?;
    }
    Ok(())
}
