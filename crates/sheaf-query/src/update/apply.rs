//! Applies operators in one traversal of the document and the update's tree, which writes the new
//! document.
//!
//! ```text
//!   document   _id  x  a{ b  c  d }  y          tree  a ├─ c  $inc
//!                                                       └─ e  $set
//!   output     _id  x  a{ b  c' d  e }  y
//!              ╰copied╯    ╰╯   ╰╯    ╰╯ copied
//! ```
//!
//! Fields that no path names are copied as bytes, in runs. Fields keep their positions; missing
//! fields are appended after the existing ones, in the order of the tree.
//!
//! With positional components, several nodes of the tree can apply to one value (`a.$[x].b` and
//! `a.$[y].c`), so the traversal carries a set of nodes. A leaf cannot share a value with another
//! node (40).

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{
    Collator, DocBuf, DocBuilder, RawArray, RawDoc, RawElement, RawValue, values_equal,
};
use smallvec::SmallVec;

use super::array_filters::ArrayFilters;
use super::modified_paths::ModifiedPaths;
use super::operator::{Change, NewValue, Operator, Place, depth, name_document, set};
use super::path::Component;
use super::tree::{Leaf, Node, Tree};
use super::{ApplyContext, DEPTH_MAX, PADDING_MAX};
use crate::interrupt;

/// The nodes that apply to one value; almost always one.
type Nodes<'u> = SmallVec<[&'u Node; 1]>;

/// A named child of the current nodes.
struct Child<'u> {
    component: std::borrow::Cow<'u, Component>,
    nodes: Nodes<'u>,
    done: bool,
}

type Children<'u> = SmallVec<[Child<'u>; 4]>;

/// One application of the operators to one document.
pub(super) struct Walk<'u, 'd> {
    tree: &'u Tree,
    filters: &'u ArrayFilters,
    context: &'u ApplyContext,
    /// The collation for text; `None` to compare by bytes.
    collator: Option<&'u Collator>,
    doc: RawDoc<'d>,
    /// The value that each `$rename` moves; `None` if its source is missing.
    renamed: &'u [Option<RawValue<'d>>],
    /// Path of the current value, with array positions in place of positional components.
    path: String,
    /// Number of documents and arrays that enclose the current value.
    depth: usize,
    out: DocBuilder,
    modified: ModifiedPaths,
}

