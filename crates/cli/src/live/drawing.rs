//! Tables on a terminal. With NO_COLOR set, what stands out does so without colour.

use std::ffi::OsStr;

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Block, Borders, Cell, Row, Table};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Palette {
    has_colours: bool,
}

impl Palette {
    pub(crate) fn of_environment() -> Palette {
        Palette::with(std::env::var_os("NO_COLOR").as_deref())
    }

    fn with(no_color: Option<&OsStr>) -> Palette {
        Palette { has_colours: no_color.is_none_or(OsStr::is_empty) }
    }

    pub(crate) fn plain() -> Style {
        Style::new()
    }

    pub(crate) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What needs attention.
    pub(crate) fn alarm(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.has_colours { style.fg(Color::Red) } else { style }
    }

    /// What is of less interest.
    pub(crate) fn faint(self) -> Style {
        if self.has_colours { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }
}

/// A table with a title. If there is too little room the first column gives way.
pub(crate) fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    headers: &[&str],
    rows: &[(Vec<String>, Style)],
    palette: Palette,
) {
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|(cells, _)| cells.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        u16::try_from(widest.max(headers[column].chars().count())).unwrap_or(u16::MAX).min(60)
    };
    let widths = (0..headers.len()).map(|column| match column {
        0 => Constraint::Max(width_of(0)),
        _ => Constraint::Length(width_of(column)),
    });
    let lines = rows.iter().map(|(cells, style)| {
        Row::new(cells.iter().map(|cell| Cell::from(cell.as_str()))).style(*style)
    });
    let header = Row::new(headers.iter().copied()).style(palette.heading());
    let block = Block::new().borders(Borders::TOP).title(format!(" {title} "));
    let table = Table::new(lines, widths).header(header).block(block).column_spacing(2);
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_an_alarm_still_stands_out() {
        let palette = Palette::with(Some(OsStr::new("1")));
        assert_eq!(palette.alarm().fg, None);
        assert_ne!(palette.alarm(), Palette::plain());
        assert_eq!(Palette::with(None).alarm().fg, Some(Color::Red));
        assert_eq!(Palette::with(Some(OsStr::new(""))).alarm().fg, Some(Color::Red));
    }
}
