//! The shapes of bodies. Fields that are not told here may be there: whoever reads them passes over what he does not know.

use serde_json::{Map, Value, json};

/// All of them, by name.
pub(super) fn all() -> Value {
    let parts = [shared(), admin(), documents()];
    let of = |part: Value| part.as_object().cloned().unwrap_or_default();
    parts.into_iter().flat_map(of).collect::<Map<_, _>>().into()
}

fn text() -> Value {
    json!({"type": "string"})
}

fn number() -> Value {
    json!({"type": "integer", "format": "int64"})
}

fn object(required: &[&str], fields: &Value) -> Value {
    json!({"type": "object", "required": required, "properties": fields})
}

fn list(of: &Value) -> Value {
    json!({"type": "array", "items": of})
}

fn of(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn or_null(what: &str) -> Value {
    json!({"type": [what, "null"]})
}

fn shared() -> Value {
    json!({
        "Any": {"description": "Any JSON value."},
        "Object": {"type": "object"},
        "Problem": object(
            &["type", "title", "status", "detail", "instance", "kind", "requestId", "statusCode", "message"],
            &json!({
                "type": text(), "title": text(), "status": number(), "detail": text(), "instance": text(), "kind": text(),
                "requestId": text(), "statusCode": number(), "message": text(),
            }),
        ),
        "State": object(&["state"], &json!({"state": {"type": "string"}, "checks": {"type": "object"}})),
        "Login": {
            "type": "object",
            "description": "A name and a password, or a refresh token.",
            "properties": {
                "grant_type": {"type": "string", "enum": ["password", "refresh_token"]}, "username": text(),
                "password": text(), "refresh_token": text(),
            },
        },
        "Logout": {"type": "object", "properties": {"refresh_token": text()}},
        "Tokens": object(
            &["access_token", "token_type", "expires_in", "refresh_token"],
            &json!({
                "access_token": text(), "token_type": text(), "expires_in": number(), "refresh_token": text(),
                "refresh_expires_in": number(),
            }),
        )
    })
}

fn admin() -> Value {
    json!({
        "Version": object(
            &["version", "node"],
            &json!({"version": text(), "node": text(), "coordinator": or_null("object"), "kv": {"type": "boolean"}}),
        ),
        "Level": object(&["level"], &json!({"level": text()})),
        "Keyspace": object(&["name", "number"], &json!({"name": text(), "number": number(), "created_ms": number()})),
        "Keyspaces": object(&["keyspaces"], &json!({"keyspaces": list(&of("Keyspace"))})),
        "Key": object(
            &["etag", "bytes", "modified_ms"],
            &json!({
                "key": text(), "key_base64": text(), "value": text(), "value_base64": text(), "etag": text(), "bytes": number(),
                "modified_ms": number(), "expires_ms": number(), "metadata_base64": text(),
            }),
        ),
        "Keys": object(&["keys", "next"], &json!({"keys": list(&of("Key")), "next": or_null("string")})),
        "Begin": {
            "type": "object",
            "properties": {
                "seconds": {"type": "integer", "minimum": 1, "maximum": 3600}, "message": text(),
                "writes": writes(), "commit": {"type": "boolean"},
            },
        },
        "Transaction": object(&["tx", "state"], &json!({"tx": text(), "state": text()})),
        "Transactions": object(
            &["transactions", "next"],
            &json!({"open": list(&of("Object")), "transactions": list(&of("Object")), "next": or_null("string")}),
        ),
        "Write": write(),
        "Writes": object(&["writes"], &json!({"writes": writes()})),
        "Force": object(
            &["outcome", "reason"],
            &json!({"outcome": {"type": "string", "enum": ["commit", "rollback"]}, "reason": text()}),
        ),
        "Forced": object(&["tx", "outcome"], &json!({"tx": text(), "outcome": text()})),
        "Forget": object(&["reason"], &json!({"reason": text()}))
    })
}

/// As many as `v1` takes.
fn writes() -> Value {
    json!({"type": "array", "items": of("Write"), "maxItems": 10_000})
}

fn write() -> Value {
    json!({
        "type": "object",
        "description": "Of a key: `keyspace`, `key` and `value`, or `delete`. Of a document: one of `put`, `patch`, `merge`, or \
                        `delete` with `node`.",
        "properties": {
            "keyspace": {"type": ["integer", "string"]}, "key": text(), "key_base64": text(), "value": text(),
            "value_base64": text(), "metadata_base64": text(), "expires_ms": number(), "delete": {"type": "boolean"},
            "if": {"type": ["integer", "string"], "description": "`absent`, `present`, or the tag of what must be there."},
            "document": {"type": "string", "description": "`DATABASE/RESOURCE`."}, "node": number(),
            "insert": {"type": "string", "enum": ["asFirstChild", "asLeftSibling", "asRightSibling", "replace"]},
            "put": {}, "patch": of("JsonPatch"), "merge": {},
        },
    })
}

fn documents() -> Value {
    json!({
        "Databases": object(
            &["databases"],
            &json!({"databases": list(&object(&["name", "type"], &json!({"name": text(), "type": text(), "resources": list(&text())})))}),
        ),
        "Query": object(
            &["query"],
            &json!({"query": text(), "startResultSeqIndex": number(), "endResultSeqIndex": number(), "commitMessage": text()}),
        ),
        "Results": object(&["rest"], &json!({"rest": list(&of("Any"))})),
        "Resources": object(&["resources"], &json!({"resources": list(&text())})),
        "Files": {
            "type": "object",
            "description": "Each file is a document; its name, without `.json`, is the document's.",
            "additionalProperties": {"type": "string", "contentMediaType": "application/json"},
        },
        "Tag": object(&["tag", "revision"], &json!({"tag": text(), "revision": number()})),
        "Tags": object(&["tags", "next"], &json!({"tags": list(&of("Tag")), "next": or_null("string")})),
        "History": object(
            &["history"],
            &json!({"history": list(&object(
                &["revision", "revisionTimestamp", "author", "commitMessage"],
                &json!({"revision": number(), "revisionTimestamp": text(), "author": text(), "commitMessage": text()}),
            ))}),
        ),
        "Diff": object(
            &["database", "resource", "old-revision", "new-revision", "diffs"],
            &json!({
                "database": text(), "resource": text(), "old-revision": number(), "new-revision": number(),
                "diffs": list(&of("Object")),
            }),
        ),
        "PathSummary": object(
            &["revision", "pathSummary"],
            &json!({"revision": number(), "pathSummary": list(&object(
                &["path", "references"],
                &json!({"path": text(), "references": number()}),
            ))}),
        ),
        "JsonPatch": list(&object(&["op", "path"], &json!({"op": text(), "path": text(), "from": text(), "value": {}})))
    })
}
