//! What a privilege is about, and what a command touches.
//!
//! ```text
//!   pattern of a privilege          matches
//!   {anyResource: true}             everything
//!   {cluster: true}                 the server
//!   {db: "", collection: ""}        databases other than local and config, and their collections
//!   {db: "d", collection: ""}       the database d and its collections
//!   {db: "", collection: "c"}       the collections c of all databases
//!   {db: "d", collection: "c"}      the collection d.c
//!   {db: "d", system_buckets: "c"}  the collection d.system.buckets.c
//! ```
//!
//! Patterns with `collection: ""` do not match system collections.

use sheaf_bson::{DocBuilder, Error, RawDoc, RawValue};

/// What a command touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On<'a> {
    /// Everything.
    Anything,
    /// The whole server.
    Cluster,
    /// A database.
    Database(&'a str),
    /// A collection: database and name.
    Collection(&'a str, &'a str),
}

/// The resource of a privilege. An empty name stands for all names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// `{anyResource: true}`.
    Anything,
    /// `{cluster: true}`.
    Cluster,
    /// `{db, collection}`.
    Collection(String, String),
    /// `{db, system_buckets}`.
    Buckets(String, String),
}

const BUCKETS: &str = "system.buckets.";

/// Whether a collection is one of the server's own.
pub fn is_system(db: &str, collection: &str) -> bool {
    collection.starts_with("system.") || db == "local" && collection.starts_with("replset.")
}

/// Whether `{db: "", collection: ""}` leaves the database out.
fn is_internal(db: &str) -> bool {
    matches!(db, "local" | "config")
}

impl Pattern {
    /// A database.
    pub fn database(db: &str) -> Pattern {
        Pattern::Collection(db.to_owned(), String::new())
    }

    /// `{db, collection}`.
    pub fn collection(db: &str, collection: &str) -> Pattern {
        Pattern::Collection(db.to_owned(), collection.to_owned())
    }

    /// The pattern that matches `on`, to keep it.
    pub fn of(on: On<'_>) -> Pattern {
        match on {
            On::Anything => Pattern::Anything,
            On::Cluster => Pattern::Cluster,
            On::Database(db) => Pattern::database(db),
            On::Collection(db, name) => Pattern::collection(db, name),
        }
    }

