//! Server parameters, which `setParameter` and `--setParameter` set and `getParameter` shows.
//!
//! One table defines them all, with type, range and default. Values are single words, read without
//! a lock by their [`Parameter`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sheaf_auth::mechanism::Mechanisms;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};
use sheaf_db::Db;
use sheaf_db::QueryOptions;
use sheaf_db::planning::options;
use sheaf_db::planning::plan_cache::CachePolicy;
use sheaf_db::transaction_memory::{ALL_BYTES_MAX, EACH_BYTES_MAX};
use sheaf_query::planner::PlannerOptions;

use crate::host::memory_limit;

/// What a value may be.
#[derive(Debug, Clone, Copy)]
enum Type {
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    Double {
        min: f64,
        max: f64,
    },
    /// Text: `5%` of the memory, or a number with `MB`, `GB` or `TB`. Stored in bytes; a percentage
    /// is stored negated.
    Memory,
    /// Text: names of login mechanisms, with commas. Stored as a set.
    Mechanisms,
}

struct Row {
    name: &'static str,
    value: Type,
    default: f64,
    /// Can be changed while the server runs.
    runtime: bool,
}

macro_rules! parameters {
    ($($(#[$doc:meta])* $id:ident = $name:literal: $type:expr, $default:expr, $runtime:literal;)*) => {
        /// A parameter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Parameter { $($(#[$doc])* $id,)* }

        static ROWS: &[Row] = &[
            $(Row { name: $name, value: $type, default: $default as f64, runtime: $runtime },)*
        ];

        static IDS: &[Parameter] = &[$(Parameter::$id,)*];
    };
}

const PLANNER: PlannerOptions = PlannerOptions::DEFAULT;

const fn int(min: i64, max: i64) -> Type {
    Type::Int { min, max }
}

parameters! {
    /// Blocking stages may write temporary files unless the command overrides this.
    AllowDiskUseByDefault = "allowDiskUseByDefault": Type::Bool, 1, true;
    /// Seconds for which a past timestamp stays readable.
    MinSnapshotHistoryWindowInSeconds = "minSnapshotHistoryWindowInSeconds": int(0, i32::MAX as i64), 300, true;
    /// Milliseconds after which an idle cursor is closed.
    CursorTimeoutMillis = "cursorTimeoutMillis": int(1, i64::MAX), 600_000, true;
    /// Maximum bytes that a blocking stage may hold.
    MaxBlockingSortMemoryUsageBytes = "internalQueryMaxBlockingSortMemoryUsageBytes": int(0, i64::MAX), options::SORT_MEMORY_BYTES_MAX, true;
    /// Maximum number of point scans into which a scan may be exploded for a sort.
    MaxScansToExplode = "internalQueryMaxScansToExplode": int(0, i64::MAX), PLANNER.scans_to_explode_max, true;
    /// Index intersections are the only candidates wherever they are possible.
    ForceIntersectionPlans = "internalQueryForceIntersectionPlans": Type::Bool, PLANNER.force_intersection as u8, true;
    /// Index intersections may use hashing (AND_HASH).
    EnableHashIntersection = "internalQueryPlannerEnableHashIntersection": Type::Bool, PLANNER.hash_intersection as u8, true;
    /// Index intersections are enabled.
    EnableIndexIntersection = "internalQueryPlannerEnableIndexIntersection": Type::Bool, PLANNER.index_intersection as u8, true;
    /// Steps of each candidate in a plan trial.
    PlanEvaluationWorks = "internalQueryPlanEvaluationWorks": int(1, i64::MAX), options::EVALUATION_WORKS, true;
    /// The same, as a fraction of the collection.
    PlanEvaluationCollFraction = "internalQueryPlanEvaluationCollFraction": Type::Double { min: 0.0, max: 1.0 }, options::EVALUATION_COLLECTION_FRACTION, true;
    /// Results that end a plan trial.
    PlanEvaluationMaxResults = "internalQueryPlanEvaluationMaxResults": int(0, i64::MAX), options::EVALUATION_RESULTS_MAX, true;
    /// Maximum number of candidate plans of one query.
    PlannerMaxIndexedSolutions = "internalQueryPlannerMaxIndexedSolutions": int(0, i64::MAX), PLANNER.indexed_solutions_max, true;
    /// Maximum number of combinations of access paths of a disjunction's alternatives.
    EnumerationMaxOrSolutions = "internalQueryEnumerationMaxOrSolutions": int(0, i64::MAX), PLANNER.or_solutions_max, true;
    /// Maximum number of index intersections of one conjunction.
    EnumerationMaxIntersectPerAnd = "internalQueryEnumerationMaxIntersectPerAnd": int(0, i64::MAX), PLANNER.intersections_max, true;
    /// A rooted `$or` is planned branch by branch.
    PlanOrChildrenIndependently = "internalQueryPlanOrChildrenIndependently": Type::Bool, 1, true;
    /// Maximum number of entries of one collection's plan cache.
    CacheMaxEntriesPerCollection = "internalQueryCacheMaxEntriesPerCollection": int(0, i64::MAX), CachePolicy::DEFAULT.entries_max, true;
    /// Maximum bytes of trial details in all plan caches together.
    CacheMaxSizeBytesBeforeStripDebugInfo = "internalQueryCacheMaxSizeBytesBeforeStripDebugInfo": int(0, i64::MAX), CachePolicy::DEFAULT.trial_bytes_max, true;
    /// Maximum number of queries that `$queryStats` counts in a second; 0: none, -1: no limit.
    QueryStatsRateLimit = "internalQueryStatsRateLimit": int(-1, i32::MAX as i64), 0, true;
    /// Maximum memory of what `$queryStats` shows.
    QueryStatsCacheSize = "internalQueryStatsCacheSize": Type::Memory, -1.0, true;
    /// Maximum memory of all plan caches together.
    PlanCacheSize = "planCacheSize": Type::Memory, -5.0, true;
    /// Factor by which an inactive entry's works grow after a more expensive trial.
    CacheWorksGrowthCoefficient = "internalQueryCacheWorksGrowthCoefficient": Type::Double { min: 1.0, max: f64::MAX }, CachePolicy::DEFAULT.works_growth, true;
    /// Multiple of its works that a cached plan may need before it is evicted.
    CacheEvictionRatio = "internalQueryCacheEvictionRatio": Type::Double { min: 1.0, max: f64::MAX }, CachePolicy::DEFAULT.eviction_ratio, true;
    /// Scripts run: `$where`, `$function`, `$accumulator`, mapReduce.
    JavascriptEnabled = "javascriptEnabled": Type::Bool, 1, false;
    /// Maximum megabytes that the scripts of one operation may hold.
    JsHeapLimitMb = "jsHeapLimitMB": int(1, 1 << 20), 100, true;
    /// Milliseconds between two flushes of the log.
    JournalCommitInterval = "journalCommitInterval": int(1, 500), 100, false;
    /// Maximum size of an attribute in a log line, in kilobytes.
    MaxLogSizeKb = "maxLogSizeKB": int(1, 1 << 20), 10, true;
    /// Maximum memory of one index build, in megabytes.
    MaxIndexBuildMemoryUsageMegabytes = "maxIndexBuildMemoryUsageMegabytes": int(50, i64::MAX), 200, true;
    /// Days before the end of a certificate's validity from which a warning is logged; 0 for none.
    CertificateWarningDays = "tlsX509ExpirationWarningThresholdDays": int(0, i32::MAX as i64), 30, false;
    /// Refuse queries that would scan a collection.
    NoTableScan = "notablescan": Type::Bool, PLANNER.no_table_scan as u8, true;
    /// Plans beyond MongoDB's own, and trials by cost.
    PlannerExtensions = "plannerExtensions": Type::Bool, 1, true;
    /// Seconds by which a client may advance the cluster time beyond the machine's clock.
    MaxAcceptableLogicalClockDriftSecs = "maxAcceptableLogicalClockDriftSecs": int(1, i64::MAX), 31_536_000, false;
    /// Milliseconds that a statement of a transaction waits for a collection that is being changed;
    /// negative: no limit.
    MaxTransactionLockRequestTimeoutMillis = "maxTransactionLockRequestTimeoutMillis": int(-1, i64::MAX), 5, true;
    /// Seconds after which a transaction is aborted.
    TransactionLifetimeLimitSeconds = "transactionLifetimeLimitSeconds": int(1, i32::MAX as i64), 60, true;
    /// Bytes of memory that the writes of one transaction may take.
    TransactionMemoryMaxBytes = "transactionMemoryMaxBytes": int(1 << 20, i64::MAX), EACH_BYTES_MAX, true;
    /// Bytes of memory that the writes of all open transactions may take.
    TransactionMemoryTotalMaxBytes = "transactionMemoryTotalMaxBytes": int(1 << 20, i64::MAX), ALL_BYTES_MAX, true;
    /// Expired documents are deleted.
    TtlMonitorEnabled = "ttlMonitorEnabled": Type::Bool, 1, true;
    /// Seconds between two searches for expired documents.
    TtlMonitorSleepSecs = "ttlMonitorSleepSecs": int(1, i32::MAX as i64), 60, true;
    /// Transactions that name no read concern level, or `local` or `majority`, are serializable.
    SerializableTransactionsByDefault = "serializableTransactionsByDefault": Type::Bool, 0, true;
    /// Less logging.
    Quiet = "quiet": Type::Bool, 0, true;
    /// Log lines contain no values that clients sent.
    RedactClientLogData = "redactClientLogData": Type::Bool, 0, true;
    /// Iterations of new SCRAM-SHA-1 keys.
    ScramIterationCount = "scramIterationCount": int(5000, i32::MAX as i64), 10_000, true;
    /// Iterations of new SCRAM-SHA-256 keys.
    ScramSha256IterationCount = "scramSHA256IterationCount": int(5000, i32::MAX as i64), 15_000, true;
    /// Milliseconds that a failed login waits before its reply.
    AuthFailedDelayMs = "authFailedDelayMs": int(0, 5000), 0, false;
    /// Until there is a user, clients on this machine may create one.
    EnableLocalhostAuthBypass = "enableLocalhostAuthBypass": Type::Bool, 1, false;
    /// The mechanisms that logins may use.
    AuthenticationMechanisms = "authenticationMechanisms": Type::Mechanisms, 3, false;
    /// Diagnostic data is written to files: it is not, whatever the value.
    DiagnosticDataCollectionEnabled = "diagnosticDataCollectionEnabled": Type::Bool, 0, true;
    /// Commands for tests: `configureFailPoint`.
    EnableTestCommands = "enableTestCommands": Type::Bool, 0, false;
}

/// When a parameter can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetAt {
    /// When the server starts.
    pub startup: bool,
    /// While it runs.
    pub runtime: bool,
}

impl SetAt {
    /// At any time.
    pub const ANY: SetAt = SetAt {
        startup: true,
        runtime: true,
    };
    /// By another command only.
    pub const NEVER: SetAt = SetAt {
        startup: false,
        runtime: false,
    };
}

/// The values of all parameters.
pub struct Parameters {
    /// Bits of an i64 or an f64, by the parameter's type.
    values: Vec<AtomicU64>,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            values: ROWS
                .iter()
                .map(|row| AtomicU64::new(encode(row.value, row.default)))
                .collect(),
        }
    }
}

