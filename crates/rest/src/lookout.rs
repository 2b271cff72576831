//! A look at the sockets before a thread sleeps: whoever was answered just now may ask on at once, and to wake a thread whose core has gone
//! to rest takes longer than many an answer.
//!
//! Walk: [`Lookout::answered`] with each answer · [`Lookout::keep`] a task of the thread: rounds of its runtime, each of which asks the
//! system what has come, until nothing has come for so long. In each of them whoever else wants the core has it; where several
//! are answered in one round there is work enough, and nobody looks, nor while a request is being worked on elsewhere.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Lookout {
    /// For how long; zero: not at all.
    patience: Duration,
    /// Of this thread. It goes round.
    answers: AtomicU32,
    /// Requests that are being worked on.
    pub(crate) under_way: AtomicU32,
    begin: Notify,
}

impl Lookout {
    pub(crate) const fn new(patience: Duration) -> Self {
        Self { patience, answers: AtomicU32::new(0), under_way: AtomicU32::new(0), begin: Notify::const_new() }
    }

    pub(crate) fn answered(&self) {
        if !self.patience.is_zero() {
            self.answers.fetch_add(1, Ordering::Relaxed);
            self.begin.notify_one();
        }
    }

    /// For ever.
    pub(crate) async fn keep(&self) {
        loop {
            self.begin.notified().await;
            self.look().await;
        }
    }

    async fn look(&self) {
        let (mut seen, mut until) = (self.answers.load(Ordering::Relaxed), Instant::now() + self.patience);
        while Instant::now() < until {
            tokio::task::yield_now().await;
            let before = std::mem::replace(&mut seen, self.answers.load(Ordering::Relaxed));
            match seen.wrapping_sub(before) {
                _ if self.under_way.load(Ordering::Relaxed) > 0 => return,
                0 => std::thread::yield_now(),
                1 => until = Instant::now() + self.patience,
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks while so many are answered in each round and as many are under way; how many rounds it looked, a hundred at most.
    fn rounds(patience: Duration, answers: u32, under_way: u32) -> u32 {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (lookout, mut rounds) = (Lookout::new(patience), 0);
            let mut look = Box::pin(lookout.look());
            std::future::poll_fn(|context| {
                let polled = look.as_mut().poll(context);
                (0..answers).for_each(|_| lookout.answered());
                lookout.under_way.store(under_way, Ordering::Relaxed);
                rounds += 1;
                if rounds == 100 { std::task::Poll::Ready(()) } else { polled }
            })
            .await;
            rounds
        })
    }

    #[test]
    fn it_goes_on_while_one_asks_on_and_ends_where_there_is_work_enough_or_none() {
        let hour = Duration::from_secs(3_600);
        assert_eq!(rounds(hour, 1, 0), 100);
        assert_eq!(rounds(hour, 2, 0), 2, "the first round has begun before anybody was answered");
        assert_eq!((rounds(hour, 0, 1), rounds(hour, 1, 1)), (2, 2), "its answer wakes the thread");
        assert_eq!(rounds(Duration::ZERO, 0, 0), 1);
        let short = Duration::from_micros(200);
        let began = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Lookout::new(short).look());
        assert!(began.elapsed() >= short);
    }
}
