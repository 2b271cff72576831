//! A connection in memory: what a client writes is there when the door looks, in pieces, and either end may be gone.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Debug, Default)]
struct Ends {
    asked: VecDeque<u8>,
    answered: Vec<u8>,
    client_is_gone: bool,
    door_is_gone: bool,
}

/// The client's end.
#[derive(Debug, Default)]
pub(super) struct Pipe(Arc<Mutex<Ends>>);

/// The door's.
#[derive(Debug)]
pub(super) struct DoorEnd(Arc<Mutex<Ends>>);

impl Pipe {
    pub(super) fn door_end(&self) -> DoorEnd {
        DoorEnd(Arc::clone(&self.0))
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap()
    }

    pub(super) fn write(&self, bytes: impl Iterator<Item = u8>) {
        self.ends().asked.extend(bytes);
    }

    /// Whether the door has no end of it any more.
    pub(super) fn is_over(&self) -> bool {
        self.ends().door_is_gone
    }

    /// What was answered since, behind what is there; whether that was all for ever.
    pub(super) fn read(&self, into: &mut Vec<u8>) -> bool {
        let mut ends = self.ends();
        into.append(&mut ends.answered);
        ends.door_is_gone
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.ends().client_is_gone = true;
    }
}

impl Read for DoorEnd {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut ends = self.0.lock().unwrap();
        if ends.asked.is_empty() && !ends.client_is_gone {
            return Err(ErrorKind::WouldBlock.into());
        }
        ends.asked.read(buffer)
    }
}

impl Write for DoorEnd {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut ends = self.0.lock().unwrap();
        if ends.client_is_gone {
            return Err(ErrorKind::BrokenPipe.into());
        }
        ends.answered.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Drop for DoorEnd {
    fn drop(&mut self) {
        self.0.lock().unwrap().door_is_gone = true;
    }
}
