//! `assent kv`: a store's keys, from the command line.
//!
//! Walk: [`run`] the verbs · `store` where keys are read, a running server or a stopped one's folder · `key` keys and ranges as
//! people write them · `line` an object as a line of JSON, `sheet` as a row of CSV, `rows` those of a file · `load` many of them in · `show`
//! what is printed · `whole` a file that takes its name at its end.
//! Values are bytes: they come and go as they are, by stdin, stdout and files.

mod key;
mod line;
mod load;
pub(crate) mod options;
mod rows;
mod sheet;
mod show;
mod store;
mod whole;

use std::io::{self, BufWriter, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use assent_ids::Lsn;
use assent_kind::Kind;
use assent_link::Link;
use assent_wire::{Answer, Compacted, Condition, Expect, Op, Request, Write, WriteIf};
use assent_world::{Clock as _, RealClock};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use self::key::Span;
use self::options::{Delete, Export, Format, Get, If, Kv, Put, Scan};
use self::store::{Store, serving, waiting};
use self::whole::Whole;
use crate::bench::print_json;
use crate::failure::Failure;
use crate::say;
use crate::tx::moment;

/// The longest value.
const VALUE_BYTES_MAX: u64 = assent_kv::VALUE_BYTES_MAX as u64;

/// Runs the command.
pub(crate) fn run(command: Kv, json: bool) -> Result<ExitCode, Failure> {
    match command {
        Kv::Put(options) => put(&options, json),
        Kv::Get(options) => get(&options, json),
        Kv::Head(options) => return show::heads(&options, json),
        Kv::Delete(options) => delete(&options, json),
        Kv::Scan(options) => scan(&options, json),
        Kv::Load(options) => return load::run(&options, json),
        Kv::Export(options) => export(&options, json),
        Kv::Stats(options) => show::stats(&options, json),
        Kv::Verify(options) => return show::verified(&Store::open_for_long(&options.from)?.verify()?, json),
        Kv::Compact(server) => compact(&server.server, json),
        Kv::Keyspace(options::Keyspace::Create { name, server }) => create_keyspace(&name, &server.server, json),
        Kv::Keyspace(options::Keyspace::Drop { name, server }) => {
            let arrived = serving(&server.server)?.request(&Request::KeyspaceDrop(&name))?;
            let Answer::Written(lsn) = arrived.answer()? else { return Err(unexpected()) };
            said(lsn.0, json)
        }
        Kv::Keyspace(options::Keyspace::List { from }) => show::keyspaces(&Store::open(&from)?.keyspaces()?, json),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn unexpected() -> Failure {
    Failure::new(Kind::Internal, "the server answered something else than was asked")
}

fn absent(key: &str) -> Failure {
    Failure::new(Kind::NotFound, format!("there is no key {key:?}"))
}

fn put(options: &Put, json: bool) -> Result<(), Failure> {
    let key = key::parse(&options.key, &options.naming)?;
    let value = match (&options.value, &options.file) {
        (Some(value), _) => value.as_bytes().to_vec(),
        (None, file) => read(file.as_deref().unwrap_or(Path::new("-")))?,
    };
    let expiry_ms = match &options.ttl {
        None => 0,
        Some(ttl) => RealClock.wall_ms().saturating_add(moment::pause_ms(ttl)?.max(1)),
    };
    let link = waiting(&options.server.server, options.wait.as_deref())?;
    let (keyspace, metadata) = (store::keyspace(&link, &options.naming.keyspace)?, options.metadata.as_bytes());
    let op = Op::Set { keyspace, key: &key, metadata, expiry_ms, value: &value };
    let conditions = options.only.conditions(keyspace, std::slice::from_ref(&key));
    let lsn = write(&link, conditions, vec![op], !options.buffered)?;
    said(lsn, json)
}

impl If {
    const fn is_some(&self) -> bool {
        self.if_absent || self.if_present || self.if_lsn.is_some()
    }

    /// One for each key, if any.
    fn conditions<'a>(&self, keyspace: u32, keys: &'a [Vec<u8>]) -> Vec<Condition<'a>> {
        let expects = match (self.if_absent, self.if_present, self.if_lsn) {
            (true, ..) => Expect::Absent,
            (_, true, _) => Expect::Present,
            (.., Some(lsn)) => Expect::At(Lsn(lsn)),
            (false, false, None) => return Vec::new(),
        };
        keys.iter().map(|key| Condition { keyspace, key, expects }).collect()
    }
}

fn compact(server: &str, json: bool) -> Result<(), Failure> {
    let arrived = store::patient(server, store::WORK_MS)?.request(&Request::StoreCompact)?;
    let Answer::Compacted(Compacted { compactions, read_bytes, written_bytes, reclaimed_bytes }) = arrived.answer()?
    else {
        return Err(unexpected());
    };
    say::done(
        "it was compacted",
        if json {
            let fields = [("compactions", compactions), ("read_bytes", read_bytes), ("written_bytes", written_bytes)];
            let mut fields: serde_json::Map<_, _> =
                fields.into_iter().map(|(name, number)| (name.to_owned(), number.into())).collect();
            fields.insert("reclaimed_bytes".to_owned(), reclaimed_bytes.into());
            print_json(&fields)
        } else {
            say!(
                "{compactions} compactions, {read_bytes} bytes read, {written_bytes} written, {reclaimed_bytes} given back"
            )
        },
    )
}

fn create_keyspace(name: &str, server: &str, json: bool) -> Result<(), Failure> {
    // `--keyspace` would take it for the keyspace of that number, and what was put there would be nobody's that has a name.
    if name.parse::<u32>().is_ok() {
        return Err(Failure::invalid(format!("{name:?} is a number, which needs no name: take another name")));
    }
    let (made, _) = store::listed(&serving(server)?, &Request::KeyspaceCreate(name))?;
    let Some(made) = made.first() else { return Err(unexpected()) };
    let said = if json { print_json(&json!({"id": made.id, "name": made.name})) } else { say!("{}", made.id) };
    say::done(format_args!("keyspace {} was made, as {}", made.name, made.id), said)
}

fn write(link: &Link, conditions: Vec<Condition<'_>>, ops: Vec<Op<'_>>, durable: bool) -> Result<u64, Failure> {
    let request = if conditions.is_empty() {
        Request::Write(Write { xid: None, durable, ops })
    } else {
        Request::WriteIf(WriteIf { durable, conditions, ops })
    };
    let arrived = link.request(&request)?;
    let Answer::Written(lsn) = arrived.answer()? else { return Err(unexpected()) };
    Ok(lsn.0)
}

/// A write that was done. Also where that cannot be said.
fn said(lsn: u64, json: bool) -> Result<(), Failure> {
    let said = if json { print_json(&json!({"lsn": lsn})) } else { say!("{lsn}") };
    say::done(format_args!("it was written, at LSN {lsn}"), said)
}

fn get(options: &Get, json: bool) -> Result<(), Failure> {
    let key = key::parse(&options.key, &options.naming)?;
    let store = Store::open(&options.from)?;
    let keyspace = store.keyspace(&options.naming.keyspace)?;
    let value = store.value(keyspace, &key)?.ok_or_else(|| absent(&options.key))?;
    if let Some(path) = &options.output {
        let mut whole = Whole::begin(path)?;
        let written = whole.file.write_all(&value).and_then(|()| whole.end());
        written.map_err(|error| Failure::io("write", path.display(), &error))?;
        return if json { print_json(&json!({"value_bytes": value.len()})) } else { Ok(()) };
    }
    if json {
        let mut fields = serde_json::Map::new();
        line::put(&mut fields, "key", &key);
        line::put(&mut fields, "value", &value);
        return print_json(&fields);
    }
    let mut out = io::stdout().lock();
    out.write_all(&value).and_then(|()| out.flush()).map_err(|error| Failure::stdout(&error))
}

fn delete(options: &Delete, json: bool) -> Result<(), Failure> {
    let keys = options.keys.iter().map(|key| key::parse(key, &options.naming)).collect::<Result<Vec<_>, _>>()?;
    let span = key::span(&options.range, &options.naming)?;
    let range = &options.range;
    let is_range = range.prefix.is_some() || range.from.is_some() || range.to.is_some() || options.all;
    if keys.is_empty() && !is_range {
        return Err(Failure::invalid("name keys, or a range: --prefix, --from, --to or --all"));
    }
    if is_range && span == Span::default() && !options.all {
        // What a variable that is not set makes of a range.
        return Err(Failure::invalid("this range is every key of the keyspace: if all shall go, say --all"));
    }
    if is_range && span.to.as_ref().is_some_and(|to| *to <= span.from) {
        return Err(Failure::invalid("no key is in this range: --to names the first key behind it"));
    }
    if is_range && options.only.is_some() {
        return Err(Failure::invalid("a condition is on a key: name the keys, not a range"));
    }
    let link = waiting(&options.server.server, options.wait.as_deref())?;
    let keyspace = store::keyspace(&link, &options.naming.keyspace)?;
    let ops = match (keys.as_slice(), is_range) {
        ([], true) => vec![Op::Erase { keyspace, from: &span.from, to: span.to.as_deref() }],
        (keys, _) => keys.iter().map(|key| Op::Delete { keyspace, key }).collect(),
    };
    let conditions = options.only.conditions(keyspace, &keys);
    said(write(&link, conditions, ops, !options.buffered)?, json)
}

fn scan(options: &Scan, json: bool) -> Result<(), Failure> {
    let span = key::span(&options.range, &options.naming)?;
    let store = Store::open(&options.from)?;
    let keyspace = store.keyspace(&options.naming.keyspace)?;
    let (mut rows, mut count, mut more) = (Vec::new(), 0, false);
    let mut out = BufWriter::new(io::stdout().lock());
    // One more says whether there are more.
    store.walk(keyspace, &span, (!options.keys_only, options.limit.saturating_add(1)), |known| {
        if count == options.limit {
            more = true;
            return Ok(false);
        }
        count += 1;
        if json {
            rows.push(line::object(&known));
        } else {
            show::row(&mut out, &known, options.naming.hex).map_err(|error| Failure::stdout(&error))?;
        }
        Ok(true)
    })?;
    out.flush().map_err(|error| Failure::stdout(&error))?;
    drop(out);
    if json {
        return print_json(&json!({"rows": rows, "more": more}));
    }
    if more {
        _ = writeln!(io::stderr(), "assent: there are more; --limit was {count}");
    }
    Ok(())
}

fn export(options: &Export, json: bool) -> Result<(), Failure> {
    let span = key::span(&options.range, &options.naming)?;
    let store = Store::open(&options.from)?;
    let bar = if json || options.output.is_none() || !io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        let style = ProgressStyle::with_template("{spinner} {pos} objects {msg} {elapsed}");
        ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
    };
    let keyspace = store.keyspace(&options.naming.keyspace)?;
    if !options.page_by_page && !store.of_one_moment()? {
        aside!("assent: this server is of an earlier release: each page is as of when it is read");
    }
    let mut objects = 0_u64;
    let format = Format::of(options.format, options.output.as_deref().unwrap_or(Path::new("-")));
    let whole = options.output.as_deref().map(Whole::begin).transpose()?;
    let failed = |error: io::Error| match &options.output {
        Some(path) => Failure::io("write", path.display(), &error),
        None => Failure::stdout(&error),
    };
    let out: Box<dyn io::Write> = match &whole {
        Some(whole) => Box::new(BufWriter::with_capacity(1 << 20, whole.file.try_clone().map_err(failed)?)),
        None => Box::new(BufWriter::new(io::stdout().lock())),
    };
    let mut out = Out::begin(out, format).map_err(failed)?;
    store
        .walk(keyspace, &span, (true, u64::MAX), |known| {
            out.write(&known).map_err(failed)?;
            objects += 1;
            bar.inc(1);
            Ok(true)
        })
        .map_err(|failure| match failure.kind {
            // The snapshot was ended.
            Kind::Conflict if !options.page_by_page => {
                let message =
                    format!("{}; export a range at a time, or --page-by-page, which keeps nothing", failure.message);
                Failure { message, ..failure }
            }
            _ => failure,
        })?;
    out.flush().map_err(failed)?;
    if let Some(whole) = whole {
        whole.end().map_err(failed)?;
    }
    bar.finish_and_clear();
    match (&options.output, json) {
        (Some(_), true) => print_json(&json!({"objects": objects})),
        (Some(path), false) => say!("{objects} objects in {}", path.display()),
        // The lines are all there is.
        (None, _) => Ok(()),
    }
}

