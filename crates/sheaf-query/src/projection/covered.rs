//! A projection answered from an index key: no document is read.

use sheaf_bson::{DocBuilder, RawValue, RecordId};

use super::{Action, Node, Projection};

impl Projection {
    /// Appends to `out` what the projection keeps of a document of which the
    /// index key tells these paths and values, in the key's order.
    ///
    /// Fields come in the key's order; dotted paths become nested documents.
    /// Only for a plain inclusion ([`Projection::is_plain_inclusion`]) over a
    /// key that has all of its paths and met no array.
    pub fn apply_covered<'k>(
        &self,
        key: impl Iterator<Item = (&'k str, RawValue<'k>)>,
        record_id: Option<&RecordId>,
        out: &mut DocBuilder,
    ) {
        let kept: Vec<(&str, RawValue<'_>)> =
            key.filter(|(path, _)| keeps(&self.root, path)).collect();
        append_grouped(&kept, 0, out);
        if let Some(id) = record_id
            && self.show_record_id
        {
            out.append("$recordId", id.as_raw());
        }
    }
}

/// Whether the value at `path` is kept: it, or what it lies in, is included.
fn keeps(node: &Node, path: &str) -> bool {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    match (node.find(name.as_bytes()).map(|f| &f.action), rest) {
        (Some(Action::Include), _) => true,
        (Some(Action::Nested(node)), Some(rest)) => keeps(node, rest),
        _ => false,
    }
}

/// Appends values whose paths agree on their first `skip` bytes; fields of one
/// embedded document go together, at the place of the first of them.
fn append_grouped(values: &[(&str, RawValue<'_>)], skip: usize, out: &mut DocBuilder) {
    let head = |path: &str| -> (usize, bool) {
        match path[skip..].find('.') {
            Some(dot) => (skip + dot, true),
            None => (path.len(), false),
        }
    };
    for (at, (path, value)) in values.iter().enumerate() {
        let (end, nested) = head(path);
        let name = &path[skip..end];
        let same = |other: &str| &other[skip..head(other).0] == name;
        if values[..at].iter().any(|(earlier, _)| same(earlier)) {
            continue;
        }
        if !nested {
            out.append(name, *value);
            continue;
        }
        let group: Vec<(&str, RawValue<'_>)> = values[at..]
            .iter()
            .filter(|(other, _)| same(other) && head(other).1)
            .copied()
            .collect();
        out.begin_document(name);
        append_grouped(&group, end + 1, out);
        out.end();
    }
}
