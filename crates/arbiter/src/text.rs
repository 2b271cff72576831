//! A configuration as text: JSON, so that a person who looks into etcd can read who leads.
//!
//! `{"epoch":2,"forced":false,"in_sync":[{"disk":"1f","member":0,"memory":"2"}],"primary":0,"version":3}`
//! Numbers of 64 bits are texts, hexadecimal: many readers of JSON have only 53.

use assent_ids::Epoch;
use assent_membership::{Configuration, InSync, Life, MEMBERS_MAX, Member};
use serde_json::{Map, Value, json};

/// The most bytes of one.
pub(crate) const BYTES_MAX: usize = 4_096;

pub(crate) fn write(configuration: &Configuration) -> String {
    let in_sync: Vec<Value> = configuration
        .in_sync
        .iter()
        .map(|(member, life)| {
            json!({"member": member.0, "disk": format!("{:x}", life.disk), "memory": format!("{:x}", life.memory)})
        })
        .collect();
    json!({
        "version": format!("{:x}", configuration.version),
        "epoch": configuration.epoch.0,
        "primary": configuration.primary.map(|member| member.0),
        "in_sync": in_sync,
        "forced": configuration.forced,
    })
    .to_string()
}

/// The configuration, or what is wrong with the text.
pub(crate) fn read(text: &[u8]) -> Result<Configuration, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("{} bytes; a configuration has at most {BYTES_MAX}", text.len()));
    }
    let value: Value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
    let fields = value.as_object().ok_or("no JSON object")?;
    let listed = fields.get("in_sync").and_then(Value::as_array).ok_or("no `in_sync`")?;
    if listed.len() > MEMBERS_MAX {
        return Err(format!("{} members in sync; at most {MEMBERS_MAX}", listed.len()));
    }
    let mut in_sync = InSync::default();
    for entry in listed {
        let entry = entry.as_object().ok_or("a member in sync that is no object")?;
        let life = Life { disk: long(entry, "disk")?, memory: long(entry, "memory")? };
        in_sync = in_sync.with(member(entry.get("member"))?, life);
    }
    let primary = match fields.get("primary") {
        Some(Value::Null) => None,
        given => Some(member(given)?),
    };
    let epoch = fields.get("epoch").and_then(Value::as_u64).and_then(|epoch| u32::try_from(epoch).ok());
    let configuration = Configuration {
        version: long(fields, "version")?,
        epoch: Epoch(epoch.ok_or("no `epoch`")?),
        primary,
        in_sync,
        forced: fields.get("forced").and_then(Value::as_bool).ok_or("no `forced`")?,
    };
    let led = primary.is_some_and(|primary| configuration.in_sync.life(primary).is_some());
    if configuration.version == 0 || !led || configuration.in_sync.len() != listed.len() {
        return Err("a configuration that cannot be: no version, no primary in sync, or a member twice".to_owned());
    }
    Ok(configuration)
}

fn member(value: Option<&Value>) -> Result<Member, String> {
    let number = value.and_then(Value::as_u64).and_then(|number| u8::try_from(number).ok());
    number.map(Member).ok_or_else(|| "a member that is no number from 0 to 255".to_owned())
}

fn long(fields: &Map<String, Value>, name: &str) -> Result<u64, String> {
    let text = fields.get(name).and_then(Value::as_str);
    text.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(|| format!("no hexadecimal `{name}`"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            version in 1_u64.., epoch: u32, forced: bool,
            lives in prop::collection::btree_map(0_u8.., (any::<u64>(), any::<u64>()), 1..=MEMBERS_MAX),
            chosen: prop::sample::Index,
        ) {
            let primary = Member(*lives.keys().nth(chosen.index(lives.len())).unwrap());
            let in_sync = lives.into_iter().fold(InSync::default(), |set, (member, (disk, memory))| {
                set.with(Member(member), Life { disk, memory })
            });
            let written = Configuration { version, epoch: Epoch(epoch), primary: Some(primary), in_sync, forced };
            let text = write(&written);
            prop_assert!(text.len() <= BYTES_MAX);
            prop_assert_eq!(read(text.as_bytes()), Ok(written));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let good =
            r#"{"epoch":1,"forced":false,"in_sync":[{"disk":"a","member":0,"memory":"1"}],"primary":0,"version":"1"}"#;
        assert!(read(good.as_bytes()).is_ok());
        for (from, to) in [
            (r#""version":"1""#, r#""version":"0""#),
            (r#""version":"1""#, r#""version":1"#),
            (r#""primary":0"#, r#""primary":1"#),
            (r#""primary":0"#, r#""primary":null"#),
            (r#""primary":0"#, r#""primary":256"#),
            (r#""epoch":1"#, r#""epoch":4294967296"#),
            (r#""forced":false,"#, ""),
            (r#""disk":"a""#, r#""disk":"z""#),
            (r#""in_sync":["#, r#""in_sync":[{"disk":"b","member":0,"memory":"1"},"#),
            ("{", "["),
        ] {
            let bad = good.replacen(from, to, 1);
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
        let long = format!("{good}{}", " ".repeat(BYTES_MAX));
        assert!(read(long.as_bytes()).unwrap_err().contains("bytes"));
    }
}
