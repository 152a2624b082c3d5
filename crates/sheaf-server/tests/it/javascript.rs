//! `$where`, `$function`, `$accumulator`, mapReduce and stored functions.

use std::time::{Duration, Instant};

use super::client::{Client, command, script};
use super::explained::at;
use super::server::Server;

/// Documents `{_id: n, g: n % 2, v: 10 * n}` for n from 1 to 6.
fn filled(server: &Server) -> Client {
    let mut client = server.client();
    let documents: Vec<String> = (1..=6)
        .map(|n| format!("{{_id: {n}, g: {}, v: {}}}", n % 2, 10 * n))
        .collect();
    let insert = format!("{{insert: 'c', documents: [{}]}}", documents.join(", "));
    client.ok(&command(&insert));
    client
}

fn aggregate(stage: &str) -> String {
    format!("{{aggregate: 'c', pipeline: [{stage}], cursor: {{}}}}")
}

/// The batch of a reply as the shell shows it, without spaces inside brackets.
fn batch(client: &mut Client, text: &str) -> String {
    let reply = client.ok(&command(text));
    let cursor = reply.get("cursor").and_then(|c| c.as_document());
    let first = cursor.and_then(|cursor| cursor.get("firstBatch"));
    let shown = sheaf_bson::json::shell(first.expect("a cursor")).to_string();
    [("[ ", "["), (" ]", "]"), ("{ ", "{"), (" }", "}")]
        .iter()
        .fold(shown, |text, (from, to)| text.replace(from, to))
}

#[test]
fn map_reduce_is_explained_as_its_pipeline() {
    let server = Server::start();
    let mut client = filled(&server);
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {v: 1}, name: 'v_1'}]}",
    ));
    let explain = |out: &str, verbosity: &str| {
        format!(
            "{{explain: {{mapReduce: 'c', map: 'function() {{ emit(this.g, this.v); }}', \
             reduce: 'function(k, v) {{ return Array.sum(v); }}', query: {{v: {{$gt: 20}}}}, \
             out: {out}}}, verbosity: '{verbosity}'}}"
        )
    };
    let reply = client.ok(&command(&explain("{inline: 1}", "executionStats")));
    for (path, expected) in [
        (
            "stages.0.$cursor.queryPlanner.winningPlan.inputStage.indexName",
            "\"v_1\"",
        ),
        ("stages.0.$cursor.executionStats.nReturned", "4"),
        ("stages.3.nReturned", "2"),
        ("command.mapReduce", "\"c\""),
    ] {
        let found = at(&reply, path).map(|value| sheaf_bson::json::shell(value.as_raw()));
        assert_eq!(found.as_deref(), Some(expected), "{path} of {reply}");
    }
    assert!(at(&reply, "stages.3.$group").is_some(), "{reply}");
    client.ok(&command(
        "{create: 'on_view', viewOn: 'c', pipeline: [{$match: {g: 1}}]}",
    ));
    let on_view = explain("{inline: 1}", "executionStats").replace("'c'", "'on_view'");
    let reply = client.ok(&command(&on_view));
    assert!(at(&reply, "stages.3.$group").is_some(), "{reply}");
    // Nothing is written.
    client.ok(&command(&explain("'results'", "queryPlanner")));
    script(
        &mut client,
        &[
            (&explain("'results'", "executionStats"), "{code: 51029}"),
            ("{count: 'results'}", "{n: 0}"),
            ("{explain: {mapReduce: 'c', map: '1'}}", "{code: 40414}"),
        ],
    );
}

#[test]
fn where_selects_in_every_command_on_a_collection() {
    let server = Server::start();
    let mut client = filled(&server);
    script(
        &mut client,
        &[
            ("{count: 'c', query: {$where: 'this.v > 40'}}", "{n: 2}"),
            (
                "{count: 'c', query: {g: 1, $where: 'obj.v > 10'}}",
                "{n: 2}",
            ),
            (
                "{count: 'c', query: {$or: [{$where: 'function() { return this._id == 1; }'}, {_id: 2}]}}",
                "{n: 2}",
            ),
            ("{count: 'c', query: {$nor: [{$where: 'true'}]}}", "{n: 0}"),
            (
                "{distinct: 'c', key: 'v', query: {$where: 'this._id < 3'}}",
                "{values: [10, 20]}",
            ),
            (
                "{update: 'c', updates: [{q: {$where: 'this._id == 3'}, u: {$set: {v: 0}}}]}",
                "{n: 1, nModified: 1}",
            ),
            (
                "{delete: 'c', deletes: [{q: {$where: 'this.v == 0'}, limit: 0}]}",
                "{n: 1}",
            ),
        ],
    );
    let found = batch(
        &mut client,
        "{find: 'c', filter: {$where: 'return this.v / 10 == 4;'}, projection: {v: 1}}",
    );
    assert_eq!(found, "[{_id: 4, v: 40}]");
}

