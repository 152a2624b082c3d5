//! Compares the checker with a naive evaluation of the bounds, and its counters with a second,
//! simpler model of the same rules over small integers.

use sheaf_bson::Value;

use super::*;
use crate::planner::bounds::OrderedIntervalList;
use crate::random::Random;

/// An interval of integers, with its ends in scan order.
#[derive(Debug, Clone, Copy)]
struct Range {
    start: i64,
    start_inclusive: bool,
    end: i64,
    end_inclusive: bool,
}

const LOWEST: i64 = i64::MIN;
const HIGHEST: i64 = i64::MAX;

/// One case: keys and bounds in scan order. `sign` is -1 for fields in descending scan order.
#[derive(Debug)]
struct Case {
    keys: Vec<Vec<i64>>,
    fields: Vec<Vec<Range>>,
    sign: Vec<i64>,
}

#[derive(Debug, PartialEq, Eq, Default)]
struct Outcome {
    given: Vec<usize>,
    keys_examined: usize,
    seeks: usize,
}

impl Case {
    fn random(random: &mut Random) -> Case {
        let width = 1 + random.below(3);
        let sign: Vec<i64> = (0..width)
            .map(|_| if random.coin() { 1 } else { -1 })
            .collect();
        let span = 3 + random.below(8) as i64;
        let mut keys: Vec<Vec<i64>> = (0..random.below(60))
            .map(|_| {
                (0..width)
                    .map(|_| random.below(span as usize) as i64)
                    .collect()
            })
            .collect();
        let along =
            |key: &Vec<i64>| -> Vec<i64> { key.iter().zip(&sign).map(|(v, s)| v * s).collect() };
        keys.sort_by_key(along);
        let fields = sign
            .iter()
            .map(|sign| {
                let mut list = random_list(random, span);
                if *sign < 0 {
                    list.reverse();
                    for range in &mut list {
                        *range = Range {
                            start: range.end,
                            start_inclusive: range.end_inclusive,
                            end: range.start,
                            end_inclusive: range.start_inclusive,
                        };
                    }
                }
                list
            })
            .collect();
        Case { keys, fields, sign }
    }

    fn bounds(&self) -> ScanBounds<Value> {
        let value = |n: i64| match n {
            LOWEST => Value::MinKey,
            HIGHEST => Value::MaxKey,
            n => Value::Int64(n),
        };
        let lists = self
            .fields
            .iter()
            .map(|ranges| {
                let intervals = ranges.iter().map(|r| {
                    Interval::new(
                        value(r.start),
                        r.start_inclusive,
                        value(r.end),
                        r.end_inclusive,
                    )
                });
                OrderedIntervalList::in_scan_order(intervals.collect())
            })
            .collect();
        ScanBounds::compile(
            &IndexBounds::Fields(lists),
            |field| self.sign[field] < 0,
            |_, v| v.clone(),
        )
        .unwrap()
    }

    /// The position of value `v` of field `field`: -1 before, 0 within, 1 after the interval.
    fn place(&self, field: usize, interval: usize, v: i64) -> i32 {
        let r = self.fields[field][interval];
        let (v, start, end) = match self.sign[field] {
            1 => (v, r.start, r.end),
            _ => (-v, r.start.saturating_neg(), r.end.saturating_neg()),
        };
        if v < start || v == start && !r.start_inclusive {
            -1
        } else if v > end || v == end && !r.end_inclusive {
            1
        } else {
            0
        }
    }

    fn holds(&self, key: &[i64]) -> bool {
        (0..self.fields.len())
            .all(|f| (0..self.fields[f].len()).any(|i| self.place(f, i, key[f]) == 0))
    }

    /// The keys within the bounds, by testing each.
    fn naive(&self) -> Vec<usize> {
        (0..self.keys.len())
            .filter(|&i| self.holds(&self.keys[i]))
            .collect()
    }