    /// The reverse of [`Pattern::of`].
    pub fn on(&self) -> On<'_> {
        match self {
            Pattern::Anything | Pattern::Buckets(..) => On::Anything,
            Pattern::Cluster => On::Cluster,
            Pattern::Collection(db, name) if name.is_empty() => On::Database(db),
            Pattern::Collection(db, name) => On::Collection(db, name),
        }
    }

    /// Whether a privilege on the pattern is one on `on`.
    pub fn matches(&self, on: On<'_>) -> bool {
        let is = |pattern: &str, name: &str| pattern.is_empty() || pattern == name;
        match (self, on) {
            (Pattern::Anything, _) | (Pattern::Cluster, On::Cluster) => true,
            (Pattern::Collection(db, name), On::Database(on)) => {
                name.is_empty() && is(db, on) && !(db.is_empty() && is_internal(on))
            }
            (Pattern::Collection(db, name), On::Collection(on, collection)) => match &**name {
                "" => {
                    is(db, on) && !is_system(on, collection) && !(db.is_empty() && is_internal(on))
                }
                name => is(db, on) && name == collection,
            },
            (Pattern::Buckets(db, name), On::Collection(on, collection)) => collection
                .strip_prefix(BUCKETS)
                .is_some_and(|series| is(db, on) && is(name, series)),
            _ => false,
        }
    }

    /// Whether the pattern is about this database only.
    pub fn is_within(&self, database: &str) -> bool {
        match self {
            Pattern::Anything | Pattern::Cluster => false,
            Pattern::Collection(db, _) | Pattern::Buckets(db, _) => db == database,
        }
    }

    /// Parses a resource document.
    /// Errors: `BadValue`.
    pub fn parse(doc: RawDoc<'_>) -> Result<Pattern, Error> {
        let wrong = || {
            Error::bad_value(
                "a resource must be {anyResource: true}, {cluster: true}, {db: <string>, \
                 collection: <string>} or {db: <string>, system_buckets: <string>}",
            )
        };
        let (mut db, mut collection, mut buckets) = (None, None, None);
        let (mut anything, mut cluster) = (false, false);
        for element in doc.iter() {
            match (element.key(), element.value()) {
                ("anyResource", RawValue::Boolean(true)) => anything = true,
                ("cluster", RawValue::Boolean(true)) => cluster = true,
                ("db", RawValue::String(name)) if db.is_none() => db = Some(name.to_owned()),
                ("collection", RawValue::String(name)) => collection = Some(name.to_owned()),
                ("system_buckets", RawValue::String(name)) => buckets = Some(name.to_owned()),
                _ => return Err(wrong()),
            }
        }
        match (anything, cluster, db, collection, buckets) {
            (true, false, None, None, None) => Ok(Pattern::Anything),
            (false, true, None, None, None) => Ok(Pattern::Cluster),
            (false, false, Some(db), Some(name), None) => Ok(Pattern::Collection(db, name)),
            (false, false, db, None, Some(name)) => {
                Ok(Pattern::Buckets(db.unwrap_or_default(), name))
            }
            _ => Err(wrong()),
        }
    }

    /// Appends the document that [`Pattern::parse`] reads.
    pub fn append(&self, key: &str, out: &mut DocBuilder) {
        out.begin_document(key);
        match self {
            Pattern::Anything => out.append("anyResource", true),
            Pattern::Cluster => out.append("cluster", true),
            Pattern::Collection(db, name) => out
                .append("db", db.as_str())
                .append("collection", name.as_str()),
            Pattern::Buckets(db, name) => out
                .append("db", db.as_str())
                .append("system_buckets", name.as_str()),
        };
        out.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::json::parse_doc;

    #[test]
    fn patterns() {
        let on = [
            On::Anything,
            On::Cluster,
            On::Database("d"),
            On::Database("local"),
            On::Collection("d", "c"),
            On::Collection("d", "system.js"),
            On::Collection("config", "c"),
            On::Collection("local", "replset.minvalid"),
            On::Collection("d", "system.buckets.c"),
        ];
        for (pattern, expected) in [
            ("{anyResource: true}", "xxxxxxxxx"),
            ("{cluster: true}", ".x......."),
            ("{db: '', collection: ''}", "..x.x...."),
            ("{db: 'd', collection: ''}", "..x.x...."),
            ("{db: 'local', collection: ''}", "...x....."),
            ("{db: 'config', collection: ''}", "......x.."),
            ("{db: '', collection: 'c'}", "....x.x.."),
            ("{db: 'd', collection: 'c'}", "....x...."),
            ("{db: '', collection: 'system.js'}", ".....x..."),
            ("{db: 'd', system_buckets: 'c'}", "........x"),
            ("{system_buckets: ''}", "........x"),
        ] {
            let parsed = Pattern::parse(parse_doc(pattern).unwrap().as_raw()).unwrap();
            let matched = on.map(|on| if parsed.matches(on) { 'x' } else { '.' });
            assert_eq!(String::from_iter(matched), expected, "{pattern}");
            let mut out = DocBuilder::new();
            parsed.append("r", &mut out);
            let doc = out.finish();
            let again = Pattern::parse(doc.get("r").unwrap().as_document().unwrap());
            assert_eq!(again.unwrap(), parsed);
        }
        for wrong in [
            "{}",
            "{db: 'd'}",
            "{collection: 'c'}",
            "{cluster: false}",
            "{cluster: true, db: 'd', collection: 'c'}",
            "{db: 1, collection: 'c'}",
            "{db: 'd', collection: 'c', x: 1}",
            "{db: 'd', collection: 'c', db: 'e'}",
        ] {
            let error = Pattern::parse(parse_doc(wrong).unwrap().as_raw()).unwrap_err();
            assert_eq!(error.code().0, 2, "{wrong}");
        }
    }
}
