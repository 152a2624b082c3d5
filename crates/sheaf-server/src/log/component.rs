//! Severities and components, with MongoDB's names.

use std::fmt;

/// How severe a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The process ends.
    Fatal,
    /// Something failed that should not.
    Error,
    /// Something is likely to go wrong.
    Warning,
    /// Information for operators.
    Info,
    /// Logged at this verbosity, 1 to 5, and above.
    Debug(u8),
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Severity::Fatal => f.write_str("F"),
            Severity::Error => f.write_str("E"),
            Severity::Warning => f.write_str("W"),
            Severity::Info => f.write_str("I"),
            Severity::Debug(level) => write!(f, "D{level}"),
        }
    }
}

macro_rules! components {
    ($($variant:ident $name:literal $label:literal $parent:ident,)*) => {
        /// The part of the server a line comes from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Component {
            $(#[doc = concat!("`", $label, "` in lines, `", $name, "` in `logComponentVerbosity`.")] $variant,)*
        }

        impl Component {
            /// All components, each parent before its children.
            pub const ALL: &'static [Component] = &[$(Component::$variant),*];

            /// The name in a line's `c`.
            pub fn label(self) -> &'static str {
                match self { $(Component::$variant => $label,)* }
            }

            /// The dotted name in `logComponentVerbosity` and `systemLog.component`;
            /// empty for the default.
            pub fn name(self) -> &'static str {
                match self { $(Component::$variant => $name,)* }
            }

            /// The component whose verbosity this one inherits; the default
            /// inherits from itself.
            pub fn parent(self) -> Component {
                match self { $(Component::$variant => Component::$parent,)* }
            }
        }
    };
}

components! {
    Default "" "-" Default,
    AccessControl "accessControl" "ACCESS" Default,
    Command "command" "COMMAND" Default,
    Control "control" "CONTROL" Default,
    Geo "geo" "GEO" Default,
    Index "index" "INDEX" Default,
    Network "network" "NETWORK" Default,
    Query "query" "QUERY" Default,
    Replication "replication" "REPL" Default,
    Election "replication.election" "ELECTION" Replication,
    Heartbeats "replication.heartbeats" "REPL_HB" Replication,
    InitialSync "replication.initialSync" "INITSYNC" Replication,
    Rollback "replication.rollback" "ROLLBACK" Replication,
    Sharding "sharding" "SHARDING" Default,
    Storage "storage" "STORAGE" Default,
    Recovery "storage.recovery" "RECOVERY" Storage,
    Journal "storage.journal" "JOURNAL" Storage,
    Transaction "transaction" "TXN" Default,
    Write "write" "WRITE" Default,
}

impl Component {
    /// The component of this dotted name.
    pub fn from_name(name: &str) -> Option<Component> {
        Component::ALL.iter().copied().find(|c| c.name() == name)
    }
}
