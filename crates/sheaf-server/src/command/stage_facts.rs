//! Facts about aggregation stages that the server checks before a pipeline is parsed.

use crate::command_facts::Action;

/// The privilege that a stage requires for its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// It reads what precedes it: as the first stage, the documents of the collection.
    Documents,
    /// As the first stage it reads something else about the collection, which requires this.
    OfCollection(Action),
    /// As the first stage it reads about the server, which requires this on the cluster.
    OfCluster(Action),
    /// As the first stage it reads about users, whose own data require nothing.
    OfUsers(Action),
    /// It has its own documents.
    Own,
}

/// Facts about a stage.
#[derive(Debug, Clone, Copy)]
pub struct StageFacts {
    /// Whether it may run in a transaction.
    pub in_transaction: bool,
    /// Whether it belongs to version 1 of the Stable API.
    pub api_v1: bool,
    /// The fields of its operand that belong to version 1; `None` means all.
    pub options_in_v1: Option<&'static [&'static str]>,
    /// Whether it accepts no read concern level but `local`.
    pub only_local: bool,
    /// Whether it writes what it reads, so that it cannot be linearizable.
    pub writes: bool,
    /// Whether every array in its operand is a pipeline.
    pub holds_pipelines: bool,
    /// The privilege that its input requires.
    pub input: Input,
}

const ORDINARY: StageFacts = StageFacts {
    in_transaction: true,
    api_v1: true,
    options_in_v1: None,
    only_local: false,
    writes: false,
    holds_pipelines: false,
    input: Input::Documents,
};

/// About the server rather than about documents.
const DIAGNOSTIC: StageFacts = StageFacts {
    in_transaction: false,
    api_v1: false,
    ..ORDINARY
};

/// Stages that describe this server's memory, to which no read concern applies.
const LOCAL: StageFacts = StageFacts {
    only_local: true,
    ..DIAGNOSTIC
};

const SINK: StageFacts = StageFacts {
    in_transaction: false,
    writes: true,
    ..ORDINARY
};

const SEARCH: StageFacts = StageFacts {
    api_v1: false,
    ..ORDINARY
};

/// The facts about the stage of this name; those of an ordinary stage for an unknown one.
pub fn of(name: &str) -> StageFacts {
    match name {
        "$collStats" => StageFacts {
            api_v1: true,
            options_in_v1: Some(&["count"]),
            input: Input::OfCollection(Action::CollStats),
            ..DIAGNOSTIC
        },
        "$currentOp" => StageFacts {
            input: Input::OfUsers(Action::Inprog),
            ..LOCAL
        },
        "$listLocalSessions" => StageFacts {
            input: Input::OfUsers(Action::ListSessions),
            ..LOCAL
        },
        "$listSessions" => StageFacts {
            input: Input::OfUsers(Action::ListSessions),
            ..DIAGNOSTIC
        },
        "$listClusterCatalog" => StageFacts {
            input: Input::OfCluster(Action::ListClusterCatalog),
            ..LOCAL
        },
        "$planCacheStats" => StageFacts {
            input: Input::OfCollection(Action::PlanCacheRead),
            ..LOCAL
        },
        "$querySettings" => StageFacts {
            input: Input::OfCluster(Action::QuerySettings),
            ..LOCAL
        },
        "$queryStats" => StageFacts {
            input: Input::OfCluster(Action::QueryStatsRead),
            ..LOCAL
        },
        "$listMqlEntities" => StageFacts {
            input: Input::Own,
            ..LOCAL
        },
        "$indexStats" => StageFacts {
            input: Input::OfCollection(Action::IndexStats),
            ..DIAGNOSTIC
        },
        "$listCatalog" => StageFacts {
            input: Input::OfCluster(Action::ListClusterCatalog),
            ..DIAGNOSTIC
        },
        "$changeStream" => StageFacts {
            input: Input::OfCollection(Action::ChangeStream),
            ..ORDINARY
        },
        "$documents" => StageFacts {
            input: Input::Own,
            ..ORDINARY
        },
        "$listSearchIndexes" => StageFacts {
            input: Input::OfCollection(Action::ListSearchIndexes),
            ..SEARCH
        },
        "$merge" | "$out" => SINK,
        "$rankFusion" | "$scoreFusion" | "$search" | "$searchMeta" | "$vectorSearch" => SEARCH,
        "$facet" => StageFacts {
            holds_pipelines: true,
            ..ORDINARY
        },
        _ => ORDINARY,
    }
}
