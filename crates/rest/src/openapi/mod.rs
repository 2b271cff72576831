//! What the listeners serve, as OpenAPI 3.1 has it: one row an operation, with the roles that it takes.
//!
//! Walk: `admin` and `documents` have the rows, `schemas` the shapes · [`document`] lays them · `viewer` shows them to people ·
//! the tests compare the rows with the routes of the source, and walk each row with each role.
//! Deliberately absent: a framework that derives this from handlers. They take requests apart by hand; a table is read at once.

mod admin;
mod documents;
mod schemas;

use assent_door::Role;
use serde_json::{Map, Value, json};

pub(crate) use admin::ADMIN;
pub(crate) use documents::DOCUMENTS;

/// One method of one path.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    pub(crate) says: &'static str,
    /// One of these; none: anybody may ask.
    pub(crate) takes: &'static [(Role, Reach)],
    pub(crate) asks: &'static [Param],
    pub(crate) body: Option<Sent>,
    pub(crate) answers: &'static [Answer],
}

/// Where a role must count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reach {
    /// Everywhere.
    Server,
    /// Everywhere, or in the database or keyspace that the path names.
    Named,
    /// In any database or keyspace.
    Anywhere,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Query,
    Header,
}

/// A parameter of a query, or a header.
#[derive(Debug)]
pub(crate) struct Param {
    name: &'static str,
    place: Place,
    what: What,
    says: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Text,
    /// At least this.
    Number(u32),
    Flag,
    Word(&'static [&'static str]),
    Moment,
}

pub(crate) const fn query(name: &'static str, what: What, says: &'static str) -> Param {
    Param { name, place: Place::Query, what, says }
}

pub(crate) const fn header(name: &'static str, says: &'static str) -> Param {
    Param { name, place: Place::Header, what: What::Text, says }
}

/// What a request has in its body.
#[derive(Debug)]
pub(crate) struct Sent {
    media: &'static [Media],
    required: bool,
}

pub(crate) const fn sent(media: &'static [Media]) -> Option<Sent> {
    Some(Sent { media, required: true })
}

pub(crate) const fn perhaps(media: &'static [Media]) -> Option<Sent> {
    Some(Sent { media, required: false })
}

/// A type of content, and the shape of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Media {
    /// JSON of a shape in `schemas`.
    Json(&'static str),
    /// The same under another name.
    As(&'static str, &'static str),
    Bytes,
    Text(&'static str),
}

#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    says: &'static str,
    media: Option<Media>,
}

pub(crate) const fn answer(status: u16, says: &'static str, media: Media) -> Answer {
    Answer { status, says, media: Some(media) }
}

pub(crate) const fn bare(status: u16, says: &'static str) -> Answer {
    Answer { status, says, media: None }
}

impl What {
    fn schema(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Number(least) => json!({"type": "integer", "format": "int64", "minimum": least}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Word(words) => json!({"type": "string", "enum": words}),
            Self::Moment => json!({"type": "string", "examples": ["2026-11-21T07:05:17.123Z"]}),
        }
    }
}

impl Media {
    fn entry(self) -> (String, Value) {
        let of = |name: &str| json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
        match self {
            Self::Json(name) => ("application/json".to_owned(), of(name)),
            Self::As(kind, name) => (kind.to_owned(), of(name)),
            Self::Bytes => ("application/octet-stream".to_owned(), json!({"schema": {}})),
            Self::Text(kind) => (kind.to_owned(), json!({"schema": {"type": "string"}})),
        }
    }
}

/// Most of them; its roles, and what it asks and answers, stand before.
const fn row(method: &'static str, path: &'static str, id: &'static str, says: &'static str) -> Operation {
    Operation { method, path, id, says, takes: &[], asks: &[], body: None, answers: &[] }
}

/// Told by both listeners.
const ONCE: Param =
    header("Idempotency-Key", "Done once: sent again under this key, it is told what the first one was.");
const PREFER: Param = header("Prefer", "`return=minimal`: without a body.");

/// What stands in braces.
fn path_param(name: &str) -> Value {
    let says = match name {
        "database" => "A name of 1 to 255 bytes, without / and control characters.",
        "resource" => "The document's name, as a database's.",
        "keyspace" => "A number, or the name of a keyspace.",
        "key" => "Any bytes, behind percent signs where they are no letters; a / may stand as it is.",
        "tx" => "A transaction, as the answer that began it names it.",
        "tag" => "A name of 1 to 255 bytes, without control characters.",
        "name" => "A name that is no number.",
        _ => "",
    };
    json!({"name": name, "in": "path", "required": true, "description": says, "schema": {"type": "string", "minLength": 1}})
}

