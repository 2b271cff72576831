//! What a session has written so far, by the server's own counters.
//!
//! The counters count every row that is handed to an engine to be written, changed or deleted: of temporary tables too,
//! and of statements that were undone since. So equal counts mean that nothing was written, unequal ones that something
//! may have been. Internal temporary tables, as for GROUP BY, count elsewhere (Handler_tmp_write).
//! They are asked for behind XA START and XA END, in the same message. In between the server refuses FLUSH STATUS, which
//! would set them back.
//! Trap: an engine that hands a whole UPDATE or DELETE to another server (Spider) may change rows uncounted.
//! Source: MariaDB's manual, "Server Status Variables". The server finishes the list fastest by a single pattern.

use mysql::Conn;
use mysql::prelude::Queryable as _;

/// Also gives the counters of internal temporary tables, which are not looked at.
const QUESTION: &str = "SHOW SESSION STATUS LIKE 'Handler%te'";

/// The counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    written: u64,
    updated: u64,
    deleted: u64,
}

/// Says `sql`, and asks after it. Nothing if the counters cannot be read; the error is that of `sql`, or the loss of the
/// connection.
pub(crate) fn after(connection: &mut Conn, sql: &str) -> Result<Option<Written>, mysql::Error> {
    let mut results = connection.query_iter(format!("{sql}; {QUESTION}"))?;
    let mut counters = Vec::new();
    while let Some(rows) = results.iter() {
        for row in rows {
            match row {
                Ok(row) => counters.extend(mysql::from_row_opt::<(String, u64)>(row).ok()),
                // `sql` was done, and only what was asked behind it is not known.
                Err(mysql::Error::MySqlError(_)) => return Ok(None),
                Err(lost) => return Err(lost),
            }
        }
    }
    Ok(read(&counters))
}

fn read(counters: &[(String, u64)]) -> Option<Written> {
    let of = |wanted: &str| counters.iter().find(|(name, _)| name == wanted).map(|(_, count)| *count);
    Some(Written { written: of("Handler_write")?, updated: of("Handler_update")?, deleted: of("Handler_delete")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_complete_counters_count() {
        let all = ["Handler_tmp_write", "Handler_write", "Handler_update", "Handler_delete"];
        let counters: Vec<_> = (1..).zip(all).map(|(count, name)| (name.to_owned(), count)).collect();
        assert_eq!(read(&counters), Some(Written { written: 2, updated: 3, deleted: 4 }));
        for missing in all.iter().skip(1) {
            let some: Vec<_> = counters.iter().filter(|(name, _)| name != missing).cloned().collect();
            assert_eq!(read(&some), None, "without {missing}");
        }
    }
}
