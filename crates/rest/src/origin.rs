//! Where nobody has to say who he is, a web page must not speak for whoever looks at it.
//!
//! A browser on this machine reaches a listener on loopback. Two ways lead there from a page of a stranger: its own name that
//! suddenly means 127.0.0.1, and a form or script that sends without reading. The first has a name in `Host`, the second
//! says where it comes from.
//!
//! Walk: [`judge`] · a name of this machine, or an address · the page's origin is this listener itself.
//! Deliberately absent: CORS. Where callers have tokens, a page that has none can do nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use assent_kind::Kind;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Uri, header};

use crate::problem::Problem;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what a page of somebody else may have sent. Beyond loopback a listener may have any name.
pub(crate) fn judge(uri: &Uri, headers: &HeaderMap, is_loopback: bool) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    // HTTP/2 has it in the address, HTTP/1.0 perhaps nowhere; a browser always says it.
    let host = text(header::HOST).or_else(|| uri.authority().map(Authority::as_str));
    if let Some(host) = host.filter(|host| is_loopback && !is_here(host)) {
        let why = "is no name of this machine, and nobody has to say here who he is: ask by 127.0.0.1 or localhost, or write \
                   [identity]";
        return Err(refused(&format!("Host {host:?} {why}")));
    }
    if let Some(origin) = text(header::ORIGIN) {
        let page = origin.split_once("://").map(|(_, authority)| authority);
        if page.is_none() || page != host {
            return Err(refused(&format!("a page of {origin:?} may not speak for whoever looks at it")));
        }
    }
    match text(FETCH_SITE) {
        None | Some("none" | "same-origin") => Ok(()),
        Some(site) => Err(refused(&format!("a page of another site ({site:?}) may not speak for whoever looks at it"))),
    }
}

fn refused(detail: &str) -> Problem {
    Problem::of(Kind::Denied, detail)
}

/// An address, or a name that nobody can make mean another machine (RFC 6761, 6.3).
fn is_here(host: &str) -> bool {
    // Most say this, and it need not be taken apart by other rules.
    if host.parse::<Ipv4Addr>().is_ok() || host.parse::<SocketAddrV4>().is_ok() {
        return true;
    }
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok() || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(headers: &[(&'static str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()));
        judge(&Uri::from_static("/db"), &headers.collect(), true).is_ok()
    }

    #[test]
    fn a_name_that_may_mean_anything_is_refused_and_an_address_is_not() {
        for here in
            ["127.0.0.1", "127.0.0.1:9443", "[::1]:9443", "localhost", "LocalHost:1", "a.localhost", "10.0.0.7:80"]
        {
            assert!(judged(&[("host", here)]), "{here}");
        }
        for elsewhere in [
            "evil.example",
            "evil.example:9443",
            "localhost.evil.example",
            "127.0.0.1.example",
            "",
            "a b",
            "xlocalhost",
        ] {
            assert!(!judged(&[("host", elsewhere)]), "{elsewhere}");
        }
        assert!(judged(&[]), "no browser leaves it out");
        let of_h2 = "http://evil.example/db".parse().unwrap();
        assert!(judge(&of_h2, &HeaderMap::new(), true).is_err() && judge(&of_h2, &HeaderMap::new(), false).is_ok());
    }

    #[test]
    fn a_page_speaks_for_who_looks_at_it_only_where_it_came_from_here() {
        let host = ("host", "127.0.0.1:9443");
        assert!(judged(&[host, ("origin", "http://127.0.0.1:9443"), ("sec-fetch-site", "same-origin")]));
        assert!(judged(&[host, ("sec-fetch-site", "none")]), "typed into the address bar");
        for origin in ["http://evil.example", "null", "http://127.0.0.1:8080", "http://localhost:9443"] {
            assert!(!judged(&[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "anything"] {
            assert!(!judged(&[host, ("sec-fetch-site", site)]), "{site}");
        }
    }
}
