//! A thread's turn at a core: let in soon when it wakes, or giving way to all who wake.
//!
//! Who waits for a disk or a client works for some microseconds and sleeps again. Beside threads that never sleep Linux lets it
//! wait for the slices of all of them, 3 ms each, as often as it wakes. A thread that asks for a short slice is let in when it
//! wakes, for its fair share is the same and it owes nobody anything: beside 16 that never sleep, on two cores, one that works 65 us between
//! two sleeps did so 1,180 times a second, not 339.
//!
//! Who computes for long in the background may do the opposite: with a long slice everybody else's is shorter, and who has a shorter one is
//! let in when he wakes. Its share stays what it was, so that nothing starves, and a lock that it holds is not held for longer.
//!
//! Walk: [`wake_soon`] · [`give_way`] · `Attributes` what the scheduler knows of this thread.
//! Deliberately absent: priorities, privileges, real time. A lower priority would keep writers waiting for the room that the background makes.

use std::cell::OnceCell;
use std::io;

/// The shortest slice that Linux grants (`sched(7)`: 0.1 to 100 ms).
const SHORT_NS: u64 = 100_000;
/// Longer than the usual 3 ms. Not the longest: a kernel that lets nobody in who did not just wake would keep him waiting for all of it.
const LONG_NS: u64 = 10_000_000;

thread_local! {
    static SOON: OnceCell<bool> = const { OnceCell::new() };
    static LATE: OnceCell<bool> = const { OnceCell::new() };
}

/// Asks the scheduler to let this thread in soon when it wakes: for threads that wait, work briefly and wait again. Says whether
/// that was granted. Linux does so since 6.12, without privilege; where it is refused or unknown nothing changes. A
/// thread of another policy than the usual one is left as it is, and its nice value stays. Threads that it starts later inherit it.
///
/// Only a thread's first call asks the kernel (three system calls), so that it may stand in front of any piece of work.
pub fn wake_soon() -> bool {
    SOON.with(|granted| *granted.get_or_init(|| ask(SHORT_NS).unwrap_or(false)))
}

/// Asks the scheduler to let others in before this thread's slice is over, when they wake: for threads that work in the background for
/// long. As [`wake_soon`] otherwise.
pub fn give_way() -> bool {
    LATE.with(|granted| *granted.get_or_init(|| ask(LONG_NS).unwrap_or(false)))
}

fn ask(slice_ns: u64) -> io::Result<bool> {
    let mut now = Attributes::of_this_thread()?;
    if now.0.sched_policy != usual() {
        return Ok(false);
    }
    now.0.sched_runtime = slice_ns;
    now.set()?;
    // An older kernel takes the number and does nothing with it.
    Ok(Attributes::of_this_thread()?.0.sched_runtime == slice_ns)
}

const fn usual() -> u32 {
    libc::SCHED_OTHER.unsigned_abs()
}

/// What the scheduler knows of this thread.
struct Attributes(libc::sched_attr);

/// As the kernel counts it.
const SIZE: u32 = {
    let size = size_of::<libc::sched_attr>();
    assert!(size == 48, "the first form of sched_attr, which every kernel takes");
    48
};

#[expect(unsafe_code, reason = "neither std nor rustix has these two system calls")]
impl Attributes {
    fn of_this_thread() -> io::Result<Self> {
        let mut attributes = libc::sched_attr {
            size: SIZE,
            sched_policy: 0,
            sched_flags: 0,
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: 0,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: sched_getattr(this thread, a struct that is ours, its size, no flags): the kernel writes at most SIZE bytes.
        let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
        if done == 0 { Ok(Self(attributes)) } else { Err(io::Error::last_os_error()) }
    }

    fn set(&mut self) -> io::Result<()> {
        self.0.size = SIZE;
        // Flags of later forms mean fields that this one has not.
        self.0.sched_flags &= u64::from(libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs());
        // SAFETY: sched_setattr(this thread, a struct of `size` bytes that is ours, no flags): the kernel only reads it.
        let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const self.0, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Linux 6.12 was the first to grant it.
    fn is_known_here() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 12)
    }

    fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn a_thread_that_asks_gets_a_short_slice_and_keeps_its_nice_value() {
        on_a_thread(|| {
            let before = Attributes::of_this_thread().unwrap().0;
            let nice = rustix::process::nice(3).unwrap();
            assert_eq!(wake_soon(), is_known_here());
            let after = Attributes::of_this_thread().unwrap().0;
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, nice));
            assert_eq!(after.sched_runtime == SHORT_NS, is_known_here());
            assert_eq!(wake_soon(), is_known_here(), "asked again it says the same");
        });
        let mine = Attributes::of_this_thread().unwrap().0;
        assert_ne!(mine.sched_runtime, SHORT_NS, "nobody else's changes");
    }

    #[test]
    fn a_thread_that_gives_way_gets_a_long_slice_and_keeps_its_share() {
        on_a_thread(|| {
            let before = Attributes::of_this_thread().unwrap().0;
            assert_eq!(give_way(), is_known_here());
            let after = Attributes::of_this_thread().unwrap().0;
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
            assert_eq!(after.sched_runtime == LONG_NS, is_known_here());
        });
    }

    #[test]
    fn a_thread_of_another_policy_is_left_as_it_is() {
        on_a_thread(|| {
            let mut batch = Attributes::of_this_thread().unwrap();
            batch.0.sched_policy = libc::SCHED_BATCH.unsigned_abs();
            batch.set().unwrap();
            assert!(!wake_soon());
            let after = Attributes::of_this_thread().unwrap().0;
            assert_eq!(after.sched_policy, libc::SCHED_BATCH.unsigned_abs());
            assert_ne!(after.sched_runtime, SHORT_NS);
        });
    }
}
