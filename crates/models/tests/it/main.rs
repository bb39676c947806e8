//! Tests of the crate from outside: real files, real executables, a real HTTP server on this machine that speaks the
//! hub's protocol and a package index's.
#![allow(clippy::unwrap_used)]

mod bundle;
mod catalog;
mod fixtures;
mod hub;
mod integrity;
mod network;
mod processes;
mod server;
mod store;
mod wheel;
