//! `[assets]`: everything that the command line of `assent assets serve` has, under the same names.
//!
//! Walk: [`keys`] what may be written · a table becomes words of a command line ([`Serve::try_from`]), so that ranges, defaults and what
//! goes together are said once, where the options are.

use clap::{Args as _, Command, FromArgMatches as _};
use toml::{Table, Value};

use super::options::Serve;

/// What a configuration says elsewhere, and where; or what is said once.
const ELSEWHERE: [(&str, &str); 3] = [
    ("data", "data_dir says where: it is the folder assets there"),
    ("admin", "write [admin] listen"),
    ("take_over", "it is said once: assent assets serve --take-over"),
];

fn command() -> Command {
    Serve::augment_args(Command::new("assets").no_binary_name(true).disable_help_flag(true))
}

/// The keys of the section.
pub(crate) fn keys() -> Vec<String> {
    let is_here = |key: &String| !ELSEWHERE.iter().any(|(other, _)| other == key);
    command().get_arguments().map(|argument| argument.get_id().to_string()).filter(is_here).collect()
}

impl TryFrom<Table> for Serve {
    type Error = String;

    fn try_from(section: Table) -> Result<Self, String> {
        // Whoever serves it says where.
        let mut words = vec!["--data=.".to_owned()];
        let keys = keys();
        for (key, value) in &section {
            if !keys.contains(key) {
                let elsewhere = ELSEWHERE.iter().find(|(other, _)| other == key).map(|(_, says)| *says);
                let says = elsewhere.map_or_else(|| format!("[assets] has {}", keys.join(", ")), str::to_owned);
                return Err(format!("assets.{key}: no such key; {says}"));
            }
            let option = key.replace('_', "-");
            match value {
                Value::Boolean(false) => {}
                Value::Boolean(true) => words.push(format!("--{option}")),
                Value::Array(list) => {
                    for value in list {
                        words.push(format!("--{option}={}", word(key, value)?));
                    }
                }
                value => words.push(format!("--{option}={}", word(key, value)?)),
            }
        }
        let serve = command().try_get_matches_from(words).and_then(|found| Self::from_arg_matches(&found));
        serve.map_err(|error| format!("assets: {}", sentence(&error)))
    }
}

fn word(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        other => Err(format!("assets.{key} = {other}; write a text, a whole number, or a list of texts")),
    }
}

/// What is wrong, without advice about a command line that nobody wrote.
fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines =
        text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    text.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::options::Acknowledge;

    fn read(text: &str) -> Result<Serve, String> {
        Serve::try_from(toml::from_str::<Table>(text).unwrap())
    }

    #[test]
    fn a_section_says_what_a_command_line_says_and_has_its_defaults() {
        let solo = read("").unwrap();
        assert_eq!((solo.ack, solo.listen.as_str(), solo.trace_every), (Acknowledge::Durable, "127.0.0.1:7433", 64));
        let text = "ack = \"received\"\nnode = 2\nmember = [\"1=a:1,a:2\", \"2=b:1,b:2\"]\nwitness = \"w:1\"\n\
                    silent_ms = 200\ninsecure = true\n";
        let node = read(text).unwrap();
        assert_eq!((node.ack, node.group.node, node.group.silent_ms), (Acknowledge::Received, Some(2), 200));
        assert_eq!((node.group.member.len(), node.insecure), (2, true));
        assert!(!read("insecure = false").unwrap().insecure);
        assert!(keys().iter().any(|key| key == "max_elapsed_sync_time"), "{:?}", keys());
    }

    #[test]
    fn the_manual_lists_every_option_with_its_default_and_no_other() {
        let page = include_str!("../../../../docs/assets.md");
        let listed: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| `--") && !line.contains("` | an ")).collect();
        let command = command();
        let options: Vec<String> = command
            .get_arguments()
            .map(|argument| {
                let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
                let default = if argument.get_action().takes_values() { defaults.collect() } else { String::new() };
                format!("| `--{}` | {default} |", argument.get_long().unwrap())
            })
            .collect();
        for option in &options {
            assert!(listed.iter().any(|line| line.starts_with(option.as_str())), "docs/assets.md lacks {option}");
        }
        for line in listed {
            assert!(options.iter().any(|option| line.starts_with(option.as_str())), "there is no such option: {line}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key_and_its_value() {
        let cases = [
            ("colour = 1", "assets.colour: no such key; [assets] has "),
            ("data = \"d\"", "data_dir says where"),
            ("admin = \"127.0.0.1:1\"", "[admin] listen"),
            ("take_over = \"d\"", "--take-over"),
            ("ack = \"maybe\"", "'maybe'"),
            ("silent_ms = 1", "60..=60000"),
            ("trace_every = 1.5", "assets.trace_every = 1.5"),
            ("node = 1", "--member"),
            ("node = 1\nwitness = \"w:1\"\nmember = \"1\"", "N=PEER,CLIENT"),
        ];
        for (text, says) in cases {
            let wrong = read(text).unwrap_err();
            assert!(wrong.contains(says) && !wrong.contains("--help") && !wrong.contains("Usage"), "{text}: {wrong}");
        }
    }
}
