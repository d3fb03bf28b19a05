//! One page of Markdown: its lines, links and anchors.

use std::collections::BTreeSet;

pub(super) struct Page<'a> {
    lines: Vec<Line<'a>>,
    /// The text with code replaced by spaces, so that nothing in it is taken for a link. As long as the text.
    prose: String,
    anchors: BTreeSet<String>,
}

struct Line<'a> {
    text: &'a str,
    is_code: bool,
}

pub(super) struct Link<'a> {
    pub(super) line: usize,
    pub(super) target: &'a str,
}

impl<'a> Page<'a> {
    pub(super) fn new(text: &'a str) -> Page<'a> {
        let lines = lines(text);
        let prose = without_code(&lines);
        let anchors = anchors(&lines, &prose);
        Page { lines, prose, anchors }
    }

    /// The number and the characters of each line that is longer and could be broken.
    pub(super) fn lines_longer_than(&self, max: usize) -> impl Iterator<Item = (usize, usize)> {
        self.lines.iter().enumerate().filter_map(move |(index, line)| {
            let characters = line.text.chars().count();
            let is_long = characters > max && !line.is_code && can_be_broken(line.text, max);
            is_long.then_some((index + 1, characters))
        })
    }

    /// Relative links and images, and links to headings of this page.
    pub(super) fn links(&self) -> impl Iterator<Item = Link<'_>> {
        self.prose.lines().enumerate().flat_map(|(index, line)| {
            let targets = inline_targets(line).into_iter().chain(defined_target(line));
            let relative = targets.filter(|target| !target.is_empty() && !is_absolute(target));
            relative.map(move |target| Link { line: index + 1, target })
        })
    }

    /// The words outside of code, with the numbers of their lines.
    pub(super) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        self.prose.lines().enumerate().flat_map(|(index, line)| {
            // A hyphen is a part of a word, so that names of files are none of these words.
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '-');
            words.map(move |word| (index + 1, word))
        })
    }

    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        self.anchors.contains(anchor)
    }
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut fence: Option<&str> = None;
    text.lines()
        .map(|text| {
            let start = text.trim_start();
            let mark = start.len() - start.trim_start_matches(['`', '~']).len();
            let opens = mark >= 3 && !start[mark..].contains('`');
            let is_code = fence.is_some() || opens;
            match fence {
                Some(open) if start.starts_with(open) && start[mark..].trim().is_empty() => {
                    fence = None;
                }
                None if opens => fence = Some(&start[..mark]),
                _ => {}
            }
            Line { text, is_code }
        })
        .collect()
}

/// Whether there is a space at which the first part of the line would be short enough.
fn can_be_broken(line: &str, max: usize) -> bool {
    let start = line.trim_start();
    let is_link_definition = defined_target(line).is_some();
    if start.starts_with(['|', '#']) || is_link_definition {
        return false;
    }
    // What stands before the first word (indent, list marker, quotation mark) is no part to break off.
    let text = start.trim_start_matches(|c: char| "-*+>.)".contains(c) || c.is_ascii_digit());
    let is_one_link = text.trim_start().starts_with('[')
        && text.matches("](").count() == 1
        && text.ends_with(')');
    let first_word = line.chars().count() - text.trim_start().chars().count();
    !is_one_link && line.chars().take(max + 1).skip(first_word).any(|c| c == ' ')
}

