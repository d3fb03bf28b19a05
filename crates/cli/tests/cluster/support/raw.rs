//! Calls with bytes that no generated client would send.

use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// Sends `bytes` as the request of a unary method, e.g. `/holdfast.v1.LockService/Acquire`.
pub(crate) async fn call_with_bytes(
    address: &str,
    method: &'static str,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, Status> {
    let channel: Channel =
        Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(method);
    Ok(grpc.unary(Request::new(bytes), path, Bytes).await?.into_inner())
}

struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; bytes::Buf::remaining(buffer)];
        bytes::Buf::copy_to_slice(buffer, &mut item);
        Ok(Some(item))
    }
}