fn encode(value_type: Type, value: f64) -> u64 {
    match value_type {
        Type::Bool | Type::Int { .. } | Type::Mechanisms => (value as i64) as u64,
        Type::Double { .. } | Type::Memory => value.to_bits(),
    }
}

impl Parameters {
    /// A whole number, or 0 and 1 for a boolean.
    pub fn int(&self, parameter: Parameter) -> i64 {
        self.values[parameter as usize].load(Ordering::Relaxed) as i64
    }

    /// A boolean.
    pub fn bool(&self, parameter: Parameter) -> bool {
        self.int(parameter) != 0
    }

    /// A fraction.
    pub fn double(&self, parameter: Parameter) -> f64 {
        f64::from_bits(self.values[parameter as usize].load(Ordering::Relaxed))
    }

    /// Whether this is the name of a parameter in this table.
    pub fn knows(name: &str) -> bool {
        position(name).is_some()
    }

    /// Sets a parameter by name; `startup` also allows those that cannot change at runtime.
    /// Appends its old value to `was`.
    /// Errors: `InvalidOptions` (unknown), `IllegalOperation` (start-up only), `BadValue`,
    /// `TypeMismatch`.
    pub fn set(
        &self,
        name: &str,
        value: RawValue<'_>,
        startup: bool,
        was: Option<&mut DocBuilder>,
    ) -> Result<(), Error> {
        let at = position(name).ok_or_else(|| unknown(name))?;
        let row = &ROWS[at];
        if !row.runtime && !startup {
            return Err(Error::new(
                ErrorCode::ILLEGAL_OPERATION,
                format!("not allowed to change [{name}] at runtime"),
            ));
        }
        let bits = parse(row, value)?;
        if let Some(was) = was {
            self.append_as(at, "was", was);
        }
        self.values[at].store(bits, Ordering::Relaxed);
        Ok(())
    }

