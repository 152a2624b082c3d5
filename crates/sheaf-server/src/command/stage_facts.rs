//! Facts about aggregation stages that the server checks before a pipeline is parsed.

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
}

const ORDINARY: StageFacts = StageFacts {
    in_transaction: true,
    api_v1: true,
    options_in_v1: None,
    only_local: false,
    writes: false,
    holds_pipelines: false,
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
            ..DIAGNOSTIC
        },
        "$currentOp"
        | "$listClusterCatalog"
        | "$listLocalSessions"
        | "$listMqlEntities"
        | "$planCacheStats"
        | "$querySettings"
        | "$queryStats" => LOCAL,
        "$indexStats" | "$listCatalog" | "$listSessions" => DIAGNOSTIC,
        "$merge" | "$out" => SINK,
        "$listSearchIndexes" | "$rankFusion" | "$scoreFusion" | "$search" | "$searchMeta"
        | "$vectorSearch" => SEARCH,
        "$facet" => StageFacts {
            holds_pipelines: true,
            ..ORDINARY
        },
        _ => ORDINARY,
    }
}
