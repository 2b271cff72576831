//! One checksummed record layout, on disk and on the wire; parse in place, write in place.
//!
//! ```text
//!   0        4         8                 16      18     20      24
//!   | length | CRC-32C | mark            | kind  | flags| chain | payload … | padding to 8 |
//! ```
//! All little endian. `length` counts the payload; the checksum covers everything but itself and the padding; `mark`
//! is the LSN on disk and the request id on the wire; `chain` is opaque here.
//!
//! Walk: [`lay`] appends a frame to a buffer ([`lay_at`] to memory that must not move), [`mark`] patches one in place ·
//! [`parse`] finds the first frame in bytes · [`Writer`] and [`Reader`] lay and read the fields of payloads.
//! Deliberately absent: I/O, and knowledge of what a payload means.
#![forbid(unsafe_code)]

mod fields;
#[doc(hidden)]
pub mod fuzzing;
mod layout;

pub use fields::{Malformed, Reader, Writer};
pub use layout::{
    ALIGN_BYTES, Frame, FrameError, HEADER_BYTES, Head, PAYLOAD_BYTES_MAX, crc32c, laid_bytes, lay, lay_at, lay_with,
    mark, parse,
};
