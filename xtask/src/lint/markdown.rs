//! Checks the Markdown of the repository: the width of lines, relative links, anchors, and the table of contents.
//!
//! - A line has at most 120 characters, unless it cannot be broken: a table row, a heading, code, one link.
//! - A relative link leads to a file of the repository. Its anchor is a heading of that page.
//! - A sentence names its actor: it does not say "nobody" or "whoever". The changelog is exempt.
//! - Each page under `docs` is in `docs/SUMMARY.md`. mdBook leaves out the others, and links to them are dead there.
//!
//! Caveat: the text is scanned, not parsed. Indented code blocks and links by reference (`[text][label]`) are not known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::failure::Failure;
use crate::process;

mod page;

use page::Page;

const LINE_CHARACTERS_MAX: usize = 120;
const BOOK: &str = "docs";
const CONTENTS: &str = "docs/SUMMARY.md";
/// Words that stand where a sentence should name the leader, the client or the operator.
const UNNAMED_ACTORS: [&str; 6] = ["anybody", "anew", "everybody", "nobody", "somebody", "whoever"];
/// A record of what was.
const MAY_LEAVE_ACTORS_UNNAMED: &str = "CHANGELOG.md";

pub(crate) fn check() -> Result<(), Failure> {
    let root = process::repository_root();
    let pages = read_pages(&root)?;
    let complaints = complaints(&pages, |path| root.join(path).exists());
    if complaints.is_empty() { Ok(()) } else { Err(Failure::Failed(complaints.join("\nxtask: "))) }
}

/// Paths are relative to the root of the repository.
type Pages = BTreeMap<PathBuf, String>;

fn complaints(texts: &Pages, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let pages: BTreeMap<&Path, Page<'_>> =
        texts.iter().map(|(path, text)| (path.as_path(), Page::new(text))).collect();
    let mut complaints = Vec::new();
    let mut contents = BTreeSet::new();
    for (path, page) in &pages {
        let at = |line: usize| format!("{}:{line}", path.display());
        for (line, characters) in page.lines_longer_than(LINE_CHARACTERS_MAX) {
            complaints.push(format!(
                "{}: {characters} characters; break the line at {LINE_CHARACTERS_MAX}",
                at(line)
            ));
        }
        if !path.starts_with(MAY_LEAVE_ACTORS_UNNAMED) {
            for (line, word) in page.words().filter(|(_, word)| is_unnamed_actor(word)) {
                complaints
                    .push(format!("{}: `{word}`; name the actor, or say \"again\"", at(line)));
            }
        }
        for link in page.links() {
            let (file, anchor) = link.target.split_once('#').unwrap_or((link.target, ""));
            let Some(target) = resolve(path, file) else {
                complaints.push(format!(
                    "{}: the link `{}` leaves the repository",
                    at(link.line),
                    link.target
                ));
                continue;
            };
            if *path == Path::new(CONTENTS) {
                contents.insert(target.clone());
            }
            match pages.get(target.as_path()) {
                Some(page) if !anchor.is_empty() && !page.has_anchor(anchor) => {
                    complaints.push(format!(
                        "{}: the link `{}` names no heading of {}",
                        at(link.line),
                        link.target,
                        target.display()
                    ));
                }
                None if !exists(&target) => complaints.push(format!(
                    "{}: the link `{}` leads to no file; there is no {}",
                    at(link.line),
                    link.target,
                    target.display()
                )),
                _ => {}
            }
        }
    }
    for path in pages.keys() {
        let belongs = path.starts_with(BOOK) && *path != Path::new(CONTENTS);
        if belongs && !contents.contains(*path) {
            complaints.push(format!("{}: add this page to {CONTENTS}", path.display()));
        }
    }
    complaints
}

fn is_unnamed_actor(word: &str) -> bool {
    UNNAMED_ACTORS.iter().any(|unnamed| word.eq_ignore_ascii_case(unnamed))
}

