//! Applies a projection to an index key, without reading the document.

use sheaf_bson::{DocBuilder, RawValue, RecordId};

use super::{Action, Node, Projection};

impl Projection {
    /// Appends to `out` what the projection keeps of a document, given the paths and values of its
    /// index key in the key's order.
    ///
    /// Fields are in the key's order; dotted paths become nested documents. Only valid for a plain
    /// inclusion ([`Projection::is_plain_inclusion`]) and a key that has all of its paths and
    /// traversed no array.
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

/// Whether the value at `path` is kept: the path or an ancestor is included.
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

/// Appends values whose paths share their first `skip` bytes. Fields of an embedded document are
/// grouped at the position of the first one.
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
