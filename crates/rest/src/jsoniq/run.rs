//! A query done: found, written or told of the past.
//!
//! Walk: [`run`] asks first what the caller may in the database that is meant · [`Target`] the document · writes are one commit, and
//! none where nothing changes and the request has no key · each result is JSON of its own between `{"rest":[` and `]}`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use assent_docs::{At, Database, Document, Edit, Form, Kind as NodeKind, Look, Meta, NodeKey, Revision, Run, Sample};
use assent_door::Role;
use axum::http::StatusCode;
use serde_json::json;

use super::{Past, Query, Shift, Shown, Source, Step, Which};
use crate::answer::Whole;
use crate::deadline::Deadline;
use crate::docs::{Place, When, members};
use crate::identity::Caller;
use crate::moment;
use crate::problem::Problem;

/// What is told of a write.
pub(crate) const NOTHING: &[u8] = b"{\"rest\":[]}";
/// Results of one answer.
const RESULTS_MAX: usize = 10_000;
/// Of those whose past is walked for each, and what is walked for all of them.
const SHIFTED_MAX: usize = 1_000;
const WALKED_MAX: usize = 1_000_000;
/// Items of an array that one query looks at.
const ITEMS_MAX: usize = 1_000_000;

/// Bytes of the object that records are matched with: each of its members is looked for in each of them.
const LIKE_BYTES_MAX: usize = 64 << 10;

/// What a request says beside the query.
#[derive(Debug)]
pub(crate) struct Asked {
    /// When nobody waits for it any more.
    pub(crate) deadline: Deadline,
    /// The document that the address names.
    pub(crate) here: Option<(Place, Option<When>)>,
    /// The first and the last result that are wanted.
    pub(crate) first: Option<usize>,
    pub(crate) last: Option<usize>,
    /// What its commit says, if it may write.
    pub(crate) writes: Option<Meta>,
}

impl Asked {
    /// Nothing is said but how long it may take.
    pub(crate) const fn until(deadline: Deadline) -> Self {
        Self { deadline, here: None, first: None, last: None, writes: None }
    }

    fn wanted(&self) -> Range<usize> {
        let first = self.first.unwrap_or(0);
        first..self.last.map_or(usize::MAX, |last| last.saturating_add(1))
    }
}

/// The document that is meant, and the way to the value in it.
struct Target<'q> {
    library: &'q Database,
    place: Place,
    document: Document,
    when: Option<When>,
    root: &'q [Step],
    deadline: &'q Deadline,
}

impl<'q> Target<'q> {
    fn of(
        library: &'q Database,
        caller: &Caller,
        asked: &'q Asked,
        source: &'q Source,
        role: Role,
    ) -> Result<Self, Problem> {
        let (place, when) = match (&source.name, &asked.here) {
            (Some((database, resource)), _) => {
                let place = Place { database: database.clone(), resource: resource.clone() };
                (place, source.when.as_deref().map(When::of).transpose()?)
            }
            (None, Some((place, when))) => (place.clone(), when.clone()),
            (None, None) => return Err(Problem::invalid("JSONiq: . names nothing here; ask at /DATABASE/RESOURCE")),
        };
        caller.may(role, Some(&place.database))?;
        if place.database.contains('/') || place.resource.contains('/') || place.resource.is_empty() {
            return Err(Problem::not_found("JSONiq: there is no such document: a name has no / in it"));
        }
        Ok(Self { document: place.find(library)?, library, place, when, root: &source.root, deadline: &asked.deadline })
    }

    fn revision(&self) -> Result<Revision, Problem> {
        self.when.as_ref().map_or_else(|| Ok(self.document.latest()), |when| when.find(&self.document))
    }

    fn edit(&self) -> Result<Edit, Problem> {
        if self.when.is_some() {
            return Err(Problem::invalid("JSONiq: what was is not changed; leave the revision out"));
        }
        self.place.edit(self.library, self.deadline)
    }