    /// Appends the parameter's value under this key, if there is such a parameter.
    pub fn append_value(&self, name: &str, key: &str, out: &mut DocBuilder) {
        if let Some(at) = position(name) {
            self.append_as(at, key, out);
        }
    }

    /// The names of all parameters in this table.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }

    /// When the parameter can be set; `None` if there is no such parameter in this table.
    pub fn set_at(name: &str) -> Option<SetAt> {
        let row = &ROWS[position(name)?];
        Some(SetAt {
            startup: true,
            runtime: row.runtime,
        })
    }

    fn append_as(&self, at: usize, key: &str, out: &mut DocBuilder) {
        let id = IDS[at];
        match ROWS[at].value {
            Type::Bool => out.append(key, self.bool(id)),
            Type::Double { .. } => out.append(key, self.double(id)),
            Type::Memory => out.append(key, shown_memory(self.double(id)).as_str()),
            Type::Mechanisms => {
                out.begin_array(key);
                for mechanism in Mechanisms::from_bits(self.int(id).unsigned_abs()).iter() {
                    out.push(mechanism.name());
                }
                out.end()
            }
            Type::Int { .. } => match i32::try_from(self.int(id)) {
                Ok(n) => out.append(key, n),
                Err(_) => out.append(key, self.int(id)),
            },
        };
    }

