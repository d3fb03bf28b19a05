//! Which partition a key belongs to: as Kafka's own producers have it, so that streams of others over the same
//! names can be joined with this one.

/// From 0 to below `partitions`.
pub(super) fn partition_of(key: &[u8], partitions: i32) -> i32 {
    let positive = (murmur2(key) & 0x7fff_ffff) as i32;
    positive.checked_rem(partitions).unwrap_or(0)
}

/// MurmurHash 2, 32 bits, with Kafka's seed.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash = SEED ^ data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> R)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        for (shift, byte) in (0..).step_by(8).zip(rest) {
            hash ^= u32::from(*byte) << shift;
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of Kafka's own test of its hash.
    #[test]
    fn the_partition_hash_is_that_of_kafka_producers() {
        for (text, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn every_key_has_a_partition_that_is_there() {
        for partitions in [1, 2, 7] {
            let mut seen = vec![0; partitions as usize];
            for number in 0..1_000 {
                seen[partition_of(format!("lock/{number}").as_bytes(), partitions) as usize] += 1;
            }
            assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        }
    }
}
