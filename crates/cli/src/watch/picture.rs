//! The table of `holdfast watch`: the locks that changed last stand first, the last events below.

use std::collections::VecDeque;

use holdfast_client::unary::Watched;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};

use super::lines::{self, Style};
use super::owners::Owners;
use crate::duration::in_words;
use crate::live::board::{Board, Lock, Millis};
use crate::live::drawing::{self, Palette};
use crate::text::on_one_line;

/// As many as a high terminal has lines.
const EVENTS_MAX: usize = 100;

#[derive(Debug)]
pub(super) struct Picture {
    title: String,
    board: Board,
    events: VecDeque<String>,
    /// What is wrong, as long as it is.
    read_error: Option<String>,
    palette: Palette,
}

impl Picture {
    pub(super) fn new(prefix: &str, palette: Palette) -> Picture {
        let title = match prefix {
            "" => "all locks".to_owned(),
            prefix => format!("locks under {prefix}"),
        };
        Picture {
            title,
            board: Board::default(),
            events: VecDeque::new(),
            read_error: None,
            palette,
        }
    }

    pub(super) fn take(&mut self, watched: Watched, owners: &Owners, now: Millis) {
        self.read_error = None;
        match watched {
            Watched::Snapshot { locks, .. } => {
                locks.iter().for_each(|lock| self.board.put(lock, now));
            }
            Watched::Events(events) => {
                for event in events.iter() {
                    self.board.apply(&event, now);
                    self.note(lines::happened(&event, owners, Style::Text));
                }
            }
            Watched::Restarted { why } => {
                self.board.clear();
                self.note(format!("the watch starts again with a snapshot: {why}"));
            }
            _ => {}
        }
    }

    pub(super) fn set_read_error(&mut self, words: &str) {
        self.read_error = Some(words.to_owned());
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>, now: Millis) {
        let height = frame.area().height;
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(4),
            Constraint::Length((height / 3).max(3)),
        ]);
        let [top, middle, bottom] = areas.areas(frame.area());
        frame.render_widget(self.headline(), top);
        let rows: Vec<_> = self
            .latest(usize::from(middle.height))
            .into_iter()
            .map(|(name, lock)| (row(name, lock, now), self.style_of(lock, now)))
            .collect();
        let headers = ["NAME", "HELD BY", "TOKEN", "FOR", "HOLDERS", "WAITING", "REASON"];
        drawing::table(frame, middle, "held or waited for", &headers, &rows, self.palette);
        let room = usize::from(bottom.height.saturating_sub(1));
        let events = self.events.iter().take(room).map(|event| Line::from(event.as_str()));
        let block = Block::new().borders(Borders::TOP).title(" what happened, the last first ");
        frame.render_widget(Paragraph::new(events.collect::<Vec<_>>()).block(block), bottom);
    }

    fn headline(&self) -> Line<'_> {
        if let Some(read_error) = &self.read_error {
            return Line::styled(on_one_line(read_error), self.palette.alarm());
        }
        let cut = if self.board.is_cut() { ", and more that are not followed" } else { "" };
        let words = format!("{}: {}{cut}    q leaves", self.title, self.board.len());
        Line::styled(words, self.palette.heading())
    }

    fn latest(&self, max: usize) -> Vec<(&str, &Lock)> {
        let mut locks: Vec<_> = self.board.iter().collect();
        // By name among those that changed together, so that rows do not jump about.
        locks.sort_by_key(|(_, lock)| std::cmp::Reverse(lock.changed_at));
        locks.truncate(max);
        locks
    }

    /// What just changed stands out.
    fn style_of(&self, lock: &Lock, now: Millis) -> ratatui::style::Style {
        if now.saturating_sub(lock.changed_at) < 1_000 {
            self.palette.heading()
        } else {
            Palette::plain()
        }
    }

    fn note(&mut self, event: String) {
        self.events.push_front(event);
        self.events.truncate(EVENTS_MAX);
    }
}

fn row(name: &str, lock: &Lock, now: Millis) -> Vec<String> {
    let first = lock.first_holder();
    let of_first =
        |cell: &dyn Fn(&crate::live::board::Holder) -> String| first.map_or("-".to_owned(), cell);
    vec![
        on_one_line(name),
        of_first(&|holder| match holder.owner.as_str() {
            "" => format!("session {}", holder.session),
            owner => owner.to_owned(),
        }),
        of_first(&|holder| holder.token.to_string()),
        of_first(&|holder| in_words(holder.held_for_ms(now))),
        lock.holder_count().to_string(),
        lock.waiter_count().to_string(),
        first.map(|holder| on_one_line(&holder.reason)).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use holdfast_client::unary::Unary;
    use holdfast_proto::v1::{EventKind, LockSummary, WatchEvent};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn drawn(picture: &Picture, now: Millis) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
        terminal.draw(|frame| picture.draw(frame, now)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_lock_that_changed_last_stands_first_and_events_stand_below() {
        let mut picture = Picture::new("", Palette::of_environment());
        let held = |name: &str, token| LockSummary {
            name: name.into(),
            holder_count: 1,
            waiter_count: 2,
            token,
            public_session_id: "aa".into(),
            held_for_ms: 3_000,
            metadata: b"month\nend".to_vec(),
            ..Default::default()
        };
        let locks = vec![held("a", 1), held("b", 2)];
        let owners = Owners::new(Unary::new("127.0.0.1:1").unwrap());
        picture.take(Watched::Snapshot { locks, complete: true }, &owners, 0);
        let granted = WatchEvent {
            kind: EventKind::Granted.into(),
            names: vec!["c".into()],
            public_session_id: "bb".into(),
            request_id: 1,
            token: 3,
            ..Default::default()
        };
        picture.take(Watched::Events(vec![granted].into()), &owners, 2_000);
        let expected = r#"
"all locks: 3    q leaves                                                        "
" held or waited for ────────────────────────────────────────────────────────────"
"NAME  HELD BY     TOKEN  FOR   HOLDERS  WAITING  REASON                         "
"c     session bb  3      1.0s  1        0                                       "
"a     session aa  1      6.0s  1        2        month end                      "
"b     session aa  2      6.0s  1        2        month end                      "
"                                                                                "
"                                                                                "
" what happened, the last first ─────────────────────────────────────────────────"
"1970-01-01T00:00:00.000Z  granted        c  session bb  token 3                 "
"                                                                                "
"                                                                                "
"#;
        assert_eq!(drawn(&picture, 3_000), expected.trim_start());
        picture.set_read_error("no node can be reached");
        assert!(drawn(&picture, 3_000).starts_with("\"no node can be reached"));
    }
}
