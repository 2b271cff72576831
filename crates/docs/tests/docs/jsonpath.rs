//! JSONPath over stored documents: the published compliance suite, another implementation, limits, and any text.

use std::collections::BTreeMap;

use assent_docs::fuzzing::fuzz_jsonpath;
use assent_docs::{At, DocsError, Document, Form, JsonPath, Look, Meta, NodeKey, QueryLimits, Versioning};
use assent_kind::Kind;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Desk, fresh};

macro_rules! suite {
    ($($file:literal),* $(,)?) => {
        /// The published suite (tests/jsonpath): its files as they are, with the licence beside them.
        const SUITE: &[(&str, &str)] = &[$(($file, include_str!(concat!("../jsonpath/", $file, ".json")))),*];
    };
}

suite!(
    "basic",
    "filter",
    "index_selector",
    "name_selector",
    "slice_selector",
    "functions/count",
    "functions/length",
    "functions/match",
    "functions/search",
    "functions/value",
    "whitespace/filter",
    "whitespace/functions",
    "whitespace/operators",
    "whitespace/selectors",
    "whitespace/slice",
);

/// A document whose first revision is this, and whose newest is not.
fn stored(desk: &Desk, name: &str, json: &str) -> Document {
    let doc = desk.db.create(name, Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let value = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    edit.replace(value, b"[\"newer\"]".as_slice()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    doc
}

fn texts(look: &impl Look, query: &str, limits: QueryLimits) -> Result<Vec<(String, String)>, DocsError> {
    let path = JsonPath::parse(query)?;
    let mut found = Vec::new();
    for matched in path.query(look, limits)? {
        let matched = matched?;
        let value = Form { start: Some(matched.key()), ..Form::default() }.text(look)?;
        found.push((matched.path(look)?, value));
    }
    Ok(found)
}

/// Paths and values of all results.
fn all(look: &impl Look, query: &str) -> Vec<(String, String)> {
    texts(look, query, QueryLimits::default()).unwrap_or_else(|error| panic!("{query}: {error}"))
}

fn values(look: &impl Look, query: &str) -> Vec<String> {
    all(look, query).into_iter().map(|(_, value)| value).collect()
}

type Case = BTreeMap<String, Box<RawValue>>;

/// The cases of all files, each with its fields as they are written: no digit of a document is lost on the way.
fn cases() -> Vec<(&'static str, Case)> {
    let cases = |(file, text): &(&'static str, &str)| {
        let parts: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap();
        let cases: Vec<Case> = serde_json::from_str(parts["tests"].get()).unwrap();
        let file = *file;
        cases.into_iter().map(move |case| (file, case))
    };
    SUITE.iter().flat_map(cases).collect()
}

fn field(case: &Case, name: &str) -> Option<Value> {
    case.get(name).map(|value| serde_json::from_str(value.get()).unwrap())
}

#[test]
fn the_published_compliance_suite_passes() {
    let cases = cases();
    assert!(cases.len() >= CASES, "{} cases", cases.len());
    let desk = fresh();
    let (mut selected, mut refused) = (0, 0);
    for (at, (file, case)) in cases.iter().enumerate() {
        let (name, query) = (format!("{file}, {}", case["name"]), field(case, "selector").unwrap());
        let query = query.as_str().unwrap();
        if field(case, "invalid_selector") == Some(Value::Bool(true)) {
            let error = JsonPath::parse(query).expect_err(&format!("{name}: {query}"));
            assert_eq!(error.kind(), Kind::Invalid, "{name}: {query}");
            refused += 1;
            continue;
        }
        let doc = stored(&desk, &format!("case {at}"), case["document"].get());
        let found = all(&doc.at(1).unwrap(), query);
        let values: Vec<Value> = found.iter().map(|(_, value)| serde_json::from_str(value).unwrap()).collect();
        let paths: Vec<Value> = found.into_iter().map(|(path, _)| path.into()).collect();
        let (values, paths) = (Value::from(values), Value::from(paths));
        match field(case, "result") {
            Some(expected) => {
                assert_eq!(values, expected, "{name}: {query}");
                assert!(field(case, "result_paths").is_none_or(|expected| paths == expected), "{name}: {paths}");
            }
            None => {
                let any = field(case, "results").unwrap();
                assert!(any.as_array().unwrap().contains(&values), "{name}: {query}: {values}");
                let any = field(case, "results_paths");
                assert!(any.is_none_or(|any| any.as_array().unwrap().contains(&paths)), "{name}: {paths}");
            }
        }
        selected += 1;
    }
    println!("{selected} queries selected what they should, {refused} were refused");
    assert!(selected > 300 && refused > 150, "{selected} {refused}");
}

/// The suite has as many; a cut file would prove less.
const CASES: usize = 700;

#[test]
fn numbers_are_compared_to_the_last_digit_and_come_out_as_they_came_in() {
    let desk = fresh();
    let json = r#"[9007199254740992,9007199254740993,9007199254740993.0,1e400,-1e400,0.1,1e-1,100000000000000000000000000001]"#;
    let doc = stored(&desk, "numbers", json);
    let look = doc.at(1).unwrap();
    assert_eq!(values(&look, "$[?@==9007199254740993]"), ["9007199254740993", "9007199254740993.0"]);
    assert_eq!(values(&look, "$[?@==0.10]"), ["0.1", "1e-1"]);
    assert_eq!(values(&look, "$[?@>1e399]"), ["1e400"]);
    assert_eq!(values(&look, "$[?@>100000000000000000000000000000 && @<1e30]"), ["100000000000000000000000000001"]);
    assert_eq!(values(&look, "$[?@< -1e399]"), ["-1e400"]);
    assert_eq!(values(&look, "$[?@==$[2]]"), ["9007199254740993", "9007199254740993.0"]);
}

#[test]
fn each_result_has_its_key_its_path_and_its_value_at_its_revision() {
    let desk = fresh();
    let json = r#"{"store":{"book":[{"title":"one","price":8.95},{"title":"two","price":22.99,"isbn":"0-395"}]},"it's\\\u0001":[[1]]}"#;
    let doc = stored(&desk, "store", json);
    let first = doc.at(1).unwrap();
    let found = all(&first, "$..book[?@.price<10].title");
    assert_eq!(found, [("$['store']['book'][0]['title']".to_owned(), "\"one\"".to_owned())]);
    assert_eq!(all(&first, r#"$["it's\\\u0001"][0][0]"#)[0].0, r"$['it\'s\\\u0001'][0][0]");
    let path = JsonPath::parse("$..[?@.isbn]").unwrap();
    assert_eq!(path.to_string(), "$..[?@.isbn]");
    let found: Vec<_> = path.query(&first, QueryLimits::default()).unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(first.pointer(found[0].key()).unwrap(), "/store/book/1");
    assert_eq!((found[0].item().node.children, found[0].item().text()), (3, ""));
    assert_eq!(values(&doc.latest(), "$[*]"), ["\"newer\""]);
    assert_eq!(values(&doc.at(0).unwrap(), "$"), [""; 0], "an empty document");
    // What is under way is queried, too, and each path leads back to its node.
    let mut edit = doc.edit().unwrap();
    edit.revert(&first).unwrap();
    edit.insert_json(At::Last(edit.value().unwrap()), Some("new"), b"[true]".as_slice()).unwrap();
    assert_eq!(values(&edit, "$.new[0]"), ["true"]);
    for (path, value) in all(&edit, "$..*") {
        assert_eq!(all(&edit, &path), [(path, value)]);
    }
}

#[test]
fn results_come_one_by_one() {
    let desk = fresh();
    let doc = stored(&desk, "many", &format!("[{}]", vec!["{\"a\":1}"; 10_000].join(",")));
    let look = doc.at(1).unwrap();
    let path = JsonPath::parse("$[?@.a==1].a").unwrap();
    let mut matches = path.query(&look, QueryLimits::default()).unwrap();
    assert_eq!(matches.next().unwrap().unwrap().path(&look).unwrap(), "$[0]['a']");
    let first = matches.steps();
    assert!(first < 10, "{first} steps before the first of 10,000 results");
    assert_eq!(matches.by_ref().count(), 9_999);
    assert!(matches.steps() > 10_000 && matches.next().is_none());
}

#[test]
fn an_index_is_reached_from_the_nearer_end_and_a_slice_by_its_siblings() {
    let desk = fresh();
    let json = format!("[{}]", (0..10_000).map(|number| number.to_string()).collect::<Vec<_>>().join(","));
    let doc = stored(&desk, "long", &json);
    let look = doc.at(1).unwrap();
    let cost = |query: &str| {
        let path = JsonPath::parse(query).unwrap();
        let mut matches = path.query(&look, QueryLimits::default()).unwrap();
        let found: Vec<_> = matches.by_ref().map(|found| found.unwrap().item().text().to_owned()).collect();
        (found, matches.steps())
    };
    for (query, expected, steps) in [
        ("$[3]", vec!["3"], 5),
        ("$[-2]", vec!["9998"], 3),
        ("$[9999]", vec!["9999"], 2),
        ("$[10000]", vec![], 0),
        ("$[-10001]", vec![], 0),
        ("$[9990:9999:4]", vec!["9990", "9994", "9998"], 20),
        ("$[2::-1]", vec!["2", "1", "0"], 8),
        ("$[-1:0:-5000]", vec!["9999", "4999"], 5010),
    ] {
        let (found, cost) = cost(query);
        assert_eq!(found, expected, "{query}");
        assert!(cost <= steps, "{query}: {cost} steps");
    }
}

#[test]
fn what_a_query_may_cost_is_bounded_and_never_cut_in_silence() {
    let desk = fresh();
    let doc = stored(&desk, "bounded", &format!("[{}]", vec!["\"aaaa\""; 100].join(",")));
    let look = doc.at(1).unwrap();
    let limits = QueryLimits::default();
    let refused = |query: &str, limits: QueryLimits| texts(&look, query, limits).unwrap_err();
    let error = refused("$[*]", QueryLimits { results_max: 99, ..limits });
    assert_eq!(
        (error.to_string().as_str(), error.kind()),
        ("results of a query of 100; at most 99 is taken", Kind::Invalid)
    );
    assert_eq!(texts(&look, "$[*]", QueryLimits { results_max: 100, ..limits }).unwrap().len(), 100);
    // Each looks at all others.
    let error = refused("$[?count($[*])==100]", QueryLimits { steps_max: 5_000, ..limits });
    assert!(error.to_string().starts_with("steps of a query of 5001"), "{error}");
    assert_eq!(values(&look, "$[?count($[*])==100]").len(), 100);
    let error = refused("$[?match(@, '((a{50}){50}){50}')]", QueryLimits { regex_bytes_max: 1 << 16, ..limits });
    assert!(error.to_string().starts_with("a regular expression of a query"), "{error}");
    let cost = |json: &str, query: &str| {
        let doc = stored(&desk, query, json);
        let (look, path) = (doc.at(1).unwrap(), JsonPath::parse(query).unwrap());
        let mut matches = path.query(&look, limits).unwrap();
        matches.by_ref().for_each(|found| drop(found.unwrap()));
        matches.steps()
    };
    // Patterns that the document brings: each is compiled anew, which was free of charge.
    let patterns: Vec<String> = (10..50).map(|n| format!(r#"{{"p":"((a{{{n}}}){{20}}){{5}}"}}"#)).collect();
    let steps = cost(&format!("[{}]", patterns.join(",")), "$[?match('x', @.p)]");
    assert!((40 * 1024..4_000_000).contains(&steps), "{steps} steps");
    let same: Vec<&str> = vec![r#"{"p":"a+"}"#; 40];
    let steps = cost(&format!("[{}]", same.join(",")), "$[?match('a', @.p)]");
    assert!(steps < 1500, "one pattern is compiled once: {steps} steps");
    // Long texts, too.
    let long = format!(r#"["{0}","{0}"]"#, "x".repeat(1 << 20));
    for query in ["$[?length(@) == 1048576]", "$[?@ == $[0]]", "$[?@ < $[1]]"] {
        let steps = cost(&long, query);
        assert!((2048..5000).contains(&steps), "{query}: {steps} steps");
    }
    let steps = cost(&format!("[[{long}],[{long}]]"), "$[?@ == $[1]]");
    assert!((4096..5000).contains(&steps), "{steps} steps");
    let path = JsonPath::parse("$[*]").unwrap();
    let mut matches = path.query(&look, QueryLimits { results_max: 1, ..limits }).unwrap();
    assert!(matches.next().unwrap().is_ok() && matches.next().unwrap().is_err());
    assert!(matches.next().is_none(), "an error is the last");
}

#[test]
fn ten_thousand_levels_are_queried_without_recursion() {
    let desk = fresh();
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let doc = stored(&desk, "deep", &format!("[{},{}]", deep(9_999), deep(9_999)));
    let look = doc.at(1).unwrap();
    let path = JsonPath::parse("$..*").unwrap();
    let found: Vec<_> = path.query(&look, QueryLimits::default()).unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), 2 * 9_999);
    assert_eq!(found[9_999].path(&look).unwrap(), format!("$[0]{}", "[0]".repeat(9_998)));
    let same: Vec<_> = all(&look, "$[?@==$[1]]").into_iter().map(|(path, _)| path).collect();
    assert_eq!(same, ["$[0]", "$[1]"], "compared node by node");
    let error = texts(&look, "$..*", QueryLimits { depth_max: 9_999, ..QueryLimits::default() }).unwrap_err();
    assert_eq!(error.to_string(), "the depth that a query goes to of 10000; at most 9999 is taken");
}

/// Documents whose members are in the order of their names: the other implementation sorts them.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..4).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Segments behind `$` or `@`.
fn segments(filters: u32) -> BoxedStrategy<String> {
    let index = prop_oneof![Just(String::new()), (-3_i64..4).prop_map(|index| index.to_string())];
    let slice = (index.clone(), index, -2_i64..3).prop_map(|(start, end, step)| format!("{start}:{end}:{step}"));
    let plain = prop_oneof![
        3 => "'[abc]'",
        2 => Just("*".to_owned()),
        2 => (-3_i64..4).prop_map(|index| index.to_string()),
        1 => slice,
    ];
    let selector = if filters == 0 {
        plain.boxed()
    } else {
        prop_oneof![2 => plain, 1 => logic(filters - 1).prop_map(|logic| format!("?{logic}"))].boxed()
    };
    let bracketed = prop::collection::vec(selector, 1..3).prop_map(|selectors| format!("[{}]", selectors.join(",")));
    let segment = prop_oneof![
        3 => "\\.[abc]",
        1 => Just(".*".to_owned()),
        3 => bracketed.clone(),
        1 => bracketed.prop_map(|selectors| format!("..{selectors}")),
    ];
    prop::collection::vec(segment, 0..4).prop_map(|segments| segments.concat()).boxed()
}

fn logic(filters: u32) -> BoxedStrategy<String> {
    // No negative index: the other one finds nothing by it in an argument of a function.
    let singular = ("[$@]", prop::collection::vec(prop_oneof!["\\.[abc]", "\\[[0-2]\\]"], 0..3))
        .prop_map(|(origin, steps)| format!("{origin}{}", steps.concat()));
    let query = ("[$@]", segments(filters)).prop_map(|(origin, segments)| format!("{origin}{segments}"));
    let argument = query.clone().prop_filter("a negative index", |query| !query.contains("[-"));
    let value = prop_oneof![
        "-?[1-3]|0|1\\.0|2e0",
        "'[ab]{0,2}'",
        "true|false|null",
        singular.clone(),
        singular.clone().prop_map(|of| format!("length({of})")),
        argument.clone().prop_map(|of| format!("count({of})")),
        argument.prop_map(|of| format!("value({of})")),
    ];
    // The other one orders booleans, and says that nothing of a function is not at most nothing: not so RFC 9535, 2.3.5.2.2. So
    // one side of these is a number or a text.
    let ordered = ("-?[1-3]|0|1\\.0|2e0|'[ab]{0,2}'", "<|<=|>|>=", value.clone());
    let basic = prop_oneof![
        query.clone(),
        query.prop_map(|query| format!("!{query}")),
        ordered.prop_map(|(left, relation, right)| format!("{left} {relation} {right}")),
        (value.clone(), "==|!=", value).prop_map(|(left, relation, right)| format!("{left} {relation} {right}")),
        (singular, "a\\*|\\[ab\\]|a\\|b\\.|\\.\\*b").prop_map(|(of, pattern)| format!("match({of},'{pattern}')")),
    ];
    let joined = (prop::collection::vec(basic, 1..3), "&&|\\|\\|").prop_map(|(all, sign)| all.join(&sign));
    prop_oneof![3 => joined.clone(), 1 => joined.prop_map(|logic| format!("!({logic})"))].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn another_implementation_selects_the_same(
        document in json(), queries in prop::collection::vec(segments(2), 8),
    ) {
        let desk = fresh();
        let doc = stored(&desk, "a", &document.to_string());
        let look = doc.at(1).unwrap();
        for segments in queries {
            let query = format!("${segments}");
            let other = serde_json_path::JsonPath::parse(&query);
            let other = other.unwrap_or_else(|error| panic!("{query}: {error}"));
            let expected: Vec<(String, String)> = other
                .query_located(&document)
                .iter()
                .map(|found| (found.location().to_string(), found.node().to_string()))
                .collect();
            prop_assert_eq!(all(&look, &query), expected, "{} of {}", query, document);
        }
    }

    #[test]
    fn text_that_is_nearly_a_query_is_read_or_refused_as_another_implementation_does(
        text in "\\$([.\\[\\]?@!()&|<>=,:*' a1-]|\\.\\.|==|&&|length\\(|count\\(@|'b'){0,14}",
    ) {
        let ours = JsonPath::parse(&text);
        if let Err(error) = &ours {
            prop_assert_eq!(error.kind(), Kind::Invalid);
        }
        let other = serde_json_path::JsonPath::parse(&text);
        prop_assert_eq!(ours.is_ok(), other.is_ok(), "{}: {:?} {:?}", text, ours, other);
    }
}

#[test]
fn fuzz_queries() {
    let selectors: Vec<Value> = cases().iter().map(|(_, case)| field(case, "selector").unwrap()).collect();
    let selectors = selectors.iter().map(|selector| selector.as_str().unwrap().as_bytes());
    let others: [&[u8]; 4] =
        [b"1.5e+7 -0", b"[a-z&&\\]]{1,3}(b|^c$)*", b"\\p{Lu}[^\\-x]", b"12e999999999999999999 1e5"];
    let corpus: Vec<&[u8]> = selectors.chain(others).collect();
    let desk = fresh();
    let doc = stored(&desk, "a", r#"{"a":[1,"ab",{"b":null}],"c":{"a":[[],{}]}}"#);
    let look = doc.at(1).unwrap();
    let limits =
        QueryLimits { steps_max: 10_000, results_max: 1000, regex_bytes_max: 1 << 16, ..QueryLimits::default() };
    let runs = assent_sim::fuzz(4, &corpus, |bytes| {
        fuzz_jsonpath(bytes);
        if let Ok(text) = std::str::from_utf8(bytes) {
            let found = texts(&look, text, limits);
            assert!(found.is_ok() || found.is_err_and(|error| error.kind() == Kind::Invalid), "{text}");
        }
    });
    assert!(runs > 1000, "{runs}");
}