    /// A scan with the checker, or over the simple range if there is one.
    fn scan(&self) -> Outcome {
        let bounds = self.bounds();
        let mut out = Outcome::default();
        let mut checker = IndexBoundsChecker::default();
        let Some(first) = checker.start(&bounds) else {
            return out;
        };
        let raw = |key: &[i64]| -> Vec<RawValue<'static>> {
            key.iter().map(|&v| RawValue::Int64(v)).collect()
        };
        if let Some(range) = bounds.simple_range() {
            let lead = |key: &[i64], ends: &[&Value]| -> Ordering {
                let key = raw(key);
                for (i, end) in ends.iter().enumerate() {
                    let order = compare_values(key[i], end.as_raw());
                    if order.is_ne() {
                        return if self.sign[i] < 0 {
                            order.reverse()
                        } else {
                            order
                        };
                    }
                }
                Ordering::Equal
            };
            out.seeks = 1;
            let from = self.keys.partition_point(|k| {
                let order = lead(k, &range.start);
                order.is_lt() || order.is_eq() && !range.start_inclusive
            });
            for at in from..self.keys.len() {
                let order = lead(&self.keys[at], &range.end);
                if order.is_gt() || order.is_eq() && !range.end_inclusive {
                    break;
                }
                out.keys_examined += 1;
                out.given.push(at);
            }
            return out;
        }
        let mut at = 0;
        let mut next = Some(first);
        let mut key: Vec<i64> = Vec::new();
        loop {
            match next {
                Some(seek) => {
                    out.seeks += 1;
                    at = self.seek(at, &key, seek, &checker, &bounds);
                }
                None => at += 1,
            }
            let Some(found) = self.keys.get(at) else {
                return out;
            };
            key.clone_from(found);
            out.keys_examined += 1;
            next = match checker.check_key(&bounds, raw(&key).as_slice()) {
                KeyState::Valid => {
                    out.given.push(at);
                    None
                }
                KeyState::MustAdvance(seek) => Some(seek),
                KeyState::Done => return out,
            };
        }
    }

    fn seek(
        &self,
        from: usize,
        key: &[i64],
        seek: SeekPoint,
        checker: &IndexBoundsChecker,
        bounds: &ScanBounds<Value>,
    ) -> usize {
        let before = |candidate: &Vec<i64>| {
            for i in 0..seek.prefix_len {
                match (candidate[i] * self.sign[i]).cmp(&(key[i] * self.sign[i])) {
                    Ordering::Equal => {}
                    order => return order.is_lt(),
                }
            }
            if seek.prefix_exclusive {
                return true;
            }
            let starts = checker.suffix(bounds, seek.prefix_len);
            for (i, (start, inclusive)) in (seek.prefix_len..).zip(starts) {
                let order = compare_values(RawValue::Int64(candidate[i]), start.as_raw());
                let order = if self.sign[i] < 0 {
                    order.reverse()
                } else {
                    order
                };
                if order.is_ne() {
                    return order.is_lt();
                }
                if !inclusive {
                    return true;
                }
            }
            false
        };
        from + self.keys[from..].partition_point(before)
    }

    /// The same rules with linear searches and no state except the current interval of each field.
    fn model(&self) -> Outcome {
        let mut out = Outcome::default();
        let n = self.fields.len();
        if self.fields.iter().any(Vec::is_empty) {
            return out;
        }
        let full = |f: usize| {
            let list = &self.fields[f];
            list.len() == 1
                && list[0].start_inclusive
                && list[0].end_inclusive
                && list[0].start.abs_diff(list[0].end) == u64::MAX
        };
        let point = |f: usize| {
            self.fields[f].len() == 1 && self.fields[f][0].start == self.fields[f][0].end
        };
        let points = (0..n).take_while(|&f| point(f)).count();
        let single = points == n || self.fields[points].len() == 1 && (points + 1..n).all(full);
        let mut current = vec![0; n];
        // The lower limit of the next key: kept fields, then interval starts.
        let mut target: Option<(Vec<i64>, bool)> = Some((Vec::new(), false));
        let mut at = 0;
        loop {
            match target.take() {
                None => at += 1,
                Some((prefix, exclusive)) => {
                    out.seeks += 1;
                    while at < self.keys.len()
                        && self.comes_before(at, &prefix, exclusive, &current)
                    {
                        at += 1;
                    }
                }
            }
            let Some(key) = self.keys.get(at) else {
                return out;
            };
            if single {
                if !self.holds(key) {
                    return out;
                }
                out.keys_examined += 1;
                out.given.push(at);
                continue;
            }
            out.keys_examined += 1;
            let mut f = 0;
            while f < n && self.place(f, current[f], key[f]) == 0 {
                f += 1;
            }
            let mut valid = f == n;
            while f < n {
                let interval = (0..self.fields[f].len()).find(|&i| self.place(f, i, key[f]) <= 0);
                match interval {
                    Some(i) if self.place(f, i, key[f]) == 0 => {
                        current[f] = i;
                        f += 1;
                        valid = f == n;
                    }
                    Some(i) => {
                        current[f] = i;
                        current[f + 1..].fill(0);
                        target = Some((key[..f].to_vec(), false));
                        break;
                    }
                    None => {
                        let room = (0..f).any(|j| {
                            current[j] + 1 < self.fields[j].len()
                                || key[j].saturating_mul(self.sign[j])
                                    < self.fields[j][current[j]].end.saturating_mul(self.sign[j])
                        });
                        if !room {
                            return out;
                        }
                        current[f..].fill(0);
                        target = Some((key[..f].to_vec(), true));
                        break;
                    }
                }
            }
            if valid {
                out.given.push(at);
            }
        }
    }

    fn comes_before(&self, at: usize, prefix: &[i64], exclusive: bool, current: &[usize]) -> bool {
        let key = &self.keys[at];
        for (i, kept) in prefix.iter().enumerate() {
            if key[i] != *kept {
                return key[i] * self.sign[i] < kept * self.sign[i];
            }
        }
        if exclusive {
            return true;
        }
        for i in prefix.len()..key.len() {
            let r = self.fields[i][current[i]];
            let (v, start) = match self.sign[i] {
                1 => (key[i], r.start),
                _ => (-key[i], r.start.saturating_neg()),
            };
            if v != start {
                return v < start;
            }
            if !r.start_inclusive {
                return true;
            }
        }
        false
    }
}

