//! JSONPath asked of a revision: `?path=$.fruit[?@.price<2]`.
//!
//! Walk: [`Asking::of`] reads it, and which of the results are wanted · [`Asking::answer`] writes these: `{"rest":[…]}`, each as the
//! form says, plain or with what is known of its nodes.

use std::ops::Range;

use assent_docs::{Form, JsonPath, QueryLimits, Revision};

use super::read::{text, value};
use crate::answer::Pieces;
use crate::deadline::Deadline;
use crate::params::Params;
use crate::problem::Problem;

/// Results of one answer.
const RESULTS_MAX: usize = 10_000;
/// Nodes that one query may look at.
const STEPS_MAX: u64 = 10_000_000;

pub(super) struct Asking {
    path: JsonPath,
    wanted: Range<usize>,
}

impl Asking {
    pub(super) fn of(params: &mut Params<'_>) -> Result<Option<Self>, Problem> {
        let index = "the place of a result, from 0";
        let first = params.parsed::<usize>(&["startResultSeqIndex", "start-result-seq-index"], index)?;
        let last = params.parsed::<usize>(&["endResultSeqIndex", "end-result-seq-index"], index)?;
        let Some(text) = params.take(&["path"])? else {
            return match first.or(last) {
                Some(_) => Err(Problem::invalid("startResultSeqIndex and endResultSeqIndex are for path")),
                None => Ok(None),
            };
        };
        let first = first.unwrap_or(0);
        let end = last.map_or(first.saturating_add(RESULTS_MAX), |last| last.saturating_add(1));
        if end.saturating_sub(first) > RESULTS_MAX {
            return Err(Problem::invalid(format!("one answer has at most {RESULTS_MAX} results")));
        }
        Ok(Some(Self { path: JsonPath::parse(&text)?, wanted: first..end }))
    }

    /// The results are found now, and written as they are read.
    pub(super) fn answer(&self, revision: Revision, form: Form, deadline: &Deadline) -> Result<Pieces, Problem> {
        let limits = QueryLimits { steps_max: STEPS_MAX, ..QueryLimits::default() };
        let bound = deadline.bound(revision.clone());
        let found = self.path.query(&bound, limits)?.take(self.wanted.end);
        // One that is passed over may fail, too.
        let keys: Vec<_> = found.map(|found| found.map(|it| it.key())).collect::<Result<_, _>>()?;
        let keys = keys.into_iter().skip(self.wanted.start).enumerate();
        let one = move |(place, key)| {
            let comma = text(if place == 0 { "" } else { "," });
            comma.chain(value(revision.clone(), Form { start: Some(key), ..form }))
        };
        Ok(Box::new(text("{\"rest\":[").chain(keys.flat_map(one)).chain(text("]}"))))
    }
}
