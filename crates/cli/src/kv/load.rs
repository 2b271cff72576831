//! `assent kv load`: lines or rows in, batches out, many of them under way; it always knows how many of them are in the store.
//!
//! Walk: [`run`] reads them and fills a batch · a full one is sent, the oldest answer is taken once enough are under way · whoever
//! stops it, or whatever fails, is told the lines that are done: the next load leaves them out.
//! Answers are taken in the order of the lines, so that what is done is always a beginning of them.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use assent_kind::Kind;
use assent_link::{Link, Ticket};
use assent_wire::{Answer, Request, Write};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::line::Line;
use super::options::{Format, Load};
use super::rows::{Input, open, rows};
use super::store::{keyspace, serving};
use super::unexpected;
use crate::bench::print_json;
use crate::failure::Failure;
use crate::say;

/// Bytes of a batch, beyond which no further object is put into it: small ones travel in one frame.
const BATCH_BYTES: usize = 768 << 10;
/// What an object takes beside its bytes.
const LINE_BYTES: usize = 64;
/// A load that waits for a line looks that often whether it is to stop.
const GLANCE: Duration = Duration::from_millis(50);
/// Exit code of a program that a Ctrl-C has ended, as shells say it.
const INTERRUPTED: u8 = 130;

struct Batch {
    lines: u64,
    objects: u64,
    bytes: u64,
    ticket: Ticket,
}

struct Loading<'a> {
    link: &'a Link,
    options: &'a Load,
    format: Format,
    keyspace: u32,
    waiting: VecDeque<Batch>,
    /// Lines from the file's beginning that are in the store, those left out and empty ones among them.
    done: u64,
    objects: u64,
    bytes: u64,
    bar: ProgressBar,
}

/// Runs the command.
pub(super) fn run(options: &Load, json: bool) -> Result<ExitCode, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let watching = |error: io::Error| Failure::io("watch", "signals", &error);
        // A second one ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))
            .map_err(watching)?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(watching)?;
    }
    let link = serving(&options.server.server)?;
    let (input, bytes) = open(&options.file)?;
    let mut loading = Loading {
        link: &link,
        options,
        format: Format::of(options.format, &options.file),
        keyspace: keyspace(&link, &options.keyspace)?,
        waiting: VecDeque::new(),
        done: 0,
        objects: 0,
        bytes: 0,
        bar: bar(bytes, json),
    };
    let read = loading.read(input, &stop);
    // What is under way is answered in any case: then what is done is known exactly.
    let drained = loading.drain();
    loading.bar.finish_and_clear();
    let (done, file, rows) = (loading.done, options.file.display(), loading.format.rows());
    match read.and(drained) {
        Err(failure) => Err(Failure::new(
            failure.kind,
            format!("{file}: {}; {done} {rows} are done, go on with --skip {done}", failure.message),
        )),
        Ok(()) if stop.load(Ordering::Relaxed) => {
            let message = format!("{file}: stopped; {done} {rows} are done, go on with --skip {done}");
            Failure::new(Kind::Unavailable, message).print(json);
            Ok(INTERRUPTED.into())
        }
        Ok(()) => {
            let (objects, bytes) = (loading.objects, loading.bytes);
            let said = if json {
                print_json(&serde_json::json!({"lines": done, "objects": objects, "bytes": bytes}))
            } else {
                say!("{objects} objects, {bytes} bytes of keys and values, {done} {rows}")
            };
            say::done("all of it was loaded", said).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Bytes of the file on stderr, if people look at it.
fn bar(bytes: Option<u64>, json: bool) -> ProgressBar {
    if json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{bar:30} {bytes}/{total_bytes} {msg} {binary_bytes_per_sec} (left {eta})";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bytes.map_or_else(ProgressBar::new_spinner, |bytes| ProgressBar::new(bytes).with_style(style))
}

impl Loading<'_> {
    fn read(&mut self, input: Input, stop: &AtomicBool) -> Result<(), Failure> {
        let rows = rows(input, self.format)?;
        let (mut batch, mut bytes, mut unsent, mut number) = (Vec::<Line>::new(), 0, 0_u64, 0_u64);
        while !stop.load(Ordering::Relaxed) {
            let row = match rows.recv_timeout(GLANCE) {
                Ok(Ok(row)) => row,
                Ok(Err(failure)) => {
                    // Those before it are good.
                    self.send(&mut batch, unsent)?;
                    return Err(failure);
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            number += 1;
            self.bar.inc(row.bytes);
            if number <= self.options.skip {
                // Nothing stands before it that is not left out, too.
                self.done += 1;
                continue;
            }
            if let Some(line) = row.line {
                bytes += line.key.len() + line.value.len() + line.metadata.len() + LINE_BYTES;
                batch.push(line);
            }
            unsent += 1;
            let is_full = u32::try_from(batch.len()).unwrap_or(u32::MAX) >= self.options.batch;
            if is_full || bytes >= BATCH_BYTES {
                self.send(&mut batch, std::mem::take(&mut unsent))?;
                bytes = 0;
            }
        }
        self.send(&mut batch, unsent)
    }

    fn send(&mut self, batch: &mut Vec<Line>, lines: u64) -> Result<(), Failure> {
        if batch.is_empty() {
            if self.waiting.is_empty() {
                self.done += lines;
            } else if let Some(last) = self.waiting.back_mut() {
                last.lines += lines;
            }
            return Ok(());
        }
        let in_flight = usize::try_from(self.options.in_flight).unwrap_or(usize::MAX);
        while self.waiting.len() >= in_flight {
            self.take()?;
        }
        let keyspace = self.keyspace;
        let ops = batch.iter().map(|line| line.op(keyspace)).collect();
        let size = |line: &Line| u64::try_from(line.key.len() + line.value.len()).unwrap_or(0);
        let ticket = self.link.send(&Request::Write(Write { xid: None, durable: !self.options.buffered, ops }))?;
        let objects = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        self.waiting.push_back(Batch { lines, objects, bytes: batch.iter().map(size).sum(), ticket });
        batch.clear();
        Ok(())
    }

    /// Takes the oldest answer. Behind one that was refused none counts: what is done is a beginning.
    fn take(&mut self) -> Result<(), Failure> {
        let Some(Batch { lines, objects, bytes, ticket }) = self.waiting.pop_front() else { return Ok(()) };
        let arrived = self.link.receive(ticket).map_err(Failure::from);
        let written = arrived.and_then(|arrived| match arrived.answer()? {
            Answer::Written(_) => Ok(()),
            _ => Err(unexpected()),
        });
        if written.is_err() {
            self.waiting.clear();
            return written;
        }
        self.done += lines;
        self.objects += objects;
        self.bytes += bytes;
        self.bar.set_message(format!("{} objects", self.objects));
        Ok(())
    }

    /// Takes every answer up to the first that is none: what stands behind that may be in the store, and is set again.
    fn drain(&mut self) -> Result<(), Failure> {
        while !self.waiting.is_empty() {
            self.take()?;
        }
        Ok(())
    }
}