#[test]
fn where_is_refused_where_mongodb_refuses_it() {
    let server = Server::start();
    let mut client = filled(&server);
    client.ok(&command("{create: 'seen', viewOn: 'c', pipeline: []}"));
    for text in [
        &aggregate("{$match: {$where: 'true'}}"),
        "{find: 'seen', filter: {$where: 'true'}}",
        "{create: 'd', validator: {$where: 'true'}}",
        "{find: 'c', filter: {v: {$elemMatch: {$where: 'true'}}}}",
        "{find: 'c', filter: {v: {$not: {$where: 'true'}}}}",
        "{find: 'c', filter: {$where: 5}}",
        "{find: 'c', projection: {v: {$elemMatch: {$where: 'true'}}}}",
        "{listDatabases: 1, filter: {$where: 'true'}, $db: 'admin'}",
        "{createIndexes: 'c', indexes: [{key: {v: 1}, name: 'v', partialFilterExpression: {$where: 'true'}}]}",
    ] {
        let (code, message) = client.fails(&command(text));
        assert!(
            code == 2 || text.starts_with("{createIndexes") && code == 67,
            "{text}: {code} {message}"
        );
    }
}

#[test]
fn functions_compute_in_expressions() {
    let server = Server::start();
    let mut client = filled(&server);
    let function = |body: &str, args: &str| {
        let call = format!("{{$function: {{body: '{body}', args: {args}, lang: 'js'}}}}");
        aggregate(&format!(
            "{{$match: {{_id: 2}}}}, {{$project: {{_id: 0, r: {call}}}}}"
        ))
    };
    for (body, args, wanted) in [
        (
            "function(a, b) { return a + b; }",
            "['$v', '$g']",
            "[{r: 20.0}]",
        ),
        ("x => x", "['$v']", "[{r: 20.0}]"),
        (
            "function(d) { d.n = 1; return d; }",
            "['$$ROOT']",
            "[{r: {_id: 2, g: 0, v: 20, n: 1.0}}]",
        ),
        ("() => [NumberInt(1), null]", "[]", "[{r: [1, null]}]"),
    ] {
        assert_eq!(batch(&mut client, &function(body, args)), wanted, "{body}");
    }
    let in_filter = "{count: 'c', query: {$expr: {$function: {body: 'x => x > 30', args: ['$v'], lang: 'js'}}}}";
    script(&mut client, &[(in_filter, "{n: 3}")]);
    for (spec, wanted) in [
        ("5", 31260),
        ("{args: [], lang: 'js'}", 31261),
        ("{body: 'x => x', lang: 'js'}", 31263),
        ("{body: 5, args: [], lang: 'js'}", 31262),
        ("{body: 'x => x', args: []}", 31418),
        ("{body: 'x => x', args: [], lang: 'py'}", 31419),
        ("{body: 'x => x', args: 5, lang: 'js'}", 31266),
        ("{body: 'x => {', args: [], lang: 'js'}", 139),
        ("{body: '() => nope', args: [], lang: 'js'}", 139),
        ("{body: '5', args: [], lang: 'js'}", 139),
        (
            "{body: '() => { const a = []; a.push(a); return a; }', args: [], lang: 'js'}",
            17279,
        ),
    ] {
        let stage = format!("{{$replaceWith: {{r: {{$function: {spec}}}}}}}");
        let (code, message) = client.fails(&command(&aggregate(&stage)));
        assert_eq!(code, wanted, "{spec}: {message}");
    }
    let reply = client.run(&command(
        "{find: 'c', filter: {$where: 'throw new TypeError(\"why\")'}}",
    ));
    assert_eq!(
        (reply.code(), reply.code_name()),
        (139, "JSInterpreterFailure")
    );
    let message = reply.body.get("errmsg").and_then(|m| m.as_str());
    assert!(
        message.is_some_and(|m| m.ends_with("TypeError: why")),
        "{message:?}"
    );
}

const AVERAGE: &str = "{$accumulator: {
    init: 'function(from) { return {n: 0, sum: from}; }', initArgs: [0],
    accumulate: 'function(s, v) { return {n: s.n + 1, sum: s.sum + v}; }', accumulateArgs: ['$v'],
    merge: 'function(a, b) { return {n: a.n + b.n, sum: a.sum + b.sum}; }',
    finalize: 'function(s) { return s.sum / s.n; }', lang: 'js'}}";