/// An ascending, disjoint list; may be empty, and is often full or one point.
fn random_list(random: &mut Random, span: i64) -> Vec<Range> {
    let full = Range {
        start: LOWEST,
        start_inclusive: true,
        end: HIGHEST,
        end_inclusive: true,
    };
    match random.below(10) {
        0..=2 => return vec![full],
        3 if random.below(8) == 0 => return Vec::new(),
        _ => {}
    }
    let mut list = Vec::new();
    let mut low = random.below(3) as i64 - 1;
    let wanted = 1 + random.below(4);
    while low <= span && list.len() < wanted {
        let end = low + [0, 0, 1, 2, 4][random.below(5)];
        let point = end == low;
        list.push(Range {
            start: low,
            start_inclusive: point || random.coin(),
            end,
            end_inclusive: point || random.coin(),
        });
        low = end + 1 + random.below(2) as i64;
    }
    if let Some(last) = list.last_mut()
        && random.below(3) == 0
    {
        last.end = HIGHEST;
        last.end_inclusive = true;
    }
    list
}

#[test]
fn gives_exactly_the_keys_within_and_counts_as_the_model() {
    for seed in 1..=8000 {
        let mut random = Random::new(seed);
        let case = Case::random(&mut random);
        let scan = case.scan();
        assert_eq!(scan.given, case.naive(), "seed {seed}: {case:?}");
        assert_eq!(scan, case.model(), "seed {seed}: {case:?}");
        // No seek is wasted: each except the last finds a key to examine.
        assert!(
            scan.seeks <= scan.keys_examined + 1,
            "seed {seed}: {case:?}"
        );
    }
}

fn point(n: i64) -> Range {
    range(n, true, n, true)
}

