//! What a command says to people: `say!` a line on stdout, `aside!` one on stderr. Neither panics where nobody listens, as `println!` does.
//!
//! A reader who has gone changes nothing: what the command has to do, and what its exit code says, is the same. A line that
//! could not be written for another reason is a failure, and the command says so; one on stderr is for whoever happens to look.
//! An answer that goes on for as long as somebody reads it ends with [`Failure::stdout`]; one that others write, through [`whole`].

use std::fmt::{Arguments, Display};
use std::io::{self, BufWriter, Write};

use crate::failure::Failure;

/// As `println!`, and what became of it.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}

/// As `eprintln!`, heard or not.
macro_rules! aside {
    ($($text:tt)*) => { $crate::say::aside(format_args!($($text)*)) };
}

/// One line on stdout, in one write.
pub(crate) fn line(text: Arguments<'_>) -> Result<(), Failure> {
    let text = format!("{text}\n");
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        said => said.map_err(|error| Failure::stdout(&error)),
    }
}

/// One line on stderr.
pub(crate) fn aside(text: Arguments<'_>) {
    _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// An answer of any length, written by whatever it is of. Once its reader has gone, nothing that comes of that is a failure.
pub(crate) fn whole(write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut out = BufWriter::new(Heard { out: io::stdout().lock(), failed: None });
    let written = write(&mut out);
    if out.get_ref().failed.is_none() {
        // Also what was found before something failed. Whether this does is asked for below.
        _ = out.flush();
    }
    let failed = out.get_mut().failed.take();
    // What is left in it would only fail again.
    _ = out.into_parts();
    failed.map_or(written, |error| Err(Failure::stdout(&error)))
}

/// Remembers what failed first, whatever those make of it who write into it.
struct Heard<W> {
    out: W,
    failed: Option<io::Error>,
}

impl<W: Write> Heard<W> {
    fn note<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| {
            // A write that was interrupted is tried again.
            if error.kind() != io::ErrorKind::Interrupted && self.failed.is_none() {
                self.failed = Some(io::Error::new(error.kind(), error.to_string()));
            }
        })
    }
}

impl<W: Write> Write for Heard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.out.write(bytes);
        self.note(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.out.flush();
        self.note(done)
    }
}

/// Words of others for a terminal: what could move its cursor, hide or colour is spelt out.
pub(crate) fn plain(words: &str) -> String {
    let spelt = |it: char| if matches!(it, '"' | '\'' | '\\') { it.to_string() } else { it.escape_debug().to_string() };
    words.chars().map(spelt).collect()
}

/// What came of something that was done: who hears that the rest of it failed, or could not be said, has to hear that it was done.
pub(crate) fn done<T>(what: impl Display, said: Result<T, Failure>) -> Result<T, Failure> {
    said.map_err(|failure| {
        let message = format!("{what}, but {}", failure.message);
        Failure { message, ..failure }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_words_of_others_move_the_cursor_or_hide_anything() {
        let said = "it's \"r\u{f6}le\" c:\\d \x1b[2Jgone\r\nnext\u{202e}\t\u{9b}";
        assert_eq!(plain(said), "it's \"r\u{f6}le\" c:\\d \\u{1b}[2Jgone\\r\\nnext\\u{202e}\\t\\u{9b}");
        assert_eq!(plain(""), "");
    }
}
