//! How many fields a message has, before anything is made of it: of an empty one of two bytes some hundred may be made.

use prost::encoding::{DecodeContext, decode_key, skip_field};

/// Of these fields, up to where it is no message any more. Takes no memory.
pub(crate) fn count_fields(mut bytes: &[u8], counts: impl Fn(u32) -> bool) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let Ok((field, kind)) = decode_key(&mut bytes) else { break };
        count += usize::from(counts(field));
        if skip_field(kind, field, &mut bytes, DecodeContext::default()).is_err() {
            break;
        }
    }
    count
}
