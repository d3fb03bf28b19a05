//! Lists of endpoints, as people write them.

use holdfast_client_core::endpoints::{Endpoints, InvalidEndpoints};
use serde_json::{Value, json};

use super::random::Random;

const CASES: u64 = 400;
const HOSTS: [&str; 12] = [
    "localhost",
    "127.0.0.1",
    "h1",
    "node-1.example",
    "[::1]",
    "[fe80::1]",
    "",
    "a b",
    "h_1",
    "::1",
    "[::1",
    "ä",
];
const PORTS: [&str; 11] =
    [":7420", ":1", ":65535", ":0", ":65536", ":", "", ":x", ":+1", ":007420", ": 7420"];
const BEFORE: [&str; 6] = ["", "", "", "http://", "https://", " "];
const BEHIND: [&str; 5] = ["", "", "", "/", " "];

pub(super) fn inputs() -> Vec<Value> {
    let mut random = Random(31);
    let fixed = ["", ",", " , ", "a:1,,b:2", "a:1, http://b:2/,c:3", "a:1,b", "a:1//"];
    let fixed = fixed.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let drawn = (0..CASES).map(|_| {
        let parts: Vec<String> = (0..1 + random.below(3)).map(|_| part(&mut random)).collect();
        parts.join(",")
    });
    let drawn: Vec<String> = drawn.collect();
    fixed.into_iter().chain(drawn).map(|text| json!({"text": text})).collect()
}

fn part(random: &mut Random) -> String {
    // Most are right: a list with a wrong part is wrong.
    let is_right = random.below(4) != 0;
    let (hosts, ports) =
        if is_right { (&HOSTS[..6], &PORTS[..3]) } else { (&HOSTS[..], &PORTS[..]) };
    let (host, port) = (*random.of(hosts), *random.of(ports));
    let before = if is_right { random.of(&BEFORE[..4]) } else { random.of(&BEFORE) };
    format!("{before}{host}{port}{}", random.of(&BEHIND))
}

pub(super) fn answer(input: &Value) -> Value {
    match input["text"].as_str().unwrap_or_default().parse::<Endpoints>() {
        Ok(endpoints) => json!({"addresses": endpoints.all()}),
        Err(InvalidEndpoints::Empty) => json!({"error": "empty"}),
        Err(InvalidEndpoints::NotHostAndPort(part)) => {
            json!({"error": "not_host_and_port", "part": part})
        }
    }
}
