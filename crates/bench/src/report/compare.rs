//! Two reports of one scenario, cell by cell.
