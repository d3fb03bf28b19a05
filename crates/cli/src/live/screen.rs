//! The terminal while something is drawn on the whole of it. It is left as it was found, however that ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

use crate::exit::{Code, Problem};

/// How long the thread that reads keys goes on after the end, at most.
const KEY_PATIENCE: Duration = Duration::from_millis(50);

pub(crate) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::Receiver<Key>,
    ended: Arc<AtomicBool>,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    /// The terminal has another size, or a key without a meaning was pressed: draw again.
    Other,
}

impl Screen {
    pub(crate) fn open() -> Result<Screen, Problem> {
        let terminal = ratatui::try_init().map_err(|error| {
            Problem::new(Code::Unavailable, format!("cannot draw on this terminal: {error}"))
        })?;
        let (sender, keys) = mpsc::channel(16);
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        std::thread::spawn(move || read_keys(&sender, &is_over));
        Ok(Screen { terminal, keys, ended })
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// If there is no keyboard any more, that is as good as a wish to leave.
    pub(crate) async fn key(&mut self) -> Key {
        self.keys.recv().await.unwrap_or(Key::Quit)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        ratatui::restore();
    }
}

fn read_keys(sender: &mpsc::Sender<Key>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let key = match event::poll(KEY_PATIENCE) {
            Ok(false) => continue,
            Ok(true) => match event::read() {
                Ok(event) => meaning(&event),
                Err(_) => return,
            },
            Err(_) => return,
        };
        if sender.blocking_send(key).is_err() {
            return;
        }
    }
}

fn meaning(event: &Event) -> Key {
    match event {
        Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => match code {
            KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
            // In raw mode the terminal makes no signal of it.
            KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
            _ => Key::Other,
        },
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_leave() {
        let press = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Key::Quit);
        assert_eq!(press(KeyCode::Esc, KeyModifiers::NONE), Key::Quit);
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Key::Quit);
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), Key::Other);
        assert_eq!(meaning(&Event::Resize(80, 24)), Key::Other);
    }
}
