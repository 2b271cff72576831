//! What a command says to people: `say!` a line on stdout, `aside!` one on stderr. Neither panics where nobody listens, as `println!` does.
//!
//! A reader who has gone changes nothing: what the command has to do, and what its exit code says, is the same. A line that
//! could not be written for another reason is a failure, and the command says so; one on stderr is for whoever happens to look.
//! Deliberately absent: answers that go on for as long as somebody reads them. They end with [`Failure::stdout`].

use std::fmt::{Arguments, Display};
use std::io::{self, Write as _};

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

/// What came of something that was done: who hears that the rest of it failed, or could not be said, has to hear that it was done.
pub(crate) fn done<T>(what: impl Display, said: Result<T, Failure>) -> Result<T, Failure> {
    said.map_err(|failure| {
        let message = format!("{what}, but {}", failure.message);
        Failure { message, ..failure }
    })
}
