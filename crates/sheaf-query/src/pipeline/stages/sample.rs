//! `$sample`: a random sample of documents.
//!
//! Every document draws a random number; those with the least numbers are kept, and returned in the
//! order of their numbers, which is random. At the start of a pipeline over a large collection,
//! `sheaf-db` reads only a few random documents instead.

use std::collections::BinaryHeap;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, Value, doc};

use crate::arithmetic::Number;
use crate::expression::location;
use crate::matcher::Dependencies;
use crate::pipeline::environment::{Environment, SpillStats, SpillStore};
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};

#[derive(Debug)]
struct Sample {
    size: u64,
}

/// Parses `{size: n}`. Errors: 28745 to 28749.
pub fn parse(value: RawValue<'_>, _: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(location(
            28745,
            "the $sample stage specification must be an object",
        ));
    };
    let mut size = None;
    for element in spec {
        if element.key() != "size" {
            return Err(location(
                28748,
                format!("unrecognized option to $sample: {}", element.key()),
            ));
        }
        // A wrong type is reported before another option, a wrong number after it.
        let number = Number::from_raw(element.value());
        size = Some(
            number.ok_or_else(|| location(28746, "size argument to $sample must be a number"))?,
        );
    }
    let number = size.ok_or_else(|| location(28749, "$sample stage must specify a size"))?;
    let whole = match number.is_nan() {
        true => None,
        false => u64::try_from(number.saturating_i64()).ok(),
    };
    match whole {
        Some(size) => Ok(ParsedStage::of(Sample { size })),
        None => Err(location(
            28747,
            format!(
                "size argument to $sample must not be negative: {}",
                shell(RawValue::from(number))
            ),
        )),
    }
}

impl PipelineStage for Sample {
    fn name(&self) -> &'static str {
        "$sample"
    }

    fn operand(&self) -> Value {
        Value::Document(doc! {"size": i64::try_from(self.size).unwrap_or(i64::MAX)})
    }

    fn add_dependencies(&self, _: &mut Dependencies) -> Passes {
        Passes::Documents
    }

    fn start(&self) -> Box<dyn StageExec> {
        Box::new(Sampler {
            size: usize::try_from(self.size).unwrap_or(usize::MAX),
            kept: BinaryHeap::new(),
            bytes: 0,
            seen: 0,
            output: Vec::new(),
            store: None,
            given: 0,
            stats: SpillStats::default(),
        })
    }
}

struct Sampler {
    size: usize,
    /// The kept documents, as a heap with the greatest number on top.
    kept: BinaryHeap<Drawn>,
    bytes: usize,
    seen: u64,
    /// The output in reverse order.
    output: Vec<DocBuf>,
    /// Spilled documents; each run has the least numbers at the time of its spill, and all runs are
    /// merged.
    store: Option<Box<dyn SpillStore>>,
    /// Number of documents returned from the store.
    given: usize,
    stats: SpillStats,
}

struct Drawn {
    number: (u64, u64),
    doc: DocBuf,
}

impl PartialEq for Drawn {
    fn eq(&self, other: &Drawn) -> bool {
        self.number == other.number
    }
}

impl Eq for Drawn {}

impl Ord for Drawn {
    fn cmp(&self, other: &Drawn) -> std::cmp::Ordering {
        self.number.cmp(&other.number)
    }
}

impl PartialOrd for Drawn {
    fn partial_cmp(&self, other: &Drawn) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Sampler {
    /// Writes the kept documents to disk, as one run.
    fn spill(&mut self, env: &dyn Environment) -> Result<()> {
        let store = match &mut self.store {
            Some(store) => store,
            None => self.store.insert(env.spill("$sample")?),
        };
        store.begin_run()?;
        let held = self.bytes + self.kept.len() * size_of::<Drawn>();
        for drawn in std::mem::take(&mut self.kept).into_sorted_vec() {
            env.check_interrupt()?;
            let (number, seen) = drawn.number;
            let key = [number.to_be_bytes(), seen.to_be_bytes()].concat();
            store.push(&key, drawn.doc.as_bytes())?;
            self.stats.records += 1;
        }
        self.stats.count(held, store.bytes_written());
        self.bytes = 0;
        Ok(())
    }
}

impl StageExec for Sampler {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        if self.size == 0 {
            return Ok(Pushed::Enough);
        }
        let number = (env.random(), self.seen);
        self.seen += 1;
        if self.kept.len() == self.size {
            if self.kept.peek().is_some_and(|last| last.number <= number) {
                return Ok(Pushed::Nothing);
            }
            if let Some(gone) = self.kept.pop() {
                self.bytes -= gone.doc.len_bytes();
            }
        }
        self.bytes += doc.len_bytes();
        self.kept.push(Drawn {
            number,
            doc: doc.to_buf(),
        });
        let held = self.bytes + self.kept.len() * size_of::<Drawn>();
        if held > env.memory_bytes_max() {
            self.spill(env)?;
        }
        Ok(Pushed::Nothing)
    }

    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        if self.store.is_some() {
            return self.spill(env);
        }
        let sorted = std::mem::take(&mut self.kept).into_sorted_vec();
        self.output = sorted.into_iter().rev().map(|drawn| drawn.doc).collect();
        Ok(())
    }

    fn next(&mut self, _: &dyn Environment) -> Result<Option<DocBuf>> {
        let Some(store) = &mut self.store else {
            return Ok(self.output.pop());
        };
        if self.given == self.size {
            return Ok(None);
        }
        self.given += 1;
        let Some(record) = store.next()? else {
            return Ok(None);
        };
        match RawDoc::parse(&record.payload) {
            Ok(doc) => Ok(Some(doc.to_buf())),
            Err(_) => Err(Error::new(
                ErrorCode::INTERNAL_ERROR,
                "a spilled document is damaged; the disk of temporary files may be failing",
            )),
        }
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        self.stats.append(out);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::expression::seed_random;
    use crate::pipeline::environment::Isolated;

    #[test]
    fn every_document_is_as_likely() {
        seed_random(42);
        let env = Isolated;
        let mut chosen = [0; 10];
        for _ in 0..3000 {
            let mut exec = Sample { size: 3 }.start();
            for i in 0..10 {
                exec.push(doc! {"i": i}.as_raw(), &env).unwrap();
            }
            exec.end(&env).unwrap();
            let mut found = BTreeSet::new();
            while let Some(doc) = exec.next(&env).unwrap() {
                let at = doc.get("i").and_then(|v| v.as_i64_exact()).unwrap() as usize;
                chosen[at] += 1;
                assert!(found.insert(at));
            }
            assert_eq!(found.len(), 3);
        }
        // The expected count is 900; seven standard deviations of about 25 are allowed.
        assert!(chosen.iter().all(|n| (725..1075).contains(n)), "{chosen:?}");
    }
}
