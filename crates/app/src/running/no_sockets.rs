//! Systems without Unix sockets: no engine is lent.

use std::io;
use std::path::Path;

use hone_protocol::{GenerateRequest, Generation};

use super::Lent;
use super::embed_request::{EmbedRequest, Embedded};

pub struct Lending;

impl Lending {
    pub(super) fn open(_: &Path, _: Lent) -> io::Result<Lending> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A process that lends its engine; never exists here.
pub struct Lender {
    pub(super) process: u32,
    pub(super) settings: String,
}

impl Lender {
    pub(super) fn begin(&self, _: &GenerateRequest) -> io::Result<Generation> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(super) fn embedded(_: &Lender, _: EmbedRequest) -> io::Result<Embedded> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn lenders(_: &Path) -> Vec<Lender> {
    Vec::new()
}
