//! What is wrong in a configuration, in a sentence that may stand in a service's log.
//!
//! Deliberately absent: the line that it is in, which the reader of TOML shows. It may hold a password.

/// What is wrong and where, without the line that it is in: that may hold a password.
pub(crate) fn sentence(text: &str, error: &toml::de::Error) -> String {
    let lines = error.message().lines().map(str::trim).filter(|line| !line.is_empty());
    let message = unquoted(&lines.collect::<Vec<_>>().join(" "));
    let Some(span) = error.span() else { return message };
    let Some(before) = text.get(..span.start) else { return message };
    let number = before.matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default();
    // What is missing is missing from all of it.
    if span.start == 0 && (span.end == 0 || span.end > line.len()) {
        return message;
    }
    let is_name =
        |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    let key = line.split_once('=').map(|(key, _)| key.trim()).filter(|key| is_name(key));
    // The last header above; one that is not understood is no name of another one.
    let header = |line: &str| {
        let line = line.trim().strip_prefix('[').map(|_| line.split('#').next().unwrap_or_default().trim())?;
        let inner = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')).unwrap_or_default();
        let name = inner.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(inner);
        Some(is_name(name).then(|| line.to_owned()))
    };
    let section = text.lines().take(number + 1).filter_map(header).last();
    let (section, key) = match section {
        Some(None) => (None, None),
        Some(section) => (section, key),
        None => (None, key),
    };
    let place: Vec<&str> = section.as_deref().into_iter().chain(key).collect();
    if place.is_empty() { format!("line {}: {message}", number + 1) } else { format!("{}: {message}", place.join(" ")) }
}

/// Without the text that stands where it may not: serde repeats it.
fn unquoted(message: &str) -> String {
    const QUOTED: &str = ": string \"";
    let Some((before, rest)) = message.split_once(QUOTED) else { return message.to_owned() };
    match rest.rsplit_once("\", expected") {
        Some((_, behind)) => format!("{before}: a text, expected{behind}"),
        None => format!("{before}: a text"),
    }
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

    #[derive(Debug, Deserialize)]
    struct Needing {
        #[expect(dead_code, reason = "it is missing")]
        data_dir: String,
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
        let told = said("[server]\nthreads = \"two\"\n");
        assert_eq!(told, "[server] threads: invalid type: a text, expected u32");
        for text in [
            format!("resource = \"{url}\"\n"),
            format!("[server]\nthreads = \"a\\\", expected {url}\"\n"),
            format!("[resource.url = \"{url}\"\n"),
            format!("[server]\n[resource.url = \"{url}\"\n"),
        ] {
            let told = said(&text);
            assert!(!told.contains("s3cret"), "{text}{told}");
        }
        assert!(said("[resource.x] # ours\nurl = [\n").starts_with("[resource.x] url: "));
        assert!(said("[server]\nthreads = 1\n[[\"re source\"]]\nurl = [\n").starts_with("line 4: "));
        // What is missing has no place of its own.
        let missing = "[server]\nthreads = 2\n";
        let told = sentence(missing, &toml::from_str::<Needing>(missing).unwrap_err());
        assert_eq!(told, "missing field `data_dir`");
        let told = said("\n  s3cret\n");
        assert!(told.starts_with("line 2: ") && !told.contains("s3cret"), "{told}");
    }
}