    /// Bytes of a parameter that is a size or a percentage of the memory.
    pub fn memory_bytes(&self, parameter: Parameter) -> u64 {
        static MEMORY: OnceLock<u64> = OnceLock::new();
        match self.double(parameter) {
            percent if percent < 0.0 => {
                let memory = *MEMORY.get_or_init(|| memory_limit().unwrap_or(1 << 30));
                (memory as f64 * -percent / 100.0) as u64
            }
            bytes => bytes as u64,
        }
    }

    /// Query options with the current values of the parameters.
    pub fn query_options(&self, db: &Db, allow_disk_use: Option<bool>) -> QueryOptions {
        let size = |parameter| usize::try_from(self.int(parameter)).unwrap_or(usize::MAX);
        QueryOptions {
            allow_disk_use: allow_disk_use
                .unwrap_or_else(|| self.bool(Parameter::AllowDiskUseByDefault)),
            sort_memory_bytes_max: size(Parameter::MaxBlockingSortMemoryUsageBytes),
            temp_dir: Some(db.temp_dir().clone()),
            planner: PlannerOptions {
                no_table_scan: self.bool(Parameter::NoTableScan),
                scans_to_explode_max: size(Parameter::MaxScansToExplode),
                index_intersection: self.bool(Parameter::EnableIndexIntersection),
                hash_intersection: self.bool(Parameter::EnableHashIntersection),
                force_intersection: self.bool(Parameter::ForceIntersectionPlans),
                indexed_solutions_max: size(Parameter::PlannerMaxIndexedSolutions),
                or_solutions_max: size(Parameter::EnumerationMaxOrSolutions),
                intersections_max: size(Parameter::EnumerationMaxIntersectPerAnd),
            },
            evaluation_works: self.int(Parameter::PlanEvaluationWorks).unsigned_abs(),
            evaluation_collection_fraction: self.double(Parameter::PlanEvaluationCollFraction),
            evaluation_results_max: size(Parameter::PlanEvaluationMaxResults),
            or_children_independently: self.bool(Parameter::PlanOrChildrenIndependently),
            planner_extensions: self.bool(Parameter::PlannerExtensions),
            plan_cache: CachePolicy {
                entries_max: size(Parameter::CacheMaxEntriesPerCollection),
                trial_bytes_max: self
                    .int(Parameter::CacheMaxSizeBytesBeforeStripDebugInfo)
                    .unsigned_abs(),
                bytes_max: self.memory_bytes(Parameter::PlanCacheSize),
                works_growth: self.double(Parameter::CacheWorksGrowthCoefficient),
                eviction_ratio: self.double(Parameter::CacheEvictionRatio),
            },
            ..QueryOptions::default()
        }
    }
}

fn position(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.name == name)
}

/// The error for an unknown parameter.
pub fn unknown(name: &str) -> Error {
    Error::new(
        ErrorCode::INVALID_OPTIONS,
        format!("unrecognized parameter [{name}]"),
    )
}

