//! Output that never blocks the caller. `holdfast lock` must renew its lease and end its command in time, even when
//! stderr is a full pipe that no program reads. A thread writes the text; if the thread is stuck, the caller is not.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

/// Further texts are dropped while this many wait for the reader.
const QUEUED_MAX: usize = 64;
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// Clones write in turn. Dropping the last one waits a moment until all is written.
#[derive(Debug, Clone)]
pub(crate) struct NonblockingOutput(Arc<WriterThread>);

#[derive(Debug)]
struct WriterThread {
    /// There until the drop.
    queue: Option<SyncSender<String>>,
    /// Disconnects when the thread ends.
    finished: Mutex<Receiver<Infallible>>,
}

impl NonblockingOutput {
    pub(crate) fn on(mut sink: impl Write + Send + 'static) -> io::Result<NonblockingOutput> {
        let (queue, queued) = sync_channel::<String>(QUEUED_MAX);
        let (until_finished, finished) = channel::<Infallible>();
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            let _until_finished = until_finished;
            allow_writes_from_background();
            for text in queued {
                // In one write, so that lines of several writers do not mix. The reader may be gone.
                let _ = sink.write_all(text.as_bytes());
            }
        })?;
        let thread = WriterThread { queue: Some(queue), finished: Mutex::new(finished) };
        Ok(NonblockingOutput(Arc::new(thread)))
    }

    /// Returns at once.
    pub(crate) fn write(&self, text: String) {
        if let Some(queue) = &self.0.queue {
            let _ = queue.try_send(text);
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.queue = None;
        if let Ok(finished) = self.finished.get_mut() {
            let _ = finished.recv_timeout(FLUSH_PATIENCE);
        }
    }
}

/// The terminal belongs to the command. With `stty tostop` a write from the background would suspend this program,
/// unless the signal is blocked.
fn allow_writes_from_background() {
    let mut background_write = SigSet::empty();
    background_write.add(Signal::SIGTTOU);
    let _ = background_write.thread_block();
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn texts_are_written_in_order_before_the_last_clone_is_gone() {
        let (mut reader, writer) = io::pipe().unwrap();
        let output = NonblockingOutput::on(writer).unwrap();
        output.clone().write("one\n".to_owned());
        output.write("two\n".to_owned());
        drop(output);
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn a_pipe_that_no_program_reads_does_not_block_the_writer() {
        let (_unread, writer) = io::pipe().unwrap();
        let output = NonblockingOutput::on(writer).unwrap();
        let began = Instant::now();
        for _ in 0..1_000 {
            output.write("x".repeat(4096));
        }
        assert!(began.elapsed() < FLUSH_PATIENCE);
    }
}
