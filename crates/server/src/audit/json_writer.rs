//! Writes JSON behind what is in a buffer, piece by piece.
//!
//! Room is made for some hundred bytes at once, so that a piece costs a copy and little else.

/// More than most lines have.
const ROOM: usize = 512;

#[derive(Debug)]
pub(super) struct JsonWriter<'a> {
    buffer: &'a mut Vec<u8>,
    /// So much of the buffer is written; what is behind is room.
    written: usize,
}

impl<'a> JsonWriter<'a> {
    pub(super) fn append_to(buffer: &'a mut Vec<u8>) -> JsonWriter<'a> {
        let written = buffer.len();
        buffer.resize(written + ROOM, 0);
        JsonWriter { buffer, written }
    }

    /// To be called at the end: takes away the room that is left.
    pub(super) fn finish(self) {
        self.buffer.truncate(self.written);
    }

    #[inline]
    pub(super) fn put<const N: usize>(&mut self, piece: &[u8; N]) {
        match self.buffer.get_mut(self.written..self.written + N) {
            Some(room) => {
                room.copy_from_slice(piece);
                self.written += N;
            }
            None => self.put_and_grow(piece),
        }
    }

    #[inline]
    pub(super) fn put_slice(&mut self, piece: &[u8]) {
        match self.buffer.get_mut(self.written..self.written + piece.len()) {
            Some(room) => {
                room.copy_from_slice(piece);
                self.written += piece.len();
            }
            None => self.put_and_grow(piece),
        }
    }

    #[inline]
    pub(super) fn number<const N: usize>(&mut self, label: &[u8; N], number: u64) {
        self.put(label);
        self.put_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    #[inline]
    pub(super) fn number_above_zero<const N: usize>(&mut self, label: &[u8; N], number: u64) {
        if number > 0 {
            self.number(label, number);
        }
    }

    /// If it is above zero: for numbers so large that readers of JSON round them.
    #[inline]
    pub(super) fn number_as_text<const N: usize>(&mut self, label: &[u8; N], number: u64) {
        if number > 0 {
            self.word(label, itoa::Buffer::new().format(number));
        }
    }

    #[inline]
    pub(super) fn text<const N: usize>(&mut self, label: &[u8; N], text: &str) {
        if needs_escape(text.as_bytes()) {
            self.put(label);
            // Of a text it cannot fail.
            return self.put_slice(serde_json::to_string(text).unwrap_or_default().as_bytes());
        }
        self.word(label, text);
    }

    /// A text that needs no escape.
    #[inline]
    pub(super) fn word<const N: usize>(&mut self, label: &[u8; N], word: &str) {
        self.put(label);
        self.put(b"\"");
        self.put_slice(word.as_bytes());
        self.put(b"\"");
    }

    #[inline]
    pub(super) fn text_if_any<const N: usize>(&mut self, label: &[u8; N], text: &str) {
        if !text.is_empty() {
            self.text(label, text);
        }
    }

    #[inline]
    pub(super) fn word_if_any<const N: usize>(&mut self, label: &[u8; N], word: &str) {
        if !word.is_empty() {
            self.word(label, word);
        }
    }

    #[cold]
    fn put_and_grow(&mut self, piece: &[u8]) {
        self.buffer.truncate(self.written);
        self.buffer.extend_from_slice(piece);
        self.written = self.buffer.len();
        self.buffer.resize(self.written + ROOM, 0);
    }
}

/// Eight bytes at a time: most texts are short, and there is one in nearly every line.
#[inline]
fn needs_escape(text: &[u8]) -> bool {
    let (words, _) = text.as_chunks::<8>();
    let found = words.iter().fold(0, |found, word| found | escapes(*word));
    // The last eight hold the rest, and some that were looked at before.
    let is_in_rest = match text.last_chunk::<8>() {
        Some(word) => escapes(*word) != 0,
        None => text.iter().any(|byte| *byte < b' ' || *byte == b'"' || *byte == b'\\'),
    };
    found != 0 || is_in_rest
}

/// Not zero if one of the eight bytes is a quote, a backslash or a control character.
#[inline]
fn escapes(bytes: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_le_bytes([0x80; 8]);
    let word = u64::from_le_bytes(bytes);
    // The top bit of the lowest byte that is below the limit, and perhaps of some above it.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & TOPS;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    below(word, b' ') | equal(b'"') | equal(b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_stand_one_behind_the_other_however_long_they_are() {
        let mut buffer = b"before".to_vec();
        let long = "x".repeat(3 * ROOM);
        let mut json = JsonWriter::append_to(&mut buffer);
        let mut expected = String::from("before");
        for number in 0..200 {
            json.number(b",", number);
            expected += &format!(",{number}");
            if u64::is_multiple_of(number, 50) {
                json.text(b":", &long);
                expected += &format!(":\"{long}\"");
            }
        }
        json.finish();
        assert_eq!(String::from_utf8(buffer).unwrap(), expected);
    }

    #[test]
    fn texts_are_escaped_as_json_is() {
        for text in ["", "a", "\"", "\\", "a\u{1}\n\t\u{7f}", "ä\u{202e}</script>", "\u{2028}"] {
            let mut buffer = Vec::new();
            let mut json = JsonWriter::append_to(&mut buffer);
            json.text(b"", text);
            json.finish();
            assert_eq!(buffer, serde_json::to_vec(text).unwrap());
        }
    }

    #[test]
    fn characters_that_need_an_escape_are_found_anywhere() {
        for length in 1..20 {
            for place in 0..length {
                for byte in 0..=255 {
                    let mut text = vec![b'x'; length];
                    text[place] = byte;
                    let expected = byte < b' ' || byte == b'"' || byte == b'\\';
                    assert_eq!(needs_escape(&text), expected, "{text:?}");
                }
            }
        }
    }
}
