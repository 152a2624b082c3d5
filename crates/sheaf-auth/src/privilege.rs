//! Privileges, and what a user's privileges together allow.

use std::collections::HashMap;

use sheaf_bson::{DocBuilder, Error, RawDoc, RawValue};

use crate::action::{Action, ActionSet};
use crate::resource::{On, Pattern, is_system};

/// Actions on a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privilege {
    /// `resource`.
    pub resource: Pattern,
    /// `actions`.
    pub actions: ActionSet,
}

impl Privilege {
    /// These actions on this resource.
    pub fn new(resource: Pattern, actions: ActionSet) -> Privilege {
        Privilege { resource, actions }
    }

    /// Parses `{resource, actions}`.
    /// Errors: `BadValue`, for an action without a meaning too.
    pub fn parse(doc: RawDoc<'_>) -> Result<Privilege, Error> {
        Privilege::read(doc, |name| {
            Err(Error::bad_value(format!(
                "Unrecognized action privilege strings: {name}"
            )))
        })
    }

    /// As [`Privilege::parse`], of a stored privilege: skips actions of other versions.
    /// Errors: `BadValue`.
    pub fn stored(doc: RawDoc<'_>) -> Result<Privilege, Error> {
        Privilege::read(doc, |_| Ok(()))
    }

    fn read(
        doc: RawDoc<'_>,
        unknown: impl Fn(&str) -> Result<(), Error>,
    ) -> Result<Privilege, Error> {
        let (mut resource, mut actions) = (None, None);
        for element in doc.iter() {
            match (element.key(), element.value()) {
                ("resource", RawValue::Document(doc)) if resource.is_none() => {
                    resource = Some(Pattern::parse(doc)?);
                }
                ("actions", RawValue::Array(list)) if actions.is_none() => {
                    let mut set = ActionSet::EMPTY;
                    for name in list.iter() {
                        let name = name.as_str().ok_or_else(wrong)?;
                        match Action::named(name) {
                            Some(action) => set = set.with(action),
                            None => unknown(name)?,
                        }
                    }
                    actions = Some(set);
                }
                _ => return Err(wrong()),
            }
        }
        match (resource, actions) {
            (Some(resource), Some(actions)) => Ok(Privilege { resource, actions }),
            _ => Err(wrong()),
        }
    }

    /// Pushes the document that [`Privilege::parse`] reads.
    pub fn push(&self, out: &mut DocBuilder) {
        out.push_begin_document();
        self.resource.append("resource", out);
        out.begin_array("actions");
        for action in self.actions.iter() {
            out.push(action.name());
        }
        out.end();
        out.end();
    }
}

fn wrong() -> Error {
    Error::bad_value("a privilege must be {resource: <document>, actions: [<string>, ...]}")
}

/// Adds a privilege to a list in which every resource occurs once.
pub fn merge(list: &mut Vec<Privilege>, privilege: Privilege) {
    match list
        .iter_mut()
        .find(|known| known.resource == privilege.resource)
    {
        Some(known) => known.actions = known.actions.union(privilege.actions),
        None => list.push(privilege),
    }
}

/// What several privileges together allow, for quick lookups.
#[derive(Debug, Clone, Default)]
pub struct PrivilegeSet {
    anything: ActionSet,
    cluster: ActionSet,
    /// `{db: "", collection: ""}`.
    ordinary: ActionSet,
    databases: HashMap<String, ActionSet>,
    /// By name, in all databases.
    collections: HashMap<String, ActionSet>,
    /// By name within a database.
    exact: HashMap<String, HashMap<String, ActionSet>>,
    /// Privileges on buckets, which are rare.
    buckets: Vec<Privilege>,
}

impl PrivilegeSet {
    /// The set of these privileges.
    pub fn new(privileges: &[Privilege]) -> PrivilegeSet {
        let mut set = PrivilegeSet::default();
        for Privilege { resource, actions } in privileges {
            let slot = match resource {
                Pattern::Anything => &mut set.anything,
                Pattern::Cluster => &mut set.cluster,
                Pattern::Collection(db, name) => match (&**db, &**name) {
                    ("", "") => &mut set.ordinary,
                    (db, "") => set.databases.entry(db.to_owned()).or_default(),
                    ("", name) => set.collections.entry(name.to_owned()).or_default(),
                    (db, name) => {
                        let within = set.exact.entry(db.to_owned()).or_default();
                        within.entry(name.to_owned()).or_default()
                    }
                },
                Pattern::Buckets(..) => {
                    set.buckets.push(Privilege::new(resource.clone(), *actions));
                    continue;
                }
            };
            *slot = slot.union(*actions);
        }
        set
    }