    /// The value at the end of the way.
    fn value(&self, look: &impl Look) -> Result<Option<NodeKey>, Problem> {
        let mut at = look.value();
        for step in self.root {
            let Some(key) = at else { break };
            at = match (step, look.item(key)?.node.kind) {
                (Step::Member(name), NodeKind::Object) => look.member(key, name)?,
                (Step::Index(index), NodeKind::Array) => nth(look, key, *index, self.deadline)?,
                _ => None,
            };
        }
        Ok(at)
    }

    /// The items of the array there, or the value alone.
    fn items(&self, look: &impl Look) -> Result<Vec<NodeKey>, Problem> {
        let Some(value) = self.value(look)? else { return Ok(Vec::new()) };
        let node = look.item(value)?.node;
        if node.kind != NodeKind::Array {
            return Ok(vec![value]);
        }
        let (mut items, mut next) = (Vec::new(), node.first);
        while let Some(key) = next {
            if items.len() == ITEMS_MAX {
                let detail =
                    format!("JSONiq: an array of more than {ITEMS_MAX} items; ask for a part of it by JSONPath");
                return Err(Problem::invalid(detail));
            }
            self.deadline.check_at(items.len())?;
            items.push(key);
            next = look.item(key)?.node.right;
        }
        Ok(items)
    }
}

fn nth(look: &impl Look, array: NodeKey, index: u64, deadline: &Deadline) -> Result<Option<NodeKey>, Problem> {
    let mut next = look.item(array)?.node.first;
    for turn in 0..usize::try_from(index).unwrap_or(usize::MAX) {
        deadline.check_at(turn)?;
        let Some(key) = next else { break };
        next = look.item(key)?.node.right;
    }
    Ok(next)
}

/// Does it, and gives the results.
pub(crate) fn run(library: &Database, caller: &Caller, query: &Query, asked: &Asked) -> Result<Vec<u8>, Problem> {
    let said = match &asked.writes {
        None if query.is_write() => return Err(Problem::invalid("JSONiq: a GET changes nothing; POST it to /")),
        said => said.clone().unwrap_or_default(),
    };
    let of = |source, role| Target::of(library, caller, asked, source, role);
    let mut results = Results::new(asked);
    match query {
        Query::Value(source) => {
            let target = of(source, Role::View)?;
            let revision = target.revision()?;
            let values =
                if source.unboxed { target.items(&revision)? } else { target.value(&revision)?.into_iter().collect() };
            values.into_iter().try_for_each(|key| results.add(|| text(&revision, key)))?;
        }
        Query::Find { which, shift, shown } => {
            let target = of(which.source(), Role::View)?;
            let revision = target.revision()?;
            let found = which.find(&target, &revision)?;
            found.into_iter().try_for_each(|key| results.add_one(&target, &revision, key, *shift, shown))?;
        }
        Query::History { node, key, past } => history(&of(node, Role::View)?, NodeKey(*key), *past, &mut results)?,
        Query::Append { into, value, each } => append(&of(into, Role::Modify)?, &said, value, *each)?,
        Query::Update { which, fields, upsert } => {
            let fields = members(fields.as_bytes())?;
            let fields = last_of_each(&fields);
            let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            change(&of(which.source(), Role::Modify)?, &said, which, |edit, record| {
                let mut missing = Vec::new();
                for (field, there) in fields.iter().zip(edit.members(record, &names)?) {
                    match there {
                        Some(member) => _ = edit.replace(member, field.1)?,
                        None => missing.push(*field),
                    }
                }
                if *upsert {
                    edit.insert_members(At::Last(record), &missing)?;
                }
                Ok(())
            })?;
        }
        Query::DeleteFields { which, fields } => {
            change(&of(which.source(), Role::Delete)?, &said, which, |edit, record| {
                let names: BTreeSet<&str> = fields.iter().map(String::as_str).collect();
                let names: Vec<&str> = names.into_iter().collect();
                for member in edit.members(record, &names)?.into_iter().flatten() {
                    edit.remove(member)?;
                }
                Ok(())
            })?;
        }
        Query::DeleteRecords(which) => {
            change(&of(which.source(), Role::Delete)?, &said, which, |edit, record| {
                edit.remove(record)?;
                Ok(())
            })?;
        }
    }
    results.end()
}

