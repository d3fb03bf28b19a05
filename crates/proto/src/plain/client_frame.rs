//! A frame to a node, encoded operation by operation, so that no operation is copied first.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use prost::{DecodeError, Message};

use crate::v1::{AcquireRequest, ClientFrame, Operation, ReleaseRequest};

/// The fields of a `ClientFrame`, and of the operations in it that are the most.
const ACKED_THROUGH: u32 = 1;
const OPERATIONS: u32 = 2;
const ACQUIRE: u32 = 5;
const RELEASE: u32 = 7;

/// A [`ClientFrame`] in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedClientFrame(Vec<u8>);

impl EncodedClientFrame {
    pub fn new(acked_through: u64) -> EncodedClientFrame {
        let mut bytes = Vec::new();
        if acked_through != 0 {
            prost::encoding::uint64::encode(ACKED_THROUGH, &acked_through, &mut bytes);
        }
        EncodedClientFrame(bytes)
    }

    pub fn push(&mut self, operation: &Operation) {
        let bytes = operation.encoded_len();
        self.write(bytes, |room| operation.encode_raw(room));
    }

    pub fn push_acquire(&mut self, request: &AcquireRequest) {
        self.push_kind(ACQUIRE, request);
    }

    pub fn push_release(&mut self, request: &ReleaseRequest) {
        self.push_kind(RELEASE, request);
    }

    /// An operation whose kind has this field number.
    fn push_kind(&mut self, kind: u32, request: &impl Message) {
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

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn decode(&self) -> Result<ClientFrame, DecodeError> {
        ClientFrame::decode(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v1::KeepAliveRequest;
    use crate::v1::operation::Kind;

    fn operation(kind: Kind) -> Operation {
        Operation { kind: Some(kind) }
    }

    proptest! {
        #[test]
        fn a_frame_is_written_as_the_message_that_it_is(
            acked_through: u64,
            requests in proptest::collection::vec((any::<u64>(), ".{0,200}", any::<u64>()), 0..8),
        ) {
            let mut frame = EncodedClientFrame::new(acked_through);
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
                frame.push_acquire(&acquire);
                frame.push_release(&release);
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