    /// Whether the action is allowed on the resource.
    pub fn allows(&self, action: Action, on: On<'_>) -> bool {
        self.any(on, |actions| actions.allows(action))
    }

    /// Whether any action is allowed on the resource.
    pub fn allows_something(&self, on: On<'_>) -> bool {
        self.any(on, |actions| !actions.is_empty())
    }

    /// Whether any action is allowed on the database or on one of its collections.
    pub fn allows_something_within(&self, db: &str) -> bool {
        self.allows_something(On::Database(db))
            || self.exact.contains_key(db)
            || !self.collections.is_empty()
            || self
                .buckets
                .iter()
                .any(|privilege| match &privilege.resource {
                    Pattern::Buckets(of, _) => of.is_empty() || of == db,
                    _ => false,
                })
    }

    fn any(&self, on: On<'_>, wanted: impl Fn(&ActionSet) -> bool) -> bool {
        let is = |actions: Option<&ActionSet>| actions.is_some_and(&wanted);
        if wanted(&self.anything) {
            return true;
        }
        let of_database = |db: &str| {
            !matches!(db, "local" | "config") && wanted(&self.ordinary)
                || is(self.databases.get(db))
        };
        match on {
            On::Anything => false,
            On::Cluster => wanted(&self.cluster),
            On::Database(db) => of_database(db),
            On::Collection(db, name) => {
                !is_system(db, name) && of_database(db)
                    || is(self.exact.get(db).and_then(|within| within.get(name)))
                    || is(self.collections.get(name))
                    || (self.buckets.iter())
                        .any(|one| one.resource.matches(on) && wanted(&one.actions))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::json::parse_doc;

    #[test]
    fn documents() {
        let text = "{resource: {db: 'd', collection: 'c'}, actions: ['find', 'insert']}";
        let privilege = Privilege::parse(parse_doc(text).unwrap().as_raw()).unwrap();
        let mut out = DocBuilder::new();
        out.begin_array("a");
        privilege.push(&mut out);
        out.end();
        let wanted = parse_doc(&format!("{{a: [{text}]}}")).unwrap();
        assert_eq!(out.finish(), wanted);
        let unknown = "{resource: {cluster: true}, actions: ['find', 'fly']}";
        let unknown = parse_doc(unknown).unwrap();
        assert_eq!(Privilege::parse(unknown.as_raw()).unwrap_err().code().0, 2);
        let stored = Privilege::stored(unknown.as_raw()).unwrap();
        assert_eq!(stored.actions.iter().count(), 1);
        for wrong in [
            "{}",
            "{resource: {cluster: true}}",
            "{actions: []}",
            "{x: 1}",
        ] {
            assert!(Privilege::parse(parse_doc(wrong).unwrap().as_raw()).is_err());
        }
    }

    /// The set allows exactly what one of its privileges matches.
    #[test]
    fn a_set_allows_what_its_privileges_allow() {
        let names = [
            "",
            "d",
            "e",
            "local",
            "config",
            "c",
            "system.js",
            "system.buckets.c",
        ];
        let mut patterns = vec![Pattern::Anything, Pattern::Cluster];
        for db in names {
            for name in names {
                patterns.push(Pattern::collection(db, name));
                patterns.push(Pattern::Buckets(db.to_owned(), name.to_owned()));
            }
        }
        let mut on = vec![On::Anything, On::Cluster];
        for db in &names[1..] {
            on.push(On::Database(db));
            on.extend(names[1..].iter().map(|name| On::Collection(db, name)));
        }
        for pattern in patterns {
            let one = Privilege::new(pattern.clone(), ActionSet::of(&[Action::Find]));
            let set = PrivilegeSet::new(&[one]);
            for on in &on {
                assert_eq!(
                    set.allows(Action::Find, *on),
                    pattern.matches(*on),
                    "{pattern:?} {on:?}"
                );
                assert_eq!(set.allows_something(*on), pattern.matches(*on));
                assert!(!set.allows(Action::Insert, *on));
            }
        }
    }
}
