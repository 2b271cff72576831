//! Where work goes that may block: threads beside those that serve, so many at a time.
//!
//! Walk: [`Pool::run`] waits for a place · the work runs to its end, also where the caller has left meanwhile.

use std::sync::Arc;

use assent_kind::Kind;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::problem::Problem;

/// A bounded number of blocking threads.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    places: Arc<Semaphore>,
    /// Whose threads they are: all that serve share them.
    runtime: Handle,
}

impl Pool {
    pub(crate) fn new(threads: usize, runtime: &Handle) -> Self {
        Self { places: Arc::new(Semaphore::new(threads)), runtime: runtime.clone() }
    }

    /// Does this where it may block.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let stopped = |_| Problem::of(Kind::Unavailable, "the server is stopping");
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(stopped)?;
        let done = self.runtime.spawn_blocking(move || {
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
