//! Tests of the crate from outside: real files, real executables, and a real local HTTP server that speaks the
//! protocols of the hub and of a package index.
#![allow(clippy::unwrap_used)]

mod bundle;
mod catalog;
mod choice;
mod elsewhere;
mod fixtures;
mod hub;
mod integrity;
mod network;
mod parts;
mod processes;
mod server;
mod store;
mod wheel;
