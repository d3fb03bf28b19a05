//! Everything that happens, as one number; and, if asked for, as lines of text. Two runs of
//! one seed must give the same number.

use crate::history::RealTime;
use crate::rng::mix;

#[derive(Debug)]
pub(crate) struct Trace {
    digest: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(readable: bool) -> Trace {
        Trace { digest: 0, lines: readable.then(Vec::new) }
    }

    pub(crate) fn number(&mut self, value: u64) {
        self.digest = mix(self.digest.rotate_left(5) ^ value);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        let mut hash = self.digest;
        for word in words {
            hash = (hash.rotate_left(5) ^ u64::from_le_bytes(*word))
                .wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        for byte in rest {
            hash = (hash.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        self.digest = mix(hash);
    }

    /// A line for people; made only if they want it.
    pub(crate) fn line(&mut self, at: RealTime, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let (seconds, rest) = (at.0 / 1_000_000, at.0 % 1_000_000);
            lines.push(format!("{seconds:>6}.{rest:06}  {}", text()));
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}
