//! A frame to a node, written while it is made up: what it says is not copied first.

use holdfast_proto::v1::{ClientFrame, Operation};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use prost::{DecodeError, Message};

/// The fields of a `ClientFrame`, and of the operations in it that are the most.
const ACKED_THROUGH: u32 = 1;
const OPERATIONS: u32 = 2;
pub(super) const ACQUIRE: u32 = 5;
pub(super) const RELEASE: u32 = 7;

/// A [`ClientFrame`] in bytes.
#[derive(Debug, Default)]
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    pub(super) fn new(acked_through: u64) -> Frame {
        let mut bytes = Vec::new();
        if acked_through != 0 {
            prost::encoding::uint64::encode(ACKED_THROUGH, &acked_through, &mut bytes);
        }
        Frame(bytes)
    }

    pub(super) fn push(&mut self, operation: &Operation) {
        let bytes = operation.encoded_len();
        self.write(bytes, |room| operation.encode_raw(room));
    }

    /// An operation whose kind has this field, by what is in it.
    pub(super) fn push_kind(&mut self, kind: u32, request: &impl Message) {
        let bytes = request.encoded_len();
        let around = key_len(kind) + encoded_len_varint(bytes as u64);
        self.write(around + bytes, |room| {
            encode_key(kind, WireType::LengthDelimited, room);
            encode_varint(bytes as u64, room);
            request.encode_raw(room);
        });
    }

    fn write(&mut self, bytes: usize, operation: impl FnOnce(&mut &mut [u8])) {
        let begin = self.0.len();
        let around = key_len(OPERATIONS) + encoded_len_varint(bytes as u64);
        // Into a slice of the right length; a vector would be asked for room at every byte.
        self.0.resize(begin + around + bytes, 0);
        let mut room = &mut self.0[begin..];
        encode_key(OPERATIONS, WireType::LengthDelimited, &mut room);
        encode_varint(bytes as u64, &mut room);
        operation(&mut room);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn decode(&self) -> Result<ClientFrame, DecodeError> {
        ClientFrame::decode(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::operation::Kind;
    use holdfast_proto::v1::{AcquireRequest, KeepAliveRequest, ReleaseRequest};
    use proptest::prelude::*;

    use super::*;

    fn operation(kind: Kind) -> Operation {
        Operation { kind: Some(kind) }
    }

    proptest! {
        #[test]
        fn a_frame_is_written_as_the_message_that_it_is(
            acked_through: u64,
            requests in proptest::collection::vec((any::<u64>(), ".{0,200}", any::<u64>()), 0..8),
        ) {
            let mut frame = Frame::new(acked_through);
            let mut operations = Vec::new();
            for (request_id, name, number) in requests {
                let acquire = AcquireRequest {
                    request_id,
                    name: name.clone(),
                    wait_ms: number,
                    ttl_ms: Some(number),
                    ..Default::default()
                };
                let release = ReleaseRequest { request_id, name, token: number, ..Default::default() };
                let keep_alive = KeepAliveRequest { request_id, ..Default::default() };
                let keep_alive = operation(Kind::KeepAlive(keep_alive));
                frame.push_kind(ACQUIRE, &acquire);
                frame.push_kind(RELEASE, &release);
                frame.push(&keep_alive);
                let both = [Kind::Acquire(acquire), Kind::Release(release)];
                operations.extend(both.into_iter().map(operation).chain([keep_alive]));
            }
            let message = ClientFrame { acked_through, operations };
            prop_assert_eq!(frame.bytes(), message.encode_to_vec());
            prop_assert_eq!(frame.decode(), Ok(message));
        }
    }
}
