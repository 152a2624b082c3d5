//! The algebra of interval lists agrees with that of sets of values.

use sheaf_bson::{DateTime, DocBuf, Value, compare_values};

use crate::planner::bounds::{Interval, OrderedIntervalList};
use crate::random::Random;

/// Values of all brackets, some of them adjacent, in no particular order.
fn values() -> Vec<Value> {
    let mut all = vec![
        Value::MinKey,
        Value::MaxKey,
        Value::Undefined,
        Value::Null,
        Value::Double(f64::NAN),
        Value::Double(f64::NEG_INFINITY),
        Value::Double(f64::INFINITY),
        Value::Double(2.5),
        Value::Document(DocBuf::new()),
        Value::Array(Default::default()),
        Value::Boolean(false),
        Value::Boolean(true),
        Value::DateTime(DateTime(0)),
    ];
    all.extend((0..5).map(Value::Int32));
    all.extend(["", "a", "ab", "b"].map(Value::from));
    all
}

fn interval(random: &mut Random, values: &[Value]) -> Interval {
    let a = values[random.below(values.len())].clone();
    let b = values[random.below(values.len())].clone();
    let (start, end) = if compare_values(a.as_raw(), b.as_raw()).is_le() {
        (a, b)
    } else {
        (b, a)
    };
    Interval::new(start, random.coin(), end, random.coin())
}

fn check(list: &OrderedIntervalList, wanted: impl Fn(&Value) -> bool, values: &[Value]) {
    for value in values {
        assert_eq!(
            list.contains(value.as_raw()),
            wanted(value),
            "{value} in {list}"
        );
    }
    // Ascending, without empty intervals, and in the shortest form.
    for interval in list.intervals() {
        assert!(!interval.is_empty(), "{list}");
    }
    for pair in list.intervals().windows(2) {
        let order = compare_values(pair[0].end.as_raw(), pair[1].start.as_raw());
        let apart =
            order.is_lt() || order.is_eq() && !pair[0].end_inclusive && !pair[1].start_inclusive;
        assert!(apart, "{list}");
    }
}

#[test]
fn algebra_is_that_of_sets() {
    let values = values();
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut list = || {
            let intervals: Vec<Interval> = (0..random.below(5))
                .map(|_| interval(&mut random, &values))
                .collect();
            let list = OrderedIntervalList::union_of(intervals.clone());
            let any = |v: &Value| intervals.iter().any(|i| i.contains(v.as_raw()));
            check(&list, any, &values);
            list
        };
        let (a, b) = (list(), list());
        let in_a = |v: &Value| a.contains(v.as_raw());
        let in_b = |v: &Value| b.contains(v.as_raw());
        check(&a.complement(), |v| !in_a(v), &values);
        check(&a.intersect(&b), |v| in_a(v) && in_b(v), &values);
        check(&a.clone().union(b.clone()), |v| in_a(v) || in_b(v), &values);
        check(&a.clone().reversed().reversed(), in_a, &values);
        check(&a.complement().complement(), in_a, &values);
        assert!(a.intersect(&b).is_subset_of(&a));
        assert!(a.is_subset_of(&a.clone().union(b.clone())));
        if a.is_subset_of(&b) {
            assert!(values.iter().all(|v| !in_a(v) || in_b(v)), "{a} {b}");
            assert!(a.intersect(&b.complement()).is_empty(), "{a} {b}");
        } else {
            assert!(!a.intersect(&b.complement()).is_empty(), "{a} {b}");
        }
    }
}

#[test]
fn neighbours_join() {
    let list = |intervals: &[(i32, bool, i32, bool)]| {
        let intervals = intervals.iter().map(|&(start, si, end, ei)| {
            Interval::new(Value::Int32(start), si, Value::Int32(end), ei)
        });
        OrderedIntervalList::union_of(intervals.collect()).to_string()
    };
    assert_eq!(list(&[(3, true, 5, true), (1, true, 3, false)]), ": [1, 5]");
    assert_eq!(
        list(&[(3, false, 5, true), (1, true, 3, false)]),
        ": [1, 3), (3, 5]"
    );
    assert_eq!(
        list(&[(3, true, 3, true), (3, false, 4, false)]),
        ": [3, 4)"
    );
    assert_eq!(list(&[(1, true, 9, true), (2, true, 3, true)]), ": [1, 9]");
    assert_eq!(list(&[(1, false, 1, true)]), ": nothing");
    assert_eq!(list(&[]), ": nothing");
}