fn without_code(lines: &[Line<'_>]) -> String {
    let mut prose = String::new();
    let mut paragraph = String::new();
    for line in lines {
        if line.is_code || line.text.trim().is_empty() {
            prose.push_str(&without_code_spans(&paragraph));
            prose.push('\n');
            paragraph.clear();
        } else {
            paragraph.push_str(line.text);
            paragraph.push('\n');
        }
    }
    prose.push_str(&without_code_spans(&paragraph));
    prose
}

/// A code span ends at as many backticks as it began with. Backticks without an end are text.
fn without_code_spans(paragraph: &str) -> String {
    let mut rest = paragraph;
    let mut text = String::new();
    while let Some(start) = rest.find('`') {
        let (before, from) = rest.split_at(start);
        text.push_str(before);
        let ticks = from.len() - from.trim_start_matches('`').len();
        let inside = &from[ticks..];
        let Some(end) = end_of_span(inside, ticks) else {
            text.push_str(&from[..ticks]);
            rest = inside;
            continue;
        };
        let span = &from[..ticks + end + ticks];
        text.extend(span.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &from[span.len()..];
    }
    text.push_str(rest);
    text
}

fn end_of_span(inside: &str, ticks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = inside[at..].find('`') {
        let start = at + found;
        let run = inside[start..].len() - inside[start..].trim_start_matches('`').len();
        if run == ticks {
            return Some(start);
        }
        at = start + run;
    }
    None
}

/// The targets of `[text](target)` and `![text](target "title")`.
fn inline_targets(line: &str) -> Vec<&str> {
    let after_text = line.match_indices("](").map(|(at, mark)| &line[at + mark.len()..]);
    after_text.filter_map(|rest| rest[..closing_bracket(rest)?].split(' ').next()).collect()
}

fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The target of `[label]: target`.
fn defined_target(line: &str) -> Option<&str> {
    let (label, rest) = line.trim_start().strip_prefix('[')?.split_once("]: ")?;
    let target = rest.split(' ').next()?;
    (!label.contains(['[', ']'])).then_some(target)
}

fn is_absolute(target: &str) -> bool {
    let scheme = target.split(['/', '#']).next().unwrap_or_default();
    scheme.contains(':') || target.starts_with("//")
}

/// Headings as GitHub and mdBook name them.
fn anchors(lines: &[Line<'_>], prose: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in lines.iter().filter(|line| !line.is_code) {
        let heading = line.text.trim_start_matches('#');
        let level = line.text.len() - heading.len();
        if (1..=6).contains(&level) && heading.starts_with(' ') {
            let name = anchor_of(heading.trim());
            let mut numbered = (1..).map(|number| format!("{name}-{number}"));
            let free = |name: &String| !anchors.contains(name);
            let anchor =
                if anchors.contains(&name) { numbered.find(free) } else { Some(name.clone()) };
            anchors.extend(anchor);
        }
    }
    for mark in ["<a id=\"", "<a name=\""] {
        let marked = prose.match_indices(mark).map(|(at, mark)| &prose[at + mark.len()..]);
        anchors.extend(marked.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    }
    anchors
}

fn anchor_of(heading: &str) -> String {
    let text = without_targets(heading);
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A link in a heading counts by its text.
fn without_targets(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = closing_bracket(after).map_or("", |end| &after[end + 1..]);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(text: &str) -> Vec<usize> {
        Page::new(text).lines_longer_than(20).map(|(line, _)| line).collect()
    }

    fn targets(text: &str) -> Vec<String> {
        Page::new(text).links().map(|link| format!("{} {}", link.line, link.target)).collect()
    }

    #[test]
    fn a_line_of_prose_that_is_too_long_is_found() {
        assert_eq!(long("short\none two three four five\n"), [2]);
        assert_eq!(long("- one two three four five\n"), [1]);
        assert_eq!(long("twenty characters ok\n"), [0; 0]);
        // Characters are counted, not bytes.
        assert_eq!(long("é é é é é é é é é éé\n"), [0; 0]);
    }

    #[test]
    fn a_line_that_cannot_be_broken_may_be_long() {
        for text in [
            "| a table | has long | rows |\n",
            "# A heading is one line only\n",
            "```sh\nholdfast lock name -- ./command\n```\n",
            "~~~~\nholdfast lock name -- ./command\n```\nstill code, and a long line of it\n~~~~\n",
            "- [text](a/very/long/target.md) of a link\n",
            "- [a title of several words](target.md)\n",
            "[label]: https://example.com/a/long/target with words\n",
        ] {
            assert_eq!(long(text), [0; 0], "{text}");
        }
    }

    #[test]
    fn code_ends_where_its_fence_ends() {
        assert_eq!(long("```\ncode code code code code\n```\none two three four five\n"), [4]);
    }

    #[test]
    fn relative_links_images_and_definitions_are_found() {
        assert_eq!(
            targets("see [a](b.md), [c\nd](e.md#f \"title\")\n![g](h.png) [i](#j)\n\n[k]: l.md\n"),
            ["1 b.md", "2 e.md#f", "3 h.png", "3 #j", "5 l.md"]
        );
        assert_eq!(targets("[![a](b.png)](c.md)\n"), ["1 b.png", "1 c.md"]);
        assert_eq!(targets("[a](b_(c).md)\n"), ["1 b_(c).md"]);
    }

    #[test]
    fn other_sites_are_no_relative_links() {
        assert_eq!(targets("[a](https://example.com/b.md) [c](mailto:d@example.com)\n"), [""; 0]);
        assert_eq!(targets("[a]: http://example.com/b.md\n"), [""; 0]);
    }

    #[test]
    fn code_has_no_links() {
        assert_eq!(targets("`[a](b.md)` and ``[c](`d`.md)``\n\n```\n[e](f.md)\n```\n"), [""; 0]);
        assert_eq!(targets("a `span\nover lines` [b](c.md)\n"), ["2 c.md"]);
        assert_eq!(targets("one backtick ` alone, [b](c.md)\n"), ["1 c.md"]);
    }

    #[test]
    fn headings_are_anchors_by_the_names_that_a_browser_sees() {
        let page = Page::new(
            "# How it's tested\n## `lock`, `elect`\n## [A](b.md) link\n## Twice\n## Twice\n",
        );
        for anchor in ["how-its-tested", "lock-elect", "a-link", "twice", "twice-1"] {
            assert!(page.has_anchor(anchor), "{anchor}: {:?}", page.anchors);
        }
        assert!(!page.has_anchor("twice-2"));
        assert!(!Page::new("```\n# a comment\n```\n").has_anchor("a-comment"));
        assert!(Page::new("<a id=\"here\"></a>\n").has_anchor("here"));
    }
}