impl Operation {
    /// The path as OpenAPI writes it.
    fn shown(&self) -> String {
        self.path.replace("{*", "{")
    }

    fn parameters(&self) -> Vec<Value> {
        let shown = self.shown();
        let names = shown.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        let own = names.map(|(name, _)| path_param(name));
        let asked = self.asks.iter().map(|param| {
            let place = match param.place {
                Place::Query => "query",
                Place::Header => "header",
            };
            json!({"name": param.name, "in": place, "description": param.says, "schema": param.what.schema()})
        });
        own.chain(asked).collect()
    }

    fn roles(&self) -> (String, Value) {
        let word = |reach: Reach| match reach {
            Reach::Server => ("server", "everywhere"),
            Reach::Named => ("named", "everywhere, or where the path points"),
            Reach::Anywhere => ("anywhere", "anywhere"),
        };
        let list: Vec<Value> =
            self.takes.iter().map(|(role, reach)| json!({"role": role.name(), "reach": word(*reach).0})).collect();
        let said = self.takes.iter().map(|(role, reach)| format!("`{role}` {}", word(*reach).1));
        let said = said.collect::<Vec<_>>().join(", or ");
        let said = if said.is_empty() { "Anybody may ask.".to_owned() } else { format!("Takes the role {said}.") };
        (said, list.into())
    }

    fn lay(&self, tag: &str) -> Value {
        let (said, roles) = self.roles();
        let mut answers = Map::new();
        for Answer { status, says, media } in self.answers {
            let mut one = json!({"description": says});
            if let (Some(media), Some(fields)) = (media, one.as_object_mut()) {
                fields.insert("content".to_owned(), Map::from_iter([media.entry()]).into());
            }
            answers.insert(status.to_string(), one);
        }
        answers.insert("default".to_owned(), json!({"$ref": "#/components/responses/Problem"}));
        let mut one = json!({
            "operationId": self.id, "summary": self.says, "description": said, "tags": [tag],
            "x-assent-roles": roles, "parameters": self.parameters(), "responses": answers,
        });
        if let Some(fields) = one.as_object_mut() {
            if let Some(Sent { media, required }) = &self.body {
                let content = media.iter().map(|it| it.entry()).collect::<Map<_, _>>();
                fields.insert("requestBody".to_owned(), json!({"required": required, "content": content}));
            }
            if self.takes.is_empty() {
                fields.insert("security".to_owned(), json!([]));
            }
        }
        one
    }

    /// Operations of one thing stand together.
    fn tag(&self) -> &'static str {
        match self.path.split('/').nth(if self.path.starts_with("/v1/") { 2 } else { 1 }).unwrap_or_default() {
            "keys" | "keyspaces" => "keys",
            "transactions" | "history" => "transactions",
            "token" | "logout" | "user" => "identity",
            "" | "{database}" => "documents",
            _ => "server",
        }
    }
}

/// A listener's operations as an OpenAPI document.
pub(crate) fn document(title: &str, operations: &[Operation]) -> Value {
    let mut paths = Map::new();
    for one in operations {
        let entry = paths.entry(one.shown()).or_insert_with(|| json!({}));
        if let Some(methods) = entry.as_object_mut() {
            methods.insert(one.method.to_lowercase(), one.lay(one.tag()));
        }
    }
    let problem = json!({
        "description": "What went wrong: a problem detail (RFC 9457). `kind` says what to do: retry `busy` and `unavailable` after \
                        `Retry-After`, look where it is `in_doubt`, never repeat `invalid`.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Every parameter must be known: another one is 400. Every answer has `X-Request-Id`.",
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": {"Problem": problem},
            "schemas": schemas::all(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_another_one_and_every_shape_that_is_named_is_there() {
        let shapes = schemas::all();
        for (title, operations) in [("admin", ADMIN), ("documents", DOCUMENTS)] {
            let laid = document(title, operations);
            let methods = |it: &Value| it.as_object().map_or(0, Map::len);
            let many: usize = laid["paths"].as_object().unwrap().values().map(methods).sum();
            assert_eq!(many, operations.len(), "{title}: two rows have one method and path");
            let mut ids: Vec<_> = operations.iter().map(|one| one.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), operations.len(), "{title}: two rows have one name");
            let text = laid.to_string();
            for (name, _) in text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split_once('"')) {
                assert!(shapes.get(name).is_some(), "{title}: no shape {name:?}");
            }
        }
    }
}
