//! An object's text taken apart: the name of each member, and the text of its value as it stands there.
//!
//! Walk: [`members`] walks once over the bytes, and knows of JSON only strings and brackets. Whatever is no JSON inside a value is
//! found by who reads that.

use crate::problem::Problem;

/// The members of an object's text, in order.
pub(crate) fn members(text: &[u8]) -> Result<Vec<(String, &[u8])>, Problem> {
    let wrong = || Problem::invalid("the body is no JSON object, and what is put into an object are members");
    let inside = text.trim_ascii().strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).ok_or_else(wrong)?;
    let mut members = Vec::new();
    let mut rest = inside.trim_ascii();
    while !rest.is_empty() {
        let end = end_of(rest).filter(|_| rest.first() == Some(&b'"')).ok_or_else(wrong)?;
        let (name, behind) = rest.split_at_checked(end).ok_or_else(wrong)?;
        let name: String = serde_json::from_slice(name).map_err(|_| wrong())?;
        let value = behind.trim_ascii_start().strip_prefix(b":").ok_or_else(wrong)?.trim_ascii_start();
        let end = end_of(value).ok_or_else(wrong)?;
        let (value, behind) = value.split_at_checked(end).ok_or_else(wrong)?;
        members.push((name, value.trim_ascii_end()));
        rest = behind.trim_ascii_start();
        if let Some(next) = rest.strip_prefix(b",") {
            rest = next.trim_ascii_start();
            if rest.is_empty() {
                return Err(wrong());
            }
        } else if !rest.is_empty() {
            return Err(wrong());
        }
    }
    Ok(members)
}

/// Where the value ends with which this begins; none if it does not, or is none.
fn end_of(text: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for (at, byte) in text.iter().enumerate() {
        if in_string {
            match (escaped, byte) {
                (true, _) => escaped = false,
                (false, b'\\') => escaped = true,
                (false, b'"') => {
                    in_string = false;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' if depth == 0 && at > 0 => return None,
            b'"' => in_string = true,
            b'{' | b'[' => depth = depth.checked_add(1)?,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b',' if depth == 0 => return (at > 0).then_some(at),
            _ => {}
        }
    }
    // A number or a word may be the last.
    (depth == 0 && !in_string && !text.is_empty()).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> Option<Vec<(String, String)>> {
        let members = members(text.as_bytes()).ok()?;
        Some(members.into_iter().map(|(name, value)| (name, String::from_utf8(value.to_vec()).unwrap())).collect())
    }

    #[test]
    fn each_member_has_its_name_and_the_text_of_its_value() {
        let one = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(taken(" {} "), Some(vec![]));
        assert_eq!(taken(r#"{"a":1}"#), Some(vec![one("a", "1")]));
        assert_eq!(
            taken(r#" { "a\"b" : 1.50e3 , "c": [1,{"d":"}],"}] , "": "x\\\"" ,"n":null } "#),
            Some(vec![one("a\"b", "1.50e3"), one("c", r#"[1,{"d":"}],"}]"#), one("", r#""x\\\"""#), one("n", "null")])
        );
        for wrong in [
            "",
            "[]",
            "1",
            "{",
            "}",
            "{]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{a:1}"#,
            r#"{"a":1,}"#,
            r#"{,"a":1}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":"x}"#,
            r#"{"a":[1}"#,
            r#"{"a":1}}"#,
            r#"{"a" 1}"#,
        ] {
            assert_eq!(taken(wrong), None, "{wrong}");
        }
    }
}
