//! What the fuzz tests of all crates share; each includes this file. An input is a row of byte strings.
//!
//! * Inputs that once broke something are kept in `tests/corpus/<target>` of their crate and come first.
//! * `FUZZ_CASES` says how many cases each property gets; a usual test run has few.
//! * An input that breaks something now is left in the target directory, ready to be added to the corpus.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::Config;

/// So many cases, unless `FUZZ_CASES` says otherwise.
pub(crate) fn cases(usual: u32) -> Config {
    let wanted = std::env::var("FUZZ_CASES").ok().and_then(|text| text.parse().ok());
    Config {
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::with_cases(wanted.unwrap_or(usual))
    }
}

/// One target: the name of its corpus, and what must not panic.
pub(crate) struct Target {
    pub(crate) manifest_dir: &'static str,
    pub(crate) name: &'static str,
    pub(crate) feed: fn(&[Vec<u8>]),
}

impl Target {
    /// Feeds all inputs of the corpus. A corpus without any is a mistake; `FUZZ_SEED=1` writes the `valid`
    /// ones into it.
    pub(crate) fn replay(&self, valid: &[Vec<Vec<u8>>]) {
        let dir = Path::new(self.manifest_dir).join("tests/corpus").join(self.name);
        if std::env::var_os("FUZZ_SEED").is_some() {
            std::fs::create_dir_all(&dir).unwrap();
            for (number, input) in valid.iter().enumerate() {
                std::fs::write(dir.join(format!("valid-{number}")), join(input)).unwrap();
            }
        }
        let files = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir:?}: {error}"));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            (self.feed)(&split(&std::fs::read(&path).unwrap()));
            count += 1;
        }
        assert!(count > 0, "{dir:?} is empty");
    }

    /// Feeds one input, and keeps it if that panics. While a failure is being made smaller, the last one
    /// kept is the smallest.
    pub(crate) fn feed(&self, input: &[Vec<u8>]) {
        let fed = panic::catch_unwind(AssertUnwindSafe(|| (self.feed)(input)));
        if let Err(panic) = fed {
            let path = self.failure_path();
            let _ = std::fs::write(&path, join(input));
            println!("kept in {}: add it to tests/corpus/{}", path.display(), self.name);
            panic::resume_unwind(panic);
        }
    }

    fn failure_path(&self) -> PathBuf {
        std::env::temp_dir().join(format!("holdfast-fuzz-{}", self.name))
    }
}

/// Each byte string with its length before it, as four bytes, little endian.
pub(crate) fn join(input: &[Vec<u8>]) -> Vec<u8> {
    let with_length = |bytes: &Vec<u8>| [&(bytes.len() as u32).to_le_bytes(), &bytes[..]].concat();
    input.iter().flat_map(with_length).collect()
}

fn split(mut file: &[u8]) -> Vec<Vec<u8>> {
    let mut input = Vec::new();
    while let Some((length, rest)) = file.split_first_chunk::<4>() {
        let (bytes, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        input.push(bytes.to_vec());
        file = rest;
    }
    input
}

/// What happens to bytes on their way.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    FlipBits(Vec<prop::sample::Index>),
    Overwrite(prop::sample::Index, Vec<u8>),
    Truncate(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    /// The beginning of one and the end of another.
    Splice(prop::sample::Index, prop::sample::Index),
    /// Nothing of the original is left.
    Replace(Vec<u8>),
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<prop::sample::Index>;
    // Lengths and counts are what decoders stumble over: small, huge, and all ones.
    let bytes = || {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..10),
            Just(vec![0xff; 8]),
            Just(vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            Just(vec![0x00]),
            Just(vec![0x80]),
        ]
    };
    prop_oneof![
        4 => proptest::collection::vec(place(), 1..6).prop_map(Damage::FlipBits),
        3 => (place(), bytes()).prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
        1 => place().prop_map(Damage::Truncate),
        2 => (place(), bytes()).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        2 => (place(), place()).prop_map(|(end, begin)| Damage::Splice(end, begin)),
        1 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Damage::Replace),
    ]
}

impl Damage {
    pub(crate) fn of(&self, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        let place = |at: &prop::sample::Index| at.index(bytes.len() + 1);
        match self {
            Damage::FlipBits(bits) if !bytes.is_empty() => {
                for bit in bits {
                    let bit = bit.index(bytes.len() * 8);
                    damaged[bit / 8] ^= 1 << (bit % 8);
                }
            }
            Damage::FlipBits(_) => {}
            Damage::Overwrite(at, with) => {
                for (place, byte) in damaged[place(at)..].iter_mut().zip(with) {
                    *place = *byte;
                }
            }
            Damage::Truncate(length) => damaged.truncate(place(length)),
            Damage::Insert(at, with) => {
                damaged.splice(place(at)..place(at), with.iter().copied());
            }
            Damage::Splice(end, begin) => {
                damaged.truncate(place(end));
                damaged.extend_from_slice(&other[begin.index(other.len() + 1)..]);
            }
            Damage::Replace(with) => damaged = with.clone(),
        }
        damaged
    }
}