/// Where a relative link of this page leads to, if that is in the repository.
fn resolve(page: &Path, target: &str) -> Option<PathBuf> {
    if target.is_empty() {
        return Some(page.to_path_buf());
    }
    let mut resolved = match target.strip_prefix('/') {
        Some(_) => PathBuf::new(),
        None => page.parent().unwrap_or(Path::new("")).to_path_buf(),
    };
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir if !resolved.pop() => return None,
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    Some(resolved)
}

/// Folders that builds fill, and that are in no commit.
const BUILT: [&str; 4] = ["target", "node_modules", "dist", "build"];

fn read_pages(root: &Path) -> Result<Pages, Failure> {
    let mut pages = Pages::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let unreadable = |error| Failure::Failed(format!("{}: {error}", directory.display()));
        for entry in fs::read_dir(&directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let (path, name) = (entry.path(), entry.file_name());
            if BUILT.iter().any(|built| name == *built) || name.to_string_lossy().starts_with('.') {
                continue;
            }
            if entry.file_type().map_err(unreadable)?.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path)
                    .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
                pages.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf(), text);
            }
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> Pages {
        read_pages(&process::repository_root()).unwrap()
    }

    fn complaints_about(pages: &Pages) -> Vec<String> {
        complaints(pages, |path| process::repository_root().join(path).exists())
    }

    /// What the check says about the repository, besides what it says anyway, if this text stands at the end of a page.
    fn planted(page: &str, text: &str) -> Vec<String> {
        let mut pages = repository();
        let before = complaints_about(&pages);
        pages.get_mut(Path::new(page)).unwrap().push_str(text);
        let found = complaints_about(&pages).into_iter();
        found.filter(|complaint| !before.contains(complaint)).collect()
    }

    #[test]
    fn the_repository_has_no_long_line_and_no_dead_link() {
        assert_eq!(complaints_about(&repository()), [""; 0]);
    }

    #[test]
    fn a_long_line_that_is_planted_is_found() {
        let found = planted("README.md", &format!("\n{}\n", "lock ".repeat(25)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("break the line at 120"), "{found:?}");
    }

    #[test]
    fn a_dead_link_that_is_planted_is_found() {
        for link in ["[a](docs/no-such-page.md)", "![a](docs/none.png)", "[a](../outside.md)"] {
            let found = planted("README.md", &format!("\n{link}\n"));
            assert_eq!(found.len(), 1, "{link}: {found:?}");
        }
    }

    #[test]
    fn a_dead_anchor_that_is_planted_is_found() {
        for link in ["[a](#no-such-heading)", "[a](docs/fencing.md#no-such-heading)"] {
            let found = planted("README.md", &format!("\n{link}\n"));
            assert_eq!(found.len(), 1, "{link}: {found:?}");
            assert!(found[0].contains("names no heading"), "{found:?}");
        }
    }

    #[test]
    fn a_sentence_that_names_no_actor_is_found_when_it_is_planted() {
        let found = planted("docs/start.md", "\nNobody holds the lock; `nobody` is code.\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`Nobody`; name the actor"), "{found:?}");
        assert_eq!(planted("CHANGELOG.md", "\nNobody holds the lock.\n"), [""; 0]);
    }

    #[test]
    fn a_page_that_is_not_in_the_table_of_contents_is_found() {
        let mut pages = repository();
        pages.insert("docs/planted.md".into(), "# Planted\n".to_owned());
        let expected = "docs/planted.md: add this page to docs/SUMMARY.md".to_owned();
        assert!(complaints_about(&pages).contains(&expected));
    }

    #[test]
    fn links_are_resolved_from_the_page_that_has_them() {
        let from = Path::new("docs/stories/pause.md");
        let to = |target| resolve(from, target);
        assert_eq!(to("../fencing.md"), Some("docs/fencing.md".into()));
        assert_eq!(to("split.md"), Some("docs/stories/split.md".into()));
        assert_eq!(to("/README.md"), Some("README.md".into()));
        assert_eq!(to(""), Some(from.into()));
        assert_eq!(to("../../../README.md"), None);
    }
}
