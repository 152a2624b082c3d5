//! Builds requests as a client sends them, for tests, benchmarks, and servers that call other
//! servers.

use sheaf_bson::RawDoc;

use crate::checksum;
use crate::compression::{self, Compressor};
use crate::header::{HEADER_BYTES, Header, op};
use crate::message::Flags;

/// An OP_MSG with this body and these document sequences. Appends a checksum if
/// [`Flags::CHECKSUM_PRESENT`] is set.
pub fn op_msg(
    request_id: i32,
    flags: Flags,
    body: RawDoc<'_>,
    sequences: &[(&str, &[RawDoc<'_>])],
) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.push(0);
    out.extend_from_slice(body.as_bytes());
    for (identifier, documents) in sequences {
        out.push(1);
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(identifier.as_bytes());
        out.push(0);
        for document in *documents {
            out.extend_from_slice(document.as_bytes());
        }
        let size = (out.len() - start) as i32;
        out[start..start + 4].copy_from_slice(&size.to_le_bytes());
    }
    let with_checksum = flags.has(Flags::CHECKSUM_PRESENT);
    let length = out.len()
        + if with_checksum {
            checksum::CHECKSUM_BYTES
        } else {
            0
        };
    put_header(&mut out, length, request_id, op::MSG);
    if with_checksum {
        let sum = checksum::of(&out);
        out.extend_from_slice(&sum.to_le_bytes());
    }
    out
}

/// An OP_QUERY with one document, as sent by old drivers in the handshake.
pub fn op_query(request_id: i32, namespace: &str, query: RawDoc<'_>) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(namespace.as_bytes());
    out.push(0);
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(&(-1i32).to_le_bytes());
    out.extend_from_slice(query.as_bytes());
    let length = out.len();
    put_header(&mut out, length, request_id, op::QUERY);
    out
}

/// Wraps a message in an OP_COMPRESSED. Returns it unchanged if that is not shorter, except with
/// noop, which always wraps.
pub fn compressed(compressor: Compressor, message: &[u8]) -> Vec<u8> {
    let Some(header) = Header::read(message) else {
        return message.to_vec();
    };
    let plain = &message[HEADER_BYTES..];
    let mut out = vec![0; HEADER_BYTES];
    out.extend_from_slice(&header.op_code.to_le_bytes());
    out.extend_from_slice(&(plain.len() as i32).to_le_bytes());
    out.push(compressor as u8);
    if compressor == Compressor::Noop {
        out.extend_from_slice(plain);
    } else if !compression::compress(compressor, plain, &mut out) {
        return message.to_vec();
    }
    let length = out.len();
    put_header(&mut out, length, header.request_id, op::COMPRESSED);
    out
}

fn put_header(out: &mut [u8], length: usize, request_id: i32, op_code: i32) {
    let header = Header {
        message_length: length as i32,
        request_id,
        response_to: 0,
        op_code,
    };
    out[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
}