impl Which {
    const fn source(&self) -> &Source {
        match self {
            Self::Key(source, _) | Self::Like(source, _) => source,
        }
    }

    /// The records that are meant.
    fn find(&self, target: &Target<'_>, look: &impl Look) -> Result<Vec<NodeKey>, Problem> {
        match self {
            Self::Key(_, key) => {
                let node = look.item(NodeKey(*key))?.node;
                if node.kind != NodeKind::Object {
                    return Err(Problem::invalid(format!("JSONiq: node {key} is no object")));
                }
                Ok(vec![node.key])
            }
            Self::Like(_, like) => {
                if like.len() > LIKE_BYTES_MAX {
                    let size = like.len();
                    let detail = format!(
                        "JSONiq: records are matched with an object of {size} bytes; it has at most {LIKE_BYTES_MAX}"
                    );
                    return Err(Problem::invalid(detail).status(StatusCode::PAYLOAD_TOO_LARGE));
                }
                let wrong = |error| Problem::invalid(format!("JSONiq: records are matched with an object: {error}"));
                let like = Sample::of(like.as_bytes()).map_err(wrong);
                let (like, is_wanted) = (like?, || !target.deadline.is_over());
                let mut found = Vec::new();
                for key in target.items(look)? {
                    target.deadline.check()?;
                    match like.is_part_of(look, key, &is_wanted)? {
                        Some(true) => found.push(key),
                        Some(false) => {}
                        None => return Err(target.deadline.over()),
                    }
                }
                Ok(found)
            }
        }
    }
}

