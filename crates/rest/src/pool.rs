//! Where work goes that may block: threads beside those that serve, so many at a time.
//!
//! Walk: [`Pool::run`] waits for a place · the work runs to its end, also where the caller has left meanwhile. Whoever writes may wait
//! there for another writer, so writers have places of their own ([`Pool::of_writers`]), and readers never wait for one.

use std::sync::Arc;

use assent_kind::Kind;
use assent_world::wake_soon;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::problem::Problem;

/// A bounded number of blocking threads.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    places: Arc<Semaphore>,
    /// Whose threads they are: all that serve share them.
    runtime: Handle,
    /// Whether what was cut short may be done.
    changes: bool,
}

impl Pool {
    pub(crate) fn new(threads: usize, runtime: &Handle) -> Self {
        Self { places: Arc::new(Semaphore::new(threads)), runtime: runtime.clone(), changes: false }
    }

    /// For work that changes something.
    pub(crate) fn of_writers(threads: usize, runtime: &Handle) -> Self {
        Self { changes: true, ..Self::new(threads, runtime) }
    }

    /// Does this where it may block.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let stopped = |_| Problem::of(Kind::Unavailable, "the server is stopping");
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(stopped)?;
        let done = self.runtime.spawn_blocking(move || {
            // It waits for a disk, and then for a core: those that serve may keep all of them busy.
            wake_soon();
            // Held by the work, not by whoever waits for it: a caller that leaves frees no thread.
            let done = work();
            drop(place);
            done
        });
        done.await.unwrap_or_else(|error| Err(self.cut_short(&error)))
    }

    fn cut_short(&self, error: &JoinError) -> Problem {
        if error.is_cancelled() {
            return Problem::of(Kind::Unavailable, "the server is stopping, and nothing of this was done");
        }
        tracing::error!(%error, "a request's work has panicked");
        let what = "a promise of ours is broken: report it with the request's id";
        if self.changes {
            return Problem::of(Kind::InDoubt, format!("{what}; what was to change may be changed or not, look"));
        }
        Problem::of(Kind::Internal, what)
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().max_blocking_threads(1).build().unwrap()
    }

    #[test]
    fn a_panic_leaves_a_write_in_doubt_and_what_was_never_begun_is_told_as_that() {
        let (own, ended) = (runtime(), runtime());
        let handle = ended.handle().clone();
        ended.shutdown_background();
        for (new, panicked) in
            [(Pool::new as fn(usize, &Handle) -> Pool, Kind::Internal), (Pool::of_writers, Kind::InDoubt)]
        {
            let panics = || panic!("in the middle of a write");
            let told = own.block_on(new(1, own.handle()).run::<()>(panics)).unwrap_err();
            assert_eq!(told.kind, panicked.name(), "{told:?}");
            let told = own.block_on(new(1, &handle).run(|| Ok(()))).unwrap_err();
            assert_eq!(told.kind, Kind::Unavailable.name(), "{told:?}");
        }
    }
}
