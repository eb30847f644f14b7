//! What library.mjs says, for schemars: `cargo run` writes the cases, `cargo run judge` judges outputs: serde must read them into the type.
#![allow(dead_code)]
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;

struct Case {
    name: &'static str,
    written: Value,
    accepts: fn(&str) -> bool,
}

fn case<T: JsonSchema + DeserializeOwned>(name: &'static str, valid: &[&str]) -> Case {
    let accepts = |text: &str| serde_json::from_str::<T>(text).is_ok();
    for text in valid {
        if !accepts(text) {
            eprintln!("rust refuses {name} {text}");
        }
    }
    let values: Vec<Value> = valid.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let written = json!({"library": "rust", "name": name, "schema": schema_for!(T), "valid": values, "invalid": []});
    Case { name, written, accepts }
}

#[derive(JsonSchema, Deserialize)]
struct Weather {
    /// The city.
    city: String,
    unit: Option<Unit>,
    #[serde(default)]
    days: u8,
}
#[derive(JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Celsius,
    Fahrenheit,
}
#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Closed {
    first_name: String,
    is_admin: bool,
}
#[derive(JsonSchema, Deserialize)]
enum External {
    Unit,
    New(i32),
    Pair(i32, String),
    Struct { a: bool },
}
#[derive(JsonSchema, Deserialize)]
#[serde(tag = "type")]
enum Internal {
    Circle { radius: f64 },
    Square { side: f64 },
    Nothing,
}
#[derive(JsonSchema, Deserialize)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    Text(String),
    Pair(u8, u8),
    None,
}
#[derive(JsonSchema, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(i64),
    Text(String),
    List(Vec<i64>),
}
#[derive(JsonSchema, Deserialize)]
struct Tree {
    value: i32,
    children: Vec<Tree>,
}
#[derive(JsonSchema, Deserialize)]
struct List {
    value: String,
    next: Option<Box<List>>,
}
#[derive(JsonSchema, Deserialize)]
struct Flat {
    id: u32,
    #[serde(flatten)]
    inner: Closed2,
}
#[derive(JsonSchema, Deserialize)]
struct Closed2 {
    name: String,
    score: f32,
}
#[derive(JsonSchema, Deserialize)]
struct Wrapper(Vec<u16>);
#[derive(JsonSchema, Deserialize)]
struct Limits {
    #[schemars(length(min = 1, max = 5))]
    text: String,
    #[schemars(range(min = 1, max = 10))]
    count: i32,
    #[schemars(regex(pattern = r"^[a-z]+-[0-9]{2}$"))]
    code: String,
    #[schemars(length(min = 1))]
    items: Vec<bool>,
}
#[derive(JsonSchema, Deserialize)]
struct Formats {
    #[schemars(email)]
    mail: String,
    id: uuid::Uuid,
    at: chrono::DateTime<chrono::Utc>,
    day: chrono::NaiveDate,
    link: url::Url,
}
#[derive(JsonSchema, Deserialize)]
struct Event {
    kind: Internal,
    tags: BTreeMap<String, Vec<Unit>>,
    extra: Value,
}

fn main() {
    let cases = [
        case::<String>("String", &[r#""a""#]),
        case::<char>("char", &[r#""a""#]),
        case::<bool>("bool", &["true"]),
        case::<i8>("i8", &["-128"]),
        case::<u8>("u8", &["255"]),
        case::<i32>("i32", &["2147483647"]),
        case::<u64>("u64", &["0"]),
        case::<f64>("f64", &["1.5"]),
        case::<Option<i32>>("Option", &["null", "1"]),
        case::<Vec<String>>("Vec", &[r#"["a"]"#]),
        case::<[i32; 3]>("array", &["[1, 2, 3]"]),
        case::<(i32, String, bool)>("tuple", &[r#"[1, "a", true]"#]),
        case::<HashMap<String, u32>>("HashMap", &[r#"{"a": 1}"#]),
        case::<BTreeMap<u8, bool>>("BTreeMap of numbers", &[r#"{"7": true}"#]),
        case::<()>("unit", &["null"]),
        case::<Value>("Value", &[r#"{"a": [1, null]}"#]),
        case::<Weather>("tool", &[r#"{"city": "Rome"}"#, r#"{"city": "Rome", "unit": "celsius", "days": 3}"#]),
        case::<Unit>("enum", &[r#""celsius""#]),
        case::<Closed>("deny_unknown_fields", &[r#"{"firstName": "Ada", "isAdmin": true}"#]),
        case::<External>("external tag", &[r#""Unit""#, r#"{"New": 1}"#, r#"{"Pair": [1, "a"]}"#, r#"{"Struct": {"a": true}}"#]),
        case::<Internal>("internal tag", &[r#"{"type": "Circle", "radius": 1.5}"#, r#"{"type": "Nothing"}"#]),
        case::<Adjacent>("adjacent tag", &[r#"{"t": "Text", "c": "a"}"#, r#"{"t": "Pair", "c": [1, 2]}"#, r#"{"t": "None"}"#]),
        case::<Untagged>("untagged", &["1", r#""a""#, "[1, 2]"]),
        case::<Tree>("recursive", &[r#"{"value": 1, "children": [{"value": 2, "children": []}]}"#]),
        case::<List>("linked list", &[r#"{"value": "a", "next": {"value": "b", "next": null}}"#]),
        case::<Flat>("flatten", &[r#"{"id": 1, "name": "a", "score": 0.5}"#]),
        case::<Wrapper>("newtype", &["[1, 2]"]),
        case::<Limits>("limits", &[r#"{"text": "abc", "count": 5, "code": "ab-12", "items": [true]}"#]),
        case::<Formats>(
            "formats",
            &[
                r#"{"mail": "a@b.org", "id": "123e4567-e89b-12d3-a456-426614174000", "at": "2024-05-01T12:00:00Z", "day": "2024-05-01", "link": "https://example.com/"}"#,
            ],
        ),
        case::<Event>("nested", &[r#"{"kind": {"type": "Nothing"}, "tags": {"a": ["celsius"]}, "extra": null}"#]),
    ];
    if std::env::args().nth(1).is_none() {
        for found in &cases {
            println!("{}", found.written);
        }
        return;
    }
    for line in std::io::stdin().lock().lines() {
        let given: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let found = cases.iter().find(|found| given["name"] == found.name).unwrap();
        let outputs = given["outputs"].as_array().unwrap();
        let wrong: Vec<&Value> = outputs.iter().filter(|text| !(found.accepts)(text.as_str().unwrap())).collect();
        println!("{}", json!({"name": found.name, "wrong": wrong}));
    }
}
