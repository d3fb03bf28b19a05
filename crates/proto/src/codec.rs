//! Prost's codec, with two differences. A message that cannot be decoded (cut short, a text that is
//! not UTF-8) is its sender's mistake, and is answered `INVALID_ARGUMENT` instead of `INTERNAL`. And so is
//! one with very many fields: it would take a hundred times the memory that it took on its way.
//!
//! Caveat: client and server share the codec, so a client that cannot decode an *answer* sees the
//! same code. It carries none of our metadata, therefore `Failure::from_status` takes it for what it
//! is there: not worth a retry, and the request may have happened.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

use crate::count::count_fields;

/// Of all messages, by far; those with a limit of their own have a lower one.
const FIELDS_MAX: usize = 262_144;
const FIELD_BYTES_MIN: usize = 2;

/// Encodes `T`, decodes `U`.
#[derive(Debug, Clone)]
pub struct HoldfastCodec<T, U> {
    messages: PhantomData<(T, U)>,
}

impl<T, U> Default for HoldfastCodec<T, U> {
    fn default() -> Self {
        HoldfastCodec { messages: PhantomData }
    }
}

impl<T, U> Codec for HoldfastCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = WordedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        WordedDecoder { prost: ProstDecoder::default() }
    }
}

/// A decoder whose errors say whose mistake they are.
#[derive(Debug, Clone)]
pub struct WordedDecoder<U> {
    prost: ProstDecoder<U>,
}

impl<U: Message + Default> Decoder for WordedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // All of it is in one piece.
        if buf.remaining() / FIELD_BYTES_MIN > FIELDS_MAX
            && count_fields(buf.chunk(), |_| true) > FIELDS_MAX
        {
            let words =
                format!("the request cannot be decoded: it has more than {FIELDS_MAX} fields");
            return Err(Status::invalid_argument(words));
        }
        self.prost.decode(buf).map_err(|error| {
            Status::invalid_argument(format!(
                "the request cannot be decoded: {}",
                error.message().trim_start_matches("failed to decode Protobuf message: ")
            ))
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.prost.buffer_settings()
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, Bytes, BytesMut};
    use http_body_util::Full;
    use tonic::Code;
    use tonic::codec::Streaming;

    use super::*;
    use crate::v1::StatusRequest;

    /// As the server receives it: one gRPC message on the body of a request.
    async fn receive(message: &[u8]) -> Result<Option<StatusRequest>, Status> {
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).unwrap());
        body.put_slice(message);
        let mut codec = HoldfastCodec::<StatusRequest, StatusRequest>::default();
        Streaming::new_request(codec.decoder(), Full::<Bytes>::new(body.freeze()), None, None)
            .message()
            .await
    }

    #[tokio::test]
    async fn a_whole_message_is_decoded() {
        let request = StatusRequest { name: "wallet".into(), request_id: 0 };
        let received = receive(&request.encode_to_vec()).await.unwrap();
        assert_eq!(received, Some(request));
    }

    #[tokio::test]
    async fn a_message_of_very_many_fields_is_refused_before_anything_is_made_of_it() {
        // Each is a name, of which the last counts.
        let name = [0x0a, 1, b'a'];
        let received = receive(&name.repeat(FIELDS_MAX)).await.unwrap();
        assert_eq!(received.map(|request| request.name), Some("a".into()));
        let status = receive(&name.repeat(FIELDS_MAX + 1)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().ends_with("more than 262144 fields"), "{status}");
    }

    #[tokio::test]
    async fn a_message_cut_short_is_the_callers_mistake() {
        let whole = StatusRequest { name: "wallet".into(), request_id: 0 }.encode_to_vec();
        let status = receive(&whole[..4]).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with("the request cannot be decoded: "), "{status}");
    }

    #[tokio::test]
    async fn a_name_that_is_not_utf_8_is_the_callers_mistake() {
        let status = receive(&[0x0a, 2, 0xff, 0xfe]).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("UTF-8"), "{status}");
    }
}