fn parse(row: &Row, value: RawValue<'_>) -> Result<u64, Error> {
    let name = row.name;
    let out_of_range =
        |range: String| Error::bad_value(format!("parameter {name} must be within {range}"));
    match row.value {
        Type::Bool => match value {
            RawValue::Boolean(b) => Ok(u64::from(b)),
            RawValue::String("true" | "1") => Ok(1),
            RawValue::String("false" | "0") => Ok(0),
            RawValue::String(_) => Err(type_error(name, "a boolean", value)),
            // As in MongoDB, any other value by its truth.
            value => Ok(u64::from(value.is_truthy())),
        },
        Type::Int { min, max } => {
            let number = match value {
                RawValue::String(text) => text.parse().ok(),
                RawValue::Boolean(value) => Some(i64::from(value)),
                value => value.as_i64_exact(),
            };
            match number {
                Some(n) if (min..=max).contains(&n) => Ok(n as u64),
                Some(_) => Err(out_of_range(format!("[{min}, {max}]"))),
                None => Err(type_error(name, "a whole number", value)),
            }
        }
        Type::Memory => match value {
            RawValue::String(text) => match parse_memory(text) {
                Some(value) => Ok(value.to_bits()),
                None => Err(Error::bad_value(format!(
                    "parameter {name} must be a percentage of the memory such as \"5%\", or a size \
                     such as \"200MB\" or \"1.5GB\""
                ))),
            },
            _ => Err(type_error(name, "a text", value)),
        },
        Type::Mechanisms => match value {
            RawValue::String(text) => Mechanisms::parse(text).map(Mechanisms::bits),
            _ => Err(type_error(name, "a text", value)),
        },
        Type::Double { min, max } => {
            let number = match value {
                RawValue::String(text) => text.parse().ok(),
                value => value.as_f64(),
            };
            match number {
                Some(n) if (min..=max).contains(&n) => Ok(n.to_bits()),
                Some(_) => Err(out_of_range(format!("[{min}, {max}]"))),
                None => Err(type_error(name, "a number", value)),
            }
        }
    }
}

/// The units of a memory size.
const MEMORY_UNITS: [(&str, f64); 3] = [
    ("MB", 1048576.0),
    ("GB", 1073741824.0),
    ("TB", 1099511627776.0),
];

/// Bytes, or a negated percentage; `None` if the text is neither.
fn parse_memory(text: &str) -> Option<f64> {
    let number = |text: &str| {
        let number: f64 = text.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    };
    if let Some(percent) = text.strip_suffix('%') {
        return number(percent)
            .filter(|n| *n > 0.0 && *n <= 100.0)
            .map(|n| -n);
    }
    MEMORY_UNITS
        .iter()
        .find_map(|(unit, bytes)| Some((number(text.strip_suffix(unit)?)? * bytes).trunc()))
}

fn shown_memory(value: f64) -> String {
    match value {
        percent if percent < 0.0 => format!("{}%", -percent),
        bytes => format!("{}MB", bytes / MEMORY_UNITS[0].1),
    }
}

fn type_error(name: &str, wanted: &str, value: RawValue<'_>) -> Error {
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        format!(
            "parameter {name} must be {wanted}, not of type {}",
            value.type_name()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_changes_and_refusals() {
        let parameters = Parameters::default();
        assert_eq!(parameters.int(Parameter::MaxScansToExplode), 200);
        assert!(!parameters.bool(Parameter::NoTableScan));
        assert_eq!(
            parameters.double(Parameter::PlanEvaluationCollFraction),
            0.3
        );
        let size = |text: &str| {
            let set = parameters.set("planCacheSize", text.into(), false, None);
            set.map(|()| parameters.memory_bytes(Parameter::PlanCacheSize))
        };
        assert_eq!(size("200MB").unwrap(), 200 << 20);
        assert_eq!(size("1.5GB").unwrap(), 3 << 29);
        assert!(size("2%").unwrap() > 0);
        for bad in ["5", "%", "-1MB", "101%", "0%", "MB", "x GB", ""] {
            assert_eq!(size(bad).unwrap_err().code(), ErrorCode::BAD_VALUE, "{bad}");
        }
        let mut shown = DocBuilder::new();
        parameters.append_value("planCacheSize", "planCacheSize", &mut shown);
        assert_eq!(shown.finish(), sheaf_bson::doc! {"planCacheSize": "2%"});
        let mut was = DocBuilder::new();
        parameters
            .set("notablescan", true.into(), false, Some(&mut was))
            .unwrap();
        assert!(parameters.bool(Parameter::NoTableScan));
        assert_eq!(was.finish(), sheaf_bson::doc! {"was": false});
        let code = |name, value: RawValue<'_>| {
            parameters.set(name, value, false, None).unwrap_err().code()
        };
        assert_eq!(code("noSuchThing", 1.into()), ErrorCode::INVALID_OPTIONS);
        assert_eq!(code("cursorTimeoutMillis", 0.into()), ErrorCode::BAD_VALUE);
        assert_eq!(
            code("cursorTimeoutMillis", "x".into()),
            ErrorCode::TYPE_MISMATCH
        );
        assert_eq!(
            code("journalCommitInterval", 50.into()),
            ErrorCode::ILLEGAL_OPERATION
        );
        parameters
            .set("journalCommitInterval", "50".into(), true, None)
            .unwrap();
        assert_eq!(parameters.int(Parameter::JournalCommitInterval), 50);
    }
}