/// Objects on their way out.
enum Out {
    Json(Box<dyn io::Write>),
    Csv(Box<csv::Writer<Box<dyn io::Write>>>),
}

impl Out {
    fn begin(out: Box<dyn io::Write>, format: Format) -> io::Result<Self> {
        if format == Format::Json {
            return Ok(Self::Json(out));
        }
        let mut sheet = csv::Writer::from_writer(out);
        sheet.write_record(&sheet::export_header())?;
        Ok(Self::Csv(Box::new(sheet)))
    }

    fn write(&mut self, known: &store::Known) -> io::Result<()> {
        match self {
            Self::Json(out) => writeln!(out, "{}", line::object(known)),
            Self::Csv(sheet) => Ok(sheet.write_record(&sheet::export_row(known))?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Json(out) => out.flush(),
            Self::Csv(sheet) => sheet.flush(),
        }
    }
}

/// A value, of which no more is read than the longest has.
#[expect(clippy::disallowed_methods, reason = "a front door reads the file that it is given")]
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let most = VALUE_BYTES_MAX + 1;
    let read = if path == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut value)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut value))
    };
    read.map_err(|error| Failure::io("read", path.display(), &error))?;
    if value.len() as u64 == most {
        return Err(Failure::invalid(format!(
            "{}: more than {VALUE_BYTES_MAX} bytes, the longest value",
            path.display()
        )));
    }
    Ok(value)
}