impl<'u, 'd: 'u> Walk<'u, 'd> {
    pub(super) fn new(
        tree: &'u Tree,
        filters: &'u ArrayFilters,
        context: &'u ApplyContext,
        doc: RawDoc<'d>,
        renamed: &'u [Option<RawValue<'d>>],
    ) -> Walk<'u, 'd> {
        let out = DocBuilder::with_vec(Vec::with_capacity(doc.len_bytes() + 64));
        Walk {
            tree,
            filters,
            context,
            collator: None,
            doc,
            renamed,
            path: String::new(),
            depth: 1,
            out,
            modified: ModifiedPaths::default(),
        }
    }

    /// Sets the collation for text.
    pub(super) fn with_collator(self, collator: Option<&'u Collator>) -> Walk<'u, 'd> {
        Walk { collator, ..self }
    }

    /// The new document and the paths that changed.
    pub(super) fn run(mut self) -> Result<(DocBuf, ModifiedPaths)> {
        let tree = self.tree;
        self.document(&SmallVec::from_slice(&[&tree.root]), self.doc)?;
        Ok((self.out.finish(), self.modified))
    }

    /// Appends a name to the path. Returns the previous length of the path, to restore it.
    fn enter(&mut self, name: &str) -> usize {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        before
    }

    fn mark(&mut self) {
        self.modified.add(&self.path);
    }

    /// The leaf among the nodes; `None` if all are inner nodes.
    ///
    /// Errors: ConflictingUpdateOperators for a leaf and other nodes.
    fn leaf(&self, nodes: &Nodes<'u>) -> Result<Option<&'u Leaf>> {
        let leaf = nodes.iter().find_map(|node| match node {
            Node::Leaf(at) => Some(&self.tree.leaves[*at]),
            Node::Inner(_) => None,
        });
        if leaf.is_some() && nodes.len() > 1 {
            return Err(Error::new(
                ErrorCode::CONFLICTING_UPDATE_OPERATORS,
                format!(
                    "the update created a conflict at '{}': two of its paths lead there",
                    self.path
                ),
            ));
        }
        Ok(leaf)
    }

    /// The children of the nodes, merged and in order, with `$` resolved.
    fn fields(&self, nodes: &Nodes<'u>) -> Result<Children<'u>> {
        let mut out: Children<'u> = SmallVec::new();
        for node in nodes {
            let Node::Inner(children) = node else {
                continue;
            };
            for (component, child) in children {
                let component = match component {
                    Component::Matched => std::borrow::Cow::Owned(self.matched()?),
                    named => std::borrow::Cow::Borrowed(named),
                };
                interrupt::step()?;
                out.push(Child {
                    component,
                    nodes: SmallVec::from_slice(&[child]),
                    done: false,
                });
            }
        }
        // The children of a single node are sorted already; `$` and other nodes require a merge.
        if !out.is_sorted_by(|a, b| a.component < b.component) {
            out.sort_by(|a, b| a.component.cmp(&b.component));
            let mut merged: Children<'u> = SmallVec::with_capacity(out.len());
            for child in out {
                match merged.last_mut() {
                    Some(last) if last.component == child.component => {
                        last.nodes.extend(child.nodes);
                    }
                    _ => merged.push(child),
                }
            }
            out = merged;
        }
        Ok(out)
    }

    /// The array position of `$`. Errors: BadValue if the query matched no array element.
    fn matched(&self) -> Result<Component> {
        match self.context.matched_array_index {
            Some(index) => Ok(Component::Field {
                name: index.to_string().into(),
                index: u32::try_from(index).ok(),
            }),
            None => Err(Error::bad_value(
                "the positional operator did not find the match needed from the query: the query must match an element of the array to which '$' refers",
            )),
        }
    }

    /// Writes the elements of a document into the open frame.
    fn document(&mut self, nodes: &Nodes<'u>, doc: RawDoc<'d>) -> Result<()> {
        let mut children = self.fields(nodes)?;
        if children.iter().any(|c| c.component.needs_array()) {
            return Err(self.not_an_array(RawValue::Document(doc)));
        }
        let bytes = doc.as_bytes();
        let (mut run, mut at) = (4, 4);
        let mut left = children.len();
        for element in doc {
            if left == 0 {
                break;
            }
            let end = at + element.as_bytes().len();
            if let Some(index) = find(&children, element.key_bytes())
                && !children[index].done
            {
                left -= 1;
                children[index].done = true;
                self.out.append_element_bytes(&bytes[run..at]);
                run = end;
                let nodes = std::mem::take(&mut children[index].nodes);
                let before = self.enter(element.key());
                self.element(&nodes, element.key(), element, false)?;
                self.path.truncate(before);
            }
            at = end;
        }
        // The fields after the last named one, or all remaining fields if some named ones are
        // missing.
        if left == 0 {
            at = bytes.len() - 1;
        }
        self.out.append_element_bytes(&bytes[run..at]);
        for child in &children {
            if let (false, Component::Field { name, .. }) = (child.done, &*child.component) {
                let before = self.enter(name);
                self.create(&child.nodes, name)?;
                self.path.truncate(before);
            }
        }
        Ok(())
    }

    /// Writes the elements of an array into the open frame.
    fn array(&mut self, nodes: &Nodes<'u>, array: RawArray<'d>) -> Result<()> {
        let children = self.fields(nodes)?;
        for child in &children {
            if let Component::Field { name, index: None } = &*child.component
                && self.would_create(&child.nodes)
            {
                let before = self.enter(name);
                let error = self.not_viable(name, RawValue::Array(array));
                self.path.truncate(before);
                return Err(error);
            }
        }
        let selective = children.iter().any(|c| c.component.needs_array());
        let index_of = |child: &Child<'_>| match &*child.component {
            Component::Field { index, .. } => *index,
            _ => None,
        };
        let last_named = children.iter().filter_map(index_of).max();
        // Positions are first in the order of components; the others are tested for each element.
        let others = children.partition_point(|child| index_of(child).is_some());
        let (positions, others) = children.split_at(others);
        let mut positions_left = positions.iter().peekable();
        let bytes = array.as_bytes();
        let (mut run, mut at) = (4, 4);
        let mut count: u32 = 0;
        for element in array.elements() {
            let end = at + element.as_bytes().len();
            // After the last position that a path names, elements are only counted and copied.
            if selective || last_named.is_some_and(|last| count <= last) {
                let mut here: Nodes<'u> = SmallVec::new();
                let at_count = |child: &&Child<'u>| index_of(child) == Some(count);
                if let Some(child) = positions_left.next_if(at_count) {
                    here.extend(child.nodes.iter().copied());
                }
                for child in others {
                    interrupt::count(1);
                    let selected = match &*child.component {
                        Component::All => true,
                        Component::Filtered(filter) => {
                            self.filters.matches(*filter, element.value())?
                        }
                        Component::Field { .. } | Component::Matched => false,
                    };
                    if selected {
                        here.extend(child.nodes.iter().copied());
                    }
                }
                if !here.is_empty() {
                    self.out.append_element_bytes(&bytes[run..at]);
                    run = end;
                    let before = self.enter(&count.to_string());
                    self.element(&here, element.key(), element, true)?;
                    self.path.truncate(before);
                }
            }
            at = end;
            count += 1;
        }
        self.out.append_element_bytes(&bytes[run..at]);
        let missing = children.iter().filter_map(|c| Some((index_of(c)?, c)));
        for (index, child) in missing
            .filter(|(index, _)| *index >= count)
            .collect::<Vec<_>>()
        {
            let before = self.path.len();
            if self.would_create(&child.nodes) {
                if index - count > PADDING_MAX {
                    return Err(Error::new(
                        ErrorCode::CANNOT_BACKFILL_ARRAY,
                        format!(
                            "cannot fill the array '{}' with more than {PADDING_MAX} nulls up to position {index}",
                            self.path
                        ),
                    ));
                }
                // An index on the array may contain the new nulls: the array itself is modified.
                self.mark();
                while count < index {
                    self.out.append(count.to_string(), RawValue::Null);
                    count += 1;
                }
                self.enter(&index.to_string());
                self.create(&child.nodes, &index.to_string())?;
                count += 1;
            }
            self.path.truncate(before);
        }
        Ok(())
    }

    /// Writes the new value of an element that paths name or traverse.
    fn element(
        &mut self,
        nodes: &Nodes<'u>,
        key: &str,
        element: RawElement<'d>,
        in_array: bool,
    ) -> Result<()> {
        interrupt::step()?;
        let value = element.value();
        if let Some(leaf) = self.leaf(nodes)? {
            match self.change(leaf, Some(value))? {
                Change::Keep => {
                    self.out.append_raw_element(element);
                }
                // An _id never changes, not even from 1 to 1.0.
                Change::Set(new) if self.path == "_id" && values_equal(new.as_raw(), value) => {
                    self.out.append_raw_element(element);
                }
                Change::Set(new) => {
                    // $addToSet appends at the end.
                    match leaf.operator {
                        Operator::AddToSet(_) => self.modified.add_appended(&self.path),
                        _ => self.mark(),
                    }
                    self.out.append(key, new.as_raw());
                }
                Change::Append(values) => {
                    self.modified.add_appended(&self.path);
                    self.append(key, value, values);
                }
                // The other elements of an array keep their positions: null replaces the removed
                // one.
                Change::Remove if in_array => {
                    if !matches!(value, RawValue::Null) {
                        self.mark();
                    }
                    self.out.append(key, RawValue::Null);
                }
                Change::Remove => self.mark(),
            }
            return Ok(());
        }
        match value {
            RawValue::Document(doc) => {
                self.out.begin_document(key);
                self.depth += 1;
                self.document(nodes, doc)?;
                self.depth -= 1;
                self.out.end();
            }
            RawValue::Array(array) => {
                self.out.begin_array(key);
                self.depth += 1;
                self.array(nodes, array)?;
                self.depth -= 1;
                self.out.end();
            }
            scalar => {
                self.check_selects_no_elements(nodes, Some(scalar))?;
                if self.would_create(nodes) {
                    let name = self.first_name(nodes)?;
                    let before = self.enter(&name);
                    let error = self.not_viable(&name, scalar);
                    self.path.truncate(before);
                    return Err(error);
                }
                self.out.append_raw_element(element);
            }
        }
        Ok(())
    }

    /// Writes the array `old` with `values` appended.
    fn append(&mut self, key: &str, old: RawValue<'_>, values: &[sheaf_bson::Value]) {
        let RawValue::Array(array) = old else { return };
        let bytes = array.as_bytes();
        self.out.begin_array(key);
        self.out
            .append_element_bytes(bytes.get(4..bytes.len() - 1).unwrap_or(&[]));
        for (index, value) in (array.count()..).zip(values) {
            self.out.append(index.to_string(), value);
        }
        self.out.end();
    }

    /// Writes the value that paths create for a missing field, if any.
    fn create(&mut self, nodes: &Nodes<'u>, key: &str) -> Result<()> {
        self.check_selects_no_elements(nodes, None)?;
        if let Some(leaf) = self.leaf(nodes)? {
            if let Change::Set(new) = self.change(leaf, None)? {
                self.mark();
                self.out.append(key, new.as_raw());
            }
            return Ok(());
        }
        if !self.would_create(nodes) {
            return Ok(());
        }
        self.out.begin_document(key);
        self.depth += 1;
        for child in &self.fields(nodes)? {
            if let Component::Field { name, .. } = &*child.component {
                let before = self.enter(name);
                self.create(&child.nodes, name)?;
                self.path.truncate(before);
            }
        }
        self.depth -= 1;
        self.out.end();
        Ok(())
    }

    /// The change of a leaf to a value.
    ///
    /// Errors: those of the operator, and Overflow for nesting deeper than the limit.
    fn change(&self, leaf: &'u Leaf, existing: Option<RawValue<'d>>) -> Result<Change<'u>> {
        let mut operand_depth = None;
        let change = match &leaf.operator {
            Operator::RenameTo(at) => match self.renamed[*at] {
                Some(value) => {
                    operand_depth = Some(depth(value));
                    set(existing, NewValue::Raw(value))
                }
                None => Change::Keep,
            },
            Operator::RenameFrom(at) => match self.renamed[*at] {
                Some(_) => Change::Remove,
                None => Change::Keep,
            },
            operator => {
                let place = Place {
                    path: &self.path,
                    doc: self.doc,
                    context: self.context,
                    collator: self.collator,
                };
                operator.apply(existing, &place)?
            }
        };
        if matches!(change, Change::Set(_) | Change::Append(_)) {
            let operand_depth = operand_depth.unwrap_or_else(|| leaf.operator.operand_depth());
            if self.depth + operand_depth > DEPTH_MAX {
                return Err(Error::new(
                    ErrorCode::OVERFLOW,
                    format!(
                        "the update of '{}' would nest {} deeper than {DEPTH_MAX} levels",
                        leaf.path,
                        name_document(self.doc)
                    ),
                ));
            }
        }
        Ok(change)
    }

    /// Whether some leaf at or below the nodes would create a missing field.
    fn would_create(&self, nodes: &Nodes<'u>) -> bool {
        nodes.iter().any(|node| self.creates(node))
    }

    fn creates(&self, node: &Node) -> bool {
        match node {
            Node::Leaf(at) => match &self.tree.leaves[*at].operator {
                Operator::RenameTo(at) => self.renamed[*at].is_some(),
                operator => operator.creates(self.context),
            },
            Node::Inner(children) => children.iter().any(|(_, child)| self.creates(child)),
        }
    }

    fn first_name(&self, nodes: &Nodes<'u>) -> Result<String> {
        let children = self.fields(nodes)?;
        let named = children.iter().find(|c| self.would_create(&c.nodes));
        Ok(match named.map(|c| &*c.component) {
            Some(Component::Field { name, .. }) => name.to_string(),
            _ => String::new(),
        })
    }

    /// Errors: `$[]` or `$[x]` applies to a value that is not an array.
    fn check_selects_no_elements(
        &self,
        nodes: &Nodes<'u>,
        value: Option<RawValue<'_>>,
    ) -> Result<()> {
        let selects = nodes.iter().any(|node| match node {
            Node::Inner(children) => children
                .first_key_value()
                .is_some_and(|(c, _)| c.needs_array()),
            Node::Leaf(_) => false,
        });
        match value {
            _ if !selects => Ok(()),
            Some(value) => Err(self.not_an_array(value)),
            None => Err(Error::bad_value(format!(
                "the path '{}' must exist in the document in order to apply array updates to its elements",
                self.path
            ))),
        }
    }

    fn not_an_array(&self, value: RawValue<'_>) -> Error {
        Error::bad_value(format!(
            "cannot apply array updates to the non-array element '{}: {}' of {}",
            self.path,
            shell(value),
            name_document(self.doc)
        ))
    }

    /// The error for creating a field in a value that is not a document.
    fn not_viable(&self, name: &str, parent: RawValue<'_>) -> Error {
        let parent_path = self
            .path
            .strip_suffix(name)
            .unwrap_or(&self.path)
            .trim_end_matches('.');
        Error::new(
            ErrorCode::PATH_NOT_VIABLE,
            format!(
                "cannot create field '{name}' in element {{{parent_path}: {}}} of {}",
                shell(parent),
                name_document(self.doc)
            ),
        )
    }
}

/// The child with this name. Searches linearly among few children, by bisection among many.
fn find(children: &Children<'_>, key: &[u8]) -> Option<usize> {
    let name_is = |child: &Child<'_>| match &*child.component {
        Component::Field { name, .. } => name.as_bytes() == key,
        _ => false,
    };
    if children.len() <= 8 {
        return children.iter().position(name_is);
    }
    let name = std::str::from_utf8(key).ok()?;
    let wanted = Component::Field {
        name: name.into(),
        index: sheaf_bson::path::array_index(name),
    };
    children
        .binary_search_by(|c| (*c.component).cmp(&wanted))
        .ok()
}
