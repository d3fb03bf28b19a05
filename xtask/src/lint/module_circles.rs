//! Checks that the modules of a crate use each other in one direction: no circle between the modules beside `lib.rs`.
//!
//! What a module uses is read from the paths that begin with `crate::`. Tests may use what they want.
//! Caveat: the text is searched, not parsed. It guards against a slip, not against a trick.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use super::sources::{read, rust_files};
use crate::failure::Failure;
use crate::process;

const ROOMS: [&str; 3] = ["crates", "testing", "bench"];

/// Which modules each module uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check() -> Result<(), Failure> {
    let root = process::repository_root();
    let mut sources = vec![root.join("xtask/src")];
    for room in ROOMS {
        let room = root.join(room);
        let unreadable = |error| Failure::Failed(format!("{}: {error}", room.display()));
        for entry in fs::read_dir(&room).map_err(unreadable)? {
            let source = entry.map_err(unreadable)?.path().join("src");
            if source.is_dir() {
                sources.push(source);
            }
        }
    }
    let mut complaints = Vec::new();
    for source in sources {
        if let Some(circle) = circle(&uses_in(&source)?) {
            let place = source.strip_prefix(&root).unwrap_or(&source).display();
            complaints.push(format!(
                "{place}: these modules use each other in a circle: {}",
                circle.join(" -> ")
            ));
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(Failure::Failed(complaints.join("\nxtask: "))) }
}

fn uses_in(source: &Path) -> Result<Uses, Failure> {
    let mut uses = Uses::new();
    for file in rust_files(source)? {
        let Some(module) = module_of(file.strip_prefix(source).unwrap_or(&file)) else { continue };
        uses.entry(module).or_default().extend(used_modules(&read(&file)?));
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        used.retain(|other| other != module && modules.contains(other));
    }
    Ok(uses)
}

/// The module beside `lib.rs` to which a file belongs. None for the root itself, for other programs and for tests.
fn module_of(file: &Path) -> Option<String> {
    let parts: Vec<PathBuf> = file.iter().map(PathBuf::from).collect();
    let is_test = parts.iter().any(|part| part.with_extension("").as_os_str() == "tests");
    let first = parts.first()?.with_extension("");
    let first = first.to_str()?;
    (!is_test && !["lib", "main", "bin"].contains(&first)).then(|| first.to_owned())
}

/// The first names of the paths that begin with `crate::`, outside of comments and of the tests at the end of the file.
fn used_modules(source: &str) -> BTreeSet<String> {
    let before_tests = source.split("#[cfg(test)]\nmod tests").next().unwrap_or(source);
    let code: Vec<&str> =
        before_tests.lines().map(|line| line.split("//").next().unwrap_or(line)).collect();
    let code = code.join("\n");
    let mut used = BTreeSet::new();
    for (_, path) in
        code.match_indices("crate::").map(|(at, found)| (at, &code[at + found.len()..]))
    {
        match path.strip_prefix('{') {
            Some(list) => used.extend(first_names(list)),
            None => used.extend(first_name(path)),
        }
    }
    used
}

/// Of `a::{b, c}, d}`, which is what follows `crate::{`: `a` and `d`.
fn first_names(list: &str) -> BTreeSet<String> {
    let (mut depth, mut item, mut names) = (0_usize, String::new(), BTreeSet::new());
    for letter in list.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(first_name(&std::mem::take(&mut item))),
            _ if depth == 0 => item.push(letter),
            _ => {}
        }
    }
    names.extend(first_name(&item));
    names
}

fn first_name(path: &str) -> Option<String> {
    let is_of_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let name: String = path.trim_start().chars().take_while(is_of_name).collect();
    (!name.is_empty()).then_some(name)
}

/// The shortest way from a module back to itself, if there is one.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    uses.keys().filter_map(|module| way_back(uses, module)).min_by_key(Vec::len)
}

fn way_back(uses: &Uses, start: &str) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![start.to_owned()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in way.last().and_then(|last| uses.get(last)).into_iter().flatten() {
            let mut longer = way.clone();
            longer.push(next.clone());
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                ways.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(edges: &[(&str, &str)]) -> Uses {
        let mut uses = Uses::new();
        for (from, to) in edges {
            uses.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        uses
    }

    #[test]
    fn the_shortest_circle_is_named() {
        let one_way =
            uses(&[("rpc", "shard"), ("shard", "peers"), ("peers", "inbox"), ("rpc", "inbox")]);
        assert_eq!(circle(&one_way), None);
        let round =
            uses(&[("rpc", "shard"), ("shard", "peers"), ("peers", "inbox"), ("inbox", "shard")]);
        assert_eq!(circle(&round).unwrap(), ["inbox", "shard", "peers", "inbox"]);
        let two = uses(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "e"), ("e", "d")]);
        assert_eq!(circle(&two).unwrap(), ["d", "e", "d"]);
    }

    #[test]
    fn what_a_module_uses_is_found_in_lists_and_in_paths_and_not_in_comments_or_tests() {
        let source = "//! See crate::comment.\nuse crate::one::Thing;\n\
                      use crate::{two, three::{Inner, other}, four};\n\
                      fn f() { crate::five::call(); } // crate::six\n\
                      #[cfg(test)]\nmod tests { use crate::seven; }\n";
        let used: Vec<String> = used_modules(source).into_iter().collect();
        assert_eq!(used, ["five", "four", "one", "three", "two"]);
    }

    #[test]
    fn a_file_belongs_to_the_module_beside_the_root() {
        let module = |file: &str| module_of(Path::new(file));
        assert_eq!(module("peers/wire/incoming.rs").as_deref(), Some("peers"));
        assert_eq!(module("peers.rs").as_deref(), Some("peers"));
        for other in ["lib.rs", "main.rs", "bin/model.rs", "shard/tests.rs", "rpc/tests/watch.rs"] {
            assert_eq!(module(other), None, "{other}");
        }
    }

    #[test]
    fn the_crates_of_this_repository_have_no_circle() {
        if let Err(failure) = check() {
            panic!("{failure}");
        }
    }
}
