//! Commands as currentOp, the profiler and the log show them: whole, or truncated with the comment.
//!
//! ```text
//!   {find: "c", filter: {..}, comment: "why"}                 unchanged, if short enough
//!   {$truncated: "{ find: \"c\", filter: { a: { $in: [...", comment: "why"}     otherwise
//! ```

use sheaf_bson::json::shell_doc;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, Value};

/// Replaces the value of a sensitive field.
const REDACTED: &str = "###";

/// A command limited to about `bytes_max`, with its own or inherited comment, and without the
/// values of its sensitive fields.
pub fn shown(
    command: RawDoc<'_>,
    sensitive: &[&str],
    comment: Option<&Value>,
    bytes_max: usize,
) -> DocBuf {
    if sensitive.iter().any(|field| command.get(field).is_some()) {
        let mut out = DocBuilder::new();
        for element in command.iter() {
            match sensitive.contains(&element.key()) {
                true => {
                    out.append(element.key(), REDACTED);
                }
                false => {
                    out.append_raw_element(element);
                }
            }
        }
        return shown(out.finish().as_raw(), &[], comment, bytes_max);
    }
    if command.len_bytes() <= bytes_max {
        return match comment.filter(|_| command.get("comment").is_none()) {
            None => command.to_buf(),
            Some(comment) => {
                let mut out = DocBuilder::from_doc(command);
                out.append_value("comment", comment);
                out.finish()
            }
        };
    }
    let mut leading = DocBuilder::new();
    for element in command.iter().filter(|element| element.key() != "comment") {
        if leading.current_len() + element.as_bytes().len() > bytes_max {
            break;
        }
        leading.append_raw_element(element);
    }
    let mut text = shell_doc(leading.finish().as_raw());
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str("...");
    let mut out = DocBuilder::new();
    out.append("$truncated", text.as_str());
    if let Some(comment) = comment {
        out.append_value("comment", comment);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::doc;

    #[test]
    fn short_and_long() {
        let comment = Value::from("why");
        let short = doc! {"find": "c", "batchSize": 5};
        assert_eq!(shown(short.as_raw(), &[], None, 100), short);
        let expected = doc! {"find": "c", "batchSize": 5, "comment": "why"};
        assert_eq!(shown(short.as_raw(), &[], Some(&comment), 100), expected);
        assert_eq!(shown(expected.as_raw(), &[], Some(&comment), 100), expected);
        let long = doc! {"insert": "c", "documents": ["x".repeat(1000)], "comment": "why"};
        let cut = shown(long.as_raw(), &[], Some(&comment), 100);
        let text = cut.get("$truncated").and_then(|v| v.as_str());
        assert!(text.is_some_and(|text| text.contains("insert") && text.ends_with("...")));
        assert_eq!(cut.get("comment").and_then(|v| v.as_str()), Some("why"));
        // The rest is no longer than requested, and truncated between characters.
        let wide = doc! {"find": "ü".repeat(40), "more": "y".repeat(100)};
        let cut = shown(wide.as_raw(), &[], None, 101);
        let text = cut.get("$truncated").and_then(|v| v.as_str());
        assert!(text.is_some_and(|text| text.len() <= 104 && text.contains('ü')));
    }

    #[test]
    fn sensitive_values_are_not_shown() {
        let command = doc! {"createUser": "ada", "pwd": "secret", "roles": []};
        let wanted = doc! {"createUser": "ada", "pwd": "###", "roles": []};
        assert_eq!(shown(command.as_raw(), &["pwd"], None, 1000), wanted);
        let cut = shown(command.as_raw(), &["pwd"], None, 40);
        let text = cut.get("$truncated").and_then(|v| v.as_str());
        assert!(text.is_some_and(|text| text.contains("ada") && !text.contains("secret")));
    }
}
