//! Work that several machines share, over NATS JetStream.
//!
//! A process that asks puts work into a stream ([`Requests`]); workers anywhere take it from there, as many pieces at a
//! time as they have room for ([`Work`]). The result goes into a second stream, from which the process that asked reads it.
//! From the network everything comes at least once: work and results have ids that the server knows them by, and whoever
//! takes a result checks whether it is still wanted.
//!
//! Where somebody waits for the result ([`Call`]), it comes in pieces to a subject of its own, past the streams, and the worker
//! asks every second whether anybody still listens there ([`Caller`]).
//!
//! | name | what it is | subjects |
//! | --- | --- | --- |
//! | `HONE_WORK` | stream, each piece until it is done | `hone.work.ROUTE.now`, `hone.work.ROUTE.later` ([`Route`]) |
//! | `HONE_RESULTS` | stream, for as long as `bus.keep_hours` says | `hone.results.ASKER` |
//! | `HONE_DEAD` | stream of work that was given up | `hone.dead.ROLE` |
//! | `HONE_WORKERS` | bucket with the state of each worker | |
//!
//! Messages are [`hone_protocol::Envelope`]s as JSON; one that cannot be read, as a later version may send it, is logged and passed over.
//! The connection lives on threads of its own; nothing here has to be called from an async runtime.

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
pub use workers::{OfferedModel, Queues, WorkerState};
