//! The configuration as it was read, for people: what may be a secret, or hold one, is not shown.

use toml::Value;

/// What was read, as JSON. What may be a secret, or hold one, is not shown.
pub(crate) fn shown(value: &Value) -> serde_json::Value {
    const HIDDEN: [&str; 2] = ["url", "password_hash"];
    match value {
        Value::Table(table) => {
            let entry = |(name, value): (&String, &Value)| {
                let is_hidden = HIDDEN.contains(&name.as_str());
                (name.clone(), if is_hidden { "hidden".into() } else { shown(value) })
            };
            serde_json::Value::Object(table.iter().map(entry).collect())
        }
        Value::Array(list) => list.iter().map(shown).collect(),
        Value::String(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Boolean(is) => (*is).into(),
        Value::Datetime(time) => time.to_string().into(),
    }
}
