//! The fields of a message, one after the other, as long as there is nothing unusual about them.

/// A number of more bytes is rare. The generated decoding knows which of them are none.
const NUMBER_BYTES_MAX: usize = 9;

const NUMBER: u64 = 0;
const BYTES: u64 = 2;

pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The tag of the next one and its value, or that there is none. None of both if it is unusual or wrong.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Option<(u64, Value<'a>)>> {
        if self.rest.is_empty() {
            return Some(None);
        }
        let key = self.number()?;
        let value = match key & 7 {
            NUMBER => Value::Number(self.number()?),
            BYTES => {
                let length = usize::try_from(self.number()?).ok()?;
                let (bytes, rest) = self.rest.split_at_checked(length)?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        Some(Some((key >> 3, value)))
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for at in 0..NUMBER_BYTES_MAX {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << (7 * at);
            if *byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

impl<'a> Value<'a> {
    #[inline]
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(number),
            Value::Bytes(_) => None,
        }
    }

    #[inline]
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            Value::Number(_) => None,
        }
    }

    #[inline]
    pub(super) fn text(self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }
}
