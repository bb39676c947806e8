//! Work shared by several machines, over NATS JetStream.
//!
//! A process puts jobs into a stream ([`Requests`]); workers anywhere take them from there, as many at a time as they
//! have room for ([`Work`]). The result goes into a second stream, from which the requesting process reads it. The
//! network delivers everything at least once: jobs and results have ids by which the server recognizes them, and the
//! receiver of a result checks whether it is still wanted.
//!
//! When a caller waits for the result ([`Call`]), it arrives in pieces on a subject of its own, bypassing the streams,
//! and the worker asks every second whether the caller still listens there ([`Caller`]).
//!
//! | name | kind | subjects |
//! | --- | --- | --- |
//! | `HONE_WORK` | stream, each piece until it is done | `hone.work.ROUTE.now`, `hone.work.ROUTE.later` ([`Route`]) |
//! | `HONE_RESULTS` | stream, for as long as `bus.keep_hours` says | `hone.results.ASKER` |
//! | `HONE_DEAD` | stream of work that was given up | `hone.dead.ROLE` |
//! | `HONE_WORKERS` | bucket with the state of each worker | |
//!
//! Messages are [`hone_protocol::Envelope`]s as JSON; unreadable ones, which a later version may send, are logged and
//! skipped. The connection has threads of its own; no async runtime is needed to call this crate.

mod caller;
mod calls;
mod connection;
mod dead;
mod error;
mod requests;
mod roster;
mod route;
mod settings;
mod work;
mod workers;

pub use caller::Caller;
pub use calls::{Call, Piece};
pub use connection::Fleet;
pub use dead::DeadWork;
pub use error::FleetError;
pub use requests::{LONGEST, Requests, Unsent};
pub use roster::Roster;
pub use route::{Route, Urgency};
pub use settings::BusSettings;
pub use work::{Job, Work};
pub use workers::{OfferedModel, Queues, Reported, WorkerState};
