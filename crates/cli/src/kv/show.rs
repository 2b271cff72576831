//! What is printed of keys and of a store.

use std::io;
use std::process::ExitCode;

use assent_kind::Kind;
use assent_kv::Keyspace;
use serde_json::{Map, json};

use super::options::{Head, Stats};
use super::store::{Checked, Known, Store};
use super::{absent, key, line};
use crate::bench::{print_json, table};
use crate::failure::Failure;
use crate::say::plain;
use crate::tx::moment;

/// A line for people: key, tab, value.
pub(super) fn row(out: &mut impl io::Write, known: &Known, hex: bool) -> io::Result<()> {
    out.write_all(key::show(&known.key, hex).as_bytes())?;
    if let Some(value) = &known.value {
        out.write_all(b"\t")?;
        out.write_all(value)?;
    }
    out.write_all(b"\n")
}

/// `assent kv head`: exit code 3 if any is not there.
pub(super) fn heads(options: &Head, json: bool) -> Result<ExitCode, Failure> {
    let store = Store::open(&options.from)?;
    let keys = options.keys.iter().map(|key| key::parse(key, &options.naming)).collect::<Result<Vec<_>, _>>()?;
    let found = store.heads(store.keyspace(&options.naming.keyspace)?, &keys)?;
    if json {
        let heads: Vec<_> = found.iter().flatten().map(head).collect();
        let missing: Vec<_> =
            options.keys.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(key, _)| key).collect();
        print_json(&json!({"heads": heads, "missing": missing}))?;
        return Ok(if missing.is_empty() { ExitCode::SUCCESS } else { Kind::NotFound.exit_code().into() });
    }
    let mut rows = table(&["key", "bytes", "written at", "modified", "expires", "hash", "metadata"]);
    for known in found.iter().flatten() {
        let time = |ms: u64, none: &str| if ms == 0 { none.to_owned() } else { moment::show(ms) };
        rows.add_row([
            plain(&key::show(&known.key, options.naming.hex)),
            known.value_bytes.to_string(),
            known.lsn.to_string(),
            time(known.modified_ms, "not known"),
            time(known.expiry_ms, "never"),
            format!("{:016x}", known.hash),
            plain(&String::from_utf8_lossy(&known.metadata)),
        ]);
    }
    if found.iter().any(Option::is_some) {
        say!("{rows}")?;
    }
    let missing = options.keys.iter().zip(&found).find(|(_, found)| found.is_none());
    missing.map_or(Ok(ExitCode::SUCCESS), |(key, _)| Err(absent(key)))
}

fn head(known: &Known) -> serde_json::Value {
    let mut fields = match line::object(known) {
        serde_json::Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.insert("value_bytes".to_owned(), known.value_bytes.into());
    fields.insert("hash".to_owned(), format!("{:016x}", known.hash).into());
    fields.into()
}

/// `assent kv stats`.
pub(super) fn stats(options: &Stats, json: bool) -> Result<(), Failure> {
    let gauges = Store::open(&options.from)?.stats()?;
    if json {
        let fields: Map<_, _> = gauges.into_iter().map(|(name, value)| (name, value.into())).collect();
        return print_json(&fields);
    }
    let mut rows = table(&["", ""]);
    for (name, value) in &gauges {
        let shown = if name.ends_with("_bytes") { bytes(*value) } else { value.to_string() };
        rows.add_row([name.replace('_', " "), shown]);
    }
    say!("{rows}")
}

/// `assent kv verify`.
pub(super) fn verified(found: &Checked, json: bool) -> Result<ExitCode, Failure> {
    let told = if json { print_json(found) } else { tell(found) };
    // Damage is said by the exit code, whoever hears the rest.
    if found.damaged > 0 { Ok(Kind::Corrupt.exit_code().into()) } else { told.map(|()| ExitCode::SUCCESS) }
}

fn tell(found: &Checked) -> Result<(), Failure> {
    found.damages.iter().try_for_each(|damage| say!("{}", plain(damage)))?;
    let Checked { runs, volumes, entries, values, damaged, .. } = found;
    let how = match damaged {
        0 => "everything is as it was written".to_owned(),
        many => format!("{many} places are damaged"),
    };
    say!("{how}: {values} values, {entries} journal entries, {volumes} volumes, {runs} files of the ledger")
}

/// `assent kv keyspace list`.
pub(super) fn keyspaces(all: &[Keyspace], json: bool) -> Result<(), Failure> {
    if json {
        let one = |it: &Keyspace| json!({"id": it.id, "name": it.name, "created_ms": it.created});
        return print_json(&json!({"keyspaces": all.iter().map(one).collect::<Vec<_>>()}));
    }
    let mut rows = table(&["name", "number", "made"]);
    for Keyspace { id, name, created } in all {
        rows.add_row([plain(name), id.to_string(), moment::show(*created)]);
    }
    say!("{rows}")
}

/// Bytes as people read them.
fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.iter().find(|(_, size)| bytes >= *size);
    unit.map_or_else(
        || bytes.to_string(),
        |(name, size)| format!("{}.{} {name}", bytes / size, bytes % size * 10 / size),
    )
}