/// The members of a change, each name once: what stands last counts.
fn last_of_each<'a>(fields: &'a [(String, &'a [u8])]) -> Vec<(&'a str, &'a [u8])> {
    let last: HashMap<&str, &[u8]> = fields.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let mut told = HashSet::new();
    let names = fields.iter().map(|(name, _)| name.as_str()).filter(|name| told.insert(*name));
    names.filter_map(|name| last.get(name).map(|value| (name, *value))).collect()
}

fn text(look: &impl Look, key: NodeKey) -> Result<Vec<u8>, Problem> {
    let mut whole = Whole::new();
    let written = Form { start: Some(key), ..Form::default() }.write(look, &mut whole);
    whole.taken(written)
}

fn append(target: &Target<'_>, said: &Meta, value: &str, each: bool) -> Result<(), Problem> {
    let mut edit = target.edit()?;
    let into = target.value(&edit)?;
    let into = into.filter(|key| edit.item(*key).is_ok_and(|item| item.node.kind == NodeKind::Array));
    let into = into.ok_or_else(|| Problem::invalid("JSONiq: what is appended goes to an array, and there is none"))?;
    let at = At::Last(into);
    if each {
        let items: Vec<&serde_json::value::RawValue> = serde_json::from_str(value)
            .map_err(|error| Problem::invalid(format!("JSONiq: several records are a list: {error}")))?;
        items.iter().try_for_each(|item| edit.insert_json(at, None, item.get().as_bytes()).map(drop))?;
    } else {
        edit.insert_json(at, None, value.as_bytes())?;
    }
    edit.commit(said)?;
    Ok(())
}

/// Changes each record that is meant, in one commit. Where nothing changes there is none, unless it says what is done once: else that would be done
/// again, to what came since.
fn change(
    target: &Target<'_>,
    said: &Meta,
    which: &Which,
    mut one: impl FnMut(&mut Edit, NodeKey) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut edit = target.edit()?;
    for record in which.find(target, &edit)? {
        target.deadline.check()?;
        one(&mut edit, record)?;
    }
    edit.commit(said)?;
    Ok(())
}

/// The runs of a node up to a revision, the newest first.
fn runs(target: &Target<'_>, key: NodeKey, to: u32, limit: usize) -> Result<Vec<Run>, Problem> {
    let go_on = || !target.deadline.is_over();
    match target.document.node_runs_while(key, 1..=to, limit, go_on)? {
        Some(runs) => Ok(runs),
        None => target.deadline.check().map(|()| Vec::new()),
    }
}

/// The revisions in which a node became another one, the oldest first.
fn history(target: &Target<'_>, key: NodeKey, past: Past, results: &mut Results<'_>) -> Result<(), Problem> {
    target.revision()?.item(key)?;
    let newest = target.document.latest().number();
    let runs = runs(target, key, newest, usize::MAX)?;
    for run in runs.iter().rev().filter(|run| run.node.is_some()) {
        let number = *run.revisions.start();
        let (time, node) = (moment::show(run.time_ms), || text(&target.document.at(number)?, key));
        results.add(|| {
            let told = json!({"revisionNumber": number, "revisionTimestamp": time}).to_string().into_bytes();
            Ok(match past {
                Past::Revisions => told,
                Past::Values => node()?,
                Past::Items => with(told, "revision", &node()?),
            })
        })?;
    }
    Ok(())
}

/// An object's text with one member more.
fn with(mut object: Vec<u8>, name: &str, value: &[u8]) -> Vec<u8> {
    object.pop();
    if object.len() > 1 {
        object.push(b',');
    }
    object.extend_from_slice(json!(name).to_string().as_bytes());
    object.push(b':');
    object.extend_from_slice(value);
    object.push(b'}');
    object
}

/// What is answered, as far as it is wanted.
struct Results<'q> {
    deadline: &'q Deadline,
    wanted: Range<usize>,
    seen: usize,
    /// Changes of records that were walked.
    walked: usize,
    bytes: Whole,
    is_first: bool,
}

impl<'q> Results<'q> {
    fn new(asked: &'q Asked) -> Self {
        Self {
            deadline: &asked.deadline,
            wanted: asked.wanted(),
            seen: 0,
            walked: 0,
            bytes: Whole::new(),
            is_first: true,
        }
    }

    fn add(&mut self, result: impl FnOnce() -> Result<Vec<u8>, Problem>) -> Result<(), Problem> {
        self.add_within(RESULTS_MAX, result)
    }

    fn add_within(&mut self, most: usize, result: impl FnOnce() -> Result<Vec<u8>, Problem>) -> Result<(), Problem> {
        self.deadline.check()?;
        let place = self.seen;
        self.seen += 1;
        if !self.wanted.contains(&place) {
            return Ok(());
        }
        if place - self.wanted.start >= most {
            let how = "startResultSeqIndex and endResultSeqIndex ask for a part";
            return Err(Problem::invalid(format!("JSONiq: one answer has at most {most} such results; {how}")));
        }
        let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
        self.bytes.add(comma.as_bytes())?;
        self.bytes.add(&result()?)
    }

    fn add_one(
        &mut self,
        target: &Target<'_>,
        revision: &Revision,
        key: NodeKey,
        shift: Shift,
        shown: &Shown,
    ) -> Result<(), Problem> {
        if shift == Shift::None {
            return self.add(|| record(revision, key, shown));
        }
        // The newest but one, where the newest is that it is gone; or all, for the first.
        let runs_max = if shift == Shift::Last { 2 } else { WALKED_MAX.saturating_sub(self.walked) };
        let mut walked = 0;
        self.add_within(SHIFTED_MAX, || {
            let runs = runs(target, key, target.document.latest().number(), runs_max)?;
            walked = runs.len();
            if shift == Shift::First && walked == runs_max {
                let detail = format!("JSONiq: more than {WALKED_MAX} changes of records; ask for fewer records");
                return Err(Problem::invalid(detail));
            }
            let mut there = runs.iter().filter(|run| run.node.is_some());
            let number = match shift {
                Shift::First => there.next_back().map(|run| *run.revisions.start()),
                _ => there.next().map(|run| *run.revisions.end()),
            };
            let then = number.map_or_else(|| Ok(revision.clone()), |number| target.document.at(number))?;
            record(&then, key, shown)
        })?;
        self.walked += walked;
        Ok(())
    }