#[test]
fn accumulators_group_and_merge_what_was_spilled() {
    let server = Server::start();
    let mut client = filled(&server);
    let group = format!("{{$group: {{_id: '$g', r: {AVERAGE}}}}}, {{$sort: {{_id: 1}}}}");
    let wanted = "[{_id: 0, r: 40.0}, {_id: 1, r: 30.0}]";
    assert_eq!(batch(&mut client, &aggregate(&group)), wanted);
    let bucket = format!(
        "{{$bucket: {{groupBy: '$_id', boundaries: [0, 4, 9], output: {{r: {AVERAGE}}}}}}}"
    );
    let found = batch(&mut client, &aggregate(&bucket));
    assert_eq!(found, "[{_id: 0, r: 20.0}, {_id: 4, r: 50.0}]");
    client.ok(&command(
        "{setParameter: 1, internalQueryMaxBlockingSortMemoryUsageBytes: 0, $db: 'admin'}",
    ));
    assert_eq!(batch(&mut client, &aggregate(&group)), wanted);
    let window = format!("{{$setWindowFields: {{output: {{r: {AVERAGE}}}}}}}");
    client.fails(&command(&aggregate(&window)));
    let (_, message) = client.fails(&command(&aggregate(
        "{$group: {_id: 1, r: {$accumulator: {accumulate: 'x', accumulateArgs: [], merge: 'x', lang: 'js'}}}}",
    )));
    assert!(
        message.contains("missing required argument 'init'"),
        "{message}"
    );
}

#[test]
fn map_reduce_writes_to_every_target() {
    let server = Server::start();
    let mut client = filled(&server);
    let run = |rest: &str| {
        format!(
            "{{mapReduce: 'c', map: 'function() {{ emit(this.g, this.v); }}',
               reduce: 'function(k, values) {{ return Array.sum(values); }}', {rest}}}"
        )
    };
    let all = "{find: 'out', sort: {_id: 1}}";
    let mut results = |rest: &str, wanted: &str| {
        script(&mut client, &[(&run(rest), wanted)]);
    };
    results(
        "out: {inline: 1}",
        "{results: [{_id: 1.0, value: 90.0}, {_id: 0.0, value: 120.0}]}",
    );
    // The value of a key with one value is not reduced.
    results(
        "out: {inline: 1}, query: {_id: {$gt: 1}}, sort: {_id: -1}, limit: 1, scope: {f: 2},
         finalize: 'function(k, v) { return {v, f}; }', jsMode: true, verbose: true",
        "{results: [{_id: 0.0, value: {v: 60.0, f: 2.0}}]}",
    );
    results("out: 'out'", "{result: 'out'}");
    let mut client = server.client();
    let found = batch(&mut client, all);
    assert_eq!(found, "[{_id: 0.0, value: 120.0}, {_id: 1.0, value: 90.0}]");
    client.ok(&command(&run("out: {reduce: 'out'}, query: {g: 1}")));
    let found = batch(&mut client, all);
    assert_eq!(
        found,
        "[{_id: 0.0, value: 120.0}, {_id: 1.0, value: 180.0}]"
    );
    client.ok(&command(&run("out: {merge: 'out'}, query: {_id: 2}")));
    let found = batch(&mut client, all);
    assert_eq!(found, "[{_id: 0.0, value: 20.0}, {_id: 1.0, value: 180.0}]");
    script(
        &mut client,
        &[(
            &run("out: {replace: 'far', db: 'other'}, query: {_id: 2}"),
            "{result: {db: 'other', collection: 'far'}}",
        )],
    );
    let other = batch(&mut client, "{find: 'far', $db: 'other'}");
    assert_eq!(other, "[{_id: 0.0, value: 20.0}]");
    for (text, code) in [
        ("{mapReduce: 'c', reduce: 'x', out: 'o'}", 40414),
        ("{mapReduce: 'c', map: 'x', reduce: 'x'}", 40414),
        ("{mapReduce: 'c', map: 5, reduce: 'x', out: 'o'}", 14),
        ("{mapReduce: 'c', map: 'x', reduce: 'x', out: {}}", 2),
        (
            "{mapReduce: 'c', map: 'x', reduce: 'x', out: {inline: 1}, more: 1}",
            40415,
        ),
        (
            "{mapReduce: 'c', map: '() => emit(1)', reduce: '() => 1', out: {inline: 1}}",
            139,
        ),
    ] {
        assert_eq!(client.fails(&command(text)).0, code, "{text}");
    }
}

