//! What is wrong in a configuration, in a sentence that may stand in a service's log.
//!
//! Deliberately absent: the line that it is in, which the reader of TOML shows. It may hold a password.

/// What is wrong and where, without the line that it is in: that may hold a password.
pub(crate) fn sentence(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let (number, line) = (before.matches('\n').count(), before.rsplit('\n').next().unwrap_or_default());
    let whole = text.lines().nth(number).unwrap_or(line);
    let is_name =
        |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    let key = whole.split_once('=').map(|(key, _)| key.trim()).filter(is_name);
    let section = text.lines().take(number + 1).filter(|line| line.starts_with('[')).last();
    let place: Vec<&str> = section.into_iter().chain(key).collect();
    if place.is_empty() { format!("line {}: {message}", number + 1) } else { format!("{}: {message}", place.join(" ")) }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Whole {
        server: Server,
        resource: Vec<Resource>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Server {
        threads: u32,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Resource {
        name: String,
        url: String,
    }

    fn said(text: &str) -> String {
        sentence(text, &toml::from_str::<Whole>(text).unwrap_err())
    }

    #[test]
    fn a_mistake_is_told_by_its_place_and_never_its_line() {
        let url = "postgresql://u:s3cret@h/d";
        for (mistake, place, what) in [
            (format!("urll = \"{url}\"\n"), "[[resource]] urll: ", "unknown field `urll`"),
            (format!("url = \"{url}\n"), "[[resource]] url: ", "string"),
            (format!("url = {url}\n"), "[[resource]] url: ", ""),
            (format!("url = [\"{url}\"]\n"), "[[resource]] url: ", "invalid type"),
        ] {
            let told = said(&format!("[server]\nthreads = 2\n[[resource]]\nname = \"bank\"\n{mistake}"));
            assert!(told.starts_with(place) && told.contains(what) && !told.contains("s3cret"), "{mistake}{told}");
        }
        assert!(said("[server]\nthreads = \"two\"\n").starts_with("[server] threads: invalid type"));
        let told = said("\n  s3cret\n");
        assert!(told.starts_with("line 2: ") && !told.contains("s3cret"), "{told}");
    }
}
