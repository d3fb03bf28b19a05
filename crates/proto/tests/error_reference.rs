//! `docs/reference/errors.md` lists every reason of a failure, with its gRPC code.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use holdfast_proto::v1::Reason;

const PAGE: &str = include_str!("../../../docs/reference/errors.md");

/// Larger than any number of a reason.
const NUMBERS_MAX: i32 = 1000;

fn code_name(reason: Reason) -> String {
    let name = format!("{:?}", reason.grpc_code());
    let mut code = String::new();
    for (index, c) in name.char_indices() {
        if c.is_uppercase() && index > 0 {
            code.push('_');
        }
        code.push(c.to_ascii_uppercase());
    }
    code
}

#[test]
fn the_reference_of_errors_lists_every_reason_with_its_code() {
    let known: BTreeMap<String, String> = (1..NUMBERS_MAX)
        .filter_map(|number| Reason::try_from(number).ok())
        .map(|reason| (reason.wire_name(), code_name(reason)))
        .collect();
    let rows = PAGE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, reason, code, _, _] = cells[..] else { return None };
        let is_code = code.chars().all(|c| c.is_ascii_uppercase() || c == '_') && !code.is_empty();
        is_code.then(|| (reason.to_owned(), code.to_owned()))
    });
    let documented: BTreeMap<String, String> = rows.collect();
    assert_eq!(documented, known);
    assert!(known.len() > 60, "{}", known.len());
}