    fn end(self) -> Result<Vec<u8>, Problem> {
        let inside = self.bytes.taken(Ok::<_, Problem>(()))?;
        Ok([&b"{\"rest\":["[..], &inside, b"]}"].concat())
    }
}

/// A record as it is shown.
fn record(look: &impl Look, key: NodeKey, shown: &Shown) -> Result<Vec<u8>, Problem> {
    let mut bytes = text(look, key)?;
    if shown.node_key {
        bytes = with(bytes, "nodeKey", key.0.to_string().as_bytes());
    }
    if shown.hash {
        let hash = look.hash(&look.item(key)?)?;
        bytes = with(bytes, "hash", format!("\"{hash:016x}\"").as_bytes());
    }
    let Some(fields) = &shown.fields else { return Ok(bytes) };
    let mut part = b"{}".to_vec();
    for (name, value) in members(&bytes)? {
        if fields.contains(&name) {
            part = with(part, &name, value);
        }
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use assent_docs::{Config, Versioning};
    use assent_door::Grants;
    use assent_journal::Journal;
    use assent_world::{Clock, RealClock, RealDice, RealDisk};

    use super::*;

    #[test]
    fn whoever_is_not_waited_for_any_more_stops_in_the_middle_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock) as Arc<dyn Clock>);
        let config = assent_journal::Config { kept_until_released: true, ..Default::default() };
        let log =
            Journal::open(disk.clone(), Arc::clone(&clock), Arc::new(RealDice), &folder.path().join("log"), config);
        let index = folder.path().join("index");
        let db = Database::open(log.unwrap().0, disk, Arc::clone(&clock), &index, Config::default()).unwrap();
        db.create("shop/", Versioning::default()).unwrap();
        let doc = db.create("shop/books", Versioning::default()).unwrap();
        let mut edit = doc.edit().unwrap();
        edit.insert_json(At::Last(NodeKey::DOCUMENT), None, br#"[{"a":1},{"a":2}]"#.as_slice()).unwrap();
        edit.commit(&Meta::default()).unwrap();
        let caller = Caller { name: "ann".into(), shown: None, grants: Arc::new(Grants::all()) };
        let source = || Source {
            name: Some(("shop".to_owned(), "books".to_owned())),
            when: None,
            root: Vec::new(),
            unboxed: true,
        };
        let like = || Which::Like(source(), "{}".to_owned());
        let shown = Shown::default();
        let queries = [
            Query::Value(source()),
            Query::Find { which: like(), shift: Shift::None, shown: shown.clone() },
            Query::Find { which: Which::Key(source(), 2), shift: Shift::First, shown },
            Query::History { node: source(), key: 2, past: Past::Revisions },
            Query::DeleteRecords(like()),
        ];
        for query in queries {
            let run = |patience| {
                let deadline = Deadline::after(&clock, patience);
                run(&db, &caller, &query, &Asked { writes: Some(Meta::default()), ..Asked::until(deadline) })
            };
            let stopped = run(Duration::ZERO).unwrap_err();
            assert_eq!(stopped.kind, "unavailable", "{query:?}: {stopped:?}");
            assert_eq!(doc.latest().number(), 1, "{query:?}");
            assert!(run(Duration::from_secs(3_600)).is_ok(), "{query:?}");
        }
        assert_eq!(doc.latest().number(), 2);
    }
}
