//! The counters of one key.

use sheaf_bson::{DateTime, Decimal128, DocBuf, DocBuilder, Timestamp};

use super::key::{Key, Transform};

/// Memory of an entry besides its key.
const ENTRY_BYTES: usize = size_of::<Entry>() + 128;

/// The work of a command, or of one getMore.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Time that it took.
    pub micros: u64,
    /// Documents returned.
    pub docs_returned: u64,
    /// Index keys examined.
    pub keys_examined: u64,
    /// Documents examined.
    pub docs_examined: u64,
    /// Documents were sorted.
    pub has_sort_stage: bool,
    /// Temporary files were written.
    pub used_disk: bool,
    /// Several plans were tried.
    pub from_multi_planner: bool,
    /// The plan came from the plan cache.
    pub from_plan_cache: bool,
}

/// The work of a query: of its command and its getMores.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    work: Work,
    /// Time of the command alone.
    first_micros: Option<u64>,
}

impl Totals {
    pub(super) fn add(&mut self, more: &Work) {
        self.first_micros.get_or_insert(more.micros);
        let work = &mut self.work;
        work.micros += more.micros;
        work.docs_returned += more.docs_returned;
        work.keys_examined += more.keys_examined;
        work.docs_examined += more.docs_examined;
        work.has_sort_stage |= more.has_sort_stage;
        work.used_disk |= more.used_disk;
        work.from_multi_planner |= more.from_multi_planner;
        work.from_plan_cache |= more.from_plan_cache;
    }
}

/// Sum, extremes and sum of squares of a number.
#[derive(Debug, Clone, Copy)]
struct Aggregate {
    sum: u64,
    max: u64,
    min: u64,
    sum_of_squares: u128,
}

impl Default for Aggregate {
    fn default() -> Self {
        Aggregate {
            sum: 0,
            max: 0,
            min: u64::MAX,
            sum_of_squares: 0,
        }
    }
}

impl Aggregate {
    fn add(&mut self, n: u64) {
        self.sum = self.sum.saturating_add(n);
        self.max = self.max.max(n);
        self.min = self.min.min(n);
        let square = u128::from(n) * u128::from(n);
        self.sum_of_squares = self.sum_of_squares.saturating_add(square);
    }

    fn append(&self, name: &str, out: &mut DocBuilder) {
        let squares: Result<Decimal128, _> = self.sum_of_squares.to_string().parse();
        out.begin_document(name);
        out.append("sum", long(self.sum));
        out.append("max", long(self.max));
        out.append("min", long(self.min));
        // Rounded beyond 34 digits.
        if let Ok(squares) = squares {
            out.append("sumOfSquares", squares);
        }
        out.end();
    }
}

fn long(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// How often something was so, and how often not.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    yes: u64,
    no: u64,
}

impl Counted {
    fn add(&mut self, is: bool) {
        match is {
            true => self.yes += 1,
            false => self.no += 1,
        }
    }

    fn append(&self, name: &str, out: &mut DocBuilder) {
        out.begin_document(name);
        out.append("true", long(self.yes));
        out.append("false", long(self.no));
        out.end();
    }
}

/// An entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    key: Key,
    /// When it was last used, in uses of all entries.
    pub(super) used: u64,
    last_micros: u64,
    executions: u64,
    total_micros: Aggregate,
    first_micros: Aggregate,
    docs_returned: Aggregate,
    keys_examined: Aggregate,
    docs_examined: Aggregate,
    has_sort_stage: Counted,
    used_disk: Counted,
    from_multi_planner: Counted,
    from_plan_cache: Counted,
    first_seen: DateTime,
    latest_seen: DateTime,
}

impl Entry {
    pub(super) fn new(key: Key, used: u64) -> Entry {
        let now = DateTime::now();
        Entry {
            key,
            used,
            last_micros: 0,
            executions: 0,
            total_micros: Aggregate::default(),
            first_micros: Aggregate::default(),
            docs_returned: Aggregate::default(),
            keys_examined: Aggregate::default(),
            docs_examined: Aggregate::default(),
            has_sort_stage: Counted::default(),
            used_disk: Counted::default(),
            from_multi_planner: Counted::default(),
            from_plan_cache: Counted::default(),
            first_seen: now,
            latest_seen: now,
        }
    }

    pub(super) fn add(&mut self, totals: &Totals) {
        let work = &totals.work;
        self.last_micros = work.micros;
        self.executions += 1;
        self.total_micros.add(work.micros);
        self.first_micros.add(totals.first_micros.unwrap_or(0));
        self.docs_returned.add(work.docs_returned);
        self.keys_examined.add(work.keys_examined);
        self.docs_examined.add(work.docs_examined);
        self.has_sort_stage.add(work.has_sort_stage);
        self.used_disk.add(work.used_disk);
        self.from_multi_planner.add(work.from_multi_planner);
        self.from_plan_cache.add(work.from_plan_cache);
        self.latest_seen = DateTime::now();
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.key.bytes() + ENTRY_BYTES
    }

    /// As `$queryStats` shows it.
    pub(super) fn document(&self, transform: Option<&Transform>) -> DocBuf {
        let mut out = DocBuilder::new();
        self.key.append(transform, &mut out);
        out.begin_document("metrics");
        out.append("lastExecutionMicros", long(self.last_micros));
        out.append("execCount", long(self.executions));
        for (name, aggregate) in [
            ("totalExecMicros", &self.total_micros),
            ("firstResponseExecMicros", &self.first_micros),
            ("docsReturned", &self.docs_returned),
            ("keysExamined", &self.keys_examined),
            ("docsExamined", &self.docs_examined),
        ] {
            aggregate.append(name, &mut out);
        }
        out.append("workingTimeMillis", long(self.total_micros.sum / 1000));
        for (name, counted) in [
            ("hasSortStage", &self.has_sort_stage),
            ("usedDisk", &self.used_disk),
            ("fromMultiPlanner", &self.from_multi_planner),
            ("fromPlanCache", &self.from_plan_cache),
        ] {
            counted.append(name, &mut out);
        }
        // Operations do not wait for tickets.
        for name in [
            "delinquentAcquisitions",
            "totalAcquisitionDelinquencyMillis",
            "maxAcquisitionDelinquencyMillis",
        ] {
            out.append(name, 0i64);
        }
        out.append("firstSeenTimestamp", self.first_seen);
        out.append("latestSeenTimestamp", self.latest_seen);
        out.end();
        let seconds = DateTime::now().0 / 1000;
        out.append(
            "asOf",
            Timestamp {
                time: u32::try_from(seconds).unwrap_or(0),
                increment: 0,
            },
        );
        out.finish()
    }
}