fn range(start: i64, start_inclusive: bool, end: i64, end_inclusive: bool) -> Range {
    Range {
        start,
        start_inclusive,
        end,
        end_inclusive,
    }
}

fn full() -> Range {
    range(LOWEST, true, HIGHEST, true)
}

fn ascending(keys: &[&[i64]], fields: &[&[Range]]) -> Outcome {
    let mut keys: Vec<Vec<i64>> = keys.iter().map(|k| k.to_vec()).collect();
    keys.sort();
    Case {
        sign: vec![1; fields.len()],
        keys,
        fields: fields.iter().map(|f| f.to_vec()).collect(),
    }
    .scan()
}

fn counters(outcome: &Outcome) -> (usize, usize, usize) {
    (outcome.given.len(), outcome.keys_examined, outcome.seeks)
}

/// Equality with 42 and a range above 10, with four index layouts of one small collection.
#[test]
fn published_counters() {
    // e, s, r
    let esr: &[&[i64]] = &[
        &[42, 1, 10],
        &[42, 2, 10],
        &[42, 2, 20],
        &[42, 4, 30],
        &[99, 0, 11],
    ];
    let above_10 = range(10, false, HIGHEST, true);
    let out = ascending(esr, &[&[point(42)], &[full()], &[above_10]]);
    assert_eq!(counters(&out), (2, 5, 3));

    let er: &[&[i64]] = &[&[42, 10], &[42, 10], &[42, 20], &[42, 30], &[99, 11]];
    assert_eq!(
        counters(&ascending(er, &[&[point(42)], &[above_10]])),
        (2, 2, 1)
    );

    let re: &[&[i64]] = &[&[10, 42], &[10, 42], &[11, 99], &[20, 42], &[30, 42]];
    assert_eq!(
        counters(&ascending(re, &[&[above_10], &[point(42)]])),
        (2, 3, 2)
    );

    let ers: &[&[i64]] = &[
        &[42, 10, 1],
        &[42, 10, 2],
        &[42, 20, 2],
        &[42, 30, 4],
        &[99, 11, 0],
    ];
    let points: Vec<Range> = (1..=201).map(point).collect();
    let out = ascending(ers, &[&[point(42)], &points, &[full()]]);
    assert_eq!(counters(&out), (4, 5, 1));
}

/// A field returns to an interval that it has passed if an earlier field changes within the same
/// interval.
#[test]
fn intervals_open_again_under_a_new_prefix() {
    let out = ascending(
        &[&[2, 7], &[3, 2], &[3, 3]],
        &[&[range(1, false, 10, true)], &[point(3), point(7)]],
    );
    assert_eq!(counters(&out), (2, 3, 2));
}

/// Encoded keys behave like values.
#[test]
fn keys_as_bytes() {
    let lists = vec![
        OrderedIntervalList::of(Interval::new(Value::Int32(2), true, Value::Int32(4), true)),
        OrderedIntervalList::point(Value::Int32(9)),
    ];
    let byte = |value: &Value| match value {
        Value::Int32(n) => EncodedEnd::from_slice(&[*n as u8]),
        other => panic!("{other:?}"),
    };
    let bounds =
        ScanBounds::compile(&IndexBounds::Fields(lists), |_| false, |_, v| byte(v)).unwrap();
    let mut checker = IndexBoundsChecker::default();
    assert!(checker.start(&bounds).is_some());
    let mut check = |a: u8, b: u8| {
        let key: [&[u8]; 2] = [&[a], &[b]];
        checker.check_key(&bounds, key.as_slice())
    };
    let advance = |prefix_len, prefix_exclusive| {
        KeyState::MustAdvance(SeekPoint {
            prefix_len,
            prefix_exclusive,
        })
    };
    assert_eq!(check(1, 9), advance(0, false));
    assert_eq!(check(2, 5), advance(1, false));
    assert_eq!(check(2, 9), KeyState::Valid);
    assert_eq!(check(2, 10), advance(1, true));
    assert_eq!(check(4, 9), KeyState::Valid);
    assert_eq!(check(4, 10), KeyState::Done);
}
