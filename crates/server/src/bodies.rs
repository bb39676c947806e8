//! Request bodies, which are read completely before anything else happens.

use std::io::Read;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::StreamingDecoder;

use crate::Shared;
use crate::error::ApiError;
use crate::threads::BODIES;

/// Reads a request body, which must be neither too long nor too slow to arrive.
pub(crate) async fn read(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match whole(&shared, request).await {
        Ok(request) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn whole(shared: &Shared, request: Request) -> Result<Request, ApiError> {
    let settings = &shared.settings;
    let most = settings.most_body.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
    let (mut head, body) = request.into_parts();
    let reading = to_bytes(body, most);
    let read = match settings.patience {
        Some(patience) => tokio::time::timeout(patience, reading)
            .await
            .map_err(|_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body of the request did not come in time"))?,
        None => reading.await,
    };
    let read = read.map_err(|_| too_long(most))?;
    let encodings = encodings(&head.headers)?;
    if encodings.is_empty() {
        return Ok(Request::from_parts(head, Body::from(read)));
    }
    head.headers.remove(header::CONTENT_ENCODING);
    head.headers.remove(header::CONTENT_LENGTH);
    let unpacking = BODIES.computed(move || unpacked(read, &encodings, most));
    Ok(Request::from_parts(head, Body::from(unpacking.await??)))
}

fn too_long(most: usize) -> ApiError {
    let what = format!("the body is longer than {most} bytes (server.most_body), or it broke off");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, what)
}

/// How a body may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Gzip,
    Deflate,
    Zstd,
}

/// The compressions of a body, in the order in which they were applied.
fn encodings(headers: &HeaderMap) -> Result<Vec<Encoding>, ApiError> {
    let unknown = |name: &str| {
        let reason =
            format!("the body's Content-Encoding {name:?} is not known: send it as gzip, deflate, zstd or as it is");
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason)
    };
    let mut encodings = Vec::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for name in value.to_str().map_err(|_| unknown("?"))?.split(',').map(str::trim) {
            match name.to_ascii_lowercase().as_str() {
                "" | "identity" => {}
                "gzip" | "x-gzip" => encodings.push(Encoding::Gzip),
                "deflate" => encodings.push(Encoding::Deflate),
                "zstd" => encodings.push(Encoding::Zstd),
                _ => return Err(unknown(name)),
            }
        }
    }
    match encodings.len() {
        0 | 1 => Ok(encodings),
        _ => Err(unknown("of more than one kind")),
    }
}

/// The decompressed body, if it is not too long.
fn unpacked(body: Bytes, encodings: &[Encoding], most: usize) -> Result<Bytes, ApiError> {
    encodings.iter().rev().try_fold(body, |body, encoding| {
        let broken = |error: std::io::Error| ApiError::bad_request(format!("the body cannot be unpacked: {error}"));
        let unpack = |reader: &mut dyn Read| {
            let mut unpacked = Vec::new();
            reader.take((most as u64).saturating_add(1)).read_to_end(&mut unpacked).map(|_| unpacked)
        };
        let unpacked = match encoding {
            Encoding::Gzip => unpack(&mut MultiGzDecoder::new(&*body)),
            // Some programs omit the zlib wrapper that RFC 9110 requires.
            Encoding::Deflate => {
                unpack(&mut ZlibDecoder::new(&*body)).or_else(|_| unpack(&mut DeflateDecoder::new(&*body)))
            }
            Encoding::Zstd => StreamingDecoder::new(&*body)
                .map_err(std::io::Error::other)
                .and_then(|mut decoder| unpack(&mut decoder)),
        };
        let unpacked = unpacked.map_err(broken)?;
        if unpacked.len() > most { Err(too_long(most)) } else { Ok(Bytes::from(unpacked)) }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] = b"{\"messages\": []}";

    fn read(name: &str, body: Vec<u8>, most: usize) -> Result<Bytes, (StatusCode, String)> {
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, name.parse().unwrap())]);
        let read = encodings(&headers).and_then(|encodings| unpacked(body.into(), &encodings, most));
        read.map_err(|error| (error.status, error.message))
    }

    #[test]
    fn compressed_bodies_are_read() -> std::io::Result<()> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(TEXT)?;
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(TEXT)?;
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        raw.write_all(TEXT)?;
        let gzip = gzip.finish()?;
        let zstd = ruzstd::encoding::compress_to_vec(TEXT, ruzstd::encoding::CompressionLevel::Fastest);
        let packed = [("zstd", zstd), ("GZIP", gzip.clone()), ("deflate", zlib.finish()?), ("deflate", raw.finish()?)];
        for (name, body) in packed.into_iter().chain([("identity", TEXT.to_vec())]) {
            assert_eq!(read(name, body, 100).unwrap(), TEXT, "{name}");
        }
        assert_eq!(read("gzip", gzip.clone(), TEXT.len() - 1).unwrap_err().0, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(read("gzip", TEXT.to_vec(), 100).unwrap_err().1.starts_with("the body cannot be unpacked"));
        assert_eq!(read("br", gzip.clone(), 100).unwrap_err().0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(read("gzip, gzip", gzip, 100).unwrap_err().0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        Ok(())
    }
}
