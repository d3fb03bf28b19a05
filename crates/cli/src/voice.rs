//! Words that must not hold us up while we watch over a command: a thread of its own writes them, so a full pipe
//! that nobody reads stops that thread and not the watch.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

/// Whoever leaves so much unread does not miss the rest.
const UNSAID_MAX: usize = 64;
const LAST_WORDS_PATIENCE: Duration = Duration::from_secs(1);

/// Clones speak in turn. When the last is dropped it waits a moment until all is said.
#[derive(Debug, Clone)]
pub(crate) struct Voice(Arc<Speaker>);

#[derive(Debug)]
struct Speaker {
    /// There until the drop.
    unsaid: Option<SyncSender<String>>,
    /// Ends with the thread.
    all_is_said: Mutex<Receiver<Infallible>>,
}

impl Voice {
    pub(crate) fn on(mut sink: impl Write + Send + 'static) -> io::Result<Voice> {
        let (unsaid, to_say) = sync_channel::<String>(UNSAID_MAX);
        let (at_the_end, all_is_said) = channel::<Infallible>();
        thread::Builder::new().name("voice".to_owned()).spawn(move || {
            let _at_the_end = at_the_end;
            may_write_from_the_background();
            for words in to_say {
                // In one write, so that lines of several writers do not mix. Nobody may be reading any more.
                let _ = sink.write_all(words.as_bytes());
            }
        })?;
        let speaker = Speaker { unsaid: Some(unsaid), all_is_said: Mutex::new(all_is_said) };
        Ok(Voice(Arc::new(speaker)))
    }

    /// Returns at once.
    pub(crate) fn say(&self, words: String) {
        if let Some(unsaid) = &self.0.unsaid {
            let _ = unsaid.try_send(words);
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.unsaid = None;
        if let Ok(all_is_said) = self.all_is_said.get_mut() {
            let _ = all_is_said.recv_timeout(LAST_WORDS_PATIENCE);
        }
    }
}

/// The terminal is the command's. With `stty tostop` a word from us would suspend us, unless the signal is
/// blocked.
fn may_write_from_the_background() {
    let mut background_write = SigSet::empty();
    background_write.add(Signal::SIGTTOU);
    let _ = background_write.thread_block();
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_was_said_is_written_in_order_before_the_last_clone_is_gone() {
        let (mut reader, writer) = io::pipe().unwrap();
        let voice = Voice::on(writer).unwrap();
        voice.clone().say("one\n".to_owned());
        voice.say("two\n".to_owned());
        drop(voice);
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn a_listener_who_does_not_listen_holds_nobody_up() {
        let (_unread, writer) = io::pipe().unwrap();
        let voice = Voice::on(writer).unwrap();
        let began = Instant::now();
        for _ in 0..1_000 {
            voice.say("x".repeat(4096));
        }
        assert!(began.elapsed() < LAST_WORDS_PATIENCE);
    }
}