#[test]
fn stored_functions_are_found() {
    let server = Server::start();
    let mut client = filled(&server);
    client.ok(&command(
        "{insert: 'system.js', documents: [{_id: 'tenfold', value: {$code: 'function(x) { return 10 * x; }'}}]}",
    ));
    let query = "{count: 'c', query: {$where: 'tenfold(this._id) == this.v && this.g == 1'}}";
    script(&mut client, &[(query, "{n: 3}")]);
    let elsewhere = "{insert: 'c', documents: [{_id: 1}], $db: 'b'}";
    client.ok(&command(elsewhere));
    let (code, message) = client.fails(&command(
        "{count: 'c', query: {$where: 'tenfold(1)'}, $db: 'b'}",
    ));
    assert_eq!(code, 139, "{message}");
}

#[test]
fn scripts_end_with_their_operation() {
    let server = Server::start();
    let mut client = filled(&server);
    let begun = Instant::now();
    for text in [
        "{find: 'c', filter: {$where: 'for (;;);'}, maxTimeMS: 100}",
        "{mapReduce: 'c', map: 'function() { for (;;) emit(1, 1); }', reduce: 'x => 1', out: {inline: 1}, maxTimeMS: 300}",
        "{find: 'c', filter: {$where: '/^(a+)+$/.test(\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\")'}, maxTimeMS: 100}",
    ] {
        let (code, message) = client.fails(&command(text));
        assert!(code == 50 || code == 139, "{text}: {code} {message}");
    }
    // They did not run until they found an end.
    assert!(begun.elapsed() < Duration::from_secs(60));
    let killer = std::thread::spawn({
        let mut client = server.client();
        move || {
            let wanted = "{aggregate: 1, pipeline: [{$currentOp: {}}, {$match: {'command.comment': 'endless'}}], cursor: {}, $db: 'admin'}";
            loop {
                let reply = client.ok(&command(wanted));
                let cursor = reply.get("cursor").and_then(|c| c.as_document());
                let batch = cursor
                    .and_then(|c| c.get("firstBatch"))
                    .and_then(|b| b.as_array());
                let operation = batch
                    .and_then(|batch| batch.get(0))
                    .and_then(|o| o.as_document());
                if let Some(id) = operation.and_then(|o| o.get("opid")) {
                    let kill = format!(
                        "{{killOp: 1, op: {}, $db: 'admin'}}",
                        sheaf_bson::json::shell(id)
                    );
                    client.ok(&command(&kill));
                    return;
                }
                std::thread::yield_now();
            }
        }
    });
    let (code, _) = client.fails(&command(
        "{find: 'c', filter: {$where: 'for (;;);'}, comment: 'endless'}",
    ));
    assert_eq!(code, 11601);
    killer.join().unwrap();
}

#[test]
fn memory_is_limited_by_the_parameter() {
    let server = Server::start_with(&["--setParameter", "jsHeapLimitMB=4"]);
    let mut client = filled(&server);
    let grows = "{count: 'c', query: {$where: 'globalThis.all = globalThis.all || []; for (let i = 0; i < 2e5; i++) all.push(\"x\" + i); return true'}}";
    let (code, message) = client.fails(&command(grows));
    assert!(
        code == 139 && message.contains("out of memory"),
        "{code} {message}"
    );
    client.ok(&command(
        "{setParameter: 1, jsHeapLimitMB: 200, $db: 'admin'}",
    ));
    script(&mut client, &[(grows, "{n: 6}")]);
    let (code, _) = client.fails(&command(
        "{setParameter: 1, javascriptEnabled: false, $db: 'admin'}",
    ));
    assert_eq!(code, 20);
}

#[test]
fn scripts_are_refused_when_they_are_switched_off() {
    let server = Server::start_with(&["--setParameter", "javascriptEnabled=false"]);
    let mut client = filled(&server);
    for (text, wanted) in [
        ("{find: 'c', filter: {$where: 'true'}}".to_owned(), 2),
        (
            aggregate(&format!("{{$group: {{_id: 1, r: {AVERAGE}}}}}")),
            31264,
        ),
        (
            aggregate("{$replaceWith: {r: {$function: {body: 'x => x', args: [], lang: 'js'}}}}"),
            31264,
        ),
        (
            "{mapReduce: 'c', map: 'x', reduce: 'x', out: {inline: 1}}".to_owned(),
            31264,
        ),
    ] {
        assert_eq!(client.fails(&command(&text)).0, wanted, "{text}");
    }
    script(
        &mut client,
        &[("{buildInfo: 1, $db: 'admin'}", "{javascriptEngine: 'none'}")],
    );
}
