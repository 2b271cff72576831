//! Where work goes that may block: threads beside those that serve, so many at a time.
//!
//! Walk: [`Pool::run`] waits for a place · a thread of the [`Crew`] does the work to its end, also where the caller has left meanwhile. Whoever
//! writes may wait there for another writer, so writers have places of their own ([`Pool::of_writers`]), and neither readers nor
//! those who end a transaction, and so give seats back, ever wait for one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use assent_kind::Kind;
use tokio::sync::{Semaphore, oneshot};

use crate::crew::{Crew, Told};
use crate::problem::Problem;

/// A bounded number of blocking threads.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    places: Arc<Semaphore>,
    /// Whose threads they are: all that serve share them.
    crew: Crew,
    /// Whether what was cut short may be done.
    changes: bool,
}

impl Pool {
    pub(crate) fn new(threads: usize, crew: &Crew) -> Self {
        Self { places: Arc::new(Semaphore::new(threads)), crew: crew.clone(), changes: false }
    }

    /// For work that changes something.
    pub(crate) fn of_writers(threads: usize, crew: &Crew) -> Self {
        Self { changes: true, ..Self::new(threads, crew) }
    }

    /// Does this where it may block.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let stopped = |_| Problem::of(Kind::Unavailable, "the server is stopping");
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(stopped)?;
        let (tell, told) = oneshot::channel();
        self.crew.give(Box::new(move || -> Told {
            let done = catch_unwind(AssertUnwindSafe(work));
            Box::new(move || {
                // Held by the work, not by whoever waits for it: a caller that leaves frees no thread.
                drop(place);
                _ = tell.send(done);
            })
        }))?;
        told.await.unwrap_or_else(|lost| Err(Box::new(lost))).unwrap_or_else(|why| Err(self.cut_short(&*why)))
    }

    fn cut_short(&self, why: &(dyn Any + Send)) -> Problem {
        let error = why.downcast_ref::<String>().map(String::as_str).or_else(|| why.downcast_ref::<&str>().copied());
        tracing::error!(error, "a request's work has panicked");
        let what = "a promise of ours is broken: report it with the request's id";
        if self.changes {
            return Problem::of(Kind::InDoubt, format!("{what}; what was to change may be changed or not, look"));
        }
        Problem::of(Kind::Internal, what)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_panic_leaves_a_write_in_doubt_and_what_was_never_begun_is_told_as_that() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let (crew, ended) = (Crew::default(), Crew::default());
        ended.end(Duration::ZERO);
        for (new, panicked) in
            [(Pool::new as fn(usize, &Crew) -> Pool, Kind::Internal), (Pool::of_writers, Kind::InDoubt)]
        {
            let pool = new(1, &crew);
            for _ in 0..3 {
                let panics = || panic!("in the middle of a write");
                let told = runtime.block_on(pool.run::<()>(panics)).unwrap_err();
                assert_eq!(told.kind, panicked.name(), "{told:?}");
            }
            assert_eq!(runtime.block_on(pool.run(|| Ok(7))).unwrap(), 7, "its place and its thread go on");
            let told = runtime.block_on(new(1, &ended).run(|| Ok(()))).unwrap_err();
            assert_eq!(told.kind, Kind::Unavailable.name(), "{told:?}");
        }
        crew.end(Duration::from_secs(60));
    }
}
