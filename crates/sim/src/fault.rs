//! Operations and how they fail.

use std::fmt;
use std::io;

use assent_world::Barrier;

macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident = $name:literal;)*) => {
        /// What a program asks of a disk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation { $($(#[$doc])* $operation),* }

        impl fmt::Display for Operation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Operation::$operation => $name),* })
            }
        }
    };
}

operations! {
    /// `Disk::create_dir`
    CreateDir = "create_dir";
    /// `Disk::open` of a file that is there.
    Open = "open";
    /// `Disk::open` of a new file.
    Create = "create";
    /// `Disk::rename`
    Rename = "rename";
    /// `Disk::unlink`
    Unlink = "unlink";
    /// `Disk::list`
    List = "list";
    /// `Disk::sync_dir`
    SyncDir = "sync_dir";
    /// `Disk::lock`
    Lock = "lock";
    /// `File::size`
    Size = "size";
    /// `File::read_at`
    Read = "read_at";
    /// `File::write_at`
    Write = "write_at";
    /// `File::write_durable_at`
    WriteDurable = "write_durable_at";
    /// `File::preallocate_zeroed`
    Preallocate = "preallocate_zeroed";
    /// `File::expect_random_reads`; it cannot fail, and is heard of by a [`Watch`](crate::Watch) alone.
    ExpectRandomReads = "expect_random_reads";
    /// `File::set_size`
    SetSize = "set_size";
    /// `File::sync_data`
    SyncData = "sync_data";
    /// `File::sync_all`
    SyncAll = "sync_all";
    /// `File::await_write_back`
    WriteBack = "await_write_back";
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO. A write leaves nothing; a sync or durable write leaves its pages clean and perhaps lost.
    Io,
    /// ENOSPC. A write leaves nothing.
    Full,
    /// EMFILE, as of an open.
    Descriptors,
    /// A read or write of half the bytes, at least one. Other operations succeed.
    Short,
}

impl Fault {
    pub(crate) fn error(self) -> Option<io::Error> {
        match self {
            Fault::Io => Some(io_error()),
            Fault::Full => Some(full()),
            Fault::Descriptors => Some(io::Error::from_raw_os_error(24)),
            Fault::Short => None,
        }
    }
}

/// Which call a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Counted from one, from the moment the fault is set.
    pub nth: u64,
    /// Only calls of this operation count.
    pub operation: Option<Operation>,
    /// Only calls with this barrier count.
    pub barrier: Option<Barrier>,
}

impl Call {
    /// The n-th call of whatever operation.
    #[must_use]
    pub const fn any(nth: u64) -> Self {
        Call { nth, operation: None, barrier: None }
    }

    /// The n-th call of this operation.
    #[must_use]
    pub const fn of(operation: Operation, nth: u64) -> Self {
        Call { nth, operation: Some(operation), barrier: None }
    }

    /// The n-th sync or durable write at this barrier.
    #[must_use]
    pub const fn at(barrier: Barrier, nth: u64) -> Self {
        Call { nth, operation: None, barrier: Some(barrier) }
    }
}

/// The faults that wait for their call.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    waiting: Vec<(Call, Fault)>,
    calls: u64,
}

impl Schedule {
    pub(crate) fn add(&mut self, call: Call, fault: Fault) {
        self.waiting.push((call, fault));
    }

    pub(crate) const fn calls(&self) -> u64 {
        self.calls
    }

    /// Counts a call; the answer is its fault, if one waits for it.
    pub(crate) fn call(&mut self, operation: Operation, barrier: Option<Barrier>) -> Option<Fault> {
        self.calls += 1;
        let mut struck = None;
        self.waiting.retain_mut(|(call, fault)| {
            if call.operation.is_some_and(|wanted| wanted != operation)
                || call.barrier.is_some_and(|wanted| Some(wanted) != barrier)
            {
                return true;
            }
            call.nth = call.nth.saturating_sub(1);
            if call.nth == 0 {
                struck = Some(*fault);
            }
            call.nth > 0
        });
        struck
    }
}

/// EIO.
pub(crate) fn io_error() -> io::Error {
    io::Error::from_raw_os_error(5)
}

/// ENOSPC.
pub(crate) fn full() -> io::Error {
    io::Error::from_raw_os_error(28)
}
