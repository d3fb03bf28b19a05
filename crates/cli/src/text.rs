//! Text that is safe to show in a terminal: escaped, quoted, in columns.

use std::borrow::Cow;

/// Escapes invisible and bidirectional control characters, because clients choose names freely.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        c if is_hidden(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// The same as in the dashboard, but for control characters.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
        | '\u{205f}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Clients choose metadata freely: it must break neither the table nor the terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    visible(&line).into_owned()
}

/// One word for a shell, for commands in messages.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| !is_hidden(c) && (c.is_alphanumeric() || "-_./:=,@%+".contains(c));
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if word.contains(is_hidden) {
        let written = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if is_hidden(c) => format!("\\U{:08x}", u32::from(c)),
            c => c.to_string(),
        };
        return format!("$'{}'", word.chars().map(written).collect::<String>());
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Columns as wide as their widest cell, two spaces apart, nothing at the end of a line.
pub(crate) fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headers[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width_of).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut headers.iter().copied());
    for row in &rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

/// `group 2`, or `groups 2, 3`.
pub(crate) fn group_numbers(groups: &[u32]) -> String {
    let numbers: Vec<String> = groups.iter().map(u32::to_string).collect();
    let word = if numbers.len() == 1 { "group" } else { "groups" };
    format!("{word} {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_a_shell_would_take_them_apart() {
        assert_eq!(quoted("billing/eu:1"), "billing/eu:1");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's\u{202e}x"), r"$'it\'s\U0000202ex'");
        assert_eq!(quoted("a\u{3164}"), r"$'a\U00003164'", "though it is a letter");
    }

    #[test]
    fn invisible_marks_are_written_out() {
        assert_eq!(visible("evil\u{202e}txt\n"), "evil\\u{202e}txt\n");
        assert_eq!(visible("a\u{200b}b\u{e0041}"), "a\\u{200b}b\\u{e0041}");
        for plain in ["wallet/é", "日本", "a b\tc", "العربية", "✓"] {
            assert_eq!(visible(plain), plain);
        }
        let rows = [vec!["a\u{202e}".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["NAME", "B"], &rows), "NAME       B\na\\u{202e}  x\n");
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let rows = [vec!["wallet".to_owned(), "é".to_owned()], vec!["a".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "HOST"], &rows), "NAME    HOST\nwallet  é\na\n");
    }
}
