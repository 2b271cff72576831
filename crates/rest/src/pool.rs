//! Where work goes that may block: threads beside the one that serves, so many at a time.
//!
//! Walk: [`Pool::run`] waits for a place · the work runs to its end, also where the caller has left meanwhile.

use std::sync::Arc;

use assent_kind::Kind;
use tokio::sync::Semaphore;

use crate::problem::Problem;

/// A bounded number of blocking threads.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Semaphore>);

impl Pool {
    pub(crate) fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads)))
    }

    /// Does this where it may block.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let stopped = |_| Problem::of(Kind::Unavailable, "the server is stopping");
        let place = Arc::clone(&self.0).acquire_owned().await.map_err(stopped)?;
        let done = tokio::task::spawn_blocking(move || {
            // Held by the work, not by whoever waits for it: a caller that leaves frees no thread.
            let done = work();
            drop(place);
            done
        });
        done.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request's work has panicked");
            Err(Problem::of(Kind::Internal, "a promise of ours is broken: report it with the request's id"))
        })
    }
}
