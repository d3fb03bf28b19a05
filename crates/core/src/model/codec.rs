//! Bytes: how numbers, texts and lists are written and read back.
//!
//! Numbers are varints (seven bits a byte, low bits first, shortest form only), so a value has one
//! encoding. The [`Reader`] trusts nothing: a length or a count is compared with the bytes that are
//! left before anything is allocated for it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::model::name::{LockName, NameError};

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end in the middle of something.
    UnexpectedEnd,
    /// Written by another version of Holdfast.
    UnknownVersion {
        what: &'static str,
        found: u8,
        known: u8,
    },
    /// Rules of the lock table that this version does not know.
    UnknownRules {
        found: u64,
        known: u8,
    },
    /// A kind that this version does not know.
    UnknownTag {
        what: &'static str,
        tag: u8,
    },
    /// A number that is too large, or not in its shortest form.
    InvalidNumber,
    /// Not UTF-8.
    InvalidText,
    InvalidName(NameError),
    /// Something follows the end.
    TrailingBytes {
        count: usize,
    },
    /// The bytes are not those that were written.
    DigestMismatch {
        stored: u64,
        computed: u64,
    },
    /// Readable, but not a state that a lock table can be in.
    Inconsistent(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::UnexpectedEnd => f.write_str("the bytes end too early"),
            DecodeError::UnknownVersion { what, found, known } => write!(
                f,
                "the {what} has format version {found}, this build of Holdfast reads versions \
                 up to {known}; use a build that knows it"
            ),
            DecodeError::UnknownRules { found, known } => write!(
                f,
                "the cluster has adopted rules {found} of the lock table, this build of Holdfast knows \
                 rules up to {known}; use a build that knows them"
            ),
            DecodeError::UnknownTag { what, tag } => write!(
                f,
                "the {what} has kind {tag}, which this build of Holdfast does not know; use a \
                 newer one"
            ),
            DecodeError::InvalidNumber => f.write_str("a number is too large or badly written"),
            DecodeError::InvalidText => f.write_str("a text is not UTF-8"),
            DecodeError::InvalidName(error) => write!(f, "a lock name is invalid: {error}"),
            DecodeError::TrailingBytes { count } => {
                write!(f, "{count} bytes follow where the end should be")
            }
            DecodeError::DigestMismatch { stored, computed } => write!(
                f,
                "the bytes are damaged: their digest is {computed:016x}, it should be {stored:016x}"
            ),
            DecodeError::Inconsistent(what) => write!(f, "the state contradicts itself: {what}"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Takes bytes as they are written: a vector keeps them, an [`Fnv1a`] only digests them.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.u8((value as u8) | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    fn optional(&mut self, value: Option<u64>) {
        match value {
            None => self.u8(0),
            Some(value) => {
                self.u8(1);
                self.varint(value);
            }
        }
    }

    fn count(&mut self, count: usize) {
        self.varint(count as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.put(bytes);
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn u8(&mut self, value: u8) {
        self.push(value);
    }
}

/// The FNV-1a hash, 64 bits. Each step is a bijection of the state, so two texts of one length that
/// differ in a single byte never have the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv1a(u64);

impl Fnv1a {
    pub(crate) fn new() -> Fnv1a {
        Fnv1a(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut hash = Fnv1a::new();
        hash.put(bytes);
        hash.value()
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

impl Sink for Fnv1a {
    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// Reads what a [`Sink`] was given.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Whether these are next, and takes them if so.
    pub(crate) fn take_if(&mut self, bytes: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(bytes);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        let mut shift = 0;
        for (at, byte) in self.rest.iter().enumerate() {
            let bits = u64::from(byte & 0x7f);
            let fits = shift < 63 || (shift == 63 && bits <= 1);
            let shortest = *byte != 0 || shift == 0;
            if !fits || !shortest {
                return Err(DecodeError::InvalidNumber);
            }
            value |= bits << shift;
            if *byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
            shift += 7;
        }
        Err(DecodeError::UnexpectedEnd)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| DecodeError::InvalidNumber)
    }

    pub(crate) fn optional(&mut self) -> Result<Option<u64>, DecodeError> {
        match self.bool("optional number")? {
            false => Ok(None),
            true => self.varint().map(Some),
        }
    }

    pub(crate) fn bool(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(DecodeError::UnknownTag { what, tag }),
        }
    }

    /// How many things follow. Each takes at least one byte, so there cannot be more than bytes.
    pub(crate) fn count(&mut self) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.varint()?).map_err(|_| DecodeError::UnexpectedEnd)?;
        if count > self.rest.len() { Err(DecodeError::UnexpectedEnd) } else { Ok(count) }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = self.count()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, DecodeError> {
        core::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::InvalidText)
    }

    pub(crate) fn name(&mut self) -> Result<LockName, DecodeError> {
        LockName::new(self.text()?).map_err(DecodeError::InvalidName)
    }

    /// A version from 1 to the latest that is known.
    pub(crate) fn version(&mut self, what: &'static str, known: u8) -> Result<u8, DecodeError> {
        match self.u8()? {
            found if (1..=known).contains(&found) => Ok(found),
            found => Err(DecodeError::UnknownVersion { what, found, known }),
        }
    }

    pub(crate) fn end(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { count }),
        }
    }
}

/// Counts what would be written.
pub(crate) struct Length(pub(crate) usize);

impl Sink for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Canonical bytes list everything in order, once.
pub(crate) fn in_order<T: Ord>(last: Option<T>, next: T, what: &str) -> Result<(), DecodeError> {
    match last {
        Some(last) if last >= next => {
            Err(DecodeError::Inconsistent(format!("{what} are not in order")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_read_back_and_has_one_encoding() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX - 1, u64::MAX, 1 << 63] {
            let mut bytes = Vec::new();
            bytes.varint(value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.end(), Ok(()));
        }
        assert_eq!(Reader::new(&[0x80, 0x00]).varint(), Err(DecodeError::InvalidNumber));
        assert_eq!(Reader::new(&[0xff; 11]).varint(), Err(DecodeError::InvalidNumber));
        assert_eq!(Reader::new(&[0x80]).varint(), Err(DecodeError::UnexpectedEnd));
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        let mut one_bit_too_many = [0xff; 10];
        one_bit_too_many[9] = 0x02;
        let mut one_byte_too_many = [0x81; 11];
        one_byte_too_many[10] = 0x01;
        for bytes in [&one_bit_too_many[..], &one_byte_too_many] {
            assert_eq!(Reader::new(bytes).varint(), Err(DecodeError::InvalidNumber), "{bytes:x?}");
        }
    }

    #[test]
    fn there_may_be_as_many_things_as_bytes_and_a_known_version_and_nothing_after_the_end() {
        assert_eq!(Reader::new(&[2, 7, 7]).count(), Ok(2));
        assert_eq!(Reader::new(&[2, 7]).count(), Err(DecodeError::UnexpectedEnd));
        let what = "test";
        for (found, expected) in [(1, Ok(1)), (2, Ok(2))] {
            assert_eq!(Reader::new(&[found]).version(what, 2), expected);
        }
        for found in [0, 3] {
            let unknown = DecodeError::UnknownVersion { what, found, known: 2 };
            assert_eq!(Reader::new(&[found]).version(what, 2), Err(unknown));
        }
        assert_eq!(Reader::new(&[7]).end(), Err(DecodeError::TrailingBytes { count: 1 }));
    }

    #[test]
    fn a_length_beyond_the_bytes_is_refused_before_anything_is_allocated() {
        let mut bytes = Vec::new();
        bytes.varint(u64::MAX);
        assert_eq!(Reader::new(&bytes).bytes(), Err(DecodeError::UnexpectedEnd));
        assert_eq!(Reader::new(&bytes).count(), Err(DecodeError::UnexpectedEnd));
    }

    #[test]
    fn the_digest_is_fnv_1a() {
        assert_eq!(Fnv1a::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv1a::of(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn what_is_out_of_order_or_told_twice_is_refused() {
        assert_eq!(in_order(None, 1, "locks"), Ok(()));
        assert_eq!(in_order(Some(1), 2, "locks"), Ok(()));
        let refused = Err(DecodeError::Inconsistent(String::from("locks are not in order")));
        assert_eq!(in_order(Some(2), 2, "locks"), refused);
        assert_eq!(in_order(Some(3), 2, "locks"), refused);
    }
}
