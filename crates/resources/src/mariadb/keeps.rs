//! Whether a server keeps what was prepared: through a power cut, and when the connection ends.
//!
//! Source: MariaDB's manual, "XA Transactions" (since 10.5.2 a prepared branch outlives its connection) and
//! "innodb_flush_log_at_trx_commit"; MySQL's manual, "XA Transaction States" (since 5.7.7).
//! Deliberately absent: the questions to the server (`mod.rs`).

/// The first versions that keep a prepared branch when its connection ends. Before, it was rolled back.
const MARIADB: [u32; 3] = [10, 5, 2];
const MYSQL: [u32; 3] = [5, 7, 7];

/// Why not, in one sentence that says what to do.
pub(crate) fn check(flush: u64, version: &str) -> Result<(), String> {
    let (server, first) = if version.contains("MariaDB") { ("MariaDB", MARIADB) } else { ("MySQL", MYSQL) };
    let Some(found) = numbers(version) else {
        return Err(format!("its version {version:?} cannot be read"));
    };
    if found < first {
        let [major, minor, patch] = first;
        return Err(format!(
            "version {version} rolls a prepared branch back when its connection ends; upgrade to {server} \
             {major}.{minor}.{patch} or later"
        ));
    }
    // 3 flushes as 1 does, and once more.
    if flush == 1 || flush == 3 {
        return Ok(());
    }
    Err(format!(
        "innodb_flush_log_at_trx_commit = {flush}, so a power cut would take back what it has voted; set it to 1 in the \
         server's configuration and by SET GLOBAL innodb_flush_log_at_trx_commit = 1"
    ))
}

/// `10.11.19` of `10.11.19-MariaDB-0+deb12u1`.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let plain =
        version.split_once(|byte: char| !byte.is_ascii_digit() && byte != '.').map_or(version, |(plain, _)| plain);
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_roll_back_with_the_connection_are_refused() {
        for version in [
            "10.5.2-MariaDB",
            "10.11.19-MariaDB-0+deb12u1",
            "11.4.2-MariaDB-log",
            "5.7.7-log",
            "8.0.36",
            "8.4.0-0ubuntu1",
        ] {
            assert_eq!(check(1, version), Ok(()), "{version}");
            assert_eq!(check(3, version), Ok(()), "{version}");
        }
        for (version, wanted) in [
            ("10.4.32-MariaDB", "upgrade to MariaDB 10.5.2"),
            ("5.5.68-MariaDB", "upgrade to MariaDB 10.5.2"),
            ("5.7.6", "upgrade to MySQL 5.7.7"),
            ("5.6.51-log", "upgrade to MySQL 5.7.7"),
            ("", "cannot be read"),
            ("10.5-MariaDB", "cannot be read"),
            ("new", "cannot be read"),
        ] {
            let said = check(1, version).unwrap_err();
            assert!(said.contains(wanted), "{version}: {said}");
        }
    }

    #[test]
    fn votes_that_are_not_flushed_are_refused() {
        for flush in [0, 2, 4] {
            let said = check(flush, "10.11.19-MariaDB").unwrap_err();
            assert!(said.contains(&format!("= {flush},")) && said.contains("set it to 1"), "{said}");
        }
    }
}
