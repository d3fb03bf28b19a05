//! One request to a server on loopback, and its whole answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Headers that are not given here: `Host`, `Content-Length` and `Connection: close`.
pub fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer, String> {
    let failed = |error: std::io::Error| format!("{method} {path} at {address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).map_err(failed)?;
    let mut bytes = Vec::new();
    let mut part = [0; 16 * 1024];
    loop {
        if let Some(answer) = complete(&bytes)? {
            return Ok(answer);
        }
        match stream.read(&mut part).map_err(failed)? {
            0 => return Err(format!("{method} {path} at {address}: cut off")),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

/// None if there is more to come.
fn complete(bytes: &[u8]) -> Result<Option<Answer>, String> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = bytes.windows(END.len()).position(|part| part == END) else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|error| error.to_string())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| format!("no HTTP: {head:?}"))?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut answer = Answer { status, headers, body: bytes[end + END.len()..].to_vec() };
    let length = answer.header("content-length").map(str::parse::<usize>);
    let length = length.transpose().map_err(|error| error.to_string())?.unwrap_or(0);
    if answer.body.len() < length {
        return Ok(None);
    }
    answer.body.truncate(length);
    Ok(Some(answer))
}
