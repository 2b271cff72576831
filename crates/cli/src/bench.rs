//! `assent bench`: runs a race and prints its table or its JSON.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use assent_bench::journal;
use assent_kind::Kind;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args::{Bench, BenchJournal};
use crate::failure::Failure;

pub(crate) mod assets;
pub(crate) mod compare;
pub(crate) mod docs;
pub(crate) mod keep;
pub(crate) mod kv;
pub(crate) mod options;
mod real;
mod recover;
pub(crate) mod report;
mod restart;
mod server;
pub(crate) mod tx;

/// Runs the command.
pub(crate) fn run(command: Bench, json: bool) -> Result<ExitCode, Failure> {
    match command {
        Bench::Journal(arguments) => run_journal(&arguments, json),
        Bench::Tx(arguments) => return tx::run(&arguments, json),
        Bench::Kv(arguments) => return kv::run(&arguments, json),
        Bench::Docs(arguments) => return docs::run(&arguments, json),
        Bench::Assets(arguments) => return assets::run(&arguments, json),
        Bench::AssetsFloor(arguments) => assets::serve_floor(&arguments),
        Bench::WebLoad => Ok(assent_bench::web::generate(std::io::stdin(), std::io::stdout())?),
        Bench::WebFloor { bytes } => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            Ok(assent_bench::web::floor::serve(bytes, |at| _ = say!("ready floor={at}"))?)
        }
        Bench::Real(arguments) => real::run(&arguments, json),
        Bench::Recover(arguments) => recover::run(&arguments, json),
        Bench::Restart(arguments) => restart::run(&arguments, json),
        Bench::Victim(arguments) => recover::victim(&arguments),
        Bench::Report(arguments) => return report::run(&arguments),
        Bench::Compare(arguments) => return compare::run(&arguments, json),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn run_journal(arguments: &BenchJournal, json: bool) -> Result<(), Failure> {
    let folder = Folder::new(arguments.folder.as_deref())?;
    let options = journal::Options {
        bytes: usize::try_from(arguments.bytes).unwrap_or(usize::MAX),
        threads: usize::try_from(arguments.threads).unwrap_or(usize::MAX),
        writes_in_flight: arguments.writes_in_flight,
        rounds: arguments.rounds,
        slice: Duration::from_millis(arguments.slice_ms),
        ..journal::Options::default()
    };
    let bar = bar(u64::from(options.rounds), "rounds");
    let outcome = journal::run(folder.path(), options, |done, _| bar.set_position(u64::from(done)))?;
    bar.finish_and_clear();
    if json {
        return print_json(&outcome);
    }
    let mut table = table(&["", "threads", "operations/s", "x floor", "p50 us", "x floor", "p99 us", "entries/sync"]);
    for way in &outcome.ways_us {
        table.add_row(
            [format!("floor: {:?}", way.way), "1".into(), format!("{:.0}", 1e6 / way.p50), String::new()]
                .into_iter()
                .chain([format!("{:.0}", way.p50)]),
        );
    }
    for (name, row) in [
        ("one appender", &outcome.one),
        ("blocking appenders", &outcome.blocking),
        ("pipelined appenders", &outcome.pipelined),
        ("lazy (RPO 10 ms)", &outcome.lazy),
        ("lazy, pipelined", &outcome.lazy_pipelined),
    ] {
        table.add_row([
            name.to_owned(),
            row.threads.to_string(),
            format!("{:.0}", row.ops_per_s),
            format!("{:.2}", row.ops_ratio_to_floor),
            format!("{:.0}", row.latency_us.p50),
            format!("{:.2}", row.p50_ratio_to_floor),
            format!("{:.0}", row.latency_us.p99),
            format!("{:.1}", row.entries_per_sync),
        ]);
    }
    say!("{} bytes, durable unless said otherwise; ratios to the best floor of this run\n{table}", outcome.bytes)
}

/// A folder to write in: the user's, or one that goes away.
enum Folder {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    fn new(given: Option<&Path>) -> Result<Self, Failure> {
        match given {
            Some(path) => {
                std::fs::create_dir_all(path).map_err(|error| Failure::io("make", path.display(), &error))?;
                Ok(Self::Given(path.to_owned()))
            }
            None => tempfile::Builder::new()
                .prefix("assent-bench-")
                .tempdir()
                .map(Self::Temporary)
                .map_err(|error| Failure::io("make", "a temporary folder", &error)),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    /// A folder of its own in it, new and nobody else's to read: a configuration with a database's password stands there.
    fn own(&self, name: &str) -> Result<Own, Failure> {
        let path = self.path().join(format!("assent-bench-{name}"));
        let made = match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::fs::DirBuilder::new().mode(0o700).create(&path),
        };
        made.map_err(|error| Failure::io("make", path.display(), &error))?;
        Ok(Own(path))
    }
}

/// A folder that goes away, in one that may be the user's.
struct Own(PathBuf);

impl Own {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Whoever is left of its processes may still be in it.
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A progress bar on stderr; silent where stderr is no terminal.
pub(crate) fn bar(length: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {elapsed} (left {eta})")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(what.to_owned())
}

/// An empty table with a head.
pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(head);
    table
}

/// One JSON object on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(Kind::Internal, error.to_string()))?;
    say!("{}", shown(&text))
}

/// The same JSON for a terminal: serde escapes what ASCII has before the space, this what moves a cursor, hides or turns words
/// round beyond it, which stands in strings alone.
fn shown(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    let mut units = [0; 2];
    for it in json.chars() {
        if it >= '\x7f' && it.escape_debug().len() > 1 {
            shown.extend(it.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(it);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_moves_no_cursor_and_says_the_same() {
        let said = "it's \"r\u{f6}le\" c:\\d \x1b[2Jgone\r\nnext\u{202e}\t\u{9b}\x7f\u{1f600}\u{e0001}";
        let json = shown(&serde_json::to_string(said).unwrap());
        let moves = |it: char| it < ' ' || matches!(it, '\x7f'..='\u{9f}' | '\u{202e}' | '\u{e0001}');
        assert!(!json.contains(moves), "{json:?}");
        assert!(json.contains("r\u{f6}le") && json.contains('\u{1f600}'), "what is plain stays: {json:?}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), said);
    }
}
