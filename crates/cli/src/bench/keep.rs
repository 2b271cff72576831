//! What a race keeps: its report's files, also when somebody stops it or it fails half way.
//!
//! Walk: [`Kept::begin`] looks at the machine, lays the first JSON and listens to signals · the race puts cells into
//! [`Kept::sink`] and looks at its flag between cycles · [`Kept::end`] lays CSV and page and says where they are.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use assent_bench::BenchError;
use assent_bench::host::Host;
use assent_bench::report::Report;
use assent_bench::report::sink::{Outputs, Sink};
use assent_world::{Clock as _, RealClock};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::server;
use crate::failure::Failure;
use crate::tx::moment;

/// Where a race's report goes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Keep {
    /// Writes the report as NAME.json, NAME.csv and NAME.html; NAME.html means the same.
    #[arg(long, value_name = "NAME")]
    pub(crate) report: Option<PathBuf>,
}

impl Keep {
    /// The files, or none.
    pub(crate) fn outputs(&self) -> Outputs {
        let named = |path: &Path| {
            let is_page = path.extension().is_some_and(|extension| extension == "html");
            Outputs::named(&if is_page { path.with_extension("") } else { path.to_owned() })
        };
        self.report.as_deref().map(named).unwrap_or_default()
    }
}

/// The report of a race under way. Dropped before its end, it writes what there is.
pub(super) struct Kept {
    sink: Sink,
    signal: Arc<AtomicU8>,
    listener: Handle,
    ended: bool,
}

impl Kept {
    /// From here on Ctrl-C and SIGTERM ask the race to stop, a second one stops the process.
    pub(super) fn begin(scenario: &str, title: &str, folder: &Path, outputs: Outputs) -> Result<Self, Failure> {
        let host = Host::look(folder, moment::show(RealClock.wall_ms()));
        Self::with(Report::new(scenario, title, command(std::env::args().skip(1)), host), outputs)
    }

    /// As [`Kept::begin`], and where there is a report already, of this scenario and machine, what it has counts; `check` may refuse it. One
    /// that is refused stays as it is.
    pub(super) fn go_on(
        scenario: &str,
        title: &str,
        folder: &Path,
        outputs: Outputs,
        check: impl FnOnce(&Report) -> Result<(), BenchError>,
    ) -> Result<Self, Failure> {
        let Some(path) = outputs.json.as_deref().filter(|path| path.exists()) else {
            return Self::begin(scenario, title, folder, outputs);
        };
        let (mut report, date) = (Report::read(path)?, moment::show(RealClock.wall_ms()));
        let differences = report.host.differences(&Host::look(folder, date.clone()));
        let why = match differences.as_slice() {
            _ if report.scenario != scenario => format!("it is of {}, not of {scenario}", report.scenario),
            [] => String::new(),
            _ => format!("it is of another machine: {}", differences.join("; ")),
        };
        if !why.is_empty() {
            return Err(Failure::invalid(format!("{} cannot be gone on with: {why}", path.display())));
        }
        check(&report).map_err(|error| Failure::new(error.kind, format!("{}: {error}", path.display())))?;
        report.complete = false;
        report.notes.push(format!("Gone on with {date}, by assent {}.", env!("CARGO_PKG_VERSION")));
        Self::with(report, outputs)
    }

    fn with(report: Report, outputs: Outputs) -> Result<Self, Failure> {
        let sink = Sink::new(report, outputs)?;
        let watching = |error: std::io::Error| Failure::io("watch", "signals", &error);
        // In the handler itself: a call that fails since somebody pressed Ctrl-C must find the flag set.
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, sink.flag()).map_err(watching)?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(watching)?;
        let (listener, signal) = (signals.handle(), Arc::new(AtomicU8::new(0)));
        let (heard, finishing) = (Arc::clone(&signal), sink.clone());
        let listen = move || {
            for number in signals.forever() {
                let number = u8::try_from(number).unwrap_or(0);
                if heard.swap(number, Ordering::Relaxed) == 0 {
                    aside!("assent: stopping, and the report keeps what was measured; once more stops at once");
                } else {
                    // The failure to write has nobody left to hear it; the JSON on disk is whole all the same.
                    _ = finishing.finish(false);
                    server::kill_all();
                    std::process::exit(i32::from(128 + number));
                }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(watching)?;
        Ok(Self { sink, signal, listener, ended: false })
    }

    /// Where the race puts its cells, and asks whether to go on.
    pub(super) fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Writes every file and says where they are; `say` is false where stdout belongs to JSON or CSV.
    pub(super) fn end(mut self, say: bool) -> Result<ExitCode, Failure> {
        self.ended = true;
        self.sink.finish(!self.sink.interrupted())?;
        let outputs = self.sink.outputs();
        for path in [&outputs.json, &outputs.csv, &outputs.html].into_iter().flatten().filter(|_| say) {
            say!("report: {}", path.display())?;
        }
        Ok(match self.signal.load(Ordering::Relaxed) {
            0 if self.sink.interrupted() => ExitCode::from(128),
            0 => ExitCode::SUCCESS,
            number => ExitCode::from(128 + number),
        })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.listener.close();
        if !self.ended {
            // The race failed and says why; what it measured until then is kept.
            _ = self.sink.finish(false);
        }
    }
}

/// The command line as a report may show it: no folders of this machine, no addresses that hold passwords.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let shown = arguments.map(|argument| match argument.split_once('=') {
        Some((name, value)) if name.starts_with('-') => format!("{name}={}", harmless(value)),
        _ => harmless(&argument),
    });
    std::iter::once("assent".to_owned()).chain(shown).collect::<Vec<_>>().join(" ")
}

fn harmless(value: &str) -> String {
    if value.contains("://") {
        return "URL".to_owned();
    }
    if value.starts_with(['/', '~', '.']) {
        return "PATH".to_owned();
    }
    if value.contains([' ', '"', '\'', '$', '`', '\\']) { format!("{value:?}") } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_named_with_or_without_the_pages_ending() {
        let outputs = |name: &str| Keep { report: Some(PathBuf::from(name)) }.outputs();
        for name in ["out/tx-1.9", "out/tx-1.9.html"] {
            let outputs = outputs(name);
            assert_eq!(outputs.html.as_deref(), Some(Path::new("out/tx-1.9.html")));
            assert_eq!(outputs.json.as_deref(), Some(Path::new("out/tx-1.9.json")));
        }
        assert!(Keep::default().outputs().json.is_none());
    }

    #[test]
    fn a_command_is_shown_without_folders_and_addresses() {
        let given = ["bench", "tx", "--folder", "/srv/x", "--postgres=postgres://me:secret@host/db", "--rpo", "0/5"];
        let more = ["--report=../out", "--title", "two words", "-l", "10,20"];
        let shown = command(given.into_iter().chain(more).map(str::to_owned));
        let expected =
            "assent bench tx --folder PATH --postgres=URL --rpo 0/5 --report=PATH --title \"two words\" -l 10,20";
        assert_eq!(shown, expected);
    }
}
